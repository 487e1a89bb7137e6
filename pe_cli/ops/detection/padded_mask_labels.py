"""padded_mask_labels: generate_mask_labels with a mask for every region, so that it runs in the step."""

from __future__ import annotations

import math

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI32, PtrI64, Status, T, helper, kernel
from pe_cli.kernels.status_codes import OUT_OF_RANGE
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import LodRequest, fixed
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.onnx import TARGETS, not_in_onnx
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.traits import ReportsData
from pe_cli.ops.detection.box_helpers import check_column, check_infos
from pe_cli.ops.detection.generate_mask_labels import FINE, generate_mask_labels
from pe_cli.ops.detection.matching import give_offsets


@helper
def _cut(v):
    """Return a number without its fraction."""
    return math.floor(v) if v >= 0 else math.ceil(v)


@helper
def _is_polygon(segments, at, points):
    """Return whether the points of a polygon are not all the same."""
    # Padding in a block of polygons repeats one point, which encloses nothing.
    for k in range(1, points):  # noqa: SIM110 (a kernel has no generators)
        if segments[at + 2 * k] != segments[at] or segments[at + 2 * k + 1] != segments[at + 1]:
            return True
    return False


@helper
def _frame_overlap(segments, at, polygons, points, left, top, right, bottom):
    """Return the overlap of a box and the frame of an object's polygons, the last pixels inside; below 0 where it has no polygon."""
    found = 0
    # The far corner starts at 0 and not at a first point, as in the original: edges left of or above the image count as its corner.
    low_x, low_y, high_x, high_y = T(0), T(0), T(0), T(0)
    for p in range(polygons):
        begin = at + 2 * p * points
        if not _is_polygon(segments, begin, points):
            continue
        for k in range(points):
            x, y = segments[begin + 2 * k], segments[begin + 2 * k + 1]
            low_x = x if found == 0 else min(low_x, x)
            low_y = y if found == 0 else min(low_y, y)
            high_x = max(high_x, x)
            high_y = max(high_y, y)
            found = 1
    if found == 0:
        return T(-1)
    w = min(right, high_x) - max(left, low_x) + T(1)
    h = min(bottom, high_y) - max(top, low_y) + T(1)
    if w <= T(0) or h <= T(0):
        return T(0)
    areas = (right - left + T(1)) * (bottom - top + T(1)) + (high_x - low_x + T(1)) * (high_y - low_y + T(1))
    return w * h / (areas - w * h)


@helper
def _on_grid(v, low, side, size):
    """Return a coordinate on the fine grid of a region."""
    return _cut(FINE * ((v - low) * T(size) / side) + 0.5)


@helper
def _cross(crossed, at, size, before, u, v, w):
    """Note where an outline that goes from column `before` to column u, between rows v and w, enters or leaves a column of pixels."""
    fine = u if u < before else u - 1
    # The fine grid is five times as fine; only where it crosses the middle of a column does a mask change.
    column = (fine + 0.5) / FINE - 0.5
    if math.floor(column) == column and 0 <= column <= size - 1:
        row = math.ceil(min(max((min(v, w) + 0.5) / FINE - 0.5, 0.0), size * 1.0))
        place = at + math.floor(column) * size + row
        # Even or odd is all that counts: two crossings at one place cancel.
        crossed[place] = 1 - crossed[place]


@helper
def _follow(crossed, at, size, x, y, u, v):
    """Follow one edge of an outline over the fine grid, from x, y to u, v."""
    wide, high = abs(x - u), abs(y - v)
    # At least 1 wherever the loop runs, so neither slope divides by 0.
    n = max(wide, high)
    before, row = x, y
    for k in range(1, n + 1):
        if wide >= high:
            new = x + (k if u > x else -k)
            slope = (v - y) / (u - x)
            a, b = (x, y) if x <= u else (u, v)
            other = _cut(b + slope * (new - a) + 0.5)
            # Always computed from the smaller coordinate, as in the original: rounding then does not depend on the direction.
            _cross(crossed, at, size, before, new, row, other)
            before, row = new, other
        else:
            new = y + (k if v > y else -k)
            slope = (u - x) / (v - y)
            a, b = (y, x) if y <= v else (v, u)
            other = _cut(b + slope * (new - a) + 0.5)
            if other != before:
                _cross(crossed, at, size, before, other, row, new)
            before, row = other, new


