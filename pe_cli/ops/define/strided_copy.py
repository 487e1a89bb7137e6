"""Copies of boxes between tensors with any strides.

What transpose, concat, split, slice, pad, stack and their gradients are made of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pe_cli.core.types import DTYPES
from pe_cli.kernels.cpu.transpose import transpose_part
from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.cuda.math import quotient, replaces
from pe_cli.kernels.language import SIZE, Addr, Int, Ptr, PtrI64, helper, kernel
from pe_cli.ops.define.lowering import Buffer, Lowering, Numbers, Offset
from pe_cli.ops.define.work_parts import thread_parts

#: Element types whose instances move all types of a size: a copy knows bytes only.
MOVED_AS = {1: "uint8", 2: "bfloat16", 4: "float32", 8: "float64"}


@helper
def place_of(block, rank, geometry, which):
    """Return a block's offset in source (which = 1) or target (2); geometry is (size, step, step), last axis first."""
    at = 0
    rest = block
    for k in range(rank):
        size = geometry[3 * k]
        at += (rest % size) * geometry[3 * k + which]
        rest //= size
    return at


@kernel
def copy_rows(x: Ptr, out: Ptr, geometry: PtrI64, rank: Int, blocks: Int, rows: Int, n: Int, xr: Int, yr: Int):
    """Copy rows of n neighbours; rows lie xr and yr elements apart."""
    for b in range(blocks):
        at = place_of(b, rank, geometry, 1)
        to = place_of(b, rank, geometry, 2)
        for r in range(rows):
            for i in range(n):
                out[to + r * yr + i] = x[at + r * xr + i]


@kernel
def copy_strided(
    x: Ptr, out: Ptr, geometry: PtrI64, rank: Int, blocks: Int, rows: Int, n: Int, xr: Int, yr: Int, xs: Int, ys: Int
):
    """Copy rows of n elements that lie xs and ys elements apart."""
    for b in range(blocks):
        at = place_of(b, rank, geometry, 1)
        to = place_of(b, rank, geometry, 2)
        for r in range(rows):
            for i in range(n):
                out[to + r * yr + i * ys] = x[at + r * xr + i * xs]


@kernel
def copy_transposed(x: Addr, out: Addr, geometry: PtrI64, rank: Int, blocks: Int, rows: Int, n: Int, xr: Int, yr: Int):
    """Copy matrices: out[j, i] = x[i, j] for i < rows, j < n, with row strides xr and yr."""
    for b in range(blocks):
        at = place_of(b, rank, geometry, 1)
        to = place_of(b, rank, geometry, 2)
        transpose_part(x + SIZE * at, xr, out + SIZE * to, yr, rows, n, blocks * rows * n)


def row_major(shape: Sequence[int]) -> list[int]:
    """Return the strides of a dense tensor, in elements."""
    steps = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        steps[i] = steps[i + 1] * shape[i + 1]
    return steps


