"""unfold: the windows of an image as columns of a matrix."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering, Numbers
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op

#: Places in the list of sizes that kernels take, behind those of image, result and window.
STRIDE_Y, STRIDE_X, PAD_Y, PAD_X, DILATION_Y, DILATION_X = range(6, 12)


@kernel
def columns(x: Ptr, out: Ptr, g: PtrI64, planes: Int):
    """out[plane, tap, place] = the pixel of the plane under a tap of a window, 0 outside."""
    for plane in range(planes):
        H, W, OH, OW, KH, KW = g[0], g[1], g[2], g[3], g[4], g[5]
        # Taps outside, places inside: the inner loop writes in order, and reads in order at stride 1.
        for k in range(KH * KW):
            for i in range(OH):
                r = i * g[STRIDE_Y] - g[PAD_Y] + k // KW * g[DILATION_Y]
                to = ((plane * KH * KW + k) * OH + i) * OW
                for j in range(OW):
                    c = j * g[STRIDE_X] - g[PAD_X] + k % KW * g[DILATION_X]
                    out[to + j] = x[(plane * H + r) * W + c] if 0 <= r < H and 0 <= c < W else T(0)


@kernel
def columns_back(d: Ptr, dx: Ptr, g: PtrI64, planes: Int):
    """dx[plane] = the sums of d over the windows that see a pixel."""
    # One plane has all windows that see a pixel, so planes are what threads share out.
    for plane in range(planes):
        H, W, OH, OW, KH, KW = g[0], g[1], g[2], g[3], g[4], g[5]
        for p in range(plane * H * W, (plane + 1) * H * W):
            dx[p] = T(0)
        for k in range(KH * KW):
            for i in range(OH):
                r = i * g[STRIDE_Y] - g[PAD_Y] + k // KW * g[DILATION_Y]
                if not 0 <= r < H:
                    continue
                at = ((plane * KH * KW + k) * OH + i) * OW
                for j in range(OW):
                    c = j * g[STRIDE_X] - g[PAD_X] + k % KW * g[DILATION_X]
                    if 0 <= c < W:
                        dx[(plane * H + r) * W + c] += d[at + j]


@op(
    "unfold",
    inputs="X",
    outputs="Y",
    attrs={
        "kernel_sizes": Attr([1, 1], "rows and columns of a window"),
        "strides": Attr([1, 1], "pixels between windows"),
        "paddings": Attr([0, 0, 0, 0], "pixels of zeros above, to the left, below and to the right"),
        "dilations": Attr([1, 1], "pixels between those of a window"),
    },
    samples=[
        Sample({"X": (2, 3, 5, 6)}, {"kernel_sizes": [2, 3], "strides": [1, 2], "paddings": [1, 0, 2, 1], "dilations": [2, 1]}, "apart"),
        Sample({"X": (1, 2, 4, 4)}, {"kernel_sizes": [2, 2]}, "overlapping windows"),
        Sample({"X": (1, 1, 1, 1)}, {}, "one pixel"),
        Sample({"X": (0, 2, 4, 4)}, {"kernel_sizes": [2, 2]}, "an empty batch"),
    ],
)
def unfold(x: TensorType, *, kernel_sizes: list[int], strides: list[int], paddings: list[int], dilations: list[int]) -> TensorType:
    """Cut images into windows, a column each.

    Y[n, (c, u, v), (i, j)] = X[n, c, i stride - above + u dilation, j stride - left + v dilation], 0 outside.

    Args:
        X: [batch, channels, height, width] float32 or float64.

    Returns:
        Y: [batch, channels * window, windows], windows = rows * columns, each (size + paddings - dilation (window - 1) - 1) / stride + 1.

    Raises:
        PeError: X of another rank, numbers that do not fit, or a window larger than the padded image.

    Source:
        fluid.layers.unfold.
    """
    if len(x.shape) != 4:
        raise PeError(f"unfold needs images [batch, channels, height, width], got {x}")
    pairs = (kernel_sizes, strides, dilations)
    if any(len(p) != 2 or min(p) < 1 for p in pairs) or len(paddings) != 4 or min(paddings) < 0:
        text = f"kernel_sizes {kernel_sizes}, strides {strides}, dilations {dilations} and paddings {paddings}"
        raise PeError(f"unfold needs pairs of numbers of at least 1 and four paddings of at least 0, got {text}")
    high, wide = _windows(x.shape, kernel_sizes, strides, paddings, dilations)
    if high in (0, -2) or wide in (0, -2):
        raise PeError(f"unfold: a window of {kernel_sizes} (dilation {dilations}) does not fit into {x} with padding {paddings}")
    count = -1 if -1 in (high, wide) else high * wide
    return x.with_shape(x.shape[0], -1 if x.shape[1] < 0 else x.shape[1] * kernel_sizes[0] * kernel_sizes[1], count)


def _windows(shape: tuple[int, ...], taps: list[int], strides: list[int], paddings: list[int], gaps: list[int]) -> list[int]:
    """Return rows and columns of windows: -1 where the size is not known, -2 where none fits."""
    # -2 marks that no window fits at all: `or -2` keeps the size 0 apart from -1, which means that the size is not known.
    each = zip(shape[2:], taps, strides, (paddings[0] + paddings[2], paddings[1] + paddings[3]), gaps, strict=True)
    return [-1 if s < 0 else max((s + p - d * (k - 1) - 1) // st + 1, -2) or -2 for s, k, st, p, d in each]


def _geometry(o: Lowering, shape: tuple[int, ...]) -> tuple[Numbers, int]:
    a = o.attrs
    sizes = _windows(shape, a["kernel_sizes"], a["strides"], a["paddings"], a["dilations"])
    return Numbers((*shape[2:], *sizes, *a["kernel_sizes"], *a["strides"], *a["paddings"][:2], *a["dilations"])), shape[0] * shape[1]


@unfold.lower("cpu")
def unfold_cpu(o: Lowering) -> None:
    """Plane by plane."""
    x, y = o.input("X"), o.output("Y")
    if y.size:
        o.call(columns, x, y, *_geometry(o, x.shape))


@unfold.grad().lower("cpu")
def unfold_grad_cpu(o: Lowering) -> None:
    """Plane by plane: the windows of one share pixels."""
    dx = o.output("X@GRAD")
    if dx.size:
        o.call(columns_back, o.input("Y@GRAD"), dx, *_geometry(o, dx.shape))


deal(columns, columns_back)
also_on_cuda(unfold)


@in_onnx("unfold")
def unfold_onnx(o: Writer) -> None:
    """A convolution of every channel by itself, with a filter for each pixel of a window that lets this pixel through."""
    a, x = o.attrs, o.type()
    taps, channels = product(a["kernel_sizes"]), x.shape[1]
    filters = np.tile(np.eye(taps).reshape(taps, 1, *a["kernel_sizes"]), (channels, 1, 1, 1))
    how = {"strides": a["strides"], "pads": a["paddings"], "dilations": a["dilations"], "group": channels}
    windows = o.node("Conv", [o.x(), o.const(filters, "X")], **how)
    o.node("Reshape", [windows, o.const([0, channels * taps, -1])], to="Y")
