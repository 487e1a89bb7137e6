"""Losses that 2.1 to 2.6 have, composed of layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.nn.functional.reduction import check_reduction, reduced

HUGE = 3.4e38


def _filled(like: Any, value: float) -> Any:
    made = LayerHelper("fill_like").one("fill_like", {"X": like}, {"value": float(value)})
    made.stop_gradient = True
    return made


def _floored(x: Any) -> Any:
    """Return max(x, 0), whose slope at 0 is 1, as that of 2.x's `clip` is."""
    return call("clip", x, 0.0, HUGE)


def _is(label: Any, value: float) -> Any:
    return call("equal", label, _filled(label, value))


def _add(x: Any, y: Any) -> Any:
    return call("elementwise_add", x, y)


def _sub(x: Any, y: Any) -> Any:
    return call("elementwise_sub", x, y)


def _mul(x: Any, y: Any) -> Any:
    return call("elementwise_mul", x, y)


def _alike(loss: str, *given: Any) -> None:
    """Raise unless tensors have one shape.

    Raises:
        FluidValueError: they have not.
    """
    if any(list(v.shape) != list(given[0].shape) for v in given):
        raise FluidValueError(f"{loss}: shapes are {', '.join(str(list(v.shape)) for v in given)}", hint="reshape them to one shape")


def cosine_embedding_loss(
    input1: Any, input2: Any, label: Any, margin: float = 0, reduction: str = "mean", name: str | None = None
) -> Any:
    """Measure vectors that are alike by 1 - cos, label 1, and those that are not by max(0, cos - margin), label -1.

    Args:
        input1: [width] or [batch, width].
        input2: shape of input1.
        label: [1] or [batch]: 1 or -1; another one gives 0.
        margin: cosine up to which vectors count as unlike.
        reduction: mean, sum or none.
        name: without effect.

    Raises:
        FluidValueError: shapes that do not fit, or an unknown reduction.
    """
    check_reduction("cosine_embedding_loss", reduction)
    _alike("cosine_embedding_loss", input1, input2)
    if len(label.shape) != 1 or len(input1.shape) > 2:
        raise FluidValueError(f"cosine_embedding_loss: inputs are {input1}, label {label}", hint="[batch, width] and [batch]")
    squares = [call("scale", call("reduce_sum", call("square", v), -1), 1.0, 1e-11) for v in (input1, input2)]
    lengths = call("sqrt", _mul(*squares))
    cosine = call("elementwise_div", call("reduce_sum", _mul(input1, input2), -1), lengths)
    near, far = call("scale", cosine, -1.0, 1.0), _floored(call("scale", cosine, 1.0, -float(margin)))
    # A product with 0 or 1, as labels of one number hold for all rows; cosines are finite.
    parts = [_mul(v, call("cast", _is(label, sign), input1.dtype)) for v, sign in ((near, 1), (far, -1))]
    return reduced("cosine_embedding_loss", _add(*parts), reduction)


def hinge_embedding_loss(input: Any, label: Any, margin: float = 1.0, reduction: str = "mean", name: str | None = None) -> Any:
    """Measure distances: of pairs that are alike themselves, label 1, of others max(0, margin - distance), label -1."""
    check_reduction("hinge_embedding_loss", reduction)
    far = call("relu", call("scale", input, -1.0, float(margin)))
    nothing = _filled(input, 0.0)
    parts = [call("select", _is(label, sign), v, nothing) for v, sign in ((input, 1.0), (far, -1.0))]
    return reduced("hinge_embedding_loss", _add(*parts), reduction)


def pairwise_distance(
    x: Any, y: Any, p: float = 2.0, epsilon: float = 1e-6, keepdim: bool = False, name: str | None = None
) -> Any:
    """Return the p-norm of the difference of every pair of rows, with epsilon added to the differences."""
    # Epsilon is added to the difference itself, before the absolute value, as in the original and in PyTorch.
    gap = call("scale", _sub(x, y), 1.0, epsilon)
    if p == 0:
        return call("reduce_sum", call("cast", call("not_equal", gap, _filled(gap, 0.0)), x.dtype), -1, keepdim)
    if math.isinf(p):
        return call("reduce_max" if p > 0 else "reduce_min", call("abs", gap), -1, keepdim)
    if p == 1:
        return call("reduce_sum", call("abs", gap), -1, keepdim)
    powers = call("square", gap) if p == 2 else call("pow", call("abs", gap), float(p))
    total = call("reduce_sum", powers, -1, keepdim)
    return call("sqrt", total) if p == 2 else call("pow", total, 1.0 / p)


