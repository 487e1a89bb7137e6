"""elementwise_*: two tensors combined element by element, the smaller one broadcast by fluid's `axis`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError, WrongType
from pe_cli.core.types import FLOATS, NUMBERS, TensorType
from pe_cli.kernels.language import Kernel, T
from pe_cli.kernels.math.vector_math import log
from pe_cli.ops.define.addto import add as add_arrays
from pe_cli.ops.define.addto import added, beside
from pe_cli.ops.define.copy_kernels import copy, fill
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.onnx import same_in_onnx
from pe_cli.ops.define.registry import Attr, OpDef, Sample, op
from pe_cli.ops.define.traits import (
    Absorbed,
    AlongChannels,
    Folds,
    InPlace,
    Layout,
    PassesGradient,
    Pointwise,
    Scalar,
    SumsRows,
    Weight,
)
from pe_cli.ops.math.broadcast import aligned, back_kernel, binary_kernel, broadcast, call_binary, expanded
from pe_cli.ops.math.reduction import sum_axes
from pe_cli.ops.math.scale import scale

AXIS = {"axis": Attr(-1, "axis of X that Y's first axis stands for; -1 aligns the last axes")}
_SAME = Weight(("X", "Y"), "elementwise", "")
_DOC = """{title}

Out = {formula}. Y is broadcast: its axes are those of X from `axis` on, or the last ones; an axis of size 1 fits any. Where Y has more
axes than X, it is the other way round.

Args:
    X: any shape, {dtypes}.
    Y: dtype of X; sizes of X in a row, or 1.
    axis: of X, that Y's first axis stands for.

Returns:
    Out: dtype of X, shape of the larger one.

Raises:
    PeError: the shapes do not fit, or the dtypes differ.

Source:
    fluid.layers.{name}{note}
"""


def _of(shape: tuple[int, ...], make: Callable[[Any, tuple[int, ...]], Any] | None) -> Any:
    return shape if make is None else lambda rng: np.asarray(make(rng, shape))


def samples(make: Callable[[Any, tuple[int, ...]], Any] | None = None) -> list[Sample]:
    """Return samples of all ways to broadcast; make(rng, shape) gives values where normal numbers are not in the domain."""
    cases: list[tuple[str, tuple[int, ...], tuple[int, ...], int]] = [
        ("one shape", (3, 4), (3, 4), -1),
        ("a bias over the last axis", (5, 7), (7,), -1),
        ("a bias over the channels", (2, 3, 4, 5), (3,), 1),
        ("a row per sample", (3, 4, 5), (3,), 0),
        ("one number", (3, 5), (1,), -1),
        ("sizes of 1 inside", (2, 3, 4), (2, 1, 4), -1),
        ("X is the smaller one", (4,), (3, 4), -1),
        ("both are broadcast", (3, 1), (1, 4), -1),
        ("one element", (1,), (1,), -1),
        ("an empty batch", (0, 3), (3,), -1),
    ]
    return [Sample({"X": _of(x, make), "Y": _of(y, make)}, {} if a == -1 else {"axis": a}, name) for name, x, y, a in cases]


def declare(name: str, title: str, formula: str, dtypes: Sequence[str], note: str = ".", in_place: bool = False, **facts: Any) -> OpDef:
    """Declare an op of two tensors of one dtype whose output has that dtype.

    Args:
        name: fluid's name.
        title: first line of its doc.
        formula: of Out.
        dtypes: element types that it takes.
        note: end of the source's line.
        in_place: whether Out may take over the memory of X.
        facts: arguments of `op`.
    """

    def infer(x: TensorType, y: TensorType, *, axis: int) -> TensorType:
        check_dtypes(name, x, y, dtypes)
        return TensorType(broadcast(name, x.shape, y.shape, axis), x.dtype)

    infer.__doc__ = _DOC.format(title=title, formula=formula, dtypes=" or ".join(dtypes), name=name, note=note)
    infer.__module__ = __name__
    traits = [Layout(), SumsRows(("Y",), _of_columns), _SAME, *([InPlace({"Out": "X"})] if in_place else [])]
    return op(name, inputs="X Y", attrs=AXIS, traits=traits, **facts)(infer)


def _of_columns(attrs: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether all rows have the same Y; a gradient of X alone may not know it."""
    if "Y" not in shapes:
        return False
    first = attrs["axis"] if attrs["axis"] >= 0 else len(shapes["Out"]) - len(shapes["Y"])
    return first > 0


