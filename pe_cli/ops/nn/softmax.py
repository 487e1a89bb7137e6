"""softmax and log_softmax: logits become probabilities, or their logarithms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.core.types import TensorType
from pe_cli.kernels.cpu.non_temporal import DISTANCE, is_large, prefetch_run
from pe_cli.kernels.language import Int, Ptr, T, address, helper, intrinsic, kernel
from pe_cli.kernels.math.partial_sums import CHUNK
from pe_cli.kernels.math.vector_math import exp, log
from pe_cli.ops.define.axes import around, axis_with_elements
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Bounded, InPlace, RowWise, ToProbabilities

#: Exponentials between two requests for what comes later.
PIECE = 256
#: Finite logits further below the largest one count as if they were so far below: none has the probability 0, whose logarithm is infinite.
LEAST = -64.0


@intrinsic("T", "T", "T")
def larger(env: Any, args: list[Any]) -> Any:
    """Return the larger of two numbers, NaN where one is; unlike a comparison it vectorises in a running maximum."""
    suffix = "f32" if env.dtype == "float32" else "f64"
    return env.builder.call(env.function(f"llvm.maximum.{suffix}", env.element, [env.element] * 2), args)


@helper
def bounded(d):
    """Return a logit less the largest one, LEAST at least; one of minus infinity stays impossible."""
    return d if d == T(-math.inf) else larger(d, T(LEAST))


@helper
def row_max(x, at, n):
    """Return the largest of x[at : at + n], NaN where one is."""
    m = T(-math.inf)
    for j in range(n):
        m = larger(m, x[at + j])
    return m


@helper
def row_exp(x, out, at, n, m, ahead):
    """Write exp(bounded(x - m)) to out, which may be x, and return its sum, in chunks that are added in float64.

    ahead: whether what comes later is asked for meanwhile.
    """
    # A stretch is added up in the element's own type, which makes whole vectors, and stretches in float64, so that errors do not grow with
    # the row.
    total = 0.0
    size = PIECE if ahead else CHUNK
    for begin in range(at, at + n, CHUNK):
        end = min(at + n, begin + CHUNK)
        # In place there is one pointer, and the sum has a loop of its own: so both vectorise, and add up alike, wherever out lies.
        for piece in range(begin, end, size):
            stop = min(end, piece + size)
            if ahead:
                prefetch_run(x, piece + max(n, DISTANCE), size)  # the maximum of a row is known when all of it was read
                prefetch_run(out, piece + DISTANCE, size)
            if address(x) == address(out):
                for j in range(piece, stop):
                    out[j] = exp(bounded(out[j] - m))
            else:
                for j in range(piece, stop):
                    out[j] = exp(bounded(x[j] - m))
        part = T(0)
        for j in range(begin, end):
            part += out[j]
        total += part
    return total


@kernel
def softmax_rows(x: Ptr, out: Ptr, rows: Int, n: Int):
    """Softmax of contiguous rows; out may be x."""
    ahead = is_large(rows * n)
    for r in range(rows):
        at = r * n
        total = row_exp(x, out, at, n, row_max(x, at, n), ahead)
        share = T(1.0 / total)
        for j in range(at, at + n):
            out[j] *= share


@kernel
def log_softmax_rows(x: Ptr, out: Ptr, rows: Int, n: Int):
    """Logarithm of the softmax of contiguous rows; out is not x."""
    # At a size that no cache holds, the kernel asks for memory ahead of itself; below it, asking costs more than it saves.
    ahead = is_large(rows * n)
    for r in range(rows):
        at = r * n
        m = row_max(x, at, n)
        level = m + log(T(row_exp(x, out, at, n, m, ahead)))
        for j in range(at, at + n):
            out[j] = x[j] - level


@kernel
def softmax_across(  # noqa: C901 (plain loops)
    x: Ptr, out: Ptr, top: Ptr, total: Ptr, outer: Int, n: Int, inner: Int, logarithm: Int
):
    """Softmax, or its logarithm, over the middle axis; out may be x; top and total hold inner numbers."""
    for o in range(outer):
        start = o * n * inner
        for i in range(inner):
            # The classes are not next to each other: sums of `inner` columns go along side by side, so that every loop runs along memory.
            top[i] = T(-math.inf)
            total[i] = T(0)
        for k in range(n):
            at = start + k * inner
            for i in range(inner):
                top[i] = larger(top[i], x[at + i])
        for k in range(n):
            at = start + k * inner
            for i in range(inner):
                total[i] += exp(bounded(x[at + i] - top[i]))
        for i in range(inner):
            total[i] = top[i] + log(total[i]) if logarithm else T(1) / total[i]
        for k in range(n):
            at = start + k * inner
            if logarithm:
                for i in range(inner):
                    out[at + i] = x[at + i] - total[i]
            else:
                for i in range(inner):
                    out[at + i] = exp(bounded(x[at + i] - top[i])) * total[i]


@helper
def dot(a, b, at, n):
    """Return the sum of a * b over n elements, in chunks that are added in float64."""
    total = 0.0
    for begin in range(0, n, CHUNK):
        part = T(0)
        for j in range(at + begin, at + min(n, begin + CHUNK)):
            part += a[j] * b[j]
        total += part
    return T(total)


@kernel
def softmax_back(out: Ptr, g: Ptr, dx: Ptr, rows: Int, n: Int):
    """dx = out * (g - sum(g * out)) on contiguous rows; dx may be g or out."""
    for r in range(rows):
        at = r * n
        s = dot(out, g, at, n)
        for j in range(at, at + n):
            dx[j] = out[j] * (g[j] - s)


@kernel
def log_softmax_back(out: Ptr, g: Ptr, dx: Ptr, rows: Int, n: Int):
    """dx = g - exp(out) * sum(g) on contiguous rows; dx may be g."""
    for r in range(rows):
        at = r * n
        total = 0.0
        for begin in range(0, n, CHUNK):
            part = T(0)
            for j in range(at + begin, at + min(n, begin + CHUNK)):
                part += g[j]
            total += part
        s = T(total)
        for j in range(at, at + n):
            dx[j] = g[j] - exp(out[j]) * s


@kernel
def softmax_back_across(out: Ptr, g: Ptr, dx: Ptr, total: Ptr, outer: Int, n: Int, inner: Int, logarithm: Int):
    """The same over the middle axis of [outer, n, inner]; total holds inner numbers."""
    for o in range(outer):
        start = o * n * inner
        for i in range(inner):
            total[i] = T(0)
        for k in range(n):
            at = start + k * inner
            for i in range(inner):
                # The logarithm's gradient needs the sum of the gradients alone; the probabilities come back from the logarithms.
                total[i] += g[at + i] if logarithm else g[at + i] * out[at + i]
        for k in range(n):
            at = start + k * inner
            if logarithm:
                for i in range(inner):
                    dx[at + i] = g[at + i] - exp(out[at + i]) * total[i]
            else:
                for i in range(inner):
                    dx[at + i] = out[at + i] * (g[at + i] - total[i])


_AXIS = {"axis": Attr(-1, "axis whose elements are the classes")}
_SAMPLES = [
    Sample({"X": (4, 7)}, name="rows of seven"),
    Sample({"X": (1, 1)}, name="one element"),
    Sample({"X": (2, 3, 33)}, name="three axes, odd rows"),
    Sample({"X": (3, 5, 4)}, {"axis": 1}, "the middle axis"),
    Sample({"X": (5, 3)}, {"axis": 0}, "the first axis"),
    Sample({"X": (0, 4)}, name="empty batch"),
]


def _beside_rows(attrs: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether the axis is not that of rows."""
    return bool(attrs["axis"] % max(1, len(shapes["Out"])))


