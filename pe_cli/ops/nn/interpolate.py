"""Images at other places: grid_sampler, bilinear_interp, nearest_interp."""

from __future__ import annotations

import math

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.language import Int, Ptr, Real, T, helper, kernel
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import FedSizes

# --- grid_sampler -----------------------------------------------------------------------------------------------------


@helper
def _pixel(x, at, H, W, r, c):
    # Pixels outside count as zeros, so that a place on the border fades out.
    return x[at + r * W + c] if 0 <= r < H and 0 <= c < W else T(0)


@kernel
def sample_places(x: Ptr, grid: Ptr, out: Ptr, n: Int, C: Int, H: Int, W: Int, places: Int):
    """out[image, c, p] = image c at place p, between four pixels; 0 outside."""
    for e in range(n * places):
        image, p = e // places, e % places
        # Places are given as -1 to 1 from the first to the last pixel's centre, whatever the size of the image.
        u, v = (grid[2 * e] + T(1)) * T(0.5) * (W - 1), (grid[2 * e + 1] + T(1)) * T(0.5) * (H - 1)
        s, r = math.floor(u), math.floor(v)
        b, a = T(u - s), T(v - r)
        for c in range(C):
            at = (image * C + c) * H * W
            top = (T(1) - b) * _pixel(x, at, H, W, r, s) + b * _pixel(x, at, H, W, r, s + 1)
            low = (T(1) - b) * _pixel(x, at, H, W, r + 1, s) + b * _pixel(x, at, H, W, r + 1, s + 1)
            out[(image * C + c) * places + p] = (T(1) - a) * top + a * low


@kernel
def sample_places_back(x: Ptr, grid: Ptr, g: Ptr, dx: Ptr, dgrid: Ptr, n: Int, C: Int, H: Int, W: Int, places: Int, wanted: Int):
    """dx += g at four pixels (wanted 1, dx begins as 0), dgrid = slope of the image there times g (2)."""
    for e in range(n * places):
        image, p = e // places, e % places
        # A grid from -1 to 1 covers the image from the middle of its first pixel to that of its last.
        u, v = (grid[2 * e] + T(1)) * T(0.5) * (W - 1), (grid[2 * e + 1] + T(1)) * T(0.5) * (H - 1)
        s, r = math.floor(u), math.floor(v)
        b, a = T(u - s), T(v - r)
        right, down = T(0), T(0)
        for c in range(C):
            at = (image * C + c) * H * W
            d = g[(image * C + c) * places + p]
            p00, p01 = _pixel(x, at, H, W, r, s), _pixel(x, at, H, W, r, s + 1)
            p10, p11 = _pixel(x, at, H, W, r + 1, s), _pixel(x, at, H, W, r + 1, s + 1)
            right += d * ((T(1) - a) * (p01 - p00) + a * (p11 - p10))
            down += d * ((T(1) - b) * (p10 - p00) + b * (p11 - p01))
            if wanted & 1:
                for i in range(2):
                    for j in range(2):
                        if 0 <= r + i < H and 0 <= s + j < W:
                            dx[at + (r + i) * W + s + j] += d * (a if i else T(1) - a) * (b if j else T(1) - b)
        if wanted & 2:
            dgrid[2 * e], dgrid[2 * e + 1] = right * T(0.5) * (W - 1), down * T(0.5) * (H - 1)


