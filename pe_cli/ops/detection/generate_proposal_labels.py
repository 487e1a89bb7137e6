"""generate_proposal_labels: which proposals a detector learns from, with classes and moves. It runs on the host."""

from __future__ import annotations

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
OUTPUTS = ("Rois", "LabelsInt32", "BboxTargets", "BboxInsideWeights", "BboxOutsideWeights", "MaxOverlapWithGT")

_SIX = {
    "RpnRois": lambda rng: [[1.0, 1, 9, 10], [2, 2, 12, 11], [0, 9, 8, 18], [9, 8, 18, 19], [11, 9, 19, 19], [4, 4, 14, 14]],
    "GtClasses": lambda rng: np.array([[1], [2]], "int32"),
    "IsCrowd": lambda rng: np.array([[0], [0]], "int32"),
    "GtBoxes": lambda rng: [[2.0, 1, 10, 10], [10, 9, 19, 18]],
    "ImInfo": lambda rng: [[20.0, 20.0, 1.0]],
}
FEW = {"batch_size_per_im": 6, "fg_fraction": 0.5, "fg_thresh": 0.4, "bg_thresh_hi": 0.4, "class_nums": 3}


def check_choice(batch_size_per_im: int, fg_fraction: float, class_nums: int, bbox_reg_weights: list[float], *, agnostic: bool) -> None:
    """Check the numbers of boxes that are chosen, and what their moves are divided by.

    Raises:
        PeError: a number out of its range.
    """
    fits = batch_size_per_im >= 1 and 0 <= fg_fraction <= 1 and class_nums >= (2 if agnostic else 1)
    if not fits or len(bbox_reg_weights) != 4 or not all(bbox_reg_weights):
        values = f"{batch_size_per_im}, {fg_fraction}, {class_nums}, {bbox_reg_weights}"
        needs = "batch_size_per_im from 1, fg_fraction from 0 to 1, class_nums from 1 (2 with is_cls_agnostic), four bbox_reg_weights but 0"
        raise PeError(f"generate_proposal_labels needs {needs}, got {values}")


