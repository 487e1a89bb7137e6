"""Pictures of bytes: cut, turned over, resampled and coloured by a program for every sample, then made numbers, in one call without Python.

A picture is uint8 [height, width, channels]. What a program has cut and flipped is kept as a *view* of it (an origin and two directions),
so that a crop with a flip costs nothing until the numbers are written; only what computes new pixels writes a picture of its own.
"""

from __future__ import annotations

import math
from typing import Any

from pe_cli.kernels.images.resampling import affine, resize
from pe_cli.kernels.images.views import (
    AT,
    BOTTOM_SEEN,
    COLUMNS,
    DOWN,
    FILL,
    HEIGHT,
    LEFT,
    LEFT_SEEN,
    RIGHT,
    RIGHT_SEEN,
    TOP,
    TOP_SEEN,
    WIDTH,
    crop,
    flip,
    pointer_u8,
    seen,
    settle,
    whole,
)
from pe_cli.kernels.language import Addr, Int, PtrF64, PtrI64, helper, intrinsic, kernel, pointer_f32

#: Instructions of a program; word 0 of each.
NOTHING, CROP, FLIP, RESIZE, AFFINE, COLOR, ERASE = range(7)
#: Words of an instruction.
WORDS = 12


@intrinsic("float64*", "float64*", "int64")
def element(env: Any, args: list[Any]) -> Any:
    """Return a pointer to an element of another."""
    return env.builder.gep(args[0], [args[1]])


@helper
def _clip(value):
    return min(max(value, 0.0), 255.0)


@helper
def _gray(r, g, b):
    """Return how bright a colour is (ITU-R 601-2)."""
    return 0.299 * r + 0.587 * g + 0.114 * b


@helper
def _turn(r, g, b, turns):
    """Return a colour with its hue turned by so many turns: hue, saturation and value there and back."""
    high, low = max(r, max(g, b)), min(r, min(g, b))
    delta = high - low
    if delta == 0.0:
        return r, g, b
    if high == r:
        sixth = (g - b) / delta
    elif high == g:
        sixth = 2.0 + (b - r) / delta
    else:
        sixth = 4.0 + (r - g) / delta
    sixth += 6.0 * turns
    sixth -= 6.0 * math.floor(sixth / 6.0)
    part = int(sixth)
    f = sixth - part
    falling, rising = high - delta * f, high - delta * (1.0 - f)
    if part < 3:
        r = high if part == 0 else falling if part == 1 else low
        return r, rising if part == 0 else high, rising if part == 2 else low
    r = low if part == 3 else rising if part == 4 else high
    return r, falling if part == 3 else low, falling if part == 5 else high


@helper
def _color(view, word, channels, buffers, size):
    """Change the brightness (factor), contrast (factor), saturation (factor) and hue (turns) of a view; alpha stays."""
    settle(view, channels, buffers, size)
    out = pointer_u8(view[AT])
    brightness, contrast, saturation, hue = word[1], word[2], word[3], word[4]
    pixels = view[HEIGHT] * view[WIDTH]
    mean = 0.0
    if contrast != 1.0:
        for i in range(pixels):
            if channels >= 3:
                r, g, b = out[channels * i], out[channels * i + 1], out[channels * i + 2]
                mean += _gray(_clip(r * brightness), _clip(g * brightness), _clip(b * brightness))
            else:
                mean += _clip(out[channels * i] * brightness)
        mean /= pixels
    for i in range(pixels):
        at = channels * i
        if channels < 3:
            value = _clip(out[at] * brightness)
            out[at] = int(_clip((value - mean) * contrast + mean) + 0.5)
            continue
        r, g, b = _clip(out[at] * brightness), _clip(out[at + 1] * brightness), _clip(out[at + 2] * brightness)
        if contrast != 1.0:
            r, g, b = _clip((r - mean) * contrast + mean), _clip((g - mean) * contrast + mean), _clip((b - mean) * contrast + mean)
        if saturation != 1.0:
            gray = _gray(r, g, b)
            r, g, b = (r - gray) * saturation + gray, (g - gray) * saturation + gray, (b - gray) * saturation + gray
            r, g, b = _clip(r), _clip(g), _clip(b)
        if hue != 0.0:
            r, g, b = _turn(r, g, b, hue)
        out[at], out[at + 1], out[at + 2] = int(r + 0.5), int(g + 0.5), int(b + 0.5)


@helper
def _erase(view, word, channels, buffers, size):
    """Fill the box (top, left, height, width) with one colour."""
    settle(view, channels, buffers, size)
    out = pointer_u8(view[AT])
    top, left, height, width = int(word[1]), int(word[2]), int(word[3]), int(word[4])
    for i in range(top, top + height):
        for j in range(left, left + width):
            for c in range(channels):
                out[(i * view[WIDTH] + j) * channels + c] = int(word[5 + c])


