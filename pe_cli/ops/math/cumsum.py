"""cumsum and argsort: running sums, and the order of values, along an axis."""

from __future__ import annotations

from pe_cli.core.types import NUMBERS, TensorType, check_kind
from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, helper, kernel
from pe_cli.ops.define.axes import around, normal_axis
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import InPlace


def _check(name: str, x: TensorType, axis: int) -> None:
    """Raise unless x has numbers and such an axis."""
    normal_axis(name, axis, len(x.shape))
    check_kind(name, x, NUMBERS)


# --- cumsum -----------------------------------------------------------------------------------------------------------


@kernel
def running_sums(x: Ptr, out: Ptr, outer: Int, n: Int, inner: Int, exclusive: Int, reverse: Int):
    """out[.., i, ..] = sum of x up to i, without i itself where exclusive, from the end where reverse."""
    for e in range(outer * inner):
        at = e // inner * n * inner + e % inner
        total = T(0)
        for j in range(n):
            i = at + (n - 1 - j if reverse else j) * inner
            v = x[i]
            # Read before it is written, as X and Out may be one buffer.
            if exclusive:
                out[i] = total
            total += v
            if not exclusive:
                out[i] = total


@op(
    "cumsum",
    inputs="X",
    attrs={
        "axis": Attr(-1, "along which"),
        "exclusive": Attr(False, "leave the element itself out"),
        "reverse": Attr(False, "from the end"),
    },
    traits=[InPlace({"Out": "X"})],
    samples=[
        Sample({"X": (3, 5)}, name="rows"),
        Sample({"X": (2, 4, 3)}, {"axis": 1, "exclusive": True}, "a middle axis, without the element"),
        Sample({"X": (2, 4, 3)}, {"axis": 0, "reverse": True}, "the first axis, from the end"),
        Sample({"X": (5,)}, {"exclusive": True, "reverse": True}, "a vector"),
        Sample({"X": (0, 3)}, name="empty batch"),
    ],
)
def cumsum(x: TensorType, *, axis: int, exclusive: bool, reverse: bool) -> TensorType:
    """Sum everything up to each element, along an axis.

    Out[.., i, ..] = sum_{j <= i} X[.., j, ..]

    Args:
        X: any shape with axes; float32, float64, int32 or int64.

    Returns:
        Out: type of X.

    Raises:
        PeError: there is no such axis.

    Source:
        fluid.layers.cumsum.
    """
    _check("cumsum", x, axis)
    return x


def _run(o: Lowering, x: Buffer, out: Buffer, *, reverse: bool) -> None:
    if out.size:
        o.call(running_sums, x, out, *around(x.shape, o.attrs["axis"]), int(o.attrs["exclusive"]), int(reverse))


@cumsum.lower("cpu")
def cumsum_cpu(o: Lowering) -> None:
    """One pass."""
    _run(o, o.input("X"), o.output("Out"), reverse=o.attrs["reverse"])


@cumsum.grad(traits=[InPlace({"X@GRAD": "Out@GRAD"})]).lower("cpu")
def cumsum_grad_cpu(o: Lowering) -> None:
    """The sums of the gradients, the other way round."""
    _run(o, o.input("Out@GRAD"), o.output("X@GRAD"), reverse=not o.attrs["reverse"])


deal(running_sums)
also_on_cuda(cumsum)


@in_onnx("cumsum")
def cumsum_onnx(o: Writer) -> None:
    """ONNX's own."""
    flags = {"exclusive": int(o.attrs["exclusive"]), "reverse": int(o.attrs["reverse"])}
    o.node("CumSum", [o.x(), o.const(o.attrs["axis"])], to="Out", **flags)


# --- argsort ----------------------------------------------------------------------------------------------------------


@helper
def _first(a, b, falling):
    """Whether a stands before b where b came later; NaN is the largest."""
    if falling:
        return (b == b and (a >= b or a != a)) or (b != b and a != a)
    return (a == a and (a <= b or b != b)) or (b != b and a != a)


