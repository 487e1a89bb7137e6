"""Boxes on the levels of a feature pyramid: collect_fpn_proposals, distribute_fpn_proposals, retinanet_detection_output."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find, layer
from pe_cli.program.ir import Variable


def _joined(parts: list[Variable], axis: int) -> Variable:
    """Return the parts of all levels one after the other."""
    joined: Variable = parts[0] if len(parts) == 1 else find("concat").fn(list(parts), axis=axis)
    return joined


def _sizes(helper: LayerHelper, parts: list[Variable], what: str) -> list[int]:
    """Return how many rows each level has.

    Raises:
        PeError: one is not [images, rows, numbers], or its number of rows is not known.
    """
    for part in parts:
        if len(part.shape) != 3 or part.shape[1] < 0:
            shown = f"{list(part.shape)}"
            raise helper.error(f"{helper.layer_type} needs {what} [images, rows, numbers] of every level, rows known, got {shown}")
    return [part.shape[1] for part in parts]


@layer(made_of="padded_fpn_levels")
def distribute_fpn_proposals(
    fpn_rois: Variable, min_level: int, max_level: int, refer_level: int, refer_scale: int, name: str | None = None
) -> list[Variable]:
    """Give every box to the level of a feature pyramid that its size asks for.

    level = floor(refer_level + log2(sqrt(area) / refer_scale)), within min_level and max_level

    Every level has as many rows as there are boxes, zeros behind its last one. What is found at the regions of each level, joined one level
    after the other along axis 0, is brought back into the order of the boxes by gather with the last output.

    Args:
        fpn_rois: [images, rows, 4]: left, top, right, bottom, in pixels.
        min_level: the finest level.
        max_level: the coarsest level.
        refer_level: level of boxes of refer_scale.
        refer_scale: side of such a box, in pixels.
        name: prefix of the outputs' names.

    Returns:
        For each level, the finest first, its boxes [images, rows, 4]; then [images rows, 1] int32, where each box is among the rows of all
        levels.

    Raises:
        PeError: levels that do not rise, or another shape.

    Source:
        fluid.layers.distribute_fpn_proposals, whose levels have sequences instead; Lin et al. 2017, "Feature Pyramid Networks", eq. 1.
    """
    helper = LayerHelper("distribute_fpn_proposals", name)
    if min_level > max_level:
        raise helper.error(f"distribute_fpn_proposals: min_level {min_level} is above max_level {max_level}", hint="swap them")
    # A level has room for all boxes, as all may be of one size: shapes follow from those of the inputs, never from values.
    names = [helper.program.unique(f"{helper.name}.tmp") for _ in range(max_level - min_level + 1)]
    attrs = {"min_level": min_level, "max_level": max_level, "refer_level": refer_level, "refer_scale": refer_scale}
    (restore,) = helper.op("padded_fpn_levels", {"FpnRois": fpn_rois}, attrs, ("RestoreIndex",), {"MultiFpnRois": names})
    # Which level a box goes to is a step function of it, so no gradient can flow back.
    found = [*(helper.block.var(n) for n in names), restore]
    for v in found:
        v.stop_gradient = True
    return found


@layer(made_of="padded_fpn_best")
def collect_fpn_proposals(
    multi_rois: list[Variable],
    multi_scores: list[Variable],
    min_level: int,
    max_level: int,
    post_nms_top_n: int,
    name: str | None = None,
    counts: list[Variable] | None = None,
) -> tuple[Variable, Variable]:
    """Put the boxes of all levels of a feature pyramid together that have the best scores.

    Args:
        multi_rois: for each level its boxes [images, rows, 4], as generate_proposals gives them, the finest level first.
        multi_scores: for each level their scores [images, rows, 1].
        min_level: the finest level.
        max_level: the coarsest level; there are max_level - min_level + 1.
        post_nms_top_n: boxes of the whole batch at most, as in the original; on several devices, of each device's part of it.
        name: prefix of the outputs' names.
        counts: for each level how many rows are boxes, [images, 1] int32, the last output of generate_proposals; all rows if null.

    Returns:
        Boxes [images, the smaller of post_nms_top_n and the rows of all levels, 4], the best of each image first, zeros behind the last
        one; and how many there are, [images, 1] int32.

    Raises:
        PeError: not as many boxes, scores or counts as there are levels, or other shapes.

    Source:
        fluid.layers.collect_fpn_proposals, which gives rows with sequences instead.
    """
    helper = LayerHelper("collect_fpn_proposals", name)
    levels = max_level - min_level + 1
    given = {"multi_rois": len(multi_rois), "multi_scores": len(multi_scores), **({"counts": len(counts)} if counts else {})}
    if levels < 1 or any(n != levels for n in given.values()):
        listed = ", ".join(f"{n} {what}" for what, n in given.items())
        raise helper.error(f"collect_fpn_proposals: {listed} for levels {min_level} to {max_level}", hint="one of each for a level")
    # The levels lie in one tensor, and the op cuts it by these: counts say how many rows of each cut are boxes, not where it begins.
    attrs = {"sections": _sizes(helper, multi_rois, "boxes"), "post_nms_topN": post_nms_top_n}
    inputs = {"Rois": _joined(multi_rois, 1), "Scores": _joined(multi_scores, 1), "Counts": _joined(counts, 1) if counts else None}
    boxes, count = helper.op("padded_fpn_best", inputs, attrs, ("FpnRois", "Count"))
    boxes.stop_gradient = count.stop_gradient = True
    return boxes, count


@layer(made_of="padded_retinanet_output")
def retinanet_detection_output(
    bboxes: list[Variable],
    scores: list[Variable],
    anchors: list[Variable],
    im_info: Variable,
    score_threshold: float = 0.05,
    nms_top_k: int = 1000,
    keep_top_k: int = 100,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
) -> tuple[Variable, Variable]:
    """Take the best boxes of every level of RetinaNet, and keep of every class those that overlap no better one much.

    Args:
        bboxes: for each level [images, boxes, 4]: moves of the anchors.
        scores: for each level [images, boxes, classes], from 0 to 1.
        anchors: for each level its anchors, as anchor_generator gives them, or [boxes, 4].
        im_info: [images, 3]: height, width and scale of the network's input.
        score_threshold: only higher scores count; on the last level, all above 0 do.
        nms_top_k: most scores of a level that are looked at, the best first; -1: all.
        keep_top_k: detections of an image at most.
        nms_threshold: a box is dropped that overlaps a better one of its class by more.
        nms_eta: below 1: what nms_threshold is multiplied by after each box that is kept, while it is above 0.5.

    Returns:
        Detections [images, keep_top_k, 6]: class from 1 on, score and box in pixels of the image before it was scaled, by falling score,
        with class -1 behind the last one; and how many there are, [images, 1] int32.

    Raises:
        PeError: not as many levels of each, other shapes, or keep_top_k below 1.

    Source:
        fluid.layers.retinanet_detection_output, which gives rows with sequences instead; Lin et al. 2017, "Focal Loss for Dense Object
        Detection", section 4.
    """
    helper = LayerHelper("retinanet_detection_output")
    if not len(bboxes) == len(scores) == len(anchors) or not bboxes:
        levels = f"{len(bboxes)}, {len(scores)} and {len(anchors)}"
        raise helper.error(f"retinanet_detection_output: {levels} levels of bboxes, scores and anchors", hint="one of each for a level")
    attrs = {
        "score_threshold": float(score_threshold), "nms_top_k": nms_top_k, "keep_top_k": keep_top_k, "nms_eta": float(nms_eta),
        "nms_threshold": float(nms_threshold), "sections": _sizes(helper, bboxes, "bboxes"),
    }  # fmt: skip
    # Anchors are the same for all images and have no axis for them: they are joined along axis 0, predictions along axis 1.
    flat = [find("reshape").fn(a, [-1, 4]) for a in anchors]
    inputs = {"BBoxes": _joined(bboxes, 1), "Scores": _joined(scores, 1), "Anchors": _joined(flat, 0), "ImInfo": im_info}
    found, count = helper.op("padded_retinanet_output", inputs, attrs, ("Out", "Count"))
    found.stop_gradient = count.stop_gradient = True
    return found, count