@op(
    "softmax",
    faces=[Face(takes="input axis name", act=True)],
    inputs="X",
    floats="X",
    attrs=_AXIS,
    traits=[InPlace({"Out": "X"}), RowWise(_beside_rows), Bounded(0.0, 1.0), ToProbabilities()],
    samples=_SAMPLES,
)
def softmax(x: TensorType, *, axis: int) -> TensorType:
    """Turn logits along an axis into probabilities.

    Out_j = exp(D_j) / sum_k exp(D_k),  D_j = max(X_j - m, -64),  m = max_k X_k

    Args:
        X: any shape with at least one axis, float32 or float64; logits, in nats.
        axis: whose elements are the classes.

    Returns:
        Out: type of X; probabilities that sum to 1 along the axis.

    Raises:
        PeError: X has no such axis, or it is empty.

    Source:
        fluid.layers.softmax; Bridle 1990, eq. 4. Subtracting m changes no value; it prevents overflow. The bound is that of PaddlePaddle's
        CPU kernel: cross_entropy of a probability stays finite, and so does its gradient. Minus infinity keeps the probability 0.
    """
    axis_with_elements("softmax", x, axis)
    return x


@op(
    "log_softmax",
    inputs="X",
    floats="X",
    attrs=_AXIS,
    traits=[RowWise(_beside_rows), ToProbabilities(logarithms=True)],
    samples=_SAMPLES,
    faces=[Face(takes="input axis name", act=True)],
)
def log_softmax(x: TensorType, *, axis: int) -> TensorType:
    """Turn logits along an axis into logarithms of probabilities.

    Out_j = X_j - m - ln sum_k exp(X_k - m),  m = max_k X_k

    Args:
        X: any shape with at least one axis, float32 or float64; logits, in nats.
        axis: whose elements are the classes.

    Returns:
        Out: type of X; in nats.

    Raises:
        PeError: X has no such axis, or it is empty.

    Source:
        paddle.nn.functional.log_softmax.
    """
    axis_with_elements("log_softmax", x, axis)
    return x


