"""roi_perspective_transform: quadrangles of images as rectangles, as if seen from the front."""

from __future__ import annotations

import math

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI32, PtrI64, Real, T, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.detection import roi
from pe_cli.ops.detection.roi import nearest

#: Lengths and coordinates that differ by less count as equal, in pixels.
NEAR = 1e-4


@helper
def _at_most(a, b):
    return a < b or abs(a - b) < NEAR


@helper
def _columns(ax, ay, bx, by, cx, cy, dx, dy, height, width):
    """Return how many columns of the output a quadrangle has, by the ratio of its mean sides; two at least."""
    wide = (math.sqrt((ax - bx) ** 2 + (ay - by) ** 2) + math.sqrt((cx - dx) ** 2 + (cy - dy) ** 2)) / 2.0
    # b to c and d to a are the sides that run down, as corners go round.
    high = (math.sqrt((bx - cx) ** 2 + (by - cy) ** 2) + math.sqrt((dx - ax) ** 2 + (dy - ay) ** 2)) / 2.0
    # A quadrangle without height has no ratio of sides.
    if not high > 0.0:
        return max(2, width)
    return max(2, min(int(nearest(min(wide * (height - 1) / high, width * 1.0))) + 1, width))


@kernel
def projections(rois: Ptr, out: Ptr, regions: Int, height: Int, width: Int, scale: Real):
    """out[r] = the 3 by 3 matrix that takes a place of the output to one of the image, row by row."""
    for r in range(regions):
        ax, ay, bx, by = rois[8 * r] * scale, rois[8 * r + 1] * scale, rois[8 * r + 2] * scale, rois[8 * r + 3] * scale
        cx, cy, dx, dy = rois[8 * r + 4] * scale, rois[8 * r + 5] * scale, rois[8 * r + 6] * scale, rois[8 * r + 7] * scale
        down = max(2, height) - 1
        right = _columns(ax, ay, bx, by, cx, cy, dx, dy, max(2, height), width) - 1
        # Closed form of the projection from a unit square to a quadrangle (Heckbert 1989, section 2.2.3), with the square stretched to the
        # output's columns and rows.
        ux, uy, vx, vy = bx - cx, by - cy, dx - cx, dy - cy
        wx, wy = ax - bx + cx - dx, ay - by + cy - dy
        # 1e-5 is the original's guard for corners that lie on one line.
        area = ux * vy - vx * uy + 1e-5
        g, h = (wx * vy - vx * wy) / area / right, (ux * wy - wx * uy) / area / down
        m = 9 * r
        out[m], out[m + 1], out[m + 2] = T((bx - ax + g * right * bx) / right), T((dx - ax + h * down * dx) / down), T(ax)
        out[m + 3], out[m + 4], out[m + 5] = T((by - ay + g * right * by) / right), T((dy - ay + h * down * dy) / down), T(ay)
        out[m + 6], out[m + 7], out[m + 8] = T(g), T(h), T(1)


@helper
def _on_side(x, y, ax, ay, bx, by):
    """Whether a point is on the side from a to b."""
    if abs(ay - by) < NEAR:
        # A side along a row has no crossing with it to compute; the point is on it or not.
        return abs(y - ay) < NEAR and abs(y - by) < NEAR and _at_most(min(ax, bx), x) and _at_most(x, max(ax, bx))
    across = (y - ay) * (bx - ax) / (by - ay) + ax
    return abs(across - x) < NEAR and _at_most(min(ay, by), y) and _at_most(y, max(ay, by))


@helper
def _crosses(x, y, ax, ay, bx, by):
    """Return 1 if a ray to the right of a point meets the side from a to b."""
    # The lower end of a side does not count and the upper one does, so a ray through a corner meets one side and not two.
    if abs(ay - by) < NEAR or _at_most(y, min(ay, by)) or y - max(ay, by) > NEAR:
        return 0
    return 1 if (y - ay) * (bx - ax) / (by - ay) + ax - x > NEAR else 0


@helper
def _within(x, y, ax, ay, bx, by, cx, cy, dx, dy):
    """Whether a point is on or in the quadrangle a b c d."""
    if _on_side(x, y, ax, ay, bx, by) or _on_side(x, y, bx, by, cx, cy):
        return True
    if _on_side(x, y, cx, cy, dx, dy) or _on_side(x, y, dx, dy, ax, ay):
        return True
    # A ray from a point inside crosses the sides an odd number of times.
    n = _crosses(x, y, ax, ay, bx, by) + _crosses(x, y, bx, by, cx, cy)
    return (n + _crosses(x, y, cx, cy, dx, dy) + _crosses(x, y, dx, dy, ax, ay)) % 2 == 1


