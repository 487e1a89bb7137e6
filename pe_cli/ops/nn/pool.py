"""pool2d: the largest or the average value of each window."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.language import LANES, SIZE, Int, Ptr, PtrI64, T, address, apart, helper, kernel, pointer
from pe_cli.ops.define.lowering import Buffer, Lowering, Numbers
from pe_cli.ops.define.onnx import Writer, as_written, first_channels, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Layout, Narrow

#: Places in the list of sizes that kernels take, in `_geometry`'s order; INSIDE: whether an average counts only pixels of the image.
HEIGHT, WIDTH, CHANNELS, OUT_HEIGHT, OUT_WIDTH, TAPS_Y, TAPS_X, STRIDE_Y, STRIDE_X, PAD_Y, PAD_X, INSIDE = range(12)


@helper
def window(i, stride, pad, taps, size):
    """Return first and past-the-last input row of output row i, inside the image."""
    begin = i * stride - pad
    return max(begin, 0), min(begin + taps, size)


@helper
def _in_fours(g):
    """Return whether windows are the squares of two by two that lie side by side: the four are then taken in one loop."""
    squares = g[TAPS_Y] == 2 and g[TAPS_X] == 2 and g[STRIDE_Y] == 2 and g[STRIDE_X] == 2 and g[PAD_Y] == 0 and g[PAD_X] == 0
    return squares and 2 * g[OUT_HEIGHT] <= g[HEIGHT] and 2 * g[OUT_WIDTH] <= g[WIDTH]


@helper
def _larger(a, b):
    """Return the larger number; the first where they are equal or it is a NaN."""
    # A NaN compares as not equal to itself: it wins, so that an error in a window is not hidden by its neighbours.
    return a if (a >= b or a != a) else b


@helper
def _max_of_four(x, y, p, q, out, begin, end, C):
    """Do channels begin to end of one square: x from p in its upper row and from q in its lower one."""
    for c in range(begin, end):
        top = _larger(x[p + c], x[p + C + c])
        y[out + c] = _larger(_larger(top, x[q + c]), x[q + C + c])


@helper
def _max_of_four_back(x, y, dy, dx, p, q, out, begin, end, C):
    """Write the gradient of channels begin to end of one square."""
    for c in range(begin, end):
        # Of equal maxima the first takes the gradient, and nothing is left for those after it.
        most, left = y[out + c], dy[out + c]
        v = x[p + c]
        take = left if (v == most or v != v) else T(0)
        dx[p + c] = take
        left -= take
        v = x[p + C + c]
        take = left if (v == most or v != v) else T(0)
        dx[p + C + c] = take
        left -= take
        v = x[q + c]
        take = left if (v == most or v != v) else T(0)
        dx[q + c] = take
        left -= take
        v = x[q + C + c]
        dx[q + C + c] = left if (v == most or v != v) else T(0)


@helper
def _max_of_fours(x, y, g, n):
    """Do `max_forward` for `_in_fours`: whole vectors, of which the last may lie over the one before."""
    H, W, C, OH, OW = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH]
    for row in range(n * OH):
        for j in range(OW):
            out = (row * OW + j) * C
            p = ((row // OH * H + row % OH * 2) * W + 2 * j) * C
            q = p + W * C
            # Fewer channels than a vector has lanes are done one by one.
            if C < LANES:
                _max_of_four(x, y, p, q, out, 0, C, C)
            for begin in range(0, C if C >= LANES else 0, LANES):
                # The last vector moves back over the one before instead of being shorter: what both write is the same.
                first = min(begin, C - LANES)
                _max_of_four(x, y, p, q, out, first, first + LANES, C)


@helper
def _max_of_fours_back(x, y, dy, dx, g, n):
    """Do `max_backward` for `_in_fours`: whole vectors, of which the last may lie over the one before."""
    H, W, C, OH, OW = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH]
    if 2 * OH < H or 2 * OW < W:
        # Where windows leave a row or a column out, nobody else writes its gradient.
        for k in range(n * H * W * C):
            dx[k] = T(0)
    for row in range(n * OH):
        for j in range(OW):
            out = (row * OW + j) * C
            p = ((row // OH * H + row % OH * 2) * W + 2 * j) * C
            q = p + W * C
            if C < LANES:
                _max_of_four_back(x, y, dy, dx, p, q, out, 0, C, C)
            for begin in range(0, C if C >= LANES else 0, LANES):
                first = min(begin, C - LANES)
                _max_of_four_back(x, y, dy, dx, p, q, out, first, first + LANES, C)


@kernel
def max_forward(x: Ptr, y: Ptr, g: PtrI64, n: Int):
    """y = largest value of each window; a NaN in a window wins. Images have channels last; g: sizes in `_geometry`'s order."""
    if _in_fours(g):
        _max_of_fours(x, y, g, n)
        return
    H, W, C, OH, OW = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH]
    for image in range(n):
        for i in range(OH):
            r0, r1 = window(i, g[STRIDE_Y], g[PAD_Y], g[TAPS_Y], H)
            for j in range(OW):
                c0, c1 = window(j, g[STRIDE_X], g[PAD_X], g[TAPS_X], W)
                out = ((image * OH + i) * OW + j) * C
                at = ((image * H + r0) * W + c0) * C
                # The window's first pixel begins, so that no number has to stand for minus infinity.
                for c in range(C):
                    y[out + c] = x[at + c]
                for r in range(r0, r1):
                    for s in range(c0, c1):
                        at = ((image * H + r) * W + s) * C
                        for c in range(C):
                            v = x[at + c]
                            # A NaN is larger or equal to nothing, so it is asked for by itself.
                            y[out + c] = y[out + c] if (y[out + c] >= v or y[out + c] != y[out + c]) else v


