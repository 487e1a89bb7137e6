"""Convolutions that read what comes before batch_norm and relu, and apply these block by block: the normalised images are never kept.

Three ops take the place of fused_batch_norm_act and the convolution after it: `batch_norm_statistics`, `fused_norm_conv2d`, and
`fused_norm_conv2d_back` for the convolution's gradients. 1x1 convolutions take some pixels at a time, depthwise ones some rows of an image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cpu.channel_norm import statistics_found
from pe_cli.kernels.cpu.gemm import DEPTH, DEPTH_TRANSPOSED, NARROW
from pe_cli.ops.define.axes import same_sizes
from pe_cli.ops.define.fusion import Becomes, Fuses, Match, Op, Part, Pattern
from pe_cli.ops.define.lowering import Buffer, Lowering, Offset
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.traits import Divisible, Narrow
from pe_cli.ops.fused.fused_conv_moments import BLOCK, READ
from pe_cli.ops.fused.norm_conv_kernels import (
    norm_depthwise,
    norm_depthwise_weight,
    norm_pointwise,
    norm_pointwise_weight,
    norm_table,
)
from pe_cli.ops.nn.batch_norm import ATTRS as NORM_ATTRS
from pe_cli.ops.nn.batch_norm import WIDEST, batch_norm, fold, sums, take_shared_moments
from pe_cli.ops.nn.conv import ATTRS, conv2d, flops, image_gradient
from pe_cli.ops.nn.conv_lowering import Images

# --- the ops ----------------------------------------------------------------------------------------------------------


def takes(channels: int, filters: tuple[int, ...], attrs: Mapping[str, Any]) -> bool:
    """Return whether there are kernels for a convolution: 1x1 ones that see every pixel, and depthwise ones.

    Args:
        channels: of the images.
        filters: sizes of the filters.
        attrs: of the convolution.
    """
    # The kernels normalise pixels with all their channels side by side.
    if attrs["data_format"] != "NHWC":
        return False
    if attrs["groups"] > 1:
        return bool(attrs["groups"] == channels)
    return filters[2:] == (1, 1) and attrs["strides"] == [1, 1] and attrs["paddings"] == [0, 0]


_EACH = "SavedMean SavedVariance Scale Bias"
_LAST = {"data_format": "NHWC"}


def _samples(back: bool) -> list[Sample]:
    found = []
    for name, image, filters, out, attrs in (
        ("one by one", (2, 5, 4, 5), (7, 5, 1, 1), (5, 4), {}),
        ("depthwise", (3, 5, 5, 3), (3, 1, 3, 3), (5, 5), {"groups": 3, "paddings": [1, 1]}),
        ("depthwise, stride two", (2, 6, 7, 4), (8, 1, 3, 3), (2, 3), {"groups": 4, "strides": [2, 2]}),
        ("depthwise, dilated", (1, 7, 6, 2), (2, 1, 2, 3), (9, 6), {"groups": 2, "dilations": [2, 1], "paddings": [2, 1]}),
        ("empty batch", (0, 5, 5, 3), (2, 3, 1, 1), (5, 5), {}),
    ):
        inputs = {"Input": image, **dict.fromkeys(_EACH.split(), (image[-1],)), "Filter": filters}
        upstream = {"Output@GRAD": (image[0], *out, filters[0])} if back else {}
        found.append(Sample({**inputs, **upstream}, {**_LAST, **attrs}, name))
    return found


def _infer(what: str, x: TensorType, each: tuple[TensorType, ...], w: TensorType, attrs: Mapping[str, Any]) -> TensorType:
    """Return the type of the convolution's result."""
    assert conv2d.infer is not None
    out: TensorType = conv2d.infer(x, w, **attrs)
    if not takes(x.shape[-1], w.shape, attrs):
        raise PeError(
            f"{what} takes 1x1 convolutions of whole images, and depthwise ones, with the channels last;"
            f" got images {x}, filters {w} and {dict(attrs)}"
        )
    for name, given in zip(_EACH.split(), each, strict=True):
        if given != x.with_shape(x.shape[-1]):
            raise PeError(f"{what} needs {name} of type {x.with_shape(x.shape[-1])}, one number per channel, got {given}")
    return out


