"""bilateral_slice: every pixel by an affine map of its own, read from a coarse grid at its place and at the height that a guide says."""

from __future__ import annotations

import math

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, T, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op


@helper
def _place(i, height, width):
    """Return the plane, row and column of pixel number i."""
    line = i // width
    plane = line // height
    return plane, line - plane * height, i - line * width


@helper
def _in_grid(place, size, cells):
    """Return where in the grid the middle of a pixel lies, along one axis."""
    return (T(place) + T(0.5)) * T(cells) / T(size)


@helper
def _beside(place, cell):
    """Return how much a cell of the grid counts at a place."""
    away = T(cell) + T(0.5) - place
    # Rounded so that the derivative by the guide is continuous at the peak.
    return max(T(1) - (away if away > T(0) else -away), T(0))


@helper
def _above(place, cell):
    """Return how much a cell counts at a height, rounded at its peak."""
    away = T(cell) + T(0.5) - place
    return max(T(1) - T(math.sqrt(away * away + T(1e-8))), T(0))


@helper
def _above_slope(place, cell):
    """Return the derivative of `_above` by the height."""
    away = T(cell) + T(0.5) - place
    far = T(math.sqrt(away * away + T(1e-8)))
    return away / far if far <= T(1) else T(0)


@helper
def _cell(number, count):
    return max(min(number, count - 1), 0)


@helper
def _read(grid, at, height, gx, gy, deep, high, wide, slope):
    """Return the grid's number of one channel at a place, or its derivative by the height."""
    left = math.floor(gx - T(0.5))
    top = math.floor(gy - T(0.5))
    low = math.floor(height - T(0.5))
    total = T(0)
    # The eight cells around a place, whose corner is chosen by one bit per axis.
    for k in range(8):
        u = left + (k & 1)
        v = top + ((k >> 1) & 1)
        z = low + (k >> 2)
        share = _beside(gx, u) * _beside(gy, v) * (_above_slope(height, z) if slope else _above(height, z))
        total += share * grid[((at * deep + _cell(z, deep)) * high + _cell(v, high)) * wide + _cell(u, wide)]
    return total


@kernel
def slice_grid(
    x: Ptr, guide: Ptr, grid: Ptr, out: Ptr, n: Int, channels: Int, height: Int, width: Int, outs: Int, terms: Int, deep: Int, high: Int,
    wide: Int,
):  # fmt: skip
    """out[s, o, p] = sum over c of x[s, c, p] times the grid's number (o, c) at p, and the last one by itself where there is one more."""
    for i in range(n):
        plane, p, q = _place(i, height, width)
        s = plane // outs
        gx = _in_grid(q, width, wide)
        gy = _in_grid(p, height, high)
        gz = guide[(s * height + p) * width + q] * T(deep)
        total = T(0)
        for c in range(terms):
            factor = x[((s * channels + c) * height + p) * width + q] if c < channels else T(1)
            total += factor * _read(grid, plane * terms + c, gz, gx, gy, deep, high, wide, 0)
        out[i] = total


@kernel
def slice_grid_back_x(
    g: Ptr, guide: Ptr, grid: Ptr, dx: Ptr, n: Int, channels: Int, height: Int, width: Int, outs: Int, terms: Int, deep: Int, high: Int,
    wide: Int,
):  # fmt: skip
    """dx[s, c, p] = sum over o of g[s, o, p] times the grid's number (o, c) at p."""
    for i in range(n):
        plane, p, q = _place(i, height, width)
        s = plane // channels
        gx = _in_grid(q, width, wide)
        gy = _in_grid(p, height, high)
        gz = guide[(s * height + p) * width + q] * T(deep)
        total = T(0)
        for o in range(outs):
            at = (s * outs + o) * terms + plane - s * channels
            total += g[((s * outs + o) * height + p) * width + q] * _read(grid, at, gz, gx, gy, deep, high, wide, 0)
        dx[i] = total


