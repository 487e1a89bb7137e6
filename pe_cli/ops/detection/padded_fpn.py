"""padded_fpn_levels, padded_fpn_best: boxes of a feature pyramid, by level and together, in rows of one number for all images."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI32, PtrI64, T, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering, Numbers
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.sorting import sort_places
from pe_cli.ops.detection.fpn_proposals import distribute_fpn_proposals


@helper
def _level(rois, at, low, high, refer, scale):
    """Return the level of a box; doubling and halving its side are exact."""
    w, h = rois[at + 2] - rois[at], rois[at + 3] - rois[at + 1]
    side = T(math.sqrt((w + T(1)) * (h + T(1)))) / T(scale) if w >= T(0) and h >= T(0) else T(0)
    # Instead of floor(log2(...)): a logarithm may round across the border of two levels, and differently on a card.
    level = refer
    while side >= T(2) and level < high:
        side /= T(2)
        level += 1
    while side < T(1) and level > low:
        side *= T(2)
        level -= 1
    return min(max(level, low), high)


@kernel
def take_level(
    rois: Ptr, out: Ptr, restore: PtrI32, images: Int, n: Int, level: Int, low: Int, high: Int, refer: Int, scale: Int
):
    """out = the boxes of a level, those of each image first; restore = where each is among the rows of all levels."""
    # One call per level, since a kernel has a fixed number of outputs while levels are an attribute. Boxes keep their order inside a level.
    for i in range(images):
        found = i * n
        for e in range(i * n, (i + 1) * n):
            if _level(rois, 4 * e, low, high, refer, scale) == level:
                for d in range(4):
                    out[4 * found + d] = rois[4 * e + d]
                # Rows are counted over all levels of all images, one level after the other, as later ops join them.
                restore[e] = (level - low) * images * n + found
                found += 1
        for e in range(4 * found, 4 * (i + 1) * n):
            out[e] = T(0)


def _boxes(*shape):
    def draw(rng):
        low = rng.uniform(0, 200, (*shape, 2))
        return np.concatenate([low, low + rng.uniform(0, 200, (*shape, 2))], -1)

    return draw


@op(
    "padded_fpn_levels",
    inputs="FpnRois",
    outputs="MultiFpnRois* RestoreIndex",
    attrs=dict(distribute_fpn_proposals.attrs),
    differentiable="",
    samples=[
        Sample({"FpnRois": _boxes(2, 5)}, {"min_level": 2, "max_level": 4, "refer_level": 3, "refer_scale": 60}, "two images",
               outputs={"MultiFpnRois": 3}),
        Sample({"FpnRois": (0, 3, 4)}, {"min_level": 2, "max_level": 3}, "no image", outputs={"MultiFpnRois": 2}),
    ],
)  # fmt: skip
def padded_fpn_levels(
    rois: TensorType, *, min_level: int, max_level: int, refer_level: int, refer_scale: int
) -> tuple[list[TensorType], TensorType]:
    """Give every box to the level of a feature pyramid that its size asks for, as `distribute_fpn_proposals` does.

    Args:
        FpnRois: [images, rows, 4] float32 or float64: left, top, right, bottom.

    Returns:
        MultiFpnRois: for each level [images, rows, 4]: its boxes of each image in their order, zeros behind the last one.
        RestoreIndex: [images rows, 1] int32: where each box is among the rows of all levels, one level after the other.

    Raises:
        PeError: types that do not fit, or levels that do not rise.

    Source:
        fluid.layers.distribute_fpn_proposals; Lin et al. 2017, "Feature Pyramid Networks", eq. 1.
    """
    if len(rois.shape) != 3 or rois.shape[2] != 4 or rois.dtype not in FLOATS:
        raise PeError(f"distribute_fpn_proposals needs boxes [images, rows, 4], left, top, right, bottom, got {rois}")
    if min_level > max_level or refer_scale < 1:
        levels = f"levels {min_level} to {max_level}, refer_scale {refer_scale}"
        raise PeError(f"distribute_fpn_proposals: {levels}", hint="levels that rise, and a scale of at least 1")
    del refer_level
    images, n = rois.shape[:2]
    return [rois] * (max_level - min_level + 1), TensorType((-1 if -1 in (images, n) else images * n, 1), "int32")


@padded_fpn_levels.lower("cpu")
def padded_fpn_levels_cpu(o: Lowering) -> None:
    """One pass for each level."""
    rois, a = o.input("FpnRois"), o.attrs
    if rois.size:
        for k, out in enumerate(o.outputs("MultiFpnRois")):
            facts = (a["min_level"], a["max_level"], a["refer_level"], a["refer_scale"])
            o.call(take_level, rois, out, o.output("RestoreIndex"), *rois.shape[:2], a["min_level"] + k, *facts)


# --- collect_fpn_proposals --------------------------------------------------------------------------------------------


@kernel
def rank_boxes(
    scores: Ptr, counts: PtrI32, ends: PtrI64, order: PtrI64, found: PtrI64, images: Int, n: Int, levels: Int, counted: Int
):
    """order = the boxes that there are of each image, by falling score; found: how many."""
    for i in range(images):
        m = 0
        for k in range(levels):
            most = ends[k + 1] - ends[k]
            if counted:
                most = min(most, counts[i * levels + k])
            for e in range(most):
                order[i * n + m] = ends[k] + e
                m += 1
        found[i] = m
        sort_places(scores, i * n, order, i * n, m)


@helper
def _goes_first(scores, ends, order, n, levels, i, p, j, q):
    """Return whether the box at p of image i's order goes before that at q of j's: where scores are equal, that of the finer level."""
    a, b = order[i * n + p], order[j * n + q]
    s, t = scores[i * n + a], scores[j * n + b]
    if s != t:
        return s > t
    for k in range(levels):
        if a < ends[k + 1] or b < ends[k + 1]:
            return a < ends[k + 1] and (b >= ends[k + 1] or i < j)
    return False


@kernel
def keep_best(
    rois: Ptr, scores: Ptr, ends: PtrI64, order: PtrI64, found: PtrI64, next: PtrI64, out: Ptr, count: PtrI32, images: Int, n: Int,
    rows: Int, most: Int, levels: Int,
):  # fmt: skip
    """out = boxes of each image among the best `most` of all images; next: scratch for images of each image."""
    # Every image repeats the whole merge and keeps its own part of it. That is images times the work, but no thread waits for another, and
    # images are few.
    for i in range(images):
        at = i * images
        for j in range(images):
            next[at + j] = 0
        # Each image's boxes are sorted, so the best that is left of all images is the best of their next ones.
        for _ in range(most):
            which = -1
            for j in range(images):
                if next[at + j] < found[j] and (
                    which < 0 or _goes_first(scores, ends, order, n, levels, j, next[at + j], which, next[at + which])
                ):
                    which = j
            if which < 0:
                break
            next[at + which] += 1
        count[i] = next[at + i]
        for r in range(rows):
            for d in range(4):
                out[4 * (i * rows + r) + d] = rois[4 * (i * n + order[i * n + r]) + d] if r < next[at + i] else T(0)


@op(
    "padded_fpn_best",
    inputs="Rois Scores Counts?",
    outputs="FpnRois Count",
    attrs={
        "sections": Attr([1], "rows of each level, the finest first"),
        "post_nms_topN": Attr(1000, "boxes of the whole batch at most"),
    },
    differentiable="",
    samples=[
        Sample(
            {"Rois": _boxes(2, 5), "Scores": lambda rng: rng.uniform(0, 1, (2, 5, 1)),
             "Counts": lambda rng: np.array([[3, 1], [2, 2]], "int32")},
            {"sections": [3, 2], "post_nms_topN": 4}, "two levels",
        ),
        Sample({"Rois": _boxes(1, 3), "Scores": lambda rng: rng.uniform(0, 1, (1, 3, 1))}, {"sections": [3]}, "one level"),
    ],
)  # fmt: skip
def padded_fpn_best(
    rois: TensorType, scores: TensorType, counts: TensorType | None, *, sections: list[int], post_nms_topN: int
) -> tuple[TensorType, TensorType]:
    """Put the boxes of all levels of a feature pyramid together that have the best scores, as `collect_fpn_proposals` does.

    Args:
        Rois: [images, rows, 4] float32 or float64: those of all levels, one level after the other.
        Scores: [images, rows, 1] element type of Rois.
        Counts: [images, levels] int32: how many rows of each level are boxes; all where it is left out.

    Returns:
        FpnRois: [images, the smaller of post_nms_topN and rows, 4] type of Rois: the best boxes first; of equal scores the one of the finer
            level; zeros behind the last one.
        Count: [images, 1] int32: how many there are.

    Raises:
        PeError: types that do not fit, or post_nms_topN below 1.

    Source:
        fluid.layers.collect_fpn_proposals.
    """
    name, n = "collect_fpn_proposals", sum(sections)
    fits = len(rois.shape) == 3 and rois.shape[1:] == (n, 4) and scores.shape[1:] == (n, 1) and scores.dtype == rois.dtype
    if not fits or rois.dtype not in FLOATS or min(sections) < 0:
        needs = f"boxes [images, rows, 4] and scores [images, rows, 1] of levels of {sections} rows"
        raise PeError(f"{name} needs {needs}, got {rois} and {scores}")
    if counts is not None and (counts.shape[1:] != (len(sections),) or counts.dtype != "int32"):
        raise PeError(f"{name} needs counts [images, 1] int32 of every level, got {counts} of all")
    if post_nms_topN < 1:
        raise PeError(f"{name} needs post_nms_top_n of at least 1, got {post_nms_topN}")
    return rois.with_shape(rois.shape[0], min(n, post_nms_topN), 4), TensorType((rois.shape[0], 1), "int32")


@padded_fpn_best.lower("cpu")
def padded_fpn_best_cpu(o: Lowering) -> None:
    """Sort each image's boxes, then merge until there are enough."""
    rois, scores, out, sections = o.input("Rois"), o.input("Scores"), o.output("FpnRois"), o.attrs["sections"]
    if not out.size:
        return
    images, n = rois.shape[:2]
    ends = Numbers((0, *accumulate(sections)))
    order, found, following = (o.scratch(k, "int64") for k in (images * n, images, images * images))
    counts = o.input("Counts") if o.inputs("Counts") else o.scratch(1, "int32")
    o.call(rank_boxes, scores, counts, ends, order, found, images, n, len(sections), int(bool(o.inputs("Counts"))))
    o.call(
        keep_best, rois, scores, ends, order, found, following, out, o.output("Count"), images, n, out.shape[1], o.attrs["post_nms_topN"],
        len(sections),
    )  # fmt: skip


deal(take_level, rank_boxes, keep_best)
also_on_cuda(padded_fpn_levels, padded_fpn_best)
