"""Tensor functions under their 1.8 names, where 2.x has renamed them or reordered their arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.core.types import FLOATS
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, NotThereYet
from pe_cli.paddle.fluid.constant_sizes import known_or_fed, open_sizes, sizes_of
from pe_cli.paddle.fluid.framework import as_dtype, ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.dynamic_sizes import uniform_random, where
from pe_cli.paddle.fluid.layers.ops import equal, less_equal, logical_and, logical_or
from pe_cli.paddle.fluid.layers.tensor import assign
from pe_cli.program.ir import Variable

#: What the original takes for a bound that is not given.
_LARGEST = {"float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308, "int32": 2**31 - 1, "int64": 2**63 - 1}


def _into(made: Any, out: Variable | None) -> Any:
    return made if out is None else assign(made, out)


def clamp(input: Variable, min: Any = None, max: Any = None, output: Variable | None = None, name: str | None = None) -> Any:
    """Limit numbers to a range; one of the two bounds may be left out.

    Raises:
        FluidValueError: neither is given, or min is above max; a ValueError.
    """
    if min is None and max is None:
        raise FluidValueError("clamp needs min, max or both")
    if any(isinstance(v, Variable) for v in (min, max)):
        try:
            min, max = (sizes_of("clamp", "a bound", v, single=True) for v in (min, max))
        # Compared with tensors then, which a step computes.
        except NotThereYet:  # only a step knows them
            for bound, kind in ((min, "elementwise_max"), (max, "elementwise_min")):
                if bound is not None:
                    limit = bound if isinstance(bound, Variable) else call("fill_constant", [1], input.dtype, float(bound))
                    input = call(kind, input, limit)
            return _into(input, output)
    low, high = min, max
    if input.dtype not in ("float32", "float64"):
        raise FluidTypeError(f"clamp takes float32 or float64, got {input}", hint="cast it")
    # The largest number instead of infinity, as the original has it: an infinite value is cut too.
    limit = _LARGEST[input.dtype]
    low, high = (-limit if low is None else float(low)), (limit if high is None else float(high))
    if low > high:
        raise FluidValueError(f"clamp: min {low} is above max {high}", hint="swap them")
    return _into(call("clip", input, low, high, name), output)


def addcmul(
    input: Variable, tensor1: Variable, tensor2: Variable, value: float = 1.0, out: Variable | None = None, name: str | None = None
) -> Any:
    """Return input + value tensor1 tensor2; sizes of 1 fit any."""
    product = call("elementwise_mul", tensor1, tensor2) * float(value)
    return _into(call("elementwise_add", input, product), out)


def allclose(
    input: Variable, other: Variable, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False, name: str | None = None
) -> Any:
    """Tell whether |input - other| <= atol + rtol |other| for all elements: bool [1]; infinities are near themselves only."""
    room = call("scale", call("abs", other), float(rtol), float(atol))
    near = less_equal(call("abs", call("elementwise_sub", input, other)), room)
    # inf - inf is NaN, which is near nothing; equal infinities are caught by the comparison.
    near = logical_or(logical_and(near, call("isfinite", other)), equal(input, other))
    if equal_nan:
        near = logical_or(near, logical_and(call("isnan", input), call("isnan", other)))
    return call("reduce_all", near)


def t(input: Variable, name: str | None = None) -> Any:
    """Transpose a matrix; what has fewer than two axes stays.

    Raises:
        FluidValueError: it has more than two; a ValueError.
    """
    if len(input.shape) > 2:
        raise FluidValueError(f"t takes at most two axes, got {input}", hint="use transpose with a perm")
    return call("transpose", input, [1, 0]) if len(input.shape) == 2 else call("assign", input)


def nonzero(input: Variable, as_tuple: bool = False) -> Any:
    """Find the elements that are not 0: int64 [found, axes], or a tuple of int64 [found, 1] for each axis."""
    places = where(call("cast", input, "bool"))
    if not as_tuple:
        return places
    return tuple(call("slice", places, [1], [axis], [axis + 1]) for axis in range(len(input.shape)))


def randint(  # noqa: PLR0913, PLR0917 (the original's arguments)
    low: int,
    high: int | None = None,
    shape: Any = None,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> Any:
    """Draw integers from [low, high), or from [0, low) without high, at every step; device and stop_gradient are without effect.

    Raises:
        FluidValueError: there is no integer in the range; a ValueError.
    """
    first, last = (0, low) if high is None else (low, high)
    # Drawn as float64, which holds whole numbers exactly up to 2^53.
    if last <= first or max(abs(first), abs(last)) > 1 << 52:
        raise FluidValueError(f"randint: there is no integer from {first} to below {last}", hint="high above low")
    numbers = call("floor", uniform_random([1] if shape is None else shape, "float64", float(first), float(last), seed))
    kind = as_dtype(dtype or ("int64" if out is None else out.dtype))
    # A draw that rounding took to `last` is put back.
    return _into(call("cast", call("clip", numbers, float(first), float(last - 1)), kind), out)


def pow(x: Variable, factor: Any = 1.0, name: str | None = None) -> Any:
    """Raise to a power: a number, or a variable [1] that a step may compute or be fed. Whole numbers are raised to its whole part."""
    if x.dtype not in FLOATS:
        whole = call("cast", factor, x.dtype) if isinstance(factor, Variable) else int(factor)
        return call("cast", pow(call("cast", x, "float64"), whole, name), x.dtype)
    if isinstance(factor, Variable):
        try:
            factor = float(sizes_of("pow", "factor", factor, single=True))
        except NotThereYet:
            factor = factor if factor.dtype == x.dtype else call("cast", factor, x.dtype)
            return LayerHelper("pow", name).one("elementwise_pow", {"X": x, "Y": factor})
    return call("pow", x, float(factor), name)


def diag(diagonal: Any) -> Any:
    """Make a square matrix with a diagonal and zeros beside it.

    Args:
        diagonal: an array, or a variable [size], which gradients flow to.

    Raises:
        FluidValueError: it has not one axis; a ValueError.
    """
    if len(getattr(diagonal, "shape", ())) != 1:
        raise FluidValueError(f"diag takes one axis, got {diagonal!r:.80}", hint="reshape it, or see diag_embed")
    if isinstance(diagonal, np.ndarray):
        return assign(np.diag(diagonal))
    return call("diag", diagonal)


def reshape(
    x: Variable, shape: Any, actual_shape: Variable | None = None, act: str | None = None, inplace: bool = False, name: str | None = None
) -> Any:
    """Give the same elements another shape.

    Args:
        x: any.
        shape: sizes; 0 keeps x's size of that axis, one -1 is worked out. Single sizes, or all, may be integer variables.
        actual_shape: integer variable [axes] that goes before shape.
        act: name of an activation.
        inplace: without effect: both names are one memory whenever that is right.
        name: prefix of the output's name.

    Raises:
        FluidTypeError: actual_shape is no variable; a TypeError.
    """
    ensure_defaults()
    if actual_shape is not None and not isinstance(actual_shape, Variable):
        raise FluidTypeError(f"reshape: actual_shape is a variable, got {actual_shape!r:.60}", hint="give numbers as shape")
    given = shape if actual_shape is None else actual_shape
    sizes, fed = known_or_fed("reshape", "shape", given)
    if fed is None:
        return call("reshape", x, sizes, act, name)
    helper = LayerHelper("reshape", name)
    attrs = {"shape": open_sizes("reshape", "shape", given, fed)}
    return helper.activate(helper.one("reshape", {"X": x, "Shape": fed}, attrs), act)


__all__ = ["addcmul", "allclose", "clamp", "diag", "nonzero", "pow", "randint", "reshape", "t"]
