"""Normalisation within a sample: group_norm, instance_norm, lrn; and inplace_abn, a batch_norm with its activation."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.nn.norm import batch_norm
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def group_norm(
    input: Variable,
    groups: int,
    epsilon: float = 1e-5,
    param_attr: ParamAttr | bool | None = None,
    bias_attr: ParamAttr | bool | None = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Normalise every group of channels of every sample.

    Out = act(gain (input - mean) / sqrt(variance + epsilon) + bias), with mean and variance over a group's channels and pixels

    Args:
        input: [batch, channels, ...], or channels last with NHWC.
        groups: how many groups of channels there are; they divide the channels.
        epsilon: added to the variance.
        param_attr: of the gain, [channels]; 1 by default; false for none.
        bias_attr: of the bias, [channels]; 0 by default; false for none.
        act: name of an activation, or None.
        data_layout: NCHW or NHWC.
        name: prefix of the names of the parameters.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: the groups do not divide the channels, whose number must be known, or an unknown layout.

    Source:
        fluid.layers.group_norm; Wu and He 2018, eq. 7.
    """
    helper = LayerHelper("group_norm", name)
    if data_layout not in ("NCHW", "NHWC"):
        raise helper.error(f"group_norm: data_layout is {data_layout!r}", hint="NCHW or NHWC")
    last = len(input.shape) - 1
    if last < 1:
        raise helper.error(f"group_norm needs [batch, channels, ...], got {input}")
    channels = input.shape[last if data_layout == "NHWC" else 1]
    if groups < 1 or channels < 1 or channels % groups:
        raise helper.error(f"group_norm: {groups} groups of the {channels} channels of {input}", hint="give a divisor of the channels")
    x = input
    if data_layout == "NHWC":
        x = helper.one("transpose", {"X": x}, {"axis": [0, last, *range(1, last)]})
    out = _normalised(helper, x, groups, epsilon, param_attr, bias_attr)
    if data_layout == "NHWC":
        out = helper.one("transpose", {"X": out}, {"axis": [0, *range(2, last + 1), 1]})
    return helper.activate(out, act)


def _normalised(
    helper: LayerHelper, x: Variable, groups: int, epsilon: float, param_attr: ParamAttr | bool | None, bias_attr: ParamAttr | bool | None
) -> Variable:
    """Append a group_norm with a gain and a bias per channel; False leaves one out."""
    gain = None if param_attr is False else helper.parameter(param_attr, x.shape[1:2], x.dtype, default=Constant(1.0))
    bias = None if bias_attr is False else helper.parameter(bias_attr, x.shape[1:2], x.dtype, is_bias=True)
    attrs = {"groups": groups, "epsilon": epsilon}
    out, *_ = helper.op("group_norm", {"X": x, "Scale": gain, "Bias": bias}, attrs, ("Y", "Mean", "Variance"))
    return out


@layer
def instance_norm(
    input: Variable,
    epsilon: float = 1e-5,
    param_attr: ParamAttr | bool | None = None,
    bias_attr: ParamAttr | bool | None = None,
    name: str | None = None,
) -> Variable:
    """Normalise every channel of every sample.

    Out = gain (input - mean) / sqrt(variance + epsilon) + bias, with mean and variance over a channel's pixels

    Args:
        input: [batch, channels, ...].
        epsilon: added to the variance.
        param_attr: of the gain, [channels]; 1 by default; false for none.
        bias_attr: of the bias, [channels]; 0 by default; false for none.
        name: prefix of the names of the parameters.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: fewer than two axes, or channels that are not known.

    Source:
        fluid.layers.instance_norm; Ulyanov, Vedaldi and Lempitsky 2016, eq. 4.
    """
    helper = LayerHelper("instance_norm", name)
    if len(input.shape) < 2 or input.shape[1] < 1:
        raise helper.error(f"instance_norm needs [batch, channels, ...] of known channels, got {input}")
    # An instance is a group of one channel.
    return _normalised(helper, input, input.shape[1], epsilon, param_attr, bias_attr)


