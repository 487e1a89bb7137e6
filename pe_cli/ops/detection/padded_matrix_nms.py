"""padded_matrix_nms: matrix_nms with as many rows for every image as it may find, so that it runs in the step, on any device."""

from __future__ import annotations

from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI32, PtrI64, Real, T, helper, kernel
from pe_cli.kernels.math.vector_math import exp
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import FindsBoxes
from pe_cli.ops.detection.overlaps import drawn_boxes
from pe_cli.ops.detection.padded_nms import box_overlap, kept_rows


@helper
def _candidates(scores, at, n, least, most, order):
    """Write the places of the best scores above the least, the best first, and return how many there are."""
    found = 0
    # Chosen one by one: a sort would need a comparison of all boxes even where only a few are looked at.
    for _ in range(most):
        best = -1
        for p in range(n):
            s = scores[at + p]
            if not s > least:
                continue
            if found > 0:  # behind the last one: a lower score, or an equal one further on
                last = order[at + found - 1]
                if s > scores[at + last] or (s == scores[at + last] and p <= last):
                    continue
            if best < 0 or s > scores[at + best]:
                best = p
        if best < 0:
            break
        order[at + found] = best
        found += 1
    return found


@kernel
def lower_scores(
    boxes: Ptr, scores: Ptr, lowered: Ptr, most_of: Ptr, order: PtrI64, numbers: PtrI64, images: Int, n: Int, classes: Int,
    background: Int, least: Real, most: Int, gaussian: Int, sigma: Real, one: Real,
):  # fmt: skip
    """lowered = score of the candidates of each class, the best first, less what they overlap better ones; numbers: how many there are."""
    for i in range(images):
        for c in range(classes):
            at = (i * classes + c) * n
            numbers[i * classes + c] = 0
            if c == background:
                continue
            found = _candidates(scores, at, n, least, most, order)
            numbers[i * classes + c] = found
            for j in range(found):
                # m_k of the paper: how much candidate k itself overlaps a better one. It is known, as better candidates were done before.
                share, largest = T(1), T(0)
                for k in range(j):
                    o = box_overlap(boxes, i * n + order[at + k], i * n + order[at + j], one)
                    m = most_of[at + k]
                    # m of 1 means that candidate k is the same box as a better one; it lowers nothing (0 / 0 in the formula).
                    f = exp((m * m - o * o) * T(sigma)) if gaussian else (T(1) - o) / (T(1) - m) if m < T(1) else T(1)
                    share = min(share, f)
                    largest = max(largest, o)
                most_of[at + j] = largest
                lowered[at + j] = scores[at + order[at + j]] * share


@kernel
def take_best(
    boxes: Ptr, lowered: Ptr, order: PtrI64, numbers: PtrI64, out: Ptr, index: PtrI32, count: PtrI32, images: Int, n: Int, classes: Int,
    rows: Int, least: Real,
):  # fmt: skip
    """out = class, score and box of the best candidates of each image, the best first; what is taken is lowered to below the least."""
    for i in range(images):
        found = 0
        for r in range(i * rows, (i + 1) * rows):
            # Candidates' scores have changed their order by being lowered, so the best is looked for anew for every row.
            which, at = -1, -1
            for c in range(classes):
                for j in range((i * classes + c) * n, (i * classes + c) * n + numbers[i * classes + c]):
                    if lowered[j] > least and (at < 0 or lowered[j] > lowered[at]):
                        which, at = c, j
            index[r] = -1
            out[6 * r] = T(which)
            for d in range(5):
                out[6 * r + 1 + d] = T(0)
            if at >= 0:
                p = i * n + order[at]
                index[r] = p
                out[6 * r + 1] = lowered[at]
                for d in range(4):
                    out[6 * r + 2 + d] = boxes[4 * p + d]
                # Below the threshold, so that it is not found again.
                lowered[at] = T(least) - T(1)
                found += 1
        count[i] = found