def _forward(o: Lowering, logarithm: bool) -> None:
    x, out = o.input("X"), o.output("Out")
    outer, n, inner = around(x.shape, o.attrs["axis"])
    if inner == 1:
        o.call(log_softmax_rows if logarithm else softmax_rows, x, out, outer, n)
    else:
        top, total = o.scratch(inner, x.dtype), o.scratch(inner, x.dtype)
        o.call(softmax_across, x, out, top, total, outer, n, inner, int(logarithm))


def lower_softmax_back(o: Lowering, out: Buffer, g: Buffer, dx: Buffer) -> None:
    """Append dx = softmax's gradient, for other ops that give probabilities too."""
    outer, n, inner = around(out.shape, o.attrs["axis"])
    if inner == 1:
        o.call(softmax_back, out, g, dx, outer, n)
    else:
        o.call(softmax_back_across, out, g, dx, o.scratch(inner, out.dtype), outer, n, inner, 0)


@softmax.lower("cpu")
def softmax_cpu(o: Lowering) -> None:
    """Rows, or the middle axis with the last one in vectors."""
    _forward(o, False)


@log_softmax.lower("cpu")
def log_softmax_cpu(o: Lowering) -> None:
    """Rows, or the middle axis with the last one in vectors."""
    _forward(o, True)


@softmax.grad(uses="Out", traits=[InPlace({"X@GRAD": "Out@GRAD"})]).lower("cpu")
def softmax_grad_cpu(o: Lowering) -> None:
    """X' = Out * (Out' - sum(Out' * Out))."""
    lower_softmax_back(o, o.input("Out"), o.input("Out@GRAD"), o.output("X@GRAD"))


@log_softmax.grad(uses="Out", traits=[InPlace({"X@GRAD": "Out@GRAD"})]).lower("cpu")
def log_softmax_grad_cpu(o: Lowering) -> None:
    """X' = Out' - exp(Out) * sum(Out')."""
    out, g, dx = o.input("Out"), o.input("Out@GRAD"), o.output("X@GRAD")
    outer, n, inner = around(out.shape, o.attrs["axis"])
    if inner == 1:
        o.call(log_softmax_back, out, g, dx, outer, n)
    else:
        o.call(softmax_back_across, out, g, dx, o.scratch(inner, out.dtype), outer, n, inner, 1)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("softmax")
def softmax_onnx(o: Writer) -> None:
    """ONNX's own."""
    o.node("Softmax", [o.x()], to="Out", axis=o.attrs["axis"])


@in_onnx("log_softmax")
def log_softmax_onnx(o: Writer) -> None:
    """ONNX's own."""
    o.node("LogSoftmax", [o.x()], to="Out", axis=o.attrs["axis"])
