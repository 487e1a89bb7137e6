"""padded_locality_nms: locality_aware_nms with as many rows for every image as it may find, so that it runs in the step, on any device."""

from __future__ import annotations

from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI32, PtrI64, Real, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import FindsBoxes
from pe_cli.ops.detection.overlaps import drawn_boxes
from pe_cli.ops.detection.padded_nms import box_overlap, keep_apart, kept_rows, write_rows


@helper
def _merge(boxes, scores, seen, i, n, at, threshold, one):
    """Merge every box of image i with the one that is left before it, where they overlap by more; what is gone is marked as seen."""
    # Only the neighbour that is left before it is looked at, as in EAST: boxes come in reading order, and merging is one pass.
    last = -1
    for p in range(n):
        seen[at + p] = 0
        if last >= 0 and box_overlap(boxes, i * n + p, i * n + last, one) > threshold:
            s, t = scores[at + p], scores[at + last]
            for d in range(4):
                to = 4 * (i * n + last) + d
                boxes[to] = (boxes[4 * (i * n + p) + d] * s + boxes[to] * t) / (s + t)
            scores[at + last] = t + s
            seen[at + p] = 1
        else:
            last = p


@kernel
def merge_and_find(
    boxes: Ptr, scores: Ptr, moved: Ptr, added: Ptr, out: Ptr, index: PtrI32, count: PtrI32, seen: PtrI64, kept: PtrI64, numbers: PtrI64,
    images: Int, n: Int, classes: Int, rows: Int, background: Int, least: Real, most: Int, threshold: Real, eta: Real, one: Real,
):  # fmt: skip
    """Do `find_boxes` with neighbours merged, class by class; moved and added: the boxes and scores that this gives."""
    for i in range(images):
        # Copied once per image, not per class: what is merged for one class stays merged for the next, as in the original.
        for e in range(4 * i * n, 4 * (i + 1) * n):
            moved[e] = boxes[e]
        for c in range(classes):
            row = i * classes + c
            for e in range(row * n, (row + 1) * n):
                added[e] = scores[e]
            if c != background:
                _merge(moved, added, seen, i, n, row * n, threshold, one)
            keep_apart(moved, added, i, n, row, seen, kept, numbers, least, 0 if c == background else most, threshold, eta, one)
        write_rows(moved, added, out, index, count, kept, numbers, i, n, classes, rows)


@op(
    "padded_locality_nms",
    inputs="BBoxes Scores",
    outputs="Out Index Count",
    traits=[FindsBoxes("Out")],
    attrs={
        "background_label": Attr(-1, "class that is none; -1: there is none"),
        "score_threshold": Attr(0.0, "only higher scores count"),
        "nms_top_k": Attr(-1, "most boxes of a class that are looked at, the best first; -1: all"),
        "keep_top_k": Attr(1, "detections of an image at most, which are its rows"),
        "normalized": Attr(True, "boxes are parts of the image; else pixels, the last one inside"),
        "nms_threshold": Attr(0.3, "neighbours that overlap by more are merged, and a box is dropped that overlaps a better one by more"),
        "nms_eta": Attr(1.0, "below 1: what nms_threshold is multiplied by after each box that is kept, while it is above 0.5"),
    },
    differentiable="",
    samples=[
        Sample(
            {"BBoxes": lambda rng: drawn_boxes(rng, 2, 8), "Scores": lambda rng: rng.uniform(0, 1, (2, 3, 8))},
            {"score_threshold": 0.2, "nms_top_k": 6, "keep_top_k": 5, "background_label": 0}, "two images",
        ),
        Sample(
            {"BBoxes": lambda rng: drawn_boxes(rng, 1, 3), "Scores": lambda rng: rng.uniform(0, 1, (1, 1, 3))},
            {"keep_top_k": 7}, "more rows than boxes",
        ),
        Sample({"BBoxes": (0, 4, 4), "Scores": (0, 2, 4)}, {"keep_top_k": 2}, "no image"),
    ],
)  # fmt: skip
def padded_locality_nms(
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
) -> tuple[TensorType, TensorType, TensorType]:
    """Merge neighbouring boxes that overlap, weighted by their scores, then keep those that overlap no better one much, in padded rows.

    A box that overlaps the one before it by more than nms_threshold is merged with that; the scores add up. Boxes that are merged
    for one class are so for the classes after it.

    Args:
        BBoxes: [images, boxes, 4] float32 or float64: left, top, right, bottom.
        Scores: [images, classes, boxes] element type of BBoxes.

    Returns:
        Out: [images, keep_top_k, 6]: class, score and box, by class and falling score; rows behind the last one have class -1.
        Index: [images, keep_top_k] int32: place of each among the boxes of all images; -1 behind the last one.
        Count: [images, 1] int32: how many there are.

    Raises:
        PeError: types that do not fit, or keep_top_k below 1.

    Source:
        fluid.layers.locality_aware_nms, of which this has the detections; Zhou et al. 2017, "EAST", section 3.6.
    """
    del background_label, score_threshold, nms_top_k, normalized, nms_threshold, nms_eta
    return kept_rows("padded_locality_nms", boxes, scores, keep_top_k)


@padded_locality_nms.lower("cpu")
def padded_locality_nms_cpu(o: Lowering) -> None:
    """Image by image, class by class."""
    boxes, scores, out, a = o.input("BBoxes"), o.input("Scores"), o.output("Out"), o.attrs
    images, classes, n = scores.shape
    most = n if a["nms_top_k"] < 0 else min(n, a["nms_top_k"])
    if not out.size:
        return
    own = (o.scratch(boxes.size, boxes.dtype), o.scratch(scores.size, scores.dtype))
    places = [o.scratch(images * classes * max(n, 1), "int64") for _ in range(2)]
    numbers = o.scratch(images * classes * 2, "int64")
    o.call(
        merge_and_find, boxes, scores, *own, out, o.output("Index"), o.output("Count"), *places, numbers, images, n, classes,
        a["keep_top_k"], a["background_label"], a["score_threshold"], most, a["nms_threshold"], a["nms_eta"],
        0.0 if a["normalized"] else 1.0,
    )  # fmt: skip


deal(merge_and_find)
also_on_cuda(padded_locality_nms)
