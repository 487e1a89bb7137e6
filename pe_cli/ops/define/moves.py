"""Kernels that many ops call: a copy, and one value everywhere."""

from __future__ import annotations

from pe_cli.kernels.cuda import deal, on_cuda
from pe_cli.kernels.lang import Int, Ptr, Real, T, address, kernel


@kernel
def copy(x: Ptr, out: Ptr, n: Int):
    """out = x; nothing where the plan gave both the same bytes."""
    if address(x) == address(out):
        return
    for i in range(n):
        out[i] = x[i]


@kernel
def fill(out: Ptr, n: Int, value: Real):
    """Write value n times."""
    for i in range(n):
        out[i] = T(value)


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(fill)


@on_cuda(copy, copies=True)
def copy_cuda(x: Ptr, out: Ptr, n: Int):
    """One thread per element."""
    for i in range(n):
        out[i] = x[i]
