"""Operators on variables: `x + y`, `2 / x`, `x < y` append the ops of the layers of these names."""

from __future__ import annotations

import numbers
from typing import Any

from pe_cli.core.types import FLOATS
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
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
    elif x.shape == (1,) and y.shape != (1,):
        like = LayerHelper("fill_zeros").one("fill_like", {"X": y}, {"value": 0.0})
        x = LayerHelper("elementwise_add").one("elementwise_add", {"X": like, "Y": x}, {"axis": -1})
    if op == "elementwise_div" and x.dtype not in FLOATS:
        return _towards_zero(x, y)
    return helper.one(op, {"X": x, "Y": y}, {"axis": -1})


def _towards_zero(x: Variable, y: Variable) -> Variable:
    """Return the quotient of integers, cut towards 0 as the original's is."""

    def made(op: str, of: Variable) -> Variable:
        return LayerHelper(op).one(op, {"X": of}, {})

    def both(op: str, one: Variable, other: Variable) -> Variable:
        return LayerHelper(op).one(op, {"X": one, "Y": other}, {"axis": -1})

    size = both("elementwise_floordiv", made("abs", x), made("abs", y))
    return both("elementwise_mul", both("elementwise_mul", size, made("sign", x)), made("sign", y))


_COMMUTES = ("elementwise_add", "elementwise_mul", "equal", "not_equal")


def _scaled(x: Variable, scale: float, bias: float) -> Variable:
    return LayerHelper("scale").one("scale", {"X": x}, {"scale": float(scale), "bias": float(bias)})


def binary(op: str, *, reflected: bool = False) -> Any:
    """Return the method of an operator."""

    def method(self: Variable, other: Any) -> Any:
        number = isinstance(other, numbers.Real) and not isinstance(other, Variable)
        if not number and not isinstance(other, Variable):
            return NotImplemented
        with program_guard(self.block.program):
            if number:
                short = _by_scale(op, self, float(other), reflected)
                if short is not None:
                    return short
                other = _filled(self, other)
                if other.dtype != self.dtype:
                    cast = {"in_dtype": self.dtype, "out_dtype": other.dtype}
                    self = LayerHelper("cast").one("cast", {"X": self}, cast)
            return _combined(op, other, self) if reflected else _combined(op, self, other)

    return method


def _by_scale(op: str, x: Variable, value: float, reflected: bool) -> Variable | None:
    """Return `scale x + bias` where that is what the operator means."""
    if x.dtype not in FLOATS and not value.is_integer():
        return None
    if op == "elementwise_add":
        return _scaled(x, 1.0, value)
    if op == "elementwise_sub":
        return _scaled(x, -1.0, value) if reflected else _scaled(x, 1.0, -value)
    if op == "elementwise_mul":
        return _scaled(x, value, 0.0)
    if op == "elementwise_div" and not reflected and x.dtype in FLOATS and value != 0:
        return _scaled(x, 1.0 / value, 0.0)
    return None


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

    def __getitem__(self: Any, index: Any) -> Any:
        with program_guard(self.block.program):
            return _cut(self, index if isinstance(index, tuple) else (index,))

    #: Indexing alone would make variables iterable without an end.
    __iter__ = None


def _cut(x: Variable, index: tuple[Any, ...]) -> Variable:
    """Append the slice of `x[...]`: integers drop their axis, unless none is left."""
    if len(index) > len(x.shape):
        raise FluidValueError(f"'{x.name}' has {len(x.shape)} axes, the index has {len(index)}")
    axes, starts, ends, dropped = [], [], [], []
    for axis, part in enumerate(index):
        if isinstance(part, slice):
            if part.step not in (None, 1):
                raise FluidValueError(f"'{x.name}': steps of a slice must be 1, got {part.step}", hint="strided_slice")
            if part.start is None and part.stop is None:
                continue
            begin, end = part.start or 0, LAST if part.stop is None else part.stop
        elif isinstance(part, int):
            begin, end = part, part + 1 or LAST
            dropped.append(axis)
        else:
            raise FluidTypeError(f"'{x.name}' is indexed by integers and slices, got {part!r:.40}")
        axes.append(axis)
        starts.append(begin)
        ends.append(end)
    if not axes:
        return x
    out = LayerHelper("slice").one("slice", {"Input": x}, {"axes": axes, "starts": starts, "ends": ends})
    if dropped and len(dropped) < len(x.shape):
        out = LayerHelper("squeeze").one("squeeze", {"X": out}, {"axes": dropped})
    return out


#: An end beyond every axis.
LAST = 2**31 - 1
