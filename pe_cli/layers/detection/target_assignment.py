"""Target assignment for anchors and proposals: rpn_target_assign, generate_proposal_labels and others."""

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


@layer(made_of="padded_rpn_targets")
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
    inputs = {"ImInfo": im_info, "Anchor": rows_of(anchor_box, 4), "GtBoxes": gt_boxes, "IsCrowd": as_int32(helper, is_crowd)}
    # The op gives places, and gather takes the predictions at them: so gradients flow to the predictions and none to the choice.
    where, which, label, target, weight = constants(
        helper.op("padded_rpn_targets", inputs, attrs, ("LocationIndex", "ScoreIndex", *_OUTS))
    )
    scores = _taken(helper, rows_of(cls_logits, 1), which)
    moves = _taken(helper, rows_of(bbox_pred, 4), where)
    return [scores, moves, label, target, weight]


def _taken(helper: LayerHelper, x: Variable, index: Variable) -> Variable:
    """Return rows of x; those that are taken twice add their gradients up."""
    # A row that is chosen twice, as those that fill up are, must not lose a gradient.
    return helper.one("gather", {"X": x, "Index": index})


@layer(made_of="padded_retinanet_targets")
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
        "ImInfo": im_info, "Anchor": rows_of(anchor_box, 4), "GtBoxes": gt_boxes, "GtLabels": as_int32(helper, gt_labels),
        "IsCrowd": as_int32(helper, is_crowd),
    }  # fmt: skip
    found = constants(helper.op("padded_retinanet_targets", inputs, attrs, (*_OUTS, "ForegroundNumber")))
    # Every anchor keeps its row, so predictions need no choice: reshaping lays them out in the order of the labels.
    return [rows_of(cls_logits, num_classes), rows_of(bbox_pred, 4), *found]


@layer(made_of="padded_proposal_labels")
def generate_proposal_labels(
    rpn_rois: Variable,
    gt_classes: Variable,
    is_crowd: Variable | None,
    gt_boxes: Variable,
    im_info: Variable,
    batch_size_per_im: int = 256,
    fg_fraction: float = 0.25,
    fg_thresh: float = 0.25,
    bg_thresh_hi: float = 0.5,
    bg_thresh_lo: float = 0.0,
    bbox_reg_weights: list[float] = [0.1, 0.1, 0.2, 0.2],  # noqa: B006 (never changed)
    class_nums: int | None = None,
    use_random: bool = True,
    is_cls_agnostic: bool = False,
    is_cascade_rcnn: bool = False,
    counts: Variable | None = None,
) -> list[Variable]:
    """Choose from proposals and true boxes those that a detector learns from, with their classes and moves to the true boxes.

    A box is on the true one that it overlaps most, if by fg_thresh or more; it is on none if by less than bg_thresh_hi and by bg_thresh_lo
    or more. Where an image has too few of both, rows are left over: their label is -1, which softmax_with_cross_entropy leaves out with
    ignore_index: -1, and their weights are 0.

    Args:
        rpn_rois: [images, proposals, 4], as generate_proposals and collect_fpn_proposals give them, in pixels of the network's input.
        gt_classes: [boxes, 1] whole numbers, with a sequence for each image: classes of the true boxes, from 1 on.
        is_crowd: [boxes, 1] whole numbers, with a sequence for each image: boxes that are on nothing are not 0; null: none is.
        gt_boxes: [boxes, 4], with a sequence for each image: the true boxes, in pixels before the image was scaled.
        im_info: [images, 3]: height, width and scale of the network's input.
        batch_size_per_im: boxes that are chosen of an image.
        fg_fraction: part of them that may be on an object.
        fg_thresh: see above.
        bg_thresh_hi: see above.
        bg_thresh_lo: see above.
        bbox_reg_weights: what the moves of x, y, width and height are divided by.
        class_nums: classes, the background included; it has to be given.
        use_random: draw which ones, anew at every step; else the first.
        is_cls_agnostic: moves are the same for all classes and stand at class 1.
        is_cascade_rcnn: a later stage of a cascade: all proposals but those without area, and no true boxes.
        counts: [images, 1] int32: how many proposals there are of each image, the last output of generate_proposals; all rows if null.

    Returns:
        For S = batch_size_per_im, and with is_cascade_rcnn as many as there are proposals: boxes [images, S, 4], those on objects first;
        classes [images S, 1] int32, 0 for none and -1 left over; moves [images S, 4 class_nums], at the place of the class; and two
        weights of those, of the same shape, 1 where a move is.

    Raises:
        PeError: class_nums is missing, or what does not fit; in a step, a class that is not there.

    Source:
        fluid.layers.generate_proposal_labels, whose outputs have no rows that are left over, and which takes max_overlap; Girshick 2015,
        "Fast R-CNN", section 2.3.
    """
    helper = LayerHelper("generate_proposal_labels")
    # The default of the signature is the original's, but a number of classes cannot be guessed and sizes the moves.
    if class_nums is None:
        raise helper.error("generate_proposal_labels needs class_nums", hint="the number of classes, the background included")
    attrs = {
        "batch_size_per_im": batch_size_per_im, "fg_fraction": float(fg_fraction), "fg_thresh": float(fg_thresh),
        "bg_thresh_hi": float(bg_thresh_hi), "bg_thresh_lo": float(bg_thresh_lo), "bbox_reg_weights": [float(w) for w in bbox_reg_weights],
        "class_nums": class_nums, "use_random": use_random, "is_cls_agnostic": is_cls_agnostic, "is_cascade_rcnn": is_cascade_rcnn,
    }  # fmt: skip
    inputs = {
        "RpnRois": rpn_rois, "Counts": counts, "GtClasses": as_int32(helper, gt_classes), "IsCrowd": as_int32(helper, is_crowd),
        "GtBoxes": gt_boxes, "ImInfo": im_info,
    }  # fmt: skip
    outs = ("Rois", "LabelsInt32", "BboxTargets", "BboxInsideWeights", "BboxOutsideWeights")
    return constants(helper.op("padded_proposal_labels", inputs, attrs, outs))


