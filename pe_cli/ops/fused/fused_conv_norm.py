"""fused_conv2d_norm: a convolution that applies the batch_norm after it and relu to its output while that is in the caches."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cpu.channel_norm import statistics_given
from pe_cli.kernels.cpu.channel_norm_act import ADD_RELU, PLAIN, RELU, finish_run
from pe_cli.kernels.cpu.conv_geometry import (
    CHANNELS,
    FILTERS,
    GROUPS,
    HEIGHT,
    OUT_HEIGHT,
    OUT_WIDTH,
    PITCH,
    TAPS_X,
    TAPS_Y,
    WIDTH,
)
from pe_cli.kernels.cpu.depthwise import depthwise_forward
from pe_cli.kernels.cpu.gemm import NARROW, gemm
from pe_cli.kernels.cpu.transpose import oihw_to_hwio
from pe_cli.kernels.language import SIZE, Addr, Int, Ptr, PtrI64, helper, kernel
from pe_cli.ops.define.axes import same_sizes
from pe_cli.ops.define.fusion import Becomes, Fuses, Match, Op, Part, Pattern
from pe_cli.ops.define.lowering import Lowering, Offset
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Divisible, Narrow
from pe_cli.ops.fused.fused_conv_moments import BLOCK, NHWC, NORMS, READ, convolve_direct, convolve_winograd
from pe_cli.ops.fused.norm_conv_kernels import norm_table, part_of, seen_rows
from pe_cli.ops.nn.batch_norm import ATTRS as NORM_ATTRS
from pe_cli.ops.nn.batch_norm import WIDEST
from pe_cli.ops.nn.conv import ATTRS, conv2d, flops
from pe_cli.ops.nn.conv_kernels import filters_in_order
from pe_cli.ops.nn.conv_lowering import Images

# --- kernels ----------------------------------------------------------------------------------------------------------


@helper
def _finish(kind, z, table, wide, y, pixels, g):
    """Do `finish_run` for pixels, one by one where y has other channels too."""
    # Where channels of other groups lie between, each pixel's own are finished by themselves.
    if g[PITCH] == g[FILTERS]:
        finish_run(kind, z, table, wide, y, pixels * g[FILTERS])
    else:
        for at in range(0, SIZE * pixels * g[PITCH], SIZE * g[PITCH]):
            finish_run(kind, z + at, table, wide, y + at, g[FILTERS])


@helper
def _images(convolve, x, w, y, scratch, z, table, wide, kind, g, n, block):
    """Do `convolve(x, w, y, scratch, first, last, g)` a block of images at a time, and `finish_run` after each."""
    pixels = g[OUT_HEIGHT] * g[OUT_WIDTH]
    for first in range(0, n, block):
        last = min(first + block, n)
        convolve(x, w, y, scratch, first, last, g)
        at = SIZE * first * pixels * g[PITCH]
        _finish(kind, z + at, table, wide, y + at, (last - first) * pixels, g)


@kernel
def forward_norm(
    x: Addr, w: Addr, y: Addr, filters: Addr, z: Addr, table: Ptr, wide: Int, kind: Int, g: PtrI64, n: Int, block: Int
):
    """Do `forward` a block of images at a time, each normalised by a table of `fill_table`; kind: see `finish_run`."""
    per = g[CHANNELS] // g[GROUPS]
    oihw_to_hwio(w, filters, g[FILTERS], per, g[TAPS_Y], g[TAPS_X])
    _images(convolve_direct, x, filters, y, filters + SIZE * g[FILTERS] * per * g[TAPS_Y] * g[TAPS_X], z, table, wide, kind, g, n, block)


@kernel
def forward_winograd_norm(
    x: Addr, w: Addr, y: Addr, filters: Addr, z: Addr, table: Ptr, wide: Int, kind: Int, g: PtrI64, n: Int, block: Int
):
    """Do `forward_winograd` likewise."""
    u, scratch = filters_in_order(w, filters, g)
    _images(convolve_winograd, x, u, y, scratch, z, table, wide, kind, g, n, block)


@kernel
def forward_depthwise_norm(
    x: Addr, w: Addr, y: Addr, filters: Addr, z: Addr, table: Ptr, wide: Int, kind: Int, g: PtrI64, n: Int, block: Int
):
    """Do `forward_depthwise` likewise; block counts rows of an image's output."""
    oihw_to_hwio(w, filters, g[FILTERS], 1, g[TAPS_Y], g[TAPS_X])
    for image in range(n):
        for first in range(0, g[OUT_HEIGHT], block):
            last = min(first + block, g[OUT_HEIGHT])
            low, high = seen_rows(g, first, last)
            at = SIZE * (image * g[OUT_HEIGHT] + first) * g[OUT_WIDTH] * g[FILTERS]
            depthwise_forward(
                x + SIZE * (image * g[HEIGHT] + low) * g[WIDTH] * g[CHANNELS], filters, y + at, 1,
                part_of(g, low, high, first, last),
            )  # fmt: skip
            finish_run(kind, z + at, table, wide, y + at, (last - first) * g[OUT_WIDTH] * g[FILTERS])


