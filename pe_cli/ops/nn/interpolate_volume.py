"""trilinear_interp: volumes of another size."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, Real, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering, Numbers
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import FedSizes
from pe_cli.ops.nn.interpolate import NOT_GIVEN, SIZES, _source, interpolated, ratio


@kernel
def resize_volume(
    x: Ptr, y: Ptr, g: PtrI64, planes: Int, deep: Real, down: Real, along: Real, half: Int, back: Int
):
    """y = x at other places, between eight elements; with back, x = the sums of the gradient y at the same elements."""
    for plane in range(planes):
        D, H, W, OD, OH, OW = g[0], g[1], g[2], g[3], g[4], g[5]
        # The gradient clears its volume in the same kernel: on CUDA a thread has a whole volume, and no other writes to it.
        if back:
            for p in range(plane * D * H * W, (plane + 1) * D * H * W):
                x[p] = T(0)
        for e in range(OD * OH * OW):
            k, i, j = e // (OH * OW), e // OW % OH, e % OW
            w, v, u = _source(k, deep, half), _source(i, down, half), _source(j, along, half)
            # Places of the last elements may lie behind them by rounding.
            q, r, s = min(int(w), D - 1), min(int(v), H - 1), min(int(u), W - 1)
            c, a, b = T(w - q), T(v - r), T(u - s)
            right = min(s + 1, W - 1)
            o = plane * OD * OH * OW + e
            total = T(0)
            # Weights are products of one share per axis: 1 - c for the nearer slice, c for the next one, and so on.
            for z in range(2):
                f = c if z else T(1) - c
                for t in range(2):
                    h = f * (a if t else T(1) - a)
                    line = ((plane * D + min(q + z, D - 1)) * H + min(r + t, H - 1)) * W
                    if back:
                        x[line + s] += y[o] * h * (T(1) - b)
                        x[line + right] += y[o] * h * b
                    else:
                        total += h * (x[line + s] * (T(1) - b) + x[line + right] * b)
            if not back:
                y[o] = total


@op(
    "trilinear_interp",
    inputs="X OutSize?",
    differentiable="X",
    attrs={
        "out_d": Attr(1, "slices of the result"),
        **SIZES,
        "align_mode": Attr(1, "without align_corners: 0, by the elements' centres; 1, by their first corners", (0, 1)),
        "out_size": Attr([*NOT_GIVEN, -1], "slices, rows and columns, instead of out_d, out_h and out_w; OutSize's values"),
    },
    traits=[FedSizes({"OutSize": "out_size"})],
    samples=[
        Sample({"X": (2, 2, 3, 4, 5)}, {"out_d": 4, "out_h": 7, "out_w": 3}, "corners in place"),
        Sample({"X": (1, 2, 2, 4, 5)}, {"out_d": 3, "out_h": 7, "out_w": 9, "align_corners": False, "align_mode": 0}, "by centres"),
        Sample({"X": (1, 1, 3, 4, 5)}, {"out_d": 5, "out_h": 2, "out_w": 9, "align_corners": False}, "by first corners"),
        Sample({"X": (0, 2, 3, 4, 5)}, {}, "an empty batch"),
    ],
)
def trilinear_interp(
    x: TensorType,
    out: TensorType | None,
    *,
    out_d: int,
    out_h: int,
    out_w: int,
    align_corners: bool,
    align_mode: int,
    out_size: list[int],
) -> TensorType:
    """Change the size of volumes; between elements they are linear.

    Where an element comes from is said by bilinear_interp, for the depth as for height and width.

    Args:
        X: [batch, channels, depth, height, width] float32 or float64.
        OutSize: int32 or int64 [3], instead of the attributes: only known in the step.

    Returns:
        Out: [batch, channels, out_d, out_h, out_w].

    Raises:
        PeError: X of another rank, or an empty size.

    Source:
        fluid.layers.resize_trilinear.
    """
    if len(x.shape) != 5:
        raise PeError(f"trilinear_interp needs volumes of rank 5, got {x}")
    return interpolated("trilinear_interp", x, out, [out_d, out_h, out_w], out_size)


# One function for both directions: a gradient that computed its places otherwise would not be that of the forward pass.
def _volumes(o: Lowering, volume: object, made: object, x: tuple[int, ...], y: tuple[int, ...], *, back: bool) -> None:
    corners = o.attrs["align_corners"]
    ratios = [ratio(s, w, corners=corners) for s, w in zip(x[2:], y[2:], strict=True)]
    half = int(not corners and o.attrs["align_mode"] == 0)
    o.call(resize_volume, volume, made, Numbers((*x[2:], *y[2:])), x[0] * x[1], *ratios, half, int(back))


@trilinear_interp.lower("cpu")
def trilinear_interp_cpu(o: Lowering) -> None:
    """Volume by volume."""
    x, y = o.input("X"), o.output("Out")
    if y.size:
        _volumes(o, x, y, x.shape, y.shape, back=False)


@trilinear_interp.grad().lower("cpu")
def trilinear_interp_grad_cpu(o: Lowering) -> None:
    """Volume by volume: the elements of one share sources."""
    dx, g = o.output("X@GRAD"), o.input("Out@GRAD")
    if dx.size:
        _volumes(o, dx, g, dx.shape, g.shape, back=True)


deal(resize_volume)
also_on_cuda(trilinear_interp)
