"""Kinds of values in kernels, and what becomes of two that meet: the rules of numba, which the kernel language was first compiled by.

A kind is a name: `bool`, `uint8`, `int32`, `uint32`, `int64`, `uint64`, `float32`, `float64`, one of these with a `*` for a pointer, or
a tuple of kinds. `bfloat16*` points to numbers that are read as float32 and rounded when they are written. None is no value.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

from llvmlite import ir

from pe_cli.core.types import BFLOAT16

Kind: TypeAlias = "str | tuple[Any, ...] | None"

#: Bits of integers; those of a bool are stored by nobody.
INTEGERS = {"bool": 1, "uint8": 8, "int32": 32, "uint32": 32, "int64": 64, "uint64": 64}
REALS = {"float32": 32, "float64": 64}
#: Integers that float32 holds all of.
_EXACT = ("bool", "uint8", "float32")


class Unclear(Exception):
    """What the kernel language has not; the message says what."""


def signed(kind: Kind) -> bool:
    """Return whether an integer's highest bit is its sign."""
    return str(kind).startswith("int")


@functools.cache
def llvm_type(kind: Kind) -> Any:
    """Return the LLVM type of a kind."""
    if kind is None:
        return ir.VoidType()
    if isinstance(kind, tuple):
        return ir.LiteralStructType([llvm_type(k) for k in kind])
    if kind.endswith("*"):
        return ir.PointerType(ir.IntType(16) if kind[:-1] == BFLOAT16 else llvm_type(kind[:-1]))
    if kind in REALS:
        return ir.FloatType() if kind == "float32" else ir.DoubleType()
    return ir.IntType(INTEGERS[kind])


def together(a: Kind, b: Kind) -> Kind:  # noqa: PLR0911 - one case per pair of kinds
    """Return the kind that values of both have where they meet: of a variable after a branch, of `min`, of a comparison.

    Raises:
        Unclear: there is none.
    """
    if a == b:
        return a
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(together(x, y) for x, y in zip(a, b, strict=True))
    if not (is_number(a) and is_number(b)):
        raise Unclear(f"a value that is {a} here and {b} there")
    if a in REALS or b in REALS:
        return _real(a, b)
    if a == "bool" or b == "bool":
        return b if a == "bool" else a
    if signed(a) == signed(b):
        return max(a, b, key=lambda k: INTEGERS[str(k)])
    number, natural = (a, b) if signed(a) else (b, a)
    # No integer has both ranges; NumPy's rule is float64.
    if natural == "uint64":
        return "float64"
    return "int64" if natural == "uint32" else number


def is_number(kind: Kind) -> bool:
    """Return whether arithmetic knows it."""
    return kind in INTEGERS or kind in REALS


def _real(a: Kind, b: Kind) -> Kind:
    return "float32" if a in _EXACT and b in _EXACT else "float64"


def computed_in(operation: str, a: Kind, b: Kind) -> Kind:
    """Return the kind that both operands of an operation become, which its result has.

    Args:
        operation: name of an `ast` operator, such as `Add`.
        a, b: kinds of the operands.

    Raises:
        Unclear: there is no such operation.
    """
    if not (is_number(a) and is_number(b)):
        raise Unclear(f"{operation} of {a} and {b}")
    bits = operation in ("BitAnd", "BitOr", "BitXor")
    if a in REALS or b in REALS:
        if bits or operation in ("LShift", "RShift"):
            raise Unclear(f"{operation} of {a} and {b}")
        return _real(a, b)
    if operation == "Div":
        return "float64"
    if operation in ("LShift", "RShift"):
        # Only the left operand decides: a signed count of places must not make an unsigned mask signed.
        return "int64" if signed(a) or a == "bool" else "uint64"
    if bits and a == b == "bool":
        return "bool"
    # Integers are computed in 64 bits however they are stored, so products of sizes and offsets do not overflow.
    natural = all(str(k).startswith("uint") for k in (a, b))
    return "uint64" if natural else "int64"
