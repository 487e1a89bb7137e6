"""conv2d and depthwise_conv2d: two-dimensional convolution, channels last inside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.conv import (
    adds_images_at_once,
    conv_backward_data_scratch,
    conv_forward_scratch,
    hwio_to_oihw,
    mixed_backward_data,
    mixed_backward_weight,
    mixed_forward,
    oihw_to_hwio,
)
from pe_cli.kernels.cuda import Tuned, cuda, on_cuda, same_on_cuda
from pe_cli.kernels.depthwise import depthwise_backward_data, depthwise_backward_weight, depthwise_forward
from pe_cli.kernels.lang import SIZE, Addr, Int, PtrI64, T, helper, kernel
from pe_cli.kernels.transpose import transpose_batch
from pe_cli.ops.addto import beside, preload
from pe_cli.ops.areas import ENOUGH, Pair, pairs
from pe_cli.ops.cuda import also_on_cuda
from pe_cli.ops.lowering import Buffer, Lowering, Numbers, Offset
from pe_cli.ops.registry import Attr, Sample, op

#: Operations that are worth bringing one element of the filters into another order.
FILTER_WORK = 400
IMAGES = {"attr": "data_format", "slots": ("Input", "Output")}


@helper
def geometry_of(g):
    return g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10], g[11], g[12], g[13], g[14]


@kernel
def forward(x: Addr, w: Addr, y: Addr, filters: Addr, g: PtrI64, n: Int):
    """y = convolution of x with w; filters is scratch for w with its output channels last, and for what `conv_forward` wants."""
    per = g[2] // g[14]
    oihw_to_hwio(w, filters, g[5], per, g[6], g[7])
    mixed_forward(x, filters, y, 0, n, geometry_of(g), filters + SIZE * g[5] * per * g[6] * g[7])


@kernel
def forward_depthwise(x: Addr, w: Addr, y: Addr, filters: Addr, g: PtrI64, n: Int):
    """Do `forward` for a depthwise convolution; it is a kernel of its own, because compiling both takes longer than most models need."""
    oihw_to_hwio(w, filters, g[5], 1, g[6], g[7])
    depthwise_forward(x, filters, y, n, geometry_of(g))


@kernel
def backward_data(dy: Addr, w: Addr, dx: Addr, filters: Addr, scratch: Addr, g: PtrI64, n: Int, acc: Int):
    """dx (+)= gradient of the images."""
    oihw_to_hwio(w, filters, g[5], g[2] // g[14], g[6], g[7])
    mixed_backward_data(dy, filters, dx, 0, n, acc, geometry_of(g), scratch)


@kernel
def backward_data_depthwise(dy: Addr, w: Addr, dx: Addr, filters: Addr, scratch: Addr, g: PtrI64, n: Int, acc: Int):
    """dx = gradient of the images of a depthwise convolution, which is not added."""
    oihw_to_hwio(w, filters, g[5], 1, g[6], g[7])
    depthwise_backward_data(dy, filters, dx, n, geometry_of(g))


@kernel
def backward_weight(x: Addr, dy: Addr, dw: Addr, filters: Addr, g: PtrI64, n: Int, low: Int, high: Int):
    """dw = gradient of the filters, of their rows from low to high."""
    mixed_backward_weight(x, dy, filters, 0, n, low, high, 0, geometry_of(g), filters)
    hwio_to_oihw(filters, dw, g[5], g[2] // g[14], g[6], g[7], low, high)


@kernel
def backward_weight_depthwise(x: Addr, dy: Addr, dw: Addr, filters: Addr, g: PtrI64, n: Int, low: Int, high: Int):
    """Do `backward_weight` for a depthwise convolution."""
    depthwise_backward_weight(x, dy, filters, n, low, high, 0, geometry_of(g))
    hwio_to_oihw(filters, dw, g[5], 1, g[6], g[7], low, high)


@kernel
def turn(x: Addr, y: Addr, batch: Int, rows: Int, columns: Int):
    """Transpose every matrix of a batch: NCHW to NHWC with rows = channels, and back with rows = pixels."""
    transpose_batch(x, y, batch, rows, columns)


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
        "depthwise, two filters a channel",
    ),
    Sample({"Input": (2, 5, 4, 4), "Filter": (7, 5, 1, 1)}, {"strides": [2, 2]}, "one by one with holes"),
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
    return -1 if size < 0 else (size + 2 * padding - ((taps - 1) * dilation + 1)) // stride + 1


@op("conv2d", cut=True, inputs="Input Filter", outputs="Output", attrs=ATTRS, samples=SAMPLES, layout=IMAGES)
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
            hint="use a smaller filter_size or more padding",
        )
    return x.with_shape(n, oh, ow, w.shape[0]) if last else x.with_shape(n, w.shape[0], oh, ow)


@op(
    "depthwise_conv2d",
    cut=True,
    inputs="Input Filter",
    outputs="Output",
    attrs=ATTRS,
    layout=IMAGES,
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
        PeError: as for conv2d.

    Source:
        fluid.layers.conv2d with groups = channels.
    """
    return conv2d.infer(x, w, **attrs)  # type: ignore[misc, no-any-return]