@op(
    "fused_norm_conv2d",
    traits=[Divisible(), Narrow(("Filter",), (*_EACH.split(), "Moments"))],
    inputs=f"Input {_EACH} Filter",
    outputs="Output Moments",
    attrs=ATTRS,
    differentiable="",
    samples=_samples(back=False),
)
def fused_norm_conv2d(
    x: TensorType, mean: TensorType, inverse: TensorType, scale: TensorType, bias: TensorType, w: TensorType, **attrs: Any
) -> tuple[TensorType, TensorType]:
    """Normalise images, cut negative numbers off and convolve the rest, block by block; and find the moments of the result.

    Output = conv2d(max((Input - SavedMean) SavedVariance Scale + Bias, 0), Filter); outside the images there are zeros. Values are
    those of the separate ops.

    Args:
        Input: [batch, height, width, channels], before batch_norm.
        SavedMean, SavedVariance: [channels] mean and 1 / deviation that batch_norm uses; the name is fluid's.
        Scale, Bias: [channels] of batch_norm.
        Filter: as for conv2d.

    Returns:
        Output, Moments: as for fused_conv2d_moments.

    Raises:
        PeError: as for conv2d, and other convolutions than 1x1 ones without stride and depthwise ones, or images with the channels first.

    Source:
        Our own, made by fuse_bn_conv.
    """
    return _infer("fused_norm_conv2d", x, (mean, inverse, scale, bias), w, attrs), TensorType((2, w.shape[0]), "float64")


@fused_norm_conv2d.count
def _flops(x: TensorType, *others: TensorType, **attrs: Any) -> int:
    return int(flops(x, others[4], **attrs))


@op(
    "fused_norm_conv2d_back",
    traits=[Divisible(), Narrow(("Filter", "Output@GRAD"), tuple(_EACH.split()))],
    inputs=f"Input {_EACH} Filter Output@GRAD",
    outputs="Input@GRAD? Filter@GRAD?",
    attrs=ATTRS,
    differentiable="",
    samples=_samples(back=True),
)
def fused_norm_conv2d_back(
    x: TensorType, mean: TensorType, inverse: TensorType, scale: TensorType, bias: TensorType, w: TensorType, dy: TensorType,
    **attrs: Any,
) -> tuple[TensorType, TensorType]:
    """Differentiate the convolution of fused_norm_conv2d, by its filters and by the images after batch_norm and relu.

    These are normalised again, block by block. batch_norm's own gradient takes Input@GRAD on.

    Args:
        Input, SavedMean, SavedVariance, Scale, Bias, Filter: as for fused_norm_conv2d.
        Output@GRAD: gradient of its output.

    Returns:
        Input@GRAD: type of Input; the gradient of max((Input - SavedMean) SavedVariance Scale + Bias, 0).
        Filter@GRAD: type of Filter.

    Raises:
        PeError: as for fused_norm_conv2d.

    Source:
        Our own, made by fuse_bn_conv.
    """
    out = _infer("fused_norm_conv2d_back", x, (mean, inverse, scale, bias), w, attrs)
    if dy.dtype != out.dtype or not same_sizes(dy.shape, out.shape):
        raise PeError(f"fused_norm_conv2d_back needs Output@GRAD of type {out}, got {dy}")
    return x, w


@fused_norm_conv2d_back.count
def _flops_back(x: TensorType, *others: TensorType, **attrs: Any) -> int:
    return 2 * int(flops(x, others[4], **attrs))


@op(
    "batch_norm_statistics",
    inputs="X Moments Mean Variance",
    outputs="MeanOut VarianceOut SavedMean SavedVariance",
    attrs={name: NORM_ATTRS[name] for name in ("momentum", "epsilon")},
    differentiable="",
    samples=[
        Sample(
            {"X": (2, 4, 5, 3), "Moments": lambda rng: rng.uniform(1.0, 2.0, (2, 3)), "Mean": (3,), "Variance": (3,)},
            name="three channels", keep=("Moments",),
        ),
    ],
)
def batch_norm_statistics(
    x: TensorType, moments: TensorType, mean: TensorType, variance: TensorType, **attrs: float
) -> tuple[TensorType, ...]:
    """Find what batch_norm uses and keeps, and leave normalising to whoever reads the images.

    Args:
        X: [batch, ..., channels]; only its size counts.
        Moments: [2, channels] float64; mean and sum of squared deviations of X.
        Mean, Variance: [channels] running statistics.
        momentum, epsilon: as for batch_norm.

    Returns:
        MeanOut, VarianceOut, SavedMean, SavedVariance: as for batch_norm.

    Raises:
        PeError: as for batch_norm.

    Source:
        Our own, made by fuse_bn_conv.
    """
    assert batch_norm.infer is not None
    fixed = {"data_layout": "NHWC", "is_test": False, "use_global_stats": False}
    found: tuple[TensorType, ...] = batch_norm.infer(x, mean, mean, mean, variance, moments, **attrs, **fixed)
    return found[1:]


