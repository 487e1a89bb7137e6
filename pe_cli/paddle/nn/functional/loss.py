"""Losses by 2.x's names, arguments and reductions."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.loss.hierarchical_sigmoid import path_costs
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.nn.functional.reduction import check_reduction, reduced


def binary_cross_entropy(
    input: Any, label: Any, weight: Any = None, reduction: str = "mean", name: str | None = None
) -> Any:
    """Measure how unlikely yes-or-no labels are under given probabilities: -label ln p - (1 - label) ln(1 - p), in nats."""
    check_reduction("binary_cross_entropy", reduction)
    elements = LayerHelper("bce_loss", name).one("bce_loss", {"X": input, "Label": label})
    return reduced("binary_cross_entropy", elements, reduction, weight)


def binary_cross_entropy_with_logits(
    logit: Any,
    label: Any,
    weight: Any = None,
    reduction: str = "mean",
    pos_weight: Any = None,
    name: str | None = None,
) -> Any:
    """Measure how unlikely yes-or-no labels are under the sigmoid of logits, in nats.

    -pos_weight label ln p - (1 - label) ln(1 - p), p = sigmoid(logit): a yes counts pos_weight times, also the part of it in a label
    between 0 and 1.
    """
    check_reduction("binary_cross_entropy_with_logits", reduction)
    elements = call("sigmoid_cross_entropy_with_logits", logit, label)
    # The weight of positive labels applies to -ln p alone, which is -logsigmoid of the logit.
    if pos_weight is not None:
        more = call("elementwise_mul", label, call("scale", pos_weight, 1.0, -1.0))
        elements = call("elementwise_sub", elements, call("elementwise_mul", more, call("logsigmoid", logit)))
    return reduced("binary_cross_entropy_with_logits", elements, reduction, weight)


def cross_entropy(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    input: Any,
    label: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    soft_label: bool = False,
    axis: int = -1,
    use_softmax: bool = True,
    label_smoothing: float = 0.0,
    name: str | None = None,
) -> Any:
    """Measure how unlikely labels are under the softmax of logits.

    Args:
        input: [..., classes] logits; without use_softmax probabilities.
        label: int64 [...] or with an axis of 1 for the classes; with soft_label probabilities in the shape of input.
        weight: [classes] of every class, or None.
        ignore_index: a label that gives 0 and does not count in a mean.
        reduction: mean, over the labels' weights; sum; or none.
        soft_label: labels are probabilities.
        axis: of the classes.
        use_softmax: input are logits.
        label_smoothing: share of every label that all classes get alike, from 0 to 1; above 0 no label is ignored.
        name: without effect.

    Returns:
        [1] in nats; with none, shape of label with an axis of 1 for the classes, or without, as the label is.

    Raises:
        FluidValueError: an unknown reduction, or probabilities whose classes are not in the last axis.
    """
    check_reduction("cross_entropy", reduction)
    axis %= len(input.shape)
    if not use_softmax and axis != len(input.shape) - 1:
        raise FluidValueError(f"cross_entropy: axis is {axis} of {input}, without softmax", hint="the last axis")
    if label_smoothing:
        label, soft_label = _smooth(input, label, axis, label_smoothing, soft_label), True
    bare = not soft_label and len(label.shape) < len(input.shape)
    column = label if soft_label else _column(label, axis, bare)
    if use_softmax:
        elements = call("softmax_with_cross_entropy", input, column, soft_label, ignore_index, axis=axis)
    else:
        # Without softmax the inputs are probabilities already.
        elements = call("cross_entropy", input, column, soft_label, ignore_index)
    weights = _weights_of_labels(input, column, weight, ignore_index, axis, soft_label)
    elements, weights = (call("squeeze", v, [axis]) if bare and v is not None else v for v in (elements, weights))
    return _over_labels("cross_entropy", elements, weights, reduction, weight is not None)


def _smooth(input: Any, label: Any, axis: int, share: float, soft_label: bool) -> Any:
    """Return labels as probabilities, of which all classes get a share alike.

    Raises:
        FluidValueError: the share is not from 0 to 1, or the classes are not the last axis.
    """
    if not 0 <= share <= 1 or axis != len(input.shape) - 1:
        raise FluidValueError(f"cross_entropy: label_smoothing is {share}, axis {axis} of {input}", hint="from 0 to 1, and the last axis")
    if not soft_label and (len(label.shape) < len(input.shape) or label.shape[-1] == 1):
        label = _one_hot(_column(label, axis, len(label.shape) < len(input.shape)), input, -1, axis)
    return call("label_smooth", call("cast", label, input.dtype), None, share, input.dtype)


def nll_loss(
    input: Any,
    label: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    name: str | None = None,
) -> Any:
    """Take the negative of every label's input.

    Args:
        input: [batch, classes, ...] logarithms of probabilities, in nats.
        label: [batch, ...] int64.
        weight: [classes] of every class, or None.
        ignore_index: a label that gives 0 and does not count in a mean.
        reduction: mean, over the labels' weights; sum; or none, the shape of label.
        name: without effect.
    """
    check_reduction("nll_loss", reduction)
    column = _column(label, 1, bare=True)
    counts = _counts(column, ignore_index)
    # An ignored label need not be a class: 0 stands for it. What is not chosen has no effect, -inf and NaN included.
    inside = call("elementwise_mul", column, call("cast", counts, "int64"))
    chosen = LayerHelper("take_along_axis").one("take_along_axis", {"X": input, "Index": inside}, {"axis": 1})
    nothing = LayerHelper("fill_like").one("fill_like", {"X": chosen}, {"value": 0.0})
    elements = call("scale", call("squeeze", call("select", counts, chosen, nothing), [1]), -1.0)
    weights = call("squeeze", _weights_of_labels(input, column, weight, ignore_index, 1, soft=False), [1])
    return _over_labels("nll_loss", elements, weights, reduction, weight is not None)


def _column(label: Any, axis: int, bare: bool) -> Any:
    """Return labels as int64 with an axis of 1 for the classes."""
    label = call("cast", label, "int64") if label.dtype != "int64" else label
    return call("unsqueeze", label, [axis]) if bare else label


def _counts(column: Any, ignore_index: int) -> Any:
    """Return whether labels count, bool in their shape."""
    ignored = LayerHelper("fill_like").one("fill_like", {"X": column}, {"value": float(ignore_index)})
    return call("not_equal", column, ignored)


def _counted(column: Any, like: Any, ignore_index: int) -> Any:
    """Return 1 for a label that counts and 0 for an ignored one."""
    return call("cast", _counts(column, ignore_index), like.dtype)


def _one_hot(column: Any, like: Any, ignore_index: int, axis: int) -> Any:
    """Return a 1 at every label's class in the shape of `like`; an ignored label has none."""
    counted = _counted(column, like, ignore_index)
    # An ignored label need not be a class: 0 stands for it.
    # The row of an ignored label is multiplied by 0 afterwards.
    inside = call("elementwise_mul", column, call("cast", counted, "int64"))
    last = _turned(inside, axis, len(like.shape) - 1)
    attrs = {"depth": like.shape[axis], "dtype": like.dtype}
    rows = LayerHelper("one_hot").one("one_hot", {"X": last}, attrs)
    return call("elementwise_mul", _turned(rows, len(like.shape) - 1, axis), counted)


