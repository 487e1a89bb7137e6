"""Elements by their number along one axis, read and written: take_along_axis, put_along_axis."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import DTYPES, NUMBERS, TensorType, product
from pe_cli.kernels.language import Int, Ptr, PtrI64, PtrU, Status, T, helper, kernel
from pe_cli.kernels.status_codes import OUT_OF_RANGE
from pe_cli.ops.define.axes import normal_axis
from pe_cli.ops.define.copy_kernels import copy, fill
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import STATUS, Buffer, Lowering, Numbers
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.strided_copy import MOVED_AS
from pe_cli.ops.define.traits import ReportsData

#: How put_along_axis joins what is there with what is put, and the word for it in ONNX.
WAYS = {"assign": "none", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@helper
def _place(index, geometry, rank, axis, n, e):
    """Return the element of x that element e of an index names, or -1 where it names none; geometry: sizes of the index, strides of x."""
    v = index[e]
    if v < 0:
        v += n
    if v < 0 or v >= n:
        return -1
    # The coordinates of e are peeled off from the innermost axis outward; the index replaces the one along `axis`.
    at, rest = v * geometry[rank + axis], e
    for k in range(rank):
        d = rank - 1 - k
        if d != axis:
            at += rest % geometry[d] * geometry[rank + d]
        rest //= geometry[d]
    return at


@kernel
def take_along(x: Ptr, index: PtrU, out: Ptr, geometry: PtrI64, rank: Int, axis: Int, n: Int, count: Int, status: Status):
    """out[e] = the element of x that index[e] names."""
    for e in range(count):
        at = _place(index, geometry, rank, axis, n, e)
        if at < 0:
            status[0], status[1], status[2], status[3] = OUT_OF_RANGE, e, index[e], n
            return
        out[e] = x[at]


@kernel
def put_along(u: Ptr, index: PtrU, out: Ptr, geometry: PtrI64, rank: Int, axis: Int, n: Int, count: Int, way: Int, status: Status):
    """The element of out that index[e] names is joined with u[e], in order of e; a NaN stays one."""
    for e in range(count):
        at = _place(index, geometry, rank, axis, n, e)
        if at < 0:
            status[0], status[1], status[2], status[3] = OUT_OF_RANGE, e, index[e], n
            return
        v, old = u[e], out[at]
        if way == 0:
            out[at] = v
        elif way == 1:
            out[at] = old + v
        elif way == 2:
            out[at] = old * v
        elif way == 3:
            out[at] = v if v > old or v != v else old
        else:
            out[at] = v if v < old or v != v else old


@kernel
def last_put(index: PtrU, writer: PtrI64, geometry: PtrI64, rank: Int, axis: Int, n: Int, count: Int):
    """writer[place] = 1 + the last e that was put there."""
    for e in range(count):
        at = _place(index, geometry, rank, axis, n, e)
        if at >= 0:
            writer[at] = e + 1


@kernel
def cut_put(writer: PtrI64, dx: Ptr, size: Int):
    """dx = 0 where something was put."""
    for i in range(size):
        if writer[i]:
            dx[i] = T(0)


@kernel
def take_put(g: Ptr, index: PtrU, writer: PtrI64, du: Ptr, geometry: PtrI64, rank: Int, axis: Int, n: Int, count: Int):
    """du[e] = g at its place, or 0 where another was put there later."""
    for e in range(count):
        at = _place(index, geometry, rank, axis, n, e)
        du[e] = g[at] if at >= 0 and writer[at] == e + 1 else T(0)


@kernel
def factors_before(u: Ptr, index: PtrU, run: Ptr, du: Ptr, geometry: PtrI64, rank: Int, axis: Int, n: Int, count: Int):
    """du[e] = what was at its place before e, where run begins as x."""
    for e in range(count):
        at = _place(index, geometry, rank, axis, n, e)
        # The product of the other factors is taken from both sides: dividing by u would fail where it is 0.
        if at >= 0:
            du[e] = run[at]
            run[at] = run[at] * u[e]


@kernel
def factors_behind(u: Ptr, g: Ptr, index: PtrU, run: Ptr, du: Ptr, geometry: PtrI64, rank: Int, axis: Int, n: Int, count: Int):
    """du[e] *= g times the factors that come after e at its place; run begins as 1, and ends as the product of all of them."""
    for k in range(count):
        e = count - 1 - k
        at = _place(index, geometry, rank, axis, n, e)
        if at >= 0:
            du[e] = du[e] * g[at] * run[at]
            run[at] = run[at] * u[e]


@kernel
def multiply_into(g: Ptr, run: Ptr, dx: Ptr, size: Int):
    """dx = g run."""
    for i in range(size):
        dx[i] = g[i] * run[i]


@kernel
def count_best(x: Ptr, u: Ptr, out: Ptr, index: PtrU, ties: Ptr, geometry: PtrI64, rank: Int, axis: Int, n: Int, count: Int, size: Int):
    """ties = how many numbers are the one that stayed."""
    for i in range(size):
        # The gradient of a maximum is shared by all numbers that reach it.
        ties[i] = T(1) if x[i] == out[i] else T(0)
    for e in range(count):
        at = _place(index, geometry, rank, axis, n, e)
        if at >= 0 and u[e] == out[at]:
            ties[at] = ties[at] + T(1)


@kernel
def share_best(u: Ptr, out: Ptr, g: Ptr, index: PtrU, ties: Ptr, du: Ptr, geometry: PtrI64, rank: Int, axis: Int, n: Int, count: Int):
    """du[e] = its share of g, where it is the one that stayed."""
    for e in range(count):
        at = _place(index, geometry, rank, axis, n, e)
        du[e] = g[at] / ties[at] if at >= 0 and u[e] == out[at] else T(0)


@kernel
def share_own(x: Ptr, out: Ptr, g: Ptr, ties: Ptr, dx: Ptr, size: Int):
    """dx = its share of g, where it is the one that stayed."""
    for i in range(size):
        dx[i] = g[i] / ties[i] if x[i] == out[i] else T(0)


def _columns(rng):
    return rng.integers(-3, 3, (2, 4))


def _rows(rng):
    return rng.integers(0, 4, (2, 2, 5)).astype("int32")


def _check(name: str, x: TensorType, index: TensorType, axis: int) -> int:
    """Return the axis from 0 on.

    Raises:
        PeError: types that do not fit.
    """
    axis = normal_axis(name, axis, len(x.shape))
    fits = len(index.shape) == len(x.shape) and all(
        d == axis or i <= size or size == -1 for d, (i, size) in enumerate(zip(index.shape, x.shape, strict=True))
    )
    if index.dtype not in ("int32", "int64") or not fits:
        hint = "give it the axes of X, none but the one that it goes along longer than there"
        raise PeError(f"{name} needs an Index of int32 or int64 that lies inside of X {x}, got {index}", hint=hint)
    return axis


def _geometry(o: Lowering, index: Buffer, x: Buffer) -> tuple[Numbers, int, int, int, int]:
    """Return sizes of the index and strides of x, the axes, the one that is gone along, its size, and the elements of the index."""
    shape, rank = x.shape, len(x.shape)
    axis = o.attrs["axis"] % rank
    strides = [product(shape[d + 1 :]) for d in range(rank)]
    return Numbers((*index.shape, *strides)), rank, axis, shape[axis], index.size


# --- take_along_axis --------------------------------------------------------------------------------------------------


@op(
    "take_along_axis",
    faces=[Face("", "x indices:Index axis=-1 name")],
    traits=[ReportsData()],
    inputs="X Index",
    differentiable="X",
    attrs={"axis": Attr(-1, "along which")},
    samples=[
        Sample({"X": (2, 3), "Index": _columns}, name="columns, some from the end"),
        Sample({"X": (4, 3, 5), "Index": _rows}, {"axis": 0}, "the first axis, by int32, of a part"),
        Sample({"X": (3,), "Index": lambda rng: rng.integers(0, 3, (5,))}, name="a vector"),
        Sample({"X": (2, 3), "Index": lambda rng: rng.integers(0, 3, (0, 2))}, name="nothing"),
    ],
)
def take_along_axis(x: TensorType, index: TensorType, *, axis: int) -> TensorType:
    """Take elements by their number along an axis.

    Out[i, j, k] = X[i, Index[i, j, k], k], where the axis is the second of three

    Args:
        X: any shape with axes, any element type.
        Index: int32 or int64, as many axes as X, none but the one that it goes along longer than there; from 0, negative ones from the end.

    Returns:
        Out: [sizes of Index], element type of X.

    Raises:
        PeError: types that do not fit; while running, an index out of range.

    Source:
        numpy.take_along_axis; paddle.take_along_axis, which also repeats axes of size 1.
    """
    _check("take_along_axis", x, index, axis)
    return x.with_shape(*index.shape)


@take_along_axis.lower("cpu")
def take_along_axis_cpu(o: Lowering) -> None:
    """Element by element."""
    x, index = o.input("X"), o.input("Index")
    if index.size:
        # Elements are moved and not computed with, so one kernel per size of element serves all types.
        o.call(take_along, x, index, o.output("Out"), *_geometry(o, index, x), STATUS, dtype=MOVED_AS[DTYPES[x.dtype]])


@take_along_axis.grad(uses="Index").lower("cpu")
def take_along_axis_grad_cpu(o: Lowering) -> None:
    """Zeros, then every element is added where it came from."""
    index, dx = o.input("Index"), o.output("X@GRAD")
    o.call(fill, dx, dx.size, 0.0)
    if index.size:
        # Way 1 adds: an element that was taken several times gets the sum of those gradients.
        o.call(put_along, o.input("Out@GRAD"), index, dx, *_geometry(o, index, dx), 1, STATUS)


@in_onnx("take_along_axis")
def take_along_axis_onnx(o: Writer) -> None:
    """ONNX's own."""
    o.node("GatherElements", [o.x(), o.x("Index")], to="Out", axis=o.attrs["axis"])


