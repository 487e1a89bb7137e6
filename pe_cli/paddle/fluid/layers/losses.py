"""Losses made of the core's layers."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.loss.sampled import follow_centers
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.ops import equal
from pe_cli.program.ir import Variable


def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Any:
    """Rank the label above every other class: -mean_{j != label} ln sigmoid(input[label] - input[j]), [batch, 1]."""
    classes = input.shape[-1]
    right = call("one_hot", label, classes)
    score = call("reduce_sum", call("elementwise_mul", input, right), -1, True)
    ahead = call("logsigmoid", call("elementwise_add", call("scale", input, -1.0), score))
    others = call("elementwise_mul", ahead, call("scale", right, -1.0, 1.0))
    return call("scale", call("reduce_sum", others, -1, True), -1.0 / (classes - 1))


def npair_loss(anchor: Variable, positive: Variable, labels: Variable, l2_reg: float = 0.002) -> Any:
    """Compare every anchor with every positive, [1].

    The cross entropy of softmax(anchor positive^T) with equal labels, plus l2_reg / 4 times the mean squared lengths.
    """
    batch = labels.shape[0]
    rows = call("expand", call("reshape", labels, [batch, 1]), [1, batch])
    same = call("cast", equal(rows, call("transpose", rows, [1, 0])), "float32")
    target = call("elementwise_div", same, call("reduce_sum", same, 1, True))
    squares = [call("mean", call("reduce_sum", call("square", v), 1)) for v in (anchor, positive)]
    penalty = call("scale", call("elementwise_add", *squares), 0.25 * l2_reg)
    scores = call("matmul", anchor, positive, False, True)
    entropy = call("softmax_with_cross_entropy", scores, target, True)
    weighed = call("reduce_sum", call("elementwise_mul", target, entropy), 0)
    return call("elementwise_add", call("mean", weighed), penalty)


def sigmoid_focal_loss(x: Variable, label: Variable, fg_num: Variable, gamma: float = 2.0, alpha: float = 0.25) -> Any:
    """Weigh hard samples: alpha_t (1 - p_t)^gamma (-ln p_t) / max(fg_num, 1), for classes from 1 on; 0 is background."""
    classes = x.shape[-1]
    rows = call("one_hot", call("cast", label, "int64"), classes + 1)
    target = call("slice", rows, [1], [1], [classes + 1])
    p = call("sigmoid", x)
    away = call("abs", call("elementwise_sub", target, p))
    weight = call("scale", target, 2 * alpha - 1, 1 - alpha)
    entropy = call("sigmoid_cross_entropy_with_logits", x, target)
    loss = call("elementwise_mul", call("elementwise_mul", entropy, call("pow", away, gamma)), weight)
    one = call("fill_constant", [1], x.dtype, 1.0)
    return call("elementwise_div", loss, call("elementwise_max", call("cast", fg_num, x.dtype), one))


def rank_loss(label: Variable, left: Variable, right: Variable, name: str | None = None) -> Any:
    """Measure a ranked pair: ln(1 + exp(left - right)) - label (left - right)."""
    gap = call("elementwise_sub", left, right)
    return call("elementwise_sub", call("softplus", gap), call("elementwise_mul", label, gap))


def margin_rank_loss(
    label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None
) -> Any:
    """Measure a ranked pair: max(0, margin - label (left - right)), label 1 or -1."""
    gap = call("elementwise_mul", label, call("elementwise_sub", left, right))
    return call("relu", call("scale", gap, -1.0, margin))


def cos_sim(X: Variable, Y: Variable) -> Any:
    """Return the cosine of the angle between rows: [batch, 1]."""
    product = call("reduce_sum", call("elementwise_mul", X, Y), -1, True)
    lengths = [call("sqrt", call("reduce_sum", call("square", v), -1, True)) for v in (X, Y)]
    return call("elementwise_div", product, call("elementwise_mul", *lengths))


def auc(
    input: Variable, label: Variable, curve: str = "ROC", num_thresholds: int = 4095, topk: int = 1, slide_steps: int = 1
) -> Any:
    """Measure how well probabilities tell two classes apart, as the original does: the ROC curve's area, for curve='PR', too.

    Raises:
        FluidValueError: curve is neither ROC nor PR; a ValueError.
    """
    if curve not in ("ROC", "PR"):
        raise FluidValueError(f"auc: curve is {curve!r}", hint="ROC or PR")
    return call("auc", input, label, "ROC", num_thresholds, topk, slide_steps)


def center_loss(
    input: Variable, label: Variable, num_classes: int, alpha: Any, param_attr: Any, update_center: bool = True
) -> Any:
    """Measure how far features are from the centers of their classes; alpha may be a variable [1]."""
    if not isinstance(alpha, Variable):
        return call("center_loss", input, label, num_classes, float(alpha), param_attr, update_center)
    ensure_defaults()
    return follow_centers(LayerHelper("center_loss"), input, label, num_classes, alpha, param_attr, update_center)


__all__ = [
    "auc", "bpr_loss", "center_loss", "cos_sim", "margin_rank_loss", "npair_loss", "rank_loss", "sigmoid_focal_loss",
]  # fmt: skip
