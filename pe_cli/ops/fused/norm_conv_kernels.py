"""Kernels of `fused_norm_conv`: 1x1 and depthwise convolutions of images that they normalise and cut off below 0 block by block."""

from __future__ import annotations

from pe_cli.kernels.channel_norm import fill_table, no_moments, write_moments
from pe_cli.kernels.channel_norm_act import normalise_relu_run
from pe_cli.kernels.depthwise import depthwise_backward_weight, depthwise_forward
from pe_cli.kernels.gemm import DEPTH, DEPTH_TRANSPOSED, gemm
from pe_cli.kernels.lang import SIZE, Addr, Int, Ptr, PtrF64, PtrI64, helper, kernel
from pe_cli.kernels.transpose import hwio_to_oihw, oihw_to_hwio
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
    pixels = n * g[0] * g[1]
    done = no_moments(means, squares, 0, width)
    first = 0
    while first < pixels:
        last = first + block if first + 2 * block <= pixels else pixels
        to = y + SIZE * first * g[15]
        normalise_relu_run(x + SIZE * first * g[2], table, wide, seen, (last - first) * g[2])
        gemm(0, 1, last - first, g[5], g[2], seen, g[2], w, g[2], 0, to, g[15], filters)
        done = take_moments(y, done, last, pixels, rows, width, means, squares, centre, part)
        first = last
    write_moments(means, squares, moments, rows, width, g[5])


@helper
def seen_rows(g, first, last):
    """Return the first row of an image that output rows first <= i < last see, and the one past the last."""
    low = min(max(0, first * g[8] - g[10]), g[0])
    high = min((last - 1) * g[8] - g[10] + (g[6] - 1) * g[12] + 1, g[0])
    return low, max(low, high)


@helper
def part_of(g, low, high, first, last):
    """Return the geometry of output rows first <= i < last as an image of its own, of rows low <= r < high of the whole one."""
    padding = g[10] + low - first * g[8]
    return high - low, g[1], g[2], last - first, g[4], g[5], g[6], g[7], g[8], g[9], padding, g[11], g[12], g[13], g[14]


@kernel
def norm_depthwise(
    x: Addr, w: Addr, y: Addr, filters: Addr, means: PtrF64, squares: PtrF64, centre: Ptr, part: Ptr, moments: PtrF64,
    g: PtrI64, n: Int, block: Int, rows: Int, width: Int, table: Ptr, wide: Int, seen: Addr,
):
    """Do the same for a depthwise convolution; block counts rows of output, and seen holds what these see."""
    oihw_to_hwio(w, filters, g[5], 1, g[6], g[7])
    done = no_moments(means, squares, 0, width)
    row = g[1] * g[2]
    for image in range(n):
        for first in range(0, g[3], block):
            last = min(first + block, g[3])
            low, high = seen_rows(g, first, last)
            normalise_relu_run(x + SIZE * (image * g[0] + low) * row, table, wide, seen, (high - low) * row)
            to = y + SIZE * (image * g[3] + first) * g[4] * g[5]
            depthwise_forward(seen, filters, to, 1, part_of(g, low, high, first, last))
            done = take_moments(y, done, image * g[3] + last, n * g[3], rows, width, means, squares, centre, part)
    write_moments(means, squares, moments, rows, width, g[5])


@kernel
def norm_pointwise_weight(
    x: Addr, dy: Addr, dw: Addr, filters: Addr, g: PtrI64, n: Int, low: Int, high: Int, block: Int, table: Ptr, wide: Int,
    seen: Addr,
):
    """dw = gradient of the filters of `norm_pointwise`, from low to high; block is 0, seen holds DEPTH + DEPTH_TRANSPOSED.

    Sums are taken as `gemm` takes them: in one go, or in blocks of that many pixels. What is left over for the last is more than is taken
    in one go, so that it is taken in blocks, too.
    """
    pixels = n * g[0] * g[1]
    at, to = dy + SIZE * low, dw + SIZE * low * g[2]
    block, once = DEPTH_TRANSPOSED * 4 // SIZE, DEPTH * 4 // SIZE
    first = 0
    while True:
        last = first + block if pixels - first - block > once else pixels
        normalise_relu_run(x + SIZE * first * g[2], table, wide, seen, (last - first) * g[2])
        upstream = at + SIZE * first * g[5]
        gemm(1, 0, high - low, g[2], last - first, upstream, g[5], seen, g[2], 1 if first > 0 else 0, to, g[2], filters)
        first = last
        if first >= pixels:
            break


@kernel
def norm_depthwise_weight(
    x: Addr, dy: Addr, dw: Addr, filters: Addr, g: PtrI64, n: Int, low: Int, high: Int, block: Int, table: Ptr, wide: Int,
    seen: Addr,
):
    """dw = gradient of the filters of `norm_depthwise`, of their rows from low to high; block counts rows of output."""
    depthwise_backward_weight(seen, dy, filters, 0, low, high, 0, part_of(g, 0, g[0], 0, g[3]))  # of no images: zeros
    row = g[1] * g[2]
    for image in range(n):
        for first in range(0, g[3], block):
            last = min(first + block, g[3])
            top, end = seen_rows(g, first, last)
            normalise_relu_run(x + SIZE * (image * g[0] + top) * row, table, wide, seen, (end - top) * row)
            upstream = dy + SIZE * (image * g[3] + first) * g[4] * g[5]
            depthwise_backward_weight(seen, upstream, filters, 1, low, high, 1, part_of(g, top, end, first, last))
    hwio_to_oihw(filters, dw, g[5], 1, g[6], g[7], low, high)
