"""generate_proposals: the best boxes of a region proposal network. How many there are only a step knows: it runs on the host."""

from __future__ import annotations

import math

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.ops.define.lod import HostRun
from pe_cli.ops.define.onnx import PADDED, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.detection.box_helpers import Array, check_infos, images_of, per_image

#: Logarithm of how much larger than its anchor a box may be.
LARGEST = math.log(1000.0 / 16.0)


def _anchors(rng):
    y, x = np.mgrid[0:3, 0:4] * 8.0
    return np.stack([x - 6, y - 4, x + 6, y + 4, x - 3, y - 8, x + 3, y + 8], -1).reshape(3, 4, 2, 4) + 4


#: Attributes and samples of a region proposal network, whether its boxes are padded or not.
ATTRS = {
    "pre_nms_topN": Attr(6000, "boxes of an image with the best scores that are looked at; 0: all"),
    "post_nms_topN": Attr(1000, "boxes of an image at most; 0: any number"),
    "nms_thresh": Attr(0.5, "boxes that overlap a better one by more are left out; 0: none"),
    "min_size": Attr(0.1, "sides of a box at least, in pixels of the image before it was scaled; not below 1"),
    "eta": Attr(1.0, "what nms_thresh is multiplied with after every box, while it is above 0.5"),
}
SAMPLES = [
    Sample(
        {"Scores": (2, 2, 3, 4), "BboxDeltas": lambda rng: rng.standard_normal((2, 8, 3, 4)) * 0.3,
         "ImInfo": lambda rng: [[24.0, 32.0, 1.0], [20.0, 30.0, 2.0]], "Anchors": _anchors,
         "Variances": lambda rng: np.full((3, 4, 2, 4), 0.8)},
        {"pre_nms_topN": 12, "post_nms_topN": 6, "nms_thresh": 0.6},
        "two images",
    ),
]  # fmt: skip


@op(
    "generate_proposals",
    inputs="Scores BboxDeltas ImInfo Anchors Variances",
    outputs="RpnRois RpnRoiProbs RpnRoisLod",
    attrs=ATTRS,
    differentiable="",
    samples=SAMPLES,
)
def generate_proposals(
    scores: TensorType,
    deltas: TensorType,
    info: TensorType,
    anchors: TensorType,
    variances: TensorType,
    *,
    pre_nms_topN: int,
    post_nms_topN: int,
    nms_thresh: float,
    min_size: float,
    eta: float,
) -> tuple[TensorType, TensorType, TensorType]:
    """Choose the best boxes of a region proposal network, of which none overlaps a better one by much.

    The anchors with the best scores are moved by their differences, cut to the image and left out where they are small; then the best
    box goes first, and those that overlap one that stays by more than nms_thresh are left out.

    Args:
        Scores: [images, anchors, height, width] float32 or float64.
        BboxDeltas: [images, 4 anchors, height, width] element type of Scores: moves of the centre in sides, logarithms of the sides.
        ImInfo: [images, 3] element type of Scores: height, width and scale of the network's input.
        Anchors: [height, width, anchors, 4] element type of Scores.
        Variances: type of Anchors: what the differences are multiplied with.

    Returns:
        RpnRois: [boxes, 4] element type of Scores, a sequence for each image; one box of zeros where none stays.
        RpnRoiProbs: [boxes, 1] element type of Scores, a sequence for each image: their scores.
        RpnRoisLod: [images] int64: the end of each image's boxes.

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.generate_proposals; Ren et al. 2015, "Faster R-CNN", section 3.
    """
    del pre_nms_topN, post_nms_topN, nms_thresh, min_size, eta
    ranks = [len(t.shape) for t in (scores, deltas, anchors, variances)]
    if ranks != [4] * 4 or scores.dtype not in FLOATS or any(t.dtype != scores.dtype for t in (deltas, anchors, variances)):
        given = f"{scores}, {deltas}, {anchors}, {variances}"
        raise PeError(f"generate_proposals needs four tensors of rank 4 and one element type, got {given}")
    if -1 not in (deltas.shape[1], scores.shape[1]) and deltas.shape[1] != 4 * scores.shape[1]:
        raise PeError(f"generate_proposals needs BboxDeltas [images, {4 * scores.shape[1]}, height, width], got {deltas}")
    if anchors.shape[3] != 4 or variances.shape[3] != 4:
        raise PeError(f"generate_proposals needs Anchors and Variances [height, width, anchors, 4], got {anchors} and {variances}")
    check_infos("generate_proposals", info, scores.dtype)
    return scores.with_shape(-1, 4), scores.with_shape(-1, 1), TensorType((scores.shape[0],), "int64")


