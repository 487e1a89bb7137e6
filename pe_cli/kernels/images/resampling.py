"""Resampling of pictures: resize by a triangle filter, and affine maps."""

from __future__ import annotations

import math

from pe_cli.kernels.images.views import (
    AT,
    BUFFER,
    COLUMNS,
    HEIGHT,
    LEFT,
    TOP,
    WIDTH,
    pointer_u8,
    settle,
    settle_plain,
    whole,
)
from pe_cli.kernels.language import helper, pointer_i32

#: Bits behind the point of the weights of a resize, as Pillow has them.
BITS = 22


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
def resize(view, word, channels, buffers, size, table):
    """Resize the box (top, left, height, width) of the view to word 5 rows and word 6 columns."""
    top, left, bottom, right = word[1], word[2], word[1] + word[3], word[2] + word[4]
    height, width = int(word[5]), int(word[6])
    settle_plain(view, channels, buffers, size)
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
        whole(view, source, height, width, buffer)
        return
    for y in range(height):
        bounds[2 * y] -= first
    buffer = (buffer + 1) % 3
    if stride != width * channels:  # a part of a wider picture, whose columns stay
        view[TOP] += first
        view[HEIGHT] = last - first
        settle(view, channels, buffers, size)
        source, buffer = view[AT], (view[BUFFER] + 1) % 3
    at = buffers + buffer * size
    sums = pointer_i32(table + 4 * height * (2 + taps))
    _resize_columns(pointer_u8(source), width * channels, bounds, weights, taps, height, pointer_u8(at), sums)
    whole(view, at, height, width, buffer)


@helper
def _tap(source, columns, rows, y, x, channels, c, fill):
    """Return a byte of a picture, or what stands outside it."""
    if y < 0 or x < 0 or y >= rows or x >= columns:
        return float(fill)
    return float(source[(y * columns + x) * channels + c])


@helper
def affine(view, word, channels, buffers, size):
    """Let pixel (i, j) be what is found at row a i + b j + c, column d i + e j + f of the view; words 1 to 6.

    Between pixels it is interpolated in both directions; outside the fill is seen.
    """
    settle_plain(view, channels, buffers, size)
    if view[TOP] != 0 or view[LEFT] != 0 or view[WIDTH] != view[COLUMNS]:
        settle(view, channels, buffers, size)
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
    whole(view, at, rows, columns, buffer)
