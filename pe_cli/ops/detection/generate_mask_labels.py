"""generate_mask_labels: polygons as masks of the regions that they are in. It runs on the host."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.lod import HostRun, Leveled
from pe_cli.ops.define.onnx import TARGETS, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.detection.box_helpers import (
    Array,
    check_boxes,
    check_column,
    check_infos,
    images_of,
    overlaps,
    per_image,
    same_lengths,
)

#: Points along a pixel's side at which the outline of a polygon is followed.
FINE = 5
_ONE = {
    "ImInfo": lambda rng: [[20.0, 20.0, 1.0]],
    "GtClasses": lambda rng: np.array([[1]], "int32"),
    "IsCrowd": lambda rng: np.array([[0]], "int32"),
    "GtSegms": lambda rng: [[2.0, 2], [12, 2], [12, 12], [2, 12]],
    "Rois": lambda rng: [[1.0, 1, 13, 13], [7, 7, 19, 19], [0, 0, 4, 4]],
    "LabelsInt32": lambda rng: np.array([[1], [1], [0]], "int32"),
}


@op(
    "generate_mask_labels",
    inputs="ImInfo GtClasses IsCrowd GtSegms Rois LabelsInt32",
    outputs="MaskRois RoiHasMaskInt32 MaskInt32",
    attrs={"num_classes": Attr(1, "classes, the background included"), "resolution": Attr(1, "rows and columns of a mask")},
    differentiable="",
    samples=[
        Sample(_ONE, {"num_classes": 3, "resolution": 4}, "one polygon"),
        Sample({**_ONE, "LabelsInt32": lambda rng: np.zeros((3, 1), "int32")}, {"num_classes": 2, "resolution": 2}, "nothing on an object"),
    ],
)
def generate_mask_labels(
    info: TensorType,
    classes: TensorType,
    crowd: TensorType,
    segments: TensorType,
    rois: TensorType,
    labels: TensorType,
    *,
    num_classes: int,
    resolution: int,
) -> tuple[TensorType, TensorType, TensorType]:
    """Draw for each region on an object the polygons of the object whose box overlaps it most.

    Args:
        ImInfo: [images, 3] float32 or float64: height, width and scale of the network's input.
        GtClasses: [objects, 1] int32 or int64, a sequence for each image.
        IsCrowd: [objects, 1] int32 or int64, a sequence for each image; crowds have no masks.
        GtSegms: [points, 2] element type of ImInfo, in pixels before the image was scaled; three levels of sequences: objects of an image,
            polygons of an object, points of a polygon. Plain rows are one polygon.
        Rois: [regions, 4] element type of ImInfo, a sequence for each image.
        LabelsInt32: [regions, 1] int32 or int64, a sequence for each image: their classes, 0 for none.

    Returns:
        MaskRois: [masks, 4] element type of ImInfo, a sequence for each image: regions on objects, or the first on none.
        RoiHasMaskInt32: [masks, 1] int32, a sequence for each image: their places among the image's regions.
        MaskInt32: [masks, num_classes resolution resolution] int32, a sequence for each image: 1 within the polygons and 0 outside for the
            region's class, -1 for the others.

    Raises:
        PeError: types that do not fit; while running, other numbers of sequences or rows, or regions on objects where there are none.

    Source:
        fluid.layers.generate_mask_labels; He et al. 2017, "Mask R-CNN", section 3; the drawing is that of COCO's tools.
    """
    name = "generate_mask_labels"
    check_boxes(name, Rois=rois)
    check_column(name, GtClasses=classes, IsCrowd=crowd, LabelsInt32=labels)
    check_infos(name, info, rois.dtype)
    if len(segments.shape) != 2 or segments.shape[1] != 2 or segments.dtype != rois.dtype:
        raise PeError(f"{name} needs GtSegms [points, 2] {rois.dtype}, x and y, got {segments}")
    if num_classes < 1 or resolution < 1:
        raise PeError(f"{name}: num_classes {num_classes}, resolution {resolution}", hint="each at least 1")
    return rois.with_shape(-1, 4), TensorType((-1, 1), "int32"), TensorType((-1, num_classes * resolution**2), "int32")


def _outline(x: Array, y: Array) -> tuple[Array, Array]:
    """Return the points of a grid along a closed polygon, given its corners on the grid."""
    us, vs = [], []
    # As COCO's rleFrPoly does: each edge is followed along its longer axis, a grid point for every step, and rounded across it.
    for k in range(len(x)):
        ends = [(int(x[k]), int(y[k])), (int(x[(k + 1) % len(x)]), int(y[(k + 1) % len(x)]))]
        wide, high = abs(ends[0][0] - ends[1][0]), abs(ends[0][1] - ends[1][1])
        along = 0 if wide >= high else 1
        # Always from the smaller coordinate to the larger, so that an edge that two polygons share has the same points in both.
        swapped = ends[0][along] > ends[1][along]
        (a, b), n = (ends[::-1] if swapped else ends), max(wide, high)
        t = np.arange(n, -1, -1) if swapped else np.arange(n + 1)
        slope = (b[1 - along] - a[1 - along]) / n if n else 0.0
        one, other = t + a[along], np.trunc(a[1 - along] + slope * t + 0.5).astype(np.int64)
        us.append(one if along == 0 else other)
        vs.append(other if along == 0 else one)
    return np.concatenate(us), np.concatenate(vs)


def polygon_mask(points: Array, size: int) -> Array:
    """Return which pixels of a square are within a polygon: [size, size] of bool; points are x, y in pixels."""
    # Points are moved to a grid of FINE per pixel, halves rounded up.
    corners = np.trunc(FINE * points.astype(np.float64) + 0.5).astype(np.int64)
    u, v = _outline(corners[:, 0], corners[:, 1])
    step = np.flatnonzero(u[1:] != u[:-1])
    before, after = (u[step], v[step]), (u[step + 1], v[step + 1])
    # A crossing counts where the outline changes its column on the fine grid, at the middle of a pixel's column; others would count one
    # column several times.
    column = (np.where(after[0] < before[0], after[0], after[0] - 1) + 0.5) / FINE - 0.5
    row = np.ceil(np.clip((np.minimum(before[1], after[1]) + 0.5) / FINE - 0.5, 0, size))
    seen = (np.floor(column) == column) & (column >= 0) & (column <= size - 1)
    # Going down a column, every crossing of the outline goes in or out; the extra place takes crossings below the last row of all.
    crossed = np.bincount((column[seen] * size + row[seen]).astype(np.int64), minlength=size * size + 1)
    found: Array = np.cumsum(crossed[: size * size]) % 2 == 1
    # Places go column by column, as COCO's run lengths do, hence the transposition.
    return found.reshape(size, size).T


def region_mask(polygons: Sequence[Array], box: Array, size: int) -> Array:
    """Return which parts of a region are within polygons: [size, size] of bool."""
    # A region narrower than a pixel is drawn as a pixel wide instead of dividing by 0.
    sides = np.maximum(box[2:] - box[:2], 1)
    found: Array = np.logical_or.reduce([polygon_mask((p - box[:2]) * size / sides, size) for p in polygons])
    return found


def _polygons(run: HostRun, images: int) -> list[list[list[Array]]]:
    """Return the polygons of every object of every image.

    Raises:
        PeError: levels that do not fit (exit code 3).
    """
    (given,) = run.values["GtSegms"]
    lod = given.lod or ([0, 1], [0, 1], [0, len(given.array)])
    if len(lod) != 3 or len(lod[0]) != images + 1:
        message = f"generate_mask_labels: GtSegms has {len(lod)} levels of sequences, the first of {len(lod[0]) - 1}, for {images} images"
        raise PeError(message, hint="feed it with lod_level: 3: objects of an image, polygons of an object, points", code=ExitCode.DATA)
    if any(a == b for a, b in pairwise(lod[2])):
        raise PeError("generate_mask_labels: GtSegms has a polygon without points", code=ExitCode.DATA)
    points = [given.array[a:b] for a, b in pairwise(lod[2])]
    objects = [points[a:b] for a, b in pairwise(lod[1])]
    return [objects[a:b] for a, b in pairwise(lod[0])]


@generate_mask_labels.host_run
def generate_mask_labels_host(run: HostRun) -> dict[str, list[object]]:
    """Image by image.

    Raises:
        PeError: other numbers of sequences or rows, a class that is not there, or no object for a region on one (exit code 3).
    """
    n = images_of(run)
    polygons = _polygons(run, n)
    parts = {slot: run.parts(slot, n) for slot in ("GtClasses", "IsCrowd", "Rois", "LabelsInt32")}
    same_lengths(run, GtClasses=parts["GtClasses"], IsCrowd=parts["IsCrowd"], GtSegms=[np.empty(len(p)) for p in polygons])
    same_lengths(run, Rois=parts["Rois"], LabelsInt32=parts["LabelsInt32"])
    like, width = run.one("Rois"), run.attrs["num_classes"] * run.attrs["resolution"] ** 2
    found = []
    for i, objects in enumerate(polygons):
        # Crowds have no outline of their own, and class 0 is no object.
        single = np.flatnonzero((parts["GtClasses"][i].ravel() > 0) & (parts["IsCrowd"][i].ravel() == 0))
        labels = parts["LabelsInt32"][i].ravel()
        if (labels >= run.attrs["num_classes"]).any():
            message = f"generate_mask_labels: image {i} has labels {labels.tolist()}, num_classes is {run.attrs['num_classes']}"
            raise PeError(message, code=ExitCode.DATA)
        if not len(single) and (labels > 0).any():
            raise PeError(f"generate_mask_labels: image {i} has regions on objects, but no object with a mask", code=ExitCode.DATA)
        found.append(_one_image(run, parts["Rois"][i], labels, [objects[k] for k in single], run.one("ImInfo")[i, 2]))
    empty = (like[:0], np.zeros((0, 1), np.int32), np.zeros((0, width), np.int32))
    made: list[Leveled] = [per_image([each[k] for each in found], empty[k]) for k in range(3)]
    return {slot: [value] for slot, value in zip(("MaskRois", "RoiHasMaskInt32", "MaskInt32"), made, strict=True)}


def _one_image(run: HostRun, rois: Array, labels: Array, objects: list[list[Array]], scale: float) -> tuple[Array, Array, Array]:
    # The original never hands on an empty batch of masks: an image without regions on objects gives its first background region, whose mask
    # is all -1 and so costs nothing.
    size, classes = run.attrs["resolution"], run.attrs["num_classes"]
    on = np.flatnonzero(labels > 0)
    places = on if len(on) else np.flatnonzero(labels == 0)[:1]
    # Polygons are drawn on the image before scaling, and regions come in pixels of the network's input.
    boxes = rois[places] / scale
    masks = np.full((len(places), classes, size * size), -1, np.int32)
    if len(on):
        around = [np.concatenate(p) for p in objects]
        floor = np.finfo(boxes.dtype).tiny  # right and bottom edges left of and above the image count as its corner
        frames = np.array([[*p.min(0), *np.maximum(p.max(0), floor)] for p in around], boxes.dtype)
        best = overlaps(boxes, frames).argmax(1)
        for k, (box, of) in enumerate(zip(boxes, best, strict=True)):
            masks[k, labels[on[k]]] = region_mask(objects[of], box, size).ravel()
    return boxes * scale, places.astype(np.int32).reshape(-1, 1), masks.reshape(len(places), -1)
not_in_onnx(TARGETS, "generate_mask_labels")
