"""Images and volumes at other places, in all ways of looking between pixels and beyond the border: grid_sample."""

from __future__ import annotations

import math

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType, product
from pe_cli.kernels.language import Int, Ptr, T, helper, kernel
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op

#: Pixels along each axis that a value is made of.
MODES = {"nearest": 1, "bilinear": 2, "bicubic": 4}
PADDINGS = ("zeros", "border", "reflection")
#: Slope of the cubic at its ends; Keys 1981, and what others take.
KEYS = -0.75


@helper
def _pixel_of(place, size, corners):
    """Return the pixel that a place from -1 to 1 is."""
    # Corners: -1 and 1 are the centres of the outermost pixels. Otherwise they are the image's edges, half a pixel further out.
    return (place + 1) * 0.5 * (size - 1) if corners else ((place + 1) * size - 1) * 0.5


@helper
def _mirrored(v, size, corners):
    """Return a pixel that lies in the image, as a mirror at its border shows it."""
    least = 0.0 if corners else -0.5
    # Mirrors lie at the outermost pixels' centres, or half a pixel beyond them at the image's edge.
    span = size - 1.0 if corners else size * 1.0
    if span <= 0.0:
        return 0.0
    away = abs(v - least)
    flips = math.floor(away / span)
    extra = away - flips * span
    return extra + least if flips % 2 == 0 else span - extra + least


@helper
def _held(v, size, padding, corners, taps):
    """Return the pixel that is looked at; cubics go to the border's other side tap by tap instead."""
    # Zeros are told by the tap, since a point half outside still sees the pixels inside; cubics likewise reach four pixels, each of which
    # has its own place beyond the border.
    if taps == 4 or padding == 0:
        return v
    if padding == 2:
        v = _mirrored(v, size, corners)
    return min(max(v, 0.0), size - 1.0)


@helper
def _turn(v, size, padding, corners, taps):
    """Return how the pixel that is looked at moves with the one that is asked for."""
    if taps == 4 or padding == 0:
        return 1.0
    if padding == 1:
        # At the border the value is held, and does not move with the place.
        return 1.0 if 0.0 < v < size - 1.0 else 0.0
    least = 0.0 if corners else -0.5
    span = size - 1.0 if corners else size * 1.0
    held = _mirrored(v, size, corners)
    if span <= 0.0 or held <= 0.0 or held >= size - 1.0:
        return 0.0
    even = math.floor(abs(v - least) / span) % 2 == 0
    return 1.0 if even == (v >= least) else -1.0


@helper
def _first(v, taps):
    """Return the first pixel of those that make a value."""
    if taps == 1:
        r = math.floor(v + 0.5)
        # Halves go to the even pixel, as rintf does in the original and in PyTorch.
        return r - 1 if v + 0.5 == r and r % 2 else r
    return math.floor(v) - (1 if taps == 4 else 0)


@helper
def _tap(k, size, padding, corners):
    """Return the pixel in the image that stands for one, or -1 for none."""
    if 0 <= k < size:
        return k
    if padding == 0:
        return -1
    if padding == 2:
        k = int(_mirrored(k * 1.0, size, corners))
    return min(max(k, 0), size - 1)


@helper
def _weight(d, taps):
    """Return the part of a pixel at a distance."""
    if taps == 1:
        return 1.0
    d = abs(d)
    if taps == 2:
        return 1.0 - d
    if d <= 1.0:
        # Keys' cubic: the first polynomial within a pixel, the second within two; both and their slopes meet at 1.
        return ((KEYS + 2.0) * d - (KEYS + 3.0)) * d * d + 1.0
    return ((KEYS * d - 5.0 * KEYS) * d + 8.0 * KEYS) * d - 4.0 * KEYS


@helper
def _slope(d, taps):
    """Return the slope of `_weight`."""
    if taps == 1:
        return 0.0
    sign = 1.0 if d >= 0.0 else -1.0
    d = abs(d)
    if taps == 2:
        return -sign if d > 0.0 else 0.0
    if d <= 1.0:
        return sign * (3.0 * (KEYS + 2.0) * d - 2.0 * (KEYS + 3.0)) * d
    return sign * ((3.0 * KEYS * d - 10.0 * KEYS) * d + 8.0 * KEYS)


