"""Metric-learning losses for pairs and triples of embeddings: contrastive, triplet, InfoNCE and cosine losses; and cos_sim."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer(answers=False)
def contrastive_loss(
    first: Variable, second: Variable, label: Variable, margin: float = 1.0, epsilon: float = 1e-6, name: str | None = None
) -> Variable:
    """Pull vectors of one kind together, and push others apart up to a distance.

    Out[i] = label d^2 + (1 - label) max(0, margin - d)^2,  d = |first[i] - second[i] + epsilon|

    Args:
        first: [batch, width] float32 or float64.
        second: shape and dtype of first.
        label: [batch, 1], 1 for vectors of one kind, 0 for others; any number type.
        margin: distance from which on others do not count, above 0, in the unit of first.
        epsilon: added to each difference, so that the gradient of equal vectors is finite.
        name: prefix of the output's name.

    Returns:
        [batch, 1].

    Raises:
        PeError: margin is not above 0, or shapes or dtypes do not fit.

    Source:
        Hadsell, Chopra and LeCun 2006, eq. 4, without its factor 1/2.
    """
    helper = LayerHelper("contrastive_loss", name)
    _check_margin(helper, margin)
    _check_rows(helper, first, second)
    same = _label(helper, label, first)
    d = _distance(helper, first, second, epsilon)
    near = helper.one("elementwise_mul", {"X": helper.one("square", {"X": d}), "Y": same})
    gap = helper.one("relu", {"X": helper.one("scale", {"X": d}, {"scale": -1.0, "bias": margin})})
    other = helper.one("scale", {"X": same}, {"scale": -1.0, "bias": 1.0})
    far = helper.one("elementwise_mul", {"X": helper.one("square", {"X": gap}), "Y": other})
    return helper.one("elementwise_add", {"X": near, "Y": far})


@layer
def triplet_margin_loss(
    anchor: Variable,
    positive: Variable,
    negative: Variable,
    margin: float = 1.0,
    epsilon: float = 1e-6,
    swap: bool = False,
    name: str | None = None,
) -> Variable:
    """Make vectors nearer to one of their kind than to another, by a margin.

    Out[i] = max(0, d(anchor, positive) - d(anchor, negative) + margin),  d(a, b) = |a[i] - b[i] + epsilon|

    Args:
        anchor: [batch, width] float32 or float64.
        positive: of the same kind; shape and dtype of anchor.
        negative: of another kind; shape and dtype of anchor.
        margin: above 0, in the unit of anchor.
        epsilon: added to each difference, so that the gradient of equal vectors is finite.
        swap: take d(positive, negative) where that is less than d(anchor, negative).
        name: prefix of the output's name.

    Returns:
        [batch, 1].

    Raises:
        PeError: margin is not above 0, or shapes or dtypes do not fit.

    Source:
        torch.nn.functional.triplet_margin_loss with p = 2; Balntas et al. 2016.
    """
    helper = LayerHelper("triplet_margin_loss", name)
    _check_margin(helper, margin)
    _check_rows(helper, anchor, positive, negative)
    near = _distance(helper, anchor, positive, epsilon)
    far = _distance(helper, anchor, negative, epsilon)
    if swap:
        # Swapped: the negative may be nearer to the positive, which then is the harder pair.
        far = helper.one("elementwise_min", {"X": far, "Y": _distance(helper, positive, negative, epsilon)})
    gap = helper.one("elementwise_sub", {"X": near, "Y": far})
    return helper.one("relu", {"X": helper.one("scale", {"X": gap}, {"bias": margin})})


@layer
def info_nce(queries: Variable, keys: Variable, temperature: float = 0.07, name: str | None = None) -> Variable:
    """Find the key of every query among the keys of the batch, by the cosine of their angle.

    Out[i] = ln sum_j exp(s[i, j]) - s[i, i],  s[i, j] = cos(queries[i], keys[j]) / temperature

    The other keys are those on the same device: with several devices, each compares the rows of its own part of the batch.

    Args:
        queries: [batch, width] float32 or float64.
        keys: shape and dtype of queries; row i belongs to query i.
        temperature: above 0, no unit; less makes near misses cost more.
        name: prefix of the output's name.

    Returns:
        [batch, 1], in nats.

    Raises:
        PeError: temperature is not above 0, or shapes or dtypes do not fit.

    Source:
        van den Oord, Li and Vinyals 2018, eq. 4; He et al. 2020, eq. 1, for the cosine and the temperature.
    """
    helper = LayerHelper("info_nce", name)
    if not temperature > 0:
        raise helper.error(f"info_nce: temperature must be > 0, got {temperature:g}")
    _check_rows(helper, queries, keys)
    one, two = (_unit(helper, v) for v in (queries, keys))
    # The own key's score is made as a sum of products, not taken from the matrix: its gradient need not touch the other keys.
    own = _row_sum(helper, helper.one("elementwise_mul", {"X": one, "Y": two}))
    own = helper.one("scale", {"X": own}, {"scale": 1.0 / temperature})
    scores = helper.one("matmul", {"X": one, "Y": two}, {"transpose_Y": True, "alpha": 1.0 / temperature})
    most = helper.one("reduce_max", {"X": scores}, {"dim": [1], "keep_dim": True})  # subtracted so that no exp overflows
    whole = _row_sum(helper, helper.one("exp", {"X": helper.one("elementwise_sub", {"X": scores, "Y": most})}))
    total = helper.one("elementwise_add", {"X": helper.one("log", {"X": whole}), "Y": most})
    return helper.one("elementwise_sub", {"X": total, "Y": own})


@layer(answers=False)
def cosine_embedding_loss(
    first: Variable, second: Variable, label: Variable, margin: float = 0.0, name: str | None = None
) -> Variable:
    """Turn vectors of one kind to one another, and others away.

    Out[i] = 1 - c where label[i] is 1, and max(0, c - margin) where it is -1;  c = cos(first[i], second[i])

    Args:
        first: [batch, width] float32 or float64.
        second: shape and dtype of first.
        label: [batch, 1], 1 for vectors of one kind, -1 for others; any signed number type.
        margin: cosine up to which others do not count, from -1 to 1.
        name: prefix of the output's name.

    Returns:
        [batch, 1].

    Raises:
        PeError: margin is not from -1 to 1, or shapes or dtypes do not fit.

    Source:
        torch.nn.functional.cosine_embedding_loss.
    """
    helper = LayerHelper("cosine_embedding_loss", name)
    if not -1 <= margin <= 1:
        raise helper.error(f"cosine_embedding_loss: margin must be from -1 to 1, got {margin:g}")
    _check_rows(helper, first, second)
    product = _row_sum(helper, helper.one("elementwise_mul", {"X": first, "Y": second}))
    # A small number below the root: rows of zeros have a length and a gradient.
    squares = [helper.one("scale", {"X": _row_sum(helper, helper.one("square", {"X": v}))}, {"bias": 1e-12}) for v in (first, second)]
    length = helper.one("sqrt", {"X": helper.one("elementwise_mul", {"X": squares[0], "Y": squares[1]})})
    cosine = helper.one("elementwise_div", {"X": product, "Y": length})
    # Labels are 1 and -1 here: half of them and a half more is 1 and 0.
    same = helper.one("scale", {"X": _label(helper, label, first)}, {"scale": 0.5, "bias": 0.5})
    other = helper.one("scale", {"X": same}, {"scale": -1.0, "bias": 1.0})
    near = helper.one("elementwise_mul", {"X": helper.one("scale", {"X": cosine}, {"scale": -1.0, "bias": 1.0}), "Y": same})
    above = helper.one("relu", {"X": helper.one("scale", {"X": cosine}, {"bias": -margin})})
    return helper.one("elementwise_add", {"X": near, "Y": helper.one("elementwise_mul", {"X": above, "Y": other})})


@layer
def cos_sim(X: Variable, Y: Variable) -> Variable:
    """Return the cosine of the angle between the rows of two matrices.

    Out[i] = X[i] Y[i] / (|X[i]| |Y[i]|)

    Args:
        X: [batch, width] float32 or float64.
        Y: shape and dtype of X, or [1, width] for one row that all are compared with.

    Returns:
        [batch, 1], from -1 to 1; NaN for a row of zeros.

    Raises:
        PeError: shapes or dtypes do not fit.

    Source:
        fluid.layers.cos_sim.
    """
    helper = LayerHelper("cos_sim")
    for what, v in (("X", X), ("Y", Y)):
        helper.check_rank(v, what, 2, "[batch, width]")
    product = _row_sum(helper, helper.one("elementwise_mul", {"X": X, "Y": Y}))
    first, second = (helper.one("sqrt", {"X": _row_sum(helper, helper.one("square", {"X": v}))}) for v in (X, Y))
    return helper.one("elementwise_div", {"X": product, "Y": helper.one("elementwise_mul", {"X": first, "Y": second})})


def _row_sum(helper: LayerHelper, x: Variable) -> Variable:
    return helper.one("reduce_sum", {"X": x}, {"dim": [1], "keep_dim": True})


def _distance(helper: LayerHelper, a: Variable, b: Variable, epsilon: float) -> Variable:
    """Return |a - b + epsilon| of every row, [batch, 1]."""
    # Added as in PyTorch's pairwise_distance, to the difference: the root has a derivative at equal vectors, and distances move a little.
    difference = helper.one("scale", {"X": helper.one("elementwise_sub", {"X": a, "Y": b})}, {"bias": epsilon})
    return helper.one("sqrt", {"X": _row_sum(helper, helper.one("square", {"X": difference}))})


def _unit(helper: LayerHelper, x: Variable) -> Variable:
    """Return the rows of x with length 1; rows of zeros stay."""
    # So small that only rows of zeros notice; without it their length would be divided by 0.
    squares = helper.one("scale", {"X": _row_sum(helper, helper.one("square", {"X": x}))}, {"bias": 1e-24})
    return helper.one("elementwise_mul", {"X": x, "Y": helper.one("rsqrt", {"X": squares})})


def _check_rows(helper: LayerHelper, first: Variable, *others: Variable) -> None:
    helper.check_rank(first, "every input", 2, "[batch, width]")
    helper.check_same(first, *others)


def _label(helper: LayerHelper, label: Variable, like: Variable) -> Variable:
    """Return a label, one number per row, in the element type of what it judges."""
    if len(label.shape) != 2 or label.shape[1] != 1:
        raise helper.error(f"{helper.layer_type}: label should be [batch, 1], got {label}", hint="reshape it")
    return label if label.dtype == like.dtype else helper.one("cast", {"X": label}, {"out_dtype": like.dtype})


def _check_margin(helper: LayerHelper, margin: float) -> None:
    if not margin > 0:
        raise helper.error(f"{helper.layer_type}: margin must be > 0, got {margin:g}")