@kernel
def slice_grid_back_guide(
    x: Ptr, g: Ptr, guide: Ptr, grid: Ptr, d: Ptr, n: Int, channels: Int, height: Int, width: Int, outs: Int, terms: Int, deep: Int,
    high: Int, wide: Int,
):  # fmt: skip
    """d[s, p] = the derivative of the sum of g out at p by the guide there."""
    for i in range(n):
        s, p, q = _place(i, height, width)
        gx = _in_grid(q, width, wide)
        gy = _in_grid(p, height, high)
        gz = guide[i] * T(deep)
        total = T(0)
        for o in range(outs):
            share = T(0)
            for c in range(terms):
                factor = x[((s * channels + c) * height + p) * width + q] if c < channels else T(1)
                share += factor * _read(grid, (s * outs + o) * terms + c, gz, gx, gy, deep, high, wide, 1)
            total += share * g[((s * outs + o) * height + p) * width + q]
        d[i] = total * T(deep)


@helper
def _share(place, cell, count):
    """Return how much a cell counts at a place where cells outside of the grid stand for those at its edge."""
    first = math.floor(place - T(0.5))
    total = T(0)
    for k in range(2):
        total += _beside(place, first + k) if _cell(first + k, count) == cell else T(0)
    return total


@helper
def _share_above(place, cell, count):
    first = math.floor(place - T(0.5))
    total = T(0)
    for k in range(2):
        total += _above(place, first + k) if _cell(first + k, count) == cell else T(0)
    return total


