"""Transposed convolution of volumes."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper, several
from pe_cli.layers.define.registry import layer
from pe_cli.layers.nn.conv2d_transpose import append_transposed, image_axes, image_size
from pe_cli.layers.nn.conv3d import FIRST, LAST, volume_channels
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def conv3d_transpose(
    input: Variable,
    num_filters: int,
    output_size: int | list[int] | None = None,
    filter_size: int | list[int] | None = None,
    padding: int | list[int] | str = 0,
    stride: int | list[int] = 1,
    dilation: int | list[int] = 1,
    groups: int | None = None,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | bool | None = None,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCDHW",
) -> Variable:
    """Convolve volumes the other way round: every element is spread over the output by learned filters.

    Out[b, f, stride i + dilation u - padding, ...] = act(bias[f] + sum over c, i, u of input[b, c, i, ...] W[c, f, u, ...])

    Args:
        input: [batch, channels, depth, height, width], or channels last with NDHWC; all known but the batch.
        num_filters: output channels.
        output_size: of the output, where a stride leaves several; one number or [depth, height, width].
        filter_size: one number or [depth, height, width]; what output_size asks for when absent.
        padding: positions that are cut off: of every side, for [depth, height, width], [front, behind, above, below, left, right],
            SAME (dilation counts as 1) or VALID.
        stride: positions of the output between those of two elements of the input.
        dilation: positions between filter taps.
        groups: parts that channels are split into; 1 by default.
        param_attr: of W, [channels, num_filters / groups, depth, height, width].
        bias_attr: of the bias, [num_filters]; 0 by default; False for none.
        act: name of an activation, or None.
        name: prefix of the names of the parameters.
        data_format: NCDHW or NDHWC.

    Returns:
        Volumes of num_filters channels, (size - 1) stride - padding of both sides + dilation (filter - 1) + 1 positions a side, or
        output_size.

    Raises:
        PeError: sizes that do not fit or are not known.

    Source:
        fluid.layers.conv3d_transpose.
    """
    helper = LayerHelper("conv3d_transpose", name)
    count, parts = volume_channels(helper, input, data_format), 1 if groups is None else groups
    if parts < 1 or num_filters < 1 or count % parts or num_filters % parts:
        text = f"conv3d_transpose: {count} channels and {num_filters} filters, which {parts} groups do not divide"
        raise helper.error(text, hint="change groups")
    axes = image_axes(helper, input, output_size, padding, stride, dilation, data_format, filter_size)
    if filter_size is None and output_size is None:
        raise helper.error("conv3d_transpose: filter_size is missing", hint="give filter_size, or output_size")
    taps = [a.taps() for a in axes] if filter_size is None else several("conv3d_transpose", "filter_size", filter_size, 1, 3)
    sizes = [image_size(helper, a, k) for a, k in zip(axes, taps, strict=True)]
    weight = helper.parameter(param_attr, (count, num_filters // parts, *taps), input.dtype)
    x = input if data_format == "NCDHW" else helper.one("transpose", {"X": input}, {"axis": FIRST})
    # The bias is added channels first, where it has the same axis whatever the layout of the result.
    out = helper.add_bias(append_transposed(helper, x, weight, axes, sizes, parts), bias_attr, axis=1, end=2)
    if data_format == "NDHWC":
        out = helper.one("transpose", {"X": out}, {"axis": LAST})
    return helper.activate(out, act)