@op(
    "padded_matrix_nms",
    inputs="BBoxes Scores",
    floats="BBoxes Scores",
    outputs="Out Index Count",
    traits=[FindsBoxes("Out")],
    attrs={
        "background_label": Attr(0, "class that is none; -1: there is none"),
        "score_threshold": Attr(0.0, "only higher scores count"),
        "post_threshold": Attr(0.0, "only higher scores are kept after they are lowered"),
        "nms_top_k": Attr(-1, "most boxes of a class that are looked at, the best first; -1: all"),
        "keep_top_k": Attr(1, "detections of an image at most, which are its rows"),
        "normalized": Attr(True, "boxes are parts of the image; else pixels, the last one inside"),
        "use_gaussian": Attr(False, "lower scores by a Gaussian of the overlaps, not linearly"),
        "gaussian_sigma": Attr(2.0, "factor in its exponent"),
    },
    differentiable="",
    samples=[
        Sample(
            {"BBoxes": lambda rng: drawn_boxes(rng, 2, 8), "Scores": lambda rng: rng.uniform(0, 1, (2, 3, 8))},
            {"score_threshold": 0.2, "post_threshold": 0.1, "nms_top_k": 6, "keep_top_k": 5}, "two images",
        ),
        Sample(
            {"BBoxes": lambda rng: drawn_boxes(rng, 1, 3), "Scores": lambda rng: rng.uniform(0, 1, (1, 1, 3))},
            {"keep_top_k": 7, "background_label": -1, "use_gaussian": True}, "more rows than boxes, by a Gaussian",
        ),
        Sample({"BBoxes": (0, 4, 4), "Scores": (0, 2, 4)}, {"keep_top_k": 2}, "no image"),
    ],
)  # fmt: skip
def padded_matrix_nms(
    boxes: TensorType,
    scores: TensorType,
    *,
    background_label: int,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    normalized: bool,
    use_gaussian: bool,
    gaussian_sigma: float,
) -> tuple[TensorType, TensorType, TensorType]:
    """Lower the score of every box by how much it overlaps better ones of its class, and keep the best, in rows that every image has.

    Args:
        BBoxes: [images, boxes, 4] float32 or float64: left, top, right, bottom.
        Scores: [images, classes, boxes] element type of BBoxes.

    Returns:
        Out: [images, keep_top_k, 6]: class, score and box, by falling score; rows behind the last one have class -1.
        Index: [images, keep_top_k] int32: place of each among the boxes of all images; -1 behind the last one.
        Count: [images, 1] int32: how many there are.

    Raises:
        PeError: types that do not fit, or keep_top_k below 1.

    Source:
        fluid.layers.matrix_nms, of which this has the detections; Wang et al. 2020, "SOLOv2", section 3.3.
    """
    del background_label, score_threshold, post_threshold, nms_top_k, normalized, use_gaussian, gaussian_sigma
    return kept_rows("padded_matrix_nms", boxes, scores, keep_top_k)


@padded_matrix_nms.lower("cpu")
def padded_matrix_nms_cpu(o: Lowering) -> None:
    """Image by image, class by class."""
    boxes, scores, out, a = o.input("BBoxes"), o.input("Scores"), o.output("Out"), o.attrs
    images, classes, n = scores.shape
    if not out.size:
        return
    most = n if a["nms_top_k"] < 0 else min(n, a["nms_top_k"])
    lowered, largest = (o.scratch(scores.size, scores.dtype) for _ in range(2))
    order, numbers = o.scratch(scores.size, "int64"), o.scratch(images * classes, "int64")
    o.call(
        lower_scores, boxes, scores, lowered, largest, order, numbers, images, n, classes, a["background_label"], a["score_threshold"],
        most, int(a["use_gaussian"]), a["gaussian_sigma"], 0.0 if a["normalized"] else 1.0,
    )  # fmt: skip
    o.call(
        take_best, boxes, lowered, order, numbers, out, o.output("Index"), o.output("Count"), images, n, classes, a["keep_top_k"],
        a["post_threshold"],
    )  # fmt: skip


deal(lower_scores, take_best)
also_on_cuda(padded_matrix_nms)
