"""Blocked transposes: of matrices, batches of matrices (NCHW <-> NHWC) and the strips that GEMM packs.

Square tiles are transposed in vector registers, so that both sides move whole cache lines.
"""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.lang import LANES, SIZE, PerType, helper, intrinsic, pointer

#: Side of a tile: a vector's elements, but no more than the vector registers hold rows.
TILE: Any = PerType("TILE", lambda dtype: min(LANES.value(dtype), 16))


@intrinsic("void", "int64", "int64", "int64", "int64")
def _tile(env: Any, args: list[Any]) -> Any:
    """Write y[j*yr + i] = x[i*xr + j] for i, j < TILE, given (x, xr, y, yr)."""
    from llvmlite import ir

    from pe_cli.core.types import DTYPES

    b, lanes, i64 = env.builder, min(env.lanes, 16), ir.IntType(64)
    vector = ir.VectorType(env.element, lanes)
    size = ir.Constant(i64, DTYPES[env.dtype])
    step_x, step_y = b.mul(args[1], size), b.mul(args[3], size)

    def at(base: Any, step: Any, i: int) -> Any:
        return b.inttoptr(b.add(base, b.mul(step, ir.Constant(i64, i))), vector.as_pointer())

    rows = [b.load(at(args[0], step_x, i), align=DTYPES[env.dtype]) for i in range(lanes)]
    span = 1
    while span < lanes:
        # Rows i and i + span swap their off-diagonal span x span squares; after log2(lanes) rounds rows are columns.
        low = [(j if not j & span else lanes + j - span) for j in range(lanes)]
        high = [(j + span if not j & span else lanes + j) for j in range(lanes)]
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), lanes), m) for m in (low, high)]
        for i in range(lanes):
            if not i & span:
                first, second = rows[i], rows[i + span]
                rows[i], rows[i + span] = (b.shuffle_vector(first, second, m) for m in masks)
        span *= 2
    for i in range(lanes):
        b.store(rows[i], at(args[2], step_y, i), align=DTYPES[env.dtype])


@helper
def transpose(x, xr, y, yr, rows, columns):
    """Write y[j*yr + i] = x[i*xr + j] for i < rows, j < columns.

    Args:
        x: address of [rows, columns], row stride xr elements.
        xr: elements.
        y: address of [columns, rows], row stride yr elements; does not overlap x.
        yr: elements.
        rows: number of rows of x.
        columns: number of columns of x.
    """
    if rows < TILE or columns < TILE:
        source = pointer(x)
        target = pointer(y)
        for j in range(columns):
            for i in range(rows):
                target[j * yr + i] = source[i * xr + j]
    else:
        # The last tile of a row or column starts early and overlaps its neighbour: it writes the same values again.
        for i0 in range(0, rows, TILE):
            i = min(i0, rows - TILE)
            for j0 in range(0, columns, TILE):
                j = min(j0, columns - TILE)
                _tile(x + SIZE * (i * xr + j), xr, y + SIZE * (j * yr + i), yr)


@helper
def transpose_batch(x, y, batch, rows, columns):
    """Transpose each matrix of a batch: NHWC from NCHW with rows = channels, columns = pixels, and back.

    Args:
        x: address of [batch, rows, columns], dense.
        y: address of [batch, columns, rows], dense; does not overlap x.
        batch: number of matrices.
        rows: rows of a matrix of x.
        columns: columns of a matrix of x.
    """
    for n in range(batch):
        at = SIZE * n * rows * columns
        transpose(x + at, columns, y + at, rows, rows, columns)


@helper
def oihw_to_hwio(source, target, o, i, h, w):
    """Copy filters [o, i, h, w] to [h, w, i, o]; addresses, no overlap."""
    for q in range(i):
        transpose(source + SIZE * q * h * w, i * h * w, target + SIZE * q * o, i * o, o, h * w)


@helper
def hwio_to_oihw(source, target, o, i, h, w, low, high):
    """Copy rows low to high of filters [h, w, i, o] to [o, i, h, w]; addresses, no overlap."""
    first = low * w
    for q in range(i):
        begin, end = source + SIZE * (first * i + q) * o, target + SIZE * (q * h * w + first)
        transpose(begin, i * o, end, i * h * w, (high - low) * w, o)
