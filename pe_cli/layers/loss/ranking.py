"""Ranking losses: bpr_loss, rank_loss, margin_rank_loss, npair_loss."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer
def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Variable:
    """Rank the label's class before every other class (Bayesian personalised ranking).

    Out[i] = -mean over j != label[i] of ln sigmoid(input[i, label[i]] - input[i, j])

    Args:
        input: [batch, classes] scores, at least two classes.
        label: [batch, 1] int64 classes.
        name: prefix of the output's name.

    Returns:
        [batch, 1], in nats.

    Raises:
        PeError: shapes do not fit, or fewer than two classes; in a step, a label out of range.

    Source:
        fluid.layers.bpr_loss; Hidasi et al. 2016, section 3.1.2.
    """
    helper = LayerHelper("bpr_loss", name)
    classes = input.shape[-1]
    if len(input.shape) != 2 or classes < 2:
        raise helper.error(f"bpr_loss needs scores [batch, classes] of at least two classes, got {input}")
    right = helper.one("one_hot", {"X": label}, {"depth": classes})
    if right.dtype != input.dtype:
        right = helper.one("cast", {"X": right}, {"out_dtype": input.dtype})
    along = {"dim": [1], "keep_dim": True}
    score = helper.one("reduce_sum", {"X": helper.one("elementwise_mul", {"X": input, "Y": right})}, along)
    gap = helper.one("elementwise_add", {"X": helper.one("scale", {"X": input}, {"scale": -1.0}), "Y": score})
    # The label's own gap is 0, whose ln sigmoid is not 0: it is left out.
    other = helper.one("scale", {"X": right}, {"scale": -1.0, "bias": 1.0})
    ahead = helper.one("elementwise_mul", {"X": helper.one("logsigmoid", {"X": gap}), "Y": other})
    return helper.one("scale", {"X": helper.one("reduce_sum", {"X": ahead}, along)}, {"scale": -1.0 / (classes - 1)})


@layer(answers=False)
def rank_loss(label: Variable, left: Variable, right: Variable, name: str | None = None) -> Variable:
    """Measure the scores of a pair of which one ranks before the other, as a probability.

    Out = ln(1 + exp(left - right)) - label (left - right)

    Args:
        label: [batch, 1], dtype of left: 1 where left ranks before right, 0 where behind, 0.5 where beside.
        left: [batch, 1] scores.
        right: [batch, 1] scores.
        name: prefix of the output's name.

    Returns:
        [batch, 1], in nats.

    Raises:
        PeError: shapes or dtypes differ.

    Source:
        fluid.layers.rank_loss; Burges et al. 2005, eq. 3.
    """
    helper = LayerHelper("rank_loss", name)
    helper.check_same(left, right, label)
    gap = helper.one("elementwise_sub", {"X": left, "Y": right})
    won = helper.one("elementwise_mul", {"X": label, "Y": gap})
    # softplus is ln(1 + exp(gap)) without overflow.
    return helper.one("elementwise_sub", {"X": helper.one("softplus", {"X": gap}), "Y": won})


@layer(answers=False)
def margin_rank_loss(label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None) -> Variable:
    """Measure the scores of a pair of which one has to rank before the other by a margin.

    Out = max(0, margin - label (left - right))

    Args:
        label: [batch, 1], dtype of left: 1 where left ranks before right, -1 where behind.
        left: [batch, 1] scores.
        right: [batch, 1] scores.
        margin: in the unit of the scores.
        name: prefix of the output's name.

    Returns:
        [batch, 1].

    Raises:
        PeError: shapes or dtypes differ.

    Source:
        fluid.layers.margin_rank_loss.
    """
    helper = LayerHelper("margin_rank_loss", name)
    helper.check_same(left, right, label)
    gap = helper.one("elementwise_mul", {"X": label, "Y": helper.one("elementwise_sub", {"X": left, "Y": right})})
    return helper.one("relu", {"X": helper.one("scale", {"X": gap}, {"scale": -1.0, "bias": margin})})


@layer(answers=False)
def npair_loss(anchor: Variable, positive: Variable, labels: Variable, l2_reg: float = 0.002) -> Variable:
    """Pull every anchor towards the positives with its label, and away from those of all other samples of the batch.

    Out = mean of the cross entropy of softmax(anchor positive^T) with equal labels + l2_reg / 4 (mean |anchor|^2 + mean |positive|^2)

    Args:
        anchor: [batch, width] float32 or float64.
        positive: shape and dtype of anchor.
        labels: [batch] or [batch, 1] numbers, equal where samples belong together.
        l2_reg: weight of the squared lengths.

    Returns:
        [1], in nats.

    Raises:
        PeError: shapes or dtypes do not fit.

    Source:
        fluid.layers.npair_loss; Sohn 2016, eq. 11.
    """
    helper = LayerHelper("npair_loss")
    helper.check_rank(anchor, "every input", 2, "[batch, width]")
    helper.check_same(anchor, positive)
    if len(labels.shape) > 2 or (len(labels.shape) == 2 and labels.shape[1] != 1):
        raise helper.error(f"npair_loss: labels should be [batch], got {labels}", hint="reshape it")
    target = _same_label(helper, labels, anchor.dtype)
    lengths = [helper.one("reduce_sum", {"X": helper.one("square", {"X": v})}, {"dim": [1]}) for v in (anchor, positive)]
    first, second = (helper.one("mean", {"X": v}) for v in lengths)
    # The quarter is the original's constant Beta, which l2_reg comes on top of.
    penalty = helper.one("scale", {"X": helper.one("elementwise_add", {"X": first, "Y": second})}, {"scale": 0.25 * l2_reg})
    scores = helper.one("matmul", {"X": anchor, "Y": positive}, {"transpose_Y": True})
    entropy = _entropy(helper, scores, target)
    weighed = helper.one("reduce_sum", {"X": helper.one("elementwise_mul", {"X": target, "Y": entropy})}, {"dim": [0]})
    return helper.one("elementwise_add", {"X": helper.one("mean", {"X": weighed}), "Y": penalty})


def _entropy(helper: LayerHelper, scores: Variable, target: Variable) -> Variable:
    """Return ln sum exp scores - sum target scores of every row: a cross entropy that a batch without rows has, too."""
    along = {"dim": [1], "keep_dim": True}
    top = helper.one("reduce_max", {"X": scores}, along)
    # The largest is subtracted and added again: whatever it is, the result is the same, so it needs no gradient.
    top.stop_gradient = True
    powers = helper.one("exp", {"X": helper.one("elementwise_sub", {"X": scores, "Y": top})})
    whole = helper.one("elementwise_add", {"X": helper.one("log", {"X": helper.one("reduce_sum", {"X": powers}, along)}), "Y": top})
    mine = helper.one("reduce_sum", {"X": helper.one("elementwise_mul", {"X": scores, "Y": target})}, along)
    return helper.one("elementwise_sub", {"X": whole, "Y": mine})


def _same_label(helper: LayerHelper, labels: Variable, dtype: str) -> Variable:
    """Return [batch, batch] shares: for each sample equal ones of all samples with its label."""
    # In float64, which holds every int64 label that a data set has exactly (up to 2^53).
    column = helper.one("reshape", {"X": helper.one("cast", {"X": labels}, {"out_dtype": "float64"})}, {"shape": [-1, 1]})
    ones = helper.one("fill_like", {"X": column}, {"value": 1.0})
    # A product with ones repeats the labels, however many there are; one term per sum leaves every label as it is.
    rows = helper.one("matmul", {"X": column, "Y": ones}, {"transpose_Y": True})
    same = helper.one("equal", {"X": rows, "Y": helper.one("transpose", {"X": rows}, {"axis": [1, 0]})})
    numbers = helper.one("cast", {"X": same}, {"out_dtype": dtype})
    numbers.stop_gradient = True
    count = helper.one("reduce_sum", {"X": numbers}, {"dim": [1], "keep_dim": True})
    return helper.one("elementwise_div", {"X": numbers, "Y": count})
