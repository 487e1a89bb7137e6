"""Pictures of bytes: cut, turned over, resampled and coloured by a program for every sample, then made numbers, in one call without Python.

A picture is uint8 [height, width, channels]. What a program has cut and flipped is kept as a *view* of it (an origin and two directions),
so that a crop with a flip costs nothing until the numbers are written; only what computes new pixels writes a picture of its own.
"""

from __future__ import annotations

import math
from typing import Any

from pe_cli.kernels.lang import Addr, Int, PtrF64, PtrI64, helper, intrinsic, kernel, pointer_f32, pointer_i32

#: Instructions of a program; word 0 of each.
NOTHING, CROP, FLIP, RESIZE, AFFINE, COLOR, ERASE = range(7)
#: Words of an instruction.
WORDS = 12
#: Channels of a picture, at most.
MOST_CHANNELS = 4
#: Words of a view: address of the picture's first byte; its height and width; row and column of the view's first pixel in it; steps to the
#: next row and column (1 or -1); the view's height and width; the rows and columns of the picture that may be seen; the byte of every
#: channel where there is nothing; and which of the three buffers holds the picture (-1: it is not ours).
(
    AT,
    ROWS,
    COLUMNS,
    TOP,
    LEFT,
    DOWN,
    RIGHT,
    HEIGHT,
    WIDTH,
    TOP_SEEN,
    LEFT_SEEN,
    BOTTOM_SEEN,
    RIGHT_SEEN,
    FILL,
) = range(14)
BUFFER = FILL + MOST_CHANNELS
VIEW = BUFFER + 1
#: Bits behind the point of the weights of a resize, as Pillow has them.
BITS = 22


@intrinsic("uint8*", "int64")
def pointer_u8(env: Any, args: list[Any]) -> Any:
    """Return an address as a pointer to bytes."""
    return env.builder.inttoptr(args[0], env.type_of("uint8*"))


@intrinsic("float64*", "float64*", "int64")
def element(env: Any, args: list[Any]) -> Any:
    """Return a pointer to an element of another."""
    return env.builder.gep(args[0], [args[1]])


@helper
def _whole(view, at, height, width, buffer):
    """Let a view be a whole picture."""
    view[AT], view[ROWS], view[COLUMNS] = at, height, width
    view[TOP], view[LEFT], view[DOWN], view[RIGHT] = 0, 0, 1, 1
    view[HEIGHT], view[WIDTH] = height, width
    view[TOP_SEEN], view[LEFT_SEEN], view[BOTTOM_SEEN], view[RIGHT_SEEN] = 0, 0, height, width
    view[BUFFER] = buffer


@helper
def _seen(first, step, count, low, high):
    """Return from which to which of `count` positions first, first + step, ... lie in [low, high)."""
    if step > 0:
        begin, end = low - first, high - first
    else:
        begin, end = first - high + 1, first - low + 1
    begin = min(max(begin, 0), count)
    return begin, max(begin, min(end, count))


@helper
def _limit(view):
    """Let nothing be seen that the view does not show."""
    y, x = view[TOP], view[LEFT]
    y2, x2 = y + view[DOWN] * (view[HEIGHT] - 1), x + view[RIGHT] * (view[WIDTH] - 1)
    view[TOP_SEEN] = max(view[TOP_SEEN], min(y, y2))
    view[BOTTOM_SEEN] = min(view[BOTTOM_SEEN], max(y, y2) + 1)
    view[LEFT_SEEN] = max(view[LEFT_SEEN], min(x, x2))
    view[RIGHT_SEEN] = min(view[RIGHT_SEEN], max(x, x2) + 1)


@helper
def _is_full(view):
    """Return whether every pixel of a view lies in its picture."""
    a, b = _seen(view[TOP], view[DOWN], view[HEIGHT], view[TOP_SEEN], view[BOTTOM_SEEN])
    c, d = _seen(view[LEFT], view[RIGHT], view[WIDTH], view[LEFT_SEEN], view[RIGHT_SEEN])
    return b - a == view[HEIGHT] and d - c == view[WIDTH]


@helper
def _paint(view, channels, out, at, count):
    """Write pixels where nothing is."""
    for j in range(count):
        for c in range(channels):
            out[at + j * channels + c] = view[FILL + c]


@helper
def _write(view, channels, out):
    """Copy what a view shows, [height, width, channels]."""
    source = pointer_u8(view[AT])
    width = view[WIDTH]
    first, last = _seen(view[LEFT], view[RIGHT], width, view[LEFT_SEEN], view[RIGHT_SEEN])
    step = view[RIGHT] * channels
    for i in range(view[HEIGHT]):
        y = view[TOP] + i * view[DOWN]
        begin, end = first, last
        if y < view[TOP_SEEN] or y >= view[BOTTOM_SEEN]:
            begin, end = width, width
        row = i * width * channels
        _paint(view, channels, out, row, begin)
        at = (y * view[COLUMNS] + view[LEFT]) * channels + begin * step
        if step == channels:
            for k in range((end - begin) * channels):
                out[row + begin * channels + k] = source[at + k]
        else:
            for j in range(begin, end):
                for c in range(channels):
                    out[row + j * channels + c] = source[at + c]
                at += step
        _paint(view, channels, out, row + end * channels, width - end)


