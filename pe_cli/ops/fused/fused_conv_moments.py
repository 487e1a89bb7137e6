"""fused_conv2d_moments: a convolution that takes batch_norm's statistics of its output while that is in the caches."""

from __future__ import annotations

import math

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cpu.channel_norm import join_pieces, no_moments, write_moments
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
from pe_cli.kernels.cpu.depthwise import depthwise_forward
from pe_cli.kernels.cpu.gemm import NARROW, gemm
from pe_cli.kernels.cpu.matrix_tiles import gemm_tiles
from pe_cli.kernels.cpu.non_temporal import FAR
from pe_cli.kernels.cpu.tile_code import HALF
from pe_cli.kernels.cpu.transpose import oihw_to_hwio
from pe_cli.kernels.cpu.winograd import winograd_images
from pe_cli.kernels.language import SIZE, Addr, Int, Ptr, PtrF64, PtrI64, helper, kernel, pointer
from pe_cli.ops.define.fusion import Becomes, Fuses, Match, Part, Pattern
from pe_cli.ops.define.lowering import Lowering, Offset
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.tile_products import by_tiles
from pe_cli.ops.define.traits import Divisible, Narrow
from pe_cli.ops.nn.batch_norm import fold, sums, take_shared_moments
from pe_cli.ops.nn.conv import ATTRS, conv2d, flops
from pe_cli.ops.nn.conv_kernels import (
    filters_in_order,
    forward,
    forward_depthwise,
    forward_pointwise,
    forward_winograd,
    geometry_of,
)
from pe_cli.ops.nn.conv_lowering import Images
from pe_cli.ops.nn.conv_tile_kernels import (
    convolve_tiles,
    dense,
    filters_ahead,
    forward_pays,
    forward_room,
    pointwise_room,
    winograd_pays,
)

#: Bytes of output whose statistics are taken while they are in the second cache.
BLOCK = 256 << 10
#: Bytes of output for which reading an element of the filters again is nothing.
READ = 32


@helper
def take_moments(y, done, units, of, rows, width, means, squares, centre, part):
    """Join the pieces of the first `units` of so many equal parts of y, but for those that are done; return how many rows are."""
    return join_pieces(pointer(y), done, rows * units // of, rows, width, 0, width, means, squares, centre, part)


@helper
def _by_blocks(convolve, x, w, y, scratch, means, squares, centre, part, moments, g, n, block, rows, width):
    """Do `convolve(x, w, y, scratch, first, last, g)` a block of images at a time, and `moments_of_columns` of each block after it."""
    done = no_moments(means, squares, 0, width)
    for first in range(0, n, block):
        last = min(first + block, n)
        convolve(x, w, y, scratch, first, last, g)
        done = take_moments(y, done, last, n, rows, width, means, squares, centre, part)
    write_moments(means, squares, moments, rows, width, g[FILTERS])


@helper
def convolve_direct(x, w, y, scratch, first, last, g):
    conv_forward(x, w, y, first, last, geometry_of(g), g[PITCH], scratch)


@helper
def _depthwise(x, w, y, scratch, first, last, g):
    seen, made = g[HEIGHT] * g[WIDTH] * g[CHANNELS], g[OUT_HEIGHT] * g[OUT_WIDTH] * g[FILTERS]
    depthwise_forward(x + SIZE * first * seen, w, y + SIZE * first * made, last - first, geometry_of(g))


@helper
def convolve_winograd(x, w, y, scratch, first, last, g):
    from_, to = x + SIZE * first * g[HEIGHT] * g[WIDTH] * g[CHANNELS], y + SIZE * first * g[OUT_HEIGHT] * g[OUT_WIDTH] * g[PITCH]
    winograd_images(
        from_, w, to, last - first, g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH], g[FILTERS],
        g[PAD_Y], g[PAD_X], 0, g[PITCH], scratch,
    )  # fmt: skip


