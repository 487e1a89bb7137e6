"""Activations composed of others or with parameters: selu, prelu, maxout."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import same_axis, sizes_for
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr

#: Of selu: with these, numbers of mean 0 and variance 1 keep both.
SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772


@layer
def selu(x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None) -> Variable:
    """Let numbers above 0 through, scaled, and let those below run out at a level, so that mean and variance settle.

    Out = scale x where x > 0, else scale alpha (exp(x) - 1)

    Args:
        x: any shape, float32 or float64.
        scale: factor on both sides; null for 1.0507009873554805.
        alpha: the level that numbers below 0 run out at is -scale alpha; null for 1.6732632423543772.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of x.

    Source:
        fluid.layers.selu; Klambauer et al. 2017, eq. 2.
    """
    helper = LayerHelper("selu", name)
    curved = helper.one("elu", {"X": x}, {"alpha": ALPHA if alpha is None else alpha})
    return helper.one("scale", {"X": curved}, {"scale": SCALE if scale is None else scale})


@layer
def prelu(x: Variable, mode: str, param_attr: ParamAttr | None = None, name: str | None = None) -> Variable:
    """Let numbers above 0 through, and multiply those below by a slope that is learned.

    Out = x where x > 0, else slope x

    Args:
        x: [batch, channels, ...].
        mode: all for one slope, channel for one per channel, element for one per element of a sample.
        param_attr: of the slopes: [1], [1, channels, 1, 1] whatever the rank of x, or [1, *sizes of a sample]; 0.25 by default.
        name: prefix of the name of the slopes.

    Returns:
        Shape and dtype of x.

    Raises:
        PeError: another mode, sizes that are not known, or mode channel for an x without channels.

    Source:
        fluid.layers.prelu; He et al. 2015, eq. 1.
    """
    helper = LayerHelper("prelu", name)
    rank = len(x.shape)
    shapes = {"all": [1], "channel": [1, *x.shape[1:2], 1, 1], "element": [1, *x.shape[1:]]}
    if mode not in shapes:
        raise helper.error(f"prelu: mode is {mode!r}", hint="all, channel or element")
    if mode == "channel" and rank < 2:
        raise helper.error(f"prelu: mode channel needs [batch, channels, ...], got {x}", hint="mode all")
    slope = helper.parameter(param_attr, shapes[mode], x.dtype, default=Constant(0.25))
    # The parameter keeps the original's four axes, so that checkpoints fit; other ranks see it reshaped.
    if mode == "channel" and rank != 4:
        slope = helper.one("reshape", {"X": slope}, {"shape": [1, x.shape[1], *[1] * (rank - 2)]})
    # min(x, 0), written with relu: each half has relu's gradient, and the slope that of the product.
    below = helper.one("scale", {"X": helper.one("relu", {"X": helper.one("scale", {"X": x}, {"scale": -1.0})})}, {"scale": -1.0})
    return helper.one("elementwise_add", {"X": helper.one("relu", {"X": x}), "Y": helper.one("elementwise_mul", {"X": below, "Y": slope})})


@layer
def maxout(x: Variable, groups: int, name: str | None = None, axis: int = 1) -> Variable:
    """Take the largest of every few channels in a row.

    Out[.., c, ..] = max_k x[.., c groups + k, ..], k from 0 to groups - 1

    Args:
        x: [batch, channels, ...].
        groups: channels that one is taken of; they divide the channels.
        name: prefix of the output's name.
        axis: of the channels, not the batch's.

    Returns:
        Sizes of x with channels / groups channels.

    Raises:
        PeError: groups does not divide the channels, there is no such axis, or sizes are not known.

    Source:
        fluid.layers.maxout; Goodfellow et al. 2013, section 3.
    """
    helper = LayerHelper("maxout", name)
    at = same_axis(helper, x, axis)
    channels = x.shape[at]
    if groups < 1 or channels < 1 or channels % groups:
        raise helper.error(f"maxout: {groups} do not divide the {channels} channels of {x}", hint="give a divisor of the channels")
    sizes = sizes_for(helper, x, [*x.shape[:at], channels // groups, groups, *x.shape[at + 1 :]])
    return helper.one("reduce_max", {"X": helper.one("reshape", {"X": x}, {"shape": sizes})}, {"dim": [at + 1]})
