"""Image layers: conv2d (depthwise by groups) and pool2d."""

from __future__ import annotations

import math

from pe_cli.layers.define.helper import LayerHelper, pair
from pe_cli.layers.define.registry import layer
from pe_cli.layers.nn.padding import LOWEST, edges, is_even, is_same, padded
from pe_cli.program.initializer import Normal
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


def channels(helper: LayerHelper, x: Variable, data_format: str) -> int:
    """Return the size of the channel axis of images.

    Raises:
        PeError: an unknown format, not four axes, or a size that is not known.
    """
    if data_format not in ("NCHW", "NHWC"):
        raise helper.error(f"{helper.layer_type}: data_format is {data_format!r}", hint="NCHW or NHWC")
    axes = "[batch, channels, height, width]" if data_format == "NCHW" else "[batch, height, width, channels]"
    helper.check_rank(x, "the input", 4, axes)
    size = x.shape[1 if data_format == "NCHW" else 3]
    if size < 1:
        raise helper.error(f"{helper.layer_type}: the number of channels of {x} is not known")
    return size


@layer
def conv2d(
    input: Variable,
    num_filters: int,
    filter_size: int | list[int],
    stride: int | list[int] = 1,
    padding: int | list[int] | str = 0,
    dilation: int | list[int] = 1,
    groups: int | None = None,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | bool | None = None,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Convolve images with learned filters (a cross-correlation, as usual).

    Out[b, f, i, j] = act(bias[f] + sum_{c, u, v} input[b, c, stride i + dilation u - padding, ...] W[f, c, u, v])

    Args:
        input: [batch, channels, height, width], or channels last with NHWC.
        num_filters: output channels.
        filter_size: pixels, one number or [height, width].
        stride: pixels between outputs.
        padding: zeros, pixels: on every side, [height, width], [above, below, left, right], SAME (with stride 1, images keep their
            size; dilation counts as 1) or VALID (none).
        dilation: pixels between filter taps.
        groups: parts that channels are split into; as many as input channels makes it depthwise. 1 by default.
        param_attr: of W, [num_filters, channels / groups, height, width]; by default normal with variance
            2 / (channels * height * width).
        bias_attr: of the bias, [num_filters]; 0 by default; False for none.
        act: name of an activation, or None.
        name: prefix of the names of the parameters.
        data_format: NCHW or NHWC.

    Returns:
        Images of num_filters channels, (size + padding of both sides - dilation (filter - 1) - 1) // stride + 1 pixels a side.

    Raises:
        PeError: sizes that do not fit.

    Source:
        fluid.layers.conv2d.
    """
    helper = LayerHelper("conv2d", name)
    size = channels(helper, input, data_format)
    parts = 1 if groups is None else groups
    for what, count in (("the input's channels", size), ("num_filters", num_filters)):
        if count < 1 or parts < 1:
            wrong = f"{what} is {count}" if count < 1 else f"groups is {parts}"
            raise helper.error(f"conv2d: {wrong}, it must be at least 1")
        if count % parts:
            raise helper.error(f"conv2d: {what} is {count}, which {parts} groups do not divide", hint="change groups")
    taps = pair("conv2d", "filter_size", filter_size, 1)
    # He et al. 2015, by the taps and channels that an output sees; groups are not divided out, as in the original.
    default = Normal(0.0, math.sqrt(2.0 / (taps[0] * taps[1] * size)))
    weight = helper.parameter(param_attr, (num_filters, size // parts, *taps), input.dtype, default=default)
    around = edges("conv2d", padding, input, taps, stride, data_format)
    # Ops pad both sides alike: uneven padding becomes a layer of its own in front.
    if not is_even(around):
        input, around = padded(helper, input, around, data_format), [0] * 4
    attrs = {
        "strides": pair("conv2d", "stride", stride, 1),
        "paddings": around[::2],
        # SAME forgets dilation in the original, for the padding and for the filter: taps are neighbours then.
        "dilations": pair("conv2d", "dilation", 1 if is_same(padding) else dilation, 1),
        "groups": parts,
        "data_format": data_format,
    }
    kind = "depthwise_conv2d" if parts == size > 1 else "conv2d"
    # One channel and one group is a plain convolution; only several groups of one channel each are depthwise.
    out = helper.one(kind, {"Input": input, "Filter": weight}, attrs, "Output")
    axis = 1 if data_format == "NCHW" else 3
    return helper.activate(helper.add_bias(out, bias_attr, axis=axis, end=axis + 1), act)


@layer
def pool2d(
    input: Variable,
    pool_size: int | list[int] = -1,
    pool_type: str = "max",
    pool_stride: int | list[int] = 1,
    pool_padding: int | list[int] | str = 0,
    global_pooling: bool = False,
    ceil_mode: bool = False,
    exclusive: bool = True,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Take the largest or the average value of windows of an image.

    Args:
        input: [batch, channels, height, width], or channels last with NHWC.
        pool_size: pixels of a window, one number or [height, width]; needed unless global_pooling.
        pool_type: max or avg.
        pool_stride: pixels between windows.
        pool_padding: pixels: on every side, [height, width], [above, below, left, right], SAME (with stride 1, images keep their size)
            or VALID (none).
        global_pooling: one window over the whole image.
        ceil_mode: round the number of windows up instead of down.
        exclusive: an average counts the pixels of the image only, not the padding.
        name: prefix of the output's name.
        data_format: NCHW or NHWC.

    Returns:
        Images of as many channels, (size + padding of both sides - pool_size) // stride + 1 pixels a side.

    Raises:
        PeError: sizes that do not fit, or an unknown pool_type.

    Source:
        fluid.layers.pool2d.
    """
    helper = LayerHelper("pool2d", name)
    channels(helper, input, data_format)
    if pool_type not in ("max", "avg"):
        raise helper.error(f"pool2d: pool_type is {pool_type!r}", hint="max or avg")
    if not global_pooling and pool_size == -1:
        raise helper.error("pool2d: pool_size is missing", hint="give pool_size, or set global_pooling: true")
    around = [0] * 4 if global_pooling else edges("pool2d", pool_padding, input, pool_size, pool_stride, data_format, "pool_padding")
    attrs = {
        "pooling_type": pool_type,
        # With global_pooling the op takes the image's size for its window and leaves ksize and paddings unread.
        "ksize": [1, 1] if global_pooling else pair("pool2d", "pool_size", pool_size, 1),
        "strides": pair("pool2d", "pool_stride", pool_stride, 1),
        "paddings": around[::2],
        "global_pooling": global_pooling,
        "ceil_mode": ceil_mode,
        "exclusive": exclusive,
        "data_format": data_format,
    }
    if is_even(around):
        return helper.one("pool2d", {"X": input}, attrs)
    # Padded beforehand, so that the op adds none and counts all it sees; what padding is worth depends on the kind.
    attrs |= {"paddings": [0, 0], "exclusive": False}

    def pooled(images: Variable, border: float) -> Variable:
        return helper.one("pool2d", {"X": padded(helper, images, around, data_format, border)}, attrs)

    if pool_type == "max":
        return pooled(input, LOWEST)
    if not exclusive:
        return pooled(input, 0.0)
    # An average over what is inside: sums of the pixels over sums of ones in the same windows.
    ones = helper.one("scale", {"X": input}, {"scale": 0.0, "bias": 1.0})
    return helper.one("elementwise_div", {"X": pooled(input, 0.0), "Y": pooled(ones, 0.0)}, {"axis": -1})
