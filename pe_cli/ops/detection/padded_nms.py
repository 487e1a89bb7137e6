"""padded_nms: multiclass_nms with as many rows for every image as it may find, so that it runs in the step, on any device."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI32, PtrI64, Real, T, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import FindsBoxes
from pe_cli.ops.detection.overlaps import drawn_boxes


@helper
def box_overlap(a, i, j, one):
    """Return the area of boxes i and j of a by that of either; one is 1 where the last pixel of a box is inside."""
    left = max(a[4 * i], a[4 * j])
    top = max(a[4 * i + 1], a[4 * j + 1])
    right = min(a[4 * i + 2], a[4 * j + 2])
    bottom = min(a[4 * i + 3], a[4 * j + 3])
    if right < left or bottom < top:
        return T(0)
    both = (right - left + one) * (bottom - top + one)
    areas = T(0)
    # A box with a side below 0 has no area, as in the original, though it may overlap others by the formula above.
    for b in (i, j):
        w = a[4 * b + 2] - a[4 * b]
        h = a[4 * b + 3] - a[4 * b + 1]
        if w >= T(0) and h >= T(0):
            areas += (w + one) * (h + one)
    return both / (areas - both)


@helper
def keep_apart(boxes, scores, i, n, row, seen, kept, numbers, least, most, threshold, eta, one):
    """Write the places of the best boxes of image i, of the class in a row, that overlap no better one much; numbers: how many, and 0.

    What is seen already is left out.
    """
    at = row * n
    numbers[2 * row] = 0
    numbers[2 * row + 1] = 0
    # The threshold starts anew for each class; eta lowers it for this class alone.
    limit = threshold
    for _ in range(most):
        best = -1
        for p in range(n):
            if seen[at + p] == 0 and scores[at + p] > least and (best < 0 or scores[at + p] > scores[at + best]):
                best = p
        if best < 0:
            break
        seen[at + best] = 1
        fits = 1
        for k in range(numbers[2 * row]):
            # Written as "not <=": a box whose overlap is NaN is dropped, as on the host.
            if not box_overlap(boxes, i * n + best, i * n + kept[at + k], one) <= limit:
                fits = 0
                break
        if fits == 0:
            continue
        kept[at + numbers[2 * row]] = best
        numbers[2 * row] += 1
        if eta < T(1) and limit > T(0.5):
            limit *= eta


@helper
def write_rows(  # noqa: C901 (loops over classes, rows and what is kept)
    boxes, scores, out, index, count, kept, numbers, i, n, classes, rows
):
    """Write the best of what is kept of image i, by class and falling score."""
    # Every class has its boxes by falling score, so this is a merge of lists: numbers[.. + 1] counts how many of a class are taken. Only
    # then are rows written, class by class.
    found = 0
    for _ in range(rows):  # the best of the classes' next ones
        which = -1
        for c in range(classes):
            at = (i * classes + c) * n
            k = numbers[(i * classes + c) * 2 + 1]
            if k >= numbers[(i * classes + c) * 2]:
                continue
            if which >= 0:
                before = (i * classes + which) * n
                # On equal scores the smaller class stays in front.
                if scores[at + kept[at + k]] <= scores[before + kept[before + numbers[(i * classes + which) * 2 + 1]]]:
                    continue
            which = c
        if which < 0:
            break
        numbers[(i * classes + which) * 2 + 1] += 1
        found += 1
    count[i] = found
    r = i * rows
    for c in range(classes):
        at = (i * classes + c) * n
        for k in range(numbers[(i * classes + c) * 2 + 1]):
            p = kept[at + k]
            out[6 * r] = T(c)
            out[6 * r + 1] = scores[at + p]
            for d in range(4):
                out[6 * r + 2 + d] = boxes[4 * (i * n + p) + d]
            index[r] = i * n + p
            r += 1
    for e in range(r, (i + 1) * rows):
        index[e] = -1
        out[6 * e] = T(-1)
        for d in range(5):
            out[6 * e + 1 + d] = T(0)


@kernel
def find_boxes(
    boxes: Ptr, scores: Ptr, out: Ptr, index: PtrI32, count: PtrI32, seen: PtrI64, kept: PtrI64, numbers: PtrI64, images: Int, n: Int,
    classes: Int, rows: Int, background: Int, least: Real, most: Int, threshold: Real, eta: Real, one: Real,
):  # fmt: skip
    """Out = class, score and box of what is kept of each image; seen and kept: a place for every class and box, numbers for every class."""
    for i in range(images):
        for c in range(classes):
            row = i * classes + c
            # Marks of boxes that were looked at, whether they are kept or not.
            for p in range(n):
                seen[row * n + p] = 0
            keep_apart(boxes, scores, i, n, row, seen, kept, numbers, least, 0 if c == background else most, threshold, eta, one)
        write_rows(boxes, scores, out, index, count, kept, numbers, i, n, classes, rows)


def kept_rows(name: str, boxes: TensorType, scores: TensorType, keep_top_k: int) -> tuple[TensorType, TensorType, TensorType]:
    """Return the types of what an op of this name keeps: rows of detections, their places, and how many there are.

    Raises:
        PeError: types that do not fit, or keep_top_k below 1.
    """
    if len(boxes.shape) != 3 or len(scores.shape) != 3 or boxes.shape[2] != 4 or boxes.dtype != scores.dtype:
        raise PeError(f"{name} needs BBoxes [images, boxes, 4] and Scores [images, classes, boxes]; got {boxes} and {scores}")
    if -1 not in (boxes.shape[1], scores.shape[2]) and boxes.shape[1] != scores.shape[2]:
        raise PeError(f"{name}: BBoxes is {boxes}, but Scores is {scores}", hint="a score for each box")
    if keep_top_k < 1:
        raise PeError(f"{name} needs keep_top_k of at least 1, got {keep_top_k}", hint="how many rows every image gets")
    found = boxes.with_shape(boxes.shape[0], keep_top_k, 6)
    return found, TensorType(found.shape[:2], "int32"), TensorType((boxes.shape[0], 1), "int32")


@op(
    "padded_nms",
    inputs="BBoxes Scores",
    outputs="Out Index Count",
    traits=[FindsBoxes("Out")],
    attrs={
        "background_label": Attr(0, "class that is none; -1: there is none"),
        "score_threshold": Attr(0.0, "only higher scores count"),
        "nms_top_k": Attr(-1, "most boxes of a class that are looked at, the best first; -1: all"),
        "keep_top_k": Attr(1, "detections of an image at most, which are its rows"),
        "normalized": Attr(True, "boxes are parts of the image; else pixels, the last one inside"),
        "nms_threshold": Attr(0.3, "a box is dropped that overlaps a better one by more"),
        "nms_eta": Attr(1.0, "below 1: what nms_threshold is multiplied by after each box that is kept, while it is above 0.5"),
    },
    differentiable="",
    samples=[
        Sample(
            {"BBoxes": lambda rng: drawn_boxes(rng, 2, 8), "Scores": lambda rng: rng.uniform(0, 1, (2, 3, 8))},
            {"score_threshold": 0.2, "nms_top_k": 6, "keep_top_k": 5}, "two images",
        ),
        Sample(
            {"BBoxes": lambda rng: drawn_boxes(rng, 1, 3), "Scores": lambda rng: rng.uniform(0, 1, (1, 1, 3))},
            {"keep_top_k": 7, "background_label": -1}, "more rows than boxes",
        ),
        Sample({"BBoxes": (0, 4, 4), "Scores": (0, 2, 4)}, {"keep_top_k": 2}, "no image"),
    ],
)  # fmt: skip
def padded_nms(
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
    """Keep of every class the boxes that overlap no better one much, and of every image the best, in rows of one number for all images.

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
        fluid.layers.multiclass_nms, of which this has the detections; Neubeck and Van Gool 2006, "Efficient non-maximum suppression".
    """
    del background_label, score_threshold, nms_top_k, normalized, nms_threshold, nms_eta
    return kept_rows("padded_nms", boxes, scores, keep_top_k)


@padded_nms.lower("cpu")
def padded_nms_cpu(o: Lowering) -> None:
    """Image by image, class by class."""
    boxes, scores, out, a = o.input("BBoxes"), o.input("Scores"), o.output("Out"), o.attrs
    images, classes, n = scores.shape
    most = n if a["nms_top_k"] < 0 else min(n, a["nms_top_k"])
    if not out.size:
        return
    places = [o.scratch(images * classes * max(n, 1), "int64") for _ in range(2)]
    numbers = o.scratch(images * classes * 2, "int64")
    o.call(
        find_boxes, boxes, scores, out, o.output("Index"), o.output("Count"), *places, numbers, images, n, classes, a["keep_top_k"],
        a["background_label"], a["score_threshold"], most, a["nms_threshold"], a["nms_eta"], 0.0 if a["normalized"] else 1.0,
    )  # fmt: skip


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(find_boxes)
also_on_cuda(padded_nms)
