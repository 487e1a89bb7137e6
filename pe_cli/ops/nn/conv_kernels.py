"""Kernels of conv2d and depthwise_conv2d, and their CUDA forms."""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.conv import conv_backward_data, conv_forward
from pe_cli.kernels.conv_weight import conv_backward_weight
from pe_cli.kernels.cuda import cuda, on_cuda, same_on_cuda
from pe_cli.kernels.depthwise import depthwise_backward_data, depthwise_backward_weight, depthwise_forward
from pe_cli.kernels.gemm import gemm
from pe_cli.kernels.geometry import (
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
from pe_cli.kernels.lang import SIZE, Addr, Int, Ptr, PtrI64, T, helper, kernel
from pe_cli.kernels.transpose import hwio_to_oihw, oihw_to_hwio, some_to_hwio, transpose, transpose_batch
from pe_cli.kernels.winograd import winograd_filters, winograd_filters_back, winograd_images, winograd_taps


@helper
def geometry_of(g):
    """Return the numbers of a geometry that `pe_cli.kernels.conv` takes: all but the pitch, see `pe_cli.kernels.geometry`."""
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
def turn(x: Addr, y: Addr, batch: Int, rows: Int, columns: Int):
    """Transpose every matrix of a batch: NCHW to NHWC with rows = channels, and back with rows = pixels."""
    transpose_batch(x, y, batch, rows, columns)


# --- CUDA -------------------------------------------------------------------------------------------------------------


#: Threads that add up the gradient of one weight.
ADDERS: Any = 128


@on_cuda(forward)
def filters_last(x: Addr, w: Addr, y: Addr, filters: Addr, g: PtrI64, n: Int):
    """The output channels of a tap and input channel become neighbours."""
    taps, per = g[TAPS_Y] * g[TAPS_X], g[CHANNELS] // g[GROUPS]
    for e in range(g[FILTERS] * per * taps):
        oc, c, tap = e // (per * taps), e // taps % per, e % taps
        filters[(tap * per + c) * g[FILTERS] + oc] = w[e]


@on_cuda(forward)
def forward_cuda(x: Addr, w: Addr, y: Addr, filters: Addr, g: PtrI64, n: Int):
    """One thread per output element."""
    height, width, channels, oh, ow, outs, kh, kw = (
        g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH], g[FILTERS], g[TAPS_Y], g[TAPS_X],
    )  # fmt: skip
    per, each = channels // g[GROUPS], outs // g[GROUPS]
    for e in range(n * oh * ow * outs):
        oc, j, i, image = e % outs, e // outs % ow, e // (outs * ow) % oh, e // (outs * ow * oh)
        first = oc // each * per
        total = T(0)
        for r in range(kh):
            row = i * g[STRIDE_Y] - g[PAD_Y] + r * g[DILATION_Y]
            for s in range(kw):
                column = j * g[STRIDE_X] - g[PAD_X] + s * g[DILATION_X]
                if row >= 0 and row < height and column >= 0 and column < width:
                    at = ((image * height + row) * width + column) * channels + first
                    tap = (r * kw + s) * per * outs + oc
                    for c in range(per):
                        total += x[at + c] * filters[tap + c * outs]
        y[e] = total


@on_cuda(backward_data)
def filters_first(dy: Addr, w: Addr, dx: Addr, filters: Addr, scratch: Addr, g: PtrI64, n: Int, acc: Int):
    """The input channels of a tap and output channel become neighbours."""
    taps, per = g[TAPS_Y] * g[TAPS_X], g[CHANNELS] // g[GROUPS]
    for e in range(g[FILTERS] * per * taps):
        oc, c, tap = e // (per * taps), e // taps % per, e % taps
        filters[(tap * g[FILTERS] + oc) * per + c] = w[e]


