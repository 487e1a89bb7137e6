"""pool3d: the largest or average value of each window of a volume; the windows may adapt to the size that is wanted."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Buffer, Lowering, Numbers
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.nn.pool import _apart

#: Places in the list of sizes that kernels take: the first of three for the axes, behind the sizes of the volume; and two flags.
OUT, TAPS, STRIDE, BEFORE, INSIDE, ADAPTIVE, BEHIND = 3, 6, 9, 12, 15, 16, 17


@helper
def begin(g, axis, i):
    """Return the first position of window i along an axis, inside the volume."""
    if g[ADAPTIVE]:
        return i * g[axis] // g[OUT + axis]
    return max(i * g[STRIDE + axis] - g[BEFORE + axis], 0)


@helper
def end(g, axis, i):
    """Return the position after the last one of window i along an axis."""
    if g[ADAPTIVE]:
        # Rounded outwards: neighbouring adaptive windows may share a position, and none is left out.
        return ((i + 1) * g[axis] + g[OUT + axis] - 1) // g[OUT + axis]
    return min(i * g[STRIDE + axis] - g[BEFORE + axis] + g[TAPS + axis], g[axis])


@helper
def _whole(g, axis, i):
    """Return the length of window i along an axis, padding included."""
    # Padding counts as long as it was asked for: with ceil_mode the last window may reach beyond it, and that part does not.
    first = i * g[STRIDE + axis] - g[BEFORE + axis]
    return min(first + g[TAPS + axis], g[axis] + g[BEHIND + axis]) - first


@helper
def _count(g, i, j, k, a, b, c, d, e, f):
    """Return the divisor of a window's sum."""
    if g[INSIDE] or g[ADAPTIVE]:
        return (b - a) * (d - c) * (f - e)
    return _whole(g, 0, i) * _whole(g, 1, j) * _whole(g, 2, k)


@kernel
def volume_forward(x: Ptr, y: Ptr, g: PtrI64, n: Int, largest: Int):
    """y = largest or average value of each window of n volumes; a NaN in a window wins."""
    D, H, W, OD, OH, OW = g[0], g[1], g[2], g[3], g[4], g[5]
    for v in range(n):
        for i in range(OD):
            a, b = begin(g, 0, i), end(g, 0, i)
            for j in range(OH):
                c, d = begin(g, 1, j), end(g, 1, j)
                for k in range(OW):
                    e, f = begin(g, 2, k), end(g, 2, k)
                    # Both the largest value and the sum are made, as the loop is bound by reading; which of them is kept is decided at the
                    # end.
                    best = x[((v * D + a) * H + c) * W + e]
                    total = 0.0
                    for r in range(a, b):
                        for s in range(c, d):
                            at = ((v * D + r) * H + s) * W
                            for t in range(at + e, at + f):
                                total += x[t]
                                # "Not less" is false for a NaN, which so becomes the best, and then stays.
                                best = best if (best >= x[t] or best != best) else x[t]
                    mean = T(total / _count(g, i, j, k, a, b, c, d, e, f))
                    y[((v * OD + i) * OH + j) * OW + k] = best if largest else mean


@kernel
def volume_backward(x: Ptr, y: Ptr, dy: Ptr, dx: Ptr, g: PtrI64, n: Int, largest: Int):  # noqa: C901 (loops over windows of three axes)
    """dx gets each window's gradient: its first largest value all of it, or every value a share."""
    D, H, W, OD, OH, OW = g[0], g[1], g[2], g[3], g[4], g[5]
    for v in range(n):
        for q in range(v * D * H * W, (v + 1) * D * H * W):
            dx[q] = T(0)
        for i in range(OD):
            a, b = begin(g, 0, i), end(g, 0, i)
            for j in range(OH):
                c, d = begin(g, 1, j), end(g, 1, j)
                for k in range(OW):
                    e, f = begin(g, 2, k), end(g, 2, k)
                    o = ((v * OD + i) * OH + j) * OW + k
                    share = T(dy[o] / _count(g, i, j, k, a, b, c, d, e, f))
                    left = dy[o]
                    for r in range(a, b):
                        for s in range(c, d):
                            at = ((v * D + r) * H + s) * W
                            for t in range(at + e, at + f):
                                if largest:
                                    # The first value that equals the largest gets the whole gradient: `left` is 0 for all others.
                                    if x[t] == y[o] or x[t] != x[t]:
                                        dx[t] += left
                                        left = T(0)
                                else:
                                    dx[t] += share