@helper
def _numbers(view, channels, out, table, first_step, column_step, row_step):
    """Write a view as numbers of a table [channels, 256]; steps: from channel to channel, column to column and row to row."""
    source = pointer_u8(view[AT])
    width = view[WIDTH]
    first, last = seen(view[LEFT], view[RIGHT], width, view[LEFT_SEEN], view[RIGHT_SEEN])
    step = view[RIGHT] * channels
    for i in range(view[HEIGHT]):
        y = view[TOP] + i * view[DOWN]
        begin, end = first, last
        if y < view[TOP_SEEN] or y >= view[BOTTOM_SEEN]:
            begin, end = width, width
        for c in range(channels):
            place = i * row_step + c * first_step
            fill = table[256 * c + view[FILL + c]]
            for j in range(begin):
                out[place + j * column_step] = fill
            at = (y * view[COLUMNS] + view[LEFT]) * channels + c + begin * step
            for j in range(end - begin):
                out[place + (begin + j) * column_step] = table[256 * c + source[at + j * step]]
            for j in range(end, width):
                out[place + j * column_step] = fill


@helper
def _bytes(view, channels, out, first_step, column_step, row_step):
    """Write a view as bytes; see `_numbers`."""
    source = pointer_u8(view[AT])
    width = view[WIDTH]
    first, last = seen(view[LEFT], view[RIGHT], width, view[LEFT_SEEN], view[RIGHT_SEEN])
    step = view[RIGHT] * channels
    for i in range(view[HEIGHT]):
        y = view[TOP] + i * view[DOWN]
        begin, end = first, last
        if y < view[TOP_SEEN] or y >= view[BOTTOM_SEEN]:
            begin, end = width, width
        for c in range(channels):
            place = i * row_step + c * first_step
            for j in range(begin):
                out[place + j * column_step] = view[FILL + c]
            at = (y * view[COLUMNS] + view[LEFT]) * channels + c + begin * step
            for j in range(end - begin):
                out[place + (begin + j) * column_step] = source[at + j * step]
            for j in range(end, width):
                out[place + j * column_step] = view[FILL + c]


@helper
def _do(kind, view, word, channels, buffers, size, table):
    """Carry out one instruction."""
    if kind == CROP:
        crop(view, word, channels, buffers, size)
    elif kind == FLIP:
        flip(view, word)
    elif kind == RESIZE:
        resize(view, word, channels, buffers, size, table)
    elif kind == AFFINE:
        affine(view, word, channels, buffers, size)
    elif kind == COLOR:
        _color(view, word, channels, buffers, size)
    elif kind == ERASE:
        _erase(view, word, channels, buffers, size)


@kernel(exact=True)
def render(
    sources: PtrI64,
    count: Int,
    height: Int,
    width: Int,
    channels: Int,
    program: PtrF64,
    steps: Int,
    out: Addr,
    table: Addr,
    last: Int,
    buffers: Addr,
    size: Int,
    weights: Addr,
    view: PtrI64,
) -> None:
    """Run a program of `steps` instructions on every picture of a batch, and write what comes out.

    Args:
        sources: addresses of `count` pictures, uint8 [height, width, channels]; they are not changed.
        program: [count, steps, WORDS].
        out: float32 numbers of `table`, float32 [channels, 256]; or bytes where table is 0.
        last: whether channels are the last axis of `out`, or the first.
        buffers: three of `size` bytes each, for pictures on the way.
        weights: room for the weights of a resize.
        view: room for VIEW words.
    """
    at = 0
    for n in range(count):
        whole(view, sources[n], height, width, -1)
        for c in range(channels):
            view[FILL + c] = 0
        for s in range(steps):
            step = element(program, (n * steps + s) * WORDS)
            _do(int(step[0]), view, step, channels, buffers, size, weights)
        rows, columns = view[HEIGHT], view[WIDTH]
        by_channel, by_column, by_row = rows * columns, 1, columns
        if last != 0:
            by_channel, by_column, by_row = 1, channels, columns * channels
        if table != 0:
            _numbers(view, channels, pointer_f32(out + 4 * at), pointer_f32(table), by_channel, by_column, by_row)
        else:
            _bytes(view, channels, pointer_u8(out + at), by_channel, by_column, by_row)
        at += rows * columns * channels


@kernel
def count_bytes(source: Addr, pixels: Int, channels: Int, counts: PtrI64) -> None:
    """Add to counts [channels, 256] how often every channel of a picture has each byte."""
    data = pointer_u8(source)
    for i in range(pixels):
        for c in range(channels):
            counts[256 * c + data[channels * i + c]] += 1