@op(
    "grid_sampler",
    faces=[Face("", "x grid name", "Look at images at given places; between pixels they are linear, outside they are 0.")],
    inputs="X Grid",
    outputs="Output",
    samples=[
        Sample({"X": (2, 3, 4, 5), "Grid": lambda rng: rng.uniform(-1.3, 1.3, (2, 3, 2, 2))}, name="inside and outside"),
        Sample({"X": (1, 1, 3, 3), "Grid": lambda rng: rng.uniform(-1, 1, (1, 1, 1, 2))}, name="one place"),
        Sample({"X": (0, 1, 3, 3), "Grid": (0, 2, 2, 2)}, name="an empty batch"),
    ],
)
def grid_sampler(x: TensorType, grid: TensorType) -> TensorType:
    """Look at an image at given places; between pixels it is linear, outside it is 0.

    Args:
        X: [batch, channels, height, width] float32 or float64.
        Grid: [batch, rows, columns, 2] element type of X: x and y, from -1, the first pixel's centre, to 1, the last one's.

    Returns:
        Output: [batch, channels, rows, columns].

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.grid_sampler; Jaderberg et al. 2015, eq. 5.
    """
    if len(x.shape) != 4 or len(grid.shape) != 4 or grid.shape[3] != 2 or grid.dtype != x.dtype:
        raise PeError(f"grid_sampler needs images X of rank 4 and a Grid [batch, rows, columns, 2], got {x} and {grid}")
    return x.with_shape(*x.shape[:2], *grid.shape[1:3])


@grid_sampler.lower("cpu")
def grid_sampler_cpu(o: Lowering) -> None:
    """Place by place."""
    x, grid = o.input("X"), o.input("Grid")
    o.call(sample_places, x, grid, o.output("Output"), *x.shape, grid.shape[1] * grid.shape[2])


@grid_sampler.grad(uses="X Grid").lower("cpu")
def grid_sampler_grad_cpu(o: Lowering) -> None:
    """Place by place, in order: places share pixels."""
    x, grid, g = o.input("X"), o.input("Grid"), o.input("Output@GRAD")
    outs = [o.output(s) if o.has(s) else g for s in ("X@GRAD", "Grid@GRAD")]
    if o.has("X@GRAD"):
        # Gradients are added to pixels that several places read, and a pixel that no place reads keeps its zero.
        o.call(fill, outs[0], outs[0].size, 0.0)
    wanted = int(o.has("X@GRAD")) + 2 * int(o.has("Grid@GRAD"))
    o.call(sample_places_back, x, grid, g, *outs, *x.shape, grid.shape[1] * grid.shape[2], wanted)


# --- bilinear_interp, nearest_interp ----------------------------------------------------------------------------------


@helper
def _source(i, ratio, half):
    """Return the place that output pixel i comes from."""
    return max(ratio * (i + 0.5) - 0.5, 0.0) if half else ratio * i


@kernel
def resize_linear(
    x: Ptr, y: Ptr, planes: Int, H: Int, W: Int, OH: Int, OW: Int, down: Real, along: Real, half: Int, back: Int
):
    """y = x at other places, between four pixels; with back, x += the gradient y at the same pixels."""
    for e in range(planes * OH):
        plane, i = e // OH, e % OH
        v = _source(i, down, half)
        # At the last row there is no next one: its own counts twice, with a weight that does not matter.
        r = min(int(v), H - 1)
        q = min(r + 1, H - 1)
        a = T(v - r)
        for j in range(OW):
            u = _source(j, along, half)
            s = min(int(u), W - 1)
            t = min(s + 1, W - 1)
            b = T(u - s)
            top, low, o = (plane * H + r) * W, (plane * H + q) * W, e * OW + j
            if back:
                x[top + s] += y[o] * (T(1) - a) * (T(1) - b)
                x[top + t] += y[o] * (T(1) - a) * b
                x[low + s] += y[o] * a * (T(1) - b)
                x[low + t] += y[o] * a * b
            else:
                line = x[top + s] * (T(1) - b) + x[top + t] * b
                y[o] = line * (T(1) - a) + (x[low + s] * (T(1) - b) + x[low + t] * b) * a


@kernel
def resize_nearest(
    x: Ptr, y: Ptr, planes: Int, H: Int, W: Int, OH: Int, OW: Int, down: Real, along: Real, rounded: Real, back: Int
):
    """y = the pixel of x nearest to other places; with back, x += the gradient y."""
    for e in range(planes * OH):
        plane, i = e // OH, e % OH
        # Rounding half up, as fluid does, and not to the even number.
        r = min(int(down * i + rounded), H - 1)
        for j in range(OW):
            p = (plane * H + r) * W + min(int(along * j + rounded), W - 1)
            if back:
                x[p] += y[e * OW + j]
            else:
                y[e * OW + j] = x[p]


