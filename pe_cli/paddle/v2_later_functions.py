"""Tensor functions that 2.1 and later versions have, composed of layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.selection import select

#: Element types as 2.x's scripts write them, `paddle.float32`: the names that `x.dtype` has here.
DTYPES = ("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")


def _filled(like: Any, value: float) -> Any:
    made = layers.full_like(like, value)
    made.stop_gradient = True
    return made


def _axis(x: Any, axis: int) -> int:
    return axis % len(x.shape)


# --- element by element ---------------------------------------------------------------------------------------------------


def acosh(x: Any, name: str | None = None) -> Any:
    """Return the inverse hyperbolic cosine, ln(x + sqrt(x^2 - 1))."""
    return layers.log(layers.elementwise_add(x, layers.sqrt(layers.scale(layers.square(x), 1.0, -1.0))))


def asinh(x: Any, name: str | None = None) -> Any:
    """Return the inverse hyperbolic sine: that of |x|, ln(|x| + sqrt(x^2 + 1)), with the sign of x."""
    size = layers.abs(x)
    found = layers.log(layers.elementwise_add(size, layers.sqrt(layers.scale(layers.square(x), 1.0, 1.0))))
    return select(layers.less_than(x, _filled(x, 0.0)), layers.scale(found, -1.0), found)


def atanh(x: Any, name: str | None = None) -> Any:
    """Return the inverse hyperbolic tangent, (ln(1 + x) - ln(1 - x)) / 2."""
    return layers.scale(layers.elementwise_sub(layers.log1p(x), layers.log1p(layers.scale(x, -1.0))), 0.5)


def atan2(x: Any, y: Any, name: str | None = None) -> Any:
    """Return the angle of the point (y, x) to the axis of y, in radians: that of x / y, with the quadrant; 0 for the origin."""
    zero = _filled(y, 0.0)
    left, below, nothing = layers.less_than(y, zero), layers.less_than(x, zero), layers.equal(y, zero)
    angle = layers.atan(layers.elementwise_div(x, select(nothing, _filled(y, 1.0), y)))
    half = select(below, _filled(x, -math.pi), _filled(x, math.pi))
    angle = select(left, layers.elementwise_add(angle, half), angle)
    straight = layers.scale(layers.sign(x), math.pi / 2)
    return select(nothing, straight, angle)


def deg2rad(x: Any, name: str | None = None) -> Any:
    """Turn degrees into radians."""
    return layers.scale(x, math.pi / 180)


def rad2deg(x: Any, name: str | None = None) -> Any:
    """Turn radians into degrees."""
    return layers.scale(x, 180 / math.pi)


def expm1(x: Any, name: str | None = None) -> Any:
    """Return exp(x) - 1, without losing digits near 0: 2 exp(x / 2) sinh(x / 2)."""
    half = layers.scale(x, 0.5)
    return layers.scale(layers.elementwise_mul(layers.exp(half), layers.sinh(half)), 2.0)


def trunc(input: Any, name: str | None = None) -> Any:
    """Cut fractions off, towards 0."""
    return layers.elementwise_mul(layers.floor(layers.abs(input)), layers.sign(input))


def frac(x: Any, name: str | None = None) -> Any:
    """Return the fractions that `trunc` cuts off."""
    return layers.elementwise_sub(x, trunc(x))


def hypot(x: Any, y: Any, name: str | None = None) -> Any:
    """Return sqrt(x^2 + y^2)."""
    return layers.sqrt(layers.elementwise_add(layers.square(x), layers.square(y)))


def logaddexp(x: Any, y: Any, name: str | None = None) -> Any:
    """Return ln(exp(x) + exp(y)), without overflow."""
    apart = layers.abs(layers.elementwise_sub(x, y))
    return layers.elementwise_add(layers.elementwise_max(x, y), layers.log1p(layers.exp(layers.scale(apart, -1.0))))


def logit(x: Any, eps: float | None = None, name: str | None = None) -> Any:
    """Return ln(x / (1 - x)), with x held within [eps, 1 - eps] where eps is given."""
    held = x if eps is None else layers.clip(x, float(eps), 1.0 - float(eps))
    return layers.elementwise_sub(layers.log(held), layers.log1p(layers.scale(held, -1.0)))


def lerp(x: Any, y: Any, weight: Any, name: str | None = None) -> Any:
    """Return x + weight (y - x); weight is a number or a tensor."""
    gap = layers.elementwise_sub(y, x)
    moved = layers.scale(gap, float(weight)) if isinstance(weight, (int, float)) else layers.elementwise_mul(gap, weight)
    return layers.elementwise_add(x, moved)


def neg(x: Any, name: str | None = None) -> Any:
    """Return -x."""
    return layers.scale(x, -1.0)


def isclose(x: Any, y: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False, name: str | None = None) -> Any:
    """Tell where |x - y| <= atol + rtol |y|; infinities are near themselves only."""
    gap, room = layers.abs(layers.elementwise_sub(x, y)), layers.scale(layers.abs(y), float(rtol), float(atol))
    near = layers.logical_and(layers.less_equal(gap, room), call("isfinite", y))
    near = layers.logical_or(near, layers.equal(x, y))
    return layers.logical_or(near, layers.logical_and(layers.isnan(x), layers.isnan(y))) if equal_nan else near


def masked_fill(x: Any, mask: Any, value: Any, name: str | None = None) -> Any:
    """Put a value, a number or a tensor [1], where a mask holds."""
    given = _filled(x, float(value)) if isinstance(value, (int, float)) else layers.elementwise_add(_filled(x, 0.0), value)
    return select(mask, given, x)


# --- along axes ------------------------------------------------------------------------------------------------------------


def amax(x: Any, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Any:
    """Return the largest element along axes."""
    return layers.reduce_max(x, axis, keepdim)


def amin(x: Any, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Any:
    """Return the smallest element along axes."""
    return layers.reduce_min(x, axis, keepdim)


def count_nonzero(x: Any, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Any:
    """Count the elements along axes that are not 0: int64."""
    return layers.reduce_sum(layers.cast(layers.not_equal(x, _filled(x, 0.0)), "int64"), axis, keepdim)


def nansum(x: Any, axis: Any = None, dtype: Any = None, keepdim: bool = False, name: str | None = None) -> Any:
    """Add along axes, NaN counting as 0."""
    held = select(layers.isnan(x), _filled(x, 0.0), x)
    return layers.reduce_sum(held if dtype is None else layers.cast(held, dtype), axis, keepdim)


def nanmean(x: Any, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Any:
    """Average along axes what is not NaN."""
    count = layers.reduce_sum(layers.cast(layers.logical_not(layers.isnan(x)), x.dtype), axis, keepdim)
    return layers.elementwise_div(nansum(x, axis, None, keepdim), count)


def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None, name: str | None = None) -> Any:
    """Return what each element has more than the one before it along an axis, n times over.

    Raises:
        FluidValueError: the axis has a size that only a step knows, or none is left of it; a ValueError.
    """
    at = _axis(x, axis)
    parts = [p for p in (prepend, x, append) if p is not None]
    x = layers.concat(parts, at) if len(parts) > 1 else x
    size = x.shape[at]
    if n < 1 or size <= n:
        raise FluidValueError(f"diff: {n} times along axis {axis} of {x}", hint="an axis of known size, larger than n")
    for left in range(size, size - n, -1):
        x = layers.elementwise_sub(layers.slice(x, [at], [1], [left]), layers.slice(x, [at], [0], [left - 1]))
    return x


def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int], name: str | None = None) -> Any:
    """Move axes to other places; the others keep their order.

    Raises:
        FluidValueError: not as many places as axes, or one twice; a ValueError.
    """
    froms, tos = ([_axis(x, a) for a in ([v] if isinstance(v, int) else v)] for v in (source, destination))
    if len(froms) != len(tos) or len(set(froms)) != len(froms) or len(set(tos)) != len(tos):
        raise FluidValueError(f"moveaxis: {source} to {destination}", hint="as many places as axes, each once")
    rest = iter(a for a in range(len(x.shape)) if a not in froms)
    at = dict(zip(tos, froms, strict=True))
    return layers.transpose(x, [at[i] if i in at else next(rest) for i in range(len(x.shape))])


def repeat_interleave(x: Any, repeats: int, axis: int | None = None, name: str | None = None) -> Any:
    """Repeat every entry of an axis, or every element in a row, one behind the other.

    Raises:
        FluidValueError: repeats is a tensor, or below 1; a ValueError.
    """
    if not isinstance(repeats, int) or repeats < 1:
        raise FluidValueError(f"repeat_interleave: repeats is {repeats}", hint="a whole number, at least 1")
    x, at = (layers.reshape(x, [-1]), 0) if axis is None else (x, _axis(x, axis))
    wide = layers.stack([x] * repeats, at + 1)
    sizes = [0 if s == -1 and i < at else s for i, s in enumerate(x.shape)]
    sizes[at] = -1 if x.shape[at] == -1 else x.shape[at] * repeats
    return layers.reshape(wide, sizes)


def inner(x: Any, y: Any, name: str | None = None) -> Any:
    """Multiply along the last axes of both and add up."""
    if len(y.shape) == 1:
        return layers.reduce_sum(layers.elementwise_mul(x, y), -1)
    flat = layers.reshape(y, [-1, y.shape[-1]])
    return layers.reshape(layers.matmul(x, flat, False, True), [*x.shape[:-1], *y.shape[:-1]])


def outer(x: Any, y: Any, name: str | None = None) -> Any:
    """Multiply every element of one tensor by every element of another: [elements of x, elements of y]."""
    return layers.matmul(layers.reshape(x, [-1, 1]), layers.reshape(y, [1, -1]))


# --- others ----------------------------------------------------------------------------------------------------------------


def clone(x: Any, name: str | None = None) -> Any:
    """Copy a tensor; gradients flow through."""
    return layers.assign(x)


def standard_normal(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Draw standard normal numbers at every step."""
    from pe_cli.paddle.v2_composed_functions import randn

    return randn(shape, dtype)


def later_functions() -> dict[str, Any]:
    """Return every function of this module, and the element types, by their names."""
    own = (
        acosh, amax, amin, asinh, atan2, atanh, clone, count_nonzero, deg2rad, diff, expm1, frac, hypot, inner, isclose, lerp, logaddexp,
        logit, masked_fill, moveaxis, nanmean, nansum, neg, outer, rad2deg, repeat_interleave, standard_normal, trunc,
    )  # fmt: skip
    return {**{kind: kind for kind in DTYPES}, **{f.__name__: f for f in own}}
