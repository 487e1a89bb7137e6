"""Parts of tensors by index, read and written: gather_nd, scatter, scatter_nd_add."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import DTYPES, FLOATS, TensorType, product
from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrI64, PtrU, Status, T, helper, kernel
from pe_cli.kernels.status_codes import OUT_OF_RANGE
from pe_cli.ops.define.copy_kernels import copy, fill
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face, Functional
from pe_cli.ops.define.lowering import STATUS, Buffer, Lowering, Numbers
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.strided_copy import MOVED_AS
from pe_cli.ops.define.traits import ReportsData

INTEGERS = ("int32", "int64")


@helper
def _place(index, sizes, depth, i):
    """Return the part that row i of an index names, or -1 - the coordinate that is out of range."""
    at = 0
    for d in range(depth):
        v = index[i * depth + d]
        if v < 0 or v >= sizes[d]:
            return -1 - d
        at = at * sizes[d] + v
    return at


@kernel
def take_parts(x: Ptr, index: PtrU, out: Ptr, sizes: PtrI64, depth: Int, count: Int, n: Int, status: Status):
    """out[i] = the part of x that index[i] names, n elements."""
    for i in range(count):
        at = _place(index, sizes, depth, i)
        if at < 0:
            d = -1 - at
            status[1] = i
            status[2] = index[i * depth + d]
            status[3] = sizes[d]
            status[0] = OUT_OF_RANGE
            return
        for k in range(n):
            out[i * n + k] = x[at * n + k]


@kernel
def add_parts(x: Ptr, index: PtrU, out: Ptr, sizes: PtrI64, depth: Int, count: Int, n: Int, status: Status):
    """The part of out that index[i] names += x[i], in order of i."""
    for i in range(count):
        at = _place(index, sizes, depth, i)
        if at < 0:
            d = -1 - at
            status[0], status[1], status[2], status[3] = OUT_OF_RANGE, i, index[i * depth + d], sizes[d]
            return
        for k in range(n):
            out[at * n + k] += x[i * n + k]


@kernel
def last_writers(index: PtrU, writer: PtrI64, rows: Int, count: Int, status: Status):
    """writer[row] = last i with index[i] = row, or -1."""
    for r in range(rows):
        writer[r] = -1
    for i in range(count):
        r = index[i]
        if r < 0 or r >= rows:
            status[0], status[1], status[2], status[3] = OUT_OF_RANGE, i, r, rows
            return
        writer[r] = i


@kernel
def write_rows(x: Ptr, updates: Ptr, writer: PtrI64, out: Ptr, rows: Int, n: Int):
    """out[row] = the update that wrote it last, or x's."""
    for r in range(rows):
        for k in range(n):
            out[r * n + k] = updates[writer[r] * n + k] if writer[r] >= 0 else x[r * n + k]


@kernel
def clear_rows(writer: PtrI64, out: Ptr, rows: Int, n: Int):
    """out[row] = 0 where something was written."""
    for r in range(rows):
        if writer[r] >= 0:
            for k in range(n):
                out[r * n + k] = T(0)


@kernel
def rows_written(g: Ptr, index: PtrU, writer: PtrI64, out: Ptr, count: Int, n: Int, all_: Int):
    """out[i] = g[index[i]], or 0 where another update wrote that row later, unless all count."""
    for i in range(count):
        r = index[i]
        for k in range(n):
            out[i * n + k] = g[r * n + k] if all_ or writer[r] == i else T(0)


def _pairs(rng):
    return rng.integers(0, 2, (4, 2))


def _rows(rng):
    return [3, 0, 3]


def _check(name: str, x: TensorType, index: TensorType) -> int:
    """Return how many axes an index names.

    Raises:
        PeError: types that do not fit.
    """
    depth = index.shape[-1] if index.shape else 0
    if index.dtype not in INTEGERS or not 1 <= depth <= len(x.shape):
        raise PeError(f"{name} needs an Index [..., axes] of integers, 1 to {len(x.shape)} axes of X {x}, got {index}")
    return depth


# --- gather_nd --------------------------------------------------------------------------------------------------------


@op(
    "gather_nd",
    faces=[
        Face("", "input index name"),
        Functional("", "x index name", "Take what places, the last axis of index, point to.", at="tensor"),
    ],
    traits=[ReportsData()],
    inputs="X Index",
    differentiable="X",
    samples=[
        Sample({"X": (3, 2, 4), "Index": _pairs}, name="rows by pairs, some twice"),
        Sample({"X": (2, 3), "Index": _pairs}, name="elements by pairs"),
        Sample({"X": (4, 3), "Index": lambda rng: rng.integers(0, 4, (2, 3, 1)).astype("int32")}, name="rows by int32"),
        Sample({"X": (4, 3), "Index": lambda rng: rng.integers(0, 4, (0, 1))}, name="nothing"),
    ],
)
def gather_nd(x: TensorType, index: TensorType) -> TensorType:
    """Take parts of a tensor by index over its first axes.

    Out[i..., :] = X[Index[i..., 0], Index[i..., 1], ..., :]

    Args:
        X: [sizes...] any element type.
        Index: [..., axes] int32 or int64, from 0.

    Returns:
        Out: [..., sizes of the other axes of X] element type of X.

    Raises:
        PeError: types that do not fit; while running, an index out of range.

    Source:
        fluid.layers.gather_nd.
    """
    depth = _check("gather_nd", x, index)
    return x.with_shape(*index.shape[:-1], *x.shape[depth:])


