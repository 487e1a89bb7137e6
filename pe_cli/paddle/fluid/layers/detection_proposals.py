"""Layers of detectors that propose, sort and label boxes. How many boxes there are only a step knows: programs are cut there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_cli.core.types import FLOATS
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.extensions import gather
from pe_cli.program.ir import Variable


def _append(
    op: str, name: str | None, inputs: dict[str, Any], attrs: dict[str, Any], outputs: Sequence[str]
) -> tuple[LayerHelper, list[Variable]]:
    """Append an op whose outputs have no gradient."""
    ensure_defaults()
    with raised_as(FluidValueError):
        helper = LayerHelper(op, name)
        made = helper.op(op, inputs, attrs, outputs)
    for v in made:
        v.stop_gradient = True
    return helper, made


def _whole(numbers: Variable) -> Any:
    """Return classes or flags as whole numbers: scripts feed them in any element type."""
    return call("cast", numbers, "int32") if numbers.dtype in FLOATS else numbers


def generate_proposals(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    scores: Variable,
    bbox_deltas: Variable,
    im_info: Variable,
    anchors: Variable,
    variances: Variable,
    pre_nms_top_n: int = 6000,
    post_nms_top_n: int = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    name: str | None = None,
    return_rois_num: bool = False,
) -> tuple[Variable, ...]:
    """Choose the best boxes of a region proposal network: boxes and scores, and, if asked for, where each image's boxes end."""
    inputs = {"Scores": scores, "BboxDeltas": bbox_deltas, "ImInfo": im_info, "Anchors": anchors, "Variances": variances}
    attrs = {"pre_nms_topN": pre_nms_top_n, "post_nms_topN": post_nms_top_n, "nms_thresh": nms_thresh, "min_size": min_size, "eta": eta}
    _, made = _append("generate_proposals", name, inputs, attrs, ("RpnRois", "RpnRoiProbs", "RpnRoisLod"))
    return tuple(made if return_rois_num else made[:2])


def distribute_fpn_proposals(
    fpn_rois: Variable, min_level: int, max_level: int, refer_level: int, refer_scale: int, name: str | None = None
) -> tuple[list[Variable], Variable]:
    """Give every box to a level of a feature pyramid: the levels' boxes, the finest first, and where each box went.

    Raises:
        FluidValueError: levels that do not rise; a ValueError.
    """
    ensure_defaults()
    attrs = {"min_level": min_level, "max_level": max_level, "refer_level": refer_level, "refer_scale": refer_scale}
    helper = LayerHelper("distribute_fpn_proposals", name)
    if min_level > max_level:
        raise FluidValueError(f"distribute_fpn_proposals: min_level {min_level} is above max_level {max_level}")
    # An output per level, named before the op is appended: only variables that exist can be given as a list.
    names = [helper.program.unique(f"{helper.name}.tmp") for _ in range(max_level - min_level + 1)]
    with raised_as(FluidValueError):
        inputs, existing = {"FpnRois": fpn_rois}, {"MultiFpnRois": names}
        (restore,) = helper.op("distribute_fpn_proposals", inputs, attrs, ("RestoreIndex",), existing)
    levels = [helper.block.var(n) for n in names]
    for v in (*levels, restore):
        v.stop_gradient = True
    return levels, restore


def collect_fpn_proposals(
    multi_rois: Sequence[Variable],
    multi_scores: Sequence[Variable],
    min_level: int,
    max_level: int,
    post_nms_top_n: int,
    name: str | None = None,
) -> Variable:
    """Put the boxes of all levels of a feature pyramid together that have the best scores.

    Raises:
        FluidValueError: not as many boxes or scores as there are levels; a ValueError.
    """
    levels = max_level - min_level + 1
    if len(multi_rois) < levels or len(multi_scores) < levels or levels < 1:
        counts = f"{len(multi_rois)} boxes and {len(multi_scores)} scores"
        raise FluidValueError(f"collect_fpn_proposals: {counts} for levels {min_level} to {max_level}", hint="one of each for a level")
    inputs = {"MultiLevelRois": list(multi_rois[:levels]), "MultiLevelScores": list(multi_scores[:levels])}
    return _append("collect_fpn_proposals", name, inputs, {"post_nms_topN": post_nms_top_n}, ("FpnRois",))[1][0]


def _picked(found: Sequence[Variable], bbox_pred: Variable, cls_logits: Variable, classes: int) -> tuple[Variable, Variable]:
    """Return the scores and moves of the anchors that were chosen."""
    scores, moves = call("reshape", cls_logits, [-1, classes]), call("reshape", bbox_pred, [-1, 4])
    return gather(scores, found[1]), gather(moves, found[0])


_ASSIGNED = ("LocationIndex", "ScoreIndex", "TargetLabel", "TargetBBox", "BBoxInsideWeight")


