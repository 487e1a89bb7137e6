"""fused_relu_depthwise_conv2d: a depthwise convolution of images whose negative numbers count as 0, image by image in cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pe_cli.core.types import TensorType
from pe_cli.kernels.cpu.conv_geometry import CHANNELS, FILTERS, HEIGHT, OUT_HEIGHT, OUT_WIDTH, TAPS_X, TAPS_Y, WIDTH
from pe_cli.kernels.cpu.depthwise import depthwise_backward_data, depthwise_backward_weight, depthwise_forward
from pe_cli.kernels.cpu.transpose import hwio_to_oihw, oihw_to_hwio
from pe_cli.kernels.language import SIZE, Addr, Int, PtrI64, T, helper, kernel, pointer
from pe_cli.ops.define.fusion import Becomes, Fuses, Match, Part, Pattern
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.traits import Narrow
from pe_cli.ops.math.activation import relu
from pe_cli.ops.nn.conv import ATTRS, IMAGES, depthwise_conv2d
from pe_cli.ops.nn.conv_cuda import Sizes, append_filters_back, append_images_back, append_values
from pe_cli.ops.nn.conv_kernels import geometry_of
from pe_cli.ops.nn.conv_lowering import Images


@helper
def _cut(x, out, n):
    """Write out = relu(x); addresses."""
    source = pointer(x)
    target = pointer(out)
    for i in range(n):
        target[i] = T(0) if source[i] <= T(0) else source[i]


@kernel
def relu_forward(x: Addr, w: Addr, y: Addr, filters: Addr, image: Addr, g: PtrI64, n: Int):
    """y = convolution of relu(x) with w; filters and image are scratch for one of each."""
    oihw_to_hwio(w, filters, g[FILTERS], 1, g[TAPS_Y], g[TAPS_X])
    size = g[HEIGHT] * g[WIDTH] * g[CHANNELS]
    for i in range(n):
        _cut(x + SIZE * i * size, image, size)
        depthwise_forward(image, filters, y + SIZE * i * g[OUT_HEIGHT] * g[OUT_WIDTH] * g[FILTERS], 1, geometry_of(g))


@kernel
def relu_backward_data(x: Addr, dy: Addr, w: Addr, dx: Addr, filters: Addr, g: PtrI64, n: Int):
    """dx = gradient of the images, 0 where relu cut."""
    oihw_to_hwio(w, filters, g[FILTERS], 1, g[TAPS_Y], g[TAPS_X])
    size = g[HEIGHT] * g[WIDTH] * g[CHANNELS]
    for i in range(n):
        depthwise_backward_data(dy + SIZE * i * g[OUT_HEIGHT] * g[OUT_WIDTH] * g[FILTERS], filters, dx + SIZE * i * size, 1, geometry_of(g))
        # Cut at once, while this image's gradient is in cache.
        source = pointer(x + SIZE * i * size)
        target = pointer(dx + SIZE * i * size)
        for k in range(size):
            target[k] = target[k] if source[k] > T(0) else T(0)


@kernel
def relu_backward_weight(x: Addr, dy: Addr, dw: Addr, filters: Addr, image: Addr, g: PtrI64, n: Int):
    """dw = gradient of the filters over relu(x)."""
    size = g[HEIGHT] * g[WIDTH] * g[CHANNELS]
    depthwise_backward_weight(image, dy, filters, 0, 0, g[TAPS_Y], 0, geometry_of(g))  # of no images: zeros
    for i in range(n):
        _cut(x + SIZE * i * size, image, size)
        depthwise_backward_weight(
            image, dy + SIZE * i * g[OUT_HEIGHT] * g[OUT_WIDTH] * g[FILTERS], filters, 1, 0, g[TAPS_Y], 1,
            geometry_of(g),
        )  # fmt: skip
    hwio_to_oihw(filters, dw, g[FILTERS], 1, g[TAPS_Y], g[TAPS_X], 0, g[TAPS_Y])


def _away_from_zero(arrays: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    x = np.array(arrays["Input"][0])
    return {**arrays, "Input": [np.where(np.abs(x) < 1e-2, 0.1, x)]}


@op(
    "fused_relu_depthwise_conv2d",
    inputs="Input Filter",
    outputs="Output",
    attrs=ATTRS,
    traits=[IMAGES, Narrow(("Input", "Filter"))],
    kinks=_away_from_zero,
    samples=[
        Sample(
            {"Input": (2, 3, 5, 5), "Filter": (6, 1, 3, 3)}, {"groups": 3, "paddings": [1, 1]}, "two filters per channel"
        ),
        Sample(
            {"Input": (2, 6, 5, 4), "Filter": (4, 1, 3, 3)},
            {"groups": 4, "paddings": [1, 1], "strides": [2, 2], "data_format": "NHWC"},
            "channels last, stride two",
        ),
        Sample({"Input": (1, 1, 3, 3), "Filter": (2, 1, 2, 2)}, name="one channel"),
        Sample({"Input": (0, 2, 3, 3), "Filter": (2, 1, 3, 3)}, {"groups": 2}, "empty batch"),
    ],
)
def fused_relu_depthwise_conv2d(x: TensorType, w: TensorType, **attrs: object) -> TensorType:
    """Convolve each channel of max(Input, 0) with its own filters.

    Output = depthwise_conv2d(max(Input, 0), Filter); the gradient at 0 is 0. Values and gradients are those of the separate ops.

    Args:
        Input: as for depthwise_conv2d; before relu.
        Filter: as for depthwise_conv2d.

    Returns:
        Output: as for depthwise_conv2d.

    Raises:
        PeError: as for depthwise_conv2d.

    Source:
        fluid's attribute fuse_relu_before_depthwise_conv, set by fuse_relu_depthwise_conv.
    """
    assert depthwise_conv2d.infer is not None
    return depthwise_conv2d.infer(x, w, **attrs)  # type: ignore[no-any-return]


@fused_relu_depthwise_conv2d.lower("cpu")
def fused_relu_depthwise_conv2d_cpu(o: Lowering) -> None:
    """relu of an image into scratch that stays in cache, then its convolution."""
    x, w, y = o.input("Input"), o.input("Filter"), o.output("Output")
    images = Images(o, x, w, y)
    source, target = images.inward(x), images.target(y)
    # One image at a time: the cut image stays in cache, where its convolution reads it, and memory sees the images once.
    image = o.scratch(x.size // max(1, images.n), x.dtype)
    o.call(relu_forward, source, w, target, images.filter_scratch(w), image, images.whole, images.n)
    images.outward(target, y)


gradient = fused_relu_depthwise_conv2d.grad(uses="Input Filter")


@gradient.lower("cpu")
def fused_relu_depthwise_conv2d_grad_cpu(o: Lowering) -> None:
    """As for depthwise_conv2d, with relu's part done image by image."""
    x, w, dy = o.input("Input"), o.input("Filter"), o.input("Output@GRAD")
    images = Images(o, x, w, dy)
    upstream, source = images.inward(dy), images.inward(x)
    if o.has("Filter@GRAD"):
        image = o.scratch(x.size // max(1, images.n), x.dtype)
        filters = images.filter_scratch(w)
        o.call(
            relu_backward_weight, source, upstream, o.output("Filter@GRAD"), filters, image, images.whole, images.n
        )
    if o.has("Input@GRAD"):
        dx = o.output("Input@GRAD")
        target = images.target(dx)
        o.call(relu_backward_data, source, upstream, w, target, images.filter_scratch(w), images.whole, images.n)
        images.outward(target, dx)


# --- CUDA -------------------------------------------------------------------------------------------------------------


def _cut_whole(o: Lowering, x: Buffer) -> Buffer:
    """Append relu of all images into scratch."""
    made = o.scratch(x.size, x.dtype)
    if x.size:
        o.call(relu.kernel, x, made, x.size)
    return made


@fused_relu_depthwise_conv2d.lower("cuda")
def fused_relu_depthwise_conv2d_cuda(o: Lowering) -> None:
    """As the separate ops."""
    x, w, y = o.input("Input"), o.input("Filter"), o.output("Output")
    images = Images(o, x, w, y)
    source, target = images.inward(x), images.target(y)
    append_values(o, _cut_whole(o, source), w, target, Sizes.of(o, images))
    images.outward(target, y)


@gradient.lower("cuda")
def fused_relu_depthwise_conv2d_grad_cuda(o: Lowering) -> None:
    """As the separate ops."""
    x, w, dy = o.input("Input"), o.input("Filter"), o.input("Output@GRAD")
    images = Images(o, x, w, dy)
    upstream, source, sizes = images.inward(dy), images.inward(x), Sizes.of(o, images)
    if o.has("Filter@GRAD"):
        append_filters_back(o, _cut_whole(o, source), upstream, o.output("Filter@GRAD"), sizes)
    if o.has("Input@GRAD"):
        dx = o.output("Input@GRAD")
        target = images.target(dx)
        append_images_back(o, upstream, w, target, sizes)
        assert relu.back_kernel is not None
        if x.size:
            o.call(relu.back_kernel, target, source, target, x.size)
        images.outward(target, dx)


# --- what it takes the place of ---------------------------------------------------------------------------------------


def _unless(m: Match) -> str:
    act, conv = m["act"], m["conv"]
    (name,) = act.outputs["Out"]
    # Where relu's result is not kept, gradients cut the input again: it has to be there, unchanged, until the last of them.
    if name in conv.inputs["Filter"]:
        return "the output of relu is a filter"
    readers = [op for op in m.readers(name) if "Filter" in op.inputs]
    kept = all(m.unchanged(act.inputs["X"][0], act, op) for op in readers)
    return "" if kept else "the input of relu is overwritten before its last use"


def _becomes(m: Match) -> list[Becomes]:
    act, conv = m["act"], m["conv"]
    inputs = {**conv.inputs, "Input": act.inputs["X"]}
    return [Becomes((act, conv), "fused_relu_depthwise_conv2d", inputs, conv.outputs, conv.attrs)]


def _not_alone(m: Match) -> str:
    """Return why the gradient of the image is needed by others than relu's, empty where it is not, or not there."""
    names = m["conv_grad"].outputs.get("Input@GRAD")
    if names and ("act_grad" not in m or m.only_for(names[0], [m["act_grad"]])):
        return "the gradient of depthwise_conv2d is not read by relu_grad alone"
    return ""


def _becomes_gradient(m: Match) -> list[Becomes]:
    conv = m["conv_grad"]
    ops = [conv, *([m["act_grad"]] if "act_grad" in m else [])]
    outputs = {slot: names for slot, names in conv.outputs.items() if slot != "Input@GRAD"}
    # Without relu's gradient the convolution has no Input@GRAD either: `_not_alone` sees to it.
    if len(ops) > 1:
        outputs = {"Input@GRAD": ops[1].outputs["X@GRAD"], **outputs}
    inputs = {**conv.inputs, "Input": m["act"].inputs["X"]}
    return [Becomes(ops, "fused_relu_depthwise_conv2d_grad", inputs, outputs, conv.attrs)]


fused_relu_depthwise_conv2d.give(
    Fuses(
        "fuse_relu_depthwise_conv",
        Pattern(
            (Part("conv", ("depthwise_conv2d",)), Part("act", ("relu",), writes=("conv", "Input"))),
            _becomes,
            vanish=[("act", "Out")],
            unless=_unless,
        ),
        Pattern(
            (
                Part("conv_grad", ("depthwise_conv2d_grad",), reads=("act", "Out"), into="Input"),
                Part("act_grad", ("relu_grad",), reads=("conv_grad", "Input@GRAD"), optional=True),
            ),
            _becomes_gradient,
            unless=_not_alone,
        ),
        together=True,
        nothing="the program has no depthwise_conv2d",
    )
)