def _parts(index: Buffer, whole: Buffer) -> tuple[Numbers, int, int, int]:
    """Return sizes of the axes that an index names, how many, the parts, and the elements of each."""
    depth = index.shape[-1]
    sizes = whole.shape
    return Numbers(sizes[:depth]), depth, product(index.shape[:-1]), product(sizes[depth:])


@gather_nd.lower("cpu")
def gather_nd_cpu(o: Lowering) -> None:
    """Part by part."""
    x, index = o.input("X"), o.input("Index")
    dtype = MOVED_AS[DTYPES[x.dtype]]
    o.call(take_parts, x, index, o.output("Out"), *_parts(index, x), STATUS, dtype=dtype)


@gather_nd.grad(uses="Index").lower("cpu")
def gather_nd_grad_cpu(o: Lowering) -> None:
    """Zeros, then every part is added where it came from."""
    index, dx = o.input("Index"), o.output("X@GRAD")
    o.call(fill, dx, dx.size, 0.0)
    o.call(add_parts, o.input("Out@GRAD"), index, dx, *_parts(index, dx), STATUS)


@in_onnx("gather_nd")
def gather_nd_onnx(o: Writer) -> None:
    """ONNX's own, whose places are int64."""
    index = o.x("Index") if o.type("Index").dtype == "int64" else o.node("Cast", [o.x("Index")], to_=element_type("int64"))
    o.node("GatherND", [o.x(), index], to="Out")


# --- scatter_nd_add ---------------------------------------------------------------------------------------------------


@op(
    "scatter_nd_add",
    faces=[
        Face("", "ref index updates name"),
        Functional("", "x index updates name", "Add updates at the places that the last axis of index points to.", at="tensor"),
    ],
    traits=[ReportsData()],
    inputs="X Index Updates",
    differentiable="X Updates",
    samples=[
        Sample({"X": (3, 2, 4), "Index": _pairs, "Updates": (4, 4)}, name="rows by pairs, some twice"),
        Sample({"X": (5,), "Index": lambda rng: rng.integers(0, 5, (3, 1)), "Updates": (3,)}, name="elements"),
    ],
)
def scatter_nd_add(x: TensorType, index: TensorType, updates: TensorType) -> TensorType:
    """Add to parts of a tensor by index over its first axes; parts that are named twice get both.

    Args:
        X: [sizes...] float32 or float64.
        Index: [..., axes] int32 or int64, from 0.
        Updates: [..., sizes of the other axes of X] element type of X.

    Returns:
        Out: type of X.

    Raises:
        PeError: types that do not fit; while running, an index out of range.

    Source:
        fluid.layers.scatter_nd_add.
    """
    depth = _check("scatter_nd_add", x, index)
    wanted = (*index.shape[:-1], *x.shape[depth:])
    fits = len(updates.shape) == len(wanted) and all(
        a == b or -1 in (a, b) for a, b in zip(updates.shape, wanted, strict=True)
    )
    if not fits or updates.dtype != x.dtype or x.dtype not in (*FLOATS, *INTEGERS):
        raise PeError(f"scatter_nd_add needs Updates {x.with_shape(*wanted)} for X {x} and Index {index}, got {updates}")
    return x


@scatter_nd_add.lower("cpu")
def scatter_nd_add_cpu(o: Lowering) -> None:
    """A copy, then part by part."""
    x, index, out = o.input("X"), o.input("Index"), o.output("Out")
    o.call(copy, x, out, out.size)
    o.call(add_parts, o.input("Updates"), index, out, *_parts(index, out), STATUS)


@scatter_nd_add.grad(uses="Index").lower("cpu")
def scatter_nd_add_grad_cpu(o: Lowering) -> None:
    """The gradient itself, and its parts."""
    g, index = o.input("Out@GRAD"), o.input("Index")
    if o.has("X@GRAD"):
        o.call(copy, g, o.output("X@GRAD"), g.size)
    if o.has("Updates@GRAD"):
        o.call(take_parts, g, index, o.output("Updates@GRAD"), *_parts(index, g), STATUS)


# --- scatter ----------------------------------------------------------------------------------------------------------


