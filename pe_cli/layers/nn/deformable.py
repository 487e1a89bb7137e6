"""Layers whose taps or pixels are moved: affine_grid, deformable_conv."""

from __future__ import annotations

import math

from pe_cli.layers.define.helper import LayerHelper, pair
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import Sizes, fed_sizes
from pe_cli.program.initializer import Normal
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def affine_grid(theta: Variable, out_shape: Sizes, name: str | None = None) -> Variable:
    """Compute the place that every pixel of an output image is taken from under an affine map.

    Out[n, h, w] = theta[n] (x, y, 1), x and y from -1 to 1.

    Args:
        theta: [batch, 2, 3].
        out_shape: [batch, channels, height, width] of the image; the batch is theta's.
        name: prefix of the output's name.

    Returns:
        [batch, height, width, 2]: x and y.

    Raises:
        PeError: shapes that do not fit.

    Source:
        fluid.layers.affine_grid.
    """
    helper = LayerHelper("affine_grid", name)
    sizes, fed = fed_sizes(helper, "out_shape", out_shape, 4)
    return helper.one("affine_grid", {"Theta": theta, "OutputShape": fed}, {"output_shape": sizes}, "Output")


@layer
def deformable_conv(
    input: Variable,
    offset: Variable,
    mask: Variable | None,
    num_filters: int,
    filter_size: int | list[int],
    stride: int | list[int] = 1,
    padding: int | list[int] = 0,
    dilation: int | list[int] = 1,
    groups: int | None = None,
    deformable_groups: int | None = None,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | bool | None = None,
    modulated: bool = True,
    name: str | None = None,
) -> Variable:
    """Convolve images with learned filters whose taps are moved by given offsets, at every place of their own.

    Out[b, f, place] = bias[f] + sum_{c, tap} mask[tap, place] input[b, c] at (place + tap + offset[tap, place]) W[f, c, tap]

    Args:
        input: [batch, channels, height, width].
        offset: [batch, deformable_groups * taps * 2, out height, out width], in pixels: down and right.
        mask: [batch, deformable_groups * taps, out height, out width], or null where modulated is false.
        num_filters: output channels.
        filter_size: pixels, one number or [height, width].
        stride: pixels between outputs.
        padding: zeros on every side, pixels.
        dilation: pixels between filter taps.
        groups: parts that channels are split into; 1 by default.
        deformable_groups: parts of the channels with offsets of their own; 1 by default.
        param_attr: of W, [num_filters, channels / groups, height, width]; by default normal with variance
            2 / (channels * height * width).
        bias_attr: of the bias, [num_filters]; 0 by default; False for none.
        modulated: with mask.
        name: prefix of the names of the parameters.

    Returns:
        Images of num_filters channels.

    Raises:
        PeError: sizes that do not fit, or a mask where there should be none.

    Source:
        fluid.layers.deformable_conv; Zhu et al. 2018, eq. 1.
    """
    helper = LayerHelper("deformable_conv", name)
    helper.check_rank(input, "the input", 4, "[batch, channels, height, width]")
    channels, parts = input.shape[1], groups or 1
    if channels < 1 or channels % parts or num_filters % parts:
        raise helper.error(f"deformable_conv: {channels} channels and {num_filters} filters, which {parts} groups do not divide")
    if (mask is not None) != modulated:
        raise helper.error("deformable_conv: a mask goes with modulated, and only with it", hint="give both or neither")
    taps = pair("deformable_conv", "filter_size", filter_size, 1)
    default = Normal(0.0, math.sqrt(2.0 / (taps[0] * taps[1] * channels)))
    weight = helper.parameter(param_attr, (num_filters, channels // parts, *taps), input.dtype, default=default)
    attrs = {
        "ksize": taps,
        "strides": pair("deformable_conv", "stride", stride, 1),
        "paddings": pair("deformable_conv", "padding", padding, 0),
        "dilations": pair("deformable_conv", "dilation", dilation, 1),
        "deformable_groups": deformable_groups or 1,
    }
    # Rows of the columns go by channel, then by tap, as the numbers of a filter do: so the channels of a group are a range of them.
    columns = helper.one("deformable_im2col", {"X": input, "Offset": offset, "Mask": mask}, attrs)
    each, depth = num_filters // parts, channels // parts * taps[0] * taps[1]
    rows = helper.one("reshape", {"X": weight}, {"shape": [num_filters, depth]})
    outs = []
    # A product for each group: filters of one group see its channels alone.
    for part in range(parts):
        cut = {"axes": [0], "starts": [part * each], "ends": [(part + 1) * each]}
        own = helper.one("slice", {"Input": rows}, cut) if parts > 1 else rows
        cut = {"axes": [1], "starts": [part * depth], "ends": [(part + 1) * depth]}
        seen = helper.one("slice", {"Input": columns}, cut) if parts > 1 else columns
        outs.append(helper.one("matmul", {"X": own, "Y": seen}))
    flat = helper.one("concat", {"X": outs}, {"axis": 1}) if parts > 1 else outs[0]
    height, width = offset.shape[2:]
    out = helper.one("reshape", {"X": flat}, {"shape": [-1, num_filters, height, width]})
    return helper.add_bias(out, bias_attr, axis=1, end=2)
