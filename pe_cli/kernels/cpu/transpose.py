"""Blocked transposes: of matrices, batches of matrices (NCHW <-> NHWC) and the strips that GEMM packs.

Square tiles are transposed in vector registers, so that both sides move whole cache lines.
"""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.cpu.non_temporal import LINE, fence_non_temporal, is_non_temporal, store_non_temporal
from pe_cli.kernels.language import LANES, SIZE, PerType, helper, intrinsic, pointer

#: Side of a tile: a vector's elements, but no more than the vector registers hold rows.
TILE: Any = PerType("TILE", lambda dtype: min(LANES.value(dtype), 16))
#: Rows of x whose tiles are done side by side, so that y is written in long runs: few enough for their pages to stay at hand.
PART = 256


def _square(env: Any, sources: list[Any]) -> list[Any]:
    """Emit a square of as many rows as addresses, loaded from there; return its columns as vectors."""
    from llvmlite import ir

    from pe_cli.core.types import DTYPES

    b, lanes = env.builder, len(sources)
    kind = ir.VectorType(env.element, lanes).as_pointer()
    rows = [b.load(b.inttoptr(at, kind), align=DTYPES[env.dtype]) for at in sources]
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
    return rows


def _store(env: Any, columns: list[Any], targets: list[Any]) -> None:
    from pe_cli.core.types import DTYPES

    b = env.builder
    for value, at in zip(columns, targets, strict=True):
        b.store(value, b.inttoptr(at, value.type.as_pointer()), align=DTYPES[env.dtype])


def _places(env: Any, base: Any, step: Any) -> list[Any]:
    """Return addresses of as many rows as a tile has, a step of elements apart."""
    from llvmlite import ir

    from pe_cli.core.types import DTYPES

    b, i64 = env.builder, ir.IntType(64)
    stride = b.mul(step, ir.Constant(i64, DTYPES[env.dtype]))
    return [b.add(base, b.mul(stride, ir.Constant(i64, i))) for i in range(min(env.lanes, 16))]


def _swapped(env: Any, base: Any, step: Any, first: Any, taps: Any, inputs: Any) -> list[Any]:
    """Return addresses of the rows (tap, input) that pairs (input, tap) from number `first` on stand in, a step of elements apart."""
    from llvmlite import ir

    from pe_cli.core.types import DTYPES

    b, i64 = env.builder, ir.IntType(64)
    stride = b.mul(step, ir.Constant(i64, DTYPES[env.dtype]))
    one, none = ir.Constant(i64, 1), ir.Constant(i64, 0)
    channel, tap = b.sdiv(first, taps), b.srem(first, taps)
    found = []
    for _ in range(min(env.lanes, 16)):
        found.append(b.add(base, b.mul(b.add(b.mul(tap, inputs), channel), stride)))
        tap = b.add(tap, one)
        over = b.icmp_signed("==", tap, taps)
        tap, channel = b.select(over, none, tap), b.add(channel, b.zext(over, i64))
    return found


@intrinsic("void", "int64", "int64", "int64", "int64")
def _tile(env: Any, args: list[Any]) -> Any:
    """Write y[j*yr + i] = x[i*xr + j] for i, j < TILE, given (x, xr, y, yr)."""
    x, xr, y, yr = args
    _store(env, _square(env, _places(env, x, xr)), _places(env, y, yr))


@intrinsic("void", "int64", "int64", "int64", "int64")
def _tile_past(env: Any, args: list[Any]) -> Any:
    """Do `_tile` with rows of y that are whole lines, past the caches."""
    x, xr, y, yr = args
    for value, at in zip(_square(env, _places(env, x, xr)), _places(env, y, yr), strict=True):
        store_non_temporal(env, value, env.builder.inttoptr(at, value.type.as_pointer()))


@intrinsic("void", *["int64"] * 7)
def _taps_outside(env: Any, args: list[Any]) -> Any:
    """Write y[row(k + j)*yr + i] = x[i*xr + j] for i, j < TILE, given (x, xr, y, yr, k, taps, inputs): row as in `_swapped`."""
    x, xr, y, yr, *pairs = args
    _store(env, _square(env, _places(env, x, xr)), _swapped(env, y, yr, *pairs))


@intrinsic("void", *["int64"] * 7)
def _taps_inside(env: Any, args: list[Any]) -> Any:
    """Write y[j*yr + i] = x[row(k + i)*xr + j] for i, j < TILE, given (x, xr, y, yr, k, taps, inputs): row as in `_swapped`."""
    x, xr, y, yr, *pairs = args
    _store(env, _square(env, _swapped(env, x, xr, *pairs)), _places(env, y, yr))


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
        for part in range(0, rows, PART):
            for j0 in range(0, columns, TILE):
                j = min(j0, columns - TILE)
                for i0 in range(part, min(rows, part + PART), TILE):
                    i = min(i0, rows - TILE)
                    _tile(x + SIZE * (i * xr + j), xr, y + SIZE * (j * yr + i), yr)


@helper
def transpose_part(x, xr, y, yr, rows, columns, total):
    """Do `transpose` as a part of total elements: of so many that they are beyond the caches, their rows are read one after the other."""
    whole = rows // TILE * TILE
    # Only whole lines go past the caches: a part of a line would be read first.
    if TILE * SIZE == LINE and columns >= TILE and whole > 0 and is_non_temporal(y, yr, total):
        for i in range(0, whole, TILE):
            for j0 in range(0, columns, TILE):
                j = min(j0, columns - TILE)
                _tile_past(x + SIZE * (i * xr + j), xr, y + SIZE * (j * yr + i), yr)
        fence_non_temporal()
        x += SIZE * whole * xr
        y += SIZE * whole
        rows -= whole
    transpose(x, xr, y, yr, rows, columns)


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
        transpose_part(x + at, columns, y + at, rows, rows, columns, batch * rows * columns)


@helper
def oihw_to_hwio(source, target, o, i, h, w):
    """Copy filters [o, i, h, w] to [h, w, i, o]; addresses, no overlap."""
    some_to_hwio(source, i * h * w, target, o, i, h, w)


@helper
def some_to_hwio(source, stride, target, o, i, h, w):
    """Do `oihw_to_hwio` with filters that begin stride elements one after the other: for some of their inputs."""
    taps, row = h * w, i * h * w
    if o < TILE or row < TILE:
        for q in range(i):
            transpose(source + SIZE * q * taps, stride, target + SIZE * q * o, i * o, o, taps)
    else:
        for begin in range(0, row, TILE):
            k = min(begin, row - TILE)
            for first in range(0, o, TILE):
                top = min(first, o - TILE)
                _taps_outside(source + SIZE * (top * stride + k), stride, target + SIZE * top, o, k, taps, i)


@helper
def hwio_to_oihw(source, target, o, i, h, w, low, high):
    """Copy rows low to high of filters [h, w, i, o] to [o, i, h, w]; addresses, no overlap."""
    taps, row = h * w, i * h * w
    if o < TILE or row < TILE or high - low < h:
        first = low * w
        for q in range(i):
            begin, end = source + SIZE * (first * i + q) * o, target + SIZE * (q * taps + first)
            transpose(begin, i * o, end, row, (high - low) * w, o)
    else:
        for begin in range(0, row, TILE):
            k = min(begin, row - TILE)
            for first in range(0, o, TILE):
                left = min(first, o - TILE)
                _taps_inside(source + SIZE * left, o, target + SIZE * (left * row + k), row, k, taps, i)
