"""What stands before each element along an axis: the place of the largest or smallest, and the logarithm of a sum of exponentials."""

from __future__ import annotations

import math

from pe_cli.core.types import FLOATS, NUMBERS, TensorType, check_kind
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, kernel
from pe_cli.ops.define.axes import around, normal_axis
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op


@kernel
def running_extremes(x: Ptr, out: PtrI64, outer: Int, n: Int, inner: Int, largest: Int):
    """out[.., i, ..] = the place of the largest, or smallest, of x up to i, of equal ones the last; a NaN counts as either."""
    for e in range(outer * inner):
        at = e // inner * n * inner + e % inner
        place = 0
        for j in range(n):
            v, best = x[at + j * inner], x[at + place * inner]
            if v != v or (best == best and (v >= best if largest else v <= best)):
                place = j
            out[at + j * inner] = place


@op(
    "running_extreme",
    inputs="X",
    attrs={"axis": Attr(-1, "along which"), "largest": Attr(True, "the largest, else the smallest")},
    differentiable="",
    samples=[
        Sample({"X": (3, 5)}, name="rows"),
        Sample({"X": (2, 4, 3)}, {"axis": 1, "largest": False}, "the smallest, along a middle axis"),
        Sample({"X": (0, 3)}, name="empty batch"),
    ],
)
def running_extreme(x: TensorType, *, axis: int, largest: bool) -> TensorType:
    """Find the place of the largest, or smallest, element up to each, along an axis.

    Out[.., i, ..] = the last j <= i with X[.., j, ..] = max_{k <= i} X[.., k, ..]

    Args:
        X: any shape with axes; float32, float64, int32 or int64.

    Returns:
        Out: shape of X, int64; gradients stop there.

    Raises:
        PeError: there is no such axis.

    Source:
        paddle.cummax and paddle.cummin, of which this is the second result.
    """
    del largest
    normal_axis("running_extreme", axis, len(x.shape))
    check_kind("running_extreme", x, NUMBERS)
    return TensorType(x.shape, "int64")


@running_extreme.lower("cpu")
def running_extreme_cpu(o: Lowering) -> None:
    """One pass."""
    x, out = o.input("X"), o.output("Out")
    if out.size:
        o.call(running_extremes, x, out, *around(x.shape, o.attrs["axis"]), int(o.attrs["largest"]))


@kernel
def running_log_sums(x: Ptr, out: Ptr, outer: Int, n: Int, inner: Int):
    """out[.., i, ..] = ln of the sum of exp x up to i: each step adds to the larger one of both."""
    for e in range(outer * inner):
        at = e // inner * n * inner + e % inner
        total = x[at]
        out[at] = total
        for j in range(1, n):
            v = x[at + j * inner]
            high, low = (v, total) if v > total else (total, v)
            # Equal infinities have no difference.
            total = high if high == low and math.isinf(high) else T(high + math.log1p(math.exp(low - high)))
            out[at + j * inner] = total


@kernel
def running_log_sums_back(x: Ptr, value: Ptr, g: Ptr, dx: Ptr, outer: Int, n: Int, inner: Int):
    """dx_i = sum over the results j from i on of g_j exp(x_i - out_j), none of which is above 1."""
    for e in range(outer * inner):
        at = e // inner * n * inner + e % inner
        for j in range(n):
            total = T(0)
            for k in range(j, n):
                later = at + k * inner
                total += g[later] * T(math.exp(x[at + j * inner] - value[later]))
            dx[at + j * inner] = total


@op(
    "logcumsumexp",
    inputs="X",
    attrs={"axis": Attr(-1, "along which")},
    samples=[
        Sample({"X": (3, 5)}, name="rows"),
        Sample({"X": (2, 4, 3)}, {"axis": 1}, "a middle axis"),
        Sample({"X": (5,)}, name="a vector"),
        Sample({"X": (0, 3)}, name="empty batch"),
    ],
)
def logcumsumexp(x: TensorType, *, axis: int) -> TensorType:
    """Take the logarithm of the sum of the exponentials up to each element, along an axis, without overflow.

    Out[.., i, ..] = ln sum_{j <= i} exp X[.., j, ..]

    Args:
        X: any shape with axes; float32 or float64.

    Returns:
        Out: type of X.

    Raises:
        PeError: there is no such axis.

    Source:
        paddle.logcumsumexp; the gradient goes through each line once for each of its elements.
    """
    normal_axis("logcumsumexp", axis, len(x.shape))
    check_kind("logcumsumexp", x, FLOATS)
    return x


@logcumsumexp.lower("cpu")
def logcumsumexp_cpu(o: Lowering) -> None:
    """One pass."""
    x, out = o.input("X"), o.output("Out")
    if out.size:
        o.call(running_log_sums, x, out, *around(x.shape, o.attrs["axis"]))


@logcumsumexp.grad(uses="X Out").lower("cpu")
def logcumsumexp_grad_cpu(o: Lowering) -> None:
    """Each line, once for each element."""
    x, dx = o.input("X"), o.output("X@GRAD")
    if dx.size:
        o.call(running_log_sums_back, x, o.input("Out"), o.input("Out@GRAD"), dx, *around(x.shape, o.attrs["axis"]))


not_in_onnx("ONNX has no operator for it", "running_extreme", "logcumsumexp")
