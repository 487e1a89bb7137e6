"""Kernels of conv2d with images and filters of bfloat16, by matrix tiles."""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.calls import Numbers
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
from pe_cli.kernels.cpu.conv_tiles import (
    conv_tiles,
    conv_tiles_scratch,
    filter_gradient_tiles,
    gradient_tiles_scratch,
    pack_filters,
    strips_bytes,
)
from pe_cli.kernels.cpu.matrix_tiles import DEPTH, gemm_tiles, tiles_scratch
from pe_cli.kernels.cpu.tile_code import HALF, MOST_TERMS, TILE, terms
from pe_cli.kernels.language import SIZE, Addr, Int, PtrI64, helper, kernel, pointer
from pe_cli.ops.define.tile_products import by_tiles
from pe_cli.ops.nn.conv_kernels import (
    backward_data,
    backward_data_pointwise,
    backward_data_winograd,
    backward_weight,
    backward_weight_pointwise,
    backward_weight_winograd,
    forward,
    forward_pointwise,
    forward_winograd,
)


def _geometry(args: tuple[Any, ...]) -> tuple[int, ...]:
    (g,) = (arg.values for arg in args if isinstance(arg, Numbers))
    return g


def dense(*args: Any) -> bool:
    """Return whether a call's convolution has taps side by side and all channels in one group."""
    g = _geometry(args)
    return g[GROUPS] == g[DILATION_Y] == g[DILATION_X] == 1


def side_by_side(*args: Any) -> bool:
    """Return whether it is `dense`, and its results see pixels side by side."""
    # With strides the gradient of the filters would read pixels that are not side by side, which tiles cannot hold.
    g = _geometry(args)
    return dense(*args) and g[STRIDE_Y] == g[STRIDE_X] == 1