@layer(made_of="padded_mask_labels")
def generate_mask_labels(
    im_info: Variable,
    gt_classes: Variable,
    is_crowd: Variable | None,
    gt_segms: Variable,
    rois: Variable,
    labels_int32: Variable,
    num_classes: int,
    resolution: int,
) -> list[Variable]:
    """Draw for each region on an object the polygons of the object whose box overlaps it most.

    Every region has a row; one without a mask has -1 everywhere, which sigmoid_cross_entropy_with_logits leaves out with
    ignore_index: -1. Regions on objects come first in what generate_proposal_labels gives, so that the first fg_fraction of an image's
    rows, cut off by slice, are all that a network of masks has to look at.

    Args:
        im_info: [images, 3]: height, width and scale of the network's input.
        gt_classes: [objects, 1] whole numbers, with a sequence for each image: classes from 1 on.
        is_crowd: [objects, 1] whole numbers, with a sequence for each image: objects that have no mask are not 0; null: none is.
        gt_segms: [objects, polygons, points, 2], with a sequence for each image: x and y in pixels before the image was scaled. A polygon
            of fewer points repeats its last one, and a polygon whose points are all the same is none.
        rois: [images, regions, 4], in pixels of the network's input.
        labels_int32: [images regions, 1] whole numbers: classes of the regions; 0 and below have no mask.
        num_classes: classes, the background included.
        resolution: rows and columns of a mask.

    Returns:
        The regions, as given; which of them have a mask, [images regions, 1] int32; and masks [images regions,
        num_classes resolution resolution] int32: 1 within the polygons and 0 outside for the region's class, -1 for the others.

    Raises:
        PeError: shapes that do not fit; in a step, a label that is no class.

    Source:
        fluid.layers.generate_mask_labels, which leaves regions without a mask out and takes polygons in three levels of sequences; He et
        al. 2017, "Mask R-CNN", section 3.
    """
    helper = LayerHelper("generate_mask_labels")
    inputs = {
        "ImInfo": im_info, "GtClasses": as_int32(helper, gt_classes), "IsCrowd": as_int32(helper, is_crowd), "GtSegms": gt_segms,
        "Rois": rois, "LabelsInt32": as_int32(helper, labels_int32),
    }  # fmt: skip
    attrs = {"num_classes": num_classes, "resolution": resolution}
    return [rois, *constants(helper.op("padded_mask_labels", inputs, attrs, ("RoiHasMaskInt32", "MaskInt32")))]
