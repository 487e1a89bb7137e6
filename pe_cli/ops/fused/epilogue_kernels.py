"""Kernels that add a bias to products and convolutions, and cut off what is negative."""

from __future__ import annotations

from pe_cli.kernels.cpu.conv import conv_forward
from pe_cli.kernels.cpu.conv_geometry import (
    CHANNELS,
    FILTERS,
    GROUPS,
    HEIGHT,
    OUT_HEIGHT,
    OUT_WIDTH,
    PAD_X,
    PAD_Y,
    PITCH,
    TAPS_X,
    TAPS_Y,
    WIDTH,
)
from pe_cli.kernels.cpu.gemm import add_bias, gemm_bias
from pe_cli.kernels.cpu.matrix_tiles import gemm_tiles, tiles_scratch
from pe_cli.kernels.cpu.transpose import oihw_to_hwio
from pe_cli.kernels.cpu.winograd import winograd_images
from pe_cli.kernels.language import SIZE, Addr, Int, Ptr, PtrI64, address, helper, kernel
from pe_cli.ops.define.tile_products import by_tiles
from pe_cli.ops.nn.conv_kernels import filters_in_order, geometry_of
from pe_cli.ops.nn.conv_tile_kernels import pointwise_room


@kernel
def product_bias(m: Int, n: Int, k: Int, a: Ptr, b: Ptr, bias: Ptr, c: Ptr, ld: Int, cut: Int, scratch: Ptr):
    """C = A B + bias, cut off below 0 where asked; ld elements lie between the rows of B and of C."""
    gemm_bias(0, 0, m, n, k, address(a), k, address(b), ld, 0, address(c), ld, address(scratch), address(bias), cut)


@by_tiles(product_bias, "a", "b", scratch="scratch", room=lambda m, n, k, *_: tiles_scratch(n, k))
@kernel
def tile_product_bias(m: Int, n: Int, k: Int, a: Addr, b: Addr, bias: Ptr, c: Ptr, ld: Int, cut: Int, scratch: Ptr):
    """Do `product_bias` with A and B of bfloat16."""
    gemm_tiles(0, 0, m, n, k, a, k, b, ld, 0, address(c), ld, address(scratch), address(bias), cut)


@helper
def _repeat(bias, row, width, channels):
    """Fill a row of width with the biases again and again."""
    for i in range(width):
        row[i] = bias[i % channels]


@helper
def _add_row(y, pixels, g, row, width, cut):
    """Add a row of width again and again to pixels, or where they have other channels too its beginning to each; addresses."""
    # Where groups share an image, the channels of one group are not side by side from pixel to pixel.
    if g[PITCH] > g[FILTERS]:
        add_bias(y, g[PITCH], pixels, g[FILTERS], row, cut)
        return
    size = pixels * g[FILTERS]
    add_bias(y, width, size // width, width, row, cut)
    # What is left is shorter than the row but whole pixels long, so the row's beginning has its biases.
    rest = size % width
    add_bias(y + SIZE * (size - rest), rest, 1, rest, row, cut)


@kernel
def convolution_bias(
    x: Addr, w: Addr, bias: Ptr, y: Addr, filters: Addr, row: Ptr, width: Int, g: PtrI64, n: Int, block: Int, cut: Int
):
    """y = convolution of x with w, plus a bias per channel, cut off below 0 where asked; block images at a time.

    row is scratch for the biases again and again, width of them: loops over a few channels would be all ends and no middle.
    """
    _repeat(bias, row, width, g[FILTERS])
    per = g[CHANNELS] // g[GROUPS]
    oihw_to_hwio(w, filters, g[FILTERS], per, g[TAPS_Y], g[TAPS_X])
    pixels = g[OUT_HEIGHT] * g[OUT_WIDTH]
    for first in range(0, n, block):
        last = min(n, first + block)
        conv_forward(x, filters, y, first, last, geometry_of(g), g[PITCH], filters + SIZE * g[FILTERS] * per * g[TAPS_Y] * g[TAPS_X])
        _add_row(y + SIZE * first * pixels * g[PITCH], (last - first) * pixels, g, address(row), width, cut)


@kernel
def winograd_bias(
    x: Addr, w: Addr, bias: Ptr, y: Addr, filters: Addr, row: Ptr, width: Int, g: PtrI64, n: Int, block: Int, cut: Int
):
    """Do `convolution_bias` where `winograd.suits`."""
    _repeat(bias, row, width, g[FILTERS])
    u, scratch = filters_in_order(w, filters, g)
    from_x, pixels = g[HEIGHT] * g[WIDTH] * g[CHANNELS], g[OUT_HEIGHT] * g[OUT_WIDTH]
    for first in range(0, n, block):
        many = min(n - first, block)
        begin = y + SIZE * first * pixels * g[PITCH]
        winograd_images(
            x + SIZE * first * from_x, u, begin, many, g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH],
            g[FILTERS], g[PAD_Y], g[PAD_X], 0, g[PITCH], scratch
        )
        _add_row(begin, many * pixels, g, address(row), width, cut)


@kernel
def pointwise_bias(
    x: Addr, w: Addr, bias: Addr, y: Addr, filters: Addr, row: Ptr, width: Int, g: PtrI64, n: Int, block: Int, cut: Int
):
    """Do `convolution_bias` for a 1x1 convolution of whole images."""
    # row, width and block are unused: kernels among which one is chosen take the same arguments.
    gemm_bias(0, 1, n * g[HEIGHT] * g[WIDTH], g[FILTERS], g[CHANNELS], x, g[CHANNELS], w, g[CHANNELS], 0, y, g[PITCH], filters, bias, cut)


@by_tiles(pointwise_bias, "x", "w", scratch="filters", room=pointwise_room)
@kernel
def tile_pointwise_bias(
    x: Addr, w: Addr, bias: Addr, y: Addr, filters: Addr, row: Ptr, width: Int, g: PtrI64, n: Int, block: Int, cut: Int
):
    """Do `pointwise_bias` with images and filters of bfloat16."""
    gemm_tiles(0, 1, n * g[HEIGHT] * g[WIDTH], g[FILTERS], g[CHANNELS], x, g[CHANNELS], w, g[CHANNELS], 0, y, g[PITCH], filters, bias, cut)