#: The value of out_size where out_h and out_w say the size.
NOT_GIVEN = [-1, -1]
SIZES = {
    "out_h": Attr(1, "rows of the result"),
    "out_w": Attr(1, "columns of the result"),
    "align_corners": Attr(True, "the corners' centres stay in place; else the corners of the image"),
}


_OUT_SIZE = Attr(NOT_GIVEN, "rows and columns, instead of out_h and out_w; OutSize's values")
_FED = FedSizes({"OutSize": "out_size"})


def interpolated(name: str, x: TensorType, fed: TensorType | None, wanted: list[int], given: list[int]) -> TensorType:
    """Return the type of x with other sizes behind batch and channels.

    Args:
        name: of the op, for errors.
        x: images or volumes.
        fed: type of the sizes that only a step knows, or None.
        wanted: sizes by attributes.
        given: the sizes of the step, -1 where it has not said them.

    Raises:
        PeError: an empty size, or as many sizes as do not fit.
    """
    axes = len(x.shape) - 2
    if fed is not None and (fed.size not in (axes, -1) or not fed.dtype.startswith("int")):
        raise PeError(f"{name} needs OutSize of {axes} integers, got {fed}")
    sizes = given if fed is not None or min(given, default=-1) > 0 else wanted
    if len(sizes) != axes or 0 in x.shape[2:] or any(s < 1 and (s != -1 or fed is None) for s in sizes):
        raise PeError(f"{name} needs images that are not empty and {axes} sizes of at least 1, got {x} and {sizes}")
    return x.with_shape(*x.shape[:2], *sizes)


def ratio(size: int, wanted: int, *, corners: bool) -> float:
    """Return how many elements of an axis one of the result is; 0 where the result is one element, which comes from the first."""
    if wanted == 1:
        # One element has no ratio: the first pixel stands for it, as in the original.
        return 0.0
    return (size - 1) / (wanted - 1) if corners else size / wanted


@op(
    "bilinear_interp",
    inputs="X OutSize?",
    differentiable="X",
    attrs={
        **SIZES,
        "align_mode": Attr(1, "without align_corners: 0, by the pixels' centres; 1, by their first corners", (0, 1)),
        "out_size": _OUT_SIZE,
    },
    traits=[_FED],
    samples=[
        Sample({"X": (2, 3, 4, 5)}, {"out_h": 7, "out_w": 3}, "corners in place"),
        Sample({"X": (1, 2, 4, 5)}, {"out_h": 7, "out_w": 9, "align_corners": False, "align_mode": 0}, "by centres"),
        Sample({"X": (1, 2, 4, 5)}, {"out_h": 2, "out_w": 9, "align_corners": False}, "by first corners"),
        Sample({"X": (0, 2, 4, 5)}, {"out_h": 1, "out_w": 1}, "an empty batch"),
    ],
)
def bilinear_interp(
    x: TensorType, out: TensorType | None, *, out_h: int, out_w: int, align_corners: bool, align_mode: int, out_size: list[int]
) -> TensorType:
    """Change the size of images; between pixels they are linear.

    Output pixel i comes from i (size - 1) / (wanted - 1) with align_corners, else from max((i + 1/2) size / wanted - 1/2, 0) with
    align_mode 0, or i size / wanted with 1. Where one pixel is wanted, it comes from the first.

    Args:
        X: [batch, channels, height, width] float32 or float64.
        OutSize: int32 or int64 [2], instead of out_h and out_w: only known in the step.

    Returns:
        Out: [batch, channels, out_h, out_w].

    Raises:
        PeError: X of another rank, or an empty size.

    Source:
        fluid.layers.resize_bilinear.
    """
    if len(x.shape) != 4:
        raise PeError(f"bilinear_interp needs images of rank 4, got {x}")
    return interpolated("bilinear_interp", x, out, [out_h, out_w], out_size)


