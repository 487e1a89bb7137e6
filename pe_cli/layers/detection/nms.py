"""Variants of non-maximum suppression: matrix_nms lowers scores, locality_aware_nms merges neighbours."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer(made_of="padded_matrix_nms")
def matrix_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
    name: str | None = None,
    return_index: bool = False,
) -> tuple[Variable, ...]:
    """Lower the score of every box by how much it overlaps better ones of its class, and keep the best, keep_top_k rows for each image.

    With overlaps o_ij and m_i, the largest of i with a better box: score_j times min_i (1 - o_ij) / (1 - m_i), or
    min_i exp((m_i m_i - o_ij o_ij) gaussian_sigma).

    Args:
        bboxes: [images, boxes, 4]: left, top, right, bottom.
        scores: [images, classes, boxes].
        score_threshold: only higher scores count.
        post_threshold: only higher scores are kept after they are lowered.
        nms_top_k: most boxes of a class that are looked at, the best first; -1: all.
        keep_top_k: detections of an image at most.
        use_gaussian: lower scores by a Gaussian of the overlaps, not linearly.
        gaussian_sigma: factor in its exponent.
        background_label: class that is none; -1: there is none.
        normalized: boxes are parts of the image; else pixels, the last one inside.
        name: prefix of the outputs' names.
        return_index: give the places of the boxes, too.

    Returns:
        Detections [images, keep_top_k, 6]: class, score and box, by falling score, with class -1 behind the last one; and how many
        there are, [images, 1] int32. With return_index also [images, keep_top_k] int32: the place of each among the boxes of all
        images, -1 behind the last one.

    Raises:
        PeError: shapes that do not fit, or keep_top_k below 1.

    Source:
        fluid.layers.matrix_nms, which gives rows with sequences instead.
    """
    attrs = {
        "score_threshold": float(score_threshold), "post_threshold": float(post_threshold), "nms_top_k": nms_top_k,
        "keep_top_k": keep_top_k, "use_gaussian": use_gaussian, "gaussian_sigma": float(gaussian_sigma),
        "background_label": background_label, "normalized": normalized,
    }  # fmt: skip
    inputs = {"BBoxes": bboxes, "Scores": scores}
    found, index, count = LayerHelper("matrix_nms", name).op("padded_matrix_nms", inputs, attrs, ("Out", "Index", "Count"))
    for v in (found, index, count):
        v.stop_gradient = True
    # The places come last, so that the first two outputs are the same with and without them.
    return (found, count, index) if return_index else (found, count)


@layer(made_of="padded_locality_nms")
def locality_aware_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = -1,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Merge neighbouring boxes that overlap, weighted by their scores; then keep those that overlap no better one much.

    Boxes are neighbours in the order in which they are given, as the pixels of a line of text are. Where one overlaps the one before it
    by more than nms_threshold they become one box, with the sum of their scores.

    Args:
        bboxes: [images, boxes, 4]: left, top, right, bottom.
        scores: [images, classes, boxes].
        score_threshold: only higher scores count, after boxes are merged.
        nms_top_k: most boxes of a class that are looked at, the best first; -1: all.
        keep_top_k: detections of an image at most.
        nms_threshold: neighbours that overlap by more are merged, and a box is dropped that overlaps a better one by more.
        normalized: boxes are parts of the image; else pixels, the last one inside.
        nms_eta: below 1: what nms_threshold is multiplied by after each box that is kept, while it is above 0.5.
        background_label: class that is none; -1: there is none.
        name: prefix of the outputs' names.

    Returns:
        Detections [images, keep_top_k, 6]: class, score and box, by class and falling score, with class -1 behind the last one; and how
        many there are, [images, 1] int32.

    Raises:
        PeError: shapes that do not fit, or keep_top_k below 1.

    Source:
        fluid.layers.locality_aware_nms, which gives rows with sequences instead, and takes polygons; Zhou et al. 2017, "EAST", section 3.6.
    """
    attrs = {
        "score_threshold": float(score_threshold), "nms_top_k": nms_top_k, "keep_top_k": keep_top_k, "nms_threshold": float(nms_threshold),
        "normalized": normalized, "nms_eta": float(nms_eta), "background_label": background_label,
    }  # fmt: skip
    inputs = {"BBoxes": bboxes, "Scores": scores}
    found, _, count = LayerHelper("locality_aware_nms", name).op("padded_locality_nms", inputs, attrs, ("Out", "Index", "Count"))
    for v in (found, count):
        v.stop_gradient = True
    return found, count