# --- lowering ---------------------------------------------------------------------------------------------------------


class _Blocks:
    """What the kernels of one op share: the table of the norm, and the images block by block.

    Attributes:
        images: of the convolution.
        table, wide: of `normalise_relu_run`.
    """

    def __init__(self, o: Lowering, x: Buffer, w: Buffer, y: Buffer) -> None:
        self.o, self.x, self.w = o, x, w
        self.images = Images(o, x, w, y)
        channels = x.shape[-1]
        # The table repeats the channels until it is wide, so that few channels fill vectors, too.
        self.wide = channels * max(1, WIDEST // channels)
        self.table = o.scratch(3 * self.wide, x.dtype)
        o.call(norm_table, *(o.input(slot) for slot in _EACH.split()), self.table, self.wide, channels)

    def pixels(self, block: int) -> Buffer:
        """Return scratch for what blocks of so many pixels see, the last of them of less than two."""
        # A rest joins the block before it: the last block has up to the pixels of two.
        return self.o.scratch(min(2 * block, self.x.size // self.x.shape[-1]) * self.x.shape[-1], self.x.dtype)

    def rows(self) -> tuple[int, Buffer]:
        """Return how many rows of output a block of a depthwise convolution has, and scratch for the rows that they see."""
        (high, wide, channels), out = self.images.image, self.images.out[0]
        a = self.o.attrs
        block = min(out, max(1, BLOCK // (self.w.type.numpy.itemsize * a["strides"][0] * wide * channels)))
        # Output rows see all image rows from the first tap to the last; dilated taps reach further.
        seen = min(high, (block - 1) * a["strides"][0] + (self.w.shape[2] - 1) * a["dilations"][0] + 1)
        return block, self.o.scratch(seen * wide * channels, self.x.dtype)


@batch_norm_statistics.lower("cpu")
def batch_norm_statistics_cpu(o: Lowering) -> None:
    """From the moments, which the images' maker has found."""
    x, mean, variance = o.input("X"), o.input("Mean"), o.input("Variance")
    out = [o.output(slot) for slot in ("MeanOut", "VarianceOut", "SavedMean", "SavedVariance")]
    channels = x.shape[-1]
    rest = (x.size // max(1, channels), channels, o.attrs["momentum"], o.attrs["epsilon"])
    o.call(statistics_found, o.input("Moments"), mean, variance, *out, *rest, dtype=x.dtype)


@fused_norm_conv2d.lower("cpu")
def fused_norm_conv2d_cpu(o: Lowering) -> None:
    """Blocks that fit the second cache: normalised, convolved, their statistics taken; these come last where threads share the images."""
    x, w, y, moments = o.input("Input"), o.input("Filter"), o.output("Output"), o.output("Moments")
    blocks = _Blocks(o, x, w, y)
    images = blocks.images
    rows, width = fold(images.n * math.prod(images.out[:2]), images.out[2])
    scratch, pieces = sums(o, width, x), images.pieces()
    bytes_ = w.type.numpy.itemsize * max(images.image[2], images.out[2])
    alone = len(pieces) == 1
    for piece in pieces:
        if images.depthwise:
            block, seen = blocks.rows()
        else:
            block = max(BLOCK // bytes_, w.size * READ // bytes_, 4 * NARROW)
            seen = blocks.pixels(block)
        # Of several parts none takes moments (0 rows): what a kernel is given for them is scratch that nobody reads.
        own = scratch if alone else sums(o, width, x)
        into = moments if alone else o.scratch(2 * images.out[2], "float64")
        o.call(
            norm_depthwise if images.depthwise else norm_pointwise, Offset(x, piece.x), Offset(w, piece.w), Offset(y, piece.y),
            images.filter_scratch(w), *own, into, piece.geometry, piece.images, block, rows if alone else 0, width,
            blocks.table, blocks.wide, seen, part=piece.number,
        )  # fmt: skip
    # Sums of parts would depend on how many threads there are, so moments are taken once the whole result is there.
    if not alone:
        take_shared_moments(o, y, scratch, moments, images.out[2])


@fused_norm_conv2d_back.lower("cpu")
def fused_norm_conv2d_back_cpu(o: Lowering) -> None:
    """The gradient of the filters from images that are normalised again, then that of the images, which needs none."""
    x, w, dy = o.input("Input"), o.input("Filter"), o.input("Output@GRAD")
    blocks = _Blocks(o, x, w, dy)
    images = blocks.images
    if o.has("Filter@GRAD"):
        chosen = norm_depthwise_weight if images.depthwise else norm_pointwise_weight
        # Depthwise parts share it, as each writes filters of its own there; gemm packs into it, so that each part needs one.
        scratch = None if images.pointwise else images.filter_scratch(w)
        for number, rows in enumerate(images.rows()):
            # `pixels` doubles: DEPTH + DEPTH_TRANSPOSED is the most that `norm_pointwise_weight` takes at a time.
            block, seen = blocks.rows() if images.depthwise else (0, blocks.pixels((DEPTH + DEPTH_TRANSPOSED) // 2))
            own = scratch or images.filter_scratch(w)
            rest = (block, blocks.table, blocks.wide, seen)
            o.call(chosen, x, dy, o.output("Filter@GRAD"), own, images.geometry, images.n, *rows, *rest, part=number)
    if o.has("Input@GRAD"):
        image_gradient(o, images, dy, w)


# --- what they take the place of --------------------------------------------------------------------------------------

_GIVEN = ("MeanOut", "VarianceOut", "SavedMean", "SavedVariance")


def _each(norm: Op) -> dict[str, list[str]]:
    return {slot: (norm.outputs if slot.startswith("Saved") else norm.inputs)[slot] for slot in _EACH.split()}


def _unless(m: Match) -> str:
    """Return why a batch_norm with relu stays, empty where the only convolution after it takes it over."""
    norm = m["norm"]
    (name,) = norm.outputs["Y"]
    if "Moments" not in norm.inputs:
        return "no convolution takes the statistics before batch_norm"
    if not all(norm.outputs.get(slot) for slot in _GIVEN):
        return "batch_norm does not give all its statistics"
    readers = [op for op in m.readers(name) if "Filter" in op.inputs]
    if why := _unfit(m, name, readers):
        return f"the result {why}"
    used = (norm.inputs["X"], *_each(norm).values())
    overwritten = not all(m.unchanged(n, norm, op) for (n,) in used for op in readers)
    return "its input or a parameter is overwritten before its last use" if overwritten else ""


def _unfit(m: Match, name: str, readers: Sequence[Op]) -> str:
    """Return why a convolution or its gradient cannot apply batch_norm to an image, empty where it can."""
    channels = m.type(name).shape[-1]
    for reader in readers:
        (filters,) = reader.inputs["Filter"]
        # A filter has to be in memory as a whole.
        if name == filters:
            return "is a filter"
        if not takes(channels, m.type(filters).shape, reader.attrs):
            return "goes to a convolution that is neither 1x1 nor depthwise"
    return ""


def _reads_norm(op: Op, norm: Op, type: str) -> Becomes:
    """Let an op read what batch_norm reads instead of what it gives."""
    inputs = {"Input": norm.inputs["X"], **_each(norm)}
    inputs |= {slot: names for slot, names in op.inputs.items() if slot not in inputs}
    return Becomes([op], type, inputs, op.outputs, op.attrs)


def _becomes(m: Match) -> list[Becomes]:
    norm = m["norm"]
    inputs = {slot: norm.inputs[slot] for slot in ("X", "Moments", "Mean", "Variance")}
    outputs = {slot: names for slot, names in norm.outputs.items() if slot != "Y"}
    attrs = {a: norm.attrs[a] for a in ("momentum", "epsilon")}
    gone = {norm.outputs["Y"][0]: norm.inputs["X"][0]}
    left = Becomes([norm], "batch_norm_statistics", inputs, outputs, attrs, gone)
    return [_reads_norm(m["conv"], norm, "fused_norm_conv2d"), left]


fused_norm_conv2d.give(
    Fuses(
        "fuse_bn_conv",
        Pattern(
            (
                Part("norm", ("fused_batch_norm_act",)),
                Part(
                    "conv",
                    ("fused_conv2d_moments",),
                    reads=("norm", "Y"),
                    others=True,
                    lacking="the result is not read by one convolution that takes statistics",
                ),
            ),
            _becomes,
            vanish=[("norm", "Y")],
            unless=_unless,
        ),
        Pattern(
            [Part("conv_grad", ("conv2d_grad", "depthwise_conv2d_grad"), reads=("norm", "Y"))],
            lambda m: [_reads_norm(m["conv_grad"], m["norm"], "fused_norm_conv2d_back")],
        ),
        together=True,
        on=["caches"],
        unless_synchronised=True,
        nothing="the program has no batch_norm with relu",
    )
)