def _filled(count: int, whole: int) -> float:
    """Return the share of so many that are whole ones when they are filled up."""
    return count / (-(-count // whole) * whole)


def _share(taps: int, channels: int, filters: int, width: int) -> float:
    """Return the share of a convolution's products of pairs that count: terms and filters are filled up, pixels by those between rows."""
    # Of one column of tiles the sums leave as often as of two.
    columns = _filled(filters, TILE) * (1.0 if filters > TILE else 0.75)
    return _filled(taps * channels, terms()) * columns * width / (width + taps - 1)


#: Shares of products that count from which on pairs, twice as many a cycle, take less time than multiply-adds of float32, than those of
#: Winograd's way, and than either of them for gradients of filters; images and filters are made float32 for these first. Of a Zen 4.
PLAIN, WINOGRAD, OF_FILTERS = 0.6, 0.88, 0.84


def forward_pays(*args: Any) -> bool:
    """Return whether `tile_forward` takes less time by pairs than `forward`."""
    g = _geometry(args)
    # Rows of results that are apart are runs of their own, without pixels between them.
    return _share(g[TAPS_X], g[CHANNELS], g[FILTERS], g[OUT_WIDTH] if g[STRIDE_X] == g[STRIDE_Y] == 1 else 1 << 20) > PLAIN


def winograd_pays(*args: Any) -> bool:
    """Return whether `tile_forward` takes less time by pairs than `forward_winograd`."""
    g = _geometry(args)
    return _share(g[TAPS_X], g[CHANNELS], g[FILTERS], g[OUT_WIDTH]) > WINOGRAD


def _data_pays(*args: Any) -> bool:
    g = _geometry(args)
    # With strides most of what is multiplied are the zeros between pixels.
    return g[STRIDE_X] == g[STRIDE_Y] == 1 and _share(g[TAPS_X], g[FILTERS], g[CHANNELS], g[WIDTH]) > PLAIN


def _data_winograd_pays(*args: Any) -> bool:
    g = _geometry(args)
    return _share(g[TAPS_X], g[FILTERS], g[CHANNELS], g[WIDTH]) > WINOGRAD


def _weight_pays(*args: Any) -> bool:
    g = _geometry(args)
    # Pixels are the terms, of which the last ones of an image are filled up.
    return _share(g[TAPS_X], MOST_TERMS, g[CHANNELS], g[OUT_WIDTH]) * _filled(g[FILTERS], TILE) > OF_FILTERS


def pointwise_room(*args: Any) -> int:
    """Return the elements of scratch of 1x1 convolutions, in whichever direction."""
    g = _geometry(args)
    return max(tiles_scratch(g[FILTERS], g[CHANNELS]), tiles_scratch(g[CHANNELS], max(g[FILTERS], DEPTH)))


def forward_room(*args: Any) -> int:
    """Return the elements of scratch of `tile_forward`."""
    g = _geometry(args)
    return conv_tiles_scratch(g[CHANNELS], g[OUT_WIDTH], g[FILTERS], (g[TAPS_Y], g[TAPS_X]), g[STRIDE_X])


def _data_room(*args: Any) -> int:
    g = _geometry(args)
    return conv_tiles_scratch(g[FILTERS], g[WIDTH], g[CHANNELS], (g[TAPS_Y], g[TAPS_X]), 1)


def _weight_room(*args: Any) -> int:
    g = _geometry(args)
    sums = g[TAPS_Y] * g[TAPS_X] * g[FILTERS] * g[CHANNELS]
    return sums + gradient_tiles_scratch(g[CHANNELS], g[OUT_WIDTH], g[FILTERS], (g[TAPS_Y], g[TAPS_X]))


@helper
def filters_ahead(w, filters, g):
    """Bring filters into tiles for images; return the address of the tiles, and that of the scratch behind them."""
    # Tiles begin at a multiple of 64 bytes, a cache line: matrix tiles load whole lines.
    strips = (filters + 63) // 64 * 64
    area = g[TAPS_Y] * g[TAPS_X]
    pack_filters(w, g[CHANNELS] * area, area, g[TAPS_X], 1, g[FILTERS], g[CHANNELS], g[TAPS_Y], g[TAPS_X], strips)
    return strips, strips + strips_bytes(g[TAPS_Y], g[TAPS_X] * g[CHANNELS], g[FILTERS])


@helper
def convolve_tiles(x, strips, y, scratch, first, last, g):
    """Convolve images first to last."""
    conv_tiles(
        x + HALF * first * g[HEIGHT] * g[WIDTH] * g[CHANNELS], last - first, g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH],
        g[FILTERS], g[TAPS_Y], g[TAPS_X], g[STRIDE_Y], g[STRIDE_X], g[PAD_Y], g[PAD_X], 1, 1, strips, 0,
        y + SIZE * first * g[OUT_HEIGHT] * g[OUT_WIDTH] * g[PITCH], g[PITCH], scratch,
    )  # fmt: skip


@by_tiles(forward, "x", "w", scratch="filters", room=forward_room, suits=dense, pairs_pay=forward_pays)
@by_tiles(forward_winograd, "x", "w", scratch="filters", room=forward_room, pairs_pay=winograd_pays)
@kernel
def tile_forward(x: Addr, w: Addr, y: Addr, filters: Addr, g: PtrI64, n: Int):
    """Do `forward`."""
    strips, scratch = filters_ahead(w, filters, g)
    convolve_tiles(x, strips, y, scratch, 0, n, g)


@by_tiles(backward_data, "dy", "w", scratch="filters", room=_data_room, suits=dense, pairs_pay=_data_pays)
@by_tiles(backward_data_winograd, "dy", "w", scratch="filters", room=_data_room, pairs_pay=_data_winograd_pays)
@kernel
def tile_backward_data(dy: Addr, w: Addr, dx: Addr, filters: Addr, scratch: Addr, g: PtrI64, n: Int, acc: Int):
    """Do `backward_data`: a convolution of dy, with as many zeros between its pixels as results are apart, and taps in reverse order."""
    strips = (filters + 63) // 64 * 64
    area = g[TAPS_Y] * g[TAPS_X]
    # The last tap first and negative steps: the filters are turned by half a turn, and inputs and outputs change places, by the strides of
    # one packing routine.
    pack_filters(
        w + HALF * (area - 1), area, g[PITCH] * area, -g[TAPS_X], -1, g[CHANNELS], g[FILTERS], g[TAPS_Y], g[TAPS_X], strips
    )
    behind = strips + strips_bytes(g[TAPS_Y], g[TAPS_X] * g[FILTERS], g[CHANNELS])
    conv_tiles(
        dy, n, g[OUT_HEIGHT], g[OUT_WIDTH], g[FILTERS], g[HEIGHT], g[WIDTH], g[CHANNELS], g[TAPS_Y], g[TAPS_X], 1, 1,
        g[TAPS_Y] - 1 - g[PAD_Y], g[TAPS_X] - 1 - g[PAD_X], g[STRIDE_Y], g[STRIDE_X], strips, acc, dx, g[PITCH], behind,
    )  # fmt: skip


@by_tiles(backward_weight, "x", "dy", scratch="filters", room=_weight_room, suits=side_by_side, pairs_pay=_weight_pays)
@by_tiles(backward_weight_winograd, "x", "dy", scratch="filters", room=_weight_room, pairs_pay=_weight_pays)
@kernel
def tile_backward_weight(x: Addr, dy: Addr, dw: Addr, filters: Addr, g: PtrI64, n: Int, low: Int, high: Int):
    """Do `backward_weight`."""
    area, channels = g[TAPS_Y] * g[TAPS_X], g[CHANNELS]
    filter_gradient_tiles(
        x, dy, n, g[HEIGHT], g[WIDTH], channels, g[OUT_HEIGHT], g[OUT_WIDTH], g[FILTERS], g[TAPS_Y], g[TAPS_X], g[PAD_Y], g[PAD_X], low,
        high, filters, filters + SIZE * area * g[FILTERS] * channels,
    )  # fmt: skip
    # Sums lie [tap, filter, channel], as tiles give them, and filters [filter, channel, tap]: only the rows of taps that this part has are
    # written.
    sums, out = pointer(filters), pointer(dw)
    for o in range(g[FILTERS]):
        for c in range(channels):
            for tap in range(low * g[TAPS_X], high * g[TAPS_X]):
                out[(o * channels + c) * area + tap] = sums[(tap * g[FILTERS] + o) * channels + c]


@by_tiles(forward_pointwise, "x", "w", scratch="filters", room=pointwise_room)
@kernel
def tile_forward_pointwise(x: Addr, w: Addr, y: Addr, filters: Addr, g: PtrI64, n: Int):
    """Do `forward_pointwise`."""
    gemm_tiles(0, 1, n * g[HEIGHT] * g[WIDTH], g[FILTERS], g[CHANNELS], x, g[CHANNELS], w, g[CHANNELS], 0, y, g[PITCH], filters, 0, 0)


@by_tiles(backward_data_pointwise, "dy", "w", scratch="filters", room=pointwise_room)
@kernel
def tile_backward_data_pointwise(dy: Addr, w: Addr, dx: Addr, filters: Addr, scratch: Addr, g: PtrI64, n: Int, acc: Int):
    """Do `backward_data_pointwise`."""
    gemm_tiles(0, 0, n * g[HEIGHT] * g[WIDTH], g[CHANNELS], g[FILTERS], dy, g[FILTERS], w, g[PITCH], acc, dx, g[PITCH], filters, 0, 0)


@by_tiles(backward_weight_pointwise, "x", "dy", scratch="filters", room=pointwise_room)
@kernel
def tile_backward_weight_pointwise(x: Addr, dy: Addr, dw: Addr, filters: Addr, g: PtrI64, n: Int, low: Int, high: Int):
    """Do `backward_weight_pointwise`."""
    # A part is a range of filters: rows of the result, and columns of dy.
    at, to = dy + HALF * low, dw + SIZE * low * g[CHANNELS]
    gemm_tiles(1, 0, high - low, g[CHANNELS], n * g[HEIGHT] * g[WIDTH], at, g[FILTERS], x, g[CHANNELS], 0, to, g[CHANNELS], filters, 0, 0)
