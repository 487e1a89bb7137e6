"""Steps of tables by the gradients of their lookups, without a gradient of the table between: lookup_sgd, lookup_adam.

`fuse_grad_update` makes them of lookup_table_grad and sgd or adam. Most rows of a large table have no id in a batch: their gradients are
neither written nor read as zeros. The gradients of a row that has several ids are added up in the order of the ids, as
lookup_table_grad does, and the step is that of the optimizer, so no bit changes.
"""

from __future__ import annotations

import math

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.far import AHEAD, prefetch_row
from pe_cli.kernels.lang import SIZE, Addr, Int, Ptr, PtrI32, PtrI64, PtrU, Real, T, address, helper, kernel, pointer
from pe_cli.kernels.vecmath import absolute
from pe_cli.ops.areas import thread_parts
from pe_cli.ops.lowering import Lowering
from pe_cli.ops.optimizer import check_update, descend, in_place, rate
from pe_cli.ops.optimizer_moments import adam, adam_corrected, adam_where_needed, move_on
from pe_cli.ops.registry import Attr, Sample, op

_ATTRS = {"padding_idx": Attr(-1, "id whose row gets no gradient; -1 for none")}
_STATE = ("Moment1", "Moment2", "Beta1Pow", "Beta2Pow")


@helper
def list_places(ids, count, begin, end, padding, first, after):
    """Make a list of the places of the ids of every row from begin to end, in order.

    first[row - begin] is the first place of a row, after[place] the next; -1 ends a list.
    """
    for row in range(end - begin):
        first[row] = -1
    for back in range(count):
        place = count - 1 - back
        k = ids[place]
        if k != padding and k >= begin and k < end:
            after[place] = first[k - begin]
            first[k - begin] = place


@helper
def prepare(ids, count, begin, end, width, padding, first, after, room):
    """Make the lists of places, and the row of zeros; see `row_gradient`."""
    nothing = pointer(room)
    for j in range(width):
        nothing[j] = T(0)
    list_places(ids, count, begin, end, padding, first, after)


@helper
def row_gradient(g, place, after, width, room):
    """Return the address of a row's gradient: the sum over its places from the given one on, zeros where that is -1.

    room: address of a row of zeros, and of one for the sum behind it.
    """
    if place < 0:
        return room
    at = address(g) + SIZE * place * width
    place = after[place]
    if place < 0:
        return at
    out = room + SIZE * width
    one, other, total = pointer(at), pointer(address(g) + SIZE * place * width), pointer(out)
    for j in range(width):
        total[j] = one[j] + other[j]
    place = after[place]
    while place >= 0:
        other = pointer(address(g) + SIZE * place * width)
        for j in range(width):
            total[j] += other[j]
        place = after[place]
    return out


@helper
def ask_ahead(g, first, row, rows, width):
    """Ask for the gradient of a row that is soon to come."""
    if row + AHEAD < rows:
        prefetch_row(g, first[row + AHEAD], width)


@kernel(exact=True)
def lookup_sgd_rows(
    p: Ptr, g: Ptr, ids: PtrI64, rate: PtrU, first: PtrI32, after: PtrI32, room: Addr, count: Int, begin: Int, end: Int,
    width: Int, padding: Int,
):  # fmt: skip
    """p -= rate * gradient in the rows from begin to end; room: address of two rows."""
    step = T(rate[0])
    skips = absolute(step) < T(math.inf)
    prepare(ids, count, begin, end, width, padding, first, after, room)
    for row in range(end - begin):
        ask_ahead(g, first, row, end - begin, width)
        if first[row] >= 0 or not skips:
            own = pointer(address(p) + SIZE * (begin + row) * width)
            slope = pointer(row_gradient(g, first[row], after, width, room))
            for j in range(width):
                own[j] = descend(own[j], step, slope[j])


@kernel
def lookup_adam_rows(
    p: Ptr, g: Ptr, ids: PtrI64, m: Ptr, v: Ptr, pow1: Ptr, pow2: Ptr, rate: PtrU, first: PtrI32, after: PtrI32, room: Addr,
    count: Int, begin: Int, end: Int, width: Int, padding: Int, b1: Real, b2: Real, eps: Real,
):  # fmt: skip
    """adam_step in the rows from begin to end, but for the powers; room: address of two rows."""
    step = T(adam_corrected(rate, pow1, pow2))
    prepare(ids, count, begin, end, width, padding, first, after, room)
    for row in range(end - begin):
        ask_ahead(g, first, row, end - begin, width)
        at = SIZE * (begin + row) * width
        slope = pointer(row_gradient(g, first[row], after, width, room))
        one, two = pointer(address(m) + at), pointer(address(v) + at)
        adam_where_needed(pointer(address(p) + at), slope, one, two, 0, width, step, b1, b2, eps)


def _check(name: str, table: TensorType, gradient: TensorType, rate: TensorType, ids: TensorType, *states: TensorType) -> None:
    check_update(name, table, table, rate, *states)
    if len(table.shape) != 2 or ids.dtype != "int64":
        raise PeError(f"{name} needs Param [rows, width] and int64 Ids, got {table} and {ids}")
    vectors = gradient.shape[:-1]
    known = -1 not in (*vectors, *ids.shape)
    if gradient != table.with_shape(*vectors, table.shape[1]) or (known and product(vectors) != product(ids.shape)):
        raise PeError(f"{name}: Grad is {gradient} for Ids {ids} of Param {table}")


