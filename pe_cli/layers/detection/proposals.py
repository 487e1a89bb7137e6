"""Region proposals for a second stage: generate_proposals."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer(made_of="padded_proposals")
def generate_proposals(
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
) -> tuple[Variable, Variable, Variable]:
    """Choose the best boxes of a region proposal network, post_nms_top_n rows for each image.

    The anchors with the best scores are moved by their differences, cut to the image and left out where they are small; then the best
    box goes first, and those that overlap one that stays by more than nms_thresh are left out. Regions for roi_align and others are
    these boxes as [images post_nms_top_n, 4].

    Args:
        scores: [images, anchors, height, width]: that of an anchor to hold something.
        bbox_deltas: [images, 4 anchors, height, width]: moves of the centre in sides, and logarithms of how much sides grow.
        im_info: [images, 3]: height, width and scale of the network's input.
        anchors: [height, width, anchors, 4], as anchor_generator gives them.
        variances: of anchors: what bbox_deltas are multiplied with.
        pre_nms_top_n: boxes of an image with the best scores that are looked at; 0: all.
        post_nms_top_n: boxes of an image at most.
        nms_thresh: boxes that overlap a better one by more are left out; 0: none.
        min_size: sides of a box at least, in pixels of the image before it was scaled; not below 1.
        eta: what nms_thresh is multiplied with after every box, while it is above 0.5.
        name: prefix of the outputs' names.

    Returns:
        Boxes [images, post_nms_top_n, 4]: left, top, right, bottom, by falling score, zeros behind the last one; their scores
        [images, post_nms_top_n, 1]; and how many there are, [images, 1] int32.

    Raises:
        PeError: shapes that do not fit, or post_nms_top_n below 1.

    Source:
        fluid.layers.generate_proposals, which gives rows with sequences instead; Ren et al. 2015, "Faster R-CNN", section 3.
    """
    attrs = {
        "pre_nms_topN": pre_nms_top_n, "post_nms_topN": post_nms_top_n, "nms_thresh": float(nms_thresh), "min_size": float(min_size),
        "eta": float(eta),
    }  # fmt: skip
    inputs = {"Scores": scores, "BboxDeltas": bbox_deltas, "ImInfo": im_info, "Anchors": anchors, "Variances": variances}
    found = LayerHelper("generate_proposals", name).op("padded_proposals", inputs, attrs, ("RpnRois", "RpnRoiProbs", "Count"))
    # The second stage learns from these boxes as if they were given: Ren et al. call that approximate joint training.
    for v in found:
        v.stop_gradient = True
    boxes, probs, count = found
    return boxes, probs, count