@op(
    "generate_proposal_labels",
    inputs="RpnRois GtClasses IsCrowd GtBoxes ImInfo MaxOverlap?",
    outputs=" ".join(OUTPUTS),
    attrs={
        "batch_size_per_im": Attr(256, "boxes of an image that are chosen"),
        "fg_fraction": Attr(0.25, "part of them that may be on an object"),
        "fg_thresh": Attr(0.25, "boxes that overlap a true one by so much are on an object"),
        "bg_thresh_hi": Attr(0.5, "others that overlap true ones by less are on none"),
        "bg_thresh_lo": Attr(0.0, "if they overlap one by so much"),
        "bbox_reg_weights": Attr([0.1, 0.1, 0.2, 0.2], "what moves are divided by"),
        "class_nums": Attr(1, "classes, the background included"),
        "use_random": Attr(True, "draw which ones; else the first"),
        "is_cascade_rcnn": Attr(False, "a later stage of a cascade: all boxes, but those that are true ones of the stage before"),
        "is_cls_agnostic": Attr(False, "moves are the same for all classes and stand at class 1"),
    },
    differentiable="",
    samples=[
        Sample(_SIX, {**FEW, "use_random": False}, "six proposals"),
        Sample(_SIX, {**FEW, "is_cascade_rcnn": True, "is_cls_agnostic": True}, "a later stage"),
    ],
)
def generate_proposal_labels(
    rois: TensorType,
    classes: TensorType,
    crowd: TensorType,
    boxes: TensorType,
    info: TensorType,
    overlap: TensorType | None,
    *,
    batch_size_per_im: int,
    fg_fraction: float,
    fg_thresh: float,
    bg_thresh_hi: float,
    bg_thresh_lo: float,
    bbox_reg_weights: list[float],
    class_nums: int,
    use_random: bool,
    is_cascade_rcnn: bool,
    is_cls_agnostic: bool,
) -> tuple[TensorType, ...]:
    """Choose from proposals and true boxes those that a detector learns from, with their classes and moves to the true boxes.

    A box is on the true one that it overlaps most, if by fg_thresh or more; it is on none if by less than bg_thresh_hi and by bg_thresh_lo
    or more. Crowds are on nothing. Candidates are the true boxes, then the proposals. In a cascade's later stage nothing is left out by
    number but boxes without area, and proposals alone are candidates; where MaxOverlap is given, the true boxes are, too, and proposals
    that overlap one wholly are not: those are the true boxes that the stage before had added.

    Args:
        RpnRois: [proposals, 4] float32 or float64, a sequence for each image, in pixels of the network's input.
        GtClasses: [boxes, 1] int32 or int64, a sequence for each image: classes of the true boxes, from 1 on.
        IsCrowd: [boxes, 1] int32 or int64, a sequence for each image.
        GtBoxes: [boxes, 4] element type of RpnRois, a sequence for each image: the true boxes, in pixels before the image was scaled.
        ImInfo: [images, 3] element type of RpnRois: height, width and scale of the network's input.
        MaxOverlap: [proposals] element type of RpnRois: MaxOverlapWithGT of the stage before.

    Returns:
        Rois: [chosen, 4] element type of RpnRois, a sequence for each image, as are all: those on objects, then those on none.
        LabelsInt32: [chosen, 1] int32: classes, 0 for none.
        BboxTargets: [chosen, 4 class_nums] element type of RpnRois: moves, at the place of the class, else 0.
        BboxInsideWeights, BboxOutsideWeights: type of BboxTargets: 1 where a move is, else 0.
        MaxOverlapWithGT: [chosen] element type of RpnRois: how much each overlaps a true box.

    Raises:
        PeError: types that do not fit; while running, other numbers of sequences or rows, or a class that is not there.

    Source:
        fluid.layers.generate_proposal_labels; Girshick 2015, "Fast R-CNN", section 2.3; Cai and Vasconcelos 2018, "Cascade R-CNN".
    """
    del bg_thresh_hi, bg_thresh_lo, fg_thresh, use_random
    name = "generate_proposal_labels"
    check_boxes(name, RpnRois=rois, GtBoxes=boxes)
    check_column(name, GtClasses=classes, IsCrowd=crowd)
    check_infos(name, info, rois.dtype)
    if boxes.dtype != rois.dtype or (overlap is not None and (overlap.dtype != rois.dtype or len(overlap.shape) != 1)):
        raise PeError(f"{name} needs RpnRois, GtBoxes and MaxOverlap [proposals] of one element type, got {rois}, {boxes}, {overlap}")
    if overlap is not None and not is_cascade_rcnn:
        raise PeError(f"{name}: MaxOverlap counts in a cascade alone", hint="set is_cascade_rcnn, or leave max_overlap out")
    check_choice(batch_size_per_im, fg_fraction, class_nums, bbox_reg_weights, agnostic=is_cls_agnostic)
    wide = rois.with_shape(-1, 4 * class_nums)
    return rois.with_shape(-1, 4), TensorType((-1, 1), "int32"), wide, wide, wide, rois.with_shape(-1)


@generate_proposal_labels.host_run
def generate_proposal_labels_host(run: HostRun) -> dict[str, list[object]]:
    """Image by image.

    Raises:
        PeError: other numbers of sequences or rows, or a class that is not there (exit code 3).
    """
    n, rng = images_of(run), run.generator() if run.attrs["use_random"] else None
    parts = {slot: run.parts(slot, n) for slot in ("RpnRois", "GtBoxes", "GtClasses", "IsCrowd")}
    same_lengths(run, **{slot: parts[slot] for slot in ("GtBoxes", "GtClasses", "IsCrowd")})
    known: list[Array | None] = [None] * n
    if run.values.get("MaxOverlap"):
        ends = run.offsets("RpnRois", n)
        given = np.split(run.one("MaxOverlap"), ends[1:-1])
        same_lengths(run, RpnRois=parts["RpnRois"], MaxOverlap=given)
        known = list(given)
    most = run.attrs["class_nums"]
    found = []
    for i in range(n):
        classes, crowd = (parts[slot][i].ravel() for slot in ("GtClasses", "IsCrowd"))
        # Moves that are the same for all classes stand at class 1, and a cascade counts just two places for them.
        if ((classes < 0) | ((classes >= most) & (not run.attrs["is_cls_agnostic"]))).any():
            raise PeError(f"generate_proposal_labels: image {i} has classes {classes.tolist()}, class_nums is {most}")
        # True boxes are in pixels of the image, proposals in those of the network's input, which is `scale` times as large.
        scale = run.one("ImInfo")[i, 2]
        rois = _proposals(parts["RpnRois"][i] / scale, known[i])
        found.append(_one_image(run, rois, parts["GtBoxes"][i], classes, crowd, scale, rng))
    like = run.one("RpnRois")
    width = 4 * most
    empty = (like[:0], np.zeros((0, 1), np.int32), *[np.zeros((0, width), like.dtype)] * 3, like[:0, 0])
    return {slot: [per_image([each[k] for each in found], empty[k])] for k, slot in enumerate(OUTPUTS)}