def triplet_margin_with_distance_loss(
    input: Any,
    positive: Any,
    negative: Any,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
    name: str | None = None,
) -> Any:
    """Want one distance to be smaller than another by a margin: max(0, d(input, positive) - d(input, negative) + margin).

    Args:
        input: [batch, width].
        positive: shape of input: what is to be near.
        negative: shape of input: what is to be far.
        distance_function: of two tensors; by default the Euclidean one of each pair of rows.
        margin: at least 0.
        swap: take d(positive, negative) for the second distance where that is smaller.
        reduction: mean, sum or none.
        name: without effect.

    Raises:
        FluidValueError: different shapes, a negative margin, or an unknown reduction.
    """
    check_reduction("triplet_margin_with_distance_loss", reduction)
    _alike("triplet_margin_with_distance_loss", input, positive, negative)
    if margin < 0:
        raise FluidValueError(f"triplet_margin_with_distance_loss: margin is {margin}", hint="a number, at least 0")
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(input, positive), distance(input, negative)
    if swap:
        far = call("elementwise_min", far, distance(positive, negative))
    return reduced("triplet_margin_with_distance_loss", _floored(call("scale", _sub(near, far), 1.0, float(margin))), reduction)


def triplet_margin_loss(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    input: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2,
    epsilon: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
    name: str | None = None,
) -> Any:
    """Want one p-norm to be smaller than another by a margin; see `triplet_margin_with_distance_loss` and `pairwise_distance`."""

    def distance(x: Any, y: Any) -> Any:
        return pairwise_distance(x, y, p, epsilon)

    return triplet_margin_with_distance_loss(input, positive, negative, distance, margin, swap, reduction)


def soft_margin_loss(input: Any, label: Any, reduction: str = "mean", name: str | None = None) -> Any:
    """Measure scores of two classes: ln(1 + exp(-label input)), label 1 or -1."""
    check_reduction("soft_margin_loss", reduction)
    _alike("soft_margin_loss", input, label)
    against = call("scale", _mul(call("cast", label, input.dtype), input), -1.0)
    return reduced("soft_margin_loss", call("log", call("scale", call("exp", against), 1.0, 1.0)), reduction)


def multi_label_soft_margin_loss(
    input: Any, label: Any, weight: Any = None, reduction: str = "mean", name: str | None = None
) -> Any:
    """Average over the classes how unlikely yes-or-no labels are under the sigmoid of logits: [batch] before the reduction.

    Args:
        input: [batch, classes] logits.
        label: [batch, classes]: 0 or 1.
        weight: [classes], or None.
        reduction: mean, sum or none.
        name: without effect.

    Raises:
        FluidValueError: different shapes, or an unknown reduction.
    """
    check_reduction("multi_label_soft_margin_loss", reduction)
    _alike("multi_label_soft_margin_loss", input, label)
    yes, no = call("logsigmoid", input), call("logsigmoid", call("scale", input, -1.0))
    elements = call("scale", _add(_mul(label, yes), _mul(call("scale", label, -1.0, 1.0), no)), -1.0)
    elements = elements if weight is None else _mul(elements, weight)
    return reduced("multi_label_soft_margin_loss", call("reduce_mean", elements, -1), reduction)


def multi_margin_loss(
    input: Any,
    label: Any,
    p: int = 1,
    margin: float = 1.0,
    weight: Any = None,
    reduction: str = "mean",
    name: str | None = None,
) -> Any:
    """Want the label's score to be larger than all others by a margin: the mean over classes of max(0, margin - own + other)^p.

    Args:
        input: [batch, classes] scores.
        label: [batch] int32 or int64.
        p: power, at least 1.
        margin: between scores.
        weight: [classes], each counted where it is the label; or None.
        reduction: mean, sum or none.
        name: without effect.

    Raises:
        FluidValueError: an unknown reduction.
    """
    check_reduction("multi_margin_loss", reduction)
    column = call("cast", call("reshape", label, [-1, 1]), "int64")
    gaps = call("scale", _sub(input, call("take_along_axis", input, column, 1)), 1.0, float(margin))
    own = float(margin) ** p / input.shape[1]
    if weight is None:
        elements = call("scale", call("reduce_mean", _power(_floored(gaps), p), 1), 1.0, -own)
    else:
        counts = call("reshape", call("gather", weight, call("reshape", column, [-1])), [-1, 1])
        elements = call("reduce_mean", _power(_floored(_mul(gaps, counts)), p), 1)
        # 2.6 subtracts a column of weights from a row of losses: without a mean there is a loss for every pair of rows.
        elements = _sub(call("reshape", elements, [1, -1]), call("scale", counts, own))
    return reduced("multi_margin_loss", elements, reduction)