def joined(shape: Sequence[int], x_steps: Sequence[int], y_steps: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (size, source step, target step); axes of size 1 are dropped, axes that both sides walk as one joined."""
    out: list[tuple[int, int, int]] = []
    for size, xs, ys in zip(shape, x_steps, y_steps, strict=True):
        if size == 1:
            continue
        # The outer axis goes on where the inner one ends, on both sides: one loop walks the two axes.
        if out and out[-1][1] == size * xs and out[-1][2] == size * ys:
            out[-1] = (out[-1][0] * size, xs, ys)
        else:
            out.append((size, xs, ys))
    return out


def copy_box(
    o: Lowering,
    x: Buffer,
    out: Buffer,
    shape: Sequence[int],
    x_steps: Sequence[int],
    y_steps: Sequence[int],
    x_start: int = 0,
    y_start: int = 0,
) -> None:
    """Append the calls that copy a box, which must not overlap itself: parts, of which threads take one each.

    Args:
        x: source; any element type.
        out: target, of the same element type.
        shape: sizes of the box.
        x_steps: elements from one index to the next in the source, an axis each; may be 0 or negative.
        y_steps: likewise in the target.
        x_start: first element in the source.
        y_start: first element in the target.
    """
    if 0 in shape:
        return
    # A box of sizes of 1 has no axis left: it is one element.
    (size, xs, ys), *rest = joined(shape, x_steps, y_steps) or [(1, 1, 1)]
    for part, begin, end in thread_parts(size, o.threads, math.prod(shape) * DTYPES[out.dtype]):
        source, target = Offset(x, x_start + begin * xs), Offset(out, y_start + begin * ys)
        _copy(o, source, target, [(end - begin, xs, ys), *rest], part)


def _copy(o: Lowering, source: Offset, target: Offset, axes: list[tuple[int, int, int]], part: int | None) -> None:
    """Append the call that copies a box of such axes."""
    # Bits are moved, so types of one size share a kernel.
    dtype = MOVED_AS[DTYPES[target.buffer.dtype]]
    turned = [a for a in axes if a[1] == 1] if DTYPES[target.buffer.dtype] > 1 else []
    if turned and axes[-1][2] == 1 and axes[-1][1] != 1:
        # One axis is dense in the source, another in the target: a transposed matrix.
        (columns, _, yr), (rows, xr, _) = turned[0], axes[-1]
        others = [a for a in axes if a is not turned[0] and a is not axes[-1]]
        o.call(copy_transposed, source, target, *_blocks(others), rows, columns, xr, yr, dtype=dtype, part=part)
        return
    *others, (n, xs, ys) = axes
    rows, xr, yr = others.pop() if others else (1, 0, 0)
    if xs == 1 and ys == 1:
        o.call(copy_rows, source, target, *_blocks(others), rows, n, xr, yr, dtype=dtype, part=part)
    else:
        o.call(copy_strided, source, target, *_blocks(others), rows, n, xr, yr, xs, ys, dtype=dtype, part=part)


def _blocks(axes: Sequence[tuple[int, int, int]]) -> tuple[Numbers, int, int]:
    count = 1
    for size, _, _ in axes:
        count *= size
    return Numbers(tuple(v for axis in reversed(axes) for v in axis)), len(axes), count


# --- CUDA -------------------------------------------------------------------------------------------------------------


@replaces(place_of)
def _place_of(block, rank, geometry, which):
    at = 0
    rest = block
    for k in range(rank):
        size = geometry[3 * k]
        whole = quotient(rest, size)
        at += (rest - whole * size) * geometry[3 * k + which]
        rest = whole
    return at


@on_cuda(copy_rows)
def copy_rows_cuda(x: Ptr, out: Ptr, geometry: PtrI64, rank: Int, blocks: Int, rows: Int, n: Int, xr: Int, yr: Int):
    """One thread per element."""
    for e in range(blocks * rows * n):
        row = quotient(e, n)
        b = quotient(row, rows)
        r, i = row - b * rows, e - row * n
        out[place_of(b, rank, geometry, 2) + r * yr + i] = x[place_of(b, rank, geometry, 1) + r * xr + i]


@on_cuda(copy_strided)
def copy_strided_cuda(
    x: Ptr, out: Ptr, geometry: PtrI64, rank: Int, blocks: Int, rows: Int, n: Int, xr: Int, yr: Int, xs: Int, ys: Int
):
    """One thread per element."""
    for e in range(blocks * rows * n):
        row = quotient(e, n)
        b = quotient(row, rows)
        r, i = row - b * rows, e - row * n
        out[place_of(b, rank, geometry, 2) + r * yr + i * ys] = x[place_of(b, rank, geometry, 1) + r * xr + i * xs]


@on_cuda(copy_transposed)
def copy_transposed_cuda(
    x: Addr, out: Addr, geometry: PtrI64, rank: Int, blocks: Int, rows: Int, n: Int, xr: Int, yr: Int
):
    """One thread per element, neighbours in the target."""
    for e in range(blocks * rows * n):
        row = quotient(e, rows)
        b = quotient(row, n)
        j, i = row - b * n, e - row * rows
        out[place_of(b, rank, geometry, 2) + j * yr + i] = x[place_of(b, rank, geometry, 1) + i * xr + j]