@helper
def _settle(view, channels, buffers, size):
    """Write what a view shows into a buffer, and let it be that."""
    buffer = (view[BUFFER] + 1) % 3
    at = buffers + buffer * size
    _write(view, channels, pointer_u8(at))
    _whole(view, at, view[HEIGHT], view[WIDTH], buffer)


@helper
def _settle_plain(view, channels, buffers, size):
    """Do so unless the view is a part of its picture as it lies."""
    if view[DOWN] != 1 or view[RIGHT] != 1 or not _is_full(view):
        _settle(view, channels, buffers, size)


@helper
def _crop(view, word, channels, buffers, size):
    """Cut a box out, whose corners may lie outside: there the fill is seen."""
    y, x, height, width = int(word[1]), int(word[2]), int(word[3]), int(word[4])
    if y < 0 or x < 0 or y + height > view[HEIGHT] or x + width > view[WIDTH]:
        if not _is_full(view):
            _settle(view, channels, buffers, size)
        _limit(view)
        for c in range(channels):
            view[FILL + c] = int(word[5 + c])
    view[TOP] += y * view[DOWN]
    view[LEFT] += x * view[RIGHT]
    view[HEIGHT], view[WIDTH] = height, width


@helper
def _flip(view, word):
    """Turn a view over: word 1 up and down, word 2 left and right."""
    if word[1] != 0:
        view[TOP] += view[DOWN] * (view[HEIGHT] - 1)
        view[DOWN] = -view[DOWN]
    if word[2] != 0:
        view[LEFT] += view[RIGHT] * (view[WIDTH] - 1)
        view[RIGHT] = -view[RIGHT]


@helper
def _weigh(bounds, weights, taps, start, end, size, count):
    """Write the triangle filter of a resize of [start, end) to `count` pixels: bounds has first and number, weights `taps` for each.

    The weights are Pillow's: where pixels get fewer, the triangle is as wide as a new pixel (antialias).
    """
    scale = (end - start) / count
    wide = max(scale, 1.0)
    for i in range(count):
        center = start + (i + 0.5) * scale
        first = max(int(center - wide + 0.5), 0)
        n = min(int(center + wide + 0.5), size) - first
        total = 0.0
        for k in range(n):
            total += max(0.0, 1.0 - abs((k + first - center + 0.5) * (1.0 / wide)))
        for k in range(n):
            weight = max(0.0, 1.0 - abs((k + first - center + 0.5) * (1.0 / wide)))
            if total != 0.0:
                weight /= total
            weights[i * taps + k] = int(0.5 + weight * (1 << BITS))
        bounds[2 * i], bounds[2 * i + 1] = first, n


@helper
def _byte(sum):
    """Return a sum of bytes by weights as a byte."""
    return min(max(sum >> BITS, 0), 255)


@helper
def _resize_rows(source, stride, rows, channels, bounds, weights, taps, width, out):
    """Resize the columns of `rows` rows."""
    for y in range(rows):
        row = y * stride
        for x in range(width):
            first, n = bounds[2 * x], bounds[2 * x + 1]
            for c in range(channels):
                total = 1 << (BITS - 1)
                at = row + first * channels + c
                for k in range(n):
                    total += source[at + k * channels] * weights[x * taps + k]
                out[(y * width + x) * channels + c] = _byte(total)


@helper
def _resize_columns(source, row, bounds, weights, taps, height, out, sums):
    """Resize the rows of lines of `row` bytes; sums: room for a line of int32."""
    for y in range(height):
        first, n = bounds[2 * y], bounds[2 * y + 1]
        for k in range(row):
            sums[k] = 1 << (BITS - 1)
        for i in range(n):
            weight = weights[y * taps + i]
            at = (first + i) * row
            for k in range(row):
                sums[k] += source[at + k] * weight
        for k in range(row):
            out[y * row + k] = _byte(sums[k])


