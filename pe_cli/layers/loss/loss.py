"""Losses."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer
def cross_entropy(input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = -100) -> Variable:
    """Measure how unlikely the label is under given probabilities.

    Out[i] = -ln input[i, label[i]]; with soft labels -sum_j label[i, j] ln input[i, j]

    Args:
        input: [batch, classes] probabilities, each row sums to 1.
        label: [batch, 1] int64 classes; with soft_label [batch, classes] probabilities.
        soft_label: labels are probabilities.
        ignore_index: a label that gives 0.

    Returns:
        [batch, 1] loss, in nats.

    Raises:
        PeError: shapes or dtypes that do not fit.

    Source:
        fluid.layers.cross_entropy.
    """
    attrs = {"soft_label": soft_label, "ignore_index": ignore_index}
    return LayerHelper("cross_entropy").one("cross_entropy", {"X": input, "Label": label}, attrs, "Y")


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


@layer
def sigmoid_cross_entropy_with_logits(
    x: Variable, label: Variable, ignore_index: int = -100, name: str | None = None, normalize: bool = False
) -> Variable:
    """Measure how unlikely each of several independent yes-or-no labels is.

    Out = max(x, 0) - x label + ln(1 + exp(-|x|))

    Args:
        x: [batch, classes] logits, in nats.
        label: shape and dtype of x, from 0 to 1.
        ignore_index: a label that gives 0.
        name: prefix of the output's name.
        normalize: divide by the number of labels that are not ignored.

    Returns:
        Shape and dtype of x, in nats.

    Raises:
        PeError: shapes or dtypes differ.

    Source:
        fluid.layers.sigmoid_cross_entropy_with_logits.
    """
    kind = "sigmoid_cross_entropy_with_logits"
    attrs = {"ignore_index": ignore_index, "normalize": normalize}
    return LayerHelper(kind, name).one(kind, {"X": x, "Label": label}, attrs)


@layer
def square_error_cost(input: Variable, label: Variable) -> Variable:
    """Square the difference.

    Out = (input - label)^2

    Args:
        input: prediction.
        label: target, shape and dtype of input.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: shapes do not fit.

    Source:
        fluid.layers.square_error_cost.
    """
    return LayerHelper("square_error_cost").one("square_error_cost", {"X": input, "Y": label})


@layer
def mse_loss(input: Variable, label: Variable) -> Variable:
    """Average the squared difference.

    Out = mean((input - label)^2)

    Args:
        input: prediction.
        label: target, shape and dtype of input.

    Returns:
        [1].

    Raises:
        PeError: shapes do not fit.

    Source:
        fluid.layers.mse_loss.
    """
    return LayerHelper("mse_loss").one("mse_loss", {"X": input, "Y": label})


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
    _, out = LayerHelper("smooth_l1").op("smooth_l1_loss", inputs, {"sigma": sigma}, ("Diff", "Out"))
    return out


@layer
def huber_loss(input: Variable, label: Variable, delta: float = 1.0) -> Variable:
    """Square small differences and take large ones linearly.

    Out = 0.5 d^2 where |d| <= delta, else delta (|d| - 0.5 delta), d = label - input

    Args:
        input: [batch, 1] prediction.
        label: target, shape and dtype of input.
        delta: where the square ends, in the unit of input.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: shapes do not fit.

    Source:
        fluid.layers.huber_loss; Huber 1964.
    """
    _, out = LayerHelper("huber_loss").op("huber_loss", {"X": input, "Y": label}, {"delta": delta}, ("Residual", "Out"))
    return out


@layer
def log_loss(input: Variable, label: Variable, epsilon: float = 1e-4, name: str | None = None) -> Variable:
    """Measure how unlikely a yes-or-no label is under a given probability.

    Out = -label ln(input + epsilon) - (1 - label) ln(1 - input + epsilon)

    Args:
        input: [batch, 1] probability of yes.
        label: [batch, 1], 0 or 1, dtype of input.
        epsilon: keeps the logarithm finite.
        name: prefix of the output's name.

    Returns:
        [batch, 1], in nats.

    Raises:
        PeError: shapes do not fit.

    Source:
        fluid.layers.log_loss.
    """
    inputs = {"Predicted": input, "Labels": label}
    return LayerHelper("log_loss", name).one("log_loss", inputs, {"epsilon": epsilon}, "Loss")


@layer(label="target")
def kldiv_loss(x: Variable, target: Variable, reduction: str = "mean", name: str | None = None) -> Variable:
    """Measure how far a distribution is from another.

    Out = target (ln target - x), 0 where target <= 0; then reduced

    Args:
        x: [batch, ...] logarithms of probabilities, in nats.
        target: probabilities, shape and dtype of x.
        reduction: mean, batchmean, sum or none.
        name: prefix of the output's name.

    Returns:
        [1], or the shape of x without reduction; in nats.

    Raises:
        PeError: shapes do not fit, or an unknown reduction.

    Source:
        fluid.layers.kldiv_loss; Kullback and Leibler 1951.
    """
    inputs = {"X": x, "Target": target}
    return LayerHelper("kldiv_loss", name).one("kldiv_loss", inputs, {"reduction": reduction}, "Loss")


@layer
def mean(x: Variable, name: str | None = None) -> Variable:
    """Average all elements.

    Args:
        x: any shape, float32 or float64.
        name: prefix of the output's name.

    Returns:
        [1].

    Source:
        fluid.layers.mean.
    """
    return LayerHelper("mean", name).one("mean", {"X": x})
