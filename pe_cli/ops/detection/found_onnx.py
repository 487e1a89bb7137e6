"""yolo_box and padded_nms in ONNX: pointwise nodes, and NonMaxSuppression between two TopK."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx

#: Boxes of a class at most: as many as there are.
_ALL = 2**31 - 1


@in_onnx("yolo_box")
def yolo_box_onnx(o: Writer) -> None:
    """Numbers of a cell apart: [batch, anchors, numbers, cells].

    Raises:
        PeError: a grid whose size is not known.
    """
    a, kind = o.attrs, o.type()
    rows, columns = kind.shape[2:]
    if rows < 0 or columns < 0:
        raise PeError(f"yolo_box in ONNX needs a grid whose size is known, got {kind}", hint="give the image a size")
    count = len(a["anchors"]) // 2
    anchors = np.array(a["anchors"], float).reshape(1, count, 1, 2)
    cells = np.arange(rows * columns).reshape(1, 1, 1, -1)
    parts = o.node("Reshape", [o.x(), o.const([0, count, 5 + a["class_num"], rows * columns])])

    def part(of: str, first: int, last: int, axis: int = 2) -> str:
        return o.node("Slice", [of, o.const([first]), o.const([last]), o.const([axis])])

    def two(operation: str, x: str, y: str | float | np.ndarray) -> str:
        return o.node(operation, [x, y if isinstance(y, str) else o.const(y, "X")])

    sure = o.node("Sigmoid", [part(parts, 4, 5)])
    keep = o.node("GreaterOrEqual", [sure, o.const(a["conf_thresh"], "X")])
    image = o.node("Reshape", [o.node("Cast", [o.x("ImgSize")], to_=element_type(kind.computed.dtype)), o.const([-1, 2, 1, 1])])
    middles, halves = [], []
    for at, place, size in ((0, cells % columns, columns), (1, cells // columns, rows)):
        pixels = part(image, 1 - at, 2 - at, 1)
        moved = two("Mul", o.node("Sigmoid", [part(parts, at, at + 1)]), a["scale_x_y"])
        moved = two("Add", moved, place - 0.5 * (a["scale_x_y"] - 1.0))
        middles.append(two("Div", two("Mul", moved, pixels), float(size)))
        wide = two("Mul", o.node("Exp", [part(parts, 2 + at, 3 + at)]), anchors[..., at : at + 1] / (a["downsample_ratio"] * size))
        halves.append(two("Div", two("Mul", wide, pixels), 2.0))
    low = [two("Sub", m, h) for m, h in zip(middles, halves, strict=True)]
    high = [two("Add", m, h) for m, h in zip(middles, halves, strict=True)]
    if a["clip_bbox"]:
        low = [two("Max", v, 0.0) for v in low]
        high = [two("Min", v, two("Sub", part(image, 1 - at, 2 - at, 1), 1.0)) for at, v in enumerate(high)]
    scores = two("Mul", o.node("Sigmoid", [part(parts, 5, 5 + a["class_num"])]), sure)
    for found, size, to in ((o.node("Concat", [*low, *high], axis=2), 4, "Boxes"), (scores, a["class_num"], "Scores")):
        kept = o.node("Where", [keep, found, o.const(0.0, "X")])
        o.node("Reshape", [o.node("Transpose", [kept], perm=[0, 1, 3, 2]), o.const([0, count * rows * columns, size])], to=to)


@in_onnx("padded_nms")
def padded_nms_onnx(o: Writer) -> None:
    """What is kept stays in a map of all scores, the rest of it is minus infinity; the best of the map are the rows.

    Raises:
        PeError: an attribute that NonMaxSuppression lacks, or scores whose classes or boxes are not known.
    """
    a, kind = o.attrs, o.type("Scores")
    classes, boxes, never = kind.shape[1], o.x("BBoxes"), o.const(-np.inf, "Scores")
    if a["nms_eta"] < 1 or not a["normalized"]:
        why = "nms_eta below 1" if a["nms_eta"] < 1 else "boxes in pixels whose last one is inside"
        raise PeError(f"padded_nms has no form in ONNX with {why}: NonMaxSuppression does not have it", hint="nms_eta: 1, normalized: true")
    if classes < 0 or kind.shape[2] < 0:
        raise PeError(f"padded_nms in ONNX needs Scores with known classes and boxes, got {kind}")
    n, rows = kind.shape[2], a["keep_top_k"]
    looked = scores = o.x("Scores")
    if 0 <= a["background_label"] < classes:
        none = np.arange(classes).reshape(1, -1, 1) == a["background_label"]
        looked = o.node("Where", [o.const(none, dtype="bool"), never, looked])
    lowest = o.node("Expand", [never, o.node("Shape", [scores])])
    if 0 <= a["nms_top_k"] < n:
        best, places = o.fresh(), o.fresh()
        o.nodes("TopK", [looked, o.const([a["nms_top_k"]])], [best, places], axis=2)
        looked = o.node("ScatterElements", [lowest, places, best], axis=2)
    single = [o.node("Cast", [v], to_=element_type("float32")) for v in (boxes, looked)]
    limits = [o.const([a[name]], dtype="float32") for name in ("nms_threshold", "score_threshold")]
    kept = o.node("NonMaxSuppression", [*single, o.const([_ALL]), *limits])
    seen = o.node("ScatterND", [lowest, kept, o.node("GatherND", [scores, kept])])
    spare = np.full((1, rows), -np.inf)  # rows of an image at least
    flat = o.node("Reshape", [seen, o.const([-1, classes * n])])
    counted = o.node("Slice", [o.node("Shape", [flat]), o.const([0]), o.const([1])])
    padded = o.node("Expand", [o.const(spare, "Scores"), o.node("Concat", [counted, o.const([rows])], axis=0)])
    best, places = o.fresh(), o.fresh()
    o.nodes("TopK", [o.node("Concat", [flat, padded], axis=1), o.const([rows])], [best, places], axis=1)
    # by class, and those of one class as they are
    number = o.node("Div", [places, o.const(n)])
    order = o.node("Add", [o.node("Mul", [number, o.const(rows)]), o.const(np.arange(rows).reshape(1, -1))])
    ranks, turn = o.fresh(), o.fresh()
    o.nodes("TopK", [order, o.const([rows])], [ranks, turn], axis=1, largest=0)
    best, number, places = (o.node("GatherElements", [v, turn], axis=1) for v in (best, number, places))
    valid = o.node("Greater", [best, never])
    place = o.node("Where", [valid, o.node("Mod", [places, o.const(n)]), o.const(0)])
    each = [o.node("Unsqueeze", [v, o.const([2])]) for v in (valid, number, best, place)]
    corners = o.node("GatherND", [boxes, each[3]], batch_dims=1)
    there = element_type(kind.computed.dtype)
    parts = [(o.node("Cast", [each[1]], to_=there), -1.0), (each[2], 0.0), (corners, 0.0)]
    o.node("Concat", [o.node("Where", [each[0], v, o.const(other, "Scores")]) for v, other in parts], to="Out", axis=2)
    if o.wanted("Index"):
        each_image = o.node("Expand", [o.const([[n]]), o.node("Concat", [counted, o.const([1])], axis=0)])
        first = o.node("CumSum", [each_image, o.const(0)], exclusive=1)
        at = o.node("Where", [valid, o.node("Add", [place, first]), o.const(-1)])
        o.node("Cast", [at], to="Index", to_=element_type("int32"))
    if o.wanted("Count"):
        o.node("ReduceSum", [o.node("Cast", [valid], to_=element_type("int32")), o.const([1])], to="Count", keepdims=1)