@conv2d.count
@depthwise_conv2d.count
def flops(x: TensorType, w: TensorType, *, data_format: str, **attrs: object) -> int:
    """Two a tap and output element."""
    out: TensorType = conv2d.infer(x, w, data_format=data_format, **attrs)  # type: ignore[misc]
    return 2 * out.size * w.shape[1] * w.shape[2] * w.shape[3]


class Images:
    """Sizes of one convolution, and its images in channels-last order."""

    def __init__(self, o: Lowering, x: Buffer, w: Buffer, y: Buffer) -> None:
        self.o = o
        self.last = o.attrs["data_format"] == "NHWC"
        order = (1, 2, 3) if self.last else (2, 3, 1)
        self.n = x.shape[0]
        self.depthwise = 1 < o.attrs["groups"] == x.shape[order[2]]
        self.image, self.out = (tuple(b.shape[i] for i in order) for b in (x, y))
        self.filters = w.shape
        attrs = o.attrs
        sizes = (
            *self.image,
            *self.out,
            *w.shape[2:],
            *attrs["strides"],
            *attrs["paddings"],
            *attrs["dilations"],
            attrs["groups"],
        )
        self.geometry = Numbers(sizes)
        self.work = 2 * self.n * math.prod(self.out) * math.prod(w.shape[1:])

    def parts(self) -> list[Pair]:
        """Return the images of every part that a thread is worth waking for: each brings the filters into order for itself."""
        each = max(ENOUGH, FILTER_WORK * math.prod(self.filters))
        return pairs(self.n, min(self.o.threads, self.work // each))

    def rows(self) -> list[Pair]:
        """Return the rows of filters whose gradients a part computes: each part reads all images."""
        return pairs(self.filters[2], 1 if self.o.helped else min(self.o.threads, self.work // ENOUGH))

    def filter_scratch(self, w: Buffer) -> Buffer:
        """Return scratch for filters with their output channels last, and behind them what `conv_forward` wants."""
        extra = conv_forward_scratch(self.image[2], self.out[2], w.shape[2], w.shape[3], self.o.attrs["groups"])
        return self.o.scratch(w.size + extra, w.dtype)

    def inward(self, b: Buffer) -> Buffer:
        """Return an image buffer with channels last."""
        if self.last or not b.size:
            return b
        made = self.o.scratch(b.size, b.dtype)
        self.o.call(turn, b, made, b.shape[0], b.shape[1], b.shape[2] * b.shape[3])
        return made

    def target(self, b: Buffer) -> Buffer:
        """Return where to write an image with channels last."""
        return b if self.last else self.o.scratch(b.size, b.dtype)

    def outward(self, made: Buffer, b: Buffer) -> None:
        """Bring a written image into the order of its variable."""
        if made is not b and b.size:
            self.o.call(turn, made, b, b.shape[0], b.shape[2] * b.shape[3], b.shape[1])


@conv2d.lower("cpu")
@depthwise_conv2d.lower("cpu")
def conv2d_cpu(o: Lowering) -> None:
    """Direct convolution by microkernels, in parts of the images."""
    x, w, y = o.input("Input"), o.input("Filter"), o.output("Output")
    images = Images(o, x, w, y)
    source, target = images.inward(x), images.target(y)
    for number, (first, last) in enumerate(images.parts()):
        at_x, at_y = Offset(source, first * math.prod(images.image)), Offset(target, first * math.prod(images.out))
        chosen = forward_depthwise if images.depthwise else forward
        o.call(chosen, at_x, w, at_y, images.filter_scratch(w), images.geometry, last - first, part=number)
    images.outward(target, y)


def conv2d_grad_cpu(o: Lowering) -> None:
    """The gradient of the filters, then of the images where it is wanted."""
    x, w, dy = o.input("Input"), o.input("Filter"), o.input("Output@GRAD")
    images = Images(o, x, w, dy)
    upstream = images.inward(dy)
    if o.has("Filter@GRAD"):
        dw, source, scratch = o.output("Filter@GRAD"), images.inward(x), images.filter_scratch(w)
        for number, rows in enumerate(images.rows()):
            chosen = backward_weight_depthwise if images.depthwise else backward_weight
            o.call(chosen, source, upstream, dw, scratch, images.geometry, images.n, *rows, part=number)
    if o.has("Input@GRAD"):
        _image_gradient(o, images, upstream, w)


def _image_gradient(o: Lowering, images: Images, upstream: Buffer, w: Buffer) -> None:
    """Append the gradient of the images: added by the kernel itself where images lie as it wants them and channels mix."""
    dx = o.output("Input@GRAD")
    extra = conv_backward_data_scratch(images.image[2], images.out[2], w.shape[2], w.shape[3], o.attrs["groups"])

    def write(into: Buffer, acc: int = 0) -> None:
        target = images.target(into)
        for number, (first, last) in enumerate(images.parts(), o.threads):  # beside the parts of the filters' gradient
            at_y = Offset(upstream, first * math.prod(images.out))
            at_x = Offset(target, first * math.prod(images.image))
            scratch = (images.filter_scratch(w), o.scratch(extra, w.dtype))
            chosen = backward_data_depthwise if images.depthwise else backward_data
            o.call(chosen, at_y, w, at_x, *scratch, images.geometry, last - first, acc, part=number)
        images.outward(target, into)

    a = o.attrs
    once = adds_images_at_once(
        images.image[1], w.shape[3], images.out[1], a["strides"][1], a["paddings"][1], a["dilations"][1]
    )
    if images.last and once and not images.depthwise:
        write(dx, preload(o, "Input@GRAD"))
    else:
        beside(o, "Input@GRAD", write)


def _image_order(attrs: Mapping[str, Any]) -> str:
    return "" if attrs["data_format"] == "NHWC" else "its images are in NCHW"


conv2d_grad = conv2d.grad(uses="Input Filter", adds="Input@GRAD")
conv2d_grad.overwrites = _image_order
conv2d_grad.lower("cpu")(conv2d_grad_cpu)
depthwise_conv2d.grad(uses="Input Filter").lower("cpu")(conv2d_grad_cpu)


# --- CUDA -------------------------------------------------------------------------------------------------------------


#: Threads that add up the gradient of one weight.
ADDERS: Any = Tuned(128, 2)


@on_cuda(forward)
def filters_last(x: Addr, w: Addr, y: Addr, filters: Addr, g: PtrI64, n: Int):
    """The output channels of a tap and input channel become neighbours."""
    taps, per = g[6] * g[7], g[2] // g[14]
    for e in range(g[5] * per * taps):
        oc, c, tap = e // (per * taps), e // taps % per, e % taps
        filters[(tap * per + c) * g[5] + oc] = w[e]


@on_cuda(forward)
def forward_cuda(x: Addr, w: Addr, y: Addr, filters: Addr, g: PtrI64, n: Int):
    """One thread an output element."""
    height, width, channels, oh, ow, outs, kh, kw = g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]
    per, each = channels // g[14], outs // g[14]
    for e in range(n * oh * ow * outs):
        oc, j, i, image = e % outs, e // outs % ow, e // (outs * ow) % oh, e // (outs * ow * oh)
        first = oc // each * per
        total = T(0)
        for r in range(kh):
            row = i * g[8] - g[10] + r * g[12]
            for s in range(kw):
                column = j * g[9] - g[11] + s * g[13]
                if row >= 0 and row < height and column >= 0 and column < width:
                    at = ((image * height + row) * width + column) * channels + first
                    tap = (r * kw + s) * per * outs + oc
                    for c in range(per):
                        total += x[at + c] * filters[tap + c * outs]
        y[e] = total


@on_cuda(backward_data)
def filters_first(dy: Addr, w: Addr, dx: Addr, filters: Addr, scratch: Addr, g: PtrI64, n: Int, acc: Int):
    """The input channels of a tap and output channel become neighbours."""
    taps, per = g[6] * g[7], g[2] // g[14]
    for e in range(g[5] * per * taps):
        oc, c, tap = e // (per * taps), e // taps % per, e % taps
        filters[(tap * g[5] + oc) * per + c] = w[e]


@on_cuda(backward_data)
def backward_data_cuda(dy: Addr, w: Addr, dx: Addr, filters: Addr, scratch: Addr, g: PtrI64, n: Int, acc: Int):
    """One thread an input element: it gathers from all windows that it lies in."""
    height, width, channels, oh, ow, outs, kh, kw = g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]
    per, each = channels // g[14], outs // g[14]
    for e in range(n * height * width * channels):
        c, column, row = e % channels, e // channels % width, e // (channels * width) % height
        image = e // (channels * width * height)
        first = c // per * each
        total = T(0)
        for r in range(kh):
            down = row + g[10] - r * g[12]
            i = down // g[8]
            for s in range(kw):
                right = column + g[11] - s * g[13]
                j = right // g[9]
                if i * g[8] == down and j * g[9] == right and i >= 0 and i < oh and j >= 0 and j < ow:
                    at = ((image * oh + i) * ow + j) * outs + first
                    tap = ((r * kw + s) * outs + first) * per + c % per
                    for oc in range(each):
                        total += dy[at + oc] * filters[tap + oc * per]
        dx[e] = dx[e] + total if acc else total


@on_cuda(backward_weight, block=(ADDERS,))
def backward_weight_cuda(x: Addr, dy: Addr, dw: Addr, filters: Addr, g: PtrI64, n: Int, low: Int, high: Int):
    """One block a weight; its threads take the output pixels in turn, and their sums are added in a tree."""
    height, width, channels, oh, ow, outs, kh, kw = g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]
    per, each = channels // g[14], outs // g[14]
    parts = cuda.shared.array(ADDERS, T)
    me = cuda.threadIdx.x
    for e in range(cuda.blockIdx.x, outs * per * kh * kw, cuda.gridDim.x):
        oc, c, r, s = (
            e // (per * kh * kw),
            e // (kh * kw) % per + e // (per * kh * kw) // each * per,
            e // kw % kh,
            e % kw,
        )
        if r < low or r >= high:
            continue
        total = T(0)
        for pixel in range(me, n * oh * ow, ADDERS):
            image = pixel // (oh * ow)
            row = pixel // ow % oh * g[8] - g[10] + r * g[12]
            column = pixel % ow * g[9] - g[11] + s * g[13]
            if row >= 0 and row < height and column >= 0 and column < width:
                total += dy[pixel * outs + oc] * x[((image * height + row) * width + column) * channels + c]
        parts[me] = total
        cuda.syncthreads()
        half = ADDERS // 2
        while half > 0:
            if me < half:
                parts[me] += parts[me + half]
            cuda.syncthreads()
            half //= 2
        if me == 0:
            dw[e] = parts[0]
        cuda.syncthreads()


@on_cuda(turn)
def turn_cuda(x: Addr, y: Addr, batch: Int, rows: Int, columns: Int):
    """One thread an element, neighbours in the target."""
    for e in range(batch * rows * columns):
        b, j, i = e // (rows * columns), e // rows % columns, e % rows
        y[e] = x[(b * rows + i) * columns + j]


same_on_cuda(forward_depthwise, forward)
same_on_cuda(backward_data_depthwise, backward_data)
same_on_cuda(backward_weight_depthwise, backward_weight)
also_on_cuda(conv2d, depthwise_conv2d)
