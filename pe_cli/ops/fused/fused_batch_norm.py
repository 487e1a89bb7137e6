"""fused_batch_norm_act and fused_bn_add_activation: batch_norm, the sum with another image, and relu, in batch_norm's own passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cpu.channel_norm import gradient_first, gradient_last, gradient_sums_first, sums_of_channels
from pe_cli.kernels.cpu.channel_norm_act import (
    add_relu_sums_last,
    normalise_add_relu_first,
    normalise_add_relu_last,
    normalise_relu_first,
    normalise_relu_last,
    relu_back_first,
    relu_gradient_last,
    relu_sums_last,
)
from pe_cli.ops.define.axes import same_sizes
from pe_cli.ops.define.fusion import Becomes, Fuses, Match, Op, Part, Pattern
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import BatchStatistics, Divisible, InPlace, Layout
from pe_cli.ops.math.activation import relu
from pe_cli.ops.nn.batch_norm import ATTRS as PLAIN_ATTRS
from pe_cli.ops.nn.batch_norm import (
    NARROW,
    batch_norm,
    columns_of,
    fold,
    gradients_of,
    output_or_scratch,
    rows_of,
    sizes_of,
    statistics,
)

ATTRS = {**PLAIN_ATTRS, "act_type": Attr("relu", "activation after it", ("relu",))}


def _sample(name: str, *shape: int, add: bool = False, **attrs: object) -> Sample:
    channels = shape[-1] if attrs.get("data_layout") == "NHWC" else shape[1]
    each = dict.fromkeys(("Scale", "Bias", "Mean"), (channels,))
    inputs = {
        "X": shape,
        **({"Z": shape} if add else {}),
        **each,
        "Variance": lambda rng: rng.uniform(0.5, 2.0, channels),
    }
    return Sample(inputs, attrs, name)


def _samples(add: bool) -> list[Sample]:
    return [
        _sample("channels first", 2, 3, 4, 5, add=add),
        _sample("channels last", 2, 4, 5, 3, add=add, data_layout="NHWC"),
        _sample("a matrix", 7, 3, add=add),
        _sample("more rows than one piece", 300, 3, add=add),
        _sample("an odd number of rows", 5, 7, 9, 3, add=add, data_layout="NHWC"),
        _sample("inference, channels first", 2, 3, 4, 5, add=add, is_test=True),
        _sample("inference, channels last", 2, 4, 5, 3, add=add, data_layout="NHWC", is_test=True),
        _sample("running statistics in training", 5, 3, add=add, use_global_stats=True),
        _sample("one channel", 3, 1, 2, 2, add=add),
        _sample("empty batch", 0, 3, 2, 2, add=add),
    ]


def _away_from_zero(arrays: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Give every channel a bias that keeps all values on one side of relu's kink, half of the channels on each."""
    found = {slot: [np.array(a) for a in given] for slot, given in arrays.items()}
    channels = found["Bias"][0].shape[0]
    found["Bias"] = [np.where(np.arange(channels) % 2 == 0, 20.0, -20.0)]
    found["Scale"] = [np.clip(found["Scale"][0], -1.5, 1.5)]
    return found


_DOC = """{title}

Y = max({formula}, 0), with batch_norm's mean m and variance v of X: the batch's in training, the running ones with is_test or
use_global_stats. The gradient at 0 is 0. Values and gradients are those of the separate ops.

Args:
    X: [batch, channels, ...] or, with NHWC, [batch, ..., channels]; 2 to 5 axes, float32 or float64.{other}
    Scale, Bias, Mean, Variance: [channels] element type of X.
    Moments: as for batch_norm.
    momentum, epsilon, is_test, data_layout, use_global_stats: as for batch_norm.
    act_type: relu.

Returns:
    Y: type of X.
    MeanOut, VarianceOut, SavedMean, SavedVariance: as for batch_norm.

Raises:
    PeError: as for batch_norm{raises}.

Source:
    {source}
"""


# --- batch_norm + relu ------------------------------------------------------------------------------------------------


def _infer_act(
    x: TensorType, scale: TensorType, bias: TensorType, mean: TensorType, variance: TensorType,
    moments: TensorType | None = None, **attrs: Any,
) -> Any:  # fmt: skip
    del attrs["act_type"]
    assert batch_norm.infer is not None
    return batch_norm.infer(x, scale, bias, mean, variance, moments, **attrs)


