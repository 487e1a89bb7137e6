"""The greedy choice of boxes that overlap no better one much, in ONNX: a Loop where NonMaxSuppression lacks what is asked for."""

from __future__ import annotations

import numpy as np

from pe_cli.core.types import TensorType
from pe_cli.ops.define.onnx import Writer, element_type


def columns(o: Writer, x: str, first: int, last: int) -> str:
    """Return numbers of the last axis."""
    return o.node("Slice", [x, o.const([first]), o.const([last]), o.const([-1])])


def every(o: Writer, flags: str, axis: int = -1) -> str:
    """Return whether all flags of an axis hold, which goes."""
    found = o.node("ReduceMin", [o.node("Cast", [flags], to_=element_type("int32")), o.const([axis])], keepdims=0)
    return o.node("Cast", [found], to_=element_type("bool"))


def at_places(o: Writer, x: str, places: str) -> str:
    """Return rows [images, places, ...] of [images, rows, ...]."""
    return o.node("GatherND", [x, o.node("Unsqueeze", [places, o.const([-1])])], batch_dims=1)


def first_true(o: Writer, flags: str, n: int, rows: int) -> tuple[str, str]:
    """Return the places of the first flags that hold, [images, rows], 0 behind the last one; and whether there is one.

    Args:
        o: gets the nodes.
        flags: [images, n] bool.
        n: see there.
        rows: see there.
    """
    # The earlier a place, the larger its key, and 0 where the flag does not hold: the largest keys are the first places.
    key = o.node("Where", [flags, o.const(np.arange(n, 0, -1).reshape(1, -1)), o.const(0)])
    left, places = o.fresh(), o.fresh()
    o.nodes("TopK", [key, o.const([min(n, rows)])], [left, places], axis=1)
    if rows > n:
        left = o.node("Pad", [left, o.const([0, 0, 0, rows - n])])
    there = o.node("Greater", [left, o.const(0)])
    return o.node("Where", [there, o.node("Sub", [o.const(n), left]), o.const(0)]), there


def filled(o: Writer, like: str, value: float, *sizes: int, dtype: str) -> str:
    """Return [images, *sizes] of one value, images as another has."""
    images = o.node("Shape", [like], start=0, end=1)
    return o.node("Expand", [o.const(value, dtype=dtype), o.node("Concat", [images, o.const(list(sizes))], axis=0)])


def detections(o: Writer, there: str, label: str, score: str, corners: str, kind: TensorType) -> None:
    """Write Out, rows of a class, a score and a box, of class -1 where there is none; and Count.

    Args:
        o: gets them.
        there: [images, rows] bool.
        label: [images, rows] whole numbers.
        score: [images, rows].
        corners: [images, rows, 4].
        kind: has the element type.
    """
    flag, label, score = (o.node("Unsqueeze", [v, o.const([2])]) for v in (there, label, score))
    parts = [(o.node("Cast", [label], to_=element_type(kind.computed.dtype)), -1.0), (score, 0.0), (corners, 0.0)]
    o.node("Concat", [o.node("Where", [flag, v, o.const(other, dtype=kind.dtype)]) for v, other in parts], to="Out", axis=2)
    count(o, there)


def count(o: Writer, there: str) -> None:
    """Write Count, where it is wanted: how many flags [images, rows] of each image hold."""
    if o.wanted("Count"):
        o.node("ReduceSum", [o.node("Cast", [there], to_=element_type("int32")), o.const([1])], to="Count", keepdims=1)


def places_of_batch(o: Writer, there: str, places: str, n: int) -> None:
    """Write Index, where it is wanted: places [images, rows] among the n boxes of each image as places among those of all, -1 for none."""
    if o.wanted("Index"):
        # The number of images is known in the run only, so the first place of each is a running sum instead of a constant.
        first = o.node("CumSum", [filled(o, places, n, 1, dtype="int64"), o.const(0)], exclusive=1)
        at = o.node("Where", [there, o.node("Add", [places, first]), o.const(-1)])
        o.node("Cast", [at], to="Index", to_=element_type("int32"))


