"""conv2d and depthwise_conv2d: two-dimensional convolution, channels last inside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cpu.conv import adds_images_at_once
from pe_cli.kernels.cpu.gemm import adds_at_once
from pe_cli.ops.define.addto import beside, preload
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.onnx import Writer, as_written, first_channels, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Divisible, Layout, Narrow, SumsRows, Weight
from pe_cli.ops.nn.conv_calls import convolve, correlate, spread
from pe_cli.ops.nn.conv_lowering import Images

IMAGES = Layout("data_format", ("Input", "Output"))
ATTRS = {
    "strides": Attr([1, 1], "steps of the window down and right, pixels"),
    "paddings": Attr([0, 0], "zeros above and below, left and right, pixels"),
    "dilations": Attr([1, 1], "distance of taps, pixels"),
    "groups": Attr(1, "independent groups of channels"),
    "data_format": Attr("NCHW", "order of axes", ("NCHW", "NHWC")),
}
SAMPLES = [
    Sample({"Input": (2, 3, 6, 5), "Filter": (4, 3, 3, 3)}, name="three by three"),
    Sample(
        {"Input": (2, 3, 6, 5), "Filter": (4, 3, 3, 3)}, {"paddings": [1, 1], "strides": [2, 2]}, "padded, stride two"
    ),
    Sample({"Input": (1, 6, 5, 2), "Filter": (3, 2, 2, 2)}, {"data_format": "NHWC"}, "channels last"),
    Sample(
        {"Input": (2, 4, 7, 7), "Filter": (6, 2, 3, 3)},
        {"groups": 2, "dilations": [2, 2], "paddings": [2, 2]},
        "two groups, dilated",
    ),
    Sample(
        {"Input": (2, 3, 5, 5), "Filter": (6, 1, 3, 3)},
        {"groups": 3, "paddings": [1, 1]},
        "depthwise, two filters per channel",
    ),
    Sample({"Input": (2, 5, 4, 4), "Filter": (7, 5, 1, 1)}, {"strides": [2, 2]}, "one by one with holes"),
    Sample({"Input": (2, 5, 4, 3), "Filter": (7, 5, 1, 1)}, name="one by one"),
    Sample({"Input": (2, 1, 2, 2), "Filter": (2, 1, 3, 3)}, {"paddings": [1, 1]}, "window larger than the image"),
    Sample({"Input": (0, 3, 5, 5), "Filter": (2, 3, 3, 3)}, name="empty batch"),
]


def _check(
    what: str, x: TensorType, w: TensorType, strides: list[int], paddings: list[int], dilations: list[int], groups: int
) -> None:
    if len(x.shape) != 4 or len(w.shape) != 4:
        raise PeError(f"{what} needs images of rank 4 and filters of rank 4, got {x} and {w}")
    if x.dtype != w.dtype:
        raise PeError(f"{what} needs images and filters of one element type, got {x} and {w}")
    for name, pair, least in (("strides", strides, 1), ("paddings", paddings, 0), ("dilations", dilations, 1)):
        if len(pair) != 2 or min(pair) < least:
            raise PeError(f"{what}: {name} must be two numbers of at least {least}, got {pair}")
    if groups < 1 or w.shape[0] % groups:
        raise PeError(f"{what}: {w.shape[0]} filters cannot be cut into {groups} groups")


def conv_size(size: int, taps: int, stride: int, padding: int, dilation: int) -> int:
    """Return the output size along an axis, -1 when the input's is unknown; may be 0 or negative when nothing fits."""
    # Floor division: a window that does not fit whole at the far edge is left out, as everywhere in the field.
    return -1 if size < 0 else (size + 2 * padding - ((taps - 1) * dilation + 1)) // stride + 1


@op(
    "conv2d",
    traits=[Divisible(), IMAGES, Narrow(("Input", "Filter")), SumsRows(("Filter",)), Weight(("Filter",), "filters", "oihw")],
    inputs="Input Filter",
    floats="Input Filter",
    outputs="Output",
    attrs=ATTRS,
    samples=SAMPLES,
)
def conv2d(
    x: TensorType,
    w: TensorType,
    *,
    strides: list[int],
    paddings: list[int],
    dilations: list[int],
    groups: int,
    data_format: str,
) -> TensorType:
    """Convolve images with filters (cross-correlation, as everywhere in the field).

    Output[n, o, i, j] = sum over c, a, b of Input[n, c, i*stride + a*dilation - padding, j*... + b*...] * Filter[o, c, a, b];
    outside the image Input is 0.

    Args:
        Input: [batch, channels, height, width], or [batch, height, width, channels] with data_format NHWC.
        Filter: [filters, channels / groups, filter height, filter width].

    Returns:
        Output: [batch, filters, out height, out width] in the same order; out = (size + 2*padding - (taps-1)*dilation - 1) / stride + 1.

    Raises:
        PeError: ranks or channels that do not fit, or a window larger than the padded image.

    Source:
        fluid.layers.conv2d; LeCun et al. 1998.
    """
    # Filters are checked against channels here and not in `_check`, which knows no layout.
    _check("conv2d", x, w, strides, paddings, dilations, groups)
    last = data_format == "NHWC"
    n, h, wide, c = (x.shape[i] for i in ((0, 1, 2, 3) if last else (0, 2, 3, 1)))
    if c != w.shape[1] * groups:
        raise PeError(
            f"conv2d: the images have {c} channels, the filters take {w.shape[1]} in {groups} groups, which is {w.shape[1] * groups}"
        )
    oh = conv_size(h, w.shape[2], strides[0], paddings[0], dilations[0])
    ow = conv_size(wide, w.shape[3], strides[1], paddings[1], dilations[1])
    if 0 in (oh, ow) or min(oh, ow) < -1 or (h >= 0 and oh < 0) or (wide >= 0 and ow < 0):
        raise PeError(
            f"conv2d: a window of {w.shape[2]}x{w.shape[3]} (dilation {dilations}) does not fit into images of {h}x{wide}"
            f" with padding {paddings}",
            hint="use a smaller filter_size or more padding; images are [channels, height, width]: of others"
            " {type: transpose, perm: [0, 3, 1, 2]} makes such",
        )
    return x.with_shape(n, oh, ow, w.shape[0]) if last else x.with_shape(n, w.shape[0], oh, ow)


