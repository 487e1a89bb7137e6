"""padded_rpn_targets and padded_retinanet_targets: what anchors should say, in rows of one number for all images, in the step."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI32, PtrI64, Real, T, helper, kernel
from pe_cli.kernels.math.random import uniform
from pe_cli.kernels.math.vector_math import log
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import LodRequest, fixed
from pe_cli.ops.define.lowering import STEP, Buffer, Lowering
from pe_cli.ops.define.onnx import TARGETS, not_in_onnx
from pe_cli.ops.define.registry import OpDef, Sample, op
from pe_cli.ops.define.traits import Random
from pe_cli.ops.detection.box_helpers import check_boxes, check_column, check_infos
from pe_cli.ops.detection.matching import give_offsets
from pe_cli.ops.detection.rpn_targets import NEAR, retinanet_target_assign, rpn_target_assign

#: What is known of an anchor, as the sum of these: it is on an object, on none, chosen as on an object, chosen as on none.
ON, OFF, CHOSEN_ON, CHOSEN_OFF = 1, 2, 4, 8
#: Numbers that may be drawn for an image and a kind: which ones they are does not depend on what else a device has.
APART = 1 << 24


@helper
def scaled_overlap(a, i, b, j, scale):
    """Return the area in common of box i of a and box j of b, which is scaled, by that of both; the last pixels are inside."""
    left, top, right, bottom = b[4 * j] * scale, b[4 * j + 1] * scale, b[4 * j + 2] * scale, b[4 * j + 3] * scale
    w = min(a[4 * i + 2], right) - max(a[4 * i], left) + T(1)
    h = min(a[4 * i + 3], bottom) - max(a[4 * i + 1], top) + T(1)
    if w <= T(0) or h <= T(0):
        return T(0)
    area = (a[4 * i + 2] - a[4 * i] + T(1)) * (a[4 * i + 3] - a[4 * i + 1] + T(1))
    return w * h / (area + (right - left + T(1)) * (bottom - top + T(1)) - w * h)


@helper
def has_sides(b, j):
    """Return whether box j of b is one: its right is not left of its left, nor its bottom above its top."""
    return b[4 * j + 2] >= b[4 * j] and b[4 * j + 3] >= b[4 * j + 1]


@helper
def write_moves(out, at, a, i, b, j, scale):
    """Write how box i of a moves to box j of b, which is scaled: its centre in sides, and logarithms of how its sides grow."""
    for d in range(2):
        low, end = b[4 * j + d] * scale, b[4 * j + 2 + d] * scale
        side = a[4 * i + 2 + d] - a[4 * i + d] + T(1)
        wanted = end - low + T(1)
        out[at + d] = (low + wanted / T(2) - a[4 * i + d] - side / T(2)) / side
        out[at + 2 + d] = log(wanted / side)


@helper
def _is_inside(anchors, p, info, i, beyond):
    """Return whether an anchor does not reach out of its image by more than `beyond`; below 0: by anything."""
    if beyond < T(0):
        return True
    fits = anchors[4 * p] >= -beyond and anchors[4 * p + 1] >= -beyond
    return fits and anchors[4 * p + 2] < info[3 * i + 1] + beyond and anchors[4 * p + 3] < info[3 * i] + beyond


@kernel
def judge_anchors(  # noqa: C901 (loops over images, anchors and boxes)
    anchors: Ptr, boxes: Ptr, crowd: PtrI32, offsets: PtrI64, info: Ptr, state: PtrI64, of: PtrI64, top: Ptr, images: Int, A: Int,
    rows: Int, crowds: Int, beyond: Real, high: Real, low: Real,
):  # fmt: skip
    """state = whether each anchor is on an object, on none, or both, of = the box that it overlaps most; top: scratch for every box."""
    for i in range(images):
        a = offsets[i]
        b = offsets[i + 1] if offsets[i + 1] >= 0 else rows
        scale = info[3 * i + 2]
        # The largest overlap that each box has with any anchor; -1, which none can be near to, where no anchor counts.
        for g in range(a, b):
            top[g] = T(-1)
            for p in range(A if has_sides(boxes, g) else 0):
                if _is_inside(anchors, p, info, i, beyond):
                    top[g] = max(top[g], scaled_overlap(anchors, p, boxes, g, scale))
        for p in range(A):
            e = i * A + p
            state[e] = 0
            of[e] = -1
            if not _is_inside(anchors, p, info, i, beyond):
                continue
            best, closest = T(0), 0
            for g in range(a, b):
                if (crowds and crowd[g] != 0) or not has_sides(boxes, g):
                    continue
                v = scaled_overlap(anchors, p, boxes, g, scale)
                if of[e] < 0 or v > best:
                    best = v
                    of[e] = g
                # An anchor that overlaps a box as much as any does is on an object, however little that is: so every box has an anchor to
                # learn from.
                if abs(v - top[g]) < T(NEAR):
                    closest = 1
            if closest or (of[e] >= 0 and best >= high):
                state[e] += ON
            if best < low:
                state[e] += OFF


@helper
def choose(state, at, n, flag, mark, most, drawn, seed, step, first):
    """Mark `most` of those that have a flag, drawn or the first, and return how many."""
    # Selection sampling (Knuth, volume 2, algorithm S): each candidate is taken with the probability of those still needed over those still
    # left. That gives exactly `most`, each subset equally likely, in one pass and without memory for the places.
    left = 0
    for p in range(n):
        if state[at + p] & flag:
            left += 1
    need = min(left, most)
    found = need
    for p in range(n):
        if need == 0:
            break
        if state[at + p] & flag:
            if not drawn or uniform(seed, step, first + p) * T(left) < T(need):
                state[at + p] |= mark
                need -= 1
            left -= 1
    return found


@kernel
def choose_anchors(
    anchors: Ptr, boxes: Ptr, info: Ptr, state: PtrI64, of: PtrI64, location: PtrI32, score: PtrI32, label: PtrI32, target: Ptr,
    weight: Ptr, images: Int, A: Int, F: Int, S: Int, drawn: Int, first: Int, seed: Int, step: PtrI64,
):  # fmt: skip
    """Write the rows of what is chosen of each image: on objects, then on none; then rows that do not count."""
    for i in range(images):
        # By the image's number in the whole batch: the draws are the same on any number of devices.
        at, number = i * A, 2 * (first + i) * APART
        found = choose(state, at, A, ON, CHOSEN_ON, F, drawn, seed, step[0], number)
        choose(state, at, A, OFF, CHOSEN_OFF, S - found, drawn, seed, step[0], number + APART)
        moved, r = i * F, i * S
        for p in range(A):
            if state[at + p] & (CHOSEN_ON | CHOSEN_OFF) == CHOSEN_ON:
                score[r] = at + p
                label[r] = 1
                location[moved] = at + p
                write_moves(target, 4 * moved, anchors, p, boxes, of[at + p], info[3 * i + 2])
                for d in range(4):
                    weight[4 * moved + d] = T(1)
                moved += 1
                r += 1
        for p in range(A):
            if state[at + p] & CHOSEN_OFF:
                score[r] = at + p
                label[r] = 0
                r += 1
        for e in range(r, (i + 1) * S):
            # Rows that do not count still are indices that a gather may follow; the label -1 keeps them out of losses.
            score[e] = at
            label[e] = -1
        for e in range(moved, (i + 1) * F):
            location[e] = at
            for d in range(4):
                target[4 * e + d] = T(0)
                weight[4 * e + d] = T(0)


@kernel
def tell_anchors(
    anchors: Ptr, boxes: Ptr, classes: PtrI32, info: Ptr, state: PtrI64, of: PtrI64, label: PtrI32, target: Ptr, weight: Ptr,
    count: PtrI32, images: Int, A: Int,
):  # fmt: skip
    """Write a row for each anchor: class, moves and weight; count: those on objects, and one more."""
    for i in range(images):
        # One more, as in the original: the focal loss divides by it, and an image may have no object.
        count[i] = 1
        for p in range(A):
            e = i * A + p
            count[i] += state[e] & ON
            label[e] = 0 if state[e] & OFF else -1
            for d in range(4):
                target[4 * e + d] = T(0)
                weight[4 * e + d] = T(0)
            # Both flags at once count as on none, hence the comparison with ON alone.
            if state[e] == ON:
                label[e] = classes[of[e]]
                write_moves(target, 4 * e, anchors, p, boxes, of[e], info[3 * i + 2])
                for d in range(4):
                    weight[4 * e + d] = T(1)


def _anchors(rng):
    low = rng.uniform(0, 24, (9, 2))
    return np.concatenate([low, low + rng.uniform(4, 12, (9, 2))], 1)


_GIVEN = {
    "Anchor": _anchors,
    "GtBoxes": lambda rng: [[1.0, 1, 10, 10], [11, 9, 19, 18], [3, 4, 20, 22]],
    "ImInfo": lambda rng: [[34.0, 36.0, 1.0], [34.0, 34.0, 1.5]],
    "Offsets": fixed([0, 2, 3]),
}
_CROWD = {"IsCrowd": lambda rng: np.array([[0], [1], [0]], "int32")}


def _sequences(definition: OpDef) -> None:
    @definition.sequences("Offsets")
    def offsets(s: LodRequest) -> None:
        give_offsets(s, "GtBoxes", "Offsets")


def _judged(o: Lowering, images: int, beyond: float, high: float, low: float) -> tuple[Buffer, Buffer]:
    """Append the kernel that judges every anchor, and return its results, a number for each anchor of each image."""
    anchors, boxes = o.input("Anchor"), o.input("GtBoxes")
    state, of = (o.scratch(images * anchors.shape[0], "int64") for _ in range(2))
    crowd = o.input("IsCrowd") if o.inputs("IsCrowd") else o.scratch(1, "int32")
    o.call(
        judge_anchors, anchors, boxes, crowd, o.input("Offsets"), o.input("ImInfo"), state, of, o.scratch(boxes.shape[0], boxes.dtype),
        images, anchors.shape[0], boxes.shape[0], int(bool(o.inputs("IsCrowd"))), beyond, high, low,
    )  # fmt: skip
    return state, of


def _times(images: int, each: int) -> int:
    return images * each if images >= 0 else -1


# --- rpn_target_assign ------------------------------------------------------------------------------------------------


@op(
    "padded_rpn_targets",
    inputs="ImInfo Anchor GtBoxes IsCrowd? Offsets?",
    outputs="LocationIndex ScoreIndex TargetLabel TargetBBox BBoxInsideWeight",
    attrs=dict(rpn_target_assign.attrs),
    traits=[Random()],
    differentiable="",
    samples=[
        Sample({**_GIVEN, **_CROWD}, {"rpn_batch_size_per_im": 6, "rpn_positive_overlap": 0.5, "use_random": False}, "the first anchors"),
        Sample(_GIVEN, {"rpn_batch_size_per_im": 4, "rpn_straddle_thresh": -1.0}, "anchors that are drawn"),
        Sample({**_GIVEN, "GtBoxes": (0, 4), "Offsets": fixed([0, 0, 0])}, {"rpn_batch_size_per_im": 3}, "no boxes"),
    ],
)
def padded_rpn_targets(
    info: TensorType,
    anchor: TensorType,
    boxes: TensorType,
    crowd: TensorType | None,
    offsets: TensorType | None,
    *,
    rpn_batch_size_per_im: int,
    rpn_straddle_thresh: float,
    rpn_fg_fraction: float,
    rpn_positive_overlap: float,
    rpn_negative_overlap: float,
    use_random: bool,
) -> tuple[TensorType, ...]:
    """Choose anchors on and off objects as `rpn_target_assign` does, rpn_batch_size_per_im rows for each image.

    An anchor that is chosen both ways counts as one on none.

    Args:
        ImInfo: [images, 3] element type of Anchor: height, width and scale of the network's input.
        Anchor: [anchors, 4] float32 or float64.
        GtBoxes: [boxes, 4] element type of Anchor, a sequence for each image: the true boxes, in pixels before the image was scaled;
            one whose right is left of its left, or its bottom above its top, is none.
        IsCrowd: [boxes, 1] int32: boxes that are left out are not 0.
        Offsets: int64 [images + 1]: where the boxes of each image begin.

    Returns:
        LocationIndex: [images on] int32, with `on` the whole part of rpn_fg_fraction rpn_batch_size_per_im: anchors on objects, counted
            over all images; the image's first anchor behind the last one.
        ScoreIndex: [images rpn_batch_size_per_im] int32: those, then anchors on none, then likewise.
        TargetLabel: [images rpn_batch_size_per_im, 1] int32: 1 on an object, 0 on none, -1 for what is behind the last one.
        TargetBBox: [images on, 4] element type of Anchor: moves of the centre in sides, logarithms of the sides; 0 behind the last one.
        BBoxInsideWeight: type of TargetBBox: 1, and 0 behind the last one.

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.rpn_target_assign; Ren et al. 2015, "Faster R-CNN", section 3.1.2. Draws: Knuth, volume 2, algorithm S.
    """
    del rpn_straddle_thresh, rpn_positive_overlap, rpn_negative_overlap, use_random
    _check("rpn_target_assign", anchor, boxes, info, offsets, IsCrowd=crowd)
    on = int(rpn_fg_fraction * rpn_batch_size_per_im)
    if rpn_batch_size_per_im < 1 or not 0 < rpn_fg_fraction <= 1 or on < 1:
        values = f"rpn_batch_size_per_im {rpn_batch_size_per_im}, rpn_fg_fraction {rpn_fg_fraction}"
        raise PeError(f"rpn_target_assign: {values}", hint="at least 1, above 0 up to 1, and their product at least 1")
    few, all_ = _times(info.shape[0], on), _times(info.shape[0], rpn_batch_size_per_im)
    rows = anchor.with_shape(few, 4)
    return TensorType((few,), "int32"), TensorType((all_,), "int32"), TensorType((all_, 1), "int32"), rows, rows


def _check(
    name: str, anchor: TensorType, boxes: TensorType, info: TensorType, offsets: TensorType | None, **columns: TensorType | None
) -> None:
    check_boxes(name, Anchor=anchor, GtBoxes=boxes)
    check_infos(name, info, anchor.dtype)
    given = {slot: kind for slot, kind in columns.items() if kind is not None}
    check_column(name, **given)
    if boxes.dtype != anchor.dtype or anchor.shape[0] == 0:
        raise PeError(f"{name} needs Anchor, at least one, and GtBoxes of one element type, got {anchor} and {boxes}")
    for slot, kind in given.items():
        if -1 not in (kind.shape[0], boxes.shape[0]) and kind.shape[0] != boxes.shape[0]:
            raise PeError(f"{name}: GtBoxes is {boxes}, but {slot} is {kind}", hint="a row for each box")
    if offsets is not None and -1 not in (offsets.shape[0], info.shape[0]) and offsets.shape[0] != info.shape[0] + 1:
        raise PeError(f"{name}: GtBoxes has {offsets.shape[0] - 1} sequences for {info.shape[0]} images", hint="one for each image")


_sequences(padded_rpn_targets)


@padded_rpn_targets.lower("cpu")
def padded_rpn_targets_cpu(o: Lowering) -> None:
    """Judge, then choose, image by image."""
    a, images = o.attrs, o.input("ImInfo").shape[0]
    most = a["rpn_batch_size_per_im"]
    if not images:
        return
    state, of = _judged(o, images, a["rpn_straddle_thresh"], a["rpn_positive_overlap"], a["rpn_negative_overlap"])
    outs = (o.output(s) for s in ("LocationIndex", "ScoreIndex", "TargetLabel", "TargetBBox", "BBoxInsideWeight"))
    o.call(
        choose_anchors, o.input("Anchor"), o.input("GtBoxes"), o.input("ImInfo"), state, of, *outs, images, o.input("Anchor").shape[0],
        int(a["rpn_fg_fraction"] * most), most, int(a["use_random"]), o.sample_offset, o.seed, STEP,
    )  # fmt: skip


# --- retinanet_target_assign ------------------------------------------------------------------------------------------


@op(
    "padded_retinanet_targets",
    inputs="ImInfo Anchor GtBoxes GtLabels IsCrowd? Offsets?",
    outputs="TargetLabel TargetBBox BBoxInsideWeight ForegroundNumber",
    attrs=dict(retinanet_target_assign.attrs),
    differentiable="",
    samples=[Sample({**_GIVEN, **_CROWD, "GtLabels": lambda rng: np.array([[1], [3], [2]], "int32")}, name="two images")],
)
def padded_retinanet_targets(
    info: TensorType,
    anchor: TensorType,
    boxes: TensorType,
    labels: TensorType,
    crowd: TensorType | None,
    offsets: TensorType | None,
    *,
    positive_overlap: float,
    negative_overlap: float,
) -> tuple[TensorType, ...]:
    """Say for every anchor of every image what it is on, as `retinanet_target_assign` does, a row for each.

    Args:
        ImInfo: [images, 3] element type of Anchor: height, width and scale of the network's input.
        Anchor: [anchors, 4] float32 or float64.
        GtBoxes: [boxes, 4] element type of Anchor, a sequence for each image: the true boxes, in pixels before the image was scaled;
            one whose right is left of its left, or its bottom above its top, is none.
        GtLabels: [boxes, 1] int32: their classes, from 1 on.
        IsCrowd: [boxes, 1] int32: boxes that are left out are not 0.
        Offsets: int64 [images + 1]: where the boxes of each image begin.

    Returns:
        TargetLabel: [images anchors, 1] int32: the class, 0 for none, -1 for an anchor that does not count.
        TargetBBox: [images anchors, 4] element type of Anchor: moves of the centre in sides, logarithms of the sides; 0 off objects.
        BBoxInsideWeight: type of TargetBBox: 1 for anchors on objects, else 0.
        ForegroundNumber: [images, 1] int32: anchors on objects and one more.

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.retinanet_target_assign; Lin et al. 2017, "Focal Loss for Dense Object Detection", section 4.
    """
    del positive_overlap, negative_overlap
    _check("retinanet_target_assign", anchor, boxes, info, offsets, GtLabels=labels, IsCrowd=crowd)
    images = info.shape[0]
    rows = _times(images, anchor.shape[0]) if anchor.shape[0] >= 0 else -1
    each = anchor.with_shape(rows, 4)
    return TensorType((rows, 1), "int32"), each, each, TensorType((images, 1), "int32")


_sequences(padded_retinanet_targets)


@padded_retinanet_targets.lower("cpu")
def padded_retinanet_targets_cpu(o: Lowering) -> None:
    """Judge, then tell, image by image."""
    images = o.input("ImInfo").shape[0]
    if not images:
        return
    state, of = _judged(o, images, -1.0, o.attrs["positive_overlap"], o.attrs["negative_overlap"])
    outs = (o.output(s) for s in ("TargetLabel", "TargetBBox", "BBoxInsideWeight", "ForegroundNumber"))
    o.call(
        tell_anchors, o.input("Anchor"), o.input("GtBoxes"), o.input("GtLabels"), o.input("ImInfo"), state, of, *outs, images,
        o.input("Anchor").shape[0],
    )  # fmt: skip


deal(judge_anchors, choose_anchors, tell_anchors)
also_on_cuda(padded_rpn_targets, padded_retinanet_targets)
not_in_onnx(TARGETS, "padded_retinanet_targets", "padded_rpn_targets")
