"""Tensor functions of 2.1 to 2.6 of single numbers and of numbers in a row, composed of layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.framework import as_dtype
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.selection import select
from pe_cli.paddle.nn.functional.later_losses import pairwise_distance
from pe_cli.paddle.v2_composed_functions import get_default_dtype
from pe_cli.paddle.v2_distributions import appended
from pe_cli.paddle.v2_later_functions import diff
from pe_cli.paddle.v2_shapes import axis_of, both, filled, known, spread
from pe_cli.program.ir import Variable


def _extreme(name: str, says: str) -> Any:
    larger = name == "fmax"

    def made(x: Any, y: Any, name: str | None = None) -> Any:
        x, y = both(x, y)
        first = (layers.greater_equal if larger else layers.less_equal)(x, y)
        if x.dtype in ("float32", "float64"):
            first = layers.logical_or(first, layers.isnan(y))
        return select(first, x, y)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"Return the {says} of two numbers, or the one that is no NaN."
    return made


fmax, fmin = _extreme("fmax", "larger"), _extreme("fmin", "smaller")


def remainder(x: Any, y: Any, name: str | None = None) -> Any:
    """Return what is left of x by y, with the sign of y."""
    return layers.elementwise_mod(x, y)


def floor_mod(x: Any, y: Any, name: str | None = None) -> Any:
    """Return what is left of x by y, with the sign of y."""
    return layers.elementwise_mod(x, y)


def nan_to_num(
    x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None, name: str | None = None
) -> Any:
    """Put numbers in the place of NaN and infinities: by default 0, and the largest and smallest of the element type.

    Raises:
        FluidTypeError: x is neither float32 nor float64; a TypeError.
    """
    if x.dtype not in ("float32", "float64"):
        raise FluidTypeError(f"nan_to_num: {x}", hint="float32 or float64")
    most = float(np.finfo(x.dtype).max)
    x = select(layers.isnan(x), filled(x, float(nan)), x)
    for infinite, instead in ((math.inf, most if posinf is None else posinf), (-math.inf, -most if neginf is None else neginf)):
        x = select(layers.equal(x, filled(x, infinite)), filled(x, float(instead)), x)
    return x


def heaviside(x: Any, y: Any, name: str | None = None) -> Any:
    """Return 0 below 0, 1 above, and y at 0."""
    x, y = both(x, y)
    zero = filled(x, 0)
    above = layers.cast(layers.greater_than(x, zero), x.dtype)
    return select(layers.equal(x, zero), y, layers.elementwise_mul(filled(x, 1), above))


def sgn(x: Any, name: str | None = None) -> Any:
    """Return the sign: -1, 0 or 1.

    Raises:
        FluidTypeError: x has no floats; a TypeError.
    """
    if x.dtype not in ("float16", "float32", "float64"):
        raise FluidTypeError(f"sgn: {x}", hint="floats")
    return layers.sign(x)


def ldexp(x: Any, y: Any, name: str | None = None) -> Any:
    """Return x times 2 to the power of y.

    Raises:
        FluidTypeError: not two tensors; a TypeError.
    """
    if not isinstance(x, Variable) or not isinstance(y, Variable):
        raise FluidTypeError(f"ldexp: {x} and {y}", hint="two tensors")
    kind = "float64" if "float64" in (x.dtype, y.dtype) else get_default_dtype()
    x, y = layers.cast(x, kind), layers.cast(y, kind)
    return layers.elementwise_mul(x, layers.elementwise_pow(filled(y, 2.0), y))


def frexp(x: Any, name: str | None = None) -> tuple[Any, Any]:
    """Return mantissas from 0.5 to below 1, with the signs, and exponents of 2, as floats.

    Raises:
        FluidTypeError: x is neither float32 nor float64; a TypeError.
    """
    if x.dtype not in ("float32", "float64"):
        raise FluidTypeError(f"frexp: {x}", hint="float32 or float64")
    size = layers.abs(x)
    nothing = layers.equal(size, filled(size, 0.0))
    exponent = layers.floor(layers.log2(select(nothing, filled(size, 1.0), size)))
    mantissa = layers.elementwise_div(size, layers.elementwise_pow(filled(exponent, 2.0), exponent))
    whole = layers.greater_equal(mantissa, filled(mantissa, 1.0))
    exponent = layers.elementwise_add(exponent, layers.cast(whole, x.dtype))
    mantissa = select(whole, layers.scale(mantissa, 0.5), mantissa)
    below = layers.less_than(x, filled(x, 0.0))
    exponent.stop_gradient = True
    return select(below, layers.scale(mantissa, -1.0), mantissa), exponent


def gcd(x: Any, y: Any, name: str | None = None) -> Any:
    """Return the largest whole number that divides both.

    Raises:
        FluidTypeError: not int32 or int64; a TypeError.
    """
    if x.dtype not in ("int32", "int64") or x.dtype != y.dtype:
        raise FluidTypeError(f"gcd: {x} and {y}", hint="two tensors of int32, or of int64")
    x, y = (layers.elementwise_max(v, layers.elementwise_mul(v, filled(v, -1))) for v in both(x, y))

    def goes_on(x: Any, y: Any) -> Any:
        return layers.reduce_any(layers.not_equal(y, filled(y, 0)))

    def step(x: Any, y: Any) -> list[Any]:
        done = layers.equal(y, filled(y, 0))
        rest = layers.elementwise_mod(x, select(done, filled(y, 1), y))
        return [select(done, x, y), select(done, filled(y, 0), rest)]

    return layers.while_loop(goes_on, step, [x, y])[0]


def lcm(x: Any, y: Any, name: str | None = None) -> Any:
    """Return the smallest whole number that both divide, 0 where one is 0."""
    x, y = both(x, y)
    common = gcd(x, y)
    nothing = layers.equal(common, filled(common, 0))
    product = layers.elementwise_mul(x, layers.elementwise_floordiv(y, select(nothing, filled(common, 1), common)))
    return layers.elementwise_max(product, layers.elementwise_mul(product, filled(product, -1)))


def logspace(start: Any, stop: Any, num: int, base: Any = 10.0, dtype: Any = None, name: str | None = None) -> Any:
    """Return base to the power of numbers at equal distances, both ends included."""
    kind = as_dtype(dtype or get_default_dtype())
    powers = layers.linspace(start, stop, num, "float64")
    root = layers.cast(base, "float64") if isinstance(base, Variable) else layers.fill_constant([1], "float64", float(base))
    return layers.cast(layers.elementwise_pow(spread(root, powers), powers), kind)


def _bits(name: str, says: str, one: bool = False) -> Any:
    def apply(*given: Any) -> Any:
        found = call(name, *given)
        found.stop_gradient = True
        return found

    def two(x: Any, y: Any, out: Any = None, name: str | None = None) -> Any:
        found = apply(*both(x, y))
        return found if out is None else layers.assign(found, out)

    def single(x: Any, out: Any = None, name: str | None = None) -> Any:
        return apply(x) if out is None else layers.assign(apply(x), out)

    made = single if one else two
    made.__name__ = made.__qualname__ = name
    made.__doc__ = says
    return made


bitwise_and = _bits("bitwise_and", "Keep the bits that both whole numbers, or truth values, have.")
bitwise_or = _bits("bitwise_or", "Keep the bits that one of two whole numbers, or truth values, has.")
bitwise_xor = _bits("bitwise_xor", "Keep the bits that only one of two whole numbers, or truth values, has.")
bitwise_not = _bits("bitwise_not", "Turn the bits of whole numbers, or truth values, over.", one=True)


# --- numbers in a row --------------------------------------------------------------------------------------------------


def _line(x: Any, axis: int | None) -> tuple[Any, int]:
    return (layers.reshape(x, [-1]), 0) if axis is None else (x, axis)


def cumprod(x: Any, dim: int | None = None, dtype: Any = None, name: str | None = None) -> Any:
    """Multiply everything up to each element, along an axis, or of the elements in a row."""
    x, at = _line(x if dtype is None else layers.cast(x, dtype), dim)
    return call("cumprod", x, at)


def logcumsumexp(x: Any, axis: int | None = None, dtype: Any = None, name: str | None = None) -> Any:
    """Return ln of the sum of exp of everything up to each element, along an axis, or of the elements in a row, without overflow."""
    x, at = _line(x if dtype is None else layers.cast(x, dtype), axis)
    return appended("logcumsumexp", x, axis=at)


def _running(name: str, says: str) -> Any:
    largest = name == "cummax"

    def made(x: Any, axis: int | None = None, dtype: Any = "int64", name: str | None = None) -> tuple[Any, Any]:
        x, at = _line(x, axis)
        places = appended("running_extreme", x, axis=at, largest=largest)
        return call("take_along_axis", x, places, at), places if as_dtype(dtype) == "int64" else layers.cast(places, dtype)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"Return the {says} element up to each, along an axis, or of all in a row, and its place: of equal ones the last."
    return made


cummax, cummin = _running("cummax", "largest"), _running("cummin", "smallest")


def _halves(function: str, y: Any, x: Any, dx: Any, axis: int) -> Any:
    """Return the areas between neighbours along an axis.

    Raises:
        FluidValueError: x and dx are given, or sizes do not fit; a ValueError.
    """
    at = axis_of(function, y, axis)
    (size,) = known(function, y, [at])
    if (x is not None and dx is not None) or size < 2:
        raise FluidValueError(f"{function}: {y} with x {x} and dx {dx}", hint="two elements at least, and only one of x and dx")
    sums = layers.elementwise_add(layers.slice(y, [at], [1], [size]), layers.slice(y, [at], [0], [size - 1]))
    if x is None:
        gap = 1.0 if dx is None else dx
        return layers.elementwise_mul(sums, gap) if isinstance(gap, Variable) else layers.scale(sums, 0.5 * float(gap))
    if len(x.shape) == 1 and len(y.shape) > 1:
        wide = layers.reshape(diff(x), [-1 if i == at else 1 for i in range(len(y.shape))])
    else:
        wide = diff(x, axis=at)
    return layers.scale(layers.elementwise_mul(sums, wide), 0.5)


def trapezoid(y: Any, x: Any = None, dx: Any = None, axis: int = -1, name: str | None = None) -> Any:
    """Return the area under straight lines from element to element along an axis.

    Args:
        y: heights, any shape.
        x: where they stand: [elements] or y's shape; or None.
        dx: the distance between neighbours, 1 by default.
        axis: along which.
        name: without effect.
    """
    return layers.reduce_sum(_scaled("trapezoid", y, x, dx, axis), axis_of("trapezoid", y, axis))


def cumulative_trapezoid(y: Any, x: Any = None, dx: Any = None, axis: int = -1, name: str | None = None) -> Any:
    """Return the areas of `trapezoid` up to each element but the first."""
    return layers.cumsum(_scaled("cumulative_trapezoid", y, x, dx, axis), axis_of("cumulative_trapezoid", y, axis))


def _scaled(function: str, y: Any, x: Any, dx: Any, axis: int) -> Any:
    areas = _halves(function, y, x, dx, axis)
    return layers.scale(areas, 0.5) if isinstance(dx, Variable) else areas


def renorm(x: Any, p: float, axis: int, max_norm: float) -> Any:
    """Shrink the parts along an axis whose p-norm is above a limit to it."""
    at = axis_of("renorm", x, axis)
    others = [i for i in range(len(x.shape)) if i != at]
    powers = layers.square(x) if p == 2 else layers.abs(x) if p == 1 else layers.pow(layers.abs(x), float(p))
    total = layers.reduce_sum(powers, others, True)
    sizes = layers.sqrt(total) if p == 2 else layers.pow(total, 1.0 / p)
    large = layers.greater_than(sizes, filled(sizes, float(max_norm)))
    # The 1e-7 is the original's.
    factor = select(large, layers.scale(layers.reciprocal(layers.scale(sizes, 1.0, 1e-7)), float(max_norm)), filled(sizes, 1.0))
    return layers.elementwise_mul(x, spread(factor, x))


_MATRIX = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


def cdist(x: Any, y: Any, p: float = 2.0, compute_mode: str = _MATRIX[0], name: str | None = None) -> Any:
    """Return the p-norm of the difference of every row of one tensor and every row of another: [..., rows of x, rows of y].

    Args:
        x: [..., rows, width].
        y: [..., rows, width].
        p: at least 0.
        compute_mode: use_mm_for_euclid_dist: Euclidean distances by a product of matrices, which is faster and has fewer digits;
            use_mm_for_euclid_dist_if_necessary: of more than 25 rows; donot_use_mm_for_euclid_dist: never.
        name: without effect.

    Raises:
        FluidValueError: shapes that do not fit, a negative p, or another mode; a ValueError.
    """
    if compute_mode not in _MATRIX or p < 0:
        raise FluidValueError(f"cdist: p is {p}, compute_mode {compute_mode!r}", hint=f"p at least 0; {', '.join(_MATRIX)}")
    if min(len(x.shape), len(y.shape)) < 2 or x.shape[-1] != y.shape[-1]:
        raise FluidValueError(f"cdist: {x} and {y}", hint="[..., rows, width] both")
    many = max(x.shape[-2], y.shape[-2]) > 25
    if p == 2 and (compute_mode == _MATRIX[1] or (compute_mode == _MATRIX[0] and many)):
        squares = [layers.reduce_sum(layers.square(v), -1, True) for v in (x, y)]
        order = [*range(len(y.shape) - 2), len(y.shape) - 1, len(y.shape) - 2]
        product = layers.matmul(x, y, False, True, -2.0)
        whole = layers.elementwise_add(layers.elementwise_add(product, layers.transpose(squares[1], order)), squares[0])
        return layers.sqrt(layers.clip(whole, 0.0, 3.4e38))
    rows, columns = both(layers.unsqueeze(x, [len(x.shape) - 1]), layers.unsqueeze(y, [len(y.shape) - 2]))
    return pairwise_distance(rows, columns, float(p), 0.0)


def functions() -> dict[str, Any]:
    """Return every function of this module by its name."""
    own = (
        bitwise_and, bitwise_not, bitwise_or, bitwise_xor, cdist, cummax, cummin, cumprod, cumulative_trapezoid, floor_mod,
        fmax, fmin, frexp, gcd, heaviside, lcm, ldexp,
        logcumsumexp, logspace, nan_to_num, remainder,
        renorm, sgn, trapezoid,
    )  # fmt: skip
    return {f.__name__: f for f in own}