@kernel
def slice_grid_back_grid(
    x: Ptr, g: Ptr, guide: Ptr, d: Ptr, n: Int, channels: Int, height: Int, width: Int, outs: Int, terms: Int, deep: Int, high: Int,
    wide: Int,
):  # fmt: skip
    """d = the gradients of the pixels that read a number of the grid, by what they read it for."""
    for i in range(n):
        row = i // wide
        u = i - row * wide
        layer = row // high
        v = row - layer * high
        channel = layer // deep
        z = layer - channel * deep
        plane = channel // terms
        c = channel - plane * terms
        s = plane // outs
        total = T(0)
        # Only pixels whose place is within one and a half cells can read this number; at the edge, those beyond count too.
        for p in range(max(0, (2 * v - 1) * height // (2 * high) - 1), min(height, (2 * v + 3) * height // (2 * high) + 2)):
            along = _share(_in_grid(p, height, high), v, high)
            for q in range(max(0, (2 * u - 1) * width // (2 * wide) - 1), min(width, (2 * u + 3) * width // (2 * wide) + 2)):
                across = _share(_in_grid(q, width, wide), u, wide)
                up = _share_above(guide[(s * height + p) * width + q] * T(deep), z, deep)
                factor = x[((s * channels + c) * height + p) * width + q] if c < channels else T(1)
                total += along * across * up * factor * g[(plane * height + p) * width + q]
        d[i] = total


def _guide(deep: int, *shape: int):
    """Return a maker of guides between the grid's layers, where the op is smooth."""
    return lambda rng: (rng.integers(-1, deep, shape) + 0.5 + rng.uniform(0.2, 0.8, shape)) / deep


@op(
    "bilateral_slice",
    faces=[
        Face(
            "", "x guide grid has_offset! name",
            "Map every pixel by a matrix of its own, read from a coarse grid at its place and at the height that a guide says.",
        ),
    ],
    inputs="X Guide Grid",
    attrs={"has_offset": Attr(False, "the maps have a constant term")},
    samples=[
        Sample({"X": (2, 2, 5, 4), "Guide": _guide(3, 2, 5, 4), "Grid": (2, 6, 3, 2, 3)}, {"has_offset": True}, "affine maps"),
        Sample({"X": (1, 3, 3, 7), "Guide": _guide(2, 1, 3, 7), "Grid": (1, 6, 2, 4, 2)}, name="linear maps"),
        Sample({"X": (1, 1, 1, 1), "Guide": _guide(1, 1, 1, 1), "Grid": (1, 1, 1, 1, 1)}, name="one element"),
        Sample({"X": (0, 1, 2, 2), "Guide": (0, 2, 2), "Grid": (0, 2, 1, 1, 1)}, {"has_offset": True}, "an empty batch"),
    ],
)
def bilateral_slice(x: TensorType, guide: TensorType, grid: TensorType, *, has_offset: bool) -> TensorType:
    """Map every pixel by a matrix of its own, read from a coarse grid between the cells around its place and its height.

    Out[o] = sum over c of A[o, c] X[c] (+ A[o, channels] with has_offset), A read at (x + 0.5) wide / width, (y + 0.5) high / height and
    Guide deep, by weights that fall from 1 to 0 over one cell; cells outside of the grid are those at its edge.

    Args:
        X: [batch, channels, height, width] float32 or float64.
        Guide: [batch, height, width] element type of X; 0 is the floor of the grid, 1 its top.
        Grid: [batch, outputs terms, deep, high, wide] element type of X; terms is channels, and one more with has_offset.
        has_offset: see the attribute.

    Returns:
        Out: [batch, outputs, height, width] element type of X.

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.contrib.layers.bilateral_slice of 2.0, for GPUs alone there; Gharbi et al. 2017, 'Deep Bilateral Learning'.
    """
    fits = len(x.shape) == 4 and len(guide.shape) == 3 and len(grid.shape) == 5 and x.dtype in FLOATS
    if not fits or not x.dtype == guide.dtype == grid.dtype or 0 in grid.shape[2:]:
        raise PeError(f"bilateral_slice needs X, Guide and Grid of 4, 3 and 5 axes and one float type, got {x}, {guide} and {grid}")
    places = zip((guide.shape[0], *guide.shape[1:], grid.shape[0]), (x.shape[0], *x.shape[2:], x.shape[0]), strict=True)
    terms = x.shape[1] + has_offset
    if any(a != b for a, b in places if -1 not in (a, b)) or grid.shape[1] < 1 or grid.shape[1] % terms:
        raise PeError(f"bilateral_slice: Guide {guide} and Grid {grid} do not fit X {x}", hint=f"the grid has {terms} numbers per output")
    return x.with_shape(x.shape[0], grid.shape[1] // terms, *x.shape[2:])


def _numbers(o: Lowering, channels: int, out: tuple[int, ...], grid: tuple[int, ...]) -> tuple[int, ...]:
    return (channels, *out[2:], out[1], channels + o.attrs["has_offset"], *grid[2:])


@bilateral_slice.lower("cpu")
def bilateral_slice_cpu(o: Lowering) -> None:
    """Pixel by pixel."""
    x, grid, out = o.input("X"), o.input("Grid"), o.output("Out")
    if out.size:
        o.call(slice_grid, x, o.input("Guide"), grid, out, out.size, *_numbers(o, x.shape[1], out.shape, grid.shape))


@bilateral_slice.grad(uses="X Guide Grid").lower("cpu")
def bilateral_slice_grad_cpu(o: Lowering) -> None:
    """Number by number of each."""
    g, x, guide, grid = o.input("Out@GRAD"), o.input("X"), o.input("Guide"), o.input("Grid")
    numbers = _numbers(o, x.shape[1], g.shape, grid.shape)
    calls = (
        ("X@GRAD", slice_grid_back_x, (g, guide, grid)),
        ("Guide@GRAD", slice_grid_back_guide, (x, g, guide, grid)),
        ("Grid@GRAD", slice_grid_back_grid, (x, g, guide)),
    )
    # A grid's number asks for its pixels instead of pixels adding to numbers: threads need no atomics, and the order is fixed.
    for slot, call, given in calls:
        if o.has(slot) and o.output(slot).size:
            o.only(slot)
            o.call(call, *given, o.output(slot), o.output(slot).size, *numbers)


deal(slice_grid, slice_grid_back_x, slice_grid_back_guide, slice_grid_back_grid)
also_on_cuda(bilateral_slice)
not_in_onnx("ONNX samples volumes from opset 20 on; opset 18 is written", "bilateral_slice")
