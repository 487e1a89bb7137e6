"""Gradients that are added to another instead of being written for a sum: what lowerings of ops with `adds` are made of.

The result has the bits of `sum(X@ADDTO, gradient)`: the gradient is complete, and rounded, before it is added. A kernel that can do that
itself starts from `preload`; for the others there is `beside`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.language import Int, Ptr, address, kernel
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.lowering import Buffer, Lowering, Offset
from pe_cli.ops.define.registry import added_slot

#: Elements of a gradient that are computed at a time before they are added: they stay in the second cache.
PIECE = 16 * 1024
#: Most pieces: calls are cheap, but not free.
PIECES = 64


@kernel
def add(x: Ptr, y: Ptr, out: Ptr, n: Int):
    """out = x + y; out may be x."""
    if address(x) == address(out):
        for i in range(n):
            out[i] += y[i]
    else:
        for i in range(n):
            out[i] = x[i] + y[i]


@on_cuda(add)
def add_cuda(x: Ptr, y: Ptr, out: Ptr, n: Int):
    """One thread per element; out may be x or y."""
    for i in range(n):
        out[i] = x[i] + y[i]


def added(o: Lowering, slot: str) -> Buffer | None:
    """Return what the gradient in an output slot is added to; None where it is simply written."""
    found = o.inputs(added_slot(slot))
    return found[0] if found else None


def preload(o: Lowering, slot: str) -> int:
    """Make a gradient's buffer hold what it is added to, and return 1 for kernels that add; 0 where there is nothing to add to."""
    other, out = added(o, slot), o.output(slot)
    if other is None:
        return 0
    if out.size and other is not out:
        o.call(copy, other, out, out.size)
    return 1


def beside(o: Lowering, slot: str, write: Callable[[Buffer], None]) -> None:
    """Append the calls that write a gradient: into its buffer, or into scratch that is then added.

    Args:
        o: of the gradient op.
        slot: of the gradient.
        write: appends the calls that write it into a buffer.
    """
    other, out = added(o, slot), o.output(slot)
    if other is None or not out.size:
        write(out)
        return
    made = o.scratch_like(out)
    write(made)
    o.call(add, other, made, out, out.size)


def in_pieces(o: Lowering, slot: str, write: Callable[[Any, int, int], None]) -> None:
    """Do `beside` for a gradient whose elements depend on nothing but those of the same place, piece by piece in cache.

    Args:
        o: of the gradient op.
        slot: of the gradient.
        write: `(target, begin, end)`: appends the call that writes elements begin to end into a buffer.
    """
    other, out = added(o, slot), o.output(slot)
    if other is None:
        write(out, 0, out.size)
        return
    # A multiple of PIECE: one PIECE each up to PIECES of them, beyond that larger ones, so that the calls stay few.
    piece = max(1, -(-out.size // (PIECE * PIECES))) * PIECE
    made = o.scratch(min(piece, out.size), out.dtype)
    for first in range(0, out.size, piece):
        last = min(first + piece, out.size)
        write(made, first, last)
        o.call(add, Offset(other, first), made, Offset(out, first), last - first)
