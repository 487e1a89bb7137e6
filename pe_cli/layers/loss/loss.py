"""Losses of classes and of numbers whose layers are more than their op."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer
def softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = -100,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Variable | tuple[Variable, Variable]:
    """Measure how unlikely the label is under the softmax of logits; exact for large logits.

    Out[i] = ln sum_j exp(logits[i, j]) - logits[i, label[i]]

    Args:
        logits: [batch, classes], in nats.
        label: [batch, 1] int64 classes; with soft_label [batch, classes] probabilities.
        soft_label: labels are probabilities.
        ignore_index: a label that gives 0.
        numeric_stable_mode: subtract the largest logit first; always done here, so that False gives the same up to rounding.
        return_softmax: return the probabilities too.
        axis: of the classes.

    Returns:
        [batch, 1] loss, in nats; with return_softmax also the probabilities [batch, classes].

    Raises:
        PeError: shapes or dtypes that do not fit.

    Source:
        fluid.layers.softmax_with_cross_entropy.
    """
    helper = LayerHelper("softmax_with_cross_entropy")
    attrs = {"soft_label": soft_label, "ignore_index": ignore_index, "numeric_stable_mode": numeric_stable_mode, "axis": axis}
    inputs = {"Logits": logits, "Label": label}
    softmax, loss = helper.op("softmax_with_cross_entropy", inputs, attrs, ("Softmax", "Loss"))
    return (loss, softmax) if return_softmax else loss


@layer(label="y")
def smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float = 1.0,
) -> Variable:
    """Square small differences and take large ones linearly, summed over a sample.

    Out[i] = sum_j w h(v (x - y)), h(d) = 0.5 (sigma d)^2 where |d| < 1 / sigma^2, else |d| - 0.5 / sigma^2

    Args:
        x: [batch, ...] prediction.
        y: target, shape and dtype of x.
        inside_weight: v, of the shape of x.
        outside_weight: w, of the shape of x.
        sigma: where the square ends, no unit.

    Returns:
        [batch, 1].

    Raises:
        PeError: shapes do not fit.

    Source:
        fluid.layers.smooth_l1; Girshick 2015, eq. 3.
    """
    inputs = {"X": x, "Y": y, "InsideWeight": inside_weight, "OutsideWeight": outside_weight}
    # Diff is v (x - y), from which the gradient tells the square from the line.
    _, out = LayerHelper("smooth_l1").op("smooth_l1_loss", inputs, {"sigma": sigma}, ("Diff", "Out"))
    return out