@kernel
def max_backward(x: Ptr, y: Ptr, dy: Ptr, dx: Ptr, left: Ptr, g: PtrI64, n: Int):
    """dx gets each window's gradient at the first position of its largest value; left: scratch of C."""
    if _in_fours(g):
        _max_of_fours_back(x, y, dy, dx, g, n)
        return
    H, W, C, OH, OW = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH]
    for k in range(n * H * W * C):
        dx[k] = T(0)
    for image in range(n):
        for i in range(OH):
            r0, r1 = window(i, g[STRIDE_Y], g[PAD_Y], g[TAPS_Y], H)
            for j in range(OW):
                c0, c1 = window(j, g[STRIDE_X], g[PAD_X], g[TAPS_X], W)
                out = ((image * OH + i) * OW + j) * C
                # What is left of the gradient: 0 once a maximum took it, so that only the first of several gets it.
                for c in range(C):
                    left[c] = dy[out + c]
                for r in range(r0, r1):
                    for s in range(c0, c1):
                        at = ((image * H + r) * W + s) * C
                        for c in range(C):
                            v = x[at + c]
                            take = left[c] if (v == y[out + c] or v != v) else T(0)
                            dx[at + c] += take
                            left[c] -= take


@apart
def _add_pixels(x, y, C, count):
    """Add three neighbouring pixels to y, or one."""
    # Three at a time: y is read and written once for three pixels.
    if count == 3:
        for c in range(C):
            y[c] += (x[c] + x[C + c]) + x[2 * C + c]
    else:
        for c in range(C):
            y[c] += x[c]


@apart
def _sum_of_nine(x, y, C, step, share):
    """Write the sum of three by three pixels, times a number; step: elements from a pixel to the one below."""
    for c in range(C):
        top = (x[c] + x[C + c]) + x[2 * C + c]
        middle = (x[step + c] + x[step + C + c]) + x[step + 2 * C + c]
        bottom = (x[2 * step + c] + x[2 * step + C + c]) + x[2 * step + 2 * C + c]
        y[c] = (top + middle + bottom) * share


@kernel
def average_forward(x: Ptr, y: Ptr, g: PtrI64, n: Int):
    """y = sum of each window over its number of elements (inside the image, or all taps)."""
    H, W, C, OH, OW = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH]
    for image in range(n):
        for i in range(OH):
            r0, r1 = window(i, g[STRIDE_Y], g[PAD_Y], g[TAPS_Y], H)
            for j in range(OW):
                c0, c1 = window(j, g[STRIDE_X], g[PAD_X], g[TAPS_X], W)
                count = (r1 - r0) * (c1 - c0) if g[INSIDE] != 0 else g[TAPS_Y] * g[TAPS_X]
                out = ((image * OH + i) * OW + j) * C
                share = T(1) / T(max(count, 1))
                total = pointer(address(y) + SIZE * out)
                # A whole window of three by three is added up in registers, and y is written once.
                if r1 - r0 == 3 and c1 - c0 == 3:
                    _sum_of_nine(pointer(address(x) + SIZE * ((image * H + r0) * W + c0) * C), total, C, W * C, share)
                    continue
                for c in range(C):
                    total[c] = T(0)
                for r in range(r0, r1):
                    s = c0
                    while s < c1:
                        together = 3 if s + 3 <= c1 else 1
                        _add_pixels(pointer(address(x) + SIZE * ((image * H + r) * W + s) * C), total, C, together)
                        s += together
                for c in range(C):
                    total[c] *= share