@helper
def _resize(view, word, channels, buffers, size, table):
    """Resize the box (top, left, height, width) of the view to word 5 rows and word 6 columns."""
    top, left, bottom, right = word[1], word[2], word[1] + word[3], word[2] + word[4]
    height, width = int(word[5]), int(word[6])
    _settle_plain(view, channels, buffers, size)
    rows, columns = view[HEIGHT], view[WIDTH]
    if top == 0.0 and left == 0.0 and bottom == rows and right == columns and height == rows and width == columns:
        return
    source = view[AT] + (view[TOP] * view[COLUMNS] + view[LEFT]) * channels
    stride = view[COLUMNS] * channels
    bounds = pointer_i32(table)
    buffer = view[BUFFER]
    # the rows that the second pass reads are those that the first one makes
    taps = 2 * math.ceil(max((bottom - top) / height, 1.0)) + 1
    weights = pointer_i32(table + 8 * height)
    _weigh(bounds, weights, taps, top, bottom, rows, height)
    first = bounds[0]
    last = bounds[2 * height - 2] + bounds[2 * height - 1]
    source += first * stride
    if left != 0.0 or right != columns or width != columns:
        across = pointer_i32(table + 4 * height * (2 + taps))
        spread = 2 * math.ceil(max((right - left) / width, 1.0)) + 1
        ratios = pointer_i32(table + 4 * height * (2 + taps) + 8 * width)
        _weigh(across, ratios, spread, left, right, columns, width)
        buffer = (buffer + 1) % 3
        between = buffers + buffer * size
        _resize_rows(pointer_u8(source), stride, last - first, channels, across, ratios, spread, width, pointer_u8(between))
        source, stride = between, width * channels
    if top == 0.0 and bottom == rows and height == rows:
        _whole(view, source, height, width, buffer)
        return
    for y in range(height):
        bounds[2 * y] -= first
    buffer = (buffer + 1) % 3
    if stride != width * channels:  # a part of a wider picture, whose columns stay
        view[TOP] += first
        view[HEIGHT] = last - first
        _settle(view, channels, buffers, size)
        source, buffer = view[AT], (view[BUFFER] + 1) % 3
    at = buffers + buffer * size
    sums = pointer_i32(table + 4 * height * (2 + taps))
    _resize_columns(pointer_u8(source), width * channels, bounds, weights, taps, height, pointer_u8(at), sums)
    _whole(view, at, height, width, buffer)


@helper
def _tap(source, columns, rows, y, x, channels, c, fill):
    """Return a byte of a picture, or what stands outside it."""
    if y < 0 or x < 0 or y >= rows or x >= columns:
        return float(fill)
    return float(source[(y * columns + x) * channels + c])


@helper
def _affine(view, word, channels, buffers, size):
    """Let pixel (i, j) be what is found at row a i + b j + c, column d i + e j + f of the view; words 1 to 6.

    Between pixels it is interpolated in both directions; outside the fill is seen.
    """
    _settle_plain(view, channels, buffers, size)
    if view[TOP] != 0 or view[LEFT] != 0 or view[WIDTH] != view[COLUMNS]:
        _settle(view, channels, buffers, size)
    source = pointer_u8(view[AT])
    rows, columns = view[HEIGHT], view[WIDTH]
    buffer = (view[BUFFER] + 1) % 3
    at = buffers + buffer * size
    out = pointer_u8(at)
    for i in range(rows):
        for j in range(columns):
            y = word[1] * i + word[2] * j + word[3]
            x = word[4] * i + word[5] * j + word[6]
            y, x = min(max(y, -2.0), rows + 1.0), min(max(x, -2.0), columns + 1.0)
            top, left = math.floor(y), math.floor(x)
            fy, fx = y - top, x - left
            place = (i * columns + j) * channels
            if top >= 0 and left >= 0 and top + 1 < rows and left + 1 < columns:
                a = (top * columns + left) * channels
                b = a + columns * channels
                for c in range(channels):
                    upper = source[a + c] * (1.0 - fx) + source[a + channels + c] * fx
                    lower = source[b + c] * (1.0 - fx) + source[b + channels + c] * fx
                    out[place + c] = int(upper * (1.0 - fy) + lower * fy + 0.5)
            else:
                for c in range(channels):
                    fill = word[7 + c]
                    upper = _tap(source, columns, rows, top, left, channels, c, fill) * (1.0 - fx)
                    upper += _tap(source, columns, rows, top, left + 1, channels, c, fill) * fx
                    lower = _tap(source, columns, rows, top + 1, left, channels, c, fill) * (1.0 - fx)
                    lower += _tap(source, columns, rows, top + 1, left + 1, channels, c, fill) * fx
                    out[place + c] = int(upper * (1.0 - fy) + lower * fy + 0.5)
    _whole(view, at, rows, columns, buffer)


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
    _settle(view, channels, buffers, size)
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
    _settle(view, channels, buffers, size)
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
    first, last = _seen(view[LEFT], view[RIGHT], width, view[LEFT_SEEN], view[RIGHT_SEEN])
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
    first, last = _seen(view[LEFT], view[RIGHT], width, view[LEFT_SEEN], view[RIGHT_SEEN])
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
        _crop(view, word, channels, buffers, size)
    elif kind == FLIP:
        _flip(view, word)
    elif kind == RESIZE:
        _resize(view, word, channels, buffers, size, table)
    elif kind == AFFINE:
        _affine(view, word, channels, buffers, size)
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
        _whole(view, sources[n], height, width, -1)
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
