"""depth_windows: the slices of a volume under each place of a filter along the depth, so that a 3-D convolution is one of images."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.language import Int, Ptr, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op


@kernel
def slices(x: Ptr, out: Ptr, n: Int, C: Int, D: Int, OD: Int, taps: Int, stride: Int, before: Int, gap: Int, area: Int):
    """out[image, place, c, tap] = x[image, c, place stride - before + tap gap], 0 outside; slices of `area` elements."""
    for q in range(n * OD * C):
        image, rest = q // (OD * C), q % (OD * C)
        place, c = rest // C, rest % C
        for t in range(taps):
            d = place * stride - before + t * gap
            to, at = (q * taps + t) * area, ((image * C + c) * D + d) * area
            if 0 <= d < D:
                for k in range(area):
                    out[to + k] = x[at + k]
            else:
                for k in range(area):
                    out[to + k] = T(0)


@on_cuda(slices)
def slices_cuda(x: Ptr, out: Ptr, n: Int, C: Int, D: Int, OD: Int, taps: Int, stride: Int, before: Int, gap: Int, area: Int):
    """One thread per element."""
    for i in range(n * OD * C * taps * area):
        # From the outside in: element, tap, channel, place, image. `quotient` divides where Python's // would take several instructions on
        # a card.
        e = quotient(i, area)
        q = quotient(e, taps)
        row = quotient(q, C)
        image = quotient(row, OD)
        d = (row - image * OD) * stride - before + (e - q * taps) * gap
        out[i] = x[((image * C + q - row * C) * D + d) * area + i - e * area] if 0 <= d < D else T(0)


@kernel
def slices_back(g: Ptr, dx: Ptr, n: Int, C: Int, D: Int, OD: Int, taps: Int, stride: Int, before: Int, gap: Int, area: Int):
    """dx[image, c, d] = sum of g over the places and taps that were given the slice."""
    for q in range(n * C * D):
        plane, d = q // D, q % D
        image, c = plane // C, plane % C
        for k in range(area):
            dx[q * area + k] = T(0)
        for t in range(taps):
            # A slice asks which places saw it at this tap: threads own what they write, and the order of sums is fixed.
            ahead = d + before - t * gap
            place = ahead // stride
            if ahead >= 0 and ahead % stride == 0 and place < OD:
                at = (((image * OD + place) * C + c) * taps + t) * area
                for k in range(area):
                    dx[q * area + k] += g[at + k]


@on_cuda(slices_back)
def slices_back_cuda(g: Ptr, dx: Ptr, n: Int, C: Int, D: Int, OD: Int, taps: Int, stride: Int, before: Int, gap: Int, area: Int):
    """One thread per element."""
    for i in range(n * C * D * area):
        q, k = i // area, i % area
        plane, d = q // D, q % D
        image, c = plane // C, plane % C
        total = T(0)
        for t in range(taps):
            ahead = d + before - t * gap
            place = ahead // stride
            if ahead >= 0 and ahead % stride == 0 and place < OD:
                total += g[(((image * OD + place) * C + c) * taps + t) * area + k]
        dx[i] = total


@op(
    "depth_windows",
    inputs="X",
    attrs={
        "ksize": Attr(1, "slices of a window"),
        "stride": Attr(1, "slices between windows"),
        "paddings": Attr([0, 0], "slices of zeros in front and behind"),
        "dilation": Attr(1, "slices between those of a window"),
    },
    samples=[
        Sample({"X": (2, 3, 5, 2, 3)}, {"ksize": 3, "stride": 2, "paddings": [1, 0]}, "padded in front"),
        Sample({"X": (1, 2, 6, 1, 1)}, {"ksize": 2, "dilation": 3}, "slices apart"),
        Sample({"X": (1, 1, 1, 3, 1)}, {"ksize": 1}, "one slice"),
        Sample({"X": (0, 2, 4, 3, 3)}, {"ksize": 2}, "an empty batch"),
    ],
)
def depth_windows(x: TensorType, *, ksize: int, stride: int, paddings: list[int], dilation: int) -> TensorType:
    """Take the slices under a filter, for every place of it along the depth.

    Out[n, place, c, tap] = X[n, c, place stride - in front + tap dilation], 0 outside. A convolution of images whose channels are
    (c, tap) makes a convolution of volumes of it.

    Args:
        X: [batch, channels, depth, height, width] float32 or float64.

    Returns:
        Out: [batch, places, channels, ksize, height, width], places = (depth + paddings - dilation (ksize - 1) - 1) / stride + 1.

    Raises:
        PeError: X of another rank or unknown depth, or a window that does not fit.

    Source:
        The im2col of fluid.layers.conv3d, along one axis.
    """
    if len(x.shape) != 5 or x.shape[2] < 1:
        raise PeError(f"depth_windows needs volumes of rank 5 and known depth, got {x}", hint="declare the feed with its sizes")
    if min(ksize, stride, dilation) < 1 or len(paddings) != 2 or min(paddings) < 0:
        text = f"ksize {ksize}, stride {stride}, dilation {dilation} and paddings {paddings}"
        raise PeError(f"depth_windows needs numbers of at least 1 and two paddings of at least 0, got {text}")
    places = (x.shape[2] + sum(paddings) - dilation * (ksize - 1) - 1) // stride + 1
    if places < 1:
        text = f"{ksize} slices (dilation {dilation}) do not fit into {x} with padding {paddings} along the depth"
        raise PeError(f"depth_windows: {text}", hint="use a smaller filter_size or more padding")
    return x.with_shape(x.shape[0], places, x.shape[1], ksize, *x.shape[3:])


def _geometry(o: Lowering, volume: tuple[int, ...], places: int) -> tuple[int, ...]:
    a, (n, c, depth, *area) = o.attrs, volume
    return n, c, depth, places, a["ksize"], a["stride"], a["paddings"][0], a["dilation"], product(area)


@depth_windows.lower("cpu")
def depth_windows_cpu(o: Lowering) -> None:
    """Copy slices."""
    x, out = o.input("X"), o.output("Out")
    if out.size:
        o.call(slices, x, out, *_geometry(o, x.shape, out.shape[1]))


@depth_windows.grad().lower("cpu")
def depth_windows_grad_cpu(o: Lowering) -> None:
    """Every slice adds up the gradients of the places that it was copied to."""
    g, dx = o.input("Out@GRAD"), o.output("X@GRAD")
    if dx.size:
        o.call(slices_back, g, dx, *_geometry(o, dx.shape, g.shape[1]))


also_on_cuda(depth_windows)


@in_onnx("depth_windows")
def depth_windows_onnx(o: Writer) -> None:
    """Zeros around, then a slice in steps for every tap, side by side."""
    a, places = o.attrs, o.out_type().shape[1]
    x = o.x()
    if any(a["paddings"]):
        front, behind = a["paddings"]
        x = o.node("Pad", [x, o.const([0, 0, front, 0, 0, 0, 0, behind, 0, 0])])
    taps = []
    # One strided slice for each tap, so that no gather over an index is needed.
    for begin in range(0, a["ksize"] * a["dilation"], a["dilation"]):
        numbers = ([begin], [begin + (places - 1) * a["stride"] + 1], [2], [a["stride"]])
        tap = o.node("Slice", [x, *(o.const(n) for n in numbers)])
        taps.append(o.node("Unsqueeze", [tap, o.const([3])]))
    o.node("Transpose", [o.node("Concat", taps, axis=3)], to="Out", perm=[0, 2, 1, 3, 4, 5])


@op(
    "depth_overlay",
    inputs="X",
    attrs={
        "stride": Attr(1, "slices between windows"),
        "before": Attr(0, "slices of the first window that are in front of the volume"),
        "dilation": Attr(1, "slices between those of a window"),
        "depth": Attr(1, "slices of the volume"),
    },
    samples=[
        Sample({"X": (2, 3, 2, 3, 2, 1)}, {"stride": 2, "before": 1, "depth": 6}, "windows that overlap"),
        Sample({"X": (1, 3, 2, 2, 1, 2)}, {"stride": 3, "dilation": 2, "depth": 8}, "slices apart"),
        Sample({"X": (1, 1, 1, 1, 2, 1)}, {"depth": 3}, "slices that nothing reaches"),
        Sample({"X": (0, 2, 2, 2, 3, 3)}, {"depth": 3}, "an empty batch"),
    ],
)
def depth_overlay(x: TensorType, *, stride: int, before: int, dilation: int, depth: int) -> TensorType:
    """Add the slices of windows up where they lie in a volume: the gradient of `depth_windows`.

    Out[n, c, d] = sum of X[n, place, c, tap] over place and tap with place stride - before + tap dilation = d

    Args:
        X: [batch, places, channels, taps, height, width] float32 or float64.

    Returns:
        Out: [batch, channels, depth, height, width].

    Raises:
        PeError: X of another rank, or numbers below those that make sense.

    Source:
        The col2im of fluid.layers.conv3d_transpose, along one axis.
    """
    if len(x.shape) != 6 or min(x.shape[1:4]) < 1:
        raise PeError(f"depth_overlay needs windows of rank 6 with known places, channels and taps, got {x}")
    if min(stride, dilation, depth) < 1 or before < 0:
        text = f"stride {stride}, dilation {dilation} and depth {depth} must be at least 1, before {before} at least 0"
        raise PeError(f"depth_overlay: {text}")
    return x.with_shape(x.shape[0], x.shape[2], depth, *x.shape[4:])


def _overlay(o: Lowering, windows: tuple[int, ...], volume: tuple[int, ...]) -> tuple[int, ...]:
    # The same kernels as depth_windows with windows and volume exchanged: each op is the other's gradient.
    a, (n, c, depth, *area) = o.attrs, volume
    return n, c, depth, windows[1], windows[3], a["stride"], a["before"], a["dilation"], product(area)


@depth_overlay.lower("cpu")
def depth_overlay_cpu(o: Lowering) -> None:
    """Every slice adds up those that lie there."""
    x, out = o.input("X"), o.output("Out")
    if out.size:
        o.call(slices_back, x, out, *_overlay(o, x.shape, out.shape))


@depth_overlay.grad().lower("cpu")
def depth_overlay_grad_cpu(o: Lowering) -> None:
    """Copy slices."""
    g, dx = o.input("Out@GRAD"), o.output("X@GRAD")
    if dx.size:
        o.call(slices, g, dx, *_overlay(o, dx.shape, g.shape))


also_on_cuda(depth_overlay)


@in_onnx("depth_overlay")
def depth_overlay_onnx(o: Writer) -> None:
    """A transposed convolution of rows, with a filter that has a one for each tap."""
    a, (_, places, channels, taps, *area), like = o.attrs, o.type().shape, o.type().dtype
    # Depth becomes the last axis, so that the overlay is a one-dimensional transposed convolution of many rows.
    rows = o.node("Transpose", [o.x()], perm=[0, 2, 4, 5, 3, 1])
    rows = o.node("Reshape", [rows, o.const([-1, taps, places])])
    # Slices that the windows reach behind the volume; negative where the volume is longer than what they reach.
    behind = (places - 1) * a["stride"] + a["dilation"] * (taps - 1) + 1 - a["before"] - a["depth"]
    ones = o.const(np.eye(taps)[:, None], dtype=like)
    made = o.node("ConvTranspose", [rows, ones], strides=[a["stride"]], dilations=[a["dilation"]], pads=[a["before"], max(0, behind)])
    if behind < 0:
        made = o.node("Pad", [made, o.const([0, 0, 0, 0, 0, -behind])])
    made = o.node("Reshape", [made, o.const([-1, channels, *area, a["depth"]])])
    o.node("Transpose", [made], to="Out", perm=[0, 1, 4, 2, 3])
