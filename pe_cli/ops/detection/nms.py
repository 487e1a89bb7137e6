"""Detections, thinned out: multiclass_nms, matrix_nms, locality_aware_nms. Only values tell how many: they run on the host."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.lod import HostRun, Leveled
from pe_cli.ops.define.onnx import PADDED, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.detection.overlaps import Array, best, drawn_boxes, overlap, strongest, suppress

_THRESHOLDS = {
    "background_label": Attr(0, "class that is none; -1: there is none"),
    "score_threshold": Attr(0.0, "only higher scores count"),
    "nms_top_k": Attr(-1, "most boxes of a class that are looked at, the best first; -1: all"),
    "keep_top_k": Attr(-1, "most detections of an image; -1: all"),
    "normalized": Attr(True, "boxes are parts of the image; else pixels, the last one inside"),
}
_GREEDY = {
    **_THRESHOLDS,
    "nms_threshold": Attr(0.3, "a box is dropped that overlaps a better one by more"),
    "nms_eta": Attr(1.0, "below 1: what nms_threshold is multiplied by after each box that is kept, while it is above 0.5"),
}
_SIZES = (4, 8, 16, 24, 32)


_INPUTS = {"BBoxes": lambda rng: drawn_boxes(rng, 2, 8), "Scores": lambda rng: rng.uniform(0, 1, (2, 3, 8))}


def _check(name: str, boxes: TensorType, scores: TensorType, *, sequences: bool = False) -> tuple[TensorType, TensorType]:
    ranks = [(3, 3), (2, 3)] if sequences else [(3, 3)]
    if (len(scores.shape), len(boxes.shape)) not in ranks or boxes.dtype != scores.dtype:
        also = ", or [rows, classes, 4] and [rows, classes] with sequences" if sequences else ""
        raise PeError(f"{name} needs BBoxes [images, boxes, 4] and Scores [images, classes, boxes]{also}; got {boxes} and {scores}")
    sizes = _SIZES if len(scores.shape) == 3 else (4,)
    if boxes.shape[2] not in sizes:
        raise PeError(f"{name}: a box has 4 numbers, or 8, 16, 24 or 32 for polygons, got {boxes}")
    a, b = (boxes.shape[1], scores.shape[2]) if len(scores.shape) == 3 else (boxes.shape[1], scores.shape[1])
    if -1 not in (a, b) and a != b:
        raise PeError(f"{name}: BBoxes is {boxes}, but Scores is {scores}", hint="a score for each box")
    return boxes.with_shape(-1, boxes.shape[2] + 2), TensorType((-1, 1), "int32")


def packed(images: Sequence[Any], like: Array, width: int, *, none: bool) -> dict[str, list[Any]]:
    """Return detections of images as outputs with a sequence for each.

    Args:
        images: for each of them (rows, places).
        like: has their element type.
        width: numbers of a row.
        none: where there is no detection at all, Out is one row, -1, alone in its one sequence.
    """
    lod = ([0, *np.cumsum([len(rows) for rows, _ in images]).tolist()],)
    every = [np.asarray(rows, like.dtype).reshape(-1, width) for rows, _ in images]
    index = np.array([p for _, places in images for p in places], "int32").reshape(-1, 1)
    out = np.concatenate(every) if every else np.zeros((0, width), like.dtype)
    # fluid hands on a single -1 where a batch has no detection at all, and book examples test for it.
    if none and not len(out):
        return {"Out": [Leveled(np.full((1, 1), -1, like.dtype), ([0, 1],))], "Index": [Leveled(index, lod)]}
    return {"Out": [Leveled(out, lod)], "Index": [Leveled(index, lod)]}


# --- multiclass_nms ---------------------------------------------------------------------------------------------------


@op(
    "multiclass_nms",
    inputs="BBoxes Scores",
    outputs="Out Index",
    attrs={**_GREEDY, "return_index": Attr(False, "where nothing is found: no row, instead of one that is -1")},
    differentiable="",
    samples=[Sample(_INPUTS, {"score_threshold": 0.2, "nms_top_k": 6, "keep_top_k": 5}, "two images")],
)
def multiclass_nms(
    boxes: TensorType,
    scores: TensorType,
    *,
    background_label: int,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    normalized: bool,
    nms_threshold: float,
    nms_eta: float,
    return_index: bool,
) -> tuple[TensorType, TensorType]:
    """Keep of every class the boxes that overlap no better one much, and of every image the best.

    Args:
        BBoxes: [images, boxes, 4] float32 or float64: left, top, right, bottom; 8, 16, 24 or 32 numbers are the points of a convex
            polygon. Or [rows, classes, 4] with a sequence for each image: each class has boxes of its own.
        Scores: [images, classes, boxes] element type of BBoxes; or [rows, classes].

    Returns:
        Out: [detections, 2 + numbers of a box]: class, score and box, a sequence for each image, by class and falling score.
        Index: [detections, 1] int32: place of each among the boxes of all images.

    Raises:
        PeError: types that do not fit; while running, rows without sequences.

    Source:
        fluid.layers.multiclass_nms; Neubeck and Van Gool 2006, "Efficient non-maximum suppression".
    """
    del background_label, score_threshold, nms_top_k, keep_top_k, normalized, nms_threshold, nms_eta, return_index
    return _check("multiclass_nms", boxes, scores, sequences=True)


@multiclass_nms.host_run
def multiclass_nms_host(run: HostRun) -> dict[str, list[Any]]:
    """Image by image, class by class."""
    boxes, scores, a = run.one("BBoxes"), run.one("Scores"), run.attrs
    rows = scores.ndim == 2
    if rows:
        found = run.values["Scores"][0]
        # Places in Index count over the whole batch, so every image gets the number of those before it.
        ends = np.asarray((found.lod or run.values["BBoxes"][0].lod or ([0, len(scores)],))[-1])
        images = [(boxes[s:e], scores[s:e].T, int(s) * scores.shape[1]) for s, e in pairwise(ends)]
    else:
        images = [(b, s, i * boxes.shape[1]) for i, (b, s) in enumerate(zip(boxes, scores, strict=True))]
    made: list[Any] = []
    for box, score, start in images:
        kept: dict[int, list[int]] = {}
        for c in range(len(score)):
            if c != a["background_label"]:
                own, order = box[:, c] if rows else box, best(score[c], a["score_threshold"], a["nms_top_k"])
                kept[c] = suppress(own, order, a["nms_threshold"], a["nms_eta"], normalized=a["normalized"])
                # With a row of scores per box the original sorts what a class keeps by place, and otherwise by score.
                kept[c] = sorted(kept[c]) if rows else kept[c]
        kept = strongest(kept, lambda c, p, score=score: score[c, p], a["keep_top_k"])
        chosen = [(c, p) for c in sorted(kept) for p in (sorted(kept[c]) if rows else kept[c])]
        lines = [[c, score[c, p], *(box[p, c] if rows else box[p])] for c, p in chosen]
        made.append((lines, [start + (p * len(score) + c if rows else p) for c, p in chosen]))
    return packed(made, boxes, boxes.shape[2] + 2, none=not a["return_index"])


# --- matrix_nms -------------------------------------------------------------------------------------------------------


@op(
    "matrix_nms",
    inputs="BBoxes Scores",
    outputs="Out Index",
    attrs={
        **_THRESHOLDS,
        "post_threshold": Attr(0.0, "only higher scores are kept after they are lowered"),
        "use_gaussian": Attr(False, "lower scores by a Gaussian of the overlaps, not linearly"),
        "gaussian_sigma": Attr(2.0, "factor in its exponent"),
    },
    differentiable="",
    samples=[Sample(_INPUTS, {"score_threshold": 0.2, "post_threshold": 0.1, "nms_top_k": 6, "keep_top_k": 5}, "two images")],
)
def matrix_nms(
    boxes: TensorType,
    scores: TensorType,
    *,
    background_label: int,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    normalized: bool,
    post_threshold: float,
    use_gaussian: bool,
    gaussian_sigma: float,
) -> tuple[TensorType, TensorType]:
    """Lower the score of every box by how much it overlaps better ones of its class, and keep the best.

    With overlaps o_ij and m_i, the largest of i with a better box: score_j times min_i (1 - o_ij) / (1 - m_i), or
    min_i exp((m_i m_i - o_ij o_ij) gaussian_sigma).

    Args:
        BBoxes: [images, boxes, 4] float32 or float64: left, top, right, bottom, or the points of polygons.
        Scores: [images, classes, boxes] element type of BBoxes.

    Returns:
        Out: [detections, 2 + numbers of a box]: class, score and box, a sequence for each image, by falling score.
        Index: [detections, 1] int32: place of each among the boxes of all images.

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.matrix_nms; Wang et al. 2020, "SOLOv2", section 3.3.
    """
    del background_label, score_threshold, nms_top_k, keep_top_k, normalized, post_threshold, use_gaussian, gaussian_sigma
    return _check("matrix_nms", boxes, scores)


def _lowered(boxes: Array, scores: Array, a: Any) -> Array:
    """Return the scores of boxes, the best first, lowered."""
    n = len(boxes)
    pairs = np.stack([overlap(box, boxes, normalized=a["normalized"]) for box in boxes]) if n else np.zeros((0, 0), boxes.dtype)
    # Only better boxes lower a score, and these stand before it.
    pairs = np.triu(pairs, 1)
    # m_i of the paper: how much box i itself overlaps a better one. A box that is likely to go must not lower others much.
    most = pairs.max(0, initial=0)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.exp((most * most - pairs * pairs) * a["gaussian_sigma"]) if a["use_gaussian"] else (1 - pairs) / (1 - most)
    shares = np.where(np.triu(np.ones((n, n), bool), 1), shares, 1)
    # fmin passes over the NaN of (1 - 1) / (1 - 1), where a better box is the same box.
    lowered: Array = (scores * np.fmin.reduce(shares, 0, initial=1)).astype(scores.dtype)
    return lowered


@matrix_nms.host_run
def matrix_nms_host(run: HostRun) -> dict[str, list[Any]]:
    """Image by image, class by class."""
    boxes, scores, a = run.one("BBoxes"), run.one("Scores"), run.attrs
    made: list[Any] = []
    for i, (box, score) in enumerate(zip(boxes, scores, strict=True)):
        lines: list[list[Any]] = []
        places: list[int] = []
        for c in range(len(score)):
            if c == a["background_label"]:
                continue
            order = best(score[c], a["score_threshold"], a["nms_top_k"])
            lowered = _lowered(box[order], score[c][order], a)
            for k in np.flatnonzero(lowered > lowered.dtype.type(a["post_threshold"])):
                lines.append([c, lowered[k], *box[order[k]]])
                places.append(i * boxes.shape[1] + int(order[k]))
        # Stable: of equal scores the earlier class and box comes first, on every machine.
        ranks = np.argsort([-line[1] for line in lines], kind="stable").tolist()
        ranks = ranks[: a["keep_top_k"]] if a["keep_top_k"] > -1 else ranks
        made.append(([lines[k] for k in ranks], [places[k] for k in ranks]))
    return packed(made, boxes, boxes.shape[2] + 2, none=False)


# --- locality_aware_nms -----------------------------------------------------------------------------------------------


@op(
    "locality_aware_nms",
    inputs="BBoxes Scores",
    attrs={**_GREEDY, "background_label": Attr(-1, "class that is none; -1: there is none")},
    differentiable="",
    samples=[Sample(_INPUTS, {"score_threshold": 0.2, "nms_top_k": 6, "keep_top_k": 5}, "two images")],
)
def locality_aware_nms(
    boxes: TensorType,
    scores: TensorType,
    *,
    background_label: int,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    normalized: bool,
    nms_threshold: float,
    nms_eta: float,
) -> TensorType:
    """Merge neighbouring boxes that overlap, weighted by their scores, then keep those that overlap no better one much.

    A box that overlaps the one before it by more than nms_threshold is merged with that; the scores add up. Boxes that are merged
    for one class are so for the classes after it.

    Args:
        BBoxes: [images, boxes, 4] float32 or float64: left, top, right, bottom, or the points of convex polygons.
        Scores: [images, classes, boxes] element type of BBoxes.

    Returns:
        Out: [detections, 2 + numbers of a box]: class, score and box, a sequence for each image, by class and falling score.

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.locality_aware_nms; Zhou et al. 2017, "EAST", section 3.6.
    """
    del background_label, score_threshold, nms_top_k, keep_top_k, normalized, nms_threshold, nms_eta
    return _check("locality_aware_nms", boxes, scores)[0]


def _merge(boxes: Array, scores: Array, threshold: float, *, normalized: bool) -> Array:
    """Merge neighbours in place, and return the places of what is left."""
    left: list[int] = []
    for i in range(len(boxes)):
        last = left[-1] if left else -1
        if last >= 0 and overlap(boxes[i], boxes[last : last + 1], normalized=normalized)[0] > boxes.dtype.type(threshold):
            boxes[last] = (boxes[i] * scores[i] + boxes[last] * scores[last]) / (scores[i] + scores[last])
            scores[last] += scores[i]
        else:
            left.append(i)
    return np.array(left, int)


@locality_aware_nms.host_run
def locality_aware_nms_host(run: HostRun) -> dict[str, list[Any]]:
    """Image by image, class by class."""
    # Merging moves boxes and adds scores in place; the feeds have to stay as they are.
    boxes, scores, a = run.one("BBoxes").copy(), run.one("Scores").copy(), run.attrs
    made: list[Any] = []
    for box, score in zip(boxes, scores, strict=True):
        kept: dict[int, list[int]] = {}
        for c in range(len(score)):
            if c == a["background_label"]:
                continue
            left = _merge(box, score[c], a["nms_threshold"], normalized=a["normalized"])
            order = left[best(score[c][left], a["score_threshold"], a["nms_top_k"])]
            kept[c] = suppress(box, order, a["nms_threshold"], a["nms_eta"], normalized=a["normalized"])
        kept = strongest(kept, lambda c, p, score=score: score[c, p], a["keep_top_k"])
        made.append(([[c, score[c, p], *box[p]] for c in sorted(kept) for p in kept[c]], []))
    return {"Out": packed(made, boxes, boxes.shape[2] + 2, none=True)["Out"]}
not_in_onnx(PADDED, "locality_aware_nms", "matrix_nms", "multiclass_nms")
