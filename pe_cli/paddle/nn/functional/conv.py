"""Convolutions with given filters by 2.x's arguments; a row is an image of height 1."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper, several
from pe_cli.layers.nn.conv2d_transpose import append_transposed, image_axes, image_size
from pe_cli.layers.nn.conv3d import append_conv3d, volume_channels
from pe_cli.layers.nn.padding import is_same
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers import padding as borders
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.nn.functional.common import channels_first
from pe_cli.paddle.nn.functional.sizes import flat, two


def conv2d(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """Convolve images with given filters.

    Args:
        x: [batch, channels, height, width], or channels last with NHWC.
        weight: [filters, channels / groups, height, width].
        bias: [filters], or None.
        stride: pixels between outputs.
        padding: a number, two, four, SAME, which sets dilation to 1, or VALID.
        dilation: pixels between taps.
        groups: parts that channels are split into.
        data_format: NCHW or NHWC.
        name: prefix of the output's name.
    """
    ensure_defaults()
    first = 2 if channels_first("conv2d", data_format) else 1
    around = borders.sides("conv2d", padding, x, list(weight.shape[2:]), stride, first)
    # SAME goes without dilation, as in the original.
    dilation = 1 if is_same(padding) else dilation
    # The op pads both sides alike; a border that differs is put around the images before.
    if around[0] != around[1] or around[2] != around[3]:
        x, around = call("pad", x, [0] * (2 * first) + around + [0] * (2 * (2 - first))), [0] * 4
    attrs = {
        "strides": two(stride),
        "paddings": [around[0], around[2]],
        "dilations": two(dilation),
        "groups": groups,
        "data_format": data_format,
    }
    # As many groups as channels: each filter sees one channel, which has an op and kernels of its own.
    kind = "depthwise_conv2d" if groups == x.shape[1 if first == 2 else 3] > 1 else "conv2d"
    out = LayerHelper("conv2d", name).one(kind, {"Input": x, "Filter": weight}, attrs, "Output")
    return out if bias is None else call("elementwise_add", out, bias, 1 if first == 2 else 3)


def conv3d(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_format: str = "NCDHW",
    name: str | None = None,
) -> Any:
    """Convolve volumes with given filters [filters, channels / groups, depth, height, width]; see `conv2d`.

    Padding is a number, three, six, SAME (which sets dilation to 1) or VALID.

    Raises:
        FluidValueError: sizes that do not fit or are not known.
    """
    ensure_defaults()
    first, helper = channels_first("conv3d", data_format), LayerHelper("conv3d", name)
    around = borders.sides("conv3d", padding, x, list(weight.shape[2:]), stride, 2 if first else 1)
    dilation = 1 if is_same(padding) else dilation
    with raised_as(FluidValueError):
        size = volume_channels(helper, x, data_format)
        if size != weight.shape[1] * groups or weight.shape[0] % groups:
            text = f"conv3d: {size} channels, {groups} groups and filters of {weight} do not fit"
            raise FluidValueError(text, hint="filters [filters, channels / groups, depth, height, width]")
        x = x if first else call("transpose", x, [0, 4, 1, 2, 3])
        steps, gaps = several("conv3d", "stride", stride, 1, 3), several("conv3d", "dilation", dilation, 1, 3)
        out = append_conv3d(helper, x, weight, steps, around, gaps, groups)
    out = out if bias is None else call("elementwise_add", out, bias, 1)
    return out if first else call("transpose", out, [0, 2, 3, 4, 1])


def conv1d(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_format: str = "NCL",
    name: str | None = None,
) -> Any:
    """Convolve rows with given filters [filters, channels / groups, length]; see `conv2d`."""
    first = channels_first("conv1d", data_format)
    # A row is an image of height 1, and its filters are one tap high.
    high, taps = call("unsqueeze", x, [2 if first else 1]), call("unsqueeze", weight, [2])
    if isinstance(padding, (list, tuple)) and len(padding) == 2:
        around: Any = [0, 0, *padding]
    else:
        around = padding if isinstance(padding, str) else [0, flat(padding)]
    steps = [1, flat(stride)], around, [1, flat(dilation)]
    out = conv2d(high, taps, bias, *steps, groups, "NCHW" if first else "NHWC", name)
    return call("squeeze", out, [2 if first else 1])


def conv2d_transpose(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    output_size: Any = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """Spread every pixel over a window of filters: the gradient of `conv2d` by its images.

    A convolution of the images with zeros between their pixels, by the filters turned around.

    Args:
        x: [batch, channels, height, width] of known height and width, or channels last with NHWC.
        weight: [channels, filters / groups, height, width].
        bias: [filters], or None.
        stride: pixels between the windows.
        padding: pixels that are cut off every side: a number, two or four, SAME (which sets dilation to 1) or VALID.
        output_padding: more pixels below and to the right.
        groups: parts that channels are split into.
        dilation: pixels between taps.
        data_format: NCHW or NHWC.
        output_size: height and width, instead of output_padding.
        name: prefix of the output's name.

    Returns:
        Images of (size - 1) stride - 2 padding + dilation (taps - 1) + 1 + output_padding pixels a side.

    Raises:
        FluidValueError: the size is not known, or no output_padding below the stride gives output_size.
    """
    facts = (stride, padding, output_padding, groups, dilation, output_size)
    return _transposed("conv2d_transpose", x, weight, bias, facts, data_format, name)


def conv3d_transpose(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    output_size: Any = None,
    data_format: str = "NCDHW",
    name: str | None = None,
) -> Any:
    """Spread every element of volumes over a window of filters; see `conv2d_transpose`.

    The weight is [channels, filters / groups, depth, height, width].
    """
    facts = (stride, padding, output_padding, groups, dilation, output_size)
    return _transposed("conv3d_transpose", x, weight, bias, facts, data_format, name)


def _transposed(function: str, x: Any, weight: Any, bias: Any, facts: tuple[Any, ...], data_format: str, name: str | None) -> Any:
    ensure_defaults()
    stride, padding, output_padding, groups, dilation, output_size = facts
    taps, axes_count = list(weight.shape[2:]), len(weight.shape)
    first = channels_first(function, data_format)
    volumes = axes_count == 5
    if volumes and not first:
        x = call("transpose", x, [0, axes_count - 1, *range(1, axes_count - 1)])
    order = "NCHW" if first or volumes else "NHWC"

    def each(value: Any) -> list[int]:
        return [value] * len(taps) if isinstance(value, int) else [int(v) for v in value]

    cut = borders.sides(function, padding, x, taps, stride, 2 if order == "NCHW" else 1)
    gaps = [1] * len(taps) if is_same(padding) else each(dilation)
    helper = LayerHelper(function, name)
    with raised_as(FluidValueError):
        wanted = None if output_size is None else each(output_size)
        axes = image_axes(helper, x, wanted, cut, each(stride), gaps, order)
        sizes = [image_size(helper, axis, tap) for axis, tap in zip(axes, taps, strict=True)]
        if output_size is None:
            sizes = [size + more for size, more in zip(sizes, each(output_padding), strict=True)]
        out = append_transposed(helper, x, weight, axes, sizes, groups, order)
    out = out if bias is None else call("elementwise_add", out, bias, 1 if order == "NCHW" else 3)
    return out if first or not volumes else call("transpose", out, [0, *range(2, axes_count), 1])


def conv1d_transpose(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    output_size: Any = None,
    data_format: str = "NCL",
    name: str | None = None,
) -> Any:
    """Spread every element of rows over a window of filters [channels, filters / groups, length]; see `conv2d_transpose`."""
    axis = 2 if channels_first("conv1d_transpose", data_format) else 1
    high, taps = call("unsqueeze", x, [axis]), call("unsqueeze", weight, [2])
    around: Any = padding if isinstance(padding, str) else [0, flat(padding)]
    if isinstance(padding, (list, tuple)) and len(padding) == 2:
        around = [0, 0, *padding]
    more, wanted = [0, flat(output_padding)], None if output_size is None else [1, flat(output_size)]
    facts = [1, flat(dilation)], groups, wanted, "NCHW" if axis == 2 else "NHWC", name
    return call("squeeze", conv2d_transpose(high, taps, bias, [1, flat(stride)], around, more, *facts), [axis])


__all__ = ["conv1d", "conv1d_transpose", "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose"]
