"""padded_proposal_labels: generate_proposal_labels with as many rows for every image as are chosen, so that it runs in the step."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI32, PtrI64, Real, Status, T, kernel
from pe_cli.kernels.status_codes import OUT_OF_RANGE
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import LodRequest, fixed
from pe_cli.ops.define.lowering import STATUS, STEP, Lowering
from pe_cli.ops.define.onnx import TARGETS, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Random, ReportsData
from pe_cli.ops.detection.box_helpers import check_column, check_infos
from pe_cli.ops.detection.generate_proposal_labels import FEW, NEAR, check_choice, generate_proposal_labels
from pe_cli.ops.detection.matching import give_offsets
from pe_cli.ops.detection.padded_targets import (
    APART,
    CHOSEN_OFF,
    CHOSEN_ON,
    OFF,
    ON,
    choose,
    has_sides,
    scaled_overlap,
    write_moves,
)


@kernel
def judge_boxes(  # noqa: C901 (loops over images, candidates and boxes)
    rois: Ptr, counts: PtrI32, crowd: PtrI32, true: Ptr, offsets: PtrI64, info: Ptr, boxes: Ptr, state: PtrI64, of: PtrI64,
    images: Int, R: Int, rows: Int, C: Int, counted: Int, crowds: Int, stage: Int, high: Real, hi: Real, lo: Real,
):  # fmt: skip
    """boxes = candidates of each image before it was scaled, state = what they are on, of = the true box that each overlaps most."""
    for i in range(images):
        a = offsets[i]
        b = offsets[i + 1] if offsets[i + 1] >= 0 else rows
        # Candidates are the true boxes, then the proposals, without the former in a later stage.
        known = 0 if stage else b - a
        n = known + (min(max(counts[i], 0), R) if counted else R)
        for c in range(C):
            e = i * C + c
            state[e] = 0
            of[e] = -1
            if c >= n or (c < known and not has_sides(true, a + c)):
                continue
            for d in range(4):
                # Proposals come in pixels of the network's input, true boxes in those of the image.
                boxes[4 * e + d] = true[4 * (a + c) + d] if c < known else rois[4 * (i * R + c - known) + d] / info[3 * i + 2]
            best = T(0)
            for g in range(a, b):
                if has_sides(true, g):
                    best = max(best, scaled_overlap(boxes, e, true, g, T(1)))
            # The first box within rounding of the best, in a second pass: `generate_proposal_labels` chooses so.
            for g in range(a, b):
                if has_sides(true, g) and abs(scaled_overlap(boxes, e, true, g, T(1)) - best) < T(NEAR):
                    of[e] = g
                    break
            # By place, even in a later stage where the first candidates are proposals: the original does so too.
            judged = T(-1) if crowds and c < b - a and crowd[a + c] != 0 else best
            if stage and (boxes[4 * e + 2] - boxes[4 * e] + T(1) <= T(0) or boxes[4 * e + 3] - boxes[4 * e + 1] + T(1) <= T(0)):
                continue
            if of[e] >= 0 and judged >= high:
                state[e] = ON
            elif lo <= judged < hi:
                state[e] = OFF


@kernel
def choose_boxes(  # noqa: C901 (loops over images, candidates and numbers)
    true: Ptr, classes: PtrI32, info: Ptr, boxes: Ptr, state: PtrI64, of: PtrI64, rois: Ptr, label: PtrI32, target: Ptr, inside: Ptr,
    outside: Ptr, images: Int, C: Int, F: Int, S: Int, K: Int, agnostic: Int, w0: Real, w1: Real, w2: Real, w3: Real, drawn: Int,
    first: Int, seed: Int, step: PtrI64, status: Status,
):  # fmt: skip
    """Write the rows of what is chosen of each image: on objects, then on none; then rows that do not count."""
    for i in range(images):
        # Numbers of draws follow from the image's place in the whole batch, so the choice does not depend on how many devices share it.
        at, number = i * C, 2 * (first + i) * APART
        found = choose(state, at, C, ON, CHOSEN_ON, F, drawn, seed, step[0], number)
        choose(state, at, C, OFF, CHOSEN_OFF, S - found, drawn, seed, step[0], number + APART)
        r = i * S
        # Rows of those on objects go first; a box has only one of the two states, so each is written once.
        for turn in range(2):
            for e in range(at, at + C):
                if not state[e] & (CHOSEN_OFF if turn else CHOSEN_ON):
                    continue
                for d in range(4):
                    rois[4 * r + d] = boxes[4 * e + d] * info[3 * i + 2]
                label[r] = 0 if turn else classes[of[e]]
                for k in range(4 * K):
                    target[4 * K * r + k] = T(0)
                    inside[4 * K * r + k] = T(0)
                    outside[4 * K * r + k] = T(0)
                kind = label[r]
                # A wrong class is reported, and its row does not count; nothing is written outside the classes' columns.
                if kind < 0 or (kind >= K and not agnostic):
                    status[0], status[1], status[2], status[3] = OUT_OF_RANGE, of[e], kind, K
                    label[r] = -1
                elif kind > 0:
                    place = 4 * (K * r + (1 if agnostic else kind))
                    write_moves(target, place, boxes, e, true, of[e], T(1))
                    target[place] /= w0
                    target[place + 1] /= w1
                    target[place + 2] /= w2
                    target[place + 3] /= w3
                    for d in range(4):
                        inside[place + d] = T(1)
                        outside[place + d] = T(1)
                r += 1
        for e in range(r, (i + 1) * S):
            label[e] = -1
            for d in range(4):
                rois[4 * e + d] = T(0)
            for k in range(4 * K * e, 4 * K * (e + 1)):
                target[k] = T(0)
                inside[k] = T(0)
                outside[k] = T(0)


_ATTRS = {k: v for k, v in generate_proposal_labels.attrs.items() if k not in ("is_cascade_rcnn", "is_cls_agnostic")} | {
    "is_cascade_rcnn": Attr(False, "a later stage of a cascade: all proposals but those without area, and no true boxes"),
    "is_cls_agnostic": generate_proposal_labels.attrs["is_cls_agnostic"],
}
_SIX = {
    "RpnRois": lambda rng: [[[1.0, 1, 9, 10], [2, 2, 12, 11], [0, 9, 8, 18]], [[9, 8, 18, 19], [11, 9, 19, 19], [0, 0, 0, 0]]],
    "Counts": lambda rng: np.array([[3], [2]], "int32"),
    "GtClasses": lambda rng: np.array([[1], [2], [2]], "int32"),
    "IsCrowd": lambda rng: np.array([[0], [1], [0]], "int32"),
    "GtBoxes": lambda rng: [[2.0, 1, 10, 10], [10, 9, 19, 18], [8, 7, 17, 17]],
    "ImInfo": lambda rng: [[20.0, 20.0, 1.0], [20.0, 20.0, 1.0]],
    "Offsets": fixed([0, 2, 3]),
}
_PLAIN = {slot: draw for slot, draw in _SIX.items() if slot not in ("Counts", "IsCrowd")}


@op(
    "padded_proposal_labels",
    inputs="RpnRois Counts? GtClasses IsCrowd? GtBoxes ImInfo Offsets?",
    floats="RpnRois GtBoxes",
    outputs="Rois LabelsInt32 BboxTargets BboxInsideWeights BboxOutsideWeights",
    attrs=_ATTRS,
    traits=[Random(), ReportsData()],
    differentiable="",
    samples=[
        Sample(_SIX, {**FEW, "use_random": False}, "two images"),
        Sample(_PLAIN, {**FEW, "is_cascade_rcnn": True, "is_cls_agnostic": True}, "a later stage"),
        Sample(_PLAIN, {**FEW, "batch_size_per_im": 3}, "boxes that are drawn"),
    ],
)
def padded_proposal_labels(
    rois: TensorType,
    counts: TensorType | None,
    classes: TensorType,
    crowd: TensorType | None,
    boxes: TensorType,
    info: TensorType,
    offsets: TensorType | None,
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
    """Choose boxes that a detector learns from as `generate_proposal_labels` does, in rows of one number for all images.

    Those are batch_size_per_im for each image, and in a cascade's later stage as many as RpnRois has.

    Args:
        RpnRois: [images, proposals, 4] float32 or float64, in pixels of the network's input.
        Counts: [images, 1] int32: how many proposals there are of each image; all rows where it is left out.
        GtClasses: [boxes, 1] int32: classes of the true boxes, from 1 on.
        IsCrowd: [boxes, 1] int32.
        GtBoxes: [boxes, 4] element type of RpnRois, a sequence for each image: the true boxes, in pixels before the image was scaled; one
            whose right is left of its left, or its bottom above its top, is none.
        ImInfo: [images, 3] element type of RpnRois: height, width and scale of the network's input.
        Offsets: int64 [images + 1]: where the true boxes of each image begin.

    Returns:
        Rois: [images, chosen, 4] element type of RpnRois: those on objects, those on none, and zeros behind the last one.
        LabelsInt32: [images chosen, 1] int32: classes, 0 for none, -1 behind the last one.
        BboxTargets: [images chosen, 4 class_nums] element type of RpnRois: moves, at the place of the class, else 0.
        BboxInsideWeights, BboxOutsideWeights: type of BboxTargets: 1 where a move is, else 0.

    Raises:
        PeError: types that do not fit; while running, a class that is not there.

    Source:
        fluid.layers.generate_proposal_labels; Girshick 2015, "Fast R-CNN", section 2.3; Cai and Vasconcelos 2018, "Cascade R-CNN".
    """
    del bg_thresh_hi, bg_thresh_lo, fg_thresh, use_random
    name = "generate_proposal_labels"
    if len(rois.shape) != 3 or rois.shape[2] != 4:
        raise PeError(f"{name} needs rpn_rois [images, proposals, 4], got {rois}", hint="reshape it")
    if boxes.shape[1:] != (4,) or boxes.dtype != rois.dtype:
        raise PeError(f"{name} needs gt_boxes [boxes, 4] of the element type of rpn_rois, got {boxes} and {rois}")
    check_column(name, GtClasses=classes, **({"IsCrowd": crowd} if crowd else {}))
    check_infos(name, info, rois.dtype)
    for slot, kind in (("gt_classes", classes), ("is_crowd", crowd)):
        if kind is not None and -1 not in (kind.shape[0], boxes.shape[0]) and kind.shape[0] != boxes.shape[0]:
            raise PeError(f"{name}: gt_boxes is {boxes}, but {slot} is {kind}", hint="a row for each box")
    of_each = (rois.shape[0], info.shape[0], offsets.shape[0] - 1 if offsets else -1, counts.shape[0] if counts else -1)
    images = {n for n in of_each if n >= 0}
    if len(images) > 1 or (counts is not None and (counts.dtype != "int32" or counts.size not in (-1, counts.shape[0]))):
        raise PeError(f"{name}: rpn_rois {rois}, im_info {info}, counts {counts} and the sequences of gt_boxes are of different images")
    check_choice(batch_size_per_im, fg_fraction, class_nums, bbox_reg_weights, agnostic=is_cls_agnostic)
    each = rois.shape[1] if is_cascade_rcnn else batch_size_per_im
    rows = -1 if -1 in (rois.shape[0], each) else rois.shape[0] * each
    wide = rois.with_shape(rows, 4 * class_nums)
    return rois.with_shape(rois.shape[0], each, 4), TensorType((rows, 1), "int32"), wide, wide, wide


@padded_proposal_labels.sequences("Offsets")
def padded_proposal_labels_lod(s: LodRequest) -> None:
    """An image for each sequence of true boxes."""
    give_offsets(s, "GtBoxes", "Offsets")


@padded_proposal_labels.lower("cpu")
def padded_proposal_labels_cpu(o: Lowering) -> None:
    """Judge the candidates, then choose, image by image."""
    rois, true, info, a = o.input("RpnRois"), o.input("GtBoxes"), o.input("ImInfo"), o.attrs
    images, proposals = rois.shape[:2]
    stage, rows = int(a["is_cascade_rcnn"]), o.output("Rois").shape[1]
    # As many candidates as an image can have: all true boxes of the batch may be of one image.
    most = proposals + (0 if stage else true.shape[0])
    if not o.output("Rois").size:
        return
    boxes = o.scratch(4 * images * most, rois.dtype)
    state, of = (o.scratch(images * most, "int64") for _ in range(2))
    nothing = o.scratch(1, "int32")
    counts, crowd = (o.input(slot) if o.inputs(slot) else nothing for slot in ("Counts", "IsCrowd"))
    o.call(
        judge_boxes, rois, counts, crowd, true, o.input("Offsets"), info, boxes, state, of, images, proposals, true.shape[0], most,
        int(bool(o.inputs("Counts"))), int(bool(o.inputs("IsCrowd"))), stage, a["fg_thresh"], a["bg_thresh_hi"], a["bg_thresh_lo"],
    )  # fmt: skip
    outs = (o.output(slot) for slot in ("Rois", "LabelsInt32", "BboxTargets", "BboxInsideWeights", "BboxOutsideWeights"))
    on = rows if stage else int(rows * a["fg_fraction"])
    o.call(
        choose_boxes, true, o.input("GtClasses"), info, boxes, state, of, *outs, images, most, on, rows, a["class_nums"],
        int(a["is_cls_agnostic"]), *a["bbox_reg_weights"], int(a["use_random"] and not stage), o.sample_offset, o.seed, STEP, STATUS,
    )  # fmt: skip


deal(judge_boxes, choose_boxes)
also_on_cuda(padded_proposal_labels)
not_in_onnx(TARGETS, "padded_proposal_labels")
