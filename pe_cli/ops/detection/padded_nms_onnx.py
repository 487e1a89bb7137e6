"""yolo_box and padded_nms in ONNX: pointwise nodes, and NonMaxSuppression, or a Loop that can do more, between two TopK."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.detection.nms_onnx import at_places, columns, detections, every, kept_apart, places_of_batch

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
    # ImgSize is height, then width, while boxes are x, then y: hence 1 - at below.
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


def _best(o: Writer, looked: str, most: int) -> tuple[str, str]:
    """Return the best scores of each class, and their places."""
    best, places = o.fresh(), o.fresh()
    o.nodes("TopK", [looked, o.const([most])], [best, places], axis=2)
    return best, places


def _kept_by_node(o: Writer, looked: str, lowest: str, most: int) -> str:
    """Return the map of all scores by NonMaxSuppression."""
    if most < o.type("Scores").shape[2]:
        best, places = _best(o, looked, most)
        # Only the best `most` of each class may be kept; all others count as never found.
        looked = o.node("ScatterElements", [lowest, places, best], axis=2)
    # The node takes float32 alone, whatever the op's element type; the scores that are kept are taken from the original ones.
    single = [o.node("Cast", [v], to_=element_type("float32")) for v in (o.x("BBoxes"), looked)]
    limits = [o.const([o.attrs[name]], dtype="float32") for name in ("nms_threshold", "score_threshold")]
    kept = o.node("NonMaxSuppression", [*single, o.const([_ALL]), *limits])
    return o.node("ScatterND", [lowest, kept, o.node("GatherND", [o.x("Scores"), kept])])


def _kept_by_either(o: Writer, looked: str, lowest: str, most: int) -> str:
    """Return the map of all scores by the node where every box has an area: it turns boxes over, and keeps a point as often as it comes."""
    boxes, kind = o.x("BBoxes"), o.type("Scores")
    sides = o.node("Sub", [columns(o, boxes, 2, 4), columns(o, boxes, 0, 2)])
    flat = o.node("Reshape", [o.node("Greater", [sides, o.const(0, "BBoxes")]), o.const([-1])])
    flat = o.node("Concat", [flat, o.const([True], dtype="bool")], axis=0)  # there may be no box
    node, rounds, found = o.inside(), o.inside(), o.fresh()
    yes = node.body([], [(_kept_by_node(node, looked, lowest, most), kind)])
    no = rounds.body([], [(_kept_by_rounds(rounds, looked, lowest, most), kind)])
    o.nodes("If", [every(o, flat, 0)], [found], then_branch=yes, else_branch=no)
    return found


def _kept_by_rounds(o: Writer, looked: str, lowest: str, most: int) -> str:
    """Return the map of all scores where NonMaxSuppression has no such threshold, or no such boxes."""
    a, kind = o.attrs, o.type("Scores")
    best, places = _best(o, looked, most)
    boxes = o.node("Reshape", [at_places(o, o.x("BBoxes"), places), o.const([-1, most, 4])])
    fits = o.node("Reshape", [o.node("Greater", [best, o.const(a["score_threshold"], "Scores")]), o.const([-1, most])])
    one = 0.0 if a["normalized"] else 1.0
    # Every class of every image is a row of its own here, so one Loop serves all classes.
    kept = kept_apart(o, boxes, fits, kind, most, most, threshold=a["nms_threshold"], eta=a["nms_eta"], one=one, nan=True)
    kept = o.node("Reshape", [kept, o.node("Shape", [best])])
    return o.node("ScatterElements", [lowest, places, o.node("Where", [kept, best, o.const(-np.inf, "Scores")])], axis=2)


@in_onnx("padded_nms")
def padded_nms_onnx(o: Writer) -> None:
    """What is kept stays in a map of all scores, the rest of it is minus infinity; the best of the map are the rows.

    Raises:
        PeError: scores whose classes or boxes are not known.
    """
    a, kind = o.attrs, o.type("Scores")
    classes, boxes, never = kind.shape[1], o.x("BBoxes"), o.const(-np.inf, "Scores")
    if classes < 0 or kind.shape[2] < 0:
        raise PeError(f"padded_nms in ONNX needs Scores with known classes and boxes, got {kind}")
    n = kind.shape[2]
    looked = scores = o.x("Scores")
    if 0 <= a["background_label"] < classes:
        none = np.arange(classes).reshape(1, -1, 1) == a["background_label"]
        looked = o.node("Where", [o.const(none, dtype="bool"), never, looked])
    lowest = o.node("Expand", [never, o.node("Shape", [scores])])
    most = min(a["nms_top_k"], n) if a["nms_top_k"] >= 0 else n
    rounds = a["nms_eta"] < 1 or not a["normalized"]
    seen = _kept_by_rounds(o, looked, lowest, most) if rounds else _kept_by_either(o, looked, lowest, most)
    detections_of_map(o, seen, boxes)


def detections_of_map(o: Writer, seen: str, boxes: str) -> None:
    """Write the best of a map of all scores [images, classes, boxes] as the op's rows.

    Args:
        o: writer of the operator, whose Scores have known classes and boxes.
        seen: scores, minus infinity for what is not kept.
        boxes: [images, boxes, 4].
    """
    rows, kind = o.attrs["keep_top_k"], o.type("Scores")
    _, classes, n = kind.shape
    never = o.const(-np.inf, "Scores")
    # TopK cannot take more than there is: a map of fewer scores than rows is filled up with scores that no box has.
    spare = np.full((1, rows), -np.inf)  # rows of an image at least
    flat = o.node("Reshape", [seen, o.const([-1, classes * n])])
    counted = o.node("Slice", [o.node("Shape", [flat]), o.const([0]), o.const([1])])
    padded = o.node("Expand", [o.const(spare, "Scores"), o.node("Concat", [counted, o.const([rows])], axis=0)])
    best, places = o.fresh(), o.fresh()
    o.nodes("TopK", [o.node("Concat", [flat, padded], axis=1), o.const([rows])], [best, places], axis=1)
    # by class, and those of one class as they are; what is not there goes last
    number = o.node("Where", [o.node("Greater", [best, never]), o.node("Div", [places, o.const(n)]), o.const(classes)])
    order = o.node("Add", [o.node("Mul", [number, o.const(rows)]), o.const(np.arange(rows).reshape(1, -1))])
    ranks, turn = o.fresh(), o.fresh()
    o.nodes("TopK", [order, o.const([rows])], [ranks, turn], axis=1, largest=0)
    best, number, places = (o.node("GatherElements", [v, turn], axis=1) for v in (best, number, places))
    valid = o.node("Greater", [best, never])
    place = o.node("Where", [valid, o.node("Mod", [places, o.const(n)]), o.const(0)])
    detections(o, valid, number, best, at_places(o, boxes, place), kind)
    places_of_batch(o, valid, place, n)