@kernel
def average_backward(dy: Ptr, dx: Ptr, g: PtrI64, n: Int):
    """dx gets each window's gradient in equal shares."""
    H, W, C, OH, OW = g[HEIGHT], g[WIDTH], g[CHANNELS], g[OUT_HEIGHT], g[OUT_WIDTH]
    # Windows may overlap, so their shares are added to zeros.
    for k in range(n * H * W * C):
        dx[k] = T(0)
    for image in range(n):
        for i in range(OH):
            r0, r1 = window(i, g[STRIDE_Y], g[PAD_Y], g[TAPS_Y], H)
            for j in range(OW):
                c0, c1 = window(j, g[STRIDE_X], g[PAD_X], g[TAPS_X], W)
                count = (r1 - r0) * (c1 - c0) if g[INSIDE] != 0 else g[TAPS_Y] * g[TAPS_X]
                out = ((image * OH + i) * OW + j) * C
                share = T(1) / T(max(count, 1))
                for r in range(r0, r1):
                    for s in range(c0, c1):
                        at = ((image * H + r) * W + s) * C
                        for c in range(C):
                            dx[at + c] += dy[out + c] * share


def _apart(arrays: dict[str, list]) -> dict[str, list]:  # type: ignore[type-arg]
    """Move inputs away from ties: central differences are wrong where the largest value changes place."""
    import numpy as np

    (x,) = arrays["X"]
    order = np.argsort(np.argsort(x, axis=None)).reshape(x.shape)
    # Ranks times a tenth: no two elements are as near as a central difference reaches.
    return {"X": [order * 0.1 - 0.05 * x.size]}


def _size(size: int, taps: int, stride: int, padding: int, ceil_mode: bool) -> int:
    """Return the output size along an axis, -1 when unknown."""
    if size < 0:
        return -1
    rest = size + 2 * padding - taps
    out = (rest + stride - 1 if ceil_mode else rest) // stride + 1
    return out - 1 if ceil_mode and (out - 1) * stride >= size + padding else out  # a window must begin inside


