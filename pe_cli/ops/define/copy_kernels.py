"""Kernels that many ops share: copy, fill and cast."""

from __future__ import annotations

from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrU, Real, T, address, kernel


@kernel(scalar=True)
def copy(x: Ptr, out: Ptr, n: Int):
    """out = x; nothing where the plan gave both the same bytes."""
    if address(x) == address(out):
        return
    for i in range(n):
        out[i] = x[i]


@kernel(scalar=True)
def convert(x: PtrU, out: Ptr, n: Int):
    """out = x in out's type; fractions are cut off."""
    for i in range(n):
        out[i] = T(x[i])


@kernel
def fill(out: Ptr, n: Int, value: Real):
    """Write value n times."""
    for i in range(n):
        out[i] = T(value)


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(fill, convert)


@on_cuda(copy, copies=True)
def copy_cuda(x: Ptr, out: Ptr, n: Int):
    """One thread per element."""
    for i in range(n):
        out[i] = x[i]