def kept_apart(
    o: Writer, boxes: str, fits: str, kind: TensorType, n: int, rows: int, *, threshold: float, eta: float, one: float, nan: bool,
    labels: str = "", classes: int = 1,
) -> str:  # fmt: skip
    """Return which boxes are kept, [images, n] bool: one round for each box, until every image has its rows.

    Args:
        o: gets the nodes.
        boxes: [images, n, 4], the best first.
        fits: [images, n] bool: what may be kept at all.
        kind: has their element type.
        n: see there.
        rows: boxes of an image at most.
        threshold: a box is dropped that overlaps one that is kept by more.
        eta: below 1: what that is multiplied by after each box that is kept, while it is above 0.5.
        one: what belongs to a side beside the difference of its ends.
        nan: an overlap that is no number drops a box.
        labels: [images, n] int64: only boxes of one class are held against each other, each class with a threshold of its own.
        classes: how many there are.
    """
    inside, dtype = o.inside(), kind.dtype
    # Loop states: the boxes that are kept so far, how many these are, the thresholds (a column for each class), and the kept boxes'
    # classes.
    number, flag = (inside.fresh(), TensorType((), "int64")), (inside.fresh(), TensorType((), "bool"))
    held = [
        (inside.fresh(), TensorType((-1, rows, 4), dtype)), (inside.fresh(), TensorType((-1, 1), "int64")),
        (inside.fresh(), TensorType((-1, classes), dtype)), *([(inside.fresh(), TensorType((-1, rows), "int64"))] if labels else []),
    ]  # fmt: skip
    (kept, found, limits, *known), slots = [name for name, _ in held], o.const(np.arange(rows).reshape(1, -1))
    k = inside.node("Unsqueeze", [number[0], o.const([0])])
    box, fit, *own = (inside.node("Gather", [v, k], axis=1) for v in (boxes, fits, *([labels] if labels else [])))
    limit = inside.node("GatherElements", [limits, own[0]], axis=1) if labels else limits
    overlap = overlaps(inside, box, kept, o.const(one, dtype=dtype), o.const(0, dtype=dtype))
    # A NaN overlap counts as too much where the op's kernel compares so.
    bad = inside.node("Not", [inside.node("LessOrEqual", [overlap, limit])]) if nan else inside.node("Greater", [overlap, limit])
    # Slots behind `found` hold zeros that are no boxes.
    bad = inside.node("And", [bad, inside.node("Less", [slots, found])])
    if labels:
        bad = inside.node("And", [bad, inside.node("Equal", [known[0], own[0]])])
    good = every(inside, inside.node("Not", [bad]))
    keep = inside.node("And", [fit, inside.node("Unsqueeze", [good, o.const([1])])])
    # The next free slot of every image; where the box is not kept, no slot is written.
    here = inside.node("And", [keep, inside.node("Equal", [slots, found])])
    after = [
        inside.node("Where", [inside.node("Unsqueeze", [here, o.const([2])]), box, kept]),
        inside.node("Add", [found, inside.node("Cast", [keep], to_=element_type("int64"))]),
        limits, *([inside.node("Where", [here, own[0], known[0]])] if labels else []),
    ]  # fmt: skip
    if eta < 1:
        falls = inside.node("And", [keep, inside.node("Greater", [limits, o.const(0.5, dtype=dtype)])])
        if labels:
            falls = inside.node("And", [falls, inside.node("Equal", [o.const(np.arange(classes).reshape(1, -1)), own[0]])])
        after[2] = inside.node("Where", [falls, inside.node("Mul", [limits, o.const(eta, dtype=dtype)]), limits])
    # The condition is common to all images: rounds go on until the slowest one has its rows, and for the others every box then finds no
    # free slot.
    fewest = inside.node("ReduceMin", [after[1]], keepdims=0)
    again = inside.node("Less", [fewest, o.const(rows)])
    states = [(name, kind) for name, (_, kind) in zip(after, held, strict=True)]
    body = inside.body([number, flag, *held], [(again, flag[1]), *states, (keep, TensorType((-1, 1), "bool"))])
    begin = [filled(o, boxes, v, *kind.shape[1:], dtype=kind.dtype) for v, (_, kind) in zip((0, 0, threshold, -1), held, strict=False)]
    made, flags = [o.fresh() for _ in begin], o.fresh()
    o.nodes("Loop", [o.const(n), o.const(True, dtype="bool"), *begin], [*made, flags], body=body)
    # Rounds that were not needed gave no flags; their boxes are not kept.
    left = o.node("Sub", [o.const([n]), o.node("Shape", [flags], start=0, end=1)])
    rest = o.node("Concat", [left, o.node("Shape", [boxes], start=0, end=1), o.const([1])], axis=0)
    whole = o.node("Concat", [flags, o.node("Expand", [o.const(False, dtype="bool"), rest])], axis=0)
    return o.node("Transpose", [o.node("Squeeze", [whole, o.const([2])])], perm=[1, 0])


def overlaps(o: Writer, box: str, others: str, one: str, none: str) -> str:
    """Return the area of boxes [..., 1, 4] and of others [..., rows, 4] by that of either, 0 for those apart: [..., rows]."""
    low = o.node("Max", [columns(o, box, 0, 2), columns(o, others, 0, 2)])
    sides = o.node("Sub", [o.node("Min", [columns(o, box, 2, 4), columns(o, others, 2, 4)]), low])
    meet, both = _area(o, sides, one, none)
    areas = [_area(o, o.node("Sub", [columns(o, v, 2, 4), columns(o, v, 0, 2)]), one, none)[1] for v in (box, others)]
    either = o.node("Sub", [o.node("Add", areas), both])
    return o.node("Where", [meet, o.node("Div", [both, either]), none])


def _area(o: Writer, sides: str, one: str, none: str) -> tuple[str, str]:
    """Return whether sides [..., 2] are at least 0, and their area, 0 where they are not."""
    there = every(o, o.node("GreaterOrEqual", [sides, none]))
    area = o.node("ReduceProd", [o.node("Add", [sides, one]), o.const([-1])], keepdims=0)
    return there, o.node("Where", [there, area, none])