@kernel
def sources(rois: Ptr, matrix: Ptr, mask: PtrI32, places: Ptr, regions: Int, PH: Int, PW: Int, H: Int, W: Int, scale: Real):
    """places = column and row of the image for every place of the output; mask = 1 where it is in the region and the image."""
    for r in range(regions):
        q = 8 * r
        ax, ay, bx, by = rois[q] * scale, rois[q + 1] * scale, rois[q + 2] * scale, rois[q + 3] * scale
        cx, cy, dx, dy = rois[q + 4] * scale, rois[q + 5] * scale, rois[q + 6] * scale, rois[q + 7] * scale
        m = 9 * r
        for i in range(PH):
            for j in range(PW):
                o = (r * PH + i) * PW + j
                w = matrix[m + 6] * j + matrix[m + 7] * i + matrix[m + 8]
                x = (matrix[m] * j + matrix[m + 1] * i + matrix[m + 2]) / w
                y = (matrix[m + 3] * j + matrix[m + 4] * i + matrix[m + 5]) / w
                seen = _within(x, y, ax, ay, bx, by, cx, cy, dx, dy)
                # The border of the image lies half a pixel beyond the centres of its outermost pixels.
                if _at_most(x, -0.5) or _at_most(W - 0.5, x) or _at_most(y, -0.5) or _at_most(H - 0.5, y):
                    seen = False
                mask[o] = 1 if seen else 0
                places[2 * o], places[2 * o + 1] = x, y


@helper
def _between(p, size):
    """Return (pixel, 1 if the next one counts, distance) of a point."""
    if _at_most(p, 0.0):
        p = 0.0
    low = math.floor(p)
    if low >= size - 1:
        return size - 1, 0, 0.0
    return low, 1, p - low


@kernel
def front(x: Ptr, mask: PtrI32, places: Ptr, owner: PtrI64, out: Ptr, regions: Int, C: Int, parts: Int, H: Int, W: Int):
    """out = the image at places that the mask has, linear between pixels; 0 elsewhere."""
    for r in range(regions):
        for o in range(parts):
            column, right, u = _between(places[2 * (r * parts + o)], W)
            row, down, v = _between(places[2 * (r * parts + o) + 1], H)
            for c in range(C):
                value = 0.0
                if mask[r * parts + o]:
                    p = ((owner[r] * C + c) * H + row) * W + column
                    upper = x[p] * (1.0 - u) + x[p + right] * u
                    lower = x[p + down * W] * (1.0 - u) + x[p + down * W + right] * u
                    value = upper * (1.0 - v) + lower * v
                out[(r * C + c) * parts + o] = T(value)


@kernel
def front_back(g: Ptr, mask: PtrI32, places: Ptr, owner: PtrI64, dx: Ptr, C: Int, images: Int, regions: Int, parts: Int, H: Int, W: Int):
    """Give each place's gradient to the pixels around it."""
    # Regions overlap: a thread has a channel and meets all regions, so no two threads add to one pixel.
    for c in range(C):
        for n in range(images):
            for k in range(H * W):
                dx[(n * C + c) * H * W + k] = T(0)
        for r in range(regions):
            for o in range(parts):
                if mask[r * parts + o]:
                    column, right, u = _between(places[2 * (r * parts + o)], W)
                    row, down, v = _between(places[2 * (r * parts + o) + 1], H)
                    p = ((owner[r] * C + c) * H + row) * W + column
                    share = g[(r * C + c) * parts + o]
                    dx[p] += T(share * (1.0 - u) * (1.0 - v))
                    dx[p + right] += T(share * u * (1.0 - v))
                    dx[p + down * W] += T(share * (1.0 - u) * v)
                    dx[p + down * W + right] += T(share * u * v)


def _quadrangles(rng):
    return [[1, 1, 6, 2, 5, 6, 1, 5], [2, 0, 7, 1, 6, 7, 0, 6], [-3, -2, 4, 0, 9, 9, 0, 4.5]]