def check_dtypes(name: str, x: TensorType, y: TensorType, dtypes: Sequence[str]) -> None:
    """Refuse operands of different or unknown dtypes.

    Raises:
        PeError: names both.
    """
    if x.dtype != y.dtype:
        raise PeError(f"{name} needs one dtype, X is {x} and Y is {y}", hint="put a cast before one of them")
    if x.dtype not in dtypes:
        raise WrongType(f"{name} takes {' or '.join(dtypes)}, X is {x}", hint="put a cast before it")


def lower_binary(definition: OpDef, kernel: Kernel) -> None:
    """Give an op of X and Y its forward lowering."""

    @definition.lower("cpu")
    def lower(o: Lowering) -> None:
        x, y, out = o.input("X"), o.input("Y"), o.output("Out")
        call_binary(o, kernel, x, y, out, o.attrs["axis"])

    each_is(definition, Scalar("Out", kernel, ("X", "Y")))


def each_is(definition: OpDef, *scalars: Scalar) -> None:
    """Say what an element of each output is."""
    definition.give(Pointwise(lambda attrs, inputs: list(scalars)))


def _folds(definition: OpDef, value: Callable[[Any, Any], Any]) -> None:
    definition.give(Folds(lambda numbers, attrs: value(*numbers)))


def _gradients_are(definition: OpDef, x: Scalar, y: Scalar) -> None:
    assert definition.grad_op is not None
    each_is(definition.grad_op, y, x)


def into(o: Lowering, slot: str, full: Sequence[int], write: Callable[[Buffer], None]) -> None:
    """Write the gradient of an operand: straight, or through scratch and a sum over its broadcast axes.

    Args:
        o: of the gradient op.
        slot: of the gradient.
        full: shape of the result.
        write: appends the calls that write the gradient at every element of the result into a buffer.
    """
    out = o.output(slot)
    if aligned(out.shape, len(full), o.attrs["axis"]) == tuple(full):
        if out.size:
            write(out)
        return
    scratch = o.scratch(math.prod(full), out.dtype)
    if math.prod(full):
        write(scratch)
    sum_into(o, slot, scratch, full)


def sum_into(o: Lowering, to: str | Buffer, full_gradient: Buffer, full: Sequence[int], factor: float = 1.0) -> None:
    """Write factor times the gradient of an operand, which is the sum of another over the axes that were broadcast.

    Args:
        o: of the gradient op.
        to: slot of the gradient, or a buffer of its shape.
        full_gradient: of the shape of the result.
        full: that shape.
        factor: no unit.
    """
    out = o.output(to) if isinstance(to, str) else to
    own = aligned(out.shape, len(full), o.attrs["axis"])
    if out.size == 0:
        return
    if math.prod(full) == 0:
        o.call(fill, out, out.size, 0.0)
    elif own != tuple(full):
        sum_axes(o, full_gradient, out, full, [a != b for a, b in zip(own, full, strict=True)], factor)
    elif factor == 1:
        o.call(copy, full_gradient, out, out.size)
    else:
        o.call(scale.kernel, full_gradient, out, out.size, factor, 0.0)


# Gradients of Y come before those of X, which may take over the memory of Out's.
_X_TAKES_OVER = {"X@GRAD": "Out@GRAD"}


# --- add, sub ---------------------------------------------------------------------------------------------------------


def add(x, y):
    return T(x + y)


def sub(x, y):
    return T(x - y)


