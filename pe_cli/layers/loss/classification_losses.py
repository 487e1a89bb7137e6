"""Classification losses composed of other layers: label smoothing, focal and dice losses."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.ops.loss.cross_entropy import IGNORE
from pe_cli.program.ir import Variable


@layer(answers=False)
def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: str = "float32",
    name: str | None = None,
) -> Variable:
    """Take a part of each label's weight and spread it over the classes.

    Out = (1 - epsilon) label + epsilon prior_dist

    Args:
        label: [batch, ..., classes] float32 or float64 probabilities, such as one_hot makes.
        prior_dist: [1, classes] or the shape of label, weights that sum to 1; 1 / classes each when None.
        epsilon: part that is spread, from 0 to 1.
        dtype: element type of the output.
        name: prefix of the output's name.

    Returns:
        Shape of label.

    Raises:
        PeError: label is no float, its number of classes is not known, epsilon is not from 0 to 1, or shapes do not fit.

    Source:
        fluid.layers.label_smooth; Szegedy et al. 2016, section 7.
    """
    helper = LayerHelper("label_smooth", name)
    _check_share(helper, epsilon)
    if not label.dtype.startswith("float"):
        hint = "put a layer of type one_hot before it, or use smoothed_cross_entropy with class numbers"
        raise helper.error(f"label_smooth: label must be float32 or float64, got {label.type}", hint=hint)
    if prior_dist is None and (not label.shape or label.shape[-1] < 1):
        hint = "declare the feed with its sizes, or give prior_dist"
        raise helper.error(f"label_smooth: how many classes {label.type} has is not known", hint=hint)
    # Uniform smoothing adds one number everywhere, which `scale` does without a tensor of the classes' size.
    spread = epsilon / label.shape[-1] if prior_dist is None else 0.0
    out = helper.one("scale", {"X": label}, {"scale": 1.0 - epsilon, "bias": spread})
    if prior_dist is not None:
        weighed = helper.one("scale", {"X": prior_dist}, {"scale": epsilon})
        out = helper.one("elementwise_add", {"X": out, "Y": weighed})
    return out if out.dtype == dtype else helper.one("cast", {"X": out}, {"out_dtype": dtype})


@layer
def smoothed_cross_entropy(logits: Variable, label: Variable, epsilon: float = 0.1, name: str | None = None) -> Variable:
    """Measure how unlikely the label is under the softmax of logits, where a part of its weight is spread over all classes.

    Out[i] = -(1 - epsilon) ln p[i, label[i]] - epsilon / classes sum_j ln p[i, j],  p = softmax(logits)

    Args:
        logits: [..., classes] float32 or float64, in nats.
        label: [..., 1] int64 classes; -100 gives a loss of 0.
        epsilon: part that is spread, from 0 to 1; 0 is softmax_with_cross_entropy.
        name: prefix of the output's name.

    Returns:
        [..., 1] loss, in nats.

    Raises:
        PeError: epsilon is not from 0 to 1, or shapes or dtypes do not fit.

    Source:
        Szegedy et al. 2016, section 7; torch.nn.functional.cross_entropy with label_smoothing.
    """
    helper = LayerHelper("smoothed_cross_entropy", name)
    _check_share(helper, epsilon)
    loss = _entropy(helper, logits, label)
    if epsilon == 0:
        return loss
    log = helper.one("log_softmax", {"X": logits})
    spread = helper.one("reduce_mean", {"X": log}, {"dim": [-1], "keep_dim": True})
    # An ignored label spreads nothing either; a selection keeps out even what is infinite.
    ignored = helper.one("fill_like", {"X": label}, {"value": float(IGNORE.default)})
    nothing = helper.one("fill_like", {"X": spread}, {"value": 0.0})
    spread = helper.one("select", {"Condition": helper.one("not_equal", {"X": label, "Y": ignored}), "X": spread, "Y": nothing})
    parts = [helper.one("scale", {"X": v}, {"scale": s}) for v, s in ((loss, 1.0 - epsilon), (spread, -epsilon))]
    return helper.one("elementwise_add", {"X": parts[0], "Y": parts[1]})


@layer
def focal_loss(logits: Variable, label: Variable, gamma: float = 2.0, name: str | None = None) -> Variable:
    """Measure how unlikely the label is under the softmax of logits, and let samples that are easy count little.

    Out[i] = -(1 - p)^gamma ln p,  p = softmax(logits)[i, label[i]]

    Args:
        logits: [..., classes] float32 or float64, in nats.
        label: [..., 1] int64 classes.
        gamma: how little; 0 is softmax_with_cross_entropy, else at least 1.
        name: prefix of the output's name.

    Returns:
        [..., 1] loss, in nats.

    Raises:
        PeError: gamma is below 0, or between 0 and 1, where the gradient has no bound; shapes or dtypes do not fit.

    Source:
        Lin et al. 2017, eq. 4.
    """
    helper = LayerHelper("focal_loss", name)
    _check_gamma(helper, gamma)
    loss = _entropy(helper, logits, label)
    if gamma == 0:
        return loss
    negative = helper.one("scale", {"X": loss}, {"scale": -1.0})
    # p is exp(-loss): the op before has the stable form, so no second softmax is needed.
    likely = helper.one("exp", {"X": negative})
    away = helper.one("relu", {"X": helper.one("scale", {"X": likely}, {"scale": -1.0, "bias": 1.0})})  # rounding may make it -1e-8
    return helper.one("elementwise_mul", {"X": helper.one("pow", {"X": away}, {"factor": gamma}), "Y": loss})


@layer
def binary_focal_loss(
    x: Variable, label: Variable, alpha: float | None = 0.25, gamma: float = 2.0, name: str | None = None
) -> Variable:
    """Measure how unlikely each of several independent yes-or-no labels is, and let those that are easy count little.

    Out = a (1 - p)^gamma e,  e = sigmoid_cross_entropy_with_logits(x, label),  1 - p = label + s - 2 label s,  s = sigmoid(x),
    a = alpha label + (1 - alpha) (1 - label)

    Args:
        x: [batch, classes] logits, in nats.
        label: shape and dtype of x, 0 or 1.
        alpha: weight of labels that are 1, from 0 to 1; that of the others is 1 - alpha; None weighs all alike.
        gamma: how little; 0, else at least 1.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of x, in nats.

    Raises:
        PeError: alpha is not from 0 to 1, gamma is below 0 or between 0 and 1, or shapes or dtypes differ.

    Source:
        Lin et al. 2017, eq. 5; torchvision.ops.sigmoid_focal_loss.
    """
    helper = LayerHelper("binary_focal_loss", name)
    _check_gamma(helper, gamma)
    if alpha is not None and not 0 <= alpha <= 1:
        raise helper.error(f"binary_focal_loss: alpha must be from 0 to 1, got {alpha:g}")
    loss = helper.one("sigmoid_cross_entropy_with_logits", {"X": x, "Label": label})
    if gamma:
        s = helper.one("sigmoid", {"X": x})
        # 1 - p where the label is 1, p where it is 0: label + s - 2 label s is both without a branch.
        both = helper.one("scale", {"X": helper.one("elementwise_mul", {"X": label, "Y": s})}, {"scale": 2.0})
        away = helper.one("elementwise_sub", {"X": helper.one("elementwise_add", {"X": label, "Y": s}), "Y": both})
        weight = helper.one("pow", {"X": helper.one("relu", {"X": away})}, {"factor": gamma})
        loss = helper.one("elementwise_mul", {"X": loss, "Y": weight})
    if alpha is None:
        return loss
    # alpha where the label is 1 and 1 - alpha where it is 0, without a branch.
    factor = helper.one("scale", {"X": label}, {"scale": 2 * alpha - 1, "bias": 1 - alpha})
    return helper.one("elementwise_mul", {"X": loss, "Y": factor})


@layer(answers=False)
def sigmoid_focal_loss(x: Variable, label: Variable, fg_num: Variable, gamma: float = 2.0, alpha: float = 0.25) -> Variable:
    """Measure every class of every box by itself, with less weight on what is clear already; divided by the boxes with an object.

    Out[i, c] = alpha_t (1 - p_t)^gamma (-ln p_t) / max(fg_num, 1): p_t = sigmoid(x[i, c]) and alpha_t = alpha where label[i] = c + 1,
    else p_t = 1 - sigmoid(x[i, c]) and alpha_t = 1 - alpha

    Args:
        x: [boxes, classes] logits.
        label: [boxes, 1] int32 or int64: classes from 1 on, 0 for background, -1 for a box that does not count.
        fg_num: [1], how many boxes have an object; any number type.
        gamma: how fast the weight of clear boxes falls, at least 0, no unit.
        alpha: weight of the label's class against the others, from 0 to 1.

    Returns:
        Shape and dtype of x, in nats.

    Raises:
        PeError: gamma below 0, alpha out of range, or shapes do not fit; in a step, a label out of range.

    Source:
        fluid.layers.sigmoid_focal_loss; Lin et al. 2017, eq. 5.
    """
    helper = LayerHelper("sigmoid_focal_loss")
    helper.check_rank(x, "x", 2, "[boxes, classes]")
    if gamma < 0 or not 0 <= alpha <= 1 or x.shape[1] < 1:
        text = f"sigmoid_focal_loss: gamma is {gamma:g}, alpha {alpha:g}, and x {x}"
        raise helper.error(text, hint="gamma at least 0, alpha from 0 to 1, and a known number of classes")
    numbers = label if label.dtype == "int64" else helper.one("cast", {"X": label}, {"out_dtype": "int64"})
    none = helper.one("fill_constant", {}, {"shape": [1], "dtype": "int64", "value": -1.0})
    # -1 marks boxes that do not count; their row is computed as the background and then weighed with 0.
    counts = helper.one("not_equal", {"X": numbers, "Y": none})
    numbers = helper.one("elementwise_mul", {"X": numbers, "Y": helper.one("cast", {"X": counts}, {"out_dtype": "int64"})})
    # One class more, the background, whose column is cut off again: an object of class c is column c - 1.
    rows = helper.one("one_hot", {"X": numbers}, {"depth": x.shape[1] + 1})
    target = helper.one("slice", {"Input": rows}, {"axes": [1], "starts": [1], "ends": [x.shape[1] + 1]})
    if target.dtype != x.dtype:
        target = helper.one("cast", {"X": target}, {"out_dtype": x.dtype})
    entropy = helper.one("sigmoid_cross_entropy_with_logits", {"X": x, "Label": target})
    # 1 - p_t is the distance of the probability from its target, of either class.
    away = helper.one("abs", {"X": helper.one("elementwise_sub", {"X": target, "Y": helper.one("sigmoid", {"X": x})})})
    weight = helper.one("scale", {"X": target}, {"scale": 2 * alpha - 1, "bias": 1 - alpha})
    weight = helper.one("elementwise_mul", {"X": weight, "Y": helper.one("cast", {"X": counts}, {"out_dtype": x.dtype})})
    loss = helper.one("elementwise_mul", {"X": entropy, "Y": helper.one("pow", {"X": away}, {"factor": gamma})})
    # A batch without objects divides by 1: its background still counts.
    one = helper.one("fill_constant", {}, {"shape": [1], "dtype": x.dtype, "value": 1.0})
    count = helper.one("elementwise_max", {"X": helper.one("cast", {"X": fg_num}, {"out_dtype": x.dtype}), "Y": one})
    return helper.one("elementwise_div", {"X": helper.one("elementwise_mul", {"X": loss, "Y": weight}), "Y": count})


@layer
def dice_loss(input: Variable, label: Variable, epsilon: float = 1e-5) -> Variable:
    """Measure how little the probabilities of classes and the labels overlap, the mean over the samples.

    Out = mean_i (1 - 2 sum input[i] y[i] / (sum input[i] + sum y[i] + epsilon)),  y = one_hot(label)

    Args:
        input: [batch, ..., classes] probabilities.
        label: [batch, ..., 1] int64 or int32 classes.
        epsilon: keeps the quotient finite.

    Returns:
        [1], from 0 to 1.

    Raises:
        PeError: shapes or dtypes do not fit; in a step, a label out of range.

    Source:
        fluid.layers.dice_loss; Milletari et al. 2016.
    """
    helper = LayerHelper("dice_loss")
    if label.dtype == "int32":
        label = helper.one("cast", {"X": label}, {"out_dtype": "int64"})
    right = helper.one("one_hot", {"X": label}, {"depth": input.shape[-1]})
    if right.dtype != input.dtype:
        right = helper.one("cast", {"X": right}, {"out_dtype": input.dtype})
    # All axes of a sample together, its classes among them: one quotient for a sample and not one for each class, as in the original.
    axes = {"dim": list(range(1, len(input.shape)))}
    both = helper.one("reduce_sum", {"X": helper.one("elementwise_mul", {"X": input, "Y": right})}, axes)
    sizes = [helper.one("reduce_sum", {"X": v}, axes) for v in (input, right)]
    total = helper.one("scale", {"X": helper.one("elementwise_add", {"X": sizes[0], "Y": sizes[1]})}, {"bias": epsilon})
    overlap = helper.one("elementwise_div", {"X": helper.one("scale", {"X": both}, {"scale": 2.0}), "Y": total})
    return helper.one("mean", {"X": helper.one("scale", {"X": overlap}, {"scale": -1.0, "bias": 1.0})})


def _entropy(helper: LayerHelper, logits: Variable, label: Variable) -> Variable:
    return helper.op("softmax_with_cross_entropy", {"Logits": logits, "Label": label}, {}, ("Softmax", "Loss"))[1]


def _check_share(helper: LayerHelper, epsilon: float) -> None:
    if not 0 <= epsilon <= 1:
        raise helper.error(f"{helper.layer_type}: epsilon must be from 0 to 1, got {epsilon:g}")


def _check_gamma(helper: LayerHelper, gamma: float) -> None:
    if gamma != 0 and not gamma >= 1:
        hint = "below 1 the gradient of a certain hit has no bound"
        raise helper.error(f"{helper.layer_type}: gamma must be 0 or at least 1, got {gamma:g}", hint=hint)