@kernel
def forward_pointwise_norm(
    x: Addr, w: Addr, y: Addr, filters: Addr, z: Addr, table: Ptr, wide: Int, kind: Int, g: PtrI64, n: Int, block: Int
):
    """Do `forward_pointwise` likewise; block counts pixels, and the last of them are not fewer."""
    pixels = n * g[HEIGHT] * g[WIDTH]
    first = 0
    while first < pixels:
        # The last block takes a short rest along: a product of few rows would run at a fraction of the speed.
        last = first + block if first + 2 * block <= pixels else pixels
        at = SIZE * first * g[PITCH]
        gemm(
            0, 1, last - first, g[FILTERS], g[CHANNELS], x + SIZE * first * g[CHANNELS], g[CHANNELS], w,
            g[CHANNELS], 0, y + at, g[PITCH], filters,
        )  # fmt: skip
        _finish(kind, z + at, table, wide, y + at, last - first, g)
        first = last


# --- the op -----------------------------------------------------------------------------------------------------------


def _sample(name: str, images: tuple[int, ...], filters: tuple[int, ...], added: tuple[int, ...] = (), **attrs: object) -> Sample:
    each = dict.fromkeys(("Scale", "Bias", "Mean"), filters[:1])
    inputs = {"Input": images, "Filter": filters, **each, "Variance": lambda rng: rng.uniform(0.5, 2.0, filters[0])}
    if added:
        inputs["Z"] = added
    return Sample(inputs, {**NHWC, **attrs}, name)


@op(
    "fused_conv2d_norm",
    traits=[Divisible(), Narrow(("Input", "Filter"), ("Scale", "Bias", "Mean", "Variance"))],
    inputs="Input Filter Scale Bias Mean Variance Z?",
    outputs="Output",
    attrs={**ATTRS, "epsilon": NORM_ATTRS["epsilon"], "activation": Attr("none", "applied to the result", ("none", "relu"))},
    differentiable="",
    samples=[
        _sample("three by three", (2, 6, 5, 3), (4, 3, 3, 3), paddings=[1, 1]),
        _sample("two groups, relu", (2, 7, 7, 4), (6, 2, 3, 3), groups=2, activation="relu"),
        _sample("depthwise, relu", (3, 5, 5, 3), (6, 1, 3, 3), groups=3, activation="relu"),
        _sample("one by one, a sum", (2, 5, 4, 5), (7, 5, 1, 1), (2, 5, 4, 7), activation="relu"),
        _sample("one by one with holes", (2, 5, 4, 5), (7, 5, 1, 1), strides=[2, 2]),
        _sample("many channels, a sum", (1, 8, 8, 32), (32, 32, 3, 3), (1, 8, 8, 32), paddings=[1, 1], activation="relu"),
        _sample("empty batch", (0, 5, 5, 3), (2, 3, 3, 3)),
    ],
)
def fused_conv2d_norm(
    x: TensorType, w: TensorType, scale: TensorType, bias: TensorType, mean: TensorType, variance: TensorType,
    z: TensorType | None = None, *, epsilon: float, activation: str, **attrs: Any,
) -> TensorType:  # fmt: skip
    """Convolve images, normalise every channel by running statistics, add another image and cut negative numbers off, block by block.

    Output = activation(Scale (conv2d(Input, Filter) - Mean) / sqrt(Variance + epsilon) + Bias + Z). Values are those of the separate ops.

    Args:
        Input: [batch, height, width, channels].
        Filter: as for conv2d, or depthwise_conv2d.
        Scale, Bias, Mean, Variance: [filters] element type of Input; of batch_norm.
        Z: type of Output; only with relu.
        epsilon: as for batch_norm.
        activation: none or relu.

    Returns:
        Output: [batch, out height, out width, filters].

    Raises:
        PeError: as for conv2d, images with the channels first, parameters that are not one number per channel, or Z without relu or of
            another type.

    Source:
        Our own, made by fuse_conv_bn.
    """
    del epsilon
    assert conv2d.infer is not None
    out: TensorType = conv2d.infer(x, w, **attrs)
    if attrs["data_format"] != "NHWC":
        raise PeError("fused_conv2d_norm needs images with the channels last", hint="data_format: NHWC")
    each = x.with_shape(w.shape[0])
    for name, given in (("Scale", scale), ("Bias", bias), ("Mean", mean), ("Variance", variance)):
        if given != each:
            raise PeError(f"fused_conv2d_norm needs {name} of type {each}, one number per channel, got {given}")
    if z is not None and (activation != "relu" or z.dtype != out.dtype or not same_sizes(z.shape, out.shape)):
        raise PeError(f"fused_conv2d_norm takes Z with relu, and of type {out}; got {z} and activation {activation!r}")
    return out


