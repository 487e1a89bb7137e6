"""gather: rows of a tensor by index."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import DTYPES, TensorType, product
from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrU, Status, kernel
from pe_cli.kernels.status_codes import OUT_OF_RANGE
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lod import LodRequest
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.strided_copy import MOVED_AS
from pe_cli.ops.define.traits import ReportsData


@kernel
def take_rows(x: Ptr, index: PtrU, out: Ptr, rows: Int, count: Int, n: Int, status: Status):
    """out[i] = x[index[i]], rows of n elements."""
    for i in range(count):
        row = index[i]
        if row < 0 or row >= rows:
            status[1] = i
            status[2] = row
            status[3] = rows
            status[0] = OUT_OF_RANGE
            return
        for k in range(n):
            out[i * n + k] = x[row * n + k]


@kernel
def add_rows(gradient: Ptr, index: PtrU, out: Ptr, rows: Int, count: Int, n: Int):
    """out[index[i]] += gradient[i], in order of i; the forward op has checked the indices."""
    for i in range(count):
        row = index[i]
        # The forward op has reported a wrong index already; here it must only write nowhere.
        if 0 <= row < rows:
            for k in range(n):
                out[row * n + k] += gradient[i * n + k]


@kernel
def set_rows(gradient: Ptr, index: PtrU, out: Ptr, rows: Int, count: Int, n: Int):
    """out[index[i]] = gradient[i], in order of i."""
    for i in range(count):
        row = index[i]
        if 0 <= row < rows:
            for k in range(n):
                out[row * n + k] = gradient[i * n + k]


def _three(rng):
    return rng.integers(0, 4, 3)


def _column(rng):
    return rng.integers(0, 2, (5, 1)).astype("int32")


def _none(rng):
    return rng.integers(0, 2, 0)


def _zero(rng):
    return rng.integers(0, 1, 1)


@op(
    "gather",
    faces=[Face("", "input index", "Take rows by number.")],
    traits=[ReportsData()],
    inputs="X Index",
    differentiable="X",
    attrs={"overwrite": Attr(False, "the gradient of a row that is taken several times is that of the last time, instead of the sum")},
    samples=[
        Sample({"X": (4, 3), "Index": _three}, name="three rows"),
        Sample({"X": (2, 2, 3), "Index": _column}, name="a column of int32 that takes rows again and again"),
        Sample({"X": (1,), "Index": _zero}, name="one element"),
        Sample({"X": (2, 3), "Index": _none}, name="no rows"),
    ],
)
def gather(x: TensorType, index: TensorType, *, overwrite: bool) -> TensorType:
    """Take rows by index.

    Out[i] = X[Index[i]]

    Args:
        X: [rows, ...], any element type.
        Index: [count] or [count, 1] int32 or int64, 0 to rows - 1.

    Returns:
        Out: [count, ...], element type of X.

    Raises:
        PeError: X is a scalar, or Index is of another type or shape. While running: an index is out of range.

    Source:
        fluid.layers.gather.
    """
    del overwrite
    if not x.shape:
        raise PeError("gather needs an X with at least one axis, got a scalar")
    if index.dtype not in ("int32", "int64") or not (
        len(index.shape) == 1 or (len(index.shape) == 2 and index.shape[1] == 1)
    ):
        raise PeError(f"gather needs an Index [count] or [count, 1] of int32 or int64, got {index}")
    return x.with_shape(index.shape[0], *x.shape[1:])


@gather.sequences()
def gather_lod(s: LodRequest) -> None:
    """Rows are those of Index."""
    s.out("Out", *s.lod("Index"))


@gather.lower("cpu")
def gather_cpu(o: Lowering) -> None:
    """Row by row."""
    x, index, out = o.input("X"), o.input("Index"), o.output("Out")
    dtype = MOVED_AS[DTYPES[x.dtype]]
    o.call(take_rows, x, index, out, x.shape[0], index.size, product(x.shape[1:]), STATUS, dtype=dtype)


@gather.grad(uses="Index").lower("cpu")
def gather_grad_cpu(o: Lowering) -> None:
    """Zeros, then every row is added, or written with overwrite, where it came from."""
    index, out = o.input("Index"), o.output("X@GRAD")
    o.call(fill, out, out.size, 0.0)
    move = set_rows if o.attrs["overwrite"] else add_rows
    o.call(move, o.input("Out@GRAD"), index, out, out.shape[0], index.size, product(out.shape[1:]))


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(take_rows)


@on_cuda(add_rows)
def add_rows_cuda(gradient: Ptr, index: PtrU, out: Ptr, rows: Int, count: Int, n: Int):
    """One thread per column, which goes through the indices in order."""
    for k in range(n):
        # Indices in order within a thread: a row that is named twice gets the same sum as on the CPU.
        for i in range(count):
            row = index[i]
            if row >= 0 and row < rows:
                out[row * n + k] += gradient[i * n + k]


@on_cuda(set_rows)
def set_rows_cuda(gradient: Ptr, index: PtrU, out: Ptr, rows: Int, count: Int, n: Int):
    """One thread per column, which goes through the indices in order."""
    for k in range(n):
        for i in range(count):
            row = index[i]
            if row >= 0 and row < rows:
                out[row * n + k] = gradient[i * n + k]


also_on_cuda(gather)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("gather")
def gather_onnx(o: Writer) -> None:
    """Rows by number."""
    index = o.x("Index") if len(o.type("Index").shape) == 1 else o.node("Squeeze", [o.x("Index"), o.const([1])])
    o.node("Gather", [o.x(), index], to="Out")
