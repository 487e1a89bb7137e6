"""Operators on variables: `x + y`, `2 / x`, `x < y` append the ops of the layers of these names."""

from __future__ import annotations

import numbers
from dataclasses import replace
from typing import Any

from pe_cli.core.types import FLOATS
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid.constant_sizes import known_or_fed
from pe_cli.paddle.fluid.naming import PREFIX, Naming, appended
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Variable


def _filled(like: Variable, value: Any) -> Variable:
    """Return a variable that holds one number and combines with `like`."""
    kind = "float32" if isinstance(value, float) and like.dtype not in FLOATS else like.dtype
    attrs = {"shape": [1], "dtype": kind, "value": float(value)}
    return LayerHelper("fill_constant").one("fill_constant", {}, attrs)


def _combined(op: str, x: Variable, y: Variable) -> Variable:
    helper = LayerHelper(op)
    if x.dtype != y.dtype:
        y = helper.one("cast", {"X": y}, {"in_dtype": y.dtype, "out_dtype": x.dtype})
    if len(x.shape) < len(y.shape) and op in _COMMUTES:
        x, y = y, x
    # Ops repeat their second operand only: a first one of one element is spread to the second's shape.
    elif x.shape == (1,) and y.shape != (1,):
        like = LayerHelper("fill_zeros").one("fill_like", {"X": y}, {"value": 0.0})
        x = LayerHelper("elementwise_add").one("elementwise_add", {"X": like, "Y": x}, {"axis": -1})
    if op == "elementwise_div" and x.dtype not in FLOATS:
        return towards_zero(x, y)
    if op == "elementwise_pow" and x.dtype not in FLOATS:
        return power(x, y)
    axis = 0 if y.shape[:1] == (-1,) and len(y.shape) < len(x.shape) and op not in _COMPARES else -1
    return helper.one(op, {"X": x, "Y": y}, {"axis": axis})


def towards_zero(x: Variable, y: Variable, axis: int = -1) -> Variable:
    """Return the quotient of integers, cut towards 0 as the original's is; axis: of x, where y begins."""

    def made(op: str, of: Variable) -> Variable:
        return LayerHelper(op).one(op, {"X": of}, {})

    def both(op: str, one: Variable, other: Variable) -> Variable:
        return LayerHelper(op).one(op, {"X": one, "Y": other}, {"axis": axis})

    size = both("elementwise_floordiv", made("abs", x), made("abs", y))
    return both("elementwise_mul", both("elementwise_mul", size, made("sign", x)), made("sign", y))


def power(x: Variable, y: Variable, axis: int = -1) -> Variable:
    """Return powers of integers, cut towards 0; axis: of x, where y begins."""

    def cast(v: Variable, dtype: str) -> Variable:
        return LayerHelper("cast").one("cast", {"X": v}, {"in_dtype": v.dtype, "out_dtype": dtype})

    both = {"X": cast(x, "float64"), "Y": cast(y, "float64")}
    return cast(LayerHelper("elementwise_pow").one("elementwise_pow", both, {"axis": axis}), x.dtype)


_COMPARES = ("less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal")
_COMMUTES = ("elementwise_add", "elementwise_mul", "equal", "not_equal")


def _scaled(x: Variable, scale: float, bias: float) -> Variable:
    return LayerHelper("scale").one("scale", {"X": x}, {"scale": float(scale), "bias": float(bias)})


def binary(op: str, *, reflected: bool = False) -> Any:
    """Return the method of an operator."""

    @raised_as(FluidValueError)
    def method(self: Variable, other: Any) -> Any:
        number = isinstance(other, numbers.Real) and not isinstance(other, Variable)
        if not number and not isinstance(other, Variable):
            return NotImplemented
        scales = number and _scales(op, self, float(other), reflected)
        before = int(not scales) if number else int(other.dtype != self.dtype)
        with program_guard(self.block.program):
            return appended(lambda: _result(op, self, other, reflected, scales), replace(_RESULT, before={"tmp": before}))

    return method


#: The original's name of what an operator makes.
_RESULT = Naming("tmp", (PREFIX,))


def _result(op: str, x: Variable, other: Any, reflected: bool, scales: bool) -> Variable:
    """Append an operator."""
    if scales:
        return _by_scale(op, x, float(other), reflected)
    if not isinstance(other, Variable):
        other = _filled(x, other)
        if other.dtype != x.dtype:
            x = LayerHelper("cast").one("cast", {"X": x}, {"in_dtype": x.dtype, "out_dtype": other.dtype})
    return _combined(op, other, x) if reflected else _combined(op, x, other)


def _scales(op: str, x: Variable, value: float, reflected: bool) -> bool:
    """Return whether an operator with a number is `scale x + bias`."""
    if x.dtype not in FLOATS and not value.is_integer():
        return False
    # 1 / 0 would raise here; the op gives infinity or NaN, element by element.
    divides = op == "elementwise_div" and not reflected and x.dtype in FLOATS and value != 0
    return divides or op in ("elementwise_add", "elementwise_sub", "elementwise_mul")


def _by_scale(op: str, x: Variable, value: float, reflected: bool) -> Variable:
    """Append `scale x + bias` for an operator that is that."""
    if op == "elementwise_add":
        return _scaled(x, 1.0, value)
    if op == "elementwise_sub":
        return _scaled(x, -1.0, value) if reflected else _scaled(x, 1.0, -value)
    # As in the original, times the reciprocal: the last bit may differ from that of a division.
    return _scaled(x, value if op == "elementwise_mul" else 1.0 / value, 0.0)