def moved(anchors: Array, deltas: Array, variances: Array) -> Array:
    """Return anchors moved by differences."""
    sides = anchors[:, 2:] - anchors[:, :2] + 1
    # Sides count the last pixel, hence + 1 here and - 1 at the far corner below.
    by = deltas * variances
    centres = anchors[:, :2] + sides / 2 + by[:, :2] * sides
    halves = np.exp(np.minimum(by[:, 2:], anchors.dtype.type(LARGEST))) * sides / 2
    return np.concatenate([centres - halves, centres + halves - 1], 1)


def _overlaps_of(box: Array, boxes: Array) -> Array:
    """Return how much boxes overlap one; those that lie apart by less than a pixel do not."""
    low, high = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    both = np.where((high >= low).all(1), (high - low + 1).prod(1), 0)
    areas = (boxes[:, 2:] - boxes[:, :2] + 1).prod(1)
    found: Array = both / ((box[2:] - box[:2] + 1).prod() + areas - both)
    return found


def best_apart(boxes: Array, scores: Array, threshold: float, eta: float, most: int) -> list[int]:
    """Return the boxes that overlap no better one of them by more than a threshold, the best first; of equal scores the last."""
    # Reversing a stable order puts the last of equal scores first, as the original's sort does.
    order = np.argsort(scores, kind="stable")[::-1]
    ranked, worst = boxes[order], np.zeros(len(boxes), boxes.dtype)
    kept: list[int] = []
    # `worst` is the largest overlap with any box that was kept so far. Each kept box updates it for all behind it at once, and a box is
    # judged by the threshold as it is when its turn comes, which eta may have lowered.
    for i, place in enumerate(order):
        if worst[i] > boxes.dtype.type(threshold):
            continue
        kept.append(int(place))
        if len(kept) == most:
            break
        worst[i + 1 :] = np.maximum(worst[i + 1 :], _overlaps_of(ranked[i], ranked[i + 1 :]))
        if eta < 1 and threshold > 0.5:
            threshold *= eta
    return kept


@generate_proposals.host_run
def generate_proposals_host(run: HostRun) -> dict[str, list[object]]:
    """Image by image.

    Raises:
        PeError: inputs for different numbers of images, anchors or variances (exit code 3).
    """
    scores, deltas, info = run.one("Scores"), run.one("BboxDeltas"), run.one("ImInfo")
    anchors, variances = run.one("Anchors").reshape(-1, 4), run.one("Variances").reshape(-1, 4)
    images_of(run)
    if anchors.shape != variances.shape:
        raise PeError(f"generate_proposals needs as many Variances as Anchors, got {len(variances)} and {len(anchors)}")
    if len({len(scores), len(deltas), len(info)}) > 1 or scores[0].size != len(anchors) or deltas[0].size != anchors.size:
        sizes = ", ".join(f"{slot} {list(run.one(slot).shape)}" for slot in ("Scores", "BboxDeltas", "ImInfo", "Anchors"))
        raise PeError(f"generate_proposals: {sizes}: not of the same images and anchors")
    found = [
        _one_image(run, s.transpose(1, 2, 0).ravel(), d.transpose(1, 2, 0).reshape(-1, 4), i, anchors, variances)
        for s, d, i in zip(scores, deltas, info, strict=True)
    ]
    boxes, probs = (per_image([each[k] for each in found], np.zeros((0, w), scores.dtype)) for k, w in ((0, 4), (1, 1)))
    return {"RpnRois": [boxes], "RpnRoiProbs": [probs], "RpnRoisLod": [np.cumsum([len(b) for b, _ in found])]}


def _one_image(run: HostRun, scores: Array, deltas: Array, info: Array, anchors: Array, variances: Array) -> tuple[Array, Array]:
    before, after, threshold = run.attrs["pre_nms_topN"], run.attrs["post_nms_topN"], run.attrs["nms_thresh"]
    # Only those with the best scores are moved and compared: overlaps of all anchors of a large image would not fit in memory.
    first = np.argsort(-scores, kind="stable")[: before if before > 0 else None]
    boxes, scores = moved(anchors[first], deltas[first], variances[first]), scores[first]
    high, wide, scale = info
    boxes = np.maximum(np.minimum(boxes, np.array([wide, high, wide, high], boxes.dtype) - 1), 0)
    sides = boxes[:, 2:] - boxes[:, :2]
    centres = boxes[:, :2] + (sides + 1) / 2
    keep = (sides / scale + 1 >= max(run.attrs["min_size"], 1.0)).all(1) & (centres <= np.array([wide, high])).all(1)
    boxes, scores = boxes[keep], scores[keep]
    # The original never hands on an empty batch: an image without a box has one of zeros.
    if not len(boxes):
        return np.zeros((1, 4), boxes.dtype), np.zeros((1, 1), scores.dtype)
    if threshold > 0:
        kept = best_apart(boxes, scores, threshold, run.attrs["eta"], after if after > 0 else len(boxes))
        boxes, scores = boxes[kept], scores[kept]
    return boxes, scores[:, None]
not_in_onnx(PADDED, "generate_proposals")
