"""Transposed convolution of images: conv2d_transpose."""

from __future__ import annotations

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.layers.define.helper import LayerHelper, pair, several
from pe_cli.layers.define.registry import layer
from pe_cli.layers.nn.conv import channels
from pe_cli.layers.nn.padding import edges, is_same
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@dataclass(frozen=True)
class ImageAxis:
    """One axis of the images.

    Args:
        size: pixels of the input.
        stride, dilation, before, after: of the layer.
        wanted: pixels of the output; None for the least.
    """

    size: int
    stride: int
    dilation: int
    before: int
    after: int
    wanted: int | None

    def taps(self) -> int:
        """Return the filter's pixels where only the output's are given."""
        assert self.wanted is not None
        # `out` solved for the taps and rounded down: the largest filter whose least output is not above what is wanted.
        return (self.wanted - (self.size - 1) * self.stride + self.before + self.after - 1) // self.dilation + 1

    def out(self, taps: int) -> int:
        """Return the least number of pixels of the output."""
        return (self.size - 1) * self.stride - self.before - self.after + self.dilation * (taps - 1) + 1


@layer
def conv2d_transpose(
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
    data_format: str = "NCHW",
) -> Variable:
    """Convolve the other way round: every pixel is spread over the output by learned filters.

    Out[b, f, stride i + dilation u - padding, ...] = act(bias[f] + sum over c, i, u of input[b, c, i, ...] W[c, f, u, ...])

    Args:
        input: [batch, channels, height, width], or channels last with NHWC.
        num_filters: output channels.
        output_size: pixels of the output, where a stride leaves several; one number or [height, width].
        filter_size: pixels, one number or [height, width]; what output_size asks for when absent.
        padding: pixels that are cut off the output: of every side, [height, width], [above, below, left, right], SAME (what
            a convolution with it adds; dilation counts as 1) or VALID (none).
        stride: pixels of the output between those of two pixels of the input.
        dilation: pixels between filter taps.
        groups: parts that channels are split into; 1 by default.
        param_attr: of W, [channels, num_filters / groups, height, width].
        bias_attr: of the bias, [num_filters]; 0 by default; False for none.
        act: name of an activation, or None.
        name: prefix of the names of the parameters.
        data_format: NCHW or NHWC.

    Returns:
        Images of num_filters channels, (size - 1) stride - 2 padding + dilation (filter - 1) + 1 pixels a side, or output_size.

    Raises:
        PeError: sizes that do not fit or are not known.

    Source:
        fluid.layers.conv2d_transpose; Dumoulin and Visin 2016.
    """
    helper = LayerHelper("conv2d_transpose", name)
    count = channels(helper, input, data_format)
    parts = 1 if groups is None else groups
    if parts < 1 or num_filters < 1 or count % parts or num_filters % parts:
        text = f"conv2d_transpose: {count} channels and {num_filters} filters, which {parts} groups do not divide"
        raise helper.error(text, hint="change groups")
    axes = image_axes(helper, input, output_size, padding, stride, dilation, data_format, filter_size)
    if filter_size is None and output_size is None:
        raise helper.error("conv2d_transpose: filter_size is missing", hint="give filter_size, or output_size")
    taps = [a.taps() for a in axes] if filter_size is None else pair("conv2d_transpose", "filter_size", filter_size, 1)
    sizes = [image_size(helper, a, k) for a, k in zip(axes, taps, strict=True)]
    # No initializer of its own: the original leaves transposed convolutions Xavier, unlike its conv2d.
    weight = helper.parameter(param_attr, (count, num_filters // parts, *taps), input.dtype)
    out = append_transposed(helper, input, weight, axes, sizes, parts, data_format)
    axis = 1 if data_format == "NCHW" else 3
    return helper.activate(helper.add_bias(out, bias_attr, axis=axis, end=axis + 1), act)


def append_transposed(
    helper: LayerHelper, x: Variable, weight: Variable, axes: list[ImageAxis], sizes: list[int], parts: int, data_format: str = "NCHW"
) -> Variable:
    """Append a transposed convolution of images or volumes with given filters.

    Args:
        helper: of the layer.
        x: [batch, channels, height, width], or channels last with NHWC, or volumes [batch, channels, depth, height, width].
        weight: [channels, filters / parts, height, width], or with a depth.
        axes: of the images or volumes.
        sizes: pixels of the output, of each; -1 where they are not known.
        parts: groups.
        data_format: of images.

    Returns:
        [batch, filters, *sizes], or channels last.
    """
    taps = weight.shape[2:]
    # A stride maps several output sizes to one input size; what is wanted above the least is added below and right.
    more = [0 if size < 0 else size - a.out(k) for a, k, size in zip(axes, taps, sizes, strict=True)]
    if len(axes) == 3:
        return _append_volumes(helper, x, weight, axes, sizes[0], more, parts)
    return _append_images(helper, x, weight, axes, more, parts, data_format)


def _append_images(
    helper: LayerHelper, x: Variable, weight: Variable, axes: list[ImageAxis], more: list[int], parts: int, data_format: str = "NCHW"
) -> Variable:
    attrs = {
        "strides": [a.stride for a in axes], "paddings": [p for a in axes for p in (a.before, a.after)], "output_padding": more,
        "dilations": [a.dilation for a in axes], "groups": parts, "data_format": data_format,
    }  # fmt: skip
    return helper.one("conv2d_transpose", {"Input": x, "Filter": weight}, attrs, "Output")


def _append_volumes(
    helper: LayerHelper, x: Variable, weight: Variable, axes: list[ImageAxis], depth: int, more: list[int], parts: int
) -> Variable:
    """Spread every slice as an image, with a channel for each slice that it reaches; then add slices up."""
    count, each, taps, *area = weight.shape
    _, _, slices, *sides = x.shape
    # Slices become images of the batch, and what each spreads over the depth becomes channels, which `depth_overlay` adds up.
    x = helper.one("transpose", {"X": x}, {"axis": [0, 2, 1, 3, 4]})
    x = helper.one("reshape", {"X": x}, {"shape": [-1, count, *sides]})
    w = helper.one("reshape", {"X": weight}, {"shape": [count, each * taps, *area]})
    out = _append_images(helper, x, w, axes[1:], more[1:], parts)
    out = helper.one("reshape", {"X": out}, {"shape": [-1, slices, parts * each, taps, *out.shape[2:]]})
    first = axes[0]
    attrs = {"stride": first.stride, "before": first.before, "dilation": first.dilation, "depth": depth}
    return helper.one("depth_overlay", {"X": out}, attrs)


def image_axes(
    helper: LayerHelper,
    x: Variable,
    output_size: int | list[int] | None,
    padding: int | list[int] | str,
    stride: int | list[int],
    dilation: int | list[int],
    data_format: str = "NCHW",
    filter_size: int | list[int] | None = None,
) -> list[ImageAxis]:
    """Return the axes of images or volumes with what a layer says of them; arguments of `conv2d_transpose`.

    Raises:
        PeError: numbers that do not fit, or sizes that are not known.
    """
    kind, count = helper.layer_type, len(x.shape) - 2
    sizes = x.shape[2:] if data_format in ("NCHW", "NCDHW") else x.shape[1:-1]
    if min(sizes) < 1 and (count > 2 or output_size is not None):
        what = "height and width" if count == 2 else "depth, height and width"
        raise helper.error(f"{kind}: {what} of {x} are not known", hint="declare the feed with its sizes")
    each, dilation = edges(kind, padding, x, filter_size, stride, data_format), 1 if is_same(padding) else dilation
    around = zip(each[::2], each[1::2], strict=True)
    wanted = [None] * count if output_size is None else several(kind, "output_size", output_size, 1, count)
    steps, gaps = several(kind, "stride", stride, 1, count), several(kind, "dilation", dilation, 1, count)
    return [
        ImageAxis(size, step, gap, before, after, want)
        for size, step, gap, (before, after), want in zip(sizes, steps, gaps, around, wanted, strict=True)
    ]


def image_size(helper: LayerHelper, axis: ImageAxis, taps: int) -> int:
    """Return the pixels of the output, -1 where they are not known.

    Raises:
        PeError: none is left, or as many as are wanted cannot be.
    """
    if axis.size < 0:
        # The batch's images may differ in size from step to step.
        return -1
    least = axis.out(taps) if taps > 0 else 0
    if least < 1:
        raise helper.error(f"{helper.layer_type}: no pixel is left of {axis.size}", hint="less padding, or a larger filter or output_size")
    if axis.wanted is None:
        return least
    # A convolution of this stride makes the input's size of exactly these sizes: further pixels would get nothing.
    if not least <= axis.wanted < least + axis.stride:
        text = f"{helper.layer_type}: output_size {axis.wanted} is not one of {least} to {least + axis.stride - 1}"
        raise helper.error(text, hint="change output_size, padding or filter_size")
    return axis.wanted
