"""32-bit index arithmetic on CUDA, where Python's integers would be 64 bits, for sizes that a call knows to fit."""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.cuda.language import cuda_intrinsic


def reciprocal(divisor: int) -> tuple[int, int]:
    """Return (m, s) such that `divided` divides by a number from 1 to 2**31 - 1."""
    bits = (divisor - 1).bit_length()
    return -(-(1 << (31 + bits)) // divisor), bits


@cuda_intrinsic("int64", "int64", "int64", "int64")
def divided(env: Any, args: list[Any]) -> Any:
    """Return a // d of a number from 0 to 2**31 - 1, by the upper half of a product and a shift; (m, s) is `reciprocal(d)`.

    Granlund and Montgomery 1994, theorem 4.2: m d exceeds 2**(31 + s) by less than d, which a makes less than 2**31 d <= 2**(31 + s).
    """
    from llvmlite import ir

    b, half, whole = env.builder, ir.IntType(32), ir.IntType(64)
    a, m, s = (b.trunc(arg, half) for arg in args)
    # Twice a, which is below 2**31, still has 32 bits; the upper half of the product is then a m / 2**31.
    product = b.mul(b.zext(b.shl(a, half(1)), whole), b.zext(m, whole))
    return b.zext(b.lshr(b.trunc(b.lshr(product, whole(32)), half), s), whole)


@cuda_intrinsic("int64", "int64", "int64", "int64")
def left_over(env: Any, args: list[Any]) -> Any:
    """Return a - q d of a quotient q."""
    from llvmlite import ir

    b, half = env.builder, ir.IntType(32)
    a, q, d = (b.trunc(arg, half) for arg in args)
    return b.zext(b.sub(a, b.mul(q, d)), ir.IntType(64))