def _power(x: Any, p: float) -> Any:
    return x if p == 1 else call("square", x) if p == 2 else call("pow", x, float(p))


def gaussian_nll_loss(
    input: Any,
    label: Any,
    variance: Any,
    full: bool = False,
    epsilon: float = 1e-6,
    reduction: str = "mean",
    name: str | None = None,
) -> Any:
    """Measure how unlikely labels are under normal distributions: (ln variance + (input - label)^2 / variance) / 2, in nats.

    Args:
        input: means, any shape.
        label: shape of input.
        variance: shape of input, or without its last axis, or with 1 there; one below epsilon counts as epsilon.
        full: add ln(2 pi) / 2.
        epsilon: the smallest variance.
        reduction: mean, sum or none.
        name: without effect.

    Raises:
        FluidValueError: shapes that do not fit, or an unknown reduction.
    """
    check_reduction("gaussian_nll_loss", reduction)
    whole, given = list(input.shape), list(variance.shape)
    if given != whole:
        if given == whole[:-1]:
            variance = call("unsqueeze", variance, [len(given)])
        elif given != [*whole[:-1], 1]:
            raise FluidValueError(f"gaussian_nll_loss: input is {input}, variance {variance}", hint="a variance per element, or per row")
    held = call("clip", variance, float(epsilon), HUGE)
    parts = call("elementwise_div", call("square", _sub(input, label)), held)
    elements = call("scale", _add(parts, call("log", held)), 0.5, 0.5 * math.log(2 * math.pi) if full else 0.0)
    return reduced("gaussian_nll_loss", elements, reduction)


def poisson_nll_loss(
    input: Any,
    label: Any,
    log_input: bool = True,
    full: bool = False,
    epsilon: float = 1e-8,
    reduction: str = "mean",
    name: str | None = None,
) -> Any:
    """Measure how unlikely counts are under Poisson distributions: exp(input) - label input, in nats.

    Args:
        input: logarithms of means; the means without log_input: then input - label ln(input + epsilon).
        label: counts, shape of input.
        log_input: input are logarithms.
        full: add Stirling's ln label! = label ln label - label + ln(2 pi label) / 2 where a label is above 1.
        epsilon: added to means, so that 0 has a logarithm.
        reduction: mean, sum or none.
        name: without effect.

    Raises:
        FluidValueError: different shapes, epsilon not above 0, or an unknown reduction.
    """
    check_reduction("poisson_nll_loss", reduction)
    _alike("poisson_nll_loss", input, label)
    if epsilon <= 0:
        raise FluidValueError(f"poisson_nll_loss: epsilon is {epsilon}", hint="a number above 0")
    label = call("cast", label, input.dtype)
    logs = input if log_input else call("log", call("scale", input, 1.0, float(epsilon)))
    elements = _sub(call("exp", input) if log_input else input, _mul(label, logs))
    if full:
        many = call("greater_than", label, _filled(label, 1.0))
        # 1 where the term does not count: its logarithm is finite, and so is the gradient of what is not chosen.
        counts = call("select", many, label, _filled(label, 1.0))
        halves = call("scale", call("log", call("scale", counts, 2 * math.pi)), 0.5)
        stirling = _add(_sub(_mul(counts, call("log", counts)), counts), halves)
        elements = _add(elements, call("select", many, stirling, _filled(label, 0.0)))
    return reduced("poisson_nll_loss", elements, reduction)


def margin_ranking_loss(
    input: Any, other: Any, label: Any, margin: float = 0.0, reduction: str = "mean", name: str | None = None
) -> Any:
    """Measure ranked pairs: max(0, margin - label (input - other)), label 1 or -1; axes of size 1 are repeated.

    Raises:
        FluidTypeError: a label of another element type; a TypeError.
    """
    check_reduction("margin_ranking_loss", reduction)
    if label.dtype != input.dtype:
        raise FluidTypeError(f"margin_ranking_loss: input is {input}, label {label}", hint="cast the label")
    ranked = _mul(_sub(input, other), label)
    return reduced("margin_ranking_loss", call("relu", call("scale", ranked, -1.0, float(margin))), reduction)


__all__ = [
    "cosine_embedding_loss", "gaussian_nll_loss", "hinge_embedding_loss", "margin_ranking_loss", "multi_label_soft_margin_loss",
    "multi_margin_loss", "pairwise_distance", "poisson_nll_loss", "soft_margin_loss", "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]  # fmt: skip
