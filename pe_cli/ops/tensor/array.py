"""Rows of an array of tensors at a place that only a step knows: array_put writes one, array_get reads one."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import DTYPES, TensorType, product
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrU, Status, T, kernel
from pe_cli.kernels.status_codes import OUT_OF_RANGE
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import fixed
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.strided_copy import MOVED_AS
from pe_cli.ops.define.traits import InPlace, ReportsData


@kernel
def put_row(array: Ptr, x: Ptr, index: PtrU, out: Ptr, copies: Int, rows: Int, n: Int, status: Status):
    """out = array where copies says so, then out[index] = x; rows of n elements."""
    at = index[0]
    if at < 0 or at >= rows:
        status[1] = 0
        status[2] = at
        status[3] = rows
        status[0] = OUT_OF_RANGE
    # One pass in which every element is written once, so that threads can share it.
    for i in range(rows * n):
        if i >= at * n and i < at * n + n:
            out[i] = x[i - at * n]
        elif copies:
            out[i] = array[i]


@kernel
def get_row(array: Ptr, index: PtrU, out: Ptr, rows: Int, n: Int, status: Status):
    """out = array[index]; rows of n elements."""
    at = index[0]
    if at < 0 or at >= rows:
        status[1] = 0
        status[2] = at
        status[3] = rows
        status[0] = OUT_OF_RANGE
        # The status ends the step; until then, row 0 is read so as not to leave the array.
        at = 0
    for i in range(n):
        out[i] = array[at * n + i]


@kernel
def spread_row(gradient: Ptr, index: PtrU, out: Ptr, rows: Int, n: Int):
    """out = 0 but for out[index] = gradient; rows of n elements."""
    at = index[0]
    for i in range(rows * n):
        out[i] = gradient[i - at * n] if i >= at * n and i < at * n + n else T(0)


@kernel
def without_row(gradient: Ptr, index: PtrU, out: Ptr, rows: Int, n: Int):
    """out = gradient but for out[index] = 0; rows of n elements."""
    at = index[0]
    for i in range(rows * n):
        out[i] = T(0) if i >= at * n and i < at * n + n else gradient[i]


def _check(name: str, array: TensorType, index: TensorType) -> None:
    if not array.shape or array.shape[0] == 0:
        raise PeError(f"{name} needs an Array [rows, ...], got {array}")
    if index.dtype not in ("int32", "int64") or index.size != 1:
        raise PeError(f"{name} needs an Index of one whole number, got {index}")


@op(
    "array_put",
    traits=[InPlace({"Out": "Array"}), ReportsData()],
    inputs="Array X Index",
    differentiable="Array X",
    samples=[
        Sample({"Array": (4, 2, 3), "X": (2, 3), "Index": fixed([2])}, name="the third of four"),
        Sample({"Array": (1, 1), "X": (1,), "Index": fixed([0])}, name="one"),
    ],
)
def array_put(array: TensorType, x: TensorType, index: TensorType) -> TensorType:
    """Write a row at a place that the step knows.

    Out = Array, but Out[Index] = X

    Args:
        Array: [rows, ...] any element type.
        X: [...] element type of Array.
        Index: [1] int32 or int64, 0 to rows - 1.

    Returns:
        Out: type of Array; it may take over its memory.

    Raises:
        PeError: types that do not fit. While running: Index is out of range.

    Source:
        fluid's write_to_array op, for arrays of a fixed number of tensors of one type.
    """
    _check("array_put", array, index)
    wanted = array.shape[1:]
    pairs = list(zip(x.shape, wanted, strict=False))
    if x.dtype != array.dtype or len(x.shape) != len(wanted) or any(-1 not in p and p[0] != p[1] for p in pairs):
        raise PeError(f"array_put: an array of {array.with_shape(*wanted)} cannot hold {x}", hint="write tensors of one type")
    return array


@array_put.lower("cpu")
def array_put_cpu(o: Lowering) -> None:
    """One row where the memory is the array's, else all of them."""
    array, out = o.input("Array"), o.output("Out")
    rows, n = array.shape[0], product(array.shape[1:])
    o.call(put_row, array, o.input("X"), o.input("Index"), out, 1, rows, n, STATUS, dtype=MOVED_AS[DTYPES[array.dtype]])


@array_put.grad(uses="Index").lower("cpu")
def array_put_grad_cpu(o: Lowering) -> None:
    """The row is X's, the others the array's."""
    g, index = o.input("Out@GRAD"), o.input("Index")
    rows, n = g.shape[0], product(g.shape[1:])
    if o.has("X@GRAD"):
        o.call(get_row, g, index, o.output("X@GRAD"), rows, n, STATUS, dtype=g.dtype)
    if o.has("Array@GRAD"):
        o.call(without_row, g, index, o.output("Array@GRAD"), rows, n)


@op(
    "array_get",
    traits=[ReportsData()],
    inputs="Array Index",
    differentiable="Array",
    samples=[
        Sample({"Array": (4, 2, 3), "Index": fixed([2])}, name="the third of four"),
        Sample({"Array": (1, 1), "Index": fixed([0])}, name="one"),
    ],
)
def array_get(array: TensorType, index: TensorType) -> TensorType:
    """Read the row at a place that the step knows.

    Out = Array[Index]

    Args:
        Array: [rows, ...] any element type.
        Index: [1] int32 or int64, 0 to rows - 1.

    Returns:
        Out: [...] element type of Array.

    Raises:
        PeError: types that do not fit. While running: Index is out of range.

    Source:
        fluid's read_from_array op.
    """
    _check("array_get", array, index)
    return array.with_shape(*array.shape[1:])


@array_get.lower("cpu")
def array_get_cpu(o: Lowering) -> None:
    """One copy."""
    array, out = o.input("Array"), o.output("Out")
    o.call(get_row, array, o.input("Index"), out, array.shape[0], out.size, STATUS, dtype=MOVED_AS[DTYPES[array.dtype]])


@array_get.grad(uses="Index").lower("cpu")
def array_get_grad_cpu(o: Lowering) -> None:
    """Zeros, and the row."""
    g, out = o.input("Out@GRAD"), o.output("Array@GRAD")
    if out.size:
        o.call(spread_row, g, o.input("Index"), out, out.shape[0], g.size)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("array_put")
def array_put_onnx(o: Writer) -> None:
    """One row is scattered."""
    row = o.node("Unsqueeze", [o.x("X"), o.const([0])])
    o.node("ScatterND", [o.x("Array"), o.node("Reshape", [o.x("Index"), o.const([1, 1])]), row], to="Out")


@in_onnx("array_get")
def array_get_onnx(o: Writer) -> None:
    """One row is gathered."""
    row = o.node("Gather", [o.x("Array"), o.node("Reshape", [o.x("Index"), o.const([1])])])
    o.node("Squeeze", [row, o.const([0])], to="Out")


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(put_row, get_row, spread_row, without_row)
also_on_cuda(array_put, array_get)