@kernel
def forward_moments(
    x: Addr, w: Addr, y: Addr, filters: Addr, means: PtrF64, squares: PtrF64, centre: Ptr, part: Ptr, moments: PtrF64,
    g: PtrI64, n: Int, block: Int, rows: Int, width: Int,
):
    """Do `forward` and `moments_of_columns`, see `_by_blocks`."""
    per = g[CHANNELS] // g[GROUPS]
    oihw_to_hwio(w, filters, g[FILTERS], per, g[TAPS_Y], g[TAPS_X])
    scratch = filters + SIZE * g[FILTERS] * per * g[TAPS_Y] * g[TAPS_X]
    _by_blocks(convolve_direct, x, filters, y, scratch, means, squares, centre, part, moments, g, n, block, rows, width)


@kernel
def forward_depthwise_moments(
    x: Addr, w: Addr, y: Addr, filters: Addr, means: PtrF64, squares: PtrF64, centre: Ptr, part: Ptr, moments: PtrF64,
    g: PtrI64, n: Int, block: Int, rows: Int, width: Int,
):
    """Do `forward_depthwise` and `moments_of_columns` likewise."""
    oihw_to_hwio(w, filters, g[FILTERS], 1, g[TAPS_Y], g[TAPS_X])
    _by_blocks(_depthwise, x, filters, y, 0, means, squares, centre, part, moments, g, n, block, rows, width)


@kernel
def forward_winograd_moments(
    x: Addr, w: Addr, y: Addr, filters: Addr, means: PtrF64, squares: PtrF64, centre: Ptr, part: Ptr, moments: PtrF64,
    g: PtrI64, n: Int, block: Int, rows: Int, width: Int,
):
    """Do `forward_winograd` and `moments_of_columns` likewise."""
    u, scratch = filters_in_order(w, filters, g)
    _by_blocks(convolve_winograd, x, u, y, scratch, means, squares, centre, part, moments, g, n, block, rows, width)


@helper
def _multiply_pixels(x, w, y, filters, first, last, g):
    gemm(
        0, 1, last - first, g[FILTERS], g[CHANNELS], x + SIZE * first * g[CHANNELS], g[CHANNELS], w, g[CHANNELS], 0,
        y + SIZE * first * g[FILTERS], g[FILTERS], filters,
    )  # fmt: skip


@helper
def _multiply_pixels_by_tiles(x, w, y, filters, first, last, g):
    gemm_tiles(
        0, 1, last - first, g[FILTERS], g[CHANNELS], x + HALF * first * g[CHANNELS], g[CHANNELS], w, g[CHANNELS], 0,
        y + SIZE * first * g[FILTERS], g[FILTERS], filters, 0, 0,
    )  # fmt: skip


@helper
def _by_pixels(multiply, x, w, y, filters, means, squares, centre, part, moments, g, n, block, rows, width):
    """Do `multiply(x, w, y, filters, first, last, g)` a block of pixels at a time, the last of them not fewer, and `moments_of_columns`."""
    pixels = n * g[HEIGHT] * g[WIDTH]
    done = no_moments(means, squares, 0, width)
    first = 0
    while first < pixels:
        # The last block takes a short rest along: a product of few rows would run at a fraction of the speed.
        last = first + block if first + 2 * block <= pixels else pixels
        multiply(x, w, y, filters, first, last, g)
        done = take_moments(y, done, last, pixels, rows, width, means, squares, centre, part)
        first = last
    write_moments(means, squares, moments, rows, width, g[FILTERS])


@kernel
def forward_pointwise_moments(
    x: Addr, w: Addr, y: Addr, filters: Addr, means: PtrF64, squares: PtrF64, centre: Ptr, part: Ptr, moments: PtrF64,
    g: PtrI64, n: Int, block: Int, rows: Int, width: Int,
):
    """Do `forward_pointwise` and `moments_of_columns` likewise, see `_by_pixels`."""
    _by_pixels(_multiply_pixels, x, w, y, filters, means, squares, centre, part, moments, g, n, block, rows, width)


