"""argsort, histogram, inverse and cholesky in ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pe_cli.core.types import TensorType
from pe_cli.ops.define.axes import normal_axis
from pe_cli.ops.define.onnx import Writer, in_onnx

_ROUND, _GOES = TensorType((), "int64"), TensorType((), "bool")


@in_onnx("argsort")
def argsort_onnx(o: Writer) -> None:
    """The largest or smallest of as many as there are; of equal ones the first comes first."""
    axis = normal_axis("argsort", o.attrs["axis"], len(o.type().shape))
    n = o.node("Shape", [o.x()], start=axis, end=axis + 1)
    outs = [o.op.outputs[slot][0] if o.wanted(slot) else "" for slot in ("Out", "Indices")]
    o.nodes("TopK", [o.x(), n], outs, axis=axis, largest=int(o.attrs["descending"]), sorted=1)


@in_onnx("histogram")
def histogram_onnx(o: Writer) -> None:
    """Every number names its range, and one behind the last where it is in none."""
    a, real = o.attrs, "float64"
    x = o.node("Cast", [o.node("Reshape", [o.x(), o.const([-1])])], to_=11)
    if a["min"] == 0 and a["max"] == 0:
        nan = o.node("IsNaN", [x])
        ends = ((kind, o.const(end, dtype=real)) for kind, end in (("ReduceMin", math.inf), ("ReduceMax", -math.inf)))
        low, high = (o.node(kind, [o.node("Where", [nan, end, x])], keepdims=0) for kind, end in ends)
    else:
        low, high = o.const(a["min"], dtype=real), o.const(a["max"], dtype=real)
    # Where all numbers are one, the range is widened by 1 on either side, as in the op.
    apart = o.node("Cast", [o.node("Equal", [low, high])], to_=11)
    low, high = o.node("Sub", [low, apart]), o.node("Add", [high, apart])
    inside = o.node("And", [o.node("LessOrEqual", [low, x]), o.node("LessOrEqual", [x, high])])
    share = o.node("Mul", [o.node("Sub", [o.node("Where", [inside, x, low]), low]), o.const(a["bins"], dtype=real)])
    at = o.node("Cast", [o.node("Div", [share, o.node("Sub", [high, low])])], to_=7)
    # Numbers outside go to one bin more, which is cut off; the upper end belongs to the last bin.
    at = o.node("Where", [inside, o.node("Min", [at, o.const(a["bins"] - 1)]), o.const(a["bins"])])
    ones = o.node("Expand", [o.const(1), o.node("Shape", [x])])
    counts = o.node("ScatterElements", [o.const(np.zeros(a["bins"] + 1)), at, ones], axis=0, reduction="add")
    o.node("Slice", [counts, o.const([0]), o.const([-1])], to="Out")


def _column(o: Writer, x: str, at: str, axis: int) -> str:
    """Return column (axis 2) or row (axis 1) of matrices [count, n, m]: [count, n, 1] or [count, 1, m]."""
    return o.node("Gather", [x, o.node("Reshape", [at, o.const([1])])], axis=axis)


def _loop(o: Writer, rounds: int, begin: str, kind: TensorType, step: Callable[[Writer, str, str], str]) -> str:
    """Return what a matrix becomes after rounds of a step."""
    inside = o.inside()
    at, goes, held = (inside.fresh() for _ in range(3))
    after = step(inside, at, held)
    body = inside.body([(at, _ROUND), (goes, _GOES), (held, kind)], [(goes, _GOES), (after, kind)])
    made = o.fresh()
    o.nodes("Loop", [o.const(rounds), "", begin], [made], body=body)
    return made


@in_onnx("inverse")
def inverse_onnx(o: Writer) -> None:
    """Rows are taken from one another beside the unit matrix, the one with the largest number of a column first."""
    kind, x = o.type("Input"), o.x("Input")
    n = kind.shape[-1]
    flat = o.node("Reshape", [x, o.const([-1, n, n])])
    zero = o.const(0, "Input")
    # 0 times the matrix adds the batch's size, which a constant unit matrix does not know.
    unit = o.node("Add", [o.node("Mul", [flat, zero]), o.const(np.eye(n), "Input")])
    row = o.const(np.arange(n).reshape(1, n, 1))

    def step(s: Writer, at: str, held: str) -> str:
        column = s.node("Abs", [_column(s, held, at, 2)])
        # Rows above are done: their columns must not be chosen again.
        below = s.node("GreaterOrEqual", [row, at])
        best = s.node("ArgMax", [s.node("Where", [below, column, s.const(-1, dtype=kind.dtype)])], axis=1, keepdims=1)
        chosen = s.node("Equal", [row, best])
        first = s.node("ReduceSum", [s.node("Where", [chosen, held, zero]), s.const([1])], keepdims=1)
        here = s.node("Equal", [row, at])
        swapped = s.node("Where", [chosen, _column(s, held, at, 1), held])
        first = s.node("Div", [first, _column(s, first, at, 2)])
        swapped = s.node("Where", [here, first, swapped])
        factor = s.node("Where", [here, zero, _column(s, swapped, at, 2)])
        return s.node("Sub", [swapped, s.node("Mul", [factor, first])])

    both = o.node("Concat", [flat, unit], axis=2)
    made = _loop(o, n, both, TensorType((-1, n, 2 * n), kind.dtype), step)
    half = o.node("Slice", [made, o.const([n]), o.const([2 * n]), o.const([2])])
    o.node("Reshape", [half, o.node("Shape", [x])], to="Output")


@in_onnx("cholesky")
def cholesky_onnx(o: Writer) -> None:
    """Column by column."""
    kind, x = o.type(), o.x()
    n = kind.shape[-1]
    flat = o.node("Reshape", [x, o.const([-1, n, n])])
    turned = o.node("Transpose", [flat], perm=[0, 2, 1])
    flat = o.node("Mul", [o.node("Add", [flat, turned]), o.const(0.5, "X")])
    zero, rows, columns = o.const(0, "X"), o.const(np.arange(n).reshape(1, n, 1)), o.const(np.arange(n).reshape(1, 1, n))

    def step(s: Writer, at: str, held: str) -> str:
        row = s.node("Transpose", [_column(s, held, at, 1)], perm=[0, 2, 1])
        # What is held of row `at` has the columns found so far, so one product takes them all off.
        rest = s.node("Sub", [_column(s, flat, at, 2), s.node("MatMul", [held, row])])
        made = s.node("Div", [rest, s.node("Sqrt", [_column(s, rest, at, 1)])])
        here = s.node("And", [s.node("Equal", [columns, at]), s.node("GreaterOrEqual", [rows, at])])
        return s.node("Where", [here, made, held])

    made = _loop(o, n, o.node("Mul", [flat, zero]), TensorType((-1, n, n), kind.dtype), step)
    if o.attrs["upper"]:
        made = o.node("Transpose", [made], perm=[0, 2, 1])
    o.node("Reshape", [made, o.node("Shape", [x])], to="Out")