# --- put_along_axis ---------------------------------------------------------------------------------------------------


def _put(name: str, **attrs: object) -> Sample:
    return Sample({"X": (2, 3), "Index": _columns, "Updates": (2, 4)}, attrs, name)


@op(
    "put_along_axis",
    faces=[Face("", "x indices:Index values:Updates axis=-1 reduce='assign' name")],
    traits=[ReportsData()],
    inputs="X Index Updates",
    differentiable="X Updates",
    attrs={"axis": Attr(-1, "along which"), "reduce": Attr("assign", f"how what is put is joined with what is there: {', '.join(WAYS)}")},
    samples=[
        _put("columns, some twice"),
        _put("sums", reduce="add"),
        _put("products", reduce="mul"),
        _put("the largest", reduce="max"),
        _put("the smallest", reduce="min"),
        Sample({"X": (4, 3, 5), "Index": _rows, "Updates": (2, 2, 5)}, {"axis": 0}, "the first axis, by int32, of a part"),
        Sample({"X": (2, 3), "Index": lambda rng: rng.integers(0, 3, (0, 2)), "Updates": (0, 2)}, name="nothing"),
    ],
)
def put_along_axis(x: TensorType, index: TensorType, updates: TensorType, *, axis: int, reduce: str) -> TensorType:
    """Put elements at their number along an axis; of several at one place, each is joined with those before it.

    Out[i, Index[i, j, k], k] = Updates[i, j, k], where the axis is the second of three, and X elsewhere

    Args:
        X: any shape with axes; float32, float64, int32 or int64, with assign any element type.
        Index: int32 or int64, as many axes as X, none but the one that it goes along longer than there; from 0, negative ones from the end.
        Updates: [sizes of Index], element type of X.

    Returns:
        Out: type of X.

    Raises:
        PeError: types that do not fit, or another way to join; while running, an index out of range.

    Source:
        paddle.put_along_axis, which also repeats axes of size 1; of equal numbers, max and min share the gradient.
    """
    _check("put_along_axis", x, index, axis)
    if reduce not in WAYS:
        raise PeError(f"put_along_axis joins by {', '.join(WAYS)}, got '{reduce}'")
    fits = len(updates.shape) == len(index.shape) and all(-1 in (a, b) or a == b for a, b in zip(updates.shape, index.shape, strict=True))
    if not fits or updates.dtype != x.dtype or (reduce != "assign" and x.dtype not in NUMBERS):
        raise PeError(f"put_along_axis needs Updates {x.with_shape(*index.shape)} for X {x} and Index {index}, got {updates}")
    return x