@kernel
def sort_lines(
    x: Ptr, out: Ptr, places: PtrI64, values: Ptr, order: PtrI64, outer: Int, n: Int, inner: Int, falling: Int
):
    """Sort each line stably by merging; values and order: scratch of n."""
    for e in range(outer * inner):
        at = e // inner * n * inner + e % inner
        for i in range(n):
            values[i] = x[at + i * inner]
            places[at + i * inner] = i
        # Merging from below: no recursion, and equal values keep their order.
        width = 1
        while width < n:
            for low in range(0, n, 2 * width):
                middle, high = min(low + width, n), min(low + 2 * width, n)
                a, b = low, middle
                for k in range(low, high):
                    # An index beyond its half is read but not used, so it is only kept inside the line.
                    p, q = places[at + min(a, n - 1) * inner], places[at + min(b, n - 1) * inner]
                    if a < middle and (b >= high or _first(values[p], values[q], falling)):
                        order[k] = p
                        a += 1
                    else:
                        order[k] = q
                        b += 1
            for i in range(n):
                places[at + i * inner] = order[i]
            width *= 2
        for i in range(n):
            out[at + i * inner] = values[places[at + i * inner]]


@kernel
def unsort_lines(g: Ptr, places: PtrI64, dx: Ptr, outer: Int, n: Int, inner: Int):
    """dx gets each gradient where its value came from."""
    for e in range(outer * inner):
        at = e // inner * n * inner + e % inner
        for i in range(n):
            dx[at + places[at + i * inner] * inner] = g[at + i * inner]


@op(
    "argsort",
    faces=[Face("", "input axis descending name", "Sort along an axis; equal values keep their order.")],
    inputs="X",
    outputs="Out Indices",
    attrs={"axis": Attr(-1, "along which"), "descending": Attr(False, "the largest first")},
    samples=[
        Sample({"X": (3, 7)}, name="rows"),
        Sample({"X": (2, 6, 3)}, {"axis": 1, "descending": True}, "a middle axis, falling"),
        Sample({"X": (1,)}, name="one element"),
        Sample({"X": (0, 3)}, name="empty batch"),
    ],
)
def argsort(x: TensorType, *, axis: int, descending: bool) -> tuple[TensorType, TensorType]:
    """Sort along an axis; equal values keep their order, NaN counts as the largest.

    Args:
        X: any shape with axes; float32, float64, int32 or int64.

    Returns:
        Out: type of X.
        Indices: shape of X, int64: where each value was.

    Raises:
        PeError: there is no such axis.

    Source:
        fluid.layers.argsort.
    """
    _check("argsort", x, axis)
    return x, TensorType(x.shape, "int64")


@argsort.lower("cpu")
def argsort_cpu(o: Lowering) -> None:
    """Line by line."""
    x, out = o.input("X"), o.output("Out")
    if out.size:
        places = o.output_or_scratch("Indices", x.size, "int64")
        outer, n, inner = around(x.shape, o.attrs["axis"])
        scratch = o.scratch(n, x.dtype), o.scratch(n, "int64")
        o.call(sort_lines, x, out, places, *scratch, outer, n, inner, int(o.attrs["descending"]))


@argsort.grad(uses="Indices").lower("cpu")
def argsort_grad_cpu(o: Lowering) -> None:
    """One pass."""
    g, dx = o.input("Out@GRAD"), o.output("X@GRAD")
    if dx.size:
        o.call(unsort_lines, g, o.input("Indices"), dx, *around(g.shape, o.attrs["axis"]))


@on_cuda(sort_lines)
def sort_lines_cuda(
    x: Ptr, out: Ptr, places: PtrI64, values: Ptr, order: PtrI64, outer: Int, n: Int, inner: Int, falling: Int
):
    """One thread per value, which counts those that stand before it in its line."""
    for e in range(outer * n * inner):
        i, at = e // inner % n, e // (n * inner) * n * inner + e % inner
        v = x[e]
        # A thread counts instead of sorting: n reads per value, but no order among threads.
        rank = 0
        for j in range(i):
            rank += 1 if _first(x[at + j * inner], v, falling) else 0
        for j in range(i + 1, n):
            rank += 0 if _first(v, x[at + j * inner], falling) else 1
        out[at + rank * inner] = v
        places[at + rank * inner] = i


deal(unsort_lines)
also_on_cuda(argsort)