_infer_act.__doc__ = _DOC.format(
    title="Normalise every channel and cut negative numbers off.",
    formula="Scale (X - m) / sqrt(v + epsilon) + Bias",
    other="",
    raises="",
    source="fluid's operator fused_batch_norm_act, made by fuse_bn_act_ops.",
)
fused_batch_norm_act = op(
    "fused_batch_norm_act",
    traits=[BatchStatistics(("is_test", "use_global_stats")), Divisible(), Layout("data_layout", ("X", "Y")), NARROW],
    inputs="X Scale Bias Mean Variance Moments?",
    outputs="Y MeanOut VarianceOut SavedMean SavedVariance",
    attrs=ATTRS,
    differentiable="X Scale Bias",
    samples=_samples(add=False),
    kinks=_away_from_zero,
)(_infer_act)


@fused_batch_norm_act.lower("cpu")
def fused_batch_norm_act_cpu(o: Lowering) -> None:
    """Statistics, then values with relu."""
    x, y, scale, bias = o.input("X"), o.output("Y"), o.input("Scale"), o.input("Bias")
    saved, inverse = statistics(o, x)
    n, channels, size = sizes_of(o, x)
    if size == 1:
        # Rows are joined until they are wide, so that few channels fill vectors, too.
        _, width = fold(n, channels)
        for part, rows, (from_x, to_y) in rows_of(o, x, width, y):
            # A table for each part: threads fill them side by side.
            table = o.scratch(4 * width, x.dtype)
            o.call(normalise_relu_last, from_x, saved, inverse, scale, bias, to_y, table, rows, width, channels, part=part)
    else:
        o.call(normalise_relu_first, x, saved, inverse, scale, bias, y, n, channels, size)


@fused_batch_norm_act.grad(uses="X Scale Bias SavedMean SavedVariance", traits=[InPlace({"X@GRAD": "Y@GRAD"})]).lower("cpu")
def fused_batch_norm_act_grad_cpu(o: Lowering) -> None:
    """Sums and X' as for batch_norm; where relu cut is computed again from X, which is read anyway."""
    x, scale, bias, g = o.input("X"), o.input("Scale"), o.input("Bias"), o.input("Y@GRAD")
    saved, inverse = o.input("SavedMean"), o.input("SavedVariance")
    n, channels, size = sizes_of(o, x)
    each = (saved, inverse, scale, bias)
    dscale, dbias, batch, needed = gradients_of(o)
    if size > 1:
        # What relu let through may lie in X@GRAD itself, as batch_norm's gradient replaces it element by element.
        cut = o.output_or_scratch("X@GRAD", x.size, x.dtype)
        # What relu lets through is written once; batch_norm's own passes over channels then read it.
        o.call(relu_back_first, x, g, *each, cut, n, channels, size)
        _back_first(o, x, cut, (n, channels, size), (dscale, dbias, batch, needed))
        return
    rows, width = fold(n, channels)
    if needed:
        scratch = o.scratch(2 * width, "float64"), o.scratch(3 * width, x.dtype), o.scratch(2 * width, x.dtype)
        for part, low, high in columns_of(o, x, width):
            o.call(relu_sums_last, x, g, *each, *scratch, rows, width, low, high, channels, part=part)
        o.call(sums_of_channels, scratch[0], inverse, dscale, dbias, width, channels)
    # The gradient of X needs the sums of all rows, hence a second pass over X.
    if o.has("X@GRAD"):
        for part, some, (from_x, from_g, to_dx) in rows_of(o, x, width, g, o.output("X@GRAD")):
            own = (to_dx, o.scratch(6 * width, x.dtype), some, width, channels, n * batch)
            o.call(relu_gradient_last, from_x, from_g, *each, dscale, dbias, *own, part=part)


def _back_first(o: Lowering, x: Buffer, g: Buffer, sizes: tuple[int, int, int], sums: tuple[Buffer, Buffer, int, bool]) -> None:
    """Append batch_norm's own gradient with the channels first; g is what relu let through, sums: see `gradients_of`."""
    scale, saved, inverse = o.input("Scale"), o.input("SavedMean"), o.input("SavedVariance")
    dscale, dbias, batch, needed = sums
    if needed:
        o.call(gradient_sums_first, x, g, saved, inverse, dscale, dbias, *sizes)
    if o.has("X@GRAD"):
        o.call(gradient_first, x, g, saved, inverse, scale, dscale, dbias, o.output("X@GRAD"), *sizes, batch)


# --- batch_norm + sum + relu ------------------------------------------------------------------------------------------


def _infer_add(
    x: TensorType,
    z: TensorType,
    scale: TensorType,
    bias: TensorType,
    mean: TensorType,
    variance: TensorType,
    moments: TensorType | None = None,
    **attrs: Any,
) -> Any:
    if z.dtype != x.dtype or not same_sizes(z.shape, x.shape):
        raise PeError(f"fused_bn_add_activation needs X and Z of one type, X is {x} and Z is {z}")
    return _infer_act(x, scale, bias, mean, variance, moments, **attrs)


