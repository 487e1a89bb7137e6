"""Normalisation and regularisation: batch_norm, layer_norm, l2_normalize, dropout."""

from __future__ import annotations

import dataclasses

from pe_cli.core.types import product
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def batch_norm(
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
) -> Variable:
    """Normalise every channel over the batch.

    Out = act(scale (input - mean) / sqrt(variance + epsilon) + bias); moving = momentum moving + (1 - momentum) batch's

    Args:
        input: [batch, channels], or images; channels last with NHWC.
        act: name of an activation, or None.
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

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: an unknown layout, or a number of channels that is not known.

    Source:
        fluid.layers.batch_norm; Ioffe and Szegedy 2015, algorithm 1.
    """
    helper = LayerHelper("batch_norm", name)
    if data_layout not in ("NCHW", "NHWC"):
        raise helper.error(f"batch_norm: data_layout is {data_layout!r}", hint="NCHW or NHWC")
    if len(input.shape) < 2:
        raise helper.error(f"batch_norm needs at least two axes, got {input}")
    shape = (input.shape[1 if data_layout == "NCHW" else -1],)
    scale = helper.parameter(param_attr, shape, input.dtype, default=Constant(1.0))
    bias = helper.parameter(bias_attr, shape, input.dtype, is_bias=True)
    # Statistics are parameters, so that checkpoints and averages have them, but no gradient moves them.
    moving = ParamAttr(trainable=False, do_model_average=do_model_average_for_mean_and_var)
    means = dataclasses.replace(moving, name=moving_mean_name, initializer=Constant(0.0))
    variances = dataclasses.replace(moving, name=moving_variance_name, initializer=Constant(1.0))
    mean = helper.parameter(means, shape, input.dtype)
    variance = helper.parameter(variances, shape, input.dtype)
    attrs = {
        # Weight of the old value, as in the original: PyTorch's momentum is the weight of the new one, 1 less this.
        "momentum": momentum,
        "epsilon": epsilon,
        "is_test": is_test,
        "data_layout": data_layout,
        "use_global_stats": use_global_stats,
    }
    inputs = {"X": input, "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance}
    out, *_ = helper.op(
        "batch_norm", inputs, attrs, ("Y", "SavedMean", "SavedVariance"), {"MeanOut": mean, "VarianceOut": variance}
    # Written where they are read: the next step goes on from there.
    )
    return helper.activate(out, act)


@layer
def layer_norm(
    input: Variable,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-5,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | None = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Normalise every sample over its own elements.

    Out = act(gain (input - mean) / sqrt(variance + epsilon) + bias), with mean and variance over the last axes

    Args:
        input: [batch, ...].
        scale: learn a gain.
        shift: learn a bias.
        begin_norm_axis: first axis that is normalised over, at least 1.
        epsilon: added to the variance.
        param_attr: of the gain, [normalised sizes multiplied]; 1 by default.
        bias_attr: of the bias, of the same shape; 0 by default.
        act: name of an activation, or None.
        name: prefix of the names of the parameters.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: begin_norm_axis is out of range.

    Source:
        fluid.layers.layer_norm; Ba, Kiros and Hinton 2016, eq. 3.
    """
    helper = LayerHelper("layer_norm", name)
    if not 0 < begin_norm_axis < len(input.shape):
        raise helper.error(f"layer_norm: begin_norm_axis is {begin_norm_axis}, but the input is {input}")
    # One axis, as in the original, however many axes are normalised: PyTorch's gain keeps their sizes apart.
    shape = (product(input.shape[begin_norm_axis:]),)
    gain = helper.parameter(param_attr, shape, input.dtype, default=Constant(1.0)) if scale else None
    bias = helper.parameter(bias_attr, shape, input.dtype, is_bias=True) if shift else None
    attrs = {"begin_norm_axis": begin_norm_axis, "epsilon": epsilon}
    out, *_ = helper.op("layer_norm", {"X": input, "Scale": gain, "Bias": bias}, attrs, ("Y", "Mean", "Variance"))
    return helper.activate(out, act)


@layer
def l2_normalize(x: Variable, axis: int, epsilon: float = 1e-12, name: str | None = None) -> Variable:
    """Divide by the length along an axis.

    Out = x / sqrt(sum(x^2) + epsilon)

    Args:
        x: any shape, float32 or float64.
        axis: of the sum.
        epsilon: added to the sum of squares.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of x.

    Raises:
        PeError: x has no such axis.

    Source:
        fluid.layers.l2_normalize.
    """
    helper = LayerHelper("l2_normalize", name)
    squares = helper.one("square", {"X": x})
    total = helper.one("reduce_sum", {"X": squares}, {"dim": [axis], "keep_dim": True})
    # Below the root, as in the original: PyTorch's normalize takes the larger of length and epsilon instead.
    factor = helper.one("rsqrt", {"X": helper.one("scale", {"X": total}, {"bias": epsilon})})
    return helper.one("elementwise_mul", {"X": x, "Y": factor})


@layer
def dropout(
    x: Variable,
    dropout_prob: float,
    is_test: bool = False,
    seed: int | None = None,
    name: str | None = None,
    dropout_implementation: str = "downgrade_in_infer",
) -> Variable:
    """Set elements to zero at random while training.

    downgrade_in_infer: x mask in training, x (1 - dropout_prob) in tests;
    upscale_in_train: x mask / (1 - dropout_prob) in training, x in tests.

    Args:
        x: any shape, float32 or float64.
        dropout_prob: chance of a zero, from 0 to 1.
        is_test: evaluate; `clone(for_test=True)` sets it.
        seed: own seed; None for the program's.
        name: prefix of the output's name.
        dropout_implementation: downgrade_in_infer or upscale_in_train.

    Returns:
        Shape and dtype of x.

    Raises:
        PeError: dropout_prob is not in [0, 1], or an unknown implementation.

    Source:
        fluid.layers.dropout; Srivastava et al. 2014, section 4.
    """
    attrs = {
        "dropout_prob": dropout_prob,
        "is_test": is_test,
        "seed": seed or 0,
        "dropout_implementation": dropout_implementation,
    }
    out, _ = LayerHelper("dropout", name).op("dropout", {"X": x}, attrs, ("Out", "Mask"))
    return out
