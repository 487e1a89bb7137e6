"""retinanet_detection_output: detections from the levels of RetinaNet. Only values tell how many: it runs on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.lod import HostRun
from pe_cli.ops.define.onnx import PADDED, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.detection.nms import packed
from pe_cli.ops.detection.overlaps import Array, best, strongest, suppress


def _anchors(rng: np.random.Generator) -> Array:
    low = rng.uniform(0, 18, (5, 2))
    return np.concatenate([low, low + rng.uniform(4, 12, (5, 2))], 1)


@op(
    "retinanet_detection_output",
    inputs="BBoxes* Scores* Anchors* ImInfo",
    attrs={
        "score_threshold": Attr(0.05, "only higher scores count; on the last level, all do"),
        "nms_top_k": Attr(1000, "most boxes of a level that are looked at; -1: all"),
        "keep_top_k": Attr(100, "most detections of an image; -1: all"),
        "nms_threshold": Attr(0.3, "a box is dropped that overlaps a better one by more"),
        "nms_eta": Attr(1.0, "below 1: what nms_threshold is multiplied by after each box that is kept, while it is above 0.5"),
    },
    differentiable="",
    samples=[
        Sample(
            {
                "BBoxes": [(1, 5, 4), (1, 5, 4)],
                "Scores": [lambda rng: rng.uniform(0, 1, (1, 5, 2)), lambda rng: rng.uniform(0, 1, (1, 5, 2))],
                "Anchors": [_anchors, _anchors],
                "ImInfo": lambda rng: np.array([[32.0, 40.0, 1.0]]),
            },
            name="two levels",
        )
    ],
)
def retinanet_detection_output(
    boxes: Sequence[TensorType],
    scores: Sequence[TensorType],
    anchors: Sequence[TensorType],
    info: TensorType,
    *,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float,
    nms_eta: float,
) -> TensorType:
    """Take the best boxes of every level, and keep of every class those that overlap no better one much.

    Args:
        BBoxes: of each level [images, boxes, 4]: differences from the anchors, float32 or float64.
        Scores: of each level [images, boxes, classes], from 0 to 1.
        Anchors: of each level [boxes, 4]: left, top, right, bottom, in pixels, the last ones inside.
        ImInfo: [images, 3]: height, width and scale of the network's input.

    Returns:
        Out: [detections, 6]: class from 1 on, score and box in pixels of the image before it was scaled, by falling score; a
            sequence for each image.

    Raises:
        PeError: types that do not fit, or not as many levels.

    Source:
        fluid.layers.retinanet_detection_output; Lin et al. 2017, "Focal loss for dense object detection", section 4.
    """
    del score_threshold, nms_top_k, keep_top_k, nms_threshold, nms_eta
    if not len(boxes) == len(scores) == len(anchors) or not boxes:
        levels = f"{len(boxes)}, {len(scores)} and {len(anchors)}"
        raise PeError(f"retinanet_detection_output needs boxes, scores and anchors of every level, got {levels} levels")
    for b, s, a in zip(boxes, scores, anchors, strict=True):
        if len(b.shape) != 3 or b.shape[2] != 4 or len(s.shape) != 3 or a.shape[1:] != (4,) or not b.dtype == s.dtype == a.dtype:
            raise PeError(
                "retinanet_detection_output needs a level's boxes [images, boxes, 4], scores [images, boxes, classes] and anchors "
                f"[boxes, 4] of one element type, got {b}, {s} and {a}"
            )
    if info.shape[1:] != (3,):
        raise PeError(f"retinanet_detection_output needs ImInfo [images, 3], got {info}")
    return boxes[0].with_shape(-1, 6)


def _decode(deltas: Array, anchors: Array, info: Array) -> Array:
    """Return boxes in pixels of the image."""
    sizes = anchors[:, 2:] - anchors[:, :2] + 1
    centres = deltas[:, :2] * sizes + anchors[:, :2] + sizes / 2
    half = np.exp(deltas[:, 2:]) * sizes / 2
    # Boxes leave in pixels of the image before it was scaled, which is what detections are reported in.
    found = np.concatenate([centres - half, centres + half - 1], 1) / info[2]
    high, wide = np.floor(info[:2] / info[2] + 0.5)
    cut: Array = np.clip(found, 0, np.array([wide, high, wide, high]) - 1).astype(deltas.dtype)
    return cut


@retinanet_detection_output.host_run
def retinanet_detection_output_host(run: HostRun) -> dict[str, list[Any]]:
    """Image by image."""
    boxes, scores, anchors = ([v.array for v in run.values[slot]] for slot in ("BBoxes", "Scores", "Anchors"))
    info, a = run.one("ImInfo"), run.attrs
    made: list[Any] = []
    for i in range(len(info)):
        rows: list[Array] = []
        labels: list[Array] = []
        for level, (b, s, anchor) in enumerate(zip(boxes, scores, anchors, strict=True)):
            # The coarsest level has no threshold but 0, so that an image of low scores still has candidates, as in the original.
            least = a["score_threshold"] if level + 1 < len(boxes) else 0.0
            flat = s[i].ravel()
            order = best(flat, least, a["nms_top_k"])
            # Scores lie [boxes, classes]; a place among them names both.
            place = order // s.shape[2]
            rows.append(np.concatenate([flat[order, None], _decode(b[i][place], anchor[place], info[i])], 1))
            labels.append(order % s.shape[2])
        every, label = np.concatenate(rows), np.concatenate(labels)
        kept: dict[int, list[int]] = {}
        for c in np.unique(label).tolist():
            own = np.flatnonzero(label == c)
            order = own[np.argsort(-every[own, 0], kind="stable")]
            kept[c] = suppress(every[:, 1:], order, a["nms_threshold"], a["nms_eta"], normalized=False)
        kept = strongest(kept, lambda c, p, every=every: every[p, 0], a["keep_top_k"])
        # Scores have no column for the background, which is class 0 of the output.
        lines = [[c + 1, *every[p]] for c in sorted(kept) for p in kept[c]]
        made.append((sorted(lines, key=lambda line: -line[1]), []))
    return {"Out": packed(made, boxes[0], 6, none=False)["Out"]}
not_in_onnx(PADDED, "retinanet_detection_output")