@kernel
def sample_grid(
    x: Ptr, grid: Ptr, out: Ptr, n: Int, C: Int, D: Int, H: Int, W: Int, places: Int, axes: Int, taps: Int, padding: Int, corners: Int
):
    """out[image, c, p] = image c at place p, of so many pixels along each axis; an image without depth has one layer."""
    # An image without depth runs through the same loops with one layer and no weight along it.
    for e in range(n * places):
        image, p = e // places, e % places
        u = _held(_pixel_of(grid[axes * e], W, corners), W, padding, corners, taps)
        v = _held(_pixel_of(grid[axes * e + 1], H, corners), H, padding, corners, taps)
        w = _held(_pixel_of(grid[axes * e + 2], D, corners), D, padding, corners, taps) if axes == 3 else 0.0
        s, r, q = _first(u, taps), _first(v, taps), _first(w, taps) if axes == 3 else 0
        for c in range(C):
            at, total = (image * C + c) * D * H * W, 0.0
            for h in range(taps if axes == 3 else 1):
                wl, zl = _weight(w - (q + h), taps) if axes == 3 else 1.0, _tap(q + h, D, padding, corners)
                for i in range(taps):
                    wi, yi = _weight(v - (r + i), taps), _tap(r + i, H, padding, corners)
                    for j in range(taps):
                        wj, xj = _weight(u - (s + j), taps), _tap(s + j, W, padding, corners)
                        inside = zl >= 0 and yi >= 0 and xj >= 0
                        total += wl * wi * wj * (x[at + (zl * H + yi) * W + xj] if inside else 0.0)
            out[(image * C + c) * places + p] = T(total)


@kernel
def sample_grid_back(  # noqa: C901 - one loop over places, pixels along each axis, and three gradients
    x: Ptr, grid: Ptr, g: Ptr, dx: Ptr, dgrid: Ptr, n: Int, C: Int, D: Int, H: Int, W: Int, places: Int, axes: Int, taps: Int,
    padding: Int, corners: Int, wanted: Int,
):  # fmt: skip
    """dx += g at its pixels (wanted 1, dx begins as 0), dgrid = slope of the image there times g (2)."""
    for e in range(n * places):
        image, p = e // places, e % places
        a, b = _pixel_of(grid[axes * e], W, corners), _pixel_of(grid[axes * e + 1], H, corners)
        d = _pixel_of(grid[axes * e + 2], D, corners) if axes == 3 else 0.0
        u, v = _held(a, W, padding, corners, taps), _held(b, H, padding, corners, taps)
        w = _held(d, D, padding, corners, taps) if axes == 3 else 0.0
        s, r, q = _first(u, taps), _first(v, taps), _first(w, taps) if axes == 3 else 0
        right, down, deep = 0.0, 0.0, 0.0
        for c in range(C):
            at = (image * C + c) * D * H * W
            # In double whatever the element type: weights are doubles, and one product in float32 would round twice.
            y = g[(image * C + c) * places + p] * 1.0
            for h in range(taps if axes == 3 else 1):
                wl, zl = _weight(w - (q + h), taps) if axes == 3 else 1.0, _tap(q + h, D, padding, corners)
                for i in range(taps):
                    wi, yi = _weight(v - (r + i), taps), _tap(r + i, H, padding, corners)
                    for j in range(taps):
                        wj, xj = _weight(u - (s + j), taps), _tap(s + j, W, padding, corners)
                        if zl >= 0 and yi >= 0 and xj >= 0:
                            place = at + (zl * H + yi) * W + xj
                            if wanted & 1:
                                dx[place] += T(y * wl * wi * wj)
                            value = y * x[place]
                            right += value * wl * wi * _slope(u - (s + j), taps)
                            down += value * wl * wj * _slope(v - (r + i), taps)
                            if axes == 3:
                                deep += value * wi * wj * _slope(w - (q + h), taps)
        if wanted & 2:
            # From pixels back to places from -1 to 1: the derivative of `_pixel_of`.
            dgrid[axes * e] = T(right * _turn(a, W, padding, corners, taps) * 0.5 * (W - 1 if corners else W))
            dgrid[axes * e + 1] = T(down * _turn(b, H, padding, corners, taps) * 0.5 * (H - 1 if corners else H))
            if axes == 3:
                dgrid[axes * e + 2] = T(deep * _turn(d, D, padding, corners, taps) * 0.5 * (D - 1 if corners else D))


def _away_from_kinks(*shape: int):
    """Return places that lie neither at pixels, nor at borders, of images of 4, 5 and 3 pixels."""

    def made(rng):
        return (rng.integers(-8, 8, shape) + rng.uniform(0.3, 0.45, shape)) / 6.3

    return made


def _sample(name: str, **attrs: object) -> Sample:
    return Sample({"X": (2, 2, 4, 5), "Grid": _away_from_kinks(2, 2, 3, 2)}, attrs, name)