def _lower_sum_grad(definition: OpDef, sign: float, *traits: Any) -> None:
    @definition.grad(traits=[InPlace(_X_TAKES_OVER), *traits], adds="X@GRAD").lower("cpu")
    def lower(o: Lowering) -> None:
        g = o.input("Out@GRAD")
        if o.has("Y@GRAD"):
            sum_into(o, "Y@GRAD", g, g.shape, sign)
        if not o.has("X@GRAD"):
            return
        other, out = added(o, "X@GRAD"), o.output("X@GRAD")
        if other is not None and out.shape == g.shape:
            if out.size:
                o.call(add_arrays, other, g, out, out.size)
        else:
            beside(o, "X@GRAD", lambda to: sum_into(o, to, g, g.shape))


_add = declare("elementwise_add", "Add two tensors.", "X + Y", NUMBERS, samples=samples(), in_place=True)
_sub = declare("elementwise_sub", "Subtract a tensor.", "X - Y", NUMBERS, samples=samples(), in_place=True)
ADD, SUB = binary_kernel(add), binary_kernel(sub)
lower_binary(_add, ADD)
lower_binary(_sub, SUB)
_add.give(AlongChannels("axis"))
_lower_sum_grad(_add, 1.0, AlongChannels("axis"))
_lower_sum_grad(_sub, -1.0)
_PASSED_ON = Scalar("X@GRAD", None, ("Out@GRAD",))
_gradients_are(_add, _PASSED_ON, Scalar("Y@GRAD", None, ("Out@GRAD",)))
_gradients_are(_sub, _PASSED_ON, Scalar("Y@GRAD", scale.kernel, ("Out@GRAD",), (-1.0, 0.0)))


# --- mul, div ---------------------------------------------------------------------------------------------------------


def nonzero(rng: Any, shape: tuple[int, ...]) -> Any:
    """Return an array without values near 0."""
    return rng.uniform(0.5, 2.0, shape) * rng.choice([-1.0, 1.0], shape)


def mul(x, y):
    return T(x * y)


def div(x, y):
    return x / y


# By the quotient that is there already: -g x / y² would keep X as well, and y² overflows early.
def div_back_y(g, y, out):
    return -g * out / y


_mul = declare("elementwise_mul", "Multiply two tensors.", "X Y", NUMBERS, samples=samples(), in_place=True)
_div = declare("elementwise_div", "Divide by a tensor.", "X / Y", FLOATS, samples=samples(nonzero), in_place=True)
MUL, DIV = binary_kernel(mul), binary_kernel(div)
DIV_BACK_Y = back_kernel(div_back_y)
lower_binary(_mul, MUL)
lower_binary(_div, DIV)


@_mul.grad(uses="X Y", traits=[InPlace(_X_TAKES_OVER)]).lower("cpu")
def mul_grad_cpu(o: Lowering) -> None:
    """Each operand's gradient is Out's times the other operand."""
    g = o.input("Out@GRAD")
    for slot, other in (("Y@GRAD", "X"), ("X@GRAD", "Y")):
        if o.has(slot):
            factor = o.input(other)
            into(o, slot, g.shape, lambda to, factor=factor: call_binary(o, MUL, g, factor, to, o.attrs["axis"], g.shape))  # type: ignore[misc]


@_div.grad(uses="Y Out", traits=[InPlace(_X_TAKES_OVER)]).lower("cpu")
def div_grad_cpu(o: Lowering) -> None:
    """dX = dOut / Y, dY = -dOut Out / Y."""
    g, y = o.input("Out@GRAD"), o.input("Y")
    axis, full = o.attrs["axis"], g.shape
    if o.has("Y@GRAD"):
        divisor = expanded(o, y, full, axis)
        into(o, "Y@GRAD", full, lambda to: o.call(DIV_BACK_Y, g, divisor, o.input("Out"), to, g.size))
    if o.has("X@GRAD"):
        into(o, "X@GRAD", full, lambda to: call_binary(o, DIV, g, y, to, axis, full))


_gradients_are(_mul, Scalar("X@GRAD", MUL, ("Out@GRAD", "Y")), Scalar("Y@GRAD", MUL, ("Out@GRAD", "X")))
_gradients_are(_div, Scalar("X@GRAD", DIV, ("Out@GRAD", "Y")), Scalar("Y@GRAD", DIV_BACK_Y, ("Out@GRAD", "Y", "Out")))