@op(
    "pool3d",
    inputs="X",
    attrs={
        "pooling_type": Attr("max", "what a window becomes", ("max", "avg")),
        "ksize": Attr([1, 1, 1], "depth, height and width of a window; with adaptive, of the output"),
        "strides": Attr([1, 1, 1], "positions from one window to the next"),
        "paddings": Attr([0, 0, 0], "positions on each side, or six: in front and behind, above and below, left and right"),
        "global_pooling": Attr(False, "one window over the whole volume"),
        "ceil_mode": Attr(False, "round the number of windows up instead of down"),
        "exclusive": Attr(True, "an average counts the volume only, not the padding"),
        "adaptive": Attr(False, "windows cover the volume for an output of ksize"),
    },
    samples=[
        Sample({"X": (2, 2, 4, 5, 4)}, {"ksize": [2, 2, 2], "strides": [2, 1, 2]}, "largest"),
        Sample({"X": (2, 2, 4, 5, 4)}, {"pooling_type": "avg", "ksize": [3, 2, 3], "paddings": [1, 1, 1]}, "average, padded"),
        Sample(
            {"X": (1, 2, 4, 4, 5)},
            {"pooling_type": "avg", "ksize": [3, 3, 3], "paddings": [1, 1, 1], "strides": [2, 2, 2], "exclusive": False,
             "ceil_mode": True},
            "average that counts padding",
        ),
        Sample({"X": (1, 2, 4, 5, 3)}, {"ksize": [2, 2, 2], "strides": [2, 1, 2], "paddings": [1, 0, 0, 1, 0, 1]}, "padded on one side"),
        Sample({"X": (2, 3, 5, 4, 7)}, {"pooling_type": "avg", "ksize": [2, 3, 3], "adaptive": True}, "adaptive average"),
        Sample({"X": (2, 3, 5, 4, 7)}, {"ksize": [2, 3, 3], "adaptive": True}, "adaptive largest"),
        Sample({"X": (2, 3, 3, 2, 2)}, {"global_pooling": True}, "global"),
        Sample({"X": (0, 3, 4, 4, 4)}, {"strides": [2, 2, 2]}, "empty batch"),
    ],
    kinks=_apart,
)  # fmt: skip
def pool3d(
    x: TensorType,
    *,
    pooling_type: str,
    ksize: list[int],
    strides: list[int],
    paddings: list[int],
    global_pooling: bool,
    ceil_mode: bool,
    exclusive: bool,
    adaptive: bool,
) -> TensorType:
    """Replace each window of a volume by its largest or average value, channel by channel.

    Args:
        X: [batch, channels, depth, height, width] float32 or float64.

    Returns:
        Out: size = (size + padding of both sides - window) / stride + 1, rounded down, or up with ceil_mode. With
            adaptive, ksize: window i of n goes from floor(i size / n) to ceil((i + 1) size / n).

    Raises:
        PeError: wrong rank, a window that does not fit, or padding of at least the window.

    Source:
        fluid.layers.pool3d, fluid.layers.adaptive_pool3d.
    """
    return pooled(
        "pool3d", x, ksize, strides, paddings, global_pooling=global_pooling, ceil_mode=ceil_mode, adaptive=adaptive
    )


