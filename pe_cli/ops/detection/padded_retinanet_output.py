"""padded_retinanet_output: retinanet_detection_output with as many rows for every image as it may find, so that it runs in the step."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI32, PtrI64, Real, T, helper, kernel
from pe_cli.kernels.math.vector_math import exp
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering, Numbers
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.sorting import sort_places
from pe_cli.ops.define.traits import FindsBoxes
from pe_cli.ops.detection.padded_nms import box_overlap
from pe_cli.ops.detection.retinanet import retinanet_detection_output


@helper
def _decode(deltas, anchors, info, boxes, at, i, place, p):
    """Write the box of a place, in pixels of the image before it was scaled, as box number `at`; p is its anchor."""
    for d in range(2):
        low, end = anchors[4 * p + d], anchors[4 * p + 2 + d]
        side, scale = end - low + T(1), info[3 * i + 2]
        centre = deltas[4 * place + d] * side + low + side / T(2)
        half = exp(deltas[4 * place + 2 + d]) * side / T(2)
        # ImInfo is height, width, scale: x is bounded by the width, number 1, and y by the height, number 0. The input's size over the
        # scale is the image's.
        most = T(math.floor(info[3 * i + 1 - d] / scale + T(0.5)) - 1)
        boxes[4 * at + d] = max(min((centre - half) / scale, most), T(0))
        boxes[4 * at + 2 + d] = max(min((centre + half - T(1)) / scale, most), T(0))


@kernel
def find_retinanet(  # noqa: C901, PLR0912 (loops over images, levels and candidates)
    deltas: Ptr, scores: Ptr, anchors: Ptr, info: Ptr, ends: PtrI64, out: Ptr, count: PtrI32, level: PtrI64, label: PtrI64,
    order: PtrI64, kept: PtrI64, limits: Ptr, value: Ptr, boxes: Ptr, images: Int, n: Int, classes: Int, levels: Int, M: Int, rows: Int,
    least: Real, most: Int, threshold: Real, eta: Real,
):  # fmt: skip
    """Out = class, score and box of what is kept of each image, by falling score. M candidates for each at most; the rest is scratch."""
    for i in range(images):
        first, m = i * M, 0
        for k in range(levels):
            begin, size, here = (i * n + ends[k]) * classes, (ends[k + 1] - ends[k]) * classes, i * n * classes
            found = 0
            for e in range(size):
                # The coarsest level has no threshold but 0, as in the original: an image has candidates even where every score is low.
                if scores[begin + e] > (least if k + 1 < levels else T(0)):
                    level[here + found] = e
                    found += 1
            sort_places(scores, begin, level, here, found)
            for f in range(min(found, most)):
                e = level[here + f]
                p = ends[k] + e // classes
                label[first + m] = e % classes
                value[first + m] = scores[begin + e]
                # Decoded only once it is a candidate: most anchors never are.
                _decode(deltas, anchors, info, boxes, first + m, i, i * n + p, p)
                order[first + m] = m
                m += 1
        sort_places(value, first, order, first, m)
        # eta lowers the threshold of a class each time that one of its boxes is kept.
        for c in range(classes):
            limits[i * classes + c] = threshold
        found = 0
        for f in range(m):
            if found == rows:
                break
            e = first + order[first + f]
            fits = 1
            for j in range(found):
                other = kept[i * rows + j]
                if label[other] == label[e] and not box_overlap(boxes, e, other, T(1)) <= limits[i * classes + label[e]]:
                    fits = 0
                    break
            if fits == 0:
                continue
            kept[i * rows + found] = e
            r = 6 * (i * rows + found)
            # Scores have no column for the background, which is class 0 of the output.
            out[r] = T(label[e] + 1)
            out[r + 1] = value[e]
            for d in range(4):
                out[r + 2 + d] = boxes[4 * e + d]
            found += 1
            if eta < T(1) and limits[i * classes + label[e]] > T(0.5):
                limits[i * classes + label[e]] *= eta
        count[i] = found
        for e in range(i * rows + found, (i + 1) * rows):
            out[6 * e] = T(-1)
            for d in range(5):
                out[6 * e + 1 + d] = T(0)


def _anchors(rng):
    low = rng.uniform(0, 18, (7, 2))
    return np.concatenate([low, low + rng.uniform(4, 12, (7, 2))], 1)


@op(
    "padded_retinanet_output",
    inputs="BBoxes Scores Anchors ImInfo",
    outputs="Out Count",
    traits=[FindsBoxes("Out")],
    attrs={
        **retinanet_detection_output.attrs,
        "keep_top_k": Attr(100, "detections of an image at most, which are its rows"),
        "sections": Attr([1], "boxes of each level"),
    },
    differentiable="",
    samples=[
        Sample(
            {
                "BBoxes": (2, 7, 4), "Scores": lambda rng: rng.uniform(0, 1, (2, 7, 2)), "Anchors": _anchors,
                "ImInfo": lambda rng: np.array([[32.0, 40.0, 1.0], [30.0, 30.0, 1.5]]),
            },
            {"sections": [4, 3], "keep_top_k": 5, "nms_top_k": 6}, "two levels",
        )
    ],
)  # fmt: skip
def padded_retinanet_output(
    boxes: TensorType,
    scores: TensorType,
    anchors: TensorType,
    info: TensorType,
    *,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float,
    nms_eta: float,
    sections: list[int],
) -> tuple[TensorType, TensorType]:
    """Take the best boxes of every level as `retinanet_detection_output` does, in rows of one number for all images.

    Args:
        BBoxes: [images, boxes, 4] float32 or float64: differences from the anchors, of all levels, one level after the other.
        Scores: [images, boxes, classes] element type of BBoxes, from 0 to 1.
        Anchors: [boxes, 4] element type of BBoxes: left, top, right, bottom, in pixels, the last ones inside.
        ImInfo: [images, 3] element type of BBoxes: height, width and scale of the network's input.

    Returns:
        Out: [images, keep_top_k, 6]: class from 1 on, score and box in pixels of the image before it was scaled, by falling score; rows
            behind the last one have class -1.
        Count: [images, 1] int32: how many there are.

    Raises:
        PeError: types that do not fit, or keep_top_k below 1.

    Source:
        fluid.layers.retinanet_detection_output; Lin et al. 2017, "Focal Loss for Dense Object Detection", section 4.
    """
    del score_threshold, nms_top_k, nms_threshold, nms_eta
    name, n = "retinanet_detection_output", sum(sections)
    fits = boxes.shape[1:] == (n, 4) and len(scores.shape) == 3 and scores.shape[1] == n and anchors.shape == (n, 4)
    if not fits or boxes.dtype not in FLOATS or not boxes.dtype == scores.dtype == anchors.dtype:
        needs = "a level's boxes [images, boxes, 4], scores [images, boxes, classes] and anchors [boxes, 4] of one element type"
        raise PeError(f"{name} needs {needs}, got {boxes}, {scores} and {anchors} of all levels")
    if info.shape[1:] != (3,) or info.dtype != boxes.dtype:
        raise PeError(f"{name} needs im_info [images, 3] {boxes.dtype}, got {info}")
    if keep_top_k < 1:
        raise PeError(f"{name} needs keep_top_k of at least 1, got {keep_top_k}", hint="how many rows every image gets")
    return boxes.with_shape(boxes.shape[0], keep_top_k, 6), TensorType((boxes.shape[0], 1), "int32")


@padded_retinanet_output.lower("cpu")
def padded_retinanet_output_cpu(o: Lowering) -> None:
    """Image by image."""
    scores, out, a = o.input("Scores"), o.output("Out"), o.attrs
    images, n, classes = scores.shape
    if not out.size:
        return
    sections = a["sections"]
    most = a["nms_top_k"] if a["nms_top_k"] >= 0 else n * classes
    wide = sum(min(most, k * classes) for k in sections)
    level, label, order, kept = (o.scratch(images * k, "int64") for k in (n * classes, wide, wide, a["keep_top_k"]))
    limits, value, boxes = (o.scratch(images * k, scores.dtype) for k in (classes, wide, 4 * wide))
    o.call(
        find_retinanet, o.input("BBoxes"), scores, o.input("Anchors"), o.input("ImInfo"), Numbers((0, *accumulate(sections))), out,
        o.output("Count"), level, label, order, kept, limits, value, boxes, images, n, classes, len(sections), wide, a["keep_top_k"],
        a["score_threshold"], most, a["nms_threshold"], a["nms_eta"],
    )  # fmt: skip


deal(find_retinanet)
also_on_cuda(padded_retinanet_output)