_infer_add.__doc__ = _DOC.format(
    title="Normalise every channel, add another tensor and cut negative numbers off.",
    formula="Scale (X - m) / sqrt(v + epsilon) + Bias + Z",
    other="\n    Z: type of X.",
    raises=", or Z is not of X's type",
    source="fluid's operator fused_bn_add_activation, made by fuse_bn_add_act_ops.",
)
fused_bn_add_activation = op(
    "fused_bn_add_activation",
    traits=[
        BatchStatistics(("is_test", "use_global_stats")), Divisible(), InPlace({"Y": "Z"}), Layout("data_layout", ("X", "Z", "Y")), NARROW,
    ],
    inputs="X Z Scale Bias Mean Variance Moments?",
    outputs="Y MeanOut VarianceOut SavedMean SavedVariance",
    attrs=ATTRS,
    differentiable="X Z Scale Bias",
    samples=_samples(add=True),
    kinks=_away_from_zero,
)(_infer_add)


@fused_bn_add_activation.lower("cpu")
def fused_bn_add_activation_cpu(o: Lowering) -> None:
    """Statistics, then values with the sum and relu."""
    x, z, y, scale, bias = o.input("X"), o.input("Z"), o.output("Y"), o.input("Scale"), o.input("Bias")
    saved, inverse = statistics(o, x)
    n, channels, size = sizes_of(o, x)
    if size == 1:
        _, width = fold(n, channels)
        for part, rows, (from_x, from_z, to_y) in rows_of(o, x, width, z, y):
            own = (to_y, o.scratch(4 * width, x.dtype), rows, width, channels)
            o.call(normalise_add_relu_last, from_x, from_z, saved, inverse, scale, bias, *own, part=part)
    else:
        row = o.scratch(size, x.dtype)
        o.call(normalise_add_relu_first, x, z, saved, inverse, scale, bias, y, row, n, channels, size)


@fused_bn_add_activation.grad(uses="X Y Scale SavedMean SavedVariance", traits=[InPlace({"Z@GRAD": "Y@GRAD"})]).lower("cpu")
def fused_bn_add_activation_grad_cpu(o: Lowering) -> None:
    """Z' is what relu lets through; the sums for Scale and Bias come in the same pass, X' in a second one."""
    x, y, scale, g = o.input("X"), o.input("Y"), o.input("Scale"), o.input("Y@GRAD")
    saved, inverse = o.input("SavedMean"), o.input("SavedVariance")
    n, channels, size = sizes_of(o, x)
    # Wanted even where Z needs no gradient: the sums and X@GRAD are made of it.
    cut = output_or_scratch(o, "Z@GRAD", x)
    dscale, dbias, batch, needed = gradients_of(o)
    assert relu.back_kernel is not None
    # Y is above 0 exactly where relu let its input through, so the sum before relu need not be kept.
    if size > 1 or not needed:
        o.call(relu.back_kernel, g, y, cut, x.size)
    if size > 1:
        _back_first(o, x, cut, (n, channels, size), (dscale, dbias, batch, needed))
        return
    rows, width = fold(n, channels)
    if needed:
        doubles, table = o.scratch(2 * width, "float64"), o.scratch(3 * width, x.dtype)
        for part, low, high in columns_of(o, x, width):
            o.call(add_relu_sums_last, x, y, g, saved, cut, doubles, table, rows, width, low, high, channels, part=part)
        o.call(sums_of_channels, doubles, inverse, dscale, dbias, width, channels)
    if o.has("X@GRAD"):
        for part, some, (from_x, from_cut, to_dx) in rows_of(o, x, width, cut, o.output("X@GRAD")):
            own = (to_dx, o.scratch(5 * width, x.dtype), some, width, channels, n * batch)
            o.call(gradient_last, from_x, from_cut, saved, inverse, scale, dscale, dbias, *own, part=part)


# --- what they take the place of --------------------------------------------------------------------------------------

_READ = ("X", "Scale", "SavedMean", "SavedVariance")


def _is_gradient_of_norm(m: Match, op: Op) -> bool:
    return op.inputs["SavedMean"] == m["norm"].outputs.get("SavedMean")


def _becomes_norm_act(m: Match) -> list[Becomes]:
    norm, act = m["norm"], m["act"]
    return [Becomes((norm, act), "fused_batch_norm_act", norm.inputs, {**norm.outputs, "Y": act.outputs["Out"]}, norm.attrs)]


