"""Weight decay: the gradient of a penalty on a parameter, added to the parameter's own in one pass over memory."""

from __future__ import annotations

import numpy as np

from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Kernel, Ptr, PtrI64, Real, T, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Decays, InPlace, Pointwise, RowsApart, Scalar
from pe_cli.ops.update.optimizer import check_update

_COEFFICIENT = Attr(0.0, "of the decay, no unit")


@helper
def with_l2(g, p, coeff):
    return g + coeff * p


@helper
def with_l1(g, p, coeff):
    sign = T(1) if p > T(0) else (T(-1) if p < T(0) else p)  # p itself: 0, or NaN, which must show
    return g + coeff * sign


@kernel(each=with_l2)
def add_l2(g: Ptr, p: Ptr, out: Ptr, n: Int, coeff: Real):
    """out = g + coeff p; out may be g."""
    for i in range(n):
        out[i] = with_l2(g[i], p[i], coeff)


@kernel(each=with_l1)
def add_l1(g: Ptr, p: Ptr, out: Ptr, n: Int, coeff: Real):
    """out = g + coeff sign(p); out may be g."""
    for i in range(n):
        out[i] = with_l1(g[i], p[i], coeff)


@kernel
def take_touched(p: Ptr, rows: PtrI64, out: Ptr, n: Int, width: Int):
    """out[i] = p[rows[i]], 0 where there is no row."""
    for i in range(n):
        row = rows[i]
        for j in range(width):
            out[i * width + j] = p[row * width + j] if row >= 0 else T(0)


@kernel
def put_zeros(out: Ptr, n: Int):
    """out = 0."""
    for i in range(n):
        out[i] = T(0)


@kernel
def put_rows(g: Ptr, rows: PtrI64, out: Ptr, n: Int, width: Int):
    """out[rows[i]] = g[i], but for rows of -1; no row is there twice."""
    for i in range(n):
        row = rows[i]
        if row >= 0:
            for j in range(width):
                out[row * width + j] = g[i * width + j]


def _decay_samples() -> list[Sample]:
    shapes = {"a matrix": (3, 5), "an odd vector": (37,), "one element": (1,), "nothing": (0, 2)}
    rows = {"Grad": (3, 2), "Param": (4, 2), "Rows": lambda rng: np.array([2, 0, -1])}
    made = [Sample({"Grad": shape, "Param": shape}, {"coeff": 0.25}, name) for name, shape in shapes.items()]
    return [*made, Sample(rows, {"coeff": 0.25}, "rows")]


def _decayed(name: str, gradient: TensorType, param: TensorType, rows: TensorType | None) -> TensorType:
    check_update(name, param, gradient, None, rows=rows)
    return gradient


def _lower_decay(o: Lowering, add: Kernel) -> None:
    """Append one pass over the gradient; with Rows, after taking the parameter's rows."""
    out, param = o.output("Out"), o.input("Param")
    if o.has("Rows"):
        touched = o.scratch(out.size, out.dtype)
        o.call(take_touched, param, o.input("Rows"), touched, *out.shape)
        param = touched
    o.call(add, o.input("Grad"), param, out, out.size, o.attrs["coeff"])


@op(
    "l2_decay",
    inputs="Grad Param Rows?",
    attrs={"coeff": _COEFFICIENT},
    differentiable="",
    traits=[RowsApart(), InPlace({"Out": "Grad"})],
    samples=_decay_samples(),
)
def l2_decay(gradient: TensorType, param: TensorType, rows: TensorType | None = None, *, coeff: float) -> TensorType:
    """Add the gradient of coeff/2 * sum(Param^2).

    Out = Grad + coeff * Param

    Args:
        Grad: any shape, float32 or float64; with Rows [n, width].
        Param: type of Grad; with Rows [height, width].
        Rows: [n] int64, the rows of Param that Grad is for: only these decay; -1 for none.
        coeff: no unit.

    Returns:
        Out: type of Grad.

    Raises:
        PeError: the types differ.

    Source:
        fluid.regularizer.L2Decay.
    """
    del coeff
    return _decayed("l2_decay", gradient, param, rows)


@l2_decay.lower("cpu")
def l2_decay_cpu(o: Lowering) -> None:
    """One pass."""
    _lower_decay(o, add_l2)


# l1_decay is no such op: what updates of many parameters can do themselves is a multiple of the parameter.
l2_decay.give(Decays())
l2_decay.give(Pointwise(lambda attrs, _: [Scalar("Out", add_l2, ("Grad", "Param"), (attrs["coeff"],))]))


@op(
    "l1_decay",
    inputs="Grad Param Rows?",
    attrs={"coeff": _COEFFICIENT},
    differentiable="",
    traits=[RowsApart(), InPlace({"Out": "Grad"})],
    samples=_decay_samples(),
)
def l1_decay(gradient: TensorType, param: TensorType, rows: TensorType | None = None, *, coeff: float) -> TensorType:
    """Add the gradient of coeff * sum(|Param|).

    Out = Grad + coeff * sign(Param), where sign(0) is 0.

    Args:
        Grad: any shape, float32 or float64; with Rows [n, width].
        Param: type of Grad; with Rows [height, width].
        Rows: [n] int64, the rows of Param that Grad is for: only these decay; -1 for none.
        coeff: no unit.

    Returns:
        Out: type of Grad.

    Raises:
        PeError: the types differ.

    Source:
        fluid.regularizer.L1Decay.
    """
    del coeff
    return _decayed("l1_decay", gradient, param, rows)


@l1_decay.lower("cpu")
def l1_decay_cpu(o: Lowering) -> None:
    """One pass."""
    _lower_decay(o, add_l1)


l1_decay.give(Pointwise(lambda attrs, _: [Scalar("Out", add_l1, ("Grad", "Param"), (attrs["coeff"],))]))


@op(
    "whole_gradient",
    inputs="Grad Param Rows",
    differentiable="",
    samples=[Sample({"Grad": (3, 2), "Param": (4, 2), "Rows": lambda rng: np.array([2, 0, -1])}, name="rows")],
)
def whole_gradient(gradient: TensorType, param: TensorType, rows: TensorType) -> TensorType:
    """Make the gradient of a whole table of one that is row-sparse: 0 in the rows that it has not.

    Args:
        Grad: [n, width] float32 or float64.
        Param: [height, width], the table.
        Rows: [n] int64, the rows of Param that Grad is for, each once; -1 for none.

    Returns:
        Out: type of Param.

    Raises:
        PeError: the types differ.

    Source:
        fluid.layers.get_tensor_from_selected_rows.
    """
    check_update("whole_gradient", param, gradient, None, rows=rows)
    return param


@whole_gradient.lower("cpu")
def whole_gradient_cpu(o: Lowering) -> None:
    """Zeros, and then the rows."""
    gradient, out = o.input("Grad"), o.output("Out")
    o.call(put_zeros, out, out.size)
    o.call(put_rows, gradient, o.input("Rows"), out, *gradient.shape)


deal(add_l2, add_l1, take_touched, put_zeros, put_rows)
also_on_cuda(l2_decay, l1_decay, whole_gradient)