@op(
    "depthwise_conv2d",
    traits=[Divisible(), IMAGES, Narrow(("Input", "Filter")), Weight(("Filter",), "filters", "oihw")],
    inputs="Input Filter",
    floats="Input Filter",
    outputs="Output",
    attrs=ATTRS,
    samples=[SAMPLES[4]],
)
def depthwise_conv2d(x: TensorType, w: TensorType, **attrs: object) -> TensorType:
    """Convolve each channel with its own filters: conv2d with as many groups as channels.

    Args:
        Input: as for conv2d.
        Filter: [channels * multiplier, 1, filter height, filter width].

    Returns:
        Output: as for conv2d.

    Raises:
        PeError: as for conv2d, and filters that see more than one channel.

    Source:
        fluid.layers.conv2d with groups = channels.
    """
    if len(w.shape) == 4 and w.shape[1] != 1:
        raise PeError(
            f"depthwise_conv2d: the filters see {w.shape[1]} channels each, they may see one",
            hint="use conv2d, or as many groups as channels",
        )
    return conv2d.infer(x, w, **attrs)  # type: ignore[misc, no-any-return]


@conv2d.count
@depthwise_conv2d.count
def flops(x: TensorType, w: TensorType, *, data_format: str, **attrs: object) -> int:
    """Two operations for each tap and output element."""
    out: TensorType = conv2d.infer(x, w, data_format=data_format, **attrs)  # type: ignore[misc]
    return 2 * out.size * w.shape[1] * w.shape[2] * w.shape[3]


@conv2d.lower("cpu")
@depthwise_conv2d.lower("cpu")
def conv2d_cpu(o: Lowering) -> None:
    """Direct convolution by microkernels, in parts of the images."""
    x, w, y = o.input("Input"), o.input("Filter"), o.output("Output")
    images = Images(o, x, w, y)
    convolve(images, images.source(x), w, y)


def conv2d_grad_cpu(o: Lowering) -> None:
    """The gradient of the filters, then of the images where it is wanted."""
    x, w, dy = o.input("Input"), o.input("Filter"), o.input("Output@GRAD")
    images = Images(o, x, w, dy)
    upstream = images.inward(dy)
    if o.has("Filter@GRAD"):
        correlate(images, images.source(x), upstream, w, o.output("Filter@GRAD"))
    if o.has("Input@GRAD"):
        image_gradient(o, images, upstream, w)


def image_gradient(o: Lowering, images: Images, upstream: Buffer, w: Buffer) -> None:
    """Append the gradient of the images: added by the kernel itself where images lie as it wants them and channels mix."""
    dx = o.output("Input@GRAD")

    def write(into: Buffer, acc: int = 0) -> None:
        # Parts numbered from `o.threads` on may run at the same time as those of the filters' gradient: nothing of one waits for the other.
        spread(images, upstream, w, into, acc=acc, first=o.threads)  # parts beside those of the filters' gradient

    a = o.attrs
    if images.pointwise:
        pixels = images.n * math.prod(images.out[:2])
        # Whether the kernel may add to what stands in the gradient already: only where it writes each element once. Where it writes several
        # times, or in another layout, the sum goes through a buffer of its own.
        once = adds_at_once(pixels, images.image[2], images.out[2], w.type.numpy.itemsize)
    elif images.winograd:
        once = True
    else:
        along = (a["strides"][1], a["paddings"][1], a["dilations"][1])
        once = adds_images_at_once(images.image[1], w.shape[3], images.out[1], *along)
    if images.last and once and not images.depthwise and not images.picks:
        write(dx, preload(o, "Input@GRAD"))
    else:
        beside(o, "Input@GRAD", write)


def _image_order(attrs: Mapping[str, Any]) -> str:
    return "" if attrs["data_format"] == "NHWC" else "its images are in NCHW"


conv2d_grad = conv2d.grad(uses="Input Filter", adds="Input@GRAD", overwrites=_image_order)
conv2d_grad.lower("cpu")(conv2d_grad_cpu)
depthwise_conv2d.grad(uses="Input Filter").lower("cpu")(conv2d_grad_cpu)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("conv2d", "depthwise_conv2d")
def conv2d_onnx(o: Writer) -> None:
    """ONNX's own, padded alike on both sides."""
    a = o.attrs
    made = o.node(
        "Conv",
        [first_channels(o, o.x("Input"), "data_format"), o.x("Filter")],
        strides=a["strides"],
        pads=[*a["paddings"], *a["paddings"]],
        dilations=a["dilations"],
        group=a["groups"],
    )
    as_written(o, made, "data_format", "Output")
