"""Kernels of `fused_norm_conv`: 1x1 and depthwise convolutions of images that they normalise and cut off below 0 block by block."""

from __future__ import annotations

from pe_cli.kernels.cpu.channel_norm import fill_table, no_moments, write_moments
from pe_cli.kernels.cpu.channel_norm_act import normalise_relu_run
from pe_cli.kernels.cpu.conv_geometry import (
    CHANNELS,
    DILATION_X,
    DILATION_Y,
    FILTERS,
    GROUPS,
    HEIGHT,
    OUT_HEIGHT,
    OUT_WIDTH,
    PAD_X,
    PAD_Y,
    PITCH,
    STRIDE_X,
    STRIDE_Y,
    TAPS_X,
    TAPS_Y,
    WIDTH,
)
from pe_cli.kernels.cpu.depthwise import depthwise_backward_weight, depthwise_forward
from pe_cli.kernels.cpu.gemm import DEPTH, DEPTH_TRANSPOSED, gemm
from pe_cli.kernels.cpu.transpose import hwio_to_oihw, oihw_to_hwio
from pe_cli.kernels.language import SIZE, Addr, Int, Ptr, PtrF64, PtrI64, helper, kernel
from pe_cli.ops.fused.fused_conv_moments import take_moments


@kernel
def norm_table(mean: Ptr, inverse: Ptr, scale: Ptr, bias: Ptr, table: Ptr, width: Int, channels: Int):
    """Fill the table of `normalise_relu_run`, 3 * width numbers."""
    fill_table(mean, inverse, scale, bias, table, width, channels)


@kernel
def norm_pointwise(
    x: Addr, w: Addr, y: Addr, filters: Addr, means: PtrF64, squares: PtrF64, centre: Ptr, part: Ptr, moments: PtrF64,
    g: PtrI64, n: Int, block: Int, rows: Int, width: Int, table: Ptr, wide: Int, seen: Addr,
):
    """y = 1x1 convolution of relu(normalised x), and its moments; block counts pixels, of which seen holds less than two."""
    pixels = n * g[HEIGHT] * g[WIDTH]
    done = no_moments(means, squares, 0, width)
    first = 0
    while first < pixels:
        # A product of few rows is slow, so that a short rest joins the last block: hence room for almost two.
        last = first + block if first + 2 * block <= pixels else pixels
        to = y + SIZE * first * g[PITCH]
        normalise_relu_run(x + SIZE * first * g[CHANNELS], table, wide, seen, (last - first) * g[CHANNELS])
        gemm(0, 1, last - first, g[FILTERS], g[CHANNELS], seen, g[CHANNELS], w, g[CHANNELS], 0, to, g[PITCH], filters)
        done = take_moments(y, done, last, pixels, rows, width, means, squares, centre, part)
        first = last
    write_moments(means, squares, moments, rows, width, g[FILTERS])


@helper
def seen_rows(g, first, last):
    """Return the first row of an image that output rows first <= i < last see, and the one past the last."""
    low = min(max(0, first * g[STRIDE_Y] - g[PAD_Y]), g[HEIGHT])
    high = min((last - 1) * g[STRIDE_Y] - g[PAD_Y] + (g[TAPS_Y] - 1) * g[DILATION_Y] + 1, g[HEIGHT])
    # Output rows that see padding alone see no row of the image: high may lie above the image, below low.
    return low, max(low, high)


@helper
def part_of(g, low, high, first, last):
    """Return the geometry of output rows first <= i < last as an image of its own, of rows low <= r < high of the whole one."""
    # What of the padding lies above this part: less with each row of output, then none; below 0 for rows under the whole image.
    padding = g[PAD_Y] + low - first * g[STRIDE_Y]
    return (
        high - low, g[WIDTH], g[CHANNELS], last - first, g[OUT_WIDTH], g[FILTERS], g[TAPS_Y], g[TAPS_X],
        g[STRIDE_Y], g[STRIDE_X], padding, g[PAD_X], g[DILATION_Y], g[DILATION_X], g[GROUPS],
    )  # fmt: skip


