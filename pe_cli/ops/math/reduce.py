"""reduce_*: sum, mean, max, min and product along any axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, NUMBERS, TensorType, check_kind
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, T, kernel
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import OPS, Attr, OpDef, Sample, op
from pe_cli.ops.define.traits import Divisible, RowWise
from pe_cli.ops.math.reduction import ADD, LARGEST, SMALLEST, TIMES, Reduction, reduce_with, spread, sum_axes
from pe_cli.ops.math.scale import scale

_ATTRS = {
    "dim": Attr([0], "axes, negative ones count from the last"),
    "keep_dim": Attr(False, "leave an axis of size 1 in place of each"),
    "reduce_all": Attr(False, "all axes, whatever dim says"),
}

_DOC = """{title}

Out = {formula} of X along the axes of dim; {empty}

Args:
    X: any shape, {dtypes}.
    dim: axes; negative ones count from the last, none are all.
    keep_dim: leave an axis of size 1 in place of each.
    reduce_all: all axes.

Returns:
    Out: dtype of X, its shape without those axes; [1] when all are gone.

Raises:
    PeError: X has no such axis, or has it named twice{raises}.

Source:
    fluid.layers.reduce_{kind}{note}
"""


def reduced_axes(name: str, shape: Sequence[int], dim: Sequence[int], reduce_all: bool) -> list[bool]:
    """Return for every axis whether it is reduced.

    Raises:
        PeError: an axis that is not there, or is named twice.
    """
    rank = len(shape)
    if reduce_all or not dim:
        return [True] * rank
    gone = [False] * rank
    for axis in dim:
        if not -rank <= axis < rank:
            raise PeError(
                f"{name}: X is {list(shape)} and has no axis {axis}", hint=f"dim may be {-rank} to {rank - 1}"
            )
        if gone[axis]:
            raise PeError(f"{name}: dim {list(dim)} names axis {axis % rank} twice")
        gone[axis] = True
    return gone


def _samples(make: Callable[[Any, tuple[int, ...]], Any] | None = None, *, empty: bool = True) -> list[Sample]:
    cases: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
        ("the first axis", (5, 7), {}),
        ("the last axis", (5, 7), {"dim": [-1]}),
        ("the middle axis stays", (2, 3, 4), {"dim": [0, 2]}),
        ("the middle axis goes", (2, 3, 4), {"dim": [1], "keep_dim": True}),
        ("every second axis", (2, 3, 2, 4), {"dim": [1, 3]}),
        ("every second axis, the last stays", (3, 2, 2, 5), {"dim": [0, 2]}),
        ("all axes", (3, 11), {"reduce_all": True}),
        ("all axes by name, kept", (3, 4), {"dim": [0, 1], "keep_dim": True}),
        ("many narrow rows", (300, 3), {}),
        ("one element", (1,), {}),
    ]
    if empty:
        cases.append(("an empty batch", (0, 3), {}))
    cases.append(("an empty batch, along the other axis", (0, 3), {"dim": [1]}))
    return [
        Sample({"X": s if make is None else (lambda rng, s=s: np.asarray(make(rng, s)))}, a, name)
        for name, s, a in cases
    ]


def _declare(
    kind: str,
    title: str,
    formula: str,
    empty: str,
    dtypes: Sequence[str] = NUMBERS,
    *,
    note: str = ".",
    needs_some: bool = False,
    **facts: Any,
) -> OpDef:
    name = f"reduce_{kind}"

    def infer(x: TensorType, *, dim: list[int], keep_dim: bool, reduce_all: bool) -> TensorType:
        check_kind(name, x, dtypes)
        gone = reduced_axes(name, x.shape, dim, reduce_all)
        # Nothing has no largest element; where the result is empty as well, none is asked for.
        if (
            needs_some
            and 0 in [s for s, g in zip(x.shape, gone, strict=True) if g]
            and 0 not in [s for s, g in zip(x.shape, gone, strict=True) if not g]
        ):
            raise PeError(f"{name} of nothing: X is {list(x.shape)}, and an axis of size 0 is reduced")
        if keep_dim:
            return x.with_shape(*(1 if g else s for s, g in zip(x.shape, gone, strict=True)))
        return x.with_shape(*([s for s, g in zip(x.shape, gone, strict=True) if not g] or [1]))

    raises = ", or there is nothing to reduce" if needs_some else ""
    infer.__doc__ = _DOC.format(
        title=title, formula=formula, empty=empty, dtypes=" or ".join(dtypes), raises=raises, kind=kind, note=note
    )
    infer.__module__ = __name__
    traits = [RowWise(_beside_rows), *([Divisible()] if kind in ("sum", "mean") else [])]
    return op(name, inputs="X", attrs=_ATTRS, traits=traits, **facts)(infer)


def _beside_rows(attrs: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether axis 0, that of rows, stays."""
    rank = len(shapes["X"])
    return not attrs["reduce_all"] and rank > 1 and all(axis % rank for axis in attrs["dim"])