@op(
    "pool2d",
    inputs="X",
    attrs={
        "pooling_type": Attr("max", "what a window becomes", ("max", "avg")),
        "ksize": Attr([2, 2], "window, pixels"),
        "strides": Attr([1, 1], "steps of the window, pixels"),
        "paddings": Attr([0, 0], "border above and below, left and right, pixels"),
        "global_pooling": Attr(False, "one window over the whole image"),
        "ceil_mode": Attr(False, "let the last window reach beyond the border"),
        "exclusive": Attr(True, "the average counts only pixels inside the image"),
        "data_format": Attr("NCHW", "order of axes", ("NCHW", "NHWC")),
    },
    samples=[
        Sample({"X": (2, 3, 4, 6)}, {"strides": [2, 2]}, "largest of two by two"),
        Sample({"X": (2, 3, 5, 5)}, {"ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1]}, "overlapping, padded"),
        Sample(
            {"X": (2, 5, 7, 3)}, {"strides": [2, 2], "ceil_mode": True, "data_format": "NHWC"}, "channels last, ceil"
        ),
        Sample({"X": (2, 3, 5, 4)}, {"pooling_type": "avg", "ksize": [3, 2], "paddings": [1, 1]}, "average inside"),
        Sample(
            {"X": (2, 3, 5, 4)}, {"pooling_type": "avg", "paddings": [1, 1], "exclusive": False}, "average with zeros"
        ),
        Sample({"X": (2, 3, 5, 4)}, {"pooling_type": "avg", "global_pooling": True}, "global average"),
        Sample({"X": (0, 3, 4, 4)}, {"strides": [2, 2]}, "empty batch"),
    ],
    kinks=_apart,
    traits=[Layout("data_format", ("X", "Out")), Narrow()],
)
def pool2d(
    x: TensorType,
    *,
    pooling_type: str,
    ksize: list[int],
    strides: list[int],
    paddings: list[int],
    global_pooling: bool,
    ceil_mode: bool,
    exclusive: bool,
    data_format: str,
) -> TensorType:
    """Replace each window of an image by its largest or average value, channel by channel.

    Args:
        X: [batch, channels, height, width], or [batch, height, width, channels] with data_format NHWC.

    Returns:
        Out: the same order; size = (size + 2*padding - window) / stride + 1, rounded down, or up with ceil_mode.

    Raises:
        PeError: wrong rank, a window that does not fit, or padding of at least the window.

    Source:
        fluid.layers.pool2d.
    """
    if len(x.shape) != 4:
        raise PeError(f"pool2d needs images of rank 4, got {x}")
    last = data_format == "NHWC"
    n, h, w, c = (x.shape[i] for i in ((0, 1, 2, 3) if last else (0, 2, 3, 1)))
    if global_pooling:
        oh = ow = 1
    else:
        for name, pair, least in (("ksize", ksize, 1), ("strides", strides, 1), ("paddings", paddings, 0)):
            if len(pair) != 2 or min(pair) < least:
                raise PeError(f"pool2d: {name} must be two numbers of at least {least}, got {pair}")
        if paddings[0] >= ksize[0] or paddings[1] >= ksize[1]:
            raise PeError(
                f"pool2d: padding {paddings} must be smaller than the window {ksize}: a window of padding only has no value"
            )
        oh, ow = (_size(s, k, st, p, ceil_mode) for s, k, st, p in zip((h, w), ksize, strides, paddings, strict=True))
        if (h >= 0 and oh < 1) or (w >= 0 and ow < 1):
            raise PeError(
                f"pool2d: a window of {ksize[0]}x{ksize[1]} does not fit into images of {h}x{w} with padding {paddings}",
                hint="use a smaller pool_size; images are [channels, height, width]: of others"
                " {type: transpose, perm: [0, 3, 1, 2]} makes such",
            )
    return x.with_shape(n, oh, ow, c) if last else x.with_shape(n, c, oh, ow)


def _geometry(o: Lowering, x: Buffer, y: Buffer) -> tuple[Numbers, int]:
    """Return sizes and the number of images; NCHW is NHWC with one channel and more images."""
    attrs = o.attrs
    if attrs["data_format"] == "NHWC":
        n, (h, w, c), (oh, ow) = x.shape[0], x.shape[1:], y.shape[1:3]
    else:
        n, (h, w), c, (oh, ow) = x.shape[0] * x.shape[1], x.shape[2:], 1, y.shape[2:]
    whole = attrs["global_pooling"]
    ksize = [h, w] if whole else attrs["ksize"]
    strides = [1, 1] if whole else attrs["strides"]
    paddings = [0, 0] if whole else attrs["paddings"]
    return Numbers((h, w, c, oh, ow, *ksize, *strides, *paddings, int(attrs["exclusive"]))), n


@pool2d.lower("cpu")
def pool2d_cpu(o: Lowering) -> None:
    """Windows in order, channels innermost."""
    x, y = o.input("X"), o.output("Out")
    sizes, n = _geometry(o, x, y)
    o.call(max_forward if o.attrs["pooling_type"] == "max" else average_forward, x, y, sizes, n)


@pool2d.grad(uses="X Out").lower("cpu")
def pool2d_grad_cpu(o: Lowering) -> None:
    """Scatter each window's gradient."""
    x, y, dy, dx = o.input("X"), o.input("Out"), o.input("Out@GRAD"), o.output("X@GRAD")
    sizes, n = _geometry(o, x, y)
    if o.attrs["pooling_type"] == "max":
        o.call(max_backward, x, y, dy, dx, o.scratch(sizes.values[2], x.dtype), sizes, n)
    else:
        o.call(average_backward, dy, dx, sizes, n)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("pool2d")
def pool2d_onnx(o: Writer) -> None:
    """Windows, or all of the image."""
    a = o.attrs
    x = first_channels(o, o.x(), "data_format")
    kind = "MaxPool" if a["pooling_type"] == "max" else "AveragePool"
    if a["global_pooling"]:
        made = o.node(f"Global{kind}", [x])
    else:
        facts = {"kernel_shape": a["ksize"], "strides": a["strides"], "pads": [*a["paddings"], *a["paddings"]]}
        if kind == "AveragePool":
            facts["count_include_pad"] = int(not a["exclusive"])
        made = o.node(kind, [x], ceil_mode=int(a["ceil_mode"]), **facts)
    as_written(o, made, "data_format", "Out")