@op(
    "roi_perspective_transform",
    traits=[roi.REPORTS],
    inputs=roi.INPUTS,
    outputs="Out Mask TransformMatrix",
    attrs={
        "spatial_scale": Attr(1.0, "pixels of X to one of the regions' units"),
        "transformed_height": Attr(1, "rows of a region's output"),
        "transformed_width": Attr(1, "columns of a region's output"),
    },
    differentiable="X",
    samples=[
        Sample(
            {"X": (2, 2, 8, 8), "ROIs": _quadrangles, "BatchRoINums": lambda rng: [2, 1]},
            {"transformed_height": 3, "transformed_width": 4},
            "three regions of two images",
        ),
        Sample(
            {"X": (1, 1, 5, 7), "ROIs": lambda rng: [[0.0, 0.0, 12.0, 2.0, 11.0, 9.0, 1.0, 8.0]]},
            {"spatial_scale": 0.5, "transformed_height": 5, "transformed_width": 9},
            "a region in other units",
        ),
        Sample({"X": (1, 1, 5, 5), "ROIs": (0, 8)}, name="no regions"),
    ],
)
def roi_perspective_transform(
    x: TensorType,
    rois: TensorType,
    counts: TensorType | None,
    offsets: TensorType | None,
    *,
    spatial_scale: float,
    transformed_height: int,
    transformed_width: int,
) -> tuple[TensorType, TensorType, TensorType]:
    """Show quadrangles as rectangles, as if seen from the front.

    (u, v, w) = TransformMatrix (column, row, 1); Out[row, column] = X at column u / w and row v / w, linear between pixels

    A region fills as many columns as its mean sides ask for, two at least and transformed_width at most; the rest is 0.

    Args:
        X: [images, channels, height, width] float32 or float64.
        ROIs: [regions, 8] element type of X: x and y of the corners left top, right top, right bottom, left bottom.
        BatchRoINums: [images] int64: how many regions in a row belong to each image; may be left out for one image, and where
            ROIs has a sequence for each image.
        RoisLod: [images + 1] int64: the same as offsets: where the regions of each image begin.

    Returns:
        Out: [regions, channels, transformed_height, transformed_width] element type of X; 0 outside the region or the image.
        Mask: [regions, 1, transformed_height, transformed_width] int32: 1 within both.
        TransformMatrix: [regions, 9] element type of X: matrices, row by row.

    Raises:
        PeError: types that do not fit; several images, and nothing says whose the regions are; while running, counts that do not sum
            to the regions.

    Source:
        fluid.layers.roi_perspective_transform; the projective map of a square onto a quadrangle.
    """
    roi.check_regions("roi_perspective_transform", x, rois, counts, offsets, 8)
    if transformed_height < 1 or transformed_width < 1 or not spatial_scale > 0:
        sizes = f"{transformed_height} by {transformed_width}"
        raise PeError(f"roi_perspective_transform needs an output of at least one by one and a scale above 0, got {sizes}, {spatial_scale}")
    n, place = rois.shape[0], (transformed_height, transformed_width)
    return x.with_shape(n, x.shape[1], *place), TensorType((n, 1, *place), "int32"), x.with_shape(n, 9)


roi.of_sequences(roi_perspective_transform, keeps=True)


@roi_perspective_transform.lower("cpu")
def roi_perspective_transform_cpu(o: Lowering) -> None:
    """Matrices, then places, then the image there."""
    x, rois, out, mask, matrix = o.input("X"), o.input("ROIs"), o.output("Out"), o.output("Mask"), o.output("TransformMatrix")
    owner = roi.image_of(o, "roi_perspective_transform")
    height, width, scale = o.attrs["transformed_height"], o.attrs["transformed_width"], o.attrs["spatial_scale"]
    # Places are kept between the two kernels because every channel reads the image at the same ones.
    places, n = o.scratch(2 * mask.size, x.dtype), rois.shape[0]
    o.call(projections, rois, matrix, n, height, width, scale)
    o.call(sources, rois, matrix, mask, places, n, height, width, *x.shape[2:], scale)
    o.call(front, x, mask, places, owner, out, n, x.shape[1], height * width, *x.shape[2:])


@roi_perspective_transform.grad(uses="X ROIs BatchRoINums RoisLod TransformMatrix").lower("cpu")
def roi_perspective_transform_grad_cpu(o: Lowering) -> None:
    """Places again, then channel by channel: regions overlap."""
    if not o.has("X@GRAD"):
        return
    x, rois, g = o.input("X"), o.input("ROIs"), o.input("Out@GRAD")
    owner = roi.image_of(o, "roi_perspective_transform")
    n, (height, width) = rois.shape[0], g.shape[2:]
    places, mask = o.scratch(2 * n * height * width, x.dtype), o.scratch(n * height * width, "int32")
    # Mask and places are computed again from the matrices: less memory between the passes than keeping two numbers for every place.
    o.call(sources, rois, o.input("TransformMatrix"), mask, places, n, height, width, *x.shape[2:], o.attrs["spatial_scale"])
    o.call(front_back, g, mask, places, owner, o.output("X@GRAD"), x.shape[1], x.shape[0], n, height * width, *x.shape[2:])


deal(projections, sources, front, front_back)
also_on_cuda(roi_perspective_transform)
not_in_onnx("it turns quadrangles; roi_align and grid_sampler are exported", "roi_perspective_transform")