def _gone(o: Lowering, shape: Sequence[int]) -> list[bool]:
    return reduced_axes(o.op.name, shape, o.attrs["dim"], o.attrs["reduce_all"])


def _kept_shape(shape: Sequence[int], gone: Sequence[bool]) -> list[int]:
    return [1 if g else s for s, g in zip(shape, gone, strict=True)]


def _terms(shape: Sequence[int], gone: Sequence[bool]) -> int:
    return math.prod(s for s, g in zip(shape, gone, strict=True) if g)


def _lower(definition: OpDef, how: Reduction, of_nothing: float) -> None:
    @definition.lower("cpu")
    def lower(o: Lowering) -> None:
        x, out = o.input("X"), o.output("Out")
        gone = _gone(o, x.shape)
        if out.size == 0:
            return
        if x.size == 0:
            o.call(fill, out, out.size, of_nothing)
        # Long sums of floats are added in pieces, which keeps digits that one running sum would lose.
        elif how is ADD and x.dtype in FLOATS:
            sum_axes(o, x, out, x.shape, gone)
        else:
            reduce_with(o, how, x, out, x.shape, gone)


# --- sum, mean --------------------------------------------------------------------------------------------------------

_sum = _declare("sum", "Add up along some axes.", "the sum", "0 where there is nothing.", samples=_samples())
_lower(_sum, ADD, 0.0)

_mean = _declare(
    "mean",
    "Average along some axes.",
    "the mean",
    "NaN where there is nothing.",
    FLOATS,
    samples=list(_samples(empty=False)),
)


@_mean.lower("cpu")
def mean_cpu(o: Lowering) -> None:
    """A sum with a factor."""
    x, out = o.input("X"), o.output("Out")
    gone = _gone(o, x.shape)
    if x.size == 0:
        o.call(fill, out, out.size, math.nan)
    else:
        sum_axes(o, x, out, x.shape, gone, 1.0 / _terms(x.shape, gone))


@_sum.grad().lower("cpu")
def sum_grad_cpu(o: Lowering) -> None:
    """Every term gets the sum's gradient."""
    g, out = o.input("Out@GRAD"), o.output("X@GRAD")
    spread(o, g, out, _kept_shape(out.shape, _gone(o, out.shape)), out.shape)


@_mean.grad().lower("cpu")
def mean_grad_cpu(o: Lowering) -> None:
    """Every term gets its share."""
    g, out = o.input("Out@GRAD"), o.output("X@GRAD")
    gone = _gone(o, out.shape)
    if out.size:
        # Divided before it is repeated: there are fewer numbers to divide.
        share = o.scratch(g.size, g.dtype)
        o.call(scale.kernel, g, share, g.size, 1.0 / _terms(out.shape, gone), 0.0)
        spread(o, share, out, _kept_shape(out.shape, gone), out.shape)


# --- max, min ---------------------------------------------------------------------------------------------------------


@kernel
def keep_equal(x: Ptr, extreme: Ptr, g: Ptr, n: Int):
    """g = 0 where x is not the extreme."""
    for i in range(n):
        g[i] = g[i] if x[i] == extreme[i] else T(0)


