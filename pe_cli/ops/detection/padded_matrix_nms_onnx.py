"""padded_matrix_nms and padded_retinanet_output in ONNX."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.detection.nms_onnx import (
    at_places,
    columns,
    detections,
    first_true,
    kept_apart,
    overlaps,
    places_of_batch,
)


@in_onnx("padded_matrix_nms")
def padded_matrix_nms_onnx(o: Writer) -> None:
    """All pairs of a class's candidates at once; then the best of all classes.

    Raises:
        PeError: scores whose classes or boxes are not known.
    """
    a, kind, like = o.attrs, o.type("Scores"), "Scores"
    _, classes, n = kind.shape
    if classes < 0 or n < 0:
        raise PeError(f"padded_matrix_nms in ONNX needs Scores with known classes and boxes, got {kind}")
    most, rows, never = min(a["nms_top_k"], n) if a["nms_top_k"] >= 0 else n, a["keep_top_k"], o.const(-np.inf, like)
    looked = np.arange(classes).reshape(1, -1, 1) != a["background_label"]
    best, places = o.fresh(), o.fresh()
    o.nodes("TopK", [o.node("Where", [o.const(looked, dtype="bool"), o.x("Scores"), never]), o.const([most])], [best, places], axis=2)
    boxes = at_places(o, o.x("BBoxes"), places)
    one_of, other = (o.node("Unsqueeze", [boxes, o.const([axis])]) for axis in (3, 2))
    found = overlaps(o, one_of, other, o.const(0.0 if a["normalized"] else 1.0, like), o.const(0, like))
    better = o.const(np.triu(np.ones((most, most)), 1), dtype="bool")  # the box of the row goes before the box of the column
    largest = o.node("ReduceMax", [o.node("Where", [better, found, o.const(0, like)]), o.const([2])], keepdims=0)
    own, one = o.node("Unsqueeze", [largest, o.const([3])]), o.const(1, like)
    if a["use_gaussian"]:
        squares = [o.node("Mul", [v, v]) for v in (own, found)]
        share = o.node("Exp", [o.node("Mul", [o.node("Sub", squares), o.const(a["gaussian_sigma"], like)])])
    else:
        share = o.node("Div", [o.node("Sub", [one, found]), o.node("Sub", [one, own])])
        share = o.node("Where", [o.node("Less", [own, one]), share, one])
    least = o.node("ReduceMin", [o.node("Where", [better, share, one]), o.const([2])], keepdims=0)
    lowered = o.node("Mul", [best, o.node("Min", [least, one])])
    sure = [o.node("Greater", [v, o.const(a[name], like)]) for v, name in ((best, "score_threshold"), (lowered, "post_threshold"))]
    lowered = o.node("Where", [o.node("And", sure), lowered, never])
    flat = o.node("Reshape", [lowered, o.const([-1, classes * most])])
    if rows > classes * most:
        flat = o.node("Pad", [flat, o.const([0, 0, 0, rows - classes * most]), never])
    score, at = o.fresh(), o.fresh()
    o.nodes("TopK", [flat, o.const([rows])], [score, at], axis=1)
    there = o.node("Greater", [score, never])
    at = o.node("Where", [there, at, o.const(0)])
    place = o.node("GatherElements", [o.node("Reshape", [places, o.const([-1, classes * most])]), at], axis=1)
    detections(o, there, o.node("Div", [at, o.const(most)]), score, at_places(o, o.x("BBoxes"), place), kind)
    places_of_batch(o, there, place, n)


@in_onnx("padded_retinanet_output")
def padded_retinanet_output_onnx(o: Writer) -> None:
    """The best of each level, then a round for each of them.

    Raises:
        PeError: scores whose classes are not known.
    """
    a, kind = o.attrs, o.type("Scores")
    classes, never, ends = kind.shape[2], o.const(-np.inf, "Scores"), list(pairwise((0, *accumulate(a["sections"]))))
    if classes < 0:
        raise PeError(f"retinanet_detection_output in ONNX needs scores of known classes, got {kind}")
    values, places = [], []
    for begin, end in ends:
        size = (end - begin) * classes
        level = o.node("Slice", [o.x("Scores"), o.const([begin]), o.const([end]), o.const([1])])
        level = o.node("Reshape", [level, o.const([-1, size])])
        sure = o.node("Greater", [level, o.const(0.0 if end == ends[-1][1] else a["score_threshold"], "Scores")])
        best, at = o.fresh(), o.fresh()
        most = min(a["nms_top_k"], size) if a["nms_top_k"] >= 0 else size
        o.nodes("TopK", [o.node("Where", [sure, level, never]), o.const([most])], [best, at], axis=1)
        values.append(best)
        places.append(o.node("Add", [at, o.const(begin * classes)]))
    best, order, m = o.fresh(), o.fresh(), sum(min(a["nms_top_k"] if a["nms_top_k"] >= 0 else 2**62, (e - b) * classes) for b, e in ends)
    o.nodes("TopK", [o.node("Concat", values, axis=1), o.const([m])], [best, order], axis=1)
    place = o.node("GatherElements", [o.node("Concat", places, axis=1), order], axis=1)
    label, boxes = o.node("Mod", [place, o.const(classes)]), _decoded(o, o.node("Div", [place, o.const(classes)]))
    fits = o.node("Greater", [best, never])
    kept = kept_apart(
        o, boxes, fits, kind, m, a["keep_top_k"], threshold=a["nms_threshold"], eta=a["nms_eta"], one=1.0, nan=True, labels=label,
        classes=classes,
    )  # fmt: skip
    chosen, there = first_true(o, kept, m, a["keep_top_k"])
    label, score = (o.node("GatherElements", [v, chosen], axis=1) for v in (label, best))
    detections(o, there, o.node("Add", [label, o.const(1)]), score, at_places(o, boxes, chosen), kind)


def _decoded(o: Writer, places: str) -> str:
    """Return the boxes of anchors at [images, candidates], in pixels of the image before it was scaled."""
    one, two = o.const(1, "Scores"), o.const(2, "Scores")
    deltas, anchors = at_places(o, o.x("BBoxes"), places), o.node("Gather", [o.x("Anchors"), places])
    low, end = columns(o, anchors, 0, 2), columns(o, anchors, 2, 4)
    side = o.node("Add", [o.node("Sub", [end, low]), one])
    middle = o.node("Add", [o.node("Add", [o.node("Mul", [columns(o, deltas, 0, 2), side]), low]), o.node("Div", [side, two])])
    half = o.node("Div", [o.node("Mul", [o.node("Exp", [columns(o, deltas, 2, 4)]), side]), two])
    info = o.node("Unsqueeze", [o.x("ImInfo"), o.const([1])])
    scale = columns(o, info, 2, 3)
    sizes = o.node("Div", [o.node("Gather", [info, o.const([1, 0])], axis=2), scale])
    most = o.node("Sub", [o.node("Floor", [o.node("Add", [sizes, o.const(0.5, "Scores")])]), one])
    edges = o.node("Sub", [middle, half]), o.node("Sub", [o.node("Add", [middle, half]), one])
    cut = [o.node("Max", [o.node("Min", [o.node("Div", [v, scale]), most]), o.const(0, "Scores")]) for v in edges]
    return o.node("Concat", cut, axis=2)