def _turned(x: Any, source: int, target: int) -> Any:
    """Return x with one axis elsewhere."""
    if source == target:
        return x
    order = [i for i, _ in enumerate(x.shape) if i != source]
    order.insert(target, source)
    return call("transpose", x, order)


def _weights_of_labels(input: Any, column: Any, weight: Any, ignore_index: int, axis: int, soft: bool) -> Any:
    """Return what every label counts, with an axis of 1 for the classes; None where all count alike."""
    if weight is None:
        return None if soft else _counted(column, input, ignore_index)
    rows = column if soft else _one_hot(column, input, ignore_index, axis)
    return call("reduce_sum", call("elementwise_mul", rows, weight, axis), axis, True)


def _over_labels(loss: str, elements: Any, weights: Any, reduction: str, weighed: bool) -> Any:
    """Weigh and reduce; a mean is over the weights, and 0 where nothing counts."""
    if weighed:
        elements = call("elementwise_mul", elements, weights)
    if reduction != "mean" or weights is None:
        return reduced(loss, elements, reduction)
    # Where every label is ignored the mean is 0 and not 0 / 0.
    count = call("clip", call("reduce_sum", weights), 1e-30, 3.4e38)
    return call("elementwise_div", call("reduce_sum", elements), count)


def kl_div(input: Any, label: Any, reduction: str = "mean", name: str | None = None) -> Any:
    """Measure how far a distribution is from another: label (ln label - input), input in logarithms; batchmean too."""
    if reduction != "batchmean":
        check_reduction("kl_div", reduction)
    return call("kldiv_loss", input, label, reduction)


def l1_loss(input: Any, label: Any, reduction: str = "mean", name: str | None = None) -> Any:
    """Measure the distance: |input - label|."""
    check_reduction("l1_loss", reduction)
    return reduced("l1_loss", call("abs", call("elementwise_sub", input, label)), reduction)


def mse_loss(input: Any, label: Any, reduction: str = "mean", name: str | None = None) -> Any:
    """Square the difference."""
    check_reduction("mse_loss", reduction)
    return reduced("mse_loss", call("square_error_cost", input, label), reduction)