def _ids(*shape: int):
    return lambda rng: rng.integers(0, 5, shape)


def _samples(*slots: str) -> list[Sample]:
    states = {s: (lambda rng: rng.uniform(0.1, 0.9, 1)) if s.endswith("Pow") else (lambda rng: rng.uniform(0.1, 1, (5, 3))) for s in slots}
    given = {"Param": (5, 3), "LearningRate": rate, **states}
    return [
        Sample({**given, "Grad": (4, 2, 3), "Ids": _ids(4, 2, 1)}, name="ids that repeat"),
        Sample({**given, "Grad": (9, 3), "Ids": _ids(9)}, {"padding_idx": 2}, name="padding"),
        Sample({**given, "Grad": (0, 3), "Ids": _ids(0, 1)}, name="empty batch"),
        Sample({**given, "Grad": (2, 3), "Ids": lambda rng: np.array([4, 4])}, name="one row"),
    ]


def _parts(o: Lowering, kernel_: object, before: tuple[object, ...], settings: tuple[object, ...]) -> None:
    """Call a kernel for every thread's rows of the table: buffers, lists of places, sizes, settings."""
    table, ids = o.output("ParamOut"), o.input("Ids")
    (rows, width), count = table.shape, product(ids.shape)
    for part, begin, end in thread_parts(rows, o.threads, table.type.nbytes):
        first, after, room = o.scratch(end - begin, "int32"), o.scratch(count, "int32"), o.scratch(2 * width, table.dtype)
        o.call(
            kernel_, *before, first, after, room, count, begin, end, width, o.attrs["padding_idx"], *settings, part=part  # type: ignore[arg-type]
        )  # fmt: skip


@op(
    "lookup_sgd",
    cut=True,
    inputs="Param Grad Ids LearningRate",
    outputs="ParamOut",
    attrs=_ATTRS,
    differentiable="",
    samples=_samples(),
)
def lookup_sgd(
    param: TensorType, gradient: TensorType, ids: TensorType, rate: TensorType, *, padding_idx: int
) -> TensorType:
    """Step against the gradient of a table: the gradient of lookup_table and sgd in one.

    Args:
        Param: [rows, width] float32 or float64.
        Grad: [..., width], the gradient of what was taken from the table.
        Ids: int64, a row for every vector of Grad; those outside of the table have none.
        LearningRate: [1], no unit.
        padding_idx: id whose row gets no gradient; -1 for none.

    Returns:
        ParamOut: the same variable as Param.

    Raises:
        PeError: types do not fit.

    Source:
        lookup_table, sgd.
    """
    del padding_idx
    _check("lookup_sgd", param, gradient, rate, ids)
    return param


@lookup_sgd.lower("cpu")
def lookup_sgd_cpu(o: Lowering) -> None:
    """A part of the rows a thread."""
    (p,) = in_place(o, "Param")
    _parts(o, lookup_sgd_rows, (p, o.input("Grad"), o.input("Ids"), o.input("LearningRate")), ())


@op(
    "lookup_adam",
    cut=True,
    inputs="Param Grad Ids LearningRate Moment1 Moment2 Beta1Pow Beta2Pow",
    outputs="ParamOut Moment1Out Moment2Out Beta1PowOut Beta2PowOut",
    attrs={**_ATTRS, **{name: adam.attrs[name] for name in ("beta1", "beta2", "epsilon")}},
    differentiable="",
    samples=_samples(*_STATE),
)
def lookup_adam(
    param: TensorType,
    gradient: TensorType,
    ids: TensorType,
    rate: TensorType,
    *states: TensorType,
    padding_idx: int,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> tuple[TensorType, ...]:
    """Step by corrected moments of the gradient of a table: that of lookup_table and adam in one. The moments of all rows decay.

    Args:
        Param, Moment1, Moment2: [rows, width] float32 or float64.
        Grad: [..., width], the gradient of what was taken from the table.
        Ids: int64, a row for every vector of Grad; those outside of the table have none.
        LearningRate: [1], no unit.
        Beta1Pow, Beta2Pow: [1] of Param's element type.
        padding_idx: id whose row gets no gradient; -1 for none.
        beta1, beta2, epsilon: as of adam.

    Returns:
        ParamOut, Moment1Out, Moment2Out, Beta1PowOut, Beta2PowOut: the same variables as the inputs.

    Raises:
        PeError: types do not fit.

    Source:
        lookup_table, adam.
    """
    del padding_idx, beta1, beta2, epsilon
    _check("lookup_adam", param, gradient, rate, ids, *states)
    return param, *states


@lookup_adam.lower("cpu")
def lookup_adam_cpu(o: Lowering) -> None:
    """A part of the rows a thread; the powers move on when all of them are done."""
    p, m, v, pow1, pow2 = in_place(o, "Param", *_STATE)
    b1, b2, eps = (float(o.attrs[a]) for a in ("beta1", "beta2", "epsilon"))
    before = p, o.input("Grad"), o.input("Ids"), m, v, pow1, pow2, o.input("LearningRate")
    _parts(o, lookup_adam_rows, before, (b1, b2, eps))
    o.call(move_on, pow1, pow2, b1, b2)
