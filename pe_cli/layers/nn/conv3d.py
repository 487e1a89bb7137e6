"""Convolution of volumes: conv3d."""

from __future__ import annotations

import math

from pe_cli.layers.define.helper import LayerHelper, several
from pe_cli.layers.define.registry import layer
from pe_cli.layers.nn.padding import edges, is_same
from pe_cli.program.initializer import Normal
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr

#: Axes of a volume whose channels are last -> first, and back.
FIRST, LAST = [0, 4, 1, 2, 3], [0, 2, 3, 4, 1]


def volume_channels(helper: LayerHelper, x: Variable, data_format: str) -> int:
    """Return the size of the channel axis of volumes.

    Raises:
        PeError: an unknown format, not five axes, or sizes that are not known.
    """
    if data_format not in ("NCDHW", "NDHWC"):
        raise helper.error(f"{helper.layer_type}: data_format is {data_format!r}", hint="NCDHW or NDHWC")
    first = data_format == "NCDHW"
    axes = "[batch, channels, depth, height, width]" if first else "[batch, depth, height, width, channels]"
    helper.check_rank(x, "the input", 5, axes)
    if min(x.shape[1:]) < 1:
        raise helper.error(f"{helper.layer_type}: the sizes of {x} are not known", hint="declare the feed with its sizes")
    return x.shape[1 if first else 4]


@layer
def conv3d(
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
    data_format: str = "NCDHW",
) -> Variable:
    """Convolve volumes with learned filters (a cross-correlation, as usual).

    Out[b, f, i, j, k] = act(bias[f] + sum over c, t, u, v of input[b, c, stride i + dilation t - padding, ...] W[f, c, t, u, v])

    It is computed as a convolution of images: the slices under a filter are channels of one image.

    Args:
        input: [batch, channels, depth, height, width], or channels last with NDHWC; all known but the batch.
        num_filters: output channels.
        filter_size: one number or [depth, height, width].
        stride: positions between outputs.
        padding: zeros: on every side, for [depth, height, width], [front, behind, above, below, left, right], SAME
            (dilation counts as 1) or VALID.
        dilation: positions between filter taps.
        groups: parts that channels are split into; 1 by default.
        param_attr: of W, [num_filters, channels / groups, depth, height, width]; by default normal with variance
            2 / (channels * depth * height * width).
        bias_attr: of the bias, [num_filters]; 0 by default; False for none.
        act: name of an activation, or None.
        name: prefix of the names of the parameters.
        data_format: NCDHW or NDHWC.

    Returns:
        Volumes of num_filters channels, (size + padding of both sides - dilation (filter - 1) - 1) // stride + 1 positions a side.

    Raises:
        PeError: sizes that do not fit or are not known.

    Source:
        fluid.layers.conv3d.
    """
    helper = LayerHelper("conv3d", name)
    size, parts = volume_channels(helper, input, data_format), 1 if groups is None else groups
    if parts < 1 or num_filters < 1 or size % parts or num_filters % parts:
        text = f"conv3d: {size} channels and {num_filters} filters, which {parts} groups do not divide"
        raise helper.error(text, hint="change groups")
    taps = several("conv3d", "filter_size", filter_size, 1, 3)
    # He et al. 2015, as in conv2d: groups are not divided out here, either.
    default = Normal(0.0, math.sqrt(2.0 / (math.prod(taps) * size)))
    weight = helper.parameter(param_attr, (num_filters, size // parts, *taps), input.dtype, default=default)
    # With channels last everything happens channels first between two transposes, since slices become channels of images.
    x = input if data_format == "NCDHW" else helper.one("transpose", {"X": input}, {"axis": FIRST})
    steps, gaps = several("conv3d", "stride", stride, 1, 3), several("conv3d", "dilation", 1 if is_same(padding) else dilation, 1, 3)
    out = append_conv3d(helper, x, weight, steps, edges("conv3d", padding, input, taps, stride, data_format), gaps, parts)
    out = helper.add_bias(out, bias_attr, axis=1, end=2)
    if data_format == "NDHWC":
        out = helper.one("transpose", {"X": out}, {"axis": LAST})
    return helper.activate(out, act)


def append_conv3d(
    helper: LayerHelper, x: Variable, weight: Variable, strides: list[int], around: list[int], dilations: list[int], parts: int
) -> Variable:
    """Append a convolution of volumes with given filters, as one of images.

    Args:
        helper: of the layer.
        x: [batch, channels, depth, height, width].
        weight: [filters, channels / parts, depth, height, width].
        strides: positions between outputs, of each axis.
        around: zeros in front and behind, above and below, left and right.
        dilations: positions between taps, of each axis.
        parts: groups.

    Returns:
        [batch, filters, depth, height, width].
    """
    filters, seen, *taps = weight.shape
    attrs = {"ksize": taps[0], "stride": strides[0], "paddings": around[:2], "dilation": dilations[0]}
    windows = helper.one("depth_windows", {"X": x}, attrs)
    _, places, count, _, *area = windows.shape
    # Channels of one group stay together: (channel, tap) is cut by groups as channels are.
    images = helper.one("reshape", {"X": windows}, {"shape": [-1, count * taps[0], *area]})
    pads = [around[2], around[4]]
    # The two axes of the image are padded by the convolution where both sides are alike.
    if around[2:4] != pads[:1] * 2 or around[4:] != pads[1:] * 2:
        images = helper.one("pad", {"X": images}, {"paddings": [0, 0, 0, 0, *around[2:]], "pad_value": 0.0})
        pads = [0, 0]
    w = helper.one("reshape", {"X": weight}, {"shape": [filters, seen * taps[0], *taps[1:]]})
    facts = {"strides": strides[1:], "paddings": pads, "dilations": dilations[1:], "groups": parts, "data_format": "NCHW"}
    kind = "depthwise_conv2d" if parts == count * taps[0] > 1 else "conv2d"
    out = helper.one(kind, {"Input": images, "Filter": w}, facts, "Output")
    out = helper.one("reshape", {"X": out}, {"shape": [-1, places, *out.shape[1:]]})
    return helper.one("transpose", {"X": out}, {"axis": [0, 2, 1, 3, 4]})