def _steps(o: Lowering, x: tuple[int, ...], y: tuple[int, ...]) -> list[float]:
    """Return how many pixels of X one of the result is, along height and width."""
    return [ratio(s, w, corners=o.attrs["align_corners"]) for s, w in zip(x[2:], y[2:], strict=True)]


def _linear(o: Lowering, pixels: object, made: object, x: tuple[int, ...], y: tuple[int, ...], *, back: bool) -> None:
    half = int(not o.attrs["align_corners"] and o.attrs["align_mode"] == 0)
    o.call(resize_linear, pixels, made, x[0] * x[1], *x[2:], *y[2:], *_steps(o, x, y), half, int(back))


@bilinear_interp.lower("cpu")
def bilinear_interp_cpu(o: Lowering) -> None:
    """Row by row."""
    _linear(o, o.input("X"), o.output("Out"), o.input("X").shape, o.output("Out").shape, back=False)


@bilinear_interp.grad().lower("cpu")
def bilinear_interp_grad_cpu(o: Lowering) -> None:
    """Row by row, in order: they share pixels."""
    dx = o.output("X@GRAD")
    o.call(fill, dx, dx.size, 0.0)
    _linear(o, dx, o.input("Out@GRAD"), dx.shape, o.input("Out@GRAD").shape, back=True)


@op(
    "nearest_interp",
    inputs="X OutSize?",
    differentiable="X",
    attrs={**SIZES, "out_size": _OUT_SIZE},
    traits=[_FED],
    samples=[
        Sample({"X": (2, 3, 4, 5)}, {"out_h": 7, "out_w": 3}, "corners in place"),
        Sample({"X": (1, 2, 4, 5)}, {"out_h": 8, "out_w": 2, "align_corners": False}, "by first corners"),
    ],
)
def nearest_interp(
    x: TensorType, out: TensorType | None, *, out_h: int, out_w: int, align_corners: bool, out_size: list[int]
) -> TensorType:
    """Change the size of images; every pixel is one of the original.

    Output pixel i comes from floor(i (size - 1) / (wanted - 1) + 1/2) with align_corners, else from floor(i size / wanted).

    Args:
        X: [batch, channels, height, width] float32 or float64.
        OutSize: int32 or int64 [2], instead of out_h and out_w: only known in the step.

    Returns:
        Out: [batch, channels, out_h, out_w].

    Raises:
        PeError: X of another rank, or an empty size.

    Source:
        fluid.layers.resize_nearest.
    """
    if len(x.shape) != 4:
        raise PeError(f"nearest_interp needs images of rank 4, got {x}")
    return interpolated("nearest_interp", x, out, [out_h, out_w], out_size)


def _nearest(o: Lowering, pixels: object, made: object, x: tuple[int, ...], y: tuple[int, ...], *, back: bool) -> None:
    rounded = 0.5 if o.attrs["align_corners"] else 0.0
    o.call(resize_nearest, pixels, made, x[0] * x[1], *x[2:], *y[2:], *_steps(o, x, y), rounded, int(back))


@nearest_interp.lower("cpu")
def nearest_interp_cpu(o: Lowering) -> None:
    """Row by row."""
    _nearest(o, o.input("X"), o.output("Out"), o.input("X").shape, o.output("Out").shape, back=False)


@nearest_interp.grad().lower("cpu")
def nearest_interp_grad_cpu(o: Lowering) -> None:
    """Row by row, in order: they share pixels."""
    dx = o.output("X@GRAD")
    o.call(fill, dx, dx.size, 0.0)
    _nearest(o, dx, o.input("Out@GRAD"), dx.shape, o.input("Out@GRAD").shape, back=True)
