"""rpn_target_assign and retinanet_target_assign: what anchors should say about true boxes. They run on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.lod import HostRun
from pe_cli.ops.define.onnx import TARGETS, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.detection.box_helpers import (
    Array,
    check_boxes,
    check_column,
    check_infos,
    differences,
    images_of,
    overlaps,
    per_image,
    same_lengths,
    sample,
)

#: Overlaps that differ by less count as equal.
NEAR = 1e-5


def _anchors(rng):
    return [[0.0, 0, 9, 9], [5, 5, 14, 14], [0, 10, 9, 19], [10, 0, 19, 9], [10, 10, 19, 19], [2, 2, 11, 11]]


_TRUE = {
    "Anchor": _anchors,
    "GtBoxes": lambda rng: [[1.0, 1, 10, 10], [11, 9, 19, 18]],
    "IsCrowd": lambda rng: np.array([[0], [0]], "int32"),
    "ImInfo": lambda rng: [[20.0, 20.0, 1.0]],
}


def _check(name: str, anchor: TensorType, boxes: TensorType, crowd: TensorType, info: TensorType) -> None:
    check_boxes(name, Anchor=anchor, GtBoxes=boxes)
    check_column(name, IsCrowd=crowd)
    check_infos(name, info, anchor.dtype)
    if boxes.dtype != anchor.dtype:
        raise PeError(f"{name} needs Anchor and GtBoxes of one element type, got {anchor} and {boxes}", hint="cast one of them")


@op(
    "rpn_target_assign",
    inputs="Anchor GtBoxes IsCrowd ImInfo",
    outputs="LocationIndex ScoreIndex TargetLabel TargetBBox BBoxInsideWeight",
    attrs={
        "rpn_batch_size_per_im": Attr(256, "anchors of an image that are chosen"),
        "rpn_straddle_thresh": Attr(0.0, "anchors that reach further out of the image do not count, in pixels; below 0: all count"),
        "rpn_fg_fraction": Attr(0.5, "part of them that may be on an object"),
        "rpn_positive_overlap": Attr(0.7, "anchors that overlap a box by so much are on an object"),
        "rpn_negative_overlap": Attr(0.3, "anchors that overlap no box by so much are on none"),
        "use_random": Attr(True, "draw which ones; else the first"),
    },
    differentiable="",
    samples=[
        Sample(_TRUE, {"rpn_batch_size_per_im": 6, "rpn_positive_overlap": 0.5, "use_random": False}, "two boxes"),
        Sample({**_TRUE, "GtBoxes": (0, 4), "IsCrowd": lambda rng: np.zeros((0, 1), "int32")}, name="no boxes"),
    ],
)
def rpn_target_assign(
    anchor: TensorType,
    boxes: TensorType,
    crowd: TensorType,
    info: TensorType,
    *,
    rpn_batch_size_per_im: int,
    rpn_straddle_thresh: float,
    rpn_fg_fraction: float,
    rpn_positive_overlap: float,
    rpn_negative_overlap: float,
    use_random: bool,
) -> tuple[TensorType, ...]:
    """Choose anchors on and off objects, and say for those on objects how to move to the true boxes.

    An anchor is on an object if it overlaps a box by rpn_positive_overlap or more, or a box as much as no other anchor does; it is on none
    if it overlaps every box by less than rpn_negative_overlap. One that is both is taken for one on none; in its place the first on an
    object is repeated with weight 0.

    Args:
        Anchor: [anchors, 4] float32 or float64.
        GtBoxes: [boxes, 4] element type of Anchor, a sequence for each image: the true boxes, in pixels before the image was scaled.
        IsCrowd: [boxes, 1] int32 or int64, a sequence for each image: boxes that are left out are not 0.
        ImInfo: [images, 3] element type of Anchor: height, width and scale of the network's input.

    Returns:
        LocationIndex: [on] int32: anchors on objects, counted over all images.
        ScoreIndex: [on and off] int32: those, once each, and anchors on none.
        TargetLabel: [on and off, 1] int32, a sequence for each image: 1 on an object, else 0.
        TargetBBox: [on, 4] element type of Anchor, a sequence for each image: moves of the centre in sides, logarithms of the sides.
        BBoxInsideWeight: [on, 4] element type of Anchor, a sequence for each image: 1, or 0 for what is there twice.

    Raises:
        PeError: types that do not fit; while running, other numbers of sequences or rows.

    Source:
        fluid.layers.rpn_target_assign; Ren et al. 2015, "Faster R-CNN", section 3.1.2.
    """
    del rpn_straddle_thresh, rpn_positive_overlap, rpn_negative_overlap, use_random
    _check("rpn_target_assign", anchor, boxes, crowd, info)
    if rpn_batch_size_per_im < 1 or not 0 < rpn_fg_fraction <= 1:
        raise PeError(f"rpn_target_assign: rpn_batch_size_per_im {rpn_batch_size_per_im}, rpn_fg_fraction {rpn_fg_fraction}",
                      hint="at least 1, and above 0 up to 1")  # fmt: skip
    index, rows = TensorType((-1,), "int32"), anchor.with_shape(-1, 4)
    return index, index, TensorType((-1, 1), "int32"), rows, rows


def _assign(overlap: Array, high: float, low: float, most: tuple[int, int] | None, rng: Any) -> tuple[list[int], ...]:
    """Return anchors on objects, on none, for moves, and how many of the last come first and count nothing.

    Args:
        overlap: of anchors and boxes.
        high, low: overlaps of anchors on objects and on none.
        most: anchors on objects, and of both kinds, that are chosen; None for all.
        rng: what draws; None takes the first.
    """
    none = np.zeros(len(overlap), overlap.dtype)
    best = overlap.max(1) if overlap.shape[1] else none
    # An anchor that is nearest to some box counts even below the threshold: else small boxes would have none.
    closest = (abs(overlap - overlap.max(0)) < NEAR).any(1) if overlap.size else none > 0
    on = np.flatnonzero(closest | ((best >= high) & (overlap.shape[1] > 0))).tolist()
    off = np.flatnonzero(best < low).tolist()
    if most is not None:
        # Objects first, and the rest of the batch is background.
        on = sample(on, most[0], rng)
        off = sample(off, most[1] - len(on), rng)
    # An anchor below the lower threshold may still be nearest to a box; the original drops it from objects.
    both = set(on) & set(off)
    left = [i for i in sorted(on) if i not in both]
    # One for each dropped anchor, so that the number of rows stays what the original gives.
    # The original fills dropped places with the first object, whose moves then weigh 0.
    return left, sorted(off), on[:1] * len(both) + left, [0] * len(both)


def _targets(anchors: Array, inside: Array, boxes: Array, found: tuple[list[int], ...]) -> dict[str, Array]:
    """Return one image's outputs, but labels of classes; places are among the anchors `inside`."""
    on, off, moves, unused = found
    overlap = overlaps(anchors[inside], boxes)
    of = overlap[moves].argmax(1) if moves else np.zeros(0, np.int64)
    weights = np.ones((len(moves), 4), anchors.dtype)
    weights[: len(unused)] = 0
    return {
        "LocationIndex": inside[moves],
        "ScoreIndex": inside[[*on, *off]],
        "TargetLabel": np.array([1] * len(on) + [0] * len(off), np.int32).reshape(-1, 1),
        "TargetBBox": differences(anchors[inside[moves]], boxes[of]),
        "BBoxInsideWeight": weights,
    }