@by_tiles(forward_moments, "x", "w", scratch="filters", room=forward_room, suits=dense, pairs_pay=forward_pays)
@by_tiles(forward_winograd_moments, "x", "w", scratch="filters", room=forward_room, pairs_pay=winograd_pays)
@kernel
def tile_forward_moments(
    x: Addr, w: Addr, y: Addr, filters: Addr, means: PtrF64, squares: PtrF64, centre: Ptr, part: Ptr, moments: PtrF64,
    g: PtrI64, n: Int, block: Int, rows: Int, width: Int,
):
    """Do `forward_moments` with images and filters of bfloat16."""
    strips, scratch = filters_ahead(w, filters, g)
    _by_blocks(convolve_tiles, x, strips, y, scratch, means, squares, centre, part, moments, g, n, block, rows, width)


@by_tiles(forward_pointwise_moments, "x", "w", scratch="filters", room=pointwise_room)
@kernel
def tile_forward_pointwise_moments(
    x: Addr, w: Addr, y: Addr, filters: Addr, means: PtrF64, squares: PtrF64, centre: Ptr, part: Ptr, moments: PtrF64,
    g: PtrI64, n: Int, block: Int, rows: Int, width: Int,
):
    """Do `forward_pointwise_moments` with images and filters of bfloat16."""
    _by_pixels(_multiply_pixels_by_tiles, x, w, y, filters, means, squares, centre, part, moments, g, n, block, rows, width)


NHWC = {"data_format": "NHWC"}


@op(
    "fused_conv2d_moments",
    traits=[Divisible(), Narrow(("Input", "Filter"), ("Moments",))],
    inputs="Input Filter",
    outputs="Output Moments",
    attrs=ATTRS,
    differentiable="",
    samples=[
        Sample({"Input": (2, 6, 5, 3), "Filter": (4, 3, 3, 3)}, {**NHWC, "paddings": [1, 1]}, "three by three"),
        Sample({"Input": (2, 7, 7, 4), "Filter": (6, 2, 3, 3)}, {**NHWC, "groups": 2}, "two groups"),
        Sample({"Input": (3, 5, 5, 3), "Filter": (6, 1, 3, 3)}, {**NHWC, "groups": 3}, "depthwise"),
        Sample({"Input": (2, 5, 4, 5), "Filter": (7, 5, 1, 1)}, NHWC, "one by one"),
        Sample({"Input": (2, 5, 4, 5), "Filter": (7, 5, 1, 1)}, {**NHWC, "strides": [2, 2]}, "one by one with holes"),
        Sample({"Input": (1, 8, 8, 32), "Filter": (32, 32, 3, 3)}, {**NHWC, "paddings": [1, 1]}, "many channels"),
        Sample({"Input": (0, 5, 5, 3), "Filter": (2, 3, 3, 3)}, NHWC, "empty batch"),
    ],
)
def fused_conv2d_moments(
    x: TensorType, w: TensorType, *, data_format: str, **attrs: object
) -> tuple[TensorType, TensorType]:
    """Convolve images as conv2d does, and find mean and squared deviations of every output channel, for the batch_norm after it.

    Args:
        Input: [batch, height, width, channels].
        Filter: as for conv2d, or depthwise_conv2d.

    Returns:
        Output: [batch, out height, out width, filters].
        Moments: [2, filters] float64; the mean over batch and positions, and the sum of squared deviations from it.

    Raises:
        PeError: as for conv2d, and images with the channels first.

    Source:
        Our own, made by fuse_bn_statistics; pieces joined as by Chan, Golub, LeVeque 1983.
    """
    if data_format != "NHWC":
        raise PeError("fused_conv2d_moments needs images with the channels last", hint="data_format: NHWC")
    out: TensorType = conv2d.infer(x, w, data_format=data_format, **attrs)  # type: ignore[misc]
    return out, TensorType((2, w.shape[0]), "float64")