def _distinct(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.permutation(math.prod(shape)).reshape(shape) * 0.125 - 1.0


def _lower_extreme_grad(definition: OpDef) -> None:
    @definition.grad(uses="X Out").lower("cpu")
    def lower(o: Lowering) -> None:
        x, out = o.input("X"), o.output("X@GRAD")
        if out.size == 0:
            return
        kept = _kept_shape(x.shape, _gone(o, x.shape))
        extreme = o.scratch(x.size, x.dtype)
        spread(o, o.input("Out"), extreme, kept, x.shape)
        spread(o, o.input("Out@GRAD"), out, kept, x.shape)
        o.call(keep_equal, x, extreme, out, out.size)


_TIES = "; every element that equals it gets its gradient."
_NOTHING = "NaN where one is NaN."
_max = _declare(
    "max",
    "Find the largest along some axes.",
    "the maximum",
    _NOTHING,
    note=_TIES,
    needs_some=True,
    samples=_samples(_distinct, empty=False),
)
_min = _declare(
    "min",
    "Find the smallest along some axes.",
    "the minimum",
    _NOTHING,
    note=_TIES,
    needs_some=True,
    samples=_samples(_distinct, empty=False),
)
_lower(_max, LARGEST, math.nan)
_lower(_min, SMALLEST, math.nan)
_lower_extreme_grad(_max)
_lower_extreme_grad(_min)


# --- prod -------------------------------------------------------------------------------------------------------------


@kernel
def split_zeros(x: Ptr, rest: Ptr, zero: Ptr, n: Int):
    """rest = x with 1 for 0; zero = whether x is 0."""
    # Dividing the product by x gives that of the other factors only without zeros, so these are counted apart.
    for i in range(n):
        rest[i] = T(1) if x[i] == T(0) else x[i]
        zero[i] = T(1) if x[i] == T(0) else T(0)


@kernel
def product_back(x: Ptr, rest: Ptr, zeros: Ptr, g: Ptr, n: Int):
    """g *= the product of the others: rest / x without zeros, rest at the only zero, else 0."""
    for i in range(n):
        others = rest[i] / x[i] if zeros[i] == T(0) else (rest[i] if zeros[i] == T(1) and x[i] == T(0) else T(0))
        g[i] *= others


def _with_zeros(rng: Any, shape: tuple[int, ...]) -> Any:
    made = np.asarray(rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape))
    made.ravel()[::7] = 0.0
    return made


_prod = _declare(
    "prod", "Multiply along some axes.", "the product", "1 where there is nothing.", samples=_samples(_with_zeros)
)
_lower(_prod, TIMES, 1.0)


@_prod.grad(uses="X").lower("cpu")
def prod_grad_cpu(o: Lowering) -> None:
    """dX = dOut times the product of the other factors, exact with zeros among them."""
    x, out = o.input("X"), o.output("X@GRAD")
    if out.size == 0:
        return
    gone = _gone(o, x.shape)
    kept = _kept_shape(x.shape, gone)
    results = math.prod(kept)
    rest, zero = o.scratch(x.size, x.dtype), o.scratch(x.size, x.dtype)
    product, zeros = o.scratch(results, x.dtype), o.scratch(results, x.dtype)
    o.call(split_zeros, x, rest, zero, x.size)
    reduce_with(o, TIMES, rest, product, x.shape, gone)
    sum_axes(o, zero, zeros, x.shape, gone)
    # The products and counts need all of `rest` and `zero`, which are written again below.
    o.wait()
    spread(o, product, rest, kept, x.shape)
    spread(o, zeros, zero, kept, x.shape)
    spread(o, o.input("Out@GRAD"), out, kept, x.shape)
    o.call(product_back, x, rest, zero, out, out.size)


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(keep_equal, split_zeros, product_back)
also_on_cuda(*(found for found in list(OPS.values()) if found.module == __name__))


# --- ONNX -------------------------------------------------------------------------------------------------------------


#: Nodes of ONNX.
_REDUCE = {f"reduce_{name}": f"Reduce{name.title()}" for name in ("max", "mean", "min", "prod", "sum")}


@in_onnx(*_REDUCE)
def reduce_onnx(o: Writer) -> None:
    """Over some axes, or all."""
    inputs = [o.x()] if o.attrs["reduce_all"] else [o.x(), o.const(o.attrs["dim"])]
    made = o.node(_REDUCE[o.op.type], inputs, keepdims=int(o.attrs["keep_dim"]))
    out = o.out_type()
    if out.shape == (1,) and not o.attrs["keep_dim"]:
        o.node("Reshape", [made, o.const([1])], to="Out")
    else:
        o.node("Identity", [made], to="Out")