@kernel
def norm_depthwise(
    x: Addr, w: Addr, y: Addr, filters: Addr, means: PtrF64, squares: PtrF64, centre: Ptr, part: Ptr, moments: PtrF64,
    g: PtrI64, n: Int, block: Int, rows: Int, width: Int, table: Ptr, wide: Int, seen: Addr,
):
    """Do the same for a depthwise convolution; block counts rows of output, and seen holds what these see."""
    oihw_to_hwio(w, filters, g[FILTERS], 1, g[TAPS_Y], g[TAPS_X])
    done = no_moments(means, squares, 0, width)
    row = g[WIDTH] * g[CHANNELS]
    for image in range(n):
        for first in range(0, g[OUT_HEIGHT], block):
            last = min(first + block, g[OUT_HEIGHT])
            low, high = seen_rows(g, first, last)
            normalise_relu_run(x + SIZE * (image * g[HEIGHT] + low) * row, table, wide, seen, (high - low) * row)
            to = y + SIZE * (image * g[OUT_HEIGHT] + first) * g[OUT_WIDTH] * g[FILTERS]
            depthwise_forward(seen, filters, to, 1, part_of(g, low, high, first, last))
            done = take_moments(y, done, image * g[OUT_HEIGHT] + last, n * g[OUT_HEIGHT], rows, width, means, squares, centre, part)
    write_moments(means, squares, moments, rows, width, g[FILTERS])


@kernel
def norm_pointwise_weight(
    x: Addr, dy: Addr, dw: Addr, filters: Addr, g: PtrI64, n: Int, low: Int, high: Int, block: Int, table: Ptr, wide: Int,
    seen: Addr,
):
    """dw = gradient of the filters of `norm_pointwise`, from low to high; block is 0, seen holds DEPTH + DEPTH_TRANSPOSED.

    Sums are taken as `gemm` takes them: in one go, or in blocks of that many pixels. What is left over for the last is more than is taken
    in one go, so that it is taken in blocks, too.
    """
    pixels = n * g[HEIGHT] * g[WIDTH]
    at, to = dy + SIZE * low, dw + SIZE * low * g[CHANNELS]
    block, once = DEPTH_TRANSPOSED * 4 // SIZE, DEPTH * 4 // SIZE
    first = 0
    # Once at least: without pixels the product is what writes the zeros.
    while True:
        last = first + block if pixels - first - block > once else pixels
        normalise_relu_run(x + SIZE * first * g[CHANNELS], table, wide, seen, (last - first) * g[CHANNELS])
        upstream = at + SIZE * first * g[FILTERS]
        gemm(
            1, 0, high - low, g[CHANNELS], last - first, upstream, g[FILTERS], seen, g[CHANNELS],
            1 if first > 0 else 0, to, g[CHANNELS], filters,
        )  # fmt: skip
        first = last
        if first >= pixels:
            break


@kernel
def norm_depthwise_weight(
    x: Addr, dy: Addr, dw: Addr, filters: Addr, g: PtrI64, n: Int, low: Int, high: Int, block: Int, table: Ptr, wide: Int,
    seen: Addr,
):
    """dw = gradient of the filters of `norm_depthwise`, of their rows from low to high; block counts rows of output."""
    depthwise_backward_weight(seen, dy, filters, 0, low, high, 0, part_of(g, 0, g[HEIGHT], 0, g[OUT_HEIGHT]))  # of no images: zeros
    row = g[WIDTH] * g[CHANNELS]
    for image in range(n):
        for first in range(0, g[OUT_HEIGHT], block):
            last = min(first + block, g[OUT_HEIGHT])
            top, end = seen_rows(g, first, last)
            normalise_relu_run(x + SIZE * (image * g[HEIGHT] + top) * row, table, wide, seen, (end - top) * row)
            upstream = dy + SIZE * (image * g[OUT_HEIGHT] + first) * g[OUT_WIDTH] * g[FILTERS]
            depthwise_backward_weight(seen, upstream, filters, 1, low, high, 1, part_of(g, top, end, first, last))
    hwio_to_oihw(filters, dw, g[FILTERS], 1, g[TAPS_Y], g[TAPS_X], low, high)
