"""conv2d_transpose: a convolution the other way round, by the kernels of the gradients of one."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, as_written, first_channels, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Divisible, Layout, Narrow, SumsRows, Weight
from pe_cli.ops.nn.conv_calls import convolve, correlate, spread
from pe_cli.ops.nn.conv_lowering import Images


def _size(size: int, taps: int, stride: int, cut: int, dilation: int, more: int) -> int:
    # The inverse of a convolution's size: stride and padding change their roles, and `more` says which of the sizes that a stride maps to
    # one is meant.
    return -1 if size < 0 else (size - 1) * stride - cut + dilation * (taps - 1) + 1 + more


def _checked(name: str, numbers: list[int], count: int, least: int) -> None:
    if len(numbers) != count or min(numbers) < least:
        raise PeError(f"conv2d_transpose: {name} must be {count} numbers of at least {least}, got {numbers}")


@op(
    "conv2d_transpose",
    traits=[
        Divisible(), Layout("data_format", ("Input", "Output")), Narrow(("Input", "Filter")), SumsRows(("Filter",)),
        Weight(("Filter",), "transposed filters", "iohw"),
    ],
    inputs="Input Filter",
    floats="Input Filter",
    outputs="Output",
    attrs={
        "strides": Attr([1, 1], "pixels of the output from one of the input to the next, down and right"),
        "paddings": Attr([0, 0, 0, 0], "pixels that are cut off: above, below, left and right"),
        "output_padding": Attr([0, 0], "pixels more below and right"),
        "dilations": Attr([1, 1], "distance of taps, pixels"),
        "groups": Attr(1, "independent groups of channels"),
        "data_format": Attr("NCHW", "order of axes", ("NCHW", "NHWC")),
    },
    samples=[
        Sample({"Input": (2, 3, 3, 4), "Filter": (3, 4, 3, 3)}, name="three by three"),
        Sample(
            {"Input": (2, 4, 3, 4), "Filter": (4, 3, 4, 4)}, {"strides": [2, 2], "paddings": [1, 1, 1, 1]}, "twice the size"
        ),
        Sample(
            {"Input": (1, 3, 2, 4), "Filter": (4, 3, 2, 3)},
            {"strides": [3, 2], "paddings": [0, 1, 2, 0], "output_padding": [2, 1], "groups": 2, "data_format": "NHWC"},
            "uneven, two groups, channels last",
        ),
        Sample(
            {"Input": (2, 4, 3, 3), "Filter": (4, 1, 3, 3)},
            {"groups": 4, "dilations": [2, 2], "paddings": [1, 2, 1, 1]},
            "a group for each channel, dilated",
        ),
        Sample({"Input": (1, 4, 3, 3), "Filter": (4, 5, 1, 1)}, {"strides": [2, 2], "output_padding": [1, 0]}, "one by one with holes"),
        Sample({"Input": (1, 4, 3, 3), "Filter": (4, 5, 1, 1)}, name="one by one"),
        Sample({"Input": (1, 2, 4, 4), "Filter": (2, 2, 1, 1)}, {"paddings": [1, 0, 0, 2]}, "one by one that is cut"),
        Sample({"Input": (0, 3, 5, 5), "Filter": (3, 2, 3, 3)}, name="empty batch"),
    ],
)  # fmt: skip
def conv2d_transpose(
    x: TensorType,
    w: TensorType,
    *,
    strides: list[int],
    paddings: list[int],
    output_padding: list[int],
    dilations: list[int],
    groups: int,
    data_format: str,
) -> TensorType:
    """Spread every pixel over a window of the output: the gradient of the images of a convolution with the same filters.

    Output[n, f, stride i + dilation a - above, ...] = sum over c, i, a of Input[n, c, i, ...] * Filter[c, f, a, ...]

    Args:
        Input: [batch, channels, height, width], or [batch, height, width, channels] with data_format NHWC.
        Filter: [channels, filters / groups, filter height, filter width].

    Returns:
        Output: [batch, filters, out height, out width] in the same order; out = (size - 1) stride - what is cut + dilation (taps - 1) + 1 +
            output_padding.

    Raises:
        PeError: ranks or channels that do not fit, or no pixel left.

    Source:
        fluid.layers.conv2d_transpose; Dumoulin and Visin 2016, section 4.
    """
    if len(x.shape) != 4 or len(w.shape) != 4 or x.dtype != w.dtype:
        raise PeError(f"conv2d_transpose needs images and filters of rank 4 and one element type, got {x} and {w}")
    for name, numbers, count, least in (
        ("strides", strides, 2, 1), ("paddings", paddings, 4, 0), ("output_padding", output_padding, 2, 0), ("dilations", dilations, 2, 1),
    ):  # fmt: skip
        _checked(name, numbers, count, least)
    last = data_format == "NHWC"
    n, high, wide, c = (x.shape[i] for i in ((0, 1, 2, 3) if last else (0, 2, 3, 1)))
    if groups < 1 or c != w.shape[0] or c % groups:
        raise PeError(f"conv2d_transpose: {c} channels and filters for {w.shape[0]} do not fit in {groups} groups")
    cuts = (sum(paddings[:2]), sum(paddings[2:]))
    rest = zip((high, wide), w.shape[2:], strides, cuts, dilations, output_padding, strict=True)
    oh, ow = (_size(*numbers) for numbers in rest)
    if (high >= 0 and oh < 1) or (wide >= 0 and ow < 1):
        raise PeError(
            f"conv2d_transpose: no pixel is left of images of {high}x{wide} with paddings {paddings}",
            hint="use less padding or a larger filter",
        )
    filters = w.shape[1] * groups
    return x.with_shape(n, oh, ow, filters) if last else x.with_shape(n, filters, oh, ow)


@conv2d_transpose.count
def flops(x: TensorType, w: TensorType, **attrs: object) -> int:
    """Two operations for each tap and input element."""
    return 2 * x.size * w.shape[1] * w.shape[2] * w.shape[3]


@conv2d_transpose.lower("cpu")
def conv2d_transpose_cpu(o: Lowering) -> None:
    """The gradient of the images of a convolution from the output to the input."""
    x, w, y = o.input("Input"), o.input("Filter"), o.output("Output")
    images = Images(o, y, w, x)
    spread(images, images.inward(x), w, y)


@conv2d_transpose.grad(uses="Input Filter").lower("cpu")
def conv2d_transpose_grad_cpu(o: Lowering) -> None:
    """That convolution's gradient of the filters, with images and results exchanged, and the convolution itself."""
    x, w, dy = o.input("Input"), o.input("Filter"), o.input("Output@GRAD")
    images = Images(o, dy, w, x)
    source = images.source(dy)
    # dy is the image of the convolution, and x its result.
    if o.has("Filter@GRAD"):
        correlate(images, source, images.inward(x), w, o.output("Filter@GRAD"))
    if o.has("Input@GRAD"):
        convolve(images, source, w, o.output("Input@GRAD"), first=o.threads)


@in_onnx("conv2d_transpose")
def conv2d_transpose_onnx(o: Writer) -> None:
    """ONNX's own."""
    a = o.attrs
    above, below, left, right = a["paddings"]
    made = o.node(
        "ConvTranspose",
        [first_channels(o, o.x("Input"), "data_format"), o.x("Filter")],
        strides=a["strides"],
        # ONNX has both beginnings first, then both ends.
        pads=[above, left, below, right],
        output_padding=a["output_padding"],
        dilations=a["dilations"],
        group=a["groups"],
    )
    as_written(o, made, "data_format", "Output")