@layer
def inplace_abn(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
    act_alpha: float = 1.0,
) -> Variable:
    """Normalise every channel over the batch, then activate: batch_norm and its activation in one layer.

    What shares memory the plan decides, as for every other layer.

    Args:
        input: [batch, channels], or images; channels last with NHWC.
        act: name of an activation, identity, or None.
        is_test: use the moving mean and variance; `clone(for_test=True)` sets it.
        momentum: weight of the old moving values, no unit.
        epsilon: added to the variance.
        param_attr: of scale, [channels]; 1 by default.
        bias_attr: of bias, [channels]; 0 by default.
        data_layout: NCHW or NHWC.
        name: prefix of the names of the parameters.
        moving_mean_name: of the moving mean, [channels].
        moving_variance_name: of the moving variance, [channels].
        do_model_average_for_mean_and_var: the moving values take part in model averaging.
        use_global_stats: use the moving values in training too.
        act_alpha: alpha of leaky_relu or elu; other activations have none.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: an unknown layout or activation, an act_alpha for another activation, or channels that are not known.

    Source:
        fluid.layers.inplace_abn; Rota Bulo, Porzi and Kontschieder 2018, algorithm 1.
    """
    helper = LayerHelper("inplace_abn", name)
    if act_alpha != 1.0 and act not in ("leaky_relu", "elu"):
        raise helper.error(f"inplace_abn: act_alpha is {act_alpha:g}, but act is {act!r}", hint="leaky_relu or elu")
    # The inner layer takes this one's name, whether given or made, so that its parameters are found under it.
    out = batch_norm(
        input, None, is_test, momentum, epsilon, param_attr, bias_attr, data_layout, helper.name, moving_mean_name,
        moving_variance_name, do_model_average_for_mean_and_var, use_global_stats,
    )  # fmt: skip
    if act in ("leaky_relu", "elu"):
        return helper.one(act, {"X": out}, {"alpha": act_alpha})
    return helper.activate(out, None if act == "identity" else act)


@layer
def lrn(
    input: Variable,
    n: int = 5,
    k: float = 1.0,
    alpha: float = 1e-4,
    beta: float = 0.75,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Divide every element by the squares of neighbouring channels.

    Out = input / (k + alpha sum input^2)^beta, the sum over n channels around the element's own

    Args:
        input: [batch, channels, height, width], or channels last with NHWC.
        n: channels that are summed over, at least 1; of an even n there is one more behind than before.
        k: keeps the divisor away from 0.
        alpha: weight of the sum.
        beta: exponent.
        name: prefix of the output's name.
        data_format: NCHW or NHWC.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: no images, an unknown layout, channels that are not known, or an n below 1.

    Source:
        fluid.layers.lrn; Krizhevsky, Sutskever and Hinton 2012, section 3.3.
    """
    helper = LayerHelper("lrn", name)
    helper.check_rank(input, "the input", 4, "[batch, channels, height, width]")
    if data_format not in ("NCHW", "NHWC"):
        raise helper.error(f"lrn: data_format is {data_format!r}", hint="NCHW or NHWC")
    axis = 1 if data_format == "NCHW" else 3
    count = input.shape[axis]
    if n < 1 or count < 1:
        raise helper.error(f"lrn: n is {n}, and the input {input}", hint="n at least 1, and channels that are known")
    # A window of an even number of channels has one more behind than before.
    before = (n - 1) // 2
    paddings = [0] * 8
    paddings[2 * axis : 2 * axis + 2] = [before, n - 1 - before]
    padded = helper.one("pad", {"X": helper.one("square", {"X": input})}, {"paddings": paddings})
    parts = [helper.one("slice", {"Input": padded}, {"axes": [axis], "starts": [i], "ends": [i + count]}) for i in range(n)]
    # alpha weighs the sum, not the mean: PyTorch and ONNX divide it by n first, as Krizhevsky et al. do not.
    divisor = helper.one("scale", {"X": helper.one("sum", {"X": parts})}, {"scale": alpha, "bias": k})
    return helper.one("elementwise_mul", {"X": input, "Y": helper.one("pow", {"X": divisor}, {"factor": -beta})})
