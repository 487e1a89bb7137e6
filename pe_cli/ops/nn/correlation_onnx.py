"""correlation, rank_attention and similarity_focus in ONNX."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.onnx import Writer, in_onnx


@in_onnx("correlation")
def correlation_onnx(o: Writer) -> None:
    """Products with every shift of the other image are channels, of which windows are averaged.

    Raises:
        PeError: images whose size is not known.
    """
    a, (_, _, height, width), (_, _, rows, columns) = o.attrs, o.type("Input1").shape, o.out_type().shape
    if min(height, width) < 0:
        raise PeError(f"correlation has an ONNX form for known sizes alone, got {o.type('Input1')}", hint="give the feed's shape")
    step, reach, size, stride = a["stride2"], a["max_displacement"] // a["stride2"], a["kernel_size"], a["stride1"]
    begin, edge = a["max_displacement"] - a["pad_size"], reach * step
    both = o.const([2, 3])

    # Padding may be negative in ONNX; here it is cut to at least 0, and what is too much is sliced off below.
    def padded(x: str, before: int, down: int, along: int) -> str:
        return o.node("Pad", [x, o.const([before, before, down, along]), "", both])

    other, found = padded(o.x("Input2"), edge, edge, edge), []
    for down in range(0, 2 * edge + 1, step):
        for along in range(0, 2 * edge + 1, step):
            moved = o.node("Slice", [other, o.const([down, along]), o.const([down + height, along + width]), both])
            product = o.node("Mul", [o.x("Input1"), moved])
            found.append(o.node("ReduceMean", [product, o.const([1])], keepdims=1))
    # Shifts become channels in the order of the op: down outside, along inside.
    shifts = o.node("Concat", found, axis=1)
    ends = [(n - 1) * stride + size + begin for n in (rows, columns)]
    # Windows begin at max_displacement - pad_size, which may lie outside the image: only then zeros are put around.
    before = max(-begin, 0)
    wide = padded(shifts, before, *(max(end - s, 0) for end, s in zip(ends, (height, width), strict=True)))
    cut = o.node("Slice", [wide, o.const([begin + before] * 2), o.const([end + before for end in ends]), both])
    o.node("AveragePool", [cut], to="Out", kernel_shape=[size, size], strides=[stride, stride])


@in_onnx("rank_attention")
def rank_attention_onnx(o: Writer) -> None:
    """Every pair of rows has a matrix of its own."""
    most, (_, width), size = o.attrs["MaxRank"], o.type().shape, o.out_type().shape[1]
    # 7 is int64 in ONNX: Gather and arithmetic on places want it.
    ranks = o.node("Cast", [o.x("RankOffset")], to_=7)
    own = o.node("Slice", [ranks, o.const([0]), o.const([1]), o.const([1])])
    other, row = (o.node("Gather", [ranks, o.const(np.arange(most) * 2 + k)], axis=1) for k in (1, 2))
    zero = o.const(0)
    there = o.node("And", [o.node("Greater", [own, zero]), o.node("Greater", [other, zero])])
    pair = o.node("Add", [o.node("Mul", [o.node("Sub", [own, o.const(1)]), o.const(most)]), o.node("Sub", [other, o.const(1)])])
    # A pair that is not there takes matrix and row 0 and is set to 0 below, since Gather needs an index that exists.
    pair, row = (o.node("Where", [there, v, zero]) for v in (pair, row))
    weights = o.node("Gather", [o.node("Reshape", [o.x("RankParam"), o.const([most * most, width, size])]), pair])
    seen = o.node("Unsqueeze", [o.node("Gather", [o.x(), row]), o.const([2])])
    each = o.node("Squeeze", [o.node("MatMul", [seen, weights]), o.const([2])])
    each = o.node("Where", [o.node("Unsqueeze", [there, o.const([2])]), each, o.const(0, "X")])
    o.node("ReduceSum", [each, o.const([1])], to="Out", keepdims=0)


@in_onnx("similarity_focus")
def similarity_focus_onnx(o: Writer) -> None:
    """A Loop for each slice takes the largest element that is left, as long as there are rows and columns."""
    kind, axis = o.type(), o.attrs["axis"]
    rows, columns = (size for k, size in enumerate(kind.shape) if k not in (0, axis))
    slots = [o.const(np.arange(n).reshape(shape)) for n, shape in ((rows, (1, -1, 1)), (columns, (1, 1, -1)))]
    marks = []
    for index in o.attrs["indexes"]:
        values = o.node("Gather", [o.x(), o.const(index)], axis=axis)
        inside, flag = o.inside(), TensorType((-1, rows, columns), "bool")
        number, goes = (inside.fresh(), TensorType((), "int64")), (inside.fresh(), TensorType((), "bool"))
        free, marked = inside.fresh(), inside.fresh()
        # Rows and columns that are taken lose against every number.
        left = inside.node("Where", [free, values, o.const(-np.inf, "X")])
        best = inside.node("ArgMax", [inside.node("Reshape", [left, o.const([-1, rows * columns])])], axis=1, keepdims=1)
        best = inside.node("Unsqueeze", [best, o.const([2])])
        here = [inside.node("Equal", [s, inside.node(k, [best, o.const(columns)])]) for s, k in zip(slots, ("Div", "Mod"), strict=True)]
        after = [
            inside.node("And", [free, inside.node("Not", [inside.node("Or", here)])]),
            inside.node("Or", [marked, inside.node("And", here)]),
        ]
        # `goes` is handed on as it came: the Loop ends by its count, the smaller side of the slice.
        body = inside.body([number, goes, (free, flag), (marked, flag)], [goes, *((n, flag) for n in after)])
        none = o.node("Expand", [o.const(False, dtype="bool"), o.node("Shape", [values])])
        made = [o.fresh(), o.fresh()]
        start = [o.const(min(rows, columns)), o.const(True, dtype="bool"), o.node("Not", [none]), none]
        o.nodes("Loop", start, made, body=body)
        marks.append(made[1])
    found = marks[0]
    for more in marks[1:]:
        found = o.node("Or", [found, more])
    wide = o.node("Unsqueeze", [found, o.const([axis])])
    o.node("Where", [o.node("Expand", [wide, o.node("Shape", [o.x()])]), o.const(1, "X"), o.const(0, "X")], to="Out")