def pooled(
    name: str,
    x: TensorType,
    ksize: list[int],
    strides: list[int],
    paddings: list[int],
    *,
    global_pooling: bool,
    ceil_mode: bool,
    adaptive: bool,
) -> TensorType:
    """Return the type of a pool of volumes; name is the op's, the others are its attributes.

    Raises:
        PeError: wrong rank, a window that does not fit, or padding of at least the window.
    """
    if len(x.shape) != 5:
        raise PeError(f"{name} needs volumes of rank 5, got {x}")
    if global_pooling:
        return x.with_shape(*x.shape[:2], 1, 1, 1)
    around = six(paddings) if len(paddings) in (3, 6) else []
    for what, found, least in (("ksize", ksize, 1), ("strides", strides, 1)):
        if len(found) != 3 or min(found) < least:
            raise PeError(f"{name}: {what} must be three numbers of at least {least}, got {found}")
    if not around or min(around) < 0:
        raise PeError(f"{name}: paddings must be three or six numbers of at least 0, got {paddings}")
    if adaptive:
        return x.with_shape(*x.shape[:2], *ksize)
    if any(p >= k for p, k in zip(around, [k for k in ksize for _ in range(2)], strict=True)):
        raise PeError(f"{name}: padding {paddings} must be smaller than the window {ksize}")
    each = zip(x.shape[2:], ksize, strides, around[::2], around[1::2], strict=True)
    sizes = [-1 if s < 0 else _places(s, k, st, before, after, ceil_mode) for s, k, st, before, after in each]
    if any(s == 0 or s < -1 for s in sizes):
        raise PeError(f"{name}: a window of {ksize} does not fit into {x} with padding {paddings}")
    return x.with_shape(*x.shape[:2], *sizes)


def _places(size: int, taps: int, stride: int, before: int, after: int, ceil_mode: bool) -> int:
    """Return the output size along an axis; a window must begin inside the axis or in front of it."""
    rest = size + before + after - taps
    if rest < 0:
        return 0
    out = (rest + stride - 1 if ceil_mode else rest) // stride + 1
    # A window that would begin behind the volume and its front padding has nothing but padding, and is left out.
    return out - 1 if ceil_mode and (out - 1) * stride >= size + before else out


def six(paddings: list[int]) -> list[int]:
    """Return the padding before and after each of three axes."""
    return list(paddings) if len(paddings) == 6 else [p for p in paddings for _ in range(2)]


def geometry(o: Lowering, x: Buffer, y: Buffer) -> tuple[Numbers, int]:
    """Return what the kernels ask for: sizes, windows, strides, padding in front, flags, padding behind; and the volumes."""
    attrs, whole = o.attrs, o.attrs["global_pooling"]
    ksize = x.shape[2:] if whole else attrs["ksize"]
    strides, around = ([1, 1, 1], [0] * 6) if whole else (attrs["strides"], six(attrs["paddings"]))
    flags = int(attrs.get("exclusive", True)), int(attrs["adaptive"] and not whole)
    return Numbers((*x.shape[2:], *y.shape[2:], *ksize, *strides, *around[::2], *flags, *around[1::2])), x.shape[0] * x.shape[1]


@pool3d.lower("cpu")
def pool3d_cpu(o: Lowering) -> None:
    """Windows in order."""
    x, y = o.input("X"), o.output("Out")
    o.call(volume_forward, x, y, *geometry(o, x, y), int(o.attrs["pooling_type"] == "max"))


@pool3d.grad(uses="X Out").lower("cpu")
def pool3d_grad_cpu(o: Lowering) -> None:
    """Scatter each window's gradient."""
    x, y = o.input("X"), o.input("Out")
    o.call(
        volume_backward, x, y, o.input("Out@GRAD"), o.output("X@GRAD"), *geometry(o, x, y), int(o.attrs["pooling_type"] == "max")
    )


deal(volume_forward, volume_backward)
also_on_cuda(pool3d)