@kernel
def draw_masks(  # noqa: C901, PLR0912 (loops over regions, objects, polygons and points)
    info: Ptr, classes: PtrI32, crowd: PtrI32, segments: Ptr, offsets: PtrI64, rois: Ptr, labels: PtrI32, has: PtrI32, masks: PtrI32,
    crossed: PtrI32, images: Int, S: Int, rows: Int, polygons: Int, points: Int, K: Int, size: Int, crowds: Int, status: Status,
):  # fmt: skip
    """masks = parts of each region within polygons, at the place of its class, else -1; crossed: scratch for every region."""
    cells = size * size
    for e in range(images * S):
        i = e // S
        a = offsets[i]
        b = offsets[i + 1] if offsets[i + 1] >= 0 else rows
        has[e] = 0
        for k in range(K * cells):
            masks[e * K * cells + k] = -1
        label = labels[e]
        # The run stops at the status; the row keeps -1 everywhere, as if its region were on no object.
        if label >= K:
            status[0], status[1], status[2], status[3] = OUT_OF_RANGE, e, label, K
        if label <= 0 or label >= K:
            continue
        scale = info[3 * i + 2]
        left, top = rois[4 * e] / scale, rois[4 * e + 1] / scale
        right, bottom = rois[4 * e + 2] / scale, rois[4 * e + 3] / scale
        which, best = -1, T(-1)
        for g in range(a, b):
            if classes[g] <= 0 or (crowds and crowd[g] != 0):
                continue
            v = _frame_overlap(segments, 2 * g * polygons * points, polygons, points, left, top, right, bottom)
            if v > best:
                which, best = g, v
        if which < 0:
            continue
        has[e] = 1
        at, out = e * (cells + 1), (e * K + label) * cells
        wide, high = max(right - left, T(1)), max(bottom - top, T(1))
        for k in range(cells):
            masks[out + k] = 0
        for p in range(polygons):
            begin = 2 * (which * polygons + p) * points
            if not _is_polygon(segments, begin, points):
                continue
            # One place more than there are pixels takes crossings below the last row of the last column.
            for k in range(cells + 1):
                crossed[at + k] = 0
            for k in range(points):
                # Behind the last point comes the first: outlines are closed.
                this, following = begin + 2 * k, begin + 2 * ((k + 1) % points)
                x, y = _on_grid(segments[this], left, wide, size), _on_grid(segments[this + 1], top, high, size)
                u, w = _on_grid(segments[following], left, wide, size), _on_grid(segments[following + 1], top, high, size)
                _follow(crossed, at, size, x, y, u, w)
            inside = 0
            for k in range(cells):
                # Between two crossings of a column lies the inside (even-odd rule).
                inside = (inside + crossed[at + k]) % 2
                if inside:
                    # Columns are followed first, so the mask is turned while it is written.
                    masks[out + k % size * size + k // size] = 1


_ONE = {
    "ImInfo": lambda rng: [[20.0, 20.0, 1.0], [40.0, 40.0, 2.0]],
    "GtClasses": lambda rng: np.array([[1], [2]], "int32"),
    "IsCrowd": lambda rng: np.array([[0], [0]], "int32"),
    "GtSegms": lambda rng: [
        [[[2.0, 2], [12, 2], [12, 12], [2, 12]], [[0, 0], [0, 0], [0, 0], [0, 0]]],
        [[[3, 4], [9, 4], [6, 11], [6, 11]], [[11, 3], [17, 3], [17, 9], [11, 9]]],
    ],
    "Offsets": fixed([0, 1, 2]),
    "Rois": lambda rng: [[[1.0, 1, 13, 13], [7, 7, 19, 19], [0, 0, 4, 4]], [[4, 4, 34, 24], [0, 0, 0, 0], [0, 0, 0, 0]]],
    "LabelsInt32": lambda rng: np.array([[1], [1], [0], [2], [-1], [-1]], "int32"),
}


@op(
    "padded_mask_labels",
    inputs="ImInfo GtClasses IsCrowd? GtSegms Offsets? Rois LabelsInt32",
    outputs="RoiHasMaskInt32 MaskInt32",
    attrs=dict(generate_mask_labels.attrs),
    traits=[ReportsData()],
    differentiable="",
    samples=[Sample(_ONE, {"num_classes": 3, "resolution": 4}, "two images")],
)
def padded_mask_labels(
    info: TensorType,
    classes: TensorType,
    crowd: TensorType | None,
    segments: TensorType,
    offsets: TensorType | None,
    rois: TensorType,
    labels: TensorType,
    *,
    num_classes: int,
    resolution: int,
) -> tuple[TensorType, TensorType]:
    """Draw for each region on an object the polygons of the object whose box overlaps it most, as `generate_mask_labels` does.

    Args:
        ImInfo: [images, 3] float32 or float64: height, width and scale of the network's input.
        GtClasses: [objects, 1] int32.
        IsCrowd: [objects, 1] int32; crowds have no masks.
        GtSegms: [objects, polygons, points, 2] element type of ImInfo, a sequence for each image: x and y, in pixels before the image was
            scaled. A polygon of fewer points repeats its last one, and a polygon whose points are all the same is none.
        Offsets: int64 [images + 1]: where the objects of each image begin.
        Rois: [images, regions, 4] element type of ImInfo.
        LabelsInt32: [images regions, 1] int32: classes of the regions; 0 and below have no mask.

    Returns:
        RoiHasMaskInt32: [images regions, 1] int32: 1 for a region with a mask, else 0.
        MaskInt32: [images regions, num_classes resolution resolution] int32: 1 within the polygons and 0 outside for the region's class,
            -1 for the others, and everywhere for regions without a mask.

    Raises:
        PeError: types that do not fit; while running, a label that is no class.

    Source:
        fluid.layers.generate_mask_labels; He et al. 2017, "Mask R-CNN", section 3; the drawing is that of COCO's tools.
    """
    name = "generate_mask_labels"
    check_column(name, GtClasses=classes, LabelsInt32=labels, **({"IsCrowd": crowd} if crowd else {}))
    check_infos(name, info, rois.dtype)
    if len(rois.shape) != 3 or rois.shape[2] != 4:
        raise PeError(f"{name} needs rois [images, regions, 4], got {rois}", hint="reshape it")
    if len(segments.shape) != 4 or segments.shape[3] != 2 or segments.dtype != rois.dtype or segments.shape[2] == 0:
        raise PeError(f"{name} needs gt_segms [objects, polygons, points, 2] {rois.dtype}, x and y, got {segments}")
    images, regions = rois.shape[:2]
    rows = -1 if -1 in (images, regions) else images * regions
    others = [info.shape[0], offsets.shape[0] - 1 if offsets else -1]
    objects = [kind.shape[0] for kind in (segments, classes, crowd) if kind is not None and kind.shape[0] >= 0]
    alike = all(-1 in (images, n) or images == n for n in others) and (-1 in (rows, labels.shape[0]) or rows == labels.shape[0])
    if not alike or len(set(objects)) > 1:
        kinds = ", ".join(f"{k} {v}" for k, v in (("im_info", info), ("gt_classes", classes), ("gt_segms", segments), ("rois", rois)))
        raise PeError(f"{name}: {kinds} and labels_int32 {labels} do not fit", hint="a row for each image, object and region")
    if num_classes < 1 or resolution < 1:
        raise PeError(f"{name}: num_classes {num_classes}, resolution {resolution}", hint="each at least 1")
    return TensorType((rows, 1), "int32"), TensorType((rows, num_classes * resolution**2), "int32")


@padded_mask_labels.sequences("Offsets")
def padded_mask_labels_lod(s: LodRequest) -> None:
    """An image for each sequence of objects."""
    give_offsets(s, "GtSegms", "Offsets")


@padded_mask_labels.lower("cpu")
def padded_mask_labels_cpu(o: Lowering) -> None:
    """Region by region."""
    rois, segments, masks = o.input("Rois"), o.input("GtSegms"), o.output("MaskInt32")
    if not masks.size:
        return
    images, regions = rois.shape[:2]
    size = o.attrs["resolution"]
    crowd = o.input("IsCrowd") if o.inputs("IsCrowd") else o.scratch(1, "int32")
    o.call(
        draw_masks, o.input("ImInfo"), o.input("GtClasses"), crowd, segments, o.input("Offsets"), rois, o.input("LabelsInt32"),
        o.output("RoiHasMaskInt32"), masks, o.scratch(images * regions * (size * size + 1), "int32"), images, regions, segments.shape[0],
        segments.shape[1], segments.shape[2], o.attrs["num_classes"], size, int(bool(o.inputs("IsCrowd"))), STATUS,
    )  # fmt: skip


deal(draw_masks)
also_on_cuda(padded_mask_labels)
not_in_onnx(TARGETS, "padded_mask_labels")
