"""Layers that say what anchors and proposals should learn: rpn_target_assign, retinanet_target_assign."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find, layer
from pe_cli.program.ir import Variable

_OUTS = ("TargetLabel", "TargetBBox", "BBoxInsideWeight")


def as_int32(helper: LayerHelper, x: Variable | None) -> Variable | None:
    """Return whole numbers as int32, converted where they are of another element type; None stays None."""
    return x if x is None or x.dtype == "int32" else helper.one("cast", {"X": x}, {"out_dtype": "int32"})


def rows_of(x: Variable, width: int) -> Variable:
    """Return a variable as [rows, width]."""
    flat: Variable = find("reshape").fn(x, [-1, width])
    return flat


def constants(found: list[Variable]) -> list[Variable]:
    """Return variables that no gradient flows to."""
    for v in found:
        v.stop_gradient = True
    return found


@layer
def rpn_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable | None,
    gt_boxes: Variable,
    is_crowd: Variable | None,
    im_info: Variable,
    rpn_batch_size_per_im: int = 256,
    rpn_straddle_thresh: float = 0.0,
    rpn_fg_fraction: float = 0.5,
    rpn_positive_overlap: float = 0.7,
    rpn_negative_overlap: float = 0.3,
    use_random: bool = True,
) -> list[Variable]:
    """Choose anchors that a region proposal network learns from, rpn_batch_size_per_im for each image, and say what they should be.

    An anchor is on an object if it overlaps a true box by rpn_positive_overlap or more, or a box as much as no other anchor does; it is on
    none if it overlaps every box by less than rpn_negative_overlap. Where an image has too few of both, rows are left over: their label is
    -1, which sigmoid_cross_entropy_with_logits leaves out with ignore_index: -1, and their weight is 0, for inside_weight and
    outside_weight of smooth_l1.

    Args:
        bbox_pred: [images, anchors, 4]: predicted moves, in the order of the anchors.
        cls_logits: [images, anchors, 1]: predicted logits of an object.
        anchor_box: anchors as anchor_generator gives them, or [anchors, 4].
        anchor_var: has no part in it, as in the original, and may be null.
        gt_boxes: [boxes, 4], with a sequence for each image: the true boxes, in pixels before the image was scaled.
        is_crowd: [boxes, 1] whole numbers, with a sequence for each image: boxes that are left out are not 0; null: none is.
        im_info: [images, 3]: height, width and scale of the network's input.
        rpn_batch_size_per_im: anchors that are chosen of an image.
        rpn_straddle_thresh: anchors that reach further out of the image do not count, in pixels; below 0: all count.
        rpn_fg_fraction: part of the chosen ones that may be on an object.
        rpn_positive_overlap: see above.
        rpn_negative_overlap: see above.
        use_random: draw which ones, anew at every step; else the first.

    Returns:
        For S = rpn_batch_size_per_im and F = the whole part of rpn_fg_fraction S: predicted logits [images S, 1]; predicted moves
        [images F, 4]; labels [images S, 1] int32: 1 on an object, 0 on none, -1 left over; true moves [images F, 4], of the centre in sides
        and logarithms of the sides; and weights [images F, 4]: 1, or 0 left over.

    Raises:
        PeError: shapes that do not fit, or numbers out of range.

    Source:
        fluid.layers.rpn_target_assign, whose outputs have no rows that are left over; Ren et al. 2015, "Faster R-CNN", section 3.1.2.
    """
    del anchor_var
    helper = LayerHelper("rpn_target_assign")
    attrs = {
        "rpn_batch_size_per_im": rpn_batch_size_per_im, "rpn_straddle_thresh": float(rpn_straddle_thresh),
        "rpn_fg_fraction": float(rpn_fg_fraction), "rpn_positive_overlap": float(rpn_positive_overlap),
        "rpn_negative_overlap": float(rpn_negative_overlap), "use_random": use_random,
    }  # fmt: skip
    inputs = {"Anchor": rows_of(anchor_box, 4), "GtBoxes": gt_boxes, "IsCrowd": as_int32(helper, is_crowd), "ImInfo": im_info}
    where, which, label, target, weight = constants(
        helper.op("padded_rpn_targets", inputs, attrs, ("LocationIndex", "ScoreIndex", *_OUTS))
    )
    scores = _taken(helper, rows_of(cls_logits, 1), which)
    moves = _taken(helper, rows_of(bbox_pred, 4), where)
    return [scores, moves, label, target, weight]


def _taken(helper: LayerHelper, x: Variable, index: Variable) -> Variable:
    """Return rows of x; those that are taken twice add their gradients up."""
    return helper.one("gather", {"X": x, "Index": index})


@layer
def retinanet_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable | None,
    gt_boxes: Variable,
    gt_labels: Variable,
    is_crowd: Variable | None,
    im_info: Variable,
    num_classes: int = 1,
    positive_overlap: float = 0.5,
    negative_overlap: float = 0.4,
) -> list[Variable]:
    """Say for every anchor of RetinaNet of which class it is and how it should move.

    Every anchor has a row. One that is neither on an object nor on none has label -1, which sigmoid_focal_loss leaves out, and only those
    on objects have a weight, for inside_weight and outside_weight of smooth_l1.

    Args:
        bbox_pred: [images, anchors, 4]: predicted moves, in the order of the anchors.
        cls_logits: [images, anchors, num_classes]: predicted logits.
        anchor_box: anchors as anchor_generator gives them, or [anchors, 4].
        anchor_var: has no part in it, as in the original, and may be null.
        gt_boxes: [boxes, 4], with a sequence for each image: the true boxes, in pixels before the image was scaled.
        gt_labels: [boxes, 1] whole numbers, with a sequence for each image: classes of the true boxes, from 1 on.
        is_crowd: [boxes, 1] whole numbers, with a sequence for each image: boxes that are left out are not 0; null: none is.
        im_info: [images, 3]: height, width and scale of the network's input.
        num_classes: classes, without that of nothing.
        positive_overlap: an anchor is on an object that it overlaps by so much, or as much as no other anchor does.
        negative_overlap: an anchor is on none if it overlaps every box by less.

    Returns:
        Logits [images anchors, num_classes]; predicted moves [images anchors, 4]; labels [images anchors, 1] int32: the class, 0 for none,
        -1 for what does not count; true moves and weights, [images anchors, 4] each; and anchors on objects and one more, [images, 1]
        int32, of which sigmoid_focal_loss takes the sum.

    Raises:
        PeError: shapes that do not fit.

    Source:
        fluid.layers.retinanet_target_assign, which leaves rows out that do not count; Lin et al. 2017, "Focal Loss for Dense Object
        Detection", section 4.
    """
    del anchor_var
    helper = LayerHelper("retinanet_target_assign")
    attrs = {"positive_overlap": float(positive_overlap), "negative_overlap": float(negative_overlap)}
    inputs: dict[str, Any] = {
        "Anchor": rows_of(anchor_box, 4), "GtBoxes": gt_boxes, "GtLabels": as_int32(helper, gt_labels), "ImInfo": im_info,
        "IsCrowd": as_int32(helper, is_crowd),
    }  # fmt: skip
    found = constants(helper.op("padded_retinanet_targets", inputs, attrs, (*_OUTS, "ForegroundNumber")))
    return [rows_of(cls_logits, num_classes), rows_of(bbox_pred, 4), *found]