@op(
    "scatter",
    faces=[Face("", "input index updates name overwrite")],
    traits=[ReportsData()],
    inputs="X Ids Updates",
    attrs={"overwrite": Attr(True, "rows become their last update; else the sum of their updates")},
    differentiable="X Updates",
    samples=[
        Sample({"X": (5, 3), "Ids": _rows, "Updates": (3, 3)}, name="a row twice, the last one counts"),
        Sample({"X": (5, 3), "Ids": _rows, "Updates": (3, 3)}, {"overwrite": False}, "a row twice, the sum counts"),
        Sample({"X": (5,), "Ids": lambda rng: [[4], [1]], "Updates": (2,)}, name="elements"),
    ],
)
def scatter(x: TensorType, ids: TensorType, updates: TensorType, *, overwrite: bool) -> TensorType:
    """Write rows by number; the other rows stay.

    The gradient of X is 0 in rows that are written, and only the update that stays gets one; the original gives X the whole gradient.

    Args:
        X: [rows, ...] float32, float64, int32 or int64.
        Ids: [count] or [count, 1] int32 or int64, from 0.
        Updates: [count, ...] element type of X.

    Returns:
        Out: type of X.

    Raises:
        PeError: types that do not fit; while running, a row out of range.

    Source:
        fluid.layers.scatter.
    """
    if not x.shape or ids.dtype not in INTEGERS or ids.shape not in (ids.shape[:1], (*ids.shape[:1], 1)):
        raise PeError(f"scatter needs rows X and Ids [count] of integers, got {x} and {ids}")
    if updates.shape[1:] != x.shape[1:] or updates.dtype != x.dtype or x.dtype not in (*FLOATS, *INTEGERS):
        raise PeError(f"scatter needs Updates [count, ...] with the rows of X {x}, got {updates}")
    return x


def _writers(o: Lowering, rows: int) -> Buffer:
    # Who writes each row is found before any is written, so that threads can share the rows, whatever order they work in.
    writer, ids = o.scratch(rows, "int64"), o.input("Ids")
    o.call(last_writers, ids, writer, rows, ids.size, STATUS)
    return writer


@scatter.lower("cpu")
def scatter_cpu(o: Lowering) -> None:
    """Find who writes each row, then row by row."""
    x, ids, updates, out = o.input("X"), o.input("Ids"), o.input("Updates"), o.output("Out")
    rows, n = x.shape[0], product(x.shape[1:])
    writer = _writers(o, rows)
    if o.attrs["overwrite"]:
        o.call(write_rows, x, updates, writer, out, rows, n)
        return
    # As in the original, the updates of a row replace what was there: their sum is not added on top of it.
    o.call(copy, x, out, out.size)
    o.call(clear_rows, writer, out, rows, n)
    o.call(add_parts, updates, ids, out, Numbers((rows,)), 1, ids.size, n, STATUS)


@scatter.grad(uses="Ids").lower("cpu")
def scatter_grad_cpu(o: Lowering) -> None:
    """Rows that were not written, and rows that were."""
    g, ids = o.input("Out@GRAD"), o.input("Ids")
    rows, n = g.shape[0], product(g.shape[1:])
    writer = _writers(o, rows)
    if o.has("X@GRAD"):
        dx = o.output("X@GRAD")
        o.call(copy, g, dx, dx.size)
        o.call(clear_rows, writer, dx, rows, n)
    if o.has("Updates@GRAD"):
        o.call(rows_written, g, ids, writer, o.output("Updates@GRAD"), ids.size, n, int(not o.attrs["overwrite"]))


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(take_parts, write_rows, clear_rows, rows_written)


@on_cuda(add_parts)
def add_parts_cuda(x: Ptr, index: PtrU, out: Ptr, sizes: PtrI64, depth: Int, count: Int, n: Int, status: Status):
    """One thread per element of a part, which goes through the indices in order."""
    # Threads own elements and meet the indices in order: no atomic sums, and the same bits as on the CPU.
    for k in range(n):
        for i in range(count):
            at = _place(index, sizes, depth, i)
            if at < 0:
                d = -1 - at
                status[1] = i
                status[2] = index[i * depth + d]
                status[3] = sizes[d]
                status[0] = OUT_OF_RANGE
                return
            out[at * n + k] += x[i * n + k]


@on_cuda(last_writers)
def last_writers_cuda(index: PtrU, writer: PtrI64, rows: Int, count: Int, status: Status):
    """One thread per row, which goes through the whole index."""
    # A row looks for its last writer itself: more reads, but no two threads write one place.
    for r in range(rows):
        last = -1
        for i in range(count):
            at = index[i]
            if at < 0 or at >= rows:
                status[1] = i
                status[2] = at
                status[3] = rows
                status[0] = OUT_OF_RANGE
                return
            if at == r:
                last = i
        writer[r] = last


also_on_cuda(gather_nd, scatter_nd_add, scatter)