def _joined(run: HostRun, each: list[dict[str, Array]]) -> dict[str, list[object]]:
    """Return the outputs of all images; indices count the anchors of the images before."""
    anchors = run.one("Anchor")
    made: dict[str, list[object]] = {}
    for slot in ("LocationIndex", "ScoreIndex"):
        # Indices are among the anchors of the whole batch, image after image, as fluid's example gathers with them.
        rows = [found[slot] + i * len(anchors) for i, found in enumerate(each)]
        made[slot] = [np.concatenate(rows).astype(np.int32)]
    empty = {"TargetLabel": np.zeros((0, 1), np.int32), "TargetBBox": anchors[:0], "BBoxInsideWeight": anchors[:0]}
    for slot, like in empty.items():
        made[slot] = [per_image([found[slot] for found in each], like)]
    return made


def _given(run: HostRun, *slots: str) -> list[tuple[Array, ...]]:
    """Return for each image its size, its boxes at the network's scale without crowds, and what else comes with each box."""
    info = run.one("ImInfo")
    n = images_of(run)
    parts = {slot: run.parts(slot, n) for slot in ("GtBoxes", "IsCrowd", *slots)}
    same_lengths(run, **parts)
    found = []
    for i in range(n):
        single = parts["IsCrowd"][i].ravel() == 0
        # Boxes are in pixels of the image; anchors lie on the network's input.
        boxes = parts["GtBoxes"][i][single] * info[i, 2]
        found.append((info[i], boxes, *(parts[slot][i].ravel()[single] for slot in slots)))
    return found