@fused_conv2d_norm.count
def _flops(x: TensorType, w: TensorType, *others: TensorType | None, epsilon: float, activation: str, **attrs: Any) -> int:
    del others, epsilon, activation
    return int(flops(x, w, **attrs))


@fused_conv2d_norm.lower("cpu")
def fused_conv2d_norm_cpu(o: Lowering) -> None:
    """A table of what channels need, then blocks of output that fit the second cache, each finished at once."""
    x, w, y = o.input("Input"), o.input("Filter"), o.output("Output")
    images = Images(o, x, w, y)
    channels = images.out[2]
    wide = channels * max(1, WIDEST // channels)
    mean, inverse = (o.scratch(channels, x.dtype) for _ in range(2))
    table = o.scratch(3 * wide, x.dtype)
    o.call(statistics_given, o.input("Mean"), o.input("Variance"), mean, inverse, channels, o.attrs["epsilon"])
    o.call(norm_table, mean, inverse, o.input("Scale"), o.input("Bias"), table, wide, channels)
    source = images.source(x)
    # Where nothing is added, the output stands in for Z, which is not read then.
    z = o.input("Z") if o.has("Z") else y
    kind = ADD_RELU if o.has("Z") else RELU if o.attrs["activation"] == "relu" else PLAIN
    chosen = images.kernel(forward_norm, forward_depthwise_norm, forward_pointwise_norm, forward_winograd_norm)
    for piece in images.pieces():
        bytes_, (high, columns, _) = x.type.numpy.itemsize, images.out
        unit = bytes_ * channels * (1 if images.pointwise else columns if images.depthwise else high * columns)
        # A block of few pixels would be a product with a narrow side, which gemm does by dot products.
        least = 4 * NARROW if images.pointwise else 1
        # The block has to be large enough that reading the filters again for it costs little.
        block = max(BLOCK // unit, 0 if images.depthwise else w.size * READ // unit, least)
        at = Offset(source, piece.x), Offset(w, piece.w), Offset(y, piece.y), images.filter_scratch(w), Offset(z, piece.y)
        o.call(chosen, *at, Offset(table, piece.channel), wide, kind, piece.geometry, piece.images, block, part=piece.number)


# --- what it takes the place of ---------------------------------------------------------------------------------------


def _unless(m: Match) -> str:
    """Return why a convolution cannot apply a batch_norm; empty where it can."""
    conv, norm = m["conv"], m["norm"]
    if not (norm.attrs["is_test"] or norm.attrs["use_global_stats"]):
        return "batch_norm uses the statistics of the batch"
    if norm.attrs["data_layout"] != "NHWC":
        return "images have their channels first"
    if not m.same_role(conv, norm):
        return "a convolution has another role"
    # Statistics that somebody reads need batch_norm to run.
    if why := _statistics(m, norm):
        return why
    why = m.only_for(norm.inputs["X"][0], [norm])
    return f"the result of the convolution {why}" if why else ""


def _statistics(m: Match, norm: Op) -> str:
    """Return why a batch_norm has to give its statistics, empty where nobody wants any."""
    for slot in ("SavedMean", "SavedVariance"):
        for name in norm.outputs.get(slot, ()):
            if why := m.needed(name, []):
                return f"{slot} {why}"
    kept = all(norm.outputs.get(f"{slot}Out", norm.inputs[slot]) == norm.inputs[slot] for slot in ("Mean", "Variance"))
    return "" if kept else "batch_norm copies its statistics to other variables"


def _becomes(m: Match) -> list[Becomes]:
    """Filters stay as they are: to scale them instead would round differently."""
    conv, norm = m["conv"], m["norm"]
    attrs = {**conv.attrs, "epsilon": norm.attrs["epsilon"], "activation": norm.attrs.get("act_type", "none")}
    inputs = {**conv.inputs, **{slot: norm.inputs[slot] for slot in ("Scale", "Bias", "Mean", "Variance")}}
    if norm.inputs.get("Z"):
        inputs["Z"] = norm.inputs["Z"]
    (image,), (out,) = norm.inputs["X"], norm.outputs["Y"]
    return [Becomes((conv, norm), "fused_conv2d_norm", inputs, {"Output": [out]}, attrs, {image: out})]


fused_conv2d_norm.give(
    Fuses(
        "fuse_conv_bn",
        Pattern((Part("norm", NORMS), Part("conv", ("conv2d", "depthwise_conv2d"), writes=("norm", "X"))), _becomes, unless=_unless),
        on=["caches"],
        unless_synchronised=True,
        did="batch_norms are applied by convolutions",
        nothing="the program has no batch_norm",
    )
)