def rpn_target_assign(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    is_crowd: Variable,
    im_info: Variable,
    rpn_batch_size_per_im: int = 256,
    rpn_straddle_thresh: float = 0.0,
    rpn_fg_fraction: float = 0.5,
    rpn_positive_overlap: float = 0.7,
    rpn_negative_overlap: float = 0.3,
    use_random: bool = True,
) -> tuple[Variable, ...]:
    """Choose anchors on and off objects: their scores, moves, labels, true moves and weights; anchor_var does not count."""
    del anchor_var
    inputs = {"Anchor": anchor_box, "GtBoxes": gt_boxes, "IsCrowd": _whole(is_crowd), "ImInfo": im_info}
    attrs = {
        "rpn_batch_size_per_im": rpn_batch_size_per_im,
        "rpn_straddle_thresh": rpn_straddle_thresh,
        "rpn_fg_fraction": rpn_fg_fraction,
        "rpn_positive_overlap": rpn_positive_overlap,
        "rpn_negative_overlap": rpn_negative_overlap,
        "use_random": use_random,
    }
    _, found = _append("rpn_target_assign", None, inputs, attrs, _ASSIGNED)
    scores, moves = _picked(found, bbox_pred, cls_logits, 1)
    return scores, moves, *found[2:]


def retinanet_target_assign(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    gt_labels: Variable,
    is_crowd: Variable,
    im_info: Variable,
    num_classes: int = 1,
    positive_overlap: float = 0.5,
    negative_overlap: float = 0.4,
) -> tuple[Variable, ...]:
    """Say what anchors are on: scores, moves, classes, true moves, weights, and how many are on objects; anchor_var does not count."""
    del anchor_var
    inputs = {"Anchor": anchor_box, "GtBoxes": gt_boxes, "GtLabels": _whole(gt_labels), "IsCrowd": _whole(is_crowd), "ImInfo": im_info}
    attrs = {"positive_overlap": positive_overlap, "negative_overlap": negative_overlap}
    _, found = _append("retinanet_target_assign", None, inputs, attrs, (*_ASSIGNED, "ForegroundNumber"))
    scores, moves = _picked(found, bbox_pred, cls_logits, num_classes)
    return scores, moves, *found[2:]


def generate_proposal_labels(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    rpn_rois: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_boxes: Variable,
    im_info: Variable,
    batch_size_per_im: int = 256,
    fg_fraction: float = 0.25,
    fg_thresh: float = 0.25,
    bg_thresh_hi: float = 0.5,
    bg_thresh_lo: float = 0.0,
    bbox_reg_weights: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    class_nums: int | None = None,
    use_random: bool = True,
    is_cls_agnostic: bool = False,
    is_cascade_rcnn: bool = False,
    max_overlap: Variable | None = None,
    return_max_overlap: bool = False,
) -> tuple[Variable, ...]:
    """Choose boxes that a detector learns from: boxes, classes, moves, and two weights of those; if asked for, overlaps.

    Raises:
        FluidValueError: class_nums is missing, or values that do not fit; a ValueError.
    """
    if class_nums is None:
        raise FluidValueError("generate_proposal_labels needs class_nums", hint="the number of classes, the background included")
    inputs = {"RpnRois": rpn_rois, "GtClasses": _whole(gt_classes), "IsCrowd": _whole(is_crowd), "GtBoxes": gt_boxes, "ImInfo": im_info}
    attrs = {
        "batch_size_per_im": batch_size_per_im,
        "fg_fraction": fg_fraction,
        "fg_thresh": fg_thresh,
        "bg_thresh_hi": bg_thresh_hi,
        "bg_thresh_lo": bg_thresh_lo,
        "bbox_reg_weights": [float(w) for w in bbox_reg_weights],
        "class_nums": class_nums,
        "use_random": use_random,
        "is_cls_agnostic": is_cls_agnostic,
        "is_cascade_rcnn": is_cascade_rcnn,
    }
    outs = ("Rois", "LabelsInt32", "BboxTargets", "BboxInsideWeights", "BboxOutsideWeights", "MaxOverlapWithGT")
    _, made = _append("generate_proposal_labels", None, {**inputs, "MaxOverlap": max_overlap}, attrs, outs)
    return tuple(made if return_max_overlap else made[:5])


def generate_mask_labels(
    im_info: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_segms: Variable,
    rois: Variable,
    labels_int32: Variable,
    num_classes: int,
    resolution: int,
) -> tuple[Variable, ...]:
    """Draw polygons as masks of the regions that they are in: regions, their places, and the masks."""
    inputs = {"ImInfo": im_info, "GtClasses": _whole(gt_classes), "IsCrowd": _whole(is_crowd), "GtSegms": gt_segms, "Rois": rois}
    attrs = {"num_classes": num_classes, "resolution": resolution}
    outs = ("MaskRois", "RoiHasMaskInt32", "MaskInt32")
    return tuple(_append("generate_mask_labels", None, {**inputs, "LabelsInt32": labels_int32}, attrs, outs)[1])


__all__ = [
    "collect_fpn_proposals",
    "distribute_fpn_proposals",
    "generate_mask_labels",
    "generate_proposal_labels",
    "generate_proposals",
    "retinanet_target_assign",
    "rpn_target_assign",
]
