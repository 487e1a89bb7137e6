"""Convolutions of bfloat16 by matrix tiles: y (+)= convolution of x with filters, images with channels last.

The terms that a row of a filter sees of an image lie side by side, those of the next result a step further: rows of a tile are read where
they stand, and overlap. For that some rows of an image at a time are copied between zeros. Behind the last term of a row of taps a tile has
more of the image, which meets zeros among the filters; so where an image has infinite numbers, more results than see them may be NaN.
"""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.cpu.matrix_tiles import DEPTH, pack_rows
from pe_cli.kernels.cpu.tile_code import (
    BYTES,
    HALF,
    LINE,
    MOST_TERMS,
    SIDE,
    TERMS,
    TILE,
    configure_tiles,
    copy_halves,
    multiply_tiles,
    pair_halves,
    release_tiles,
)
from pe_cli.kernels.cpu.tile_results import finish_block
from pe_cli.kernels.language import T, helper, intrinsic, pointer, shared

#: Elements of the rows of an image that are between zeros at a time: an eighth of a common L2.
BAND = 64 * 1024


def conv_tiles_scratch(channels: int, out_width: int, filters: int, taps: tuple[int, int], stride: int) -> int:
    """Return the elements of float32 that `conv_tiles` uses: for a block of results, filters, and rows of an image.

    Args:
        channels: of the images.
        out_width: columns of the results.
        filters: how many.
        taps: rows and columns of a filter.
        stride: columns from one result to the next.
    """
    across = (out_width - 1) * stride + taps[1]
    band = max(BAND, taps[0] * across * channels) + SIDE * stride * channels + 4 * MOST_TERMS
    strips = taps[0] * -(-taps[1] * channels // MOST_TERMS) * MOST_TERMS * LINE // 2 * -(-filters // SIDE) * SIDE // TILE
    return SIDE * SIDE + band // 2 + strips // 4 + 64


@helper
def strips_bytes(rows, terms, filters):
    """Return the bytes of what `pack_filters` makes, of filters of so many rows of terms."""
    return rows * ((terms + TERMS - 1) // TERMS) * BYTES * ((filters + SIDE - 1) // SIDE * SIDE // TILE)


def gradient_tiles_scratch(channels: int, out_width: int, filters: int, taps: tuple[int, int]) -> int:
    """Return the elements of float32 that `filter_gradient_tiles` uses besides its sums; sizes are those of `conv_tiles_scratch`."""
    across = (out_width + taps[1]) // 2 * 2
    band = max(BAND, taps[0] * across * max(channels, filters)) + (2 * MOST_TERMS + taps[1]) * max(channels, filters)
    return SIDE * SIDE + SIDE * DEPTH + 2 * band + 256


@intrinsic("void", "int64", "int64")
def _move(env: Any, args: list[Any]) -> Any:
    """Copy an element of 16 bits from an address to another."""
    from llvmlite import ir

    b = env.builder
    source, target = (b.inttoptr(at, ir.IntType(16).as_pointer()) for at in args)
    b.store(b.load(source, align=HALF), target, align=HALF)


@helper
def _blank(at, elements):
    """Write zeros over elements of 16 bits, an even number of them."""
    words = pointer(at)
    for i in range(elements // 2):
        words[i] = T(0)


@helper
def pack_filters(w, per_filter, per_channel, per_row, per_tap, filters, channels, rows, taps, strips):
    """Copy filters into columns of tiles: for each 16 filters, the terms of every row of taps, filled up with zeros to whole tiles.

    Args:
        w: address of the element of the first filter, channel, row and tap; the next of each is per_... elements further.
        per_filter, per_channel, per_row, per_tap: elements.
        filters, channels, rows, taps: how many; a row has so many taps.
        strips: address of the tiles.
    """
    count = (taps * channels + TERMS - 1) // TERMS
    _blank(strips, strips_bytes(rows, taps * channels, filters) // HALF)
    for o in range(filters):
        for r in range(rows):
            tiles = strips + (o // TILE * rows + r) * count * BYTES + 2 * HALF * (o % TILE)
            for t in range(taps):
                source = w + HALF * (o * per_filter + r * per_row + t * per_tap)
                for c in range(channels):
                    term = t * channels + c
                    _move(source + HALF * c * per_channel, tiles + term // 2 * LINE + HALF * (term % 2))


@helper
def _place_rows(x, height, width, channels, hole_y, hole_x, first, rows, across, pad_y, pad_x, band):
    """Copy rows of an image, first to first + rows of those between zeros, each across pixels; pixels are holes apart."""
    line = across * channels
    _blank(band, (rows * line + 1) // 2 * 2)
    for r in range(rows):
        i = first + r - pad_y
        if i >= 0 and i % hole_y == 0 and i // hole_y < height:
            source = x + HALF * (i // hole_y) * width * channels
            if hole_x == 1:
                left = max(0, -pad_x)
                many = min(width - left, across - max(0, pad_x))
                if many > 0:
                    _copy_exactly(source + HALF * left * channels, band + HALF * (r * line + max(0, pad_x) * channels), many * channels)
            else:
                for j in range(width):
                    to = pad_x + j * hole_x
                    if to >= 0 and to < across:
                        _copy_exactly(source + HALF * j * channels, band + HALF * (r * line + to * channels), channels)


@helper
def _copy_exactly(source, target, count):
    """Copy elements of 16 bits and write nothing behind them."""
    whole = count // TERMS * TERMS
    if whole > 0:
        copy_halves(source, target, whole)
    for i in range(whole, count):
        _move(source + HALF * i, target + HALF * i)


@helper
def _results(made, first, count, line, ow, columns, acc, y, pitch):
    """Write results first to first + count of some rows that are line long, of which the first ow columns each are wanted."""
    i = 0
    while i < count:
        row, column = (first + i) // line, (first + i) % line
        if column >= ow:
            i += line - column
        else:
            many = min(ow - column, count - i)
            finish_block(made + 4 * SIDE * i, many, columns, acc, y + 4 * (row * ow + column) * pitch, pitch, 0, 0)
            i += many


@shared
def conv_tiles(
    x, n, height, width, channels, oh, ow, filters, rows, taps, sy, sx, pad_y, pad_x, hole_y, hole_x, strips, acc, y, pitch, scratch
):  # fmt: skip
    """Write y (+)= convolution of images, for float32 as the kernel's element type.

    Args:
        x: address of [n, height, width, channels] of bfloat16.
        oh, ow: rows and columns of a result.
        filters: channels of a result.
        rows, taps: of a filter.
        sy, sx: from one result to the next.
        pad_y, pad_x: rows and columns of zeros before an image.
        hole_y, hole_x: from one pixel of an image to the next, among zeros.
        strips: address of what `pack_filters` made.
        acc: 1 to add to y.
        y: address of [n, oh, ow] pixels of float32, pitch elements apart.
        scratch: address of `conv_tiles_scratch` elements without those of filters.
    """
    made = (scratch + 63) // 64 * 64
    band = made + 4 * SIDE * SIDE
    across = (ow - 1) * sx + taps
    line = across * channels
    count = (taps * channels + TERMS - 1) // TERMS
    # Results that are side by side in rows without gaps are one run; the columns between rows are computed for nothing.
    high = max(1, (BAND // line - rows) // sy + 1) if line * rows <= BAND else 1
    joined = sy == 1 and sx == 1
    configure_tiles()
    for image in range(n):
        for top in range(0, oh, high):
            many = min(high, oh - top)
            seen = (many - 1) * sy + rows
            _place_rows(
                x + HALF * image * height * width * channels, height, width, channels, hole_y, hole_x, top * sy, seen, across, pad_y, pad_x,
                band,
            )  # fmt: skip
            _blank(band + HALF * ((seen * line + 1) // 2 * 2), SIDE * sx * channels + 3 * TERMS)
            runs, length = (1, (many - 1) * across + ow) if joined else (many, ow)
            for run in range(runs):
                for first in range(0, length, SIDE):
                    some = min(SIDE, length - first)
                    for j in range(0, filters, SIDE):
                        columns = min(SIDE, filters - j)
                        at = band + HALF * (run * sy * line + first * sx * channels)
                        multiply_tiles(
                            (some + TILE - 1) // TILE, (columns + TILE - 1) // TILE, at,
                            HALF * sx * channels, strips + j // TILE * rows * count * BYTES, LINE, rows * count * BYTES,
                            rows, HALF * line, count, made,
                        )  # fmt: skip
                        to = y + 4 * (((image * oh + top + run) * ow) * pitch + j)
                        _results(made, first, some, across if joined else ow, ow, columns, acc, to, pitch)
    release_tiles()


@shared
def filter_gradient_tiles(
    x, dy, n, height, width, channels, oh, ow, filters, rows, taps, pad_y, pad_x, low, high, sums, scratch
):  # fmt: skip
    """Write the gradient of filters, of their rows of taps from low to high, to sums[rows, taps, filters, channels]; the stride is 1.

    An element is a sum over pixels. Pairs of neighbouring pixels are made of the rows of images once, beginning with even ones and with
    odd ones, so that each tap finds its terms in order where they stand.

    Args:
        x, n, height, width, channels, oh, ow, filters, rows, taps, pad_y, pad_x: as for `conv_tiles`.
        dy: address of the gradient of the results, [n, oh, ow, filters] of bfloat16.
        low, high: rows of taps.
        sums: address of float32.
        scratch: address of `gradient_tiles_scratch` elements.
    """
    across = (ow + taps) // 2 * 2
    line = across * channels
    behind = (TERMS + taps + 2) // 2 * 2
    many = max(1, BAND // (across * max(channels, filters)) - rows + 1)
    made = (scratch + 63) // 64 * 64
    block = made + 4 * SIDE * SIDE
    work = block + HALF * SIDE * DEPTH
    band = work + HALF * SIDE * DEPTH
    size = (many + rows - 1) * across + behind
    given = band + HALF * (size * channels + TERMS)
    even = given + HALF * (many * across * filters + TERMS)
    odd = even + HALF * size * channels + 2 * LINE
    for row in range(low, high):
        _blank(sums + 4 * row * taps * filters * channels, 2 * taps * filters * channels)
    configure_tiles()
    for image in range(n):
        at_x, at_y = x + HALF * image * height * width * channels, dy + HALF * image * oh * ow * filters
        for top in range(0, oh, many):
            some = min(many, oh - top)
            seen = some + rows - 1
            _place_rows(at_x, height, width, channels, 1, 1, top, seen, across, pad_y, pad_x, band)
            _blank(band + HALF * seen * line, behind * channels)
            for q in range((seen * across + behind) // 2 - 1):
                first = band + 2 * HALF * q * channels
                pair_halves(first, first + HALF * channels, even + 2 * HALF * q * channels, channels, LINE)
                pair_halves(first + HALF * channels, first + 2 * HALF * channels, odd + 2 * HALF * q * channels, channels, LINE)
            _place_rows(at_y, oh, ow, filters, 1, 1, top, some, across, 0, 0, given)
            for begin in range(0, some * across, DEPTH):
                depth = min(DEPTH, some * across - begin)
                filled = (depth + TERMS - 1) // TERMS * TERMS
                for o in range(0, filters, SIDE):
                    wanted = min(SIDE, filters - o)
                    pack_rows(1, given + HALF * (begin * filters + o), filters, depth, wanted, block, work)
                    for row in range(low, high):
                        for tap in range(taps):
                            start = begin + row * across + tap
                            pairs = (odd if tap % 2 else even) + 2 * HALF * (start // 2) * channels
                            to = sums + 4 * ((row * taps + tap) * filters + o) * channels
                            for c in range(0, channels, SIDE):
                                columns = min(SIDE, channels - c)
                                multiply_tiles(
                                    (wanted + TILE - 1) // TILE, (columns + TILE - 1) // TILE, block, HALF * filled, pairs + 2 * HALF * c,
                                    2 * HALF * channels, LINE, 1, 0, filled // TERMS, made,
                                )  # fmt: skip
                                finish_block(made, wanted, columns, 1, to + 4 * c, channels, 0, 0)
    release_tiles()