@op(
    "grid_sample",
    faces=[Face("", "x grid mode='bilinear' padding_mode='zeros' align_corners=True name")],
    inputs="X Grid",
    attrs={
        "mode": Attr("bilinear", "of how many pixels a value is made: nearest, bilinear or bicubic"),
        "padding_mode": Attr("zeros", "what lies outside: zeros, the border's pixels, or the image's reflection"),
        "align_corners": Attr(True, "-1 and 1 are the centres of the first and last pixel, instead of their outer edges"),
    },
    samples=[
        _sample("zeros outside"),
        _sample("the border outside, edges at -1 and 1", padding_mode="border", align_corners=False),
        _sample("mirrored", padding_mode="reflection"),
        _sample("mirrored at the edges", padding_mode="reflection", align_corners=False),
        _sample("cubic", mode="bicubic"),
        _sample("cubic, mirrored at the edges", mode="bicubic", padding_mode="reflection", align_corners=False),
        Sample({"X": (0, 1, 3, 3), "Grid": (0, 2, 2, 2)}, name="an empty batch"),
    ],
)
def grid_sample(x: TensorType, grid: TensorType, *, mode: str, padding_mode: str, align_corners: bool) -> TensorType:
    """Look at images or volumes at given places.

    Args:
        X: [batch, channels, height, width] or [batch, channels, depth, height, width] float32 or float64.
        Grid: [batch, rows, columns, 2] or [batch, layers, rows, columns, 3] element type of X: x, y and z, from -1 to 1.

    Returns:
        Out: [batch, channels, sizes of the grid].

    Raises:
        PeError: types that do not fit, a mode that is not known, or bicubic of a volume.

    Source:
        paddle.nn.functional.grid_sample; Jaderberg et al. 2015; Keys 1981 with a slope of -0.75 for bicubic.
    """
    del align_corners
    axes = len(x.shape) - 2
    if axes not in (2, 3) or len(grid.shape) != axes + 2 or grid.shape[-1] != axes or grid.dtype != x.dtype or x.dtype not in FLOATS:
        raise PeError(f"grid_sample needs images X of floats and a Grid [batch, rows, columns, 2], or both with depth, got {x} and {grid}")
    for what, given, known in (("mode", mode, tuple(MODES)), ("padding_mode", padding_mode, PADDINGS)):
        if given not in known:
            raise PeError(f"grid_sample: {what} is '{given}'", hint=f"one of {', '.join(known)}")
    if axes == 3 and mode == "bicubic":
        raise PeError("grid_sample: a volume has no mode bicubic", hint="take bilinear, which goes along all three axes")
    return x.with_shape(*x.shape[:2], *grid.shape[1:-1])


def _facts(o: Lowering, x: Buffer, grid: Buffer) -> tuple[int, ...]:
    """Return batch, channels, depth, height, width, places, axes, pixels along each, padding and corners."""
    axes = grid.shape[-1]
    sizes = x.shape[2:] if axes == 3 else (1, *x.shape[2:])
    how = MODES[o.attrs["mode"]], PADDINGS.index(o.attrs["padding_mode"]), int(o.attrs["align_corners"])
    return *x.shape[:2], *sizes, product(grid.shape[1:-1]), axes, *how


@grid_sample.lower("cpu")
def grid_sample_cpu(o: Lowering) -> None:
    """Place by place."""
    x, grid = o.input("X"), o.input("Grid")
    o.call(sample_grid, x, grid, o.output("Out"), *_facts(o, x, grid))


@grid_sample.grad(uses="X Grid").lower("cpu")
def grid_sample_grad_cpu(o: Lowering) -> None:
    """Place by place, in order: places share pixels."""
    x, grid, g = o.input("X"), o.input("Grid"), o.input("Out@GRAD")
    outs = [o.output(s) if o.has(s) else g for s in ("X@GRAD", "Grid@GRAD")]
    if o.has("X@GRAD"):
        o.call(fill, outs[0], outs[0].size, 0.0)
    wanted = int(o.has("X@GRAD")) + 2 * int(o.has("Grid@GRAD"))
    o.call(sample_grid_back, x, grid, g, *outs, *_facts(o, x, grid), wanted)


@in_onnx("grid_sample")
def grid_sample_onnx(o: Writer) -> None:
    """ONNX's own of images; that of volumes came later.

    Raises:
        PeError: a volume.
    """
    if len(o.type("X").shape) != 4:
        raise PeError("grid_sample of a volume is a node of ONNX from opset 20 on", hint="export up to the layer before it: --fetch")
    facts = {"mode": o.attrs["mode"], "padding_mode": o.attrs["padding_mode"], "align_corners": int(o.attrs["align_corners"])}
    o.node("GridSample", [o.x("X"), o.x("Grid")], to="Out", **facts)