@rpn_target_assign.host_run
def rpn_target_assign_host(run: HostRun) -> dict[str, list[object]]:
    """Image by image.

    Raises:
        PeError: other numbers of sequences or rows (exit code 3).
    """
    anchors, a = run.one("Anchor"), run.attrs
    rng = run.generator() if a["use_random"] else None
    beyond, each = a["rpn_straddle_thresh"], []
    most = (int(a["rpn_fg_fraction"] * a["rpn_batch_size_per_im"]), a["rpn_batch_size_per_im"])
    for info, boxes in _given(run):
        # Anchors that reach beyond the image see padding and are left out.
        within = (anchors[:, :2] >= -beyond).all(1) & (anchors[:, 2:] < info[[1, 0]] + anchors.dtype.type(beyond)).all(1)
        inside = np.flatnonzero(within | (beyond < 0))
        overlap = overlaps(anchors[inside], boxes)
        found = _assign(overlap, a["rpn_positive_overlap"], a["rpn_negative_overlap"], most, rng)
        each.append(_targets(anchors, inside, boxes, found))
    return _joined(run, each)


@op(
    "retinanet_target_assign",
    inputs="Anchor GtBoxes GtLabels IsCrowd ImInfo",
    outputs="LocationIndex ScoreIndex TargetLabel TargetBBox BBoxInsideWeight ForegroundNumber",
    attrs={
        "positive_overlap": Attr(0.5, "anchors that overlap a box by so much are on an object"),
        "negative_overlap": Attr(0.4, "anchors that overlap no box by so much are on none"),
    },
    differentiable="",
    samples=[Sample({**_TRUE, "GtLabels": lambda rng: np.array([[1], [3]], "int32")}, name="two boxes")],
)
def retinanet_target_assign(
    anchor: TensorType,
    boxes: TensorType,
    labels: TensorType,
    crowd: TensorType,
    info: TensorType,
    *,
    positive_overlap: float,
    negative_overlap: float,
) -> tuple[TensorType, ...]:
    """Say for every anchor on an object of which class it is and how to move to the true box, and which anchors are on none.

    As `rpn_target_assign` does it, with all anchors, and with classes.

    Args:
        Anchor: [anchors, 4] float32 or float64.
        GtBoxes: [boxes, 4] element type of Anchor, a sequence for each image: the true boxes, in pixels before the image was scaled.
        GtLabels: [boxes, 1] int32 or int64, a sequence for each image: their classes, from 1 on.
        IsCrowd: [boxes, 1] int32 or int64, a sequence for each image: boxes that are left out are not 0.
        ImInfo: [images, 3] element type of Anchor: height, width and scale of the network's input.

    Returns:
        LocationIndex: [on] int32: anchors on objects, counted over all images.
        ScoreIndex: [on and off] int32: those, once each, and anchors on none.
        TargetLabel: [on and off, 1] int32, a sequence for each image: the class, 0 for none.
        TargetBBox: [on, 4] element type of Anchor, a sequence for each image: moves of the centre in sides, logarithms of the sides.
        BBoxInsideWeight: [on, 4] element type of Anchor, a sequence for each image: 1, or 0 for what is there twice.
        ForegroundNumber: [images, 1] int32, a sequence for each image: anchors on objects and one more.

    Raises:
        PeError: types that do not fit; while running, other numbers of sequences or rows.

    Source:
        fluid.layers.retinanet_target_assign; Lin et al. 2017, "Focal Loss for Dense Object Detection", section 4.
    """
    del positive_overlap, negative_overlap
    _check("retinanet_target_assign", anchor, boxes, crowd, info)
    check_column("retinanet_target_assign", GtLabels=labels)
    index, rows, column = TensorType((-1,), "int32"), anchor.with_shape(-1, 4), TensorType((-1, 1), "int32")
    return index, index, column, rows, rows, TensorType((info.shape[0], 1), "int32")


@retinanet_target_assign.host_run
def retinanet_target_assign_host(run: HostRun) -> dict[str, list[object]]:
    """Image by image.

    Raises:
        PeError: other numbers of sequences or rows (exit code 3).
    """
    anchors, each, counts = run.one("Anchor"), [], []
    everything = np.arange(len(anchors))
    for _, boxes, labels in _given(run, "GtLabels"):
        overlap = overlaps(anchors, boxes)
        found = _assign(overlap, run.attrs["positive_overlap"], run.attrs["negative_overlap"], None, None)
        made = _targets(anchors, everything, boxes, found)
        on = found[0]
        if on:
            made["TargetLabel"][: len(on), 0] = labels[overlap[on].argmax(1)]
        each.append(made)
        # One more than there are: the focal loss divides by it.
        counts.append(np.array([[len(found[2]) + 1]], np.int32))
    return {**_joined(run, each), "ForegroundNumber": [per_image(counts, np.zeros((0, 1), np.int32))]}
not_in_onnx(TARGETS, "retinanet_target_assign", "rpn_target_assign")
