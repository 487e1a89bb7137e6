"""padded_proposals: generate_proposals with as many rows for every image as it may find, so that it runs in the step, on any device."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI32, PtrI64, Real, T, helper, kernel
from pe_cli.kernels.math.vector_math import exp
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.define.sorting import sort_places
from pe_cli.ops.detection.generate_proposals import ATTRS, LARGEST, SAMPLES, generate_proposals
from pe_cli.ops.detection.padded_nms import box_overlap


@helper
def _move(deltas, info, around, variances, boxes, at, i, place, anchors, area, least):
    """Write where an anchor is moved to, inside the image, as box number `at`, and return whether that is large enough."""
    k, pixel = place % anchors, place // anchors
    high, wide, scale = info[3 * i], info[3 * i + 1], info[3 * i + 2]
    fits = 1
    for d in range(2):
        low, end = around[4 * place + d], around[4 * place + 2 + d]
        side = end - low + T(1)
        by = deltas[(i * 4 * anchors + 4 * k + d) * area + pixel] * variances[4 * place + d]
        more = deltas[(i * 4 * anchors + 4 * k + 2 + d) * area + pixel] * variances[4 * place + 2 + d]
        centre = low + side / T(2) + by * side
        half = exp(min(more, T(LARGEST))) * side / T(2)
        whole = wide if d == 0 else high
        a = max(min(centre - half, whole - T(1)), T(0))
        b = max(min(centre + half - T(1), whole - T(1)), T(0))
        boxes[4 * at + d] = a
        boxes[4 * at + 2 + d] = b
        # Written as "not (...)": a box of NaN does not fit.
        if not ((b - a) / scale + T(1) >= least and a + (b - a + T(1)) / T(2) <= whole):
            fits = 0
    return fits


@helper
def _turn_equals(placed, base, order, at, most):
    """Put places of one score in the opposite order."""
    first = 0
    while first < most:
        end = first + 1
        s = placed[base + order[at + first]]
        while end < most and placed[base + order[at + end]] == s:
            end += 1
        for k in range((end - first) // 2):
            one, other = at + first + k, at + end - 1 - k
            order[one], order[other] = order[other], order[one]
        first = end


@kernel
def propose(  # noqa: C901, PLR0912 (loops over images, candidates and those that are kept)
    scores: Ptr, deltas: Ptr, info: Ptr, around: Ptr, variances: Ptr, rois: Ptr, probs: Ptr, count: PtrI32, order: PtrI64, placed: Ptr,
    kept: Ptr, images: Int, anchors: Int, area: Int, most: Int, rows: Int, threshold: Real, least: Real, eta: Real,
):  # fmt: skip
    """rois = the best boxes of each image that overlap no better one much.

    placed: scores by place; places count the anchors of a pixel first, scores have the pixels of an anchor first. kept: 4 numbers for
    every row, and 4 for the next box.
    """
    # Scores lie [anchors, pixels], while ties are broken by place with the anchors of a pixel first: scores are copied into that order
    # once.
    n = anchors * area
    for i in range(images):
        at = i * n
        for p in range(n):
            order[at + p] = p
            placed[at + p] = scores[(i * anchors + p % anchors) * area + p // anchors]
        sort_places(placed, at, order, at, n)
        # Non-maximum suppression of the original takes the last of equal scores first; without it, its sort takes the first.
        if threshold > T(0):
            _turn_equals(placed, at, order, at, most)
        found, limit = 0, threshold
        first = i * (rows + 1)
        for k in range(most):
            if found == rows:
                break
            place = order[at + k]
            # A candidate is written directly behind the boxes that are kept: keeping it is counting it, and the next one overwrites it
            # otherwise.
            here = first + found
            if _move(deltas, info, around, variances, kept, here, i, place, anchors, area, least) == 0:
                continue
            fits = 1
            if threshold > T(0):
                for j in range(found):
                    if box_overlap(kept, here, first + j, T(1)) > limit:
                        fits = 0
                        break
            if fits == 0:
                continue
            for d in range(4):
                rois[4 * (i * rows + found) + d] = kept[4 * here + d]
            probs[i * rows + found] = placed[at + place]
            found += 1
            if eta < T(1) and limit > T(0.5):
                limit *= eta
        count[i] = found
        for r in range(i * rows + found, (i + 1) * rows):
            probs[r] = T(0)
            for d in range(4):
                rois[4 * r + d] = T(0)


@op(
    "padded_proposals",
    inputs="Scores BboxDeltas ImInfo Anchors Variances",
    outputs="RpnRois RpnRoiProbs Count",
    attrs={**ATTRS, "post_nms_topN": Attr(1000, "boxes of an image at most, which are its rows")},
    differentiable="",
    samples=SAMPLES,
)
def padded_proposals(
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
    """Choose the best boxes of a region proposal network, in rows of one number for all images.

    Args:
        Scores: [images, anchors, height, width] float32 or float64.
        BboxDeltas: [images, 4 anchors, height, width] element type of Scores: moves of the centre in sides, logarithms of the sides.
        ImInfo: [images, 3] element type of Scores: height, width and scale of the network's input.
        Anchors: [height, width, anchors, 4] element type of Scores.
        Variances: type of Anchors: what the differences are multiplied with.

    Returns:
        RpnRois: [images, post_nms_topN, 4] element type of Scores: left, top, right, bottom, by falling score; zeros behind the last one.
        RpnRoiProbs: [images, post_nms_topN, 1] element type of Scores: their scores, 0 behind the last one.
        Count: [images, 1] int32: how many there are.

    Raises:
        PeError: types that do not fit, or post_nms_topN below 1.

    Source:
        fluid.layers.generate_proposals; Ren et al. 2015, "Faster R-CNN", section 3.
    """
    facts = {"pre_nms_topN": pre_nms_topN, "post_nms_topN": post_nms_topN, "nms_thresh": nms_thresh, "min_size": min_size, "eta": eta}
    generate_proposals.infer(scores, deltas, info, anchors, variances, **facts)  # type: ignore[misc]
    if post_nms_topN < 1:
        raise PeError(f"padded_proposals needs post_nms_topN of at least 1, got {post_nms_topN}", hint="how many rows every image gets")
    sizes = (*scores.shape[2:], scores.shape[1])
    if min(sizes) < 1:
        raise PeError(f"padded_proposals: anchors, height and width of {scores} are not known", hint="declare the feed with its sizes")
    if anchors.shape != (*sizes, 4) or variances.shape != anchors.shape:
        text = f"Anchors and Variances must be [{sizes[0]}, {sizes[1]}, {sizes[2]}, 4] for Scores {scores}"
        raise PeError(f"padded_proposals: {text}; got {anchors} and {variances}")
    images = scores.shape[0]
    return (
        scores.with_shape(images, post_nms_topN, 4), scores.with_shape(images, post_nms_topN, 1), TensorType((images, 1), "int32"),
    )  # fmt: skip


@padded_proposals.lower("cpu")
def padded_proposals_cpu(o: Lowering) -> None:
    """Image by image."""
    scores, rois, a = o.input("Scores"), o.output("RpnRois"), o.attrs
    images, anchors, high, wide = scores.shape
    if not rois.size:
        return
    n, rows = anchors * high * wide, a["post_nms_topN"]
    most = min(n, a["pre_nms_topN"]) if a["pre_nms_topN"] > 0 else n
    inputs = (scores, *(o.input(slot) for slot in ("BboxDeltas", "ImInfo", "Anchors", "Variances")))
    order, placed = o.scratch(scores.size, "int64"), o.scratch(scores.size, scores.dtype)
    kept = o.scratch(images * (rows + 1) * 4, scores.dtype)
    o.call(
        propose, *inputs, rois, o.output("RpnRoiProbs"), o.output("Count"), order, placed, kept, images, anchors, high * wide,
        most, rows, a["nms_thresh"], max(a["min_size"], 1.0), a["eta"],
    )  # fmt: skip


deal(propose)
also_on_cuda(padded_proposals)
