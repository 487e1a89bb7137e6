"""Kernels of conv2d and depthwise_conv2d, and their CUDA forms."""

from __future__ import annotations

from pe_cli.kernels.cpu.conv import conv_backward_data, conv_forward
from pe_cli.kernels.cpu.conv_filter_gradient import conv_backward_weight
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
from pe_cli.kernels.cpu.depthwise import depthwise_backward_data, depthwise_backward_weight, depthwise_forward
from pe_cli.kernels.cpu.gemm import gemm
from pe_cli.kernels.cpu.transpose import hwio_to_oihw, oihw_to_hwio, some_to_hwio, transpose, transpose_batch
from pe_cli.kernels.cpu.winograd import winograd_filters, winograd_filters_back, winograd_images, winograd_taps
from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.language import SIZE, Addr, Int, Ptr, PtrI64, T, helper, kernel


@helper
def geometry_of(g):
    """Return the numbers of a geometry that `pe_cli.kernels.cpu.conv` takes: all but the pitch, see `pe_cli.kernels.cpu.conv_geometry`."""
    return (
        g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH], g[FILTERS], g[TAPS_Y], g[TAPS_X],
        g[STRIDE_Y], g[STRIDE_X], g[PAD_Y], g[PAD_X], g[DILATION_Y], g[DILATION_X], g[GROUPS],
    )  # fmt: skip


@kernel
def forward(x: Addr, w: Addr, y: Addr, filters: Addr, g: PtrI64, n: Int):
    """y = convolution of x with w; filters is scratch for w with its output channels last, and for what `conv_forward` wants."""
    per = g[CHANNELS] // g[GROUPS]
    oihw_to_hwio(w, filters, g[FILTERS], per, g[TAPS_Y], g[TAPS_X])
    conv_forward(x, filters, y, 0, n, geometry_of(g), g[PITCH], filters + SIZE * g[FILTERS] * per * g[TAPS_Y] * g[TAPS_X])


@kernel
def forward_depthwise(x: Addr, w: Addr, y: Addr, filters: Addr, g: PtrI64, n: Int):
    """Do `forward` for a depthwise convolution; it is a kernel of its own, because compiling both takes longer than most models need."""
    oihw_to_hwio(w, filters, g[FILTERS], 1, g[TAPS_Y], g[TAPS_X])
    depthwise_forward(x, filters, y, n, geometry_of(g))