fused_conv2d_moments.count(flops)


@fused_conv2d_moments.lower("cpu")
def fused_conv2d_moments_cpu(o: Lowering) -> None:
    """Blocks of output that fit the second cache, each followed by its statistics.

    Where threads share the images, or these are written past the caches, all statistics come after all images.
    """
    x, w, y, moments = o.input("Input"), o.input("Filter"), o.output("Output"), o.output("Moments")
    images = Images(o, x, w, y)
    source, pieces = images.source(x), images.pieces()
    rows, width = fold(images.n * math.prod(images.out[:2]), images.out[2])
    scratch = sums(o, width, x)
    # Statistics of parts would have to be joined, and how they are cut depends on the number of threads: taken over the whole result, the
    # bits do not.
    if len(pieces) > 1:
        chosen = images.kernel(forward, forward_depthwise, forward_pointwise, forward_winograd)
        for piece in pieces:
            at_x, at_w, at_y = Offset(source, piece.x), Offset(w, piece.w), Offset(y, piece.y)
            o.call(chosen, at_x, at_w, at_y, images.filter_scratch(w), piece.geometry, piece.images, part=piece.number)
        take_shared_moments(o, y, scratch, moments, images.out[2])
        return
    size = w.type.numpy.itemsize * (images.out[2] if images.pointwise else math.prod(images.out))
    far = y.type.nbytes >= FAR  # then what was written last is in no cache either
    block = y.size if far else max(BLOCK // size, w.size * READ // size, 4 * NARROW if images.pointwise else 1)
    chosen = images.kernel(forward_moments, forward_depthwise_moments, forward_pointwise_moments, forward_winograd_moments)
    o.call(chosen, source, w, y, images.filter_scratch(w), *scratch, moments, images.geometry, images.n, block, rows, width)


# --- what it takes the place of ---------------------------------------------------------------------------------------

#: batch_norm, alone or with what follows it.
NORMS = ("batch_norm", "fused_batch_norm_act", "fused_bn_add_activation")
_NAME = "fused_conv2d_moments"


def _unless(m: Match) -> str:
    """Only training takes statistics, and only images with the channels last have pieces that are done early."""
    norm = m["norm"]
    if norm.attrs["is_test"] or norm.attrs["use_global_stats"]:
        return "batch_norm uses running statistics"
    if norm.attrs["data_layout"] != "NHWC":
        return "images have their channels first"
    return "" if m.same_role(m["conv"], norm) else "a convolution has another role"


def _becomes(m: Match) -> list[Becomes]:
    """The convolution takes statistics, where it does not already for another batch_norm, and batch_norm is given them."""
    conv, norm = m["conv"], m["norm"]
    # A second batch_norm of the same convolution reads the moments that are there.
    made = []
    moments = conv.outputs.get("Moments")
    if moments is None:
        channels = m.type(conv.inputs["Filter"][0]).shape[0]
        moments = [m.create(f"{norm.inputs['X'][0]}.moments", TensorType((2, channels), "float64"))]
        made.append(Becomes([conv], _NAME, conv.inputs, {**conv.outputs, "Moments": moments}, conv.attrs))
    return [*made, Becomes([norm], norm.type, {**norm.inputs, "Moments": moments}, norm.outputs, norm.attrs)]


fused_conv2d_moments.give(
    Fuses(
        "fuse_bn_statistics",
        Pattern(
            (Part("norm", NORMS), Part("conv", ("conv2d", "depthwise_conv2d", _NAME), writes=("norm", "X"))),
            _becomes,
            unless=_unless,
        ),
        on=["caches"],
        unless_synchronised=True,
        did="statistics are taken by convolutions",
        nothing="the program has no batch_norm",
    )
)