@on_cuda(backward_data)
def backward_data_cuda(dy: Addr, w: Addr, dx: Addr, filters: Addr, scratch: Addr, g: PtrI64, n: Int, acc: Int):
    """One thread per input element: it gathers from all windows that it lies in."""
    height, width, channels, oh, ow, outs, kh, kw = (
        g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH], g[FILTERS], g[TAPS_Y], g[TAPS_X],
    )  # fmt: skip
    per, each = channels // g[GROUPS], outs // g[GROUPS]
    for e in range(n * height * width * channels):
        c, column, row = e % channels, e // channels % width, e // (channels * width) % height
        image = e // (channels * width * height)
        first = c // per * each
        total = T(0)
        for r in range(kh):
            down = row + g[PAD_Y] - r * g[DILATION_Y]
            i = down // g[STRIDE_Y]
            for s in range(kw):
                right = column + g[PAD_X] - s * g[DILATION_X]
                j = right // g[STRIDE_X]
                if i * g[STRIDE_Y] == down and j * g[STRIDE_X] == right and i >= 0 and i < oh and j >= 0 and j < ow:
                    at = ((image * oh + i) * ow + j) * outs + first
                    tap = ((r * kw + s) * outs + first) * per + c % per
                    for oc in range(each):
                        total += dy[at + oc] * filters[tap + oc * per]
        dx[e] = dx[e] + total if acc else total


@on_cuda(backward_weight, block=(ADDERS,))
def backward_weight_cuda(x: Addr, dy: Addr, dw: Addr, filters: Addr, g: PtrI64, n: Int, low: Int, high: Int):
    """One block a weight; its threads take the output pixels in turn, and their sums are added in a tree."""
    height, width, channels, oh, ow, outs, kh, kw = (
        g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH], g[FILTERS], g[TAPS_Y], g[TAPS_X],
    )  # fmt: skip
    per, each = channels // g[GROUPS], outs // g[GROUPS]
    parts = cuda.shared.array(ADDERS, T)
    me = cuda.threadIdx.x
    for e in range(cuda.blockIdx.x, outs * per * kh * kw, cuda.gridDim.x):
        oc, c, r, s = (
            e // (per * kh * kw),
            e // (kh * kw) % per + e // (per * kh * kw) // each * per,
            e // kw % kh,
            e % kw,
        )
        if r < low or r >= high:
            continue
        total = T(0)
        for pixel in range(me, n * oh * ow, ADDERS):
            image = pixel // (oh * ow)
            row = pixel // ow % oh * g[STRIDE_Y] - g[PAD_Y] + r * g[DILATION_Y]
            column = pixel % ow * g[STRIDE_X] - g[PAD_X] + s * g[DILATION_X]
            if row >= 0 and row < height and column >= 0 and column < width:
                total += dy[pixel * outs + oc] * x[((image * height + row) * width + column) * channels + c]
        parts[me] = total
        cuda.syncthreads()
        half = ADDERS // 2
        while half > 0:
            if me < half:
                parts[me] += parts[me + half]
            cuda.syncthreads()
            half //= 2
        if me == 0:
            dw[e] = parts[0]


@on_cuda(turn)
def turn_cuda(x: Addr, y: Addr, batch: Int, rows: Int, columns: Int):
    """One thread per element, neighbours in the target."""
    for e in range(batch * rows * columns):
        b, j, i = e // (rows * columns), e // rows % columns, e % rows
        y[e] = x[(b * rows + i) * columns + j]


@on_cuda(pick)
def pick_cuda(x: Ptr, y: Ptr, g: PtrI64, n: Int):
    """One thread per element of y."""
    height, width, channels, oh, ow = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH]
    for e in range(n * oh * ow * channels):
        c, j, i, image = e % channels, e // channels % ow, e // (channels * ow) % oh, e // (channels * ow * oh)
        y[e] = x[((image * height + i * g[STRIDE_Y]) * width + j * g[STRIDE_X]) * channels + c]


@on_cuda(place)
def place_cuda(x: Ptr, y: Ptr, g: PtrI64, n: Int):
    """One thread per element of y."""
    height, width, channels, oh, ow = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH]
    for e in range(n * height * width * channels):
        c, column, row = e % channels, e // channels % width, e // (channels * width) % height
        image, i, j = e // (channels * width * height), row // g[STRIDE_Y], column // g[STRIDE_X]
        y[e] = T(0)
        if i * g[STRIDE_Y] == row and j * g[STRIDE_X] == column and i < oh and j < ow:
            y[e] = x[((image * oh + i) * ow + j) * channels + c]


for special in (forward_depthwise, forward_pointwise, forward_winograd):
    same_on_cuda(special, forward)
for special in (backward_data_depthwise, backward_data_pointwise, backward_data_winograd):
    same_on_cuda(special, backward_data)
for special in (backward_weight_depthwise, backward_weight_pointwise, backward_weight_winograd):
    same_on_cuda(special, backward_weight)
