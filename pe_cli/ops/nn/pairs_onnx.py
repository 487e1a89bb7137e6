"""correlation and rank_attention in ONNX."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
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

    def padded(x: str, before: int, down: int, along: int) -> str:
        return o.node("Pad", [x, o.const([before, before, down, along]), "", both])

    other, found = padded(o.x("Input2"), edge, edge, edge), []
    for down in range(0, 2 * edge + 1, step):
        for along in range(0, 2 * edge + 1, step):
            moved = o.node("Slice", [other, o.const([down, along]), o.const([down + height, along + width]), both])
            product = o.node("Mul", [o.x("Input1"), moved])
            found.append(o.node("ReduceMean", [product, o.const([1])], keepdims=1))
    shifts = o.node("Concat", found, axis=1)
    ends = [(n - 1) * stride + size + begin for n in (rows, columns)]
    before = max(-begin, 0)
    wide = padded(shifts, before, *(max(end - s, 0) for end, s in zip(ends, (height, width), strict=True)))
    cut = o.node("Slice", [wide, o.const([begin + before] * 2), o.const([end + before for end in ends]), both])
    o.node("AveragePool", [cut], to="Out", kernel_shape=[size, size], strides=[stride, stride])


@in_onnx("rank_attention")
def rank_attention_onnx(o: Writer) -> None:
    """Every pair of rows has a matrix of its own."""
    most, (_, width), size = o.attrs["MaxRank"], o.type().shape, o.out_type().shape[1]
    ranks = o.node("Cast", [o.x("RankOffset")], to_=7)
    own = o.node("Slice", [ranks, o.const([0]), o.const([1]), o.const([1])])
    other, row = (o.node("Gather", [ranks, o.const(np.arange(most) * 2 + k)], axis=1) for k in (1, 2))
    zero = o.const(0)
    there = o.node("And", [o.node("Greater", [own, zero]), o.node("Greater", [other, zero])])
    pair = o.node("Add", [o.node("Mul", [o.node("Sub", [own, o.const(1)]), o.const(most)]), o.node("Sub", [other, o.const(1)])])
    pair, row = (o.node("Where", [there, v, zero]) for v in (pair, row))
    weights = o.node("Gather", [o.node("Reshape", [o.x("RankParam"), o.const([most * most, width, size])]), pair])
    seen = o.node("Unsqueeze", [o.node("Gather", [o.x(), row]), o.const([2])])
    each = o.node("Squeeze", [o.node("MatMul", [seen, weights]), o.const([2])])
    each = o.node("Where", [o.node("Unsqueeze", [there, o.const([2])]), each, o.const(0, "X")])
    o.node("ReduceSum", [each, o.const([1])], to="Out", keepdims=0)
