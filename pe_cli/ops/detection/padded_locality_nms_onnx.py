"""padded_locality_nms in ONNX: a Loop over boxes merges neighbours, class by class; then boxes are kept apart."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.detection.nms_onnx import at_places, filled, kept_apart, overlaps
from pe_cli.ops.detection.padded_nms_onnx import detections_of_map


def _merged(o: Writer, boxes: str, scores: str, kind: TensorType, n: int, one: float) -> tuple[str, str]:
    """Return boxes [images, n, 4] with neighbours merged, and scores [images, n], minus infinity for what is gone."""
    inside, dtype = o.inside(), kind.dtype
    number, flag = (inside.fresh(), TensorType((), "int64")), (inside.fresh(), TensorType((), "bool"))
    held = [
        (inside.fresh(), TensorType((-1, n, 4), dtype)), (inside.fresh(), TensorType((-1, n), dtype)),
        (inside.fresh(), TensorType((-1, 1), "int64")),
    ]  # fmt: skip
    (moved, added, last), slots = [name for name, _ in held], o.const(np.arange(n).reshape(1, -1))
    k = inside.node("Unsqueeze", [number[0], o.const([0])])
    before = inside.node("Max", [last, o.const(0)])
    box, other = inside.node("Gather", [moved, k], axis=1), at_places(inside, moved, before)
    overlap = overlaps(inside, box, other, o.const(one, dtype=dtype), o.const(0, dtype=dtype))
    merge = inside.node("Greater", [overlap, o.const(o.attrs["nms_threshold"], dtype=dtype)])
    merge = inside.node("And", [merge, inside.node("GreaterOrEqual", [last, o.const(0)])])
    score, total = inside.node("Gather", [added, k], axis=1), inside.node("GatherElements", [added, before], axis=1)
    both = inside.node("Add", [total, score])
    weighted = [
        inside.node("Mul", [v, inside.node("Unsqueeze", [s, o.const([2])])]) for v, s in ((box, score), (other, total))
    ]
    mean = inside.node("Div", [inside.node("Add", weighted), inside.node("Unsqueeze", [both, o.const([2])])])
    here = inside.node("And", [merge, inside.node("Equal", [slots, before])])
    gone = inside.node("And", [merge, inside.node("Equal", [slots, k])])
    kept = inside.node("Where", [gone, o.const(-np.inf, dtype=dtype), inside.node("Where", [here, both, added])])
    after = [
        inside.node("Where", [inside.node("Unsqueeze", [here, o.const([2])]), mean, moved]), kept,
        inside.node("Where", [merge, last, inside.node("Expand", [k, inside.node("Shape", [last])])]),
    ]  # fmt: skip
    body = inside.body([number, flag, *held], [flag, *((name, kind) for name, (_, kind) in zip(after, held, strict=True))])
    made = [o.fresh() for _ in held]
    nobody = filled(o, boxes, -1, 1, dtype="int64")
    o.nodes("Loop", [o.const(n), o.const(True, dtype="bool"), boxes, scores, nobody], made, body=body)
    return made[0], made[1]


@in_onnx("padded_locality_nms")
def padded_locality_nms_onnx(o: Writer) -> None:
    """Boxes that are merged for one class are so for the classes after it.

    Raises:
        PeError: scores whose classes or boxes are not known.
    """
    a, kind, boxes, never = o.attrs, o.type("Scores"), o.x("BBoxes"), o.const(-np.inf, "Scores")
    _, classes, n = kind.shape
    if min(classes, n) < 0:
        raise PeError(f"padded_locality_nms in ONNX needs Scores with known classes and boxes, got {kind}")
    most = min(a["nms_top_k"], n) if a["nms_top_k"] >= 0 else n
    one, maps = 0.0 if a["normalized"] else 1.0, []
    for label in range(classes):
        scores = o.node("Gather", [o.x("Scores"), o.const(label)], axis=1)
        lowest = o.node("Expand", [never, o.node("Shape", [scores])])
        if label == a["background_label"]:
            maps.append(lowest)
            continue
        boxes, scores = _merged(o, boxes, scores, kind, n, one)
        best, places = o.fresh(), o.fresh()
        o.nodes("TopK", [scores, o.const([most])], [best, places], axis=1)
        fits = o.node("Greater", [best, o.const(a["score_threshold"], "Scores")])
        kept = kept_apart(
            o, at_places(o, boxes, places), fits, kind, most, most, threshold=a["nms_threshold"], eta=a["nms_eta"], one=one, nan=True
        )
        maps.append(o.node("ScatterElements", [lowest, places, o.node("Where", [kept, best, never])], axis=1))
    seen = o.node("Concat", [o.node("Unsqueeze", [m, o.const([1])]) for m in maps], axis=1)
    detections_of_map(o, seen, boxes)