@put_along_axis.lower("cpu")
def put_along_axis_cpu(o: Lowering) -> None:
    """A copy, then element by element."""
    x, index, out = o.input("X"), o.input("Index"), o.output("Out")
    o.call(copy, x, out, out.size)
    if index.size:
        way = list(WAYS).index(o.attrs["reduce"])
        # `assign` moves bits, which one kernel per size of element can do; the other ways compute with the numbers.
        dtype = x.dtype if way else MOVED_AS[DTYPES[x.dtype]]
        o.call(put_along, o.input("Updates"), index, out, *_geometry(o, index, x), way, STATUS, dtype=dtype)


@put_along_axis.grad(uses="X Index Updates Out").lower("cpu")
def put_along_axis_grad_cpu(o: Lowering) -> None:
    """By the way that what was put was joined."""
    g, index, way = o.input("Out@GRAD"), o.input("Index"), o.attrs["reduce"]
    place = _geometry(o, index, g)
    dx = o.output("X@GRAD") if o.has("X@GRAD") else None
    du = o.output_or_scratch("Updates@GRAD", index.size, g.dtype)
    if way == "assign":
        # Of several that are put at one place only the last one is left, so it alone has a gradient, and what was there has none.
        writer = o.scratch(max(1, g.size), "int64")
        o.call(fill, writer, g.size, 0.0)
        o.call(last_put, index, writer, *place)
        o.call(take_put, g, index, writer, du, *place)
        if dx is not None:
            o.call(copy, g, dx, g.size)
            o.call(cut_put, writer, dx, g.size)
    elif way == "add":
        o.call(take_along, g, index, du, *place, STATUS)
        if dx is not None:
            o.call(copy, g, dx, g.size)
    elif way == "mul":
        # Two passes over the factors of every place: those before an element, then those behind it.
        run = o.scratch(max(1, g.size), g.dtype)
        o.call(copy, o.input("X"), run, g.size)
        o.call(factors_before, o.input("Updates"), index, run, du, *place)
        o.call(fill, run, g.size, 1.0)
        o.call(factors_behind, o.input("Updates"), g, index, run, du, *place)
        if dx is not None:
            o.call(multiply_into, g, run, dx, g.size)
    else:
        x, u, out = o.input("X"), o.input("Updates"), o.input("Out")
        ties = o.scratch(max(1, g.size), g.dtype)
        o.call(count_best, x, u, out, index, ties, *place, g.size)
        o.call(share_best, u, out, g, index, ties, du, *place)
        if dx is not None:
            o.call(share_own, x, out, g, ties, dx, g.size)


@in_onnx("put_along_axis")
def put_along_axis_onnx(o: Writer) -> None:
    """ONNX's own."""
    how = {} if o.attrs["reduce"] == "assign" else {"reduction": WAYS[o.attrs["reduce"]]}
    o.node("ScatterElements", [o.x(), o.x("Index"), o.x("Updates")], to="Out", axis=o.attrs["axis"], **how)