def _proposals(rois: Array, known: Array | None) -> Array:
    """Return an image's proposals, without those that are true boxes of the stage before, if that is known."""
    # A later stage of a cascade gets back the true boxes that the stage before had added to its candidates; they overlap themselves wholly.
    if known is None:
        return rois
    left = rois[(rois[:, 2:] - rois[:, :2] + 1 > 0).all(1) & (known < 1)]
    return left if len(left) else np.zeros((1, 4), rois.dtype)


def _one_image(
    run: HostRun, rois: Array, true: Array, classes: Array, crowd: Array, scale: float, rng: np.random.Generator | None
) -> tuple[Array, ...]:
    a = run.attrs
    alone = a["is_cascade_rcnn"] and not run.values.get("MaxOverlap")
    boxes = rois if alone else np.concatenate([true, rois])
    overlap = overlaps(boxes, true)
    best = overlap.max(1) if len(true) else np.zeros(len(boxes), boxes.dtype)
    # True boxes are the first candidates, and one that is a crowd is neither on an object nor on none. The original marks the first
    # candidates also where true boxes are not among them (a later stage), and so does this.
    judged = best.copy()
    first = min(len(true), len(boxes))
    judged[:first][crowd[:first] != 0] = -1
    is_on = (judged >= a["fg_thresh"]) & (len(true) > 0)
    is_off = ~is_on & (judged >= a["bg_thresh_lo"]) & (judged < a["bg_thresh_hi"])
    if a["is_cascade_rcnn"]:
        area = (boxes[:, 2:] - boxes[:, :2] + 1 > 0).all(1)
        on, off = np.flatnonzero(is_on & area).tolist(), np.flatnonzero(is_off & area).tolist()
    else:
        on = sample(np.flatnonzero(is_on).tolist(), int(a["batch_size_per_im"] * a["fg_fraction"]), rng)
        off = sample(np.flatnonzero(is_off).tolist(), a["batch_size_per_im"] - len(on), rng)
    # The first of boxes that overlap equally well, within rounding: `best` was taken over all of them by another route.
    of = (abs(overlap[on] - best[on, None]) < NEAR).argmax(1) if on else np.zeros(0, np.int64)
    labels = np.zeros((len(on) + len(off), 1), np.int32)
    labels[: len(on), 0] = classes[of]
    chosen = boxes[[*on, *off]]
    targets = np.zeros((len(chosen), a["class_nums"], 4), boxes.dtype)
    weights = targets.copy()
    rows = np.flatnonzero(labels[: len(on), 0] > 0)
    at = np.ones(len(rows), np.int64) if a["is_cls_agnostic"] else labels[rows, 0]
    targets[rows, at] = differences(boxes[on], true[of], a["bbox_reg_weights"])[rows]
    weights[rows, at] = 1
    # Inside and outside weights are the same numbers here; the original has both for losses that normalise by one of them.
    flat = [v.reshape(len(chosen), 4 * a["class_nums"]) for v in (targets, weights, weights)]
    return chosen * scale, labels, *flat, best[[*on, *off]]
not_in_onnx(TARGETS, "generate_proposal_labels")
