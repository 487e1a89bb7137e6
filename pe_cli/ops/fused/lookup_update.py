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
from pe_cli.kernels.language import SIZE, Addr, Int, Ptr, PtrI32, PtrI64, PtrU, T, address, kernel, pointer
from pe_cli.kernels.math.vector_math import absolute
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Divisible, UpdatesTable
from pe_cli.ops.update.optimizer import check_update, in_place, rate
from pe_cli.ops.update.optimizer_moments import ADAM_STATE, adam
from pe_cli.ops.update.table_rows import adam_by_places, ask_ahead, by_places, prepare, row_gradient
from pe_cli.ops.update.update_kernels import descend, move_on

_ATTRS = {"padding_idx": Attr(-1, "id whose row gets no gradient; -1 for none")}


@kernel(exact=True)
def lookup_sgd_rows(
    p: Ptr, g: Ptr, ids: PtrI64, rate: PtrU, first: PtrI32, after: PtrI32, room: Addr, count: Int, begin: Int, end: Int,
    width: Int, padding: Int,
):  # fmt: skip
    """p -= rate * gradient in the rows from begin to end; room: address of two rows."""
    step = T(rate[0])
    # A row without an id has the gradient 0, and an infinite rate times 0 is NaN, which sgd would write: rows are passed over only where
    # the step is finite.
    skips = absolute(step) < T(math.inf)
    prepare(ids, count, begin, end, width, padding, first, after, room)
    for row in range(end - begin):
        ask_ahead(g, first, row, end - begin, width)
        if first[row] >= 0 or not skips:
            own = pointer(address(p) + SIZE * (begin + row) * width)
            slope = pointer(row_gradient(g, first[row], after, width, room))
            for j in range(width):
                own[j] = descend(own[j], step, slope[j])


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


@op(
    "lookup_sgd",
    traits=[UpdatesTable("sgd"), Divisible()],
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
    """Each thread does a part of the rows."""
    (p,) = in_place(o, "Param")
    ids = o.input("Ids")
    by_places(o, lookup_sgd_rows, (p, o.input("Grad"), ids, o.input("LearningRate")), ids, o.attrs["padding_idx"], ())


@op(
    "lookup_adam",
    traits=[UpdatesTable("adam"), Divisible()],
    inputs="Param Grad Ids LearningRate Moment1 Moment2 Beta1Pow Beta2Pow",
    outputs="ParamOut Moment1Out Moment2Out Beta1PowOut Beta2PowOut",
    attrs={**_ATTRS, **{name: adam.attrs[name] for name in ("beta1", "beta2", "epsilon")}},
    differentiable="",
    samples=_samples(*ADAM_STATE),
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
    """Each thread does a part of the rows; the powers move on when all of them are done."""
    p, m, v, pow1, pow2 = in_place(o, "Param", *ADAM_STATE)
    b1, b2, eps = (float(o.attrs[a]) for a in ("beta1", "beta2", "epsilon"))
    ids = o.input("Ids")
    before = p, o.input("Grad"), ids, m, v, pow1, pow2, o.input("LearningRate")
    by_places(o, adam_by_places, before, ids, o.attrs["padding_idx"], (b1, b2, eps))
    o.call(move_on, pow1, pow2, b1, b2)