class Arithmetic:
    """The operators, as a mixin of variables; a variable stays hashable by identity."""

    __add__ = binary("elementwise_add")
    __radd__ = binary("elementwise_add", reflected=True)
    __sub__ = binary("elementwise_sub")
    __rsub__ = binary("elementwise_sub", reflected=True)
    __mul__ = binary("elementwise_mul")
    __rmul__ = binary("elementwise_mul", reflected=True)
    __truediv__ = binary("elementwise_div")
    __rtruediv__ = binary("elementwise_div", reflected=True)
    __pow__ = binary("elementwise_pow")
    __rpow__ = binary("elementwise_pow", reflected=True)
    __floordiv__ = binary("elementwise_floordiv")
    __mod__ = binary("elementwise_mod")
    __lt__ = binary("less_than")
    __le__ = binary("less_equal")
    __gt__ = binary("greater_than")
    __ge__ = binary("greater_equal")
    __eq__ = binary("equal")
    __ne__ = binary("not_equal")
    __hash__ = object.__hash__

    def __neg__(self: Any) -> Any:
        return self * -1

    @raised_as(FluidValueError)
    def __getitem__(self: Any, index: Any) -> Any:
        index = index if isinstance(index, tuple) else (index,)
        if len(index) == 1 and isinstance(index[0], Variable) and (index[0].dtype == "bool" or index[0].shape not in ((), (1,))):
            return _chosen(self, index[0])

        def made() -> Any:
            parts = _every_axis(self, index)
            out = _cut(self, tuple(part for part in parts if part is not None))
            return _with_new_axes(out, parts, len(self.shape))

        with program_guard(self.block.program):
            return appended(made, Naming(f"{self.name}_slice", (PREFIX,)))

    #: Indexing alone would make variables iterable without an end.
    __iter__ = None


def _chosen(x: Variable, index: Variable) -> Any:
    """Append `x[index]` of a tensor: the entries where it holds, or those of the first axis whose numbers it has."""
    with program_guard(x.block.program):
        if index.dtype == "bool":
            return appended(lambda: _where(x, index), Naming("gather_nd", before={"where_index": 1}))
        return appended(lambda: find("gather_nd").fn(x, find("unsqueeze").fn(index, [len(index.shape)])), Naming("gather"))


def _where(x: Variable, mask: Variable) -> Variable:
    rows, flat = find("reshape").fn(x, [-1, *x.shape[len(mask.shape) :]]), find("reshape").fn(mask, [-1])
    return LayerHelper("gather_nd").op("split_rows", {"X": rows, "Mask": flat}, {}, ("OutTrue", "OutFalse"))[0]


def _cut(x: Variable, index: tuple[Any, ...]) -> Variable:
    """Append the slice of `x[...]`: integers, numbers or variables, drop their axis; where none is left, one element is [1]."""
    axes, starts, ends, steps, dropped = [], [], [], [], []
    for axis, part in enumerate(index):
        if isinstance(part, slice):
            step = 1 if part.step is None else part.step
            if part.start is None and part.stop is None and step == 1:
                continue
            begin = part.start if part.start is not None else 0 if step > 0 else LAST
            end = part.stop if part.stop is not None else LAST if step > 0 else -LAST
            steps.append(step)
        elif isinstance(part, (int, Variable)) and not isinstance(part, bool):
            # The slice of -1 would end at 0, and so before it begins: it ends beyond the axis instead.
            begin, end = part, _scaled(part, 1.0, 1.0) if isinstance(part, Variable) else part + 1 or LAST
            dropped.append(axis)
            steps.append(1)
        else:
            raise FluidTypeError(f"'{x.name}' is indexed by integers and slices, got {part!r:.40}")
        axes.append(axis)
        starts.append(begin)
        ends.append(end)
    if not axes:
        return x
    plain = set(steps) == {1}
    (starts, first), (ends, last) = known_or_fed("slice", "starts", starts), known_or_fed("slice", "ends", ends)
    if first is None and last is None:
        out = find("slice").fn(x, axes, starts, ends) if plain else find("strided_slice").fn(x, axes, starts, ends, steps)
    else:
        attrs = {"axes": axes, "starts": list(starts or []), "ends": list(ends or []), **({} if plain else {"strides": steps})}
        op = "slice" if plain else "strided_slice"
        out = LayerHelper(op).one(op, {"Input": x, "Starts": first, "Ends": last}, attrs)
    if len(dropped) == len(x.shape):
        # Variables have one axis at least: one element is [1].
        dropped = dropped[1:]
    return LayerHelper("squeeze").one("squeeze", {"X": out}, {"axes": dropped}) if dropped else out


def _with_new_axes(cut: Variable, index: tuple[Any, ...], axes: int) -> Variable:
    """Append an axis of size 1 for every None of an index; one element of a variable with `axes` axes is [1] already."""
    kept = [part for part in index if part is None or isinstance(part, slice)]
    new = [i for i, part in enumerate(kept) if part is None][len(index) - len(kept) == axes :]
    return LayerHelper("unsqueeze").one("unsqueeze", {"X": cut}, {"axes": new}) if new else cut


def _every_axis(x: Variable, index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an index with whole axes instead of `...`.

    Raises:
        FluidValueError: more parts than axes, or `...` twice.
    """
    dots = [i for i, part in enumerate(index) if part is Ellipsis]
    named = len(index) - len(dots) - sum(part is None for part in index)
    if named > len(x.shape) or len(dots) > 1:
        raise FluidValueError(f"'{x.name}' has {len(x.shape)} axes, the index has {named}")
    for i in dots:
        return (*index[:i], *[slice(None)] * (len(x.shape) - named), *index[i + 1 :])
    return index


#: An end beyond every axis.
LAST = 2**31 - 1
