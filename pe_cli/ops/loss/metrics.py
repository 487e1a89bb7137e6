"""Ranking and counting: top_k, arg_max, arg_min, one_hot and accuracy."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType, check_dtype, product
from pe_cli.kernels.cuda import deal, on_cuda
from pe_cli.kernels.lang import Int, Ptr, PtrI64, Status, T, helper, kernel
from pe_cli.ops.define.axes import around, axis_with_elements, same_sizes
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.labels import classes, per_sample, report
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Best, FedSizes, Judges, ReportsData

# --- top_k ------------------------------------------------------------------------------------------------------------


@helper
def before(a, b):
    """Return whether a ranks before b: larger, or NaN where b is not."""
    return a > b or (a != a and b == b)  # a NaN is what differs from itself


@kernel
def best(x: Ptr, out: Ptr, indices: PtrI64, rows: Int, n: Int, k: Int):
    """The k largest of each row in falling order, equal ones by place: insertion into the k best so far."""
    for r in range(rows):
        at, to = r * n, r * k
        for j in range(n):
            v = x[at + j]
            filled = min(j, k)
            if filled == k and not before(v, out[to + k - 1]):
                continue
            i = filled - 1 if filled == k else filled
            while i > 0 and before(v, out[to + i - 1]):
                out[to + i] = out[to + i - 1]
                indices[to + i] = indices[to + i - 1]
                i -= 1
            out[to + i] = v
            indices[to + i] = j


@kernel
def best_back(g: Ptr, indices: PtrI64, dx: Ptr, rows: Int, n: Int, k: Int):
    """dx = 0, then g at the places that were chosen."""
    for i in range(rows * n):
        dx[i] = T(0)
    for r in range(rows):
        for i in range(r * k, r * k + k):
            dx[r * n + indices[i]] = g[i]


@op(
    "top_k",
    inputs="X K?",
    differentiable="X",
    traits=[FedSizes({"K": "k"}), Best("X", "Indices")],
    outputs="Out Indices",
    attrs={"k": Attr(1, "how many")},
    samples=[
        Sample({"X": (4, 7)}, {"k": 3}, "three of seven"),
        Sample({"X": (2, 3, 5)}, {"k": 5}, "all, sorted"),
        Sample({"X": (5,)}, name="one of a vector"),
        Sample({"X": (1, 1)}, name="one element"),
        Sample({"X": (0, 4)}, {"k": 2}, "empty batch"),
    ],
)
def top_k(x: TensorType, count: TensorType | None, *, k: int) -> tuple[TensorType, TensorType]:
    """Find the k largest values along the last axis.

    They come in falling order; of equal ones the first place comes first; NaN ranks above every number.

    Args:
        X: [..., values] float32 or float64.
        K: one integer, instead of the attribute: only known in the step.
        k: how many, from 1 to the size of the last axis.

    Returns:
        Out: [..., k] element type of X.
        Indices: [..., k] int64, places along the last axis.

    Raises:
        PeError: X is a scalar, or k is less than 1 or more than there are values.

    Source:
        fluid.layers.topk.
    """
    open_ = count is not None and k == -1
    if not x.shape or (not open_ and (k < 1 or 0 <= x.shape[-1] < k)):
        raise PeError(f"top_k needs k from 1 to the size of the last axis, got k {k} for X {x}")
    shape = (*x.shape[:-1], k)
    return x.with_shape(*shape), TensorType(shape, "int64")


@top_k.lower("cpu")
def top_k_cpu(o: Lowering) -> None:
    """Row by row."""
    x, k = o.input("X"), o.attrs["k"]
    rows, n, _ = around(x.shape, -1)
    indices = o.output("Indices") if o.has("Indices") else o.scratch(rows * k, "int64")
    o.call(best, x, o.output("Out"), indices, rows, n, k)


@top_k.grad(uses="Indices").lower("cpu")
def top_k_grad_cpu(o: Lowering) -> None:
    """X' = Out' where a value was chosen, else 0."""
    dx = o.output("X@GRAD")
    rows, n, _ = around(dx.shape, -1)
    o.call(best_back, o.input("Out@GRAD"), o.input("Indices"), dx, rows, n, o.attrs["k"])


# --- arg_max, arg_min -------------------------------------------------------------------------------------------------


@kernel
def place_of_best(x: Ptr, out: PtrI64, outer: Int, n: Int, inner: Int, smallest: Int):
    """The first place of the largest (or smallest) value, or of NaN, along the middle axis of [outer, n, inner]."""
    for r in range(outer * inner):
        at = r // inner * n * inner + r % inner
        found = 0
        v = x[at]
        for j in range(1, n):
            u = x[at + j * inner]
            better = (u < v or (u != u and v == v)) if smallest else before(u, v)
            if better:
                found, v = j, u
        out[r] = found


_PLACE = {
    "axis": Attr(-1, "along which"),
    "keepdims": Attr(False, "keep the axis with size 1"),
    "dtype": Attr("int64", "element type of the places", ("int64",)),
}
_PLACE_SAMPLES = [
    Sample({"X": (4, 7)}, name="rows"),
    Sample({"X": (2, 3, 4)}, {"axis": 1, "keepdims": True}, "the middle axis, kept"),
    Sample({"X": (1,)}, name="one element"),
    Sample({"X": (0, 4)}, name="empty batch"),
]


def _places(name: str, x: TensorType, axis: int, keepdims: bool) -> TensorType:
    axis = axis_with_elements(name, x, axis)
    kept = (1,) if keepdims else ()
    return TensorType((*x.shape[:axis], *kept, *x.shape[axis + 1 :]) or (1,), "int64")


@op("arg_max", inputs="X", attrs=_PLACE, samples=_PLACE_SAMPLES)
def arg_max(x: TensorType, *, axis: int, keepdims: bool, dtype: str) -> TensorType:
    """Find the first place of the largest value along an axis; a NaN counts as largest.

    Args:
        X: any shape with at least one axis, float32 or float64.
        axis: along which.
        keepdims: keep the axis with size 1.

    Returns:
        Out: shape of X without the axis ([1] for a vector), int64.

    Raises:
        PeError: X has no such axis, or it is empty.

    Source:
        fluid.layers.argmax.
    """
    return _places("arg_max", x, axis, keepdims)


@op("arg_min", inputs="X", attrs=_PLACE, samples=_PLACE_SAMPLES)
def arg_min(x: TensorType, *, axis: int, keepdims: bool, dtype: str) -> TensorType:
    """Find the first place of the smallest value along an axis; a NaN counts as smallest.

    Args:
        X: any shape with at least one axis, float32 or float64.
        axis: along which.
        keepdims: keep the axis with size 1.

    Returns:
        Out: shape of X without the axis ([1] for a vector), int64.

    Raises:
        PeError: X has no such axis, or it is empty.

    Source:
        fluid.layers.argmin.
    """
    return _places("arg_min", x, axis, keepdims)


@arg_max.lower("cpu")
@arg_min.lower("cpu")
def place_cpu(o: Lowering) -> None:
    """One loop along the axis."""
    x = o.input("X")
    o.call(place_of_best, x, o.output("Out"), *around(x.shape, o.attrs["axis"]), int(o.op.name == "arg_min"))


# --- one_hot ----------------------------------------------------------------------------------------------------------


@kernel
def mark(x: PtrI64, out: Ptr, count: Int, depth: Int, lenient: Int, per: Int, status: Status):
    """out[i] = 0, and 1 at x[i]; lenient: nothing for a class that is not there."""
    for j in range(count * depth):
        out[j] = T(0)
    for i in range(count):
        k = x[i]
        if k >= 0 and k < depth:
            out[i * depth + k] = T(1)
        elif not lenient:
            report(status, i // per, k, depth)
            return


@op(
    "one_hot",
    traits=[ReportsData(), FedSizes({"Depth": "depth"})],
    inputs="X Depth?",
    attrs={
        "depth": Attr(1, "number of classes"),
        "dtype": Attr("float32", "element type of the output", FLOATS),
        "allow_out_of_range": Attr(False, "a class that is not in [0, depth) gives zeros instead of an error"),
    },
    differentiable="",
    samples=[
        Sample({"X": classes(0, 5, 4, 1)}, {"depth": 5}, "a column of classes"),
        Sample({"X": classes(0, 5, 4)}, {"depth": 5, "dtype": "float64"}, "a vector of classes"),
        Sample({"X": classes(-3, 9, 6)}, {"depth": 5, "allow_out_of_range": True}, "out of range and allowed"),
        Sample({"X": classes(0, 5, 0, 1)}, {"depth": 5}, "empty batch"),
    ],
)
def one_hot(x: TensorType, fed: TensorType | None = None, *, depth: int, dtype: str, allow_out_of_range: bool) -> TensorType:
    """Turn class numbers into rows with a single one.

    Out[..., j] = 1 where j = X[...], else 0.

    Args:
        X: [..., 1] or [n] int64; class numbers from 0.
        Depth: [1] integer, instead of the attribute: only known in the step.
        depth: number of classes, at least 1.
        dtype: of the output.
        allow_out_of_range: see the attribute.

    Returns:
        Out: [..., depth] element type dtype; a last axis of 1 in X is replaced.

    Raises:
        PeError: X is not int64, or depth < 1; while running, a class that is not in [0, depth).

    Source:
        fluid.layers.one_hot.
    """
    if x.dtype != "int64":
        raise PeError(f"one_hot needs X of type int64, got {x}", hint="cast it to int64")
    if fed is None and depth < 1:
        raise PeError(f"one_hot needs depth >= 1, got {depth}")
    leading = x.shape[:-1] if len(x.shape) > 1 and x.shape[-1] == 1 else x.shape
    return TensorType((*leading, depth if fed is None else -1), check_dtype(dtype))


@one_hot.lower("cpu")
def one_hot_cpu(o: Lowering) -> None:
    """Zeros, then ones."""
    x, count = o.input("X"), product(o.input("X").shape)
    per = per_sample(count, x.shape)
    lenient = int(o.attrs["allow_out_of_range"])
    o.call(mark, x, o.output("Out"), count, o.attrs["depth"], lenient, per, STATUS)


# --- accuracy ---------------------------------------------------------------------------------------------------------


@kernel
def count_right(indices: PtrI64, label: PtrI64, share: Ptr, correct: PtrI64, total: PtrI64, rows: Int, k: Int):
    """Rows whose label is among their k indices, and their share; NaN without rows."""
    right = 0
    for r in range(rows):
        hit = 0
        for i in range(r * k, r * k + k):
            hit |= indices[i] == label[r]
        right += hit
    correct[0] = right
    total[0] = rows
    share[0] = T(right / rows)


def _orders(rows: int, k: int, n: int):
    return lambda rng: np.argsort(rng.random((rows, n)), axis=1)[:, :k].astype(np.int64)


@op(
    "accuracy",
    traits=[Judges("Indices", "Label")],
    inputs="Out Indices Label",
    outputs="Accuracy Correct Total",
    differentiable="",
    samples=[
        Sample({"Out": (6, 2), "Indices": _orders(6, 2, 4), "Label": classes(0, 4, 6, 1)}, name="the best two of four"),
        Sample({"Out": (1, 1), "Indices": _orders(1, 1, 3), "Label": classes(0, 3, 1, 1)}, name="one row"),
    ],
)
def accuracy(out: TensorType, indices: TensorType, label: TensorType) -> tuple[TensorType, ...]:
    """Count the rows whose label is among the best k.

    Correct = number of rows r with Label[r] in Indices[r];  Total = rows;  Accuracy = Correct / Total, NaN for no rows.

    Args:
        Out: [batch, k] float32 or float64; the k best values of top_k, whose element type counts.
        Indices: [batch, k] int64; their classes.
        Label: [batch, 1] int64.

    Returns:
        Accuracy: [1] element type of Out; from 0 to 1.
        Correct: [1] int64; rows.
        Total: [1] int64; rows.

    Raises:
        PeError: shapes or element types that do not fit.

    Source:
        fluid.layers.accuracy.
    """
    if indices.dtype != "int64" or len(indices.shape) != 2 or not same_sizes(out.shape, indices.shape):
        raise PeError(f"accuracy needs Out and Indices of top_k, [batch, k], got {out} and {indices}")
    if label.dtype != "int64" or not same_sizes(label.shape, (indices.shape[0], 1)):
        hint = "reshape the labels to [batch, 1]" if label.dtype == "int64" else "declare the feed with dtype: int64, or cast it"
        if len(label.shape) == 2 and label.shape[1] > 1:
            hint = "of labels with a column for each class {type: argmax, axis: 1} and then {type: unsqueeze, axes: [1]} make class numbers"
        raise PeError(f"accuracy needs Label [batch, 1] of type int64 for Indices {indices}, got {label}", hint=hint)
    count = TensorType((1,), "int64")
    return out.with_shape(1), count, count


@accuracy.lower("cpu")
def accuracy_cpu(o: Lowering) -> None:
    """One loop."""
    indices = o.input("Indices")
    correct = o.output("Correct") if o.has("Correct") else o.scratch(1, "int64")
    total = o.output("Total") if o.has("Total") else o.scratch(1, "int64")
    o.call(count_right, indices, o.input("Label"), o.output("Accuracy"), correct, total, *indices.shape)


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(best, place_of_best)


@on_cuda(best_back)
def best_back_cuda(g: Ptr, indices: PtrI64, dx: Ptr, rows: Int, n: Int, k: Int):
    """One thread per row."""
    for r in range(rows):
        for i in range(r * n, r * n + n):
            dx[i] = T(0)
        for i in range(r * k, r * k + k):
            dx[r * n + indices[i]] = g[i]


@on_cuda(mark)
def mark_cuda(x: PtrI64, out: Ptr, count: Int, depth: Int, lenient: Int, per: Int, status: Status):
    """One thread per element."""
    for e in range(count * depth):
        k = x[e // depth]
        out[e] = T(1) if k == e % depth else T(0)
        if e % depth == 0 and (k < 0 or k >= depth) and not lenient:
            report(status, e // depth // per, k, depth)


also_on_cuda(top_k, arg_max, arg_min, one_hot, accuracy)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("accuracy")
def accuracy_onnx(o: Writer) -> None:
    """The share of rows whose label is among the indices."""
    equal = o.node("Equal", [o.x("Indices"), o.x("Label")])
    kind = o.out_type("Accuracy").dtype
    hits = o.node("ReduceMax", [o.node("Cast", [equal], to_=element_type(kind)), o.const([1])], keepdims=0)
    if o.wanted("Accuracy"):
        o.node("Reshape", [o.node("ReduceMean", [hits], keepdims=0), o.const([1])], to="Accuracy")
    if o.wanted("Correct"):
        right = o.node("ReduceSum", [hits], keepdims=0)
        whole = o.node("Cast", [right], to_=element_type(o.out_type("Correct").dtype))
        o.node("Reshape", [whole, o.const([1])], to="Correct")
    if o.wanted("Total"):
        rows = o.node("Slice", [o.node("Shape", [o.x("Indices")]), o.const([0]), o.const([1])])
        o.node("Cast", [rows], to="Total", to_=element_type(o.out_type("Total").dtype))


@in_onnx("arg_max", "arg_min")
def arg_onnx(o: Writer) -> None:
    """The place of the first extreme."""
    kind = {"arg_max": "ArgMax", "arg_min": "ArgMin"}[o.op.type]
    made = o.node(kind, [o.x()], axis=o.attrs["axis"], keepdims=int(o.attrs["keepdims"]))
    if len(o.type().shape) == 1:  # fluid has no scalars: a vector of one
        made = o.node("Reshape", [made, o.const([1])])
    o.node("Cast", [made], to="Out", to_=element_type(o.out_type().dtype))


@in_onnx("top_k")
def top_k_onnx(o: Writer) -> None:
    """The largest of the last axis, with their places."""
    o.nodes("TopK", [o.x(), o.const([o.attrs["k"]])], [o.op.outputs[s][0] for s in ("Out", "Indices")], axis=-1)


@in_onnx("one_hot")
def one_hot_onnx(o: Writer) -> None:
    """Rows with a single one."""
    x, name = o.type(), o.x()
    if len(x.shape) == 1 or x.shape[-1] != 1:
        name = o.node("Unsqueeze", [name, o.const([-1])])
    found = o.node("Equal", [name, o.const(np.arange(o.attrs["depth"]))])
    o.node("Cast", [found], to="Out", to_=element_type(o.attrs["dtype"]))