def smooth_l1_loss(input: Any, label: Any, reduction: str = "mean", delta: float = 1.0, name: str | None = None) -> Any:
    """Square small differences and take large ones linearly: 0.5 d^2 up to delta, then delta (|d| - 0.5 delta)."""
    check_reduction("smooth_l1_loss", reduction)
    # Huber's loss, as in the original; PyTorch's smooth_l1_loss divides it by its beta.
    return reduced("smooth_l1_loss", call("huber_loss", input, label, delta), reduction)


def sigmoid_focal_loss(
    logit: Any,
    label: Any,
    normalizer: Any = None,
    alpha: float = 0.25,
    gamma: float = 2.0,
    reduction: str = "sum",
    name: str | None = None,
) -> Any:
    """Weigh hard samples: alpha_t (1 - p_t)^gamma (-ln p_t), divided by the normalizer, [1].

    Args:
        logit: any shape.
        label: 0 or 1, shape and dtype of logit.
        normalizer: [1], or None.
        alpha: weight of a yes; a no has 1 - alpha.
        gamma: how much less easy samples count, no unit.
        reduction: mean, sum or none.
        name: without effect.
    """
    check_reduction("sigmoid_focal_loss", reduction)
    # 1 - p_t without a branch: the distance of the probability from the label.
    away = call("abs", call("elementwise_sub", label, call("sigmoid", logit)))
    # The line through alpha at a label of 1 and 1 - alpha at 0 needs no branch either.
    weight = call("elementwise_mul", call("pow", away, gamma), call("scale", label, 2 * alpha - 1, 1 - alpha))
    elements = call("sigmoid_cross_entropy_with_logits", logit, label)
    if normalizer is not None:
        elements = call("elementwise_div", elements, normalizer)
    return reduced("sigmoid_focal_loss", elements, reduction, weight)


def cosine_similarity(x1: Any, x2: Any, axis: int = 1, eps: float = 1e-8) -> Any:
    """Return the cosine of the angle along an axis; a product of lengths below eps counts as eps."""
    dot, first, second = (
        call("reduce_sum", call("elementwise_mul", a, b), axis) for a, b in ((x1, x2), (x1, x1), (x2, x2))
    )
    # Clipped as squares, so that one root serves both lengths; 3.4e38 is the largest float32.
    squares = call("clip", call("elementwise_mul", first, second), eps * eps, 3.4e38)
    return call("elementwise_mul", dot, call("rsqrt", squares))


def ctc_loss(
    log_probs: Any,
    labels: Any,
    input_lengths: Any,
    label_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    norm_by_times: bool = False,
) -> Any:
    """Measure how unlikely the labels of every sequence are, wherever in it they are.

    Args:
        log_probs: [time, sequences, classes] logits: softmax is part of the loss, whatever the name says.
        labels: [sequences, labels] int32 or int64.
        input_lengths: [sequences] int64, steps of each.
        label_lengths: [sequences] int64, labels of each.
        blank: class that stands for no label.
        reduction: mean, of every sequence's loss over its number of labels; sum; or none, [sequences].
        norm_by_times: divide the gradient of every sequence by its number of steps.
    """
    check_reduction("ctc_loss", reduction)
    elements = call("squeeze", call("warpctc", log_probs, labels, blank, norm_by_times, input_lengths, label_lengths), [1])
    if reduction != "mean":
        return reduced("ctc_loss", elements, reduction)
    # As in the original, each loss counts by the length of its labels before the mean.
    sizes = call("cast", call("reshape", label_lengths, [-1]), log_probs.dtype)
    return call("mean", call("elementwise_div", elements, sizes))


def hsigmoid_loss(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    input: Any,
    label: Any,
    num_classes: int,
    weight: Any,
    bias: Any = None,
    path_table: Any = None,
    path_code: Any = None,
    is_sparse: bool = False,
    name: str | None = None,
) -> Any:
    """Measure classes by the yes-or-no questions on the way to them in a binary tree, [batch, 1].

    Args:
        input: [batch, width].
        label: [batch, 1] int64.
        num_classes: classes of the complete tree; without effect where paths are given.
        weight: of the questions, [num_classes - 1, width].
        bias: [num_classes - 1, 1], or None.
        path_table: [batch, depth] int64: nodes from the root on, -1 after the end.
        path_code: [batch, depth] int64: the answers.
        is_sparse: where paths are given, the gradient of weight has only the rows of nodes on them.
        name: prefix of the names of the results.

    Raises:
        FluidValueError: only one of path_table and path_code.
    """
    if (path_table is None) != (path_code is None):
        raise FluidValueError("hsigmoid_loss needs both path_table and path_code, or neither")
    helper = LayerHelper("hsigmoid_loss", name)
    return path_costs(helper, input, label, weight, bias, num_classes, (path_table, path_code), is_sparse=is_sparse)


__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_similarity", "cross_entropy", "ctc_loss",
    "hsigmoid_loss", "kl_div", "l1_loss", "mse_loss", "nll_loss", "sigmoid_focal_loss", "smooth_l1_loss",
]  # fmt: skip
