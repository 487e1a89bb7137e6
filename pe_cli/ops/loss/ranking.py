"""Ranking: the k largest values, and the places of the largest and the smallest one: top_k, arg_max, arg_min."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, kernel
from pe_cli.ops.define.axes import around, axis_with_elements
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.sorting import before
from pe_cli.ops.define.traits import Best, FedSizes

# --- top_k ------------------------------------------------------------------------------------------------------------


@kernel
def best(x: Ptr, out: Ptr, indices: PtrI64, rows: Int, n: Int, k: Int):
    """The k largest of each row in falling order, equal ones by place: insertion into the k best so far."""
    for r in range(rows):
        at, to = r * n, r * k
        for j in range(n):
            v = x[at + j]
            filled = min(j, k)
            # Most values end here, at one comparison: that is why insertion beats sorting for a k much smaller than n.
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
            # The places of one row differ, so that nothing has to be added up.
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
    indices = o.output_or_scratch("Indices", rows * k, "int64")
    o.call(best, x, o.output("Out"), indices, rows, n, k)


@top_k.grad(uses="Indices").lower("cpu")
def top_k_grad_cpu(o: Lowering) -> None:
    """X' = Out' where a value was chosen, else 0."""
    dx = o.output("X@GRAD")
    rows, n, _ = around(dx.shape, -1)
    o.call(best_back, o.input("Out@GRAD"), o.input("Indices"), dx, rows, n, o.input("Indices").shape[-1])


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
            # A NaN beats every number but no other NaN, so that the first one stays.
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


@op("arg_max", inputs="X", attrs=_PLACE, samples=_PLACE_SAMPLES, faces=[Face("argmax", "x axis=0", "Find where the largest element is.")])
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


@op("arg_min", inputs="X", attrs=_PLACE, samples=_PLACE_SAMPLES, faces=[Face("argmin", "x axis=0", "Find where the smallest element is.")])
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


also_on_cuda(top_k, arg_max, arg_min)


# --- ONNX -------------------------------------------------------------------------------------------------------------


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


