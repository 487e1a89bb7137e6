"""Depthwise convolutions on CUDA, which wait for memory: one thread per element, neighbours in memory by neighbours among threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.kernels.cuda.language import cuda, cuda_kernel
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.language import Int, Ptr, T, helper
from pe_cli.ops.nn.conv_tile_cuda import share

#: Rows of threads that share the pixels of 32 filters.
DEEP: Any = 8
At: Any = np.uint64


@helper
def place(e, columns, rows):
    """Return image, row and column of a pixel."""
    line = quotient(e, columns)
    image = quotient(line, rows)
    return image, line - image * rows, e - line * columns


@cuda_kernel
def depthwise_values(
    x: Ptr, w: Ptr, y: Ptr, n: Int, high: Int, wide: Int, channels: Int, out_high: Int, out_wide: Int, outs: Int, taps_y: Int,
    taps_x: Int, step_y: Int, step_x: Int, pad_y: Int, pad_x: Int, tap_y: Int, tap_x: Int,
):  # fmt: skip
    """y = convolution of images x, channels last, with w [outs, 1, taps_y, taps_x]: a channel has outs / channels filters."""
    for e in range(n * out_high * out_wide * outs):
        pixel = quotient(e, outs)
        o = e - pixel * outs
        image, i, j = place(pixel, out_wide, out_high)
        c = quotient(o, quotient(outs, channels))
        row, column = i * step_y - pad_y, j * step_x - pad_x
        total = T(0)
        tap = o * taps_y * taps_x
        for r in range(taps_y):
            down = row + r * tap_y
            if At(down) < At(high):
                at = ((image * high + down) * wide + column) * channels + c
                for s in range(taps_x):
                    if At(column + s * tap_x) < At(wide):
                        total += x[at + s * tap_x * channels] * w[tap + r * taps_x + s]
        y[e] = total


@cuda_kernel
def depthwise_back(
    dy: Ptr, w: Ptr, dx: Ptr, n: Int, high: Int, wide: Int, channels: Int, out_high: Int, out_wide: Int, outs: Int, taps_y: Int,
    taps_x: Int, step_y: Int, step_x: Int, pad_y: Int, pad_x: Int, tap_y: Int, tap_x: Int,
):  # fmt: skip
    """dx = gradient of the images of `depthwise_values`: every pixel gathers from the windows that it lies in."""
    for e in range(n * high * wide * channels):
        pixel = quotient(e, channels)
        c = e - pixel * channels
        image, row, column = place(pixel, wide, high)
        each = quotient(outs, channels)
        total = T(0)
        for r in range(taps_y):
            down = row + pad_y - r * tap_y
            i = quotient(max(0, down), step_y)
            if i * step_y == down and i < out_high:
                for s in range(taps_x):
                    right = column + pad_x - s * tap_x
                    j = quotient(max(0, right), step_x)
                    if j * step_x == right and j < out_wide:
                        at = ((image * out_high + i) * out_wide + j) * outs + c * each
                        for o in range(each):
                            total += dy[at + o] * w[((c * each + o) * taps_y + r) * taps_x + s]
        dx[e] = total


@cuda_kernel(block=(32, DEEP, 1), threads=("outs", "taps_y * taps_x * 8", "parts"))
def depthwise_filters_back(
    x: Ptr, dy: Ptr, dw: Ptr, n: Int, high: Int, wide: Int, channels: Int, out_high: Int, out_wide: Int, outs: Int, taps_y: Int,
    taps_x: Int, step_y: Int, step_x: Int, pad_y: Int, pad_x: Int, tap_y: Int, tap_x: Int, parts: Int, size: Int,
):  # fmt: skip
    """dw = gradient of the filters of `depthwise_values`, in parts of the pixels, `size` apart: a block does one tap of 32 filters."""
    lane, me = int(cuda.threadIdx.x), int(cuda.threadIdx.y)
    held = cuda.shared.array((DEEP, 32), T)
    o, part = int(cuda.blockIdx.x) * 32 + lane, int(cuda.blockIdx.z)
    tap = int(cuda.blockIdx.y)
    r = quotient(tap, taps_x)
    down, right = r * tap_y - pad_y, (tap - r * taps_x) * tap_x - pad_x
    pixels = n * out_high * out_wide
    c = quotient(o, quotient(outs, channels))
    total = T(0)
    pixel = share(pixels, part, parts) + me
    end = share(pixels, part + 1, parts) if o < outs else 0
    while pixel < end:
        image, i, j = place(pixel, out_wide, out_high)
        row, column = i * step_y + down, j * step_x + right
        if At(row) < At(high) and At(column) < At(wide):
            total += dy[pixel * outs + o] * x[((image * high + row) * wide + column) * channels + c]
        pixel += DEEP
    held[me, lane] = total
    cuda.syncthreads()
    if me == 0 and o < outs:
        for k in range(1, DEEP):
            total += held[k, lane]
        dw[part * size + o * taps_y * taps_x + tap] = total