_folds(_add, operator.add)
_folds(_sub, operator.sub)
_folds(_mul, operator.mul)
_folds(_div, operator.truediv)
_add.give(Absorbed("Y"), PassesGradient())


# --- max, min, pow ----------------------------------------------------------------------------------------------------


# Of two numbers of which one is NaN, every comparison is false: the test of x alone lets either NaN through.
def larger(x, y):
    return x if x > y or x != x else y


def larger_back_x(g, x, y):
    return g if x > y else T(0)


def larger_back_y(g, x, y):
    return g if x <= y else T(0)


def smaller(x, y):
    return x if x < y or x != x else y


def smaller_back_x(g, x, y):
    return g if x < y else T(0)


def smaller_back_y(g, x, y):
    return g if x >= y else T(0)


def power(x, y):
    return x**y


# x^(y - 1) is infinite at x = 0 for y = 0, where the power is 1 whatever x is.
def power_back_x(g, x, y):
    return g * y * x ** (y - T(1)) if y != T(0) else T(0)


# x^y ln x goes to 0 with x for y > 0, where the product of 0 and minus infinity would be NaN.
def power_back_y(g, x, y):
    return T(0) if x == T(0) and y >= T(0) else g * log(x) * x**y


def _lower_grad(definition: OpDef, back_x: Kernel, back_y: Kernel) -> None:
    @definition.grad(uses="X Y", traits=[InPlace(_X_TAKES_OVER)]).lower("cpu")
    def lower(o: Lowering) -> None:
        g = o.input("Out@GRAD")
        x, y = (expanded(o, o.input(slot), g.shape, o.attrs["axis"]) for slot in ("X", "Y"))
        for slot, kernel in (("Y@GRAD", back_y), ("X@GRAD", back_x)):
            if o.has(slot):
                into(o, slot, g.shape, lambda to, kernel=kernel: o.call(kernel, g, x, y, to, g.size))  # type: ignore[misc]

    both = ("Out@GRAD", "X", "Y")
    _gradients_are(definition, Scalar("X@GRAD", back_x, both), Scalar("Y@GRAD", back_y, both))


def _apart(arrays: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Move X and Y onto two grids that are never closer than 0.05."""
    x, y = (np.round(np.asarray(arrays[slot][0]) * 5) / 5 for slot in ("X", "Y"))
    return {**arrays, "X": [x], "Y": [y + 0.1]}


def _positive(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.uniform(0.5, 2.0, shape)


_TIES = "; where X = Y the gradient goes to Y."
_max = declare(
    "elementwise_max", "Take the larger element.", "max(X, Y), NaN where one is NaN", NUMBERS, _TIES,
    samples=samples(), kinks=_apart, in_place=True,
)  # fmt: skip
_min = declare(
    "elementwise_min", "Take the smaller element.", "min(X, Y), NaN where one is NaN", NUMBERS, _TIES,
    samples=samples(), kinks=_apart, in_place=True,
)  # fmt: skip
_pow = declare("elementwise_pow", "Raise to a power.", "X^Y", FLOATS, samples=samples(_positive), in_place=True)
lower_binary(_max, binary_kernel(larger))
lower_binary(_min, binary_kernel(smaller))
lower_binary(_pow, binary_kernel(power))
_lower_grad(_max, back_kernel(larger_back_x), back_kernel(larger_back_y))
_lower_grad(_min, back_kernel(smaller_back_x), back_kernel(smaller_back_y))
_lower_grad(_pow, back_kernel(power_back_x), back_kernel(power_back_y))


# --- CUDA -------------------------------------------------------------------------------------------------------------


also_on_cuda(_add, _sub, _mul, _div, _max, _min, _pow)


# --- ONNX -------------------------------------------------------------------------------------------------------------


same_in_onnx(
    {
        "elementwise_add": "Add", "elementwise_sub": "Sub", "elementwise_mul": "Mul", "elementwise_div": "Div",
        "elementwise_max": "Max", "elementwise_min": "Min", "elementwise_pow": "Pow",
    },
    axes=True,
)  # fmt: skip