@kernel
def backward_data(dy: Addr, w: Addr, dx: Addr, filters: Addr, scratch: Addr, g: PtrI64, n: Int, acc: Int):
    """dx (+)= gradient of the images."""
    some_to_hwio(w, g[PITCH] // g[GROUPS] * g[TAPS_Y] * g[TAPS_X], filters, g[FILTERS], g[CHANNELS] // g[GROUPS], g[TAPS_Y], g[TAPS_X])
    conv_backward_data(dy, filters, dx, 0, n, acc, geometry_of(g), g[PITCH], scratch)


@kernel
def backward_data_depthwise(dy: Addr, w: Addr, dx: Addr, filters: Addr, scratch: Addr, g: PtrI64, n: Int, acc: Int):
    """dx = gradient of the images of a depthwise convolution, which is not added."""
    oihw_to_hwio(w, filters, g[FILTERS], 1, g[TAPS_Y], g[TAPS_X])
    depthwise_backward_data(dy, filters, dx, n, geometry_of(g))


@kernel
def backward_weight(x: Addr, dy: Addr, dw: Addr, filters: Addr, g: PtrI64, n: Int, low: Int, high: Int):
    """dw = gradient of the filters, of their rows from low to high."""
    scratch = filters + SIZE * g[FILTERS] * (g[CHANNELS] // g[GROUPS]) * g[TAPS_Y] * g[TAPS_X]
    conv_backward_weight(x, dy, filters, 0, n, low, high, 0, geometry_of(g), scratch)
    hwio_to_oihw(filters, dw, g[FILTERS], g[CHANNELS] // g[GROUPS], g[TAPS_Y], g[TAPS_X], low, high)


@kernel
def backward_weight_depthwise(x: Addr, dy: Addr, dw: Addr, filters: Addr, g: PtrI64, n: Int, low: Int, high: Int):
    """Do `backward_weight` for a depthwise convolution."""
    depthwise_backward_weight(x, dy, filters, n, low, high, 0, geometry_of(g))
    hwio_to_oihw(filters, dw, g[FILTERS], 1, g[TAPS_Y], g[TAPS_X], low, high)


@kernel
def forward_pointwise(x: Addr, w: Addr, y: Addr, filters: Addr, g: PtrI64, n: Int):
    """Do `forward` for a 1x1 convolution of whole images: one product [pixels, channels] [channels, filters]."""
    gemm(0, 1, n * g[HEIGHT] * g[WIDTH], g[FILTERS], g[CHANNELS], x, g[CHANNELS], w, g[CHANNELS], 0, y, g[PITCH], filters)


@kernel
def backward_data_pointwise(dy: Addr, w: Addr, dx: Addr, filters: Addr, scratch: Addr, g: PtrI64, n: Int, acc: Int):
    """Do `backward_data` for a 1x1 convolution of whole images."""
    gemm(0, 0, n * g[HEIGHT] * g[WIDTH], g[CHANNELS], g[FILTERS], dy, g[FILTERS], w, g[PITCH], acc, dx, g[PITCH], filters)


@kernel
def backward_weight_pointwise(x: Addr, dy: Addr, dw: Addr, filters: Addr, g: PtrI64, n: Int, low: Int, high: Int):
    """Do `backward_weight` for a 1x1 convolution of whole images; low and high count filters."""
    at, to = dy + SIZE * low, dw + SIZE * low * g[CHANNELS]
    gemm(1, 0, high - low, g[CHANNELS], n * g[HEIGHT] * g[WIDTH], at, g[FILTERS], x, g[CHANNELS], 0, to, g[CHANNELS], filters)


@helper
def filters_in_order(w, filters, g):
    """Bring filters into order and transform them, for `winograd_images`; return their address, and that of the scratch behind them."""
    size = g[CHANNELS] * g[FILTERS]
    u = filters + SIZE * 9 * size
    oihw_to_hwio(w, filters, g[FILTERS], g[CHANNELS], 3, 3)
    winograd_filters(filters, u, size, 0)
    return u, u + SIZE * 16 * size


@kernel
def forward_winograd(x: Addr, w: Addr, y: Addr, filters: Addr, g: PtrI64, n: Int):
    """Do `forward` where `winograd.suits`; filters is scratch for w in order, transformed, and for what `winograd_images` wants."""
    u, scratch = filters_in_order(w, filters, g)
    winograd_images(
        x, u, y, n, g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH], g[FILTERS], g[PAD_Y], g[PAD_X],
        0, g[PITCH], scratch,
    )  # fmt: skip


@kernel
def backward_data_winograd(dy: Addr, w: Addr, dx: Addr, filters: Addr, scratch: Addr, g: PtrI64, n: Int, acc: Int):
    """Do `backward_data` where `winograd.suits`: a convolution of dy with the taps in reverse order."""
    size = g[CHANNELS] * g[FILTERS]
    u = filters + SIZE * 9 * size
    # Filters for all inputs lie side by side: they are one matrix.
    some, count = (size, 1) if g[CHANNELS] == g[PITCH] else (g[CHANNELS], g[FILTERS])
    for o in range(count):
        transpose(w + SIZE * 9 * o * g[PITCH], 9, filters + SIZE * o * g[CHANNELS], size, some, 9)
    winograd_filters(filters, u, size, 1)
    scratch = u + SIZE * 16 * size
    winograd_images(
        dy, u, dx, n, g[OUT_HEIGHT], g[OUT_WIDTH], g[FILTERS], g[HEIGHT], g[WIDTH], g[CHANNELS], 2 - g[PAD_Y],
        2 - g[PAD_X], acc, g[PITCH], scratch,
    )  # fmt: skip


@kernel
def backward_weight_winograd(x: Addr, dy: Addr, dw: Addr, filters: Addr, g: PtrI64, n: Int, low: Int, high: Int):
    """Do `backward_weight` where `winograd.suits`, of all rows of the filters."""
    size = g[CHANNELS] * g[FILTERS]
    s = filters + SIZE * 9 * size
    winograd_taps(
        x, dy, s, n, g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH], g[FILTERS], g[PAD_Y], g[PAD_X],
        s + SIZE * 16 * size,
    )  # fmt: skip
    winograd_filters_back(s, filters, size)
    hwio_to_oihw(filters, dw, g[FILTERS], g[CHANNELS], 3, 3, low, high)


@kernel
def pick(x: Ptr, y: Ptr, g: PtrI64, n: Int):
    """y = the pixels of images that a 1x1 convolution sees, in the order of its outputs."""
    height, width, channels, oh, ow = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH]
    for image in range(n):
        for i in range(oh):
            for j in range(ow):
                at = ((image * height + i * g[STRIDE_Y]) * width + j * g[STRIDE_X]) * channels
                to = ((image * oh + i) * ow + j) * channels
                for c in range(channels):
                    y[to + c] = x[at + c]