def _becomes_norm_act_grad(m: Match) -> list[Becomes]:
    """The gradient finds out where relu cut from what batch_norm read, so that nothing reads relu's result for it."""
    first, last = m["act_grad"], m["norm_grad"]
    inputs = {s: last.inputs[s] for s in _READ} | {"Bias": m["norm"].inputs["Bias"], "Y@GRAD": first.inputs["Out@GRAD"]}
    return [Becomes((first, last), "fused_batch_norm_act_grad", inputs, last.outputs, last.attrs)]


def _bias_changes(m: Match) -> str:
    kept = m.unchanged(m["norm"].inputs["Bias"][0], m["norm"], m["act_grad"])
    return "" if kept else "the bias of batch_norm is overwritten before the gradient"


fused_batch_norm_act.give(
    Fuses(
        "fuse_bn_act_ops",
        Pattern(
            (Part("act", ("relu",)), Part("norm", ("batch_norm",), writes=("act", "X"))),
            _becomes_norm_act,
            vanish=[("norm", "Y")],
        ),
        Pattern(
            (
                Part("act_grad", ("relu_grad",), reads=("act", "Out"), into="Out"),
                Part("norm_grad", ("batch_norm_grad",), reads=("act_grad", "X@GRAD"), fits=_is_gradient_of_norm),
            ),
            _becomes_norm_act_grad,
            vanish=[("act_grad", "X@GRAD")],
            unless=_bias_changes,
        ),
        unless_synchronised=True,
        nothing="the program has no relu",
    )
)


def _of_one_shape(m: Match, _: Op) -> bool:
    """Whether two different variables of one shape are added, of which batch_norm may make either."""
    (x,), (y,) = m["add"].inputs["X"], m["add"].inputs["Y"]
    return x != y and m.type(x).shape == m.type(y).shape


def _slot(m: Match, *, other: bool = False) -> str:
    """Return the input slot of the sum that batch_norm makes, or the other one."""
    return "X" if (m["add"].inputs["X"] == m["norm"].outputs["Y"]) is not other else "Y"


def _becomes_norm_add_act(m: Match) -> list[Becomes]:
    norm, add, act = m["norm"], m["add"], m["act"]
    inputs = {**norm.inputs, "Z": add.inputs[_slot(m, other=True)]}
    return [Becomes((norm, add, act), "fused_bn_add_activation", inputs, {**norm.outputs, "Y": act.outputs["Out"]}, norm.attrs)]


def _becomes_norm_add_act_grad(m: Match) -> list[Becomes]:
    first, add, last = m["act_grad"], m["add_grad"], m["norm_grad"]
    inputs = {s: last.inputs[s] for s in _READ} | {"Y": first.inputs["Out"], "Y@GRAD": first.inputs["Out@GRAD"]}
    # The other operand may need no gradient, as a fed image does not.
    other = add.outputs.get(f"{_slot(m, other=True)}@GRAD")
    outputs = {**last.outputs, **({"Z@GRAD": other} if other else {})}
    return [Becomes((first, add, last), "fused_bn_add_activation_grad", inputs, outputs, last.attrs)]


def _gradient_of_norm(m: Match) -> str:
    return (m["add_grad"].outputs.get(f"{_slot(m)}@GRAD") or [""])[0]


def _sum_stays(m: Match) -> str:
    why = m.only_for(_gradient_of_norm(m), [m["norm_grad"]])
    return f"the gradient of the sum {why}" if why else ""


fused_bn_add_activation.give(
    Fuses(
        "fuse_bn_add_act_ops",
        Pattern(
            (
                Part("act", ("relu",)),
                Part("add", ("elementwise_add",), writes=("act", "X")),
                Part(
                    "norm",
                    ("batch_norm",),
                    writes=("add", "X Y"),
                    fits=_of_one_shape,
                    lacking="no operand of elementwise_add is made by batch_norm in the other's shape",
                ),
            ),
            _becomes_norm_add_act,
            vanish=[("norm", "Y"), ("add", "Out")],
        ),
        Pattern(
            (
                Part("act_grad", ("relu_grad",), reads=("act", "Out"), into="Out"),
                Part("add_grad", ("elementwise_add_grad",), reads=("act_grad", "X@GRAD")),
                Part(
                    "norm_grad",
                    ("batch_norm_grad",),
                    reads=_gradient_of_norm,
                    fits=_is_gradient_of_norm,
                    lacking="the gradient of the sum is not read by batch_norm_grad alone",
                ),
            ),
            _becomes_norm_add_act_grad,
            vanish=[("act_grad", "X@GRAD")],
            unless=_sum_stays,
        ),
        unless_synchronised=True,
        nothing="the program has no relu",
    )
)