@kernel
def place(x: Ptr, y: Ptr, g: PtrI64, n: Int):
    """Undo `pick`: y = images of x's pixels, and zeros between them."""
    height, width, channels, oh, ow = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH]
    for image in range(n):
        for r in range(height):
            row = (image * height + r) * width * channels
            for c in range(width * channels):
                y[row + c] = T(0)
            i = r // g[STRIDE_Y]
            if r % g[STRIDE_Y] == 0 and i < oh:
                for j in range(ow):
                    at = ((image * oh + i) * ow + j) * channels
                    to = row + j * g[STRIDE_X] * channels
                    for c in range(channels):
                        y[to + c] = x[at + c]


@kernel
def gather_taps(x: Ptr, columns: Ptr, g: PtrI64, n: Int):
    """columns = the pixels that each output pixel sees, in the order of a filter as it is stored: channels, then taps; 0 beside images."""
    height, width, channels, oh, ow, taps = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH], g[TAPS_Y] * g[TAPS_X]
    for pixel in range(n * oh * ow):
        image, i, j = pixel // (oh * ow), pixel // ow % oh, pixel % ow
        for tap in range(taps):
            r = i * g[STRIDE_Y] - g[PAD_Y] + tap // g[TAPS_X] * g[DILATION_Y]
            c = j * g[STRIDE_X] - g[PAD_X] + tap % g[TAPS_X] * g[DILATION_X]
            at = ((image * height + r) * width + c) * channels
            to = pixel * channels * taps + tap
            if r >= 0 and r < height and c >= 0 and c < width:
                for channel in range(channels):
                    columns[to + channel * taps] = x[at + channel]
            else:
                for channel in range(channels):
                    columns[to + channel * taps] = T(0)


@kernel
def spread_taps(columns: Ptr, x: Ptr, g: PtrI64, n: Int):
    """Do the transpose of `gather_taps`: x = for each pixel, the sum of what stands for it, of the taps in order."""
    height, width, channels, oh, ow, taps = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH], g[TAPS_Y] * g[TAPS_X]
    for pixel in range(n * height * width):
        image, r, c = pixel // (height * width), pixel // width % height, pixel % width
        to = pixel * channels
        for channel in range(channels):
            x[to + channel] = T(0)
        for tap in range(taps):
            above = r + g[PAD_Y] - tap // g[TAPS_X] * g[DILATION_Y]
            before = c + g[PAD_X] - tap % g[TAPS_X] * g[DILATION_X]
            i, j = above // g[STRIDE_Y], before // g[STRIDE_X]
            seen = above >= 0 and i < oh and i * g[STRIDE_Y] == above
            if seen and before >= 0 and j < ow and j * g[STRIDE_X] == before:
                at = ((image * oh + i) * ow + j) * channels * taps + tap
                for channel in range(channels):
                    x[to + channel] += columns[at + channel * taps]


@kernel
def turn(x: Addr, y: Addr, batch: Int, rows: Int, columns: Int):
    """Transpose every matrix of a batch: NCHW to NHWC with rows = channels, and back with rows = pixels."""
    transpose_batch(x, y, batch, rows, columns)


# --- CUDA -------------------------------------------------------------------------------------------------------------


@on_cuda(turn)
def turn_cuda(x: Addr, y: Addr, batch: Int, rows: Int, columns: Int):
    """One thread per element, neighbours in the target."""
    for e in range(batch * rows * columns):
        line = quotient(e, rows)
        b = quotient(line, columns)
        y[e] = x[(b * rows + e - line * rows) * columns + line - b * columns]
