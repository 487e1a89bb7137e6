"""Special functions, quantiles and random numbers that 2.1 to 2.6 have, composed of layers."""

from __future__ import annotations

import math
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.framework import as_dtype, ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.selection import select
from pe_cli.paddle.v2_shapes import axis_of, filled, known, last
from pe_cli.program.ir import Variable

# --- special functions --------------------------------------------------------------------------------------------------


def appended(op: str, x: Any, **attrs: Any) -> Any:
    """Append an op that no layer stands for."""
    ensure_defaults()
    with raised_as(FluidValueError):
        return LayerHelper(op).one(op, {"X": x}, attrs)


def _special(name: str, says: str, op: str, **attrs: Any) -> Any:
    def made(x: Any, name: str | None = None) -> Any:
        return appended(op, x, **attrs)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = says
    return made


lgamma = _special("lgamma", "Return the logarithm of the size of the gamma function.", "lgamma")
digamma = _special("digamma", "Return the derivative of `lgamma`.", "polygamma")
erfinv = _special("erfinv", "Return the inverse of the error function.", "erfinv")
i0 = _special("i0", "Return Bessel's modified function of the first kind and order 0.", "bessel_i", order=0)
i0e = _special("i0e", "Return `i0` times exp -|x|, which does not overflow.", "bessel_i", order=0, scaled=True)
i1 = _special("i1", "Return Bessel's modified function of the first kind and order 1.", "bessel_i", order=1)
i1e = _special("i1e", "Return `i1` times exp -|x|, which does not overflow.", "bessel_i", order=1, scaled=True)


def polygamma(x: Any, n: int, name: str | None = None) -> Any:
    """Return the derivative of order n of `digamma`."""
    return appended("polygamma", x, n=n)


def multigammaln(x: Any, p: int, name: str | None = None) -> Any:
    """Return the logarithm of the gamma function of p dimensions.

    Raises:
        FluidValueError: p is below 1; a ValueError.
    """
    if p < 1:
        raise FluidValueError(f"multigammaln: p is {p}", hint="a whole number, at least 1")
    parts = [lgamma(layers.scale(x, 1.0, -0.5 * i)) for i in range(p)]
    return layers.scale(layers.sums(parts) if p > 1 else parts[0], 1.0, 0.25 * p * (p - 1) * math.log(math.pi))


# --- quantiles ---------------------------------------------------------------------------------------------------------


def _ordered(function: str, x: Any, axis: Any) -> tuple[Any, list[int]]:
    axes = list(range(len(x.shape))) if axis is None else [axis_of(function, x, a) for a in ([axis] if isinstance(axis, int) else axis)]
    if not axes or len(set(axes)) != len(axes):
        raise FluidValueError(f"{function}: axis is {axis} of {x}", hint="axes, each once")
    moved = last(x, axes)
    count = len(x.shape) - len(axes)
    flat = layers.reshape(moved, [*(0 if s == -1 else s for s in moved.shape[:count]), math.prod(known(function, x, axes))])
    return flat, axes


def _quantile(function: str, x: Any, q: Any, axis: Any, keepdim: bool, ignore: bool) -> Any:
    given = [q] if isinstance(q, (int, float)) else q
    if isinstance(q, Variable) or not given or not all(0 <= v <= 1 for v in given):
        raise FluidValueError(f"{function}: q is {q}", hint="a number from 0 to 1, or a list of them")
    flat, axes = _ordered(function, x, axis)
    end, size = len(flat.shape) - 1, flat.shape[-1]
    held = layers.isnan(flat)
    missing_ones = layers.reduce_sum(layers.cast(held, flat.dtype), end, True)
    # NaN stands behind all numbers.
    order = layers.argsort(flat, end)[1]
    top = layers.scale(missing_ones, -1.0, size - 1.0) if ignore else filled(missing_ones, size - 1.0)
    top = layers.elementwise_max(top, filled(top, 0.0))
    made = []
    for share in given:
        at = layers.scale(top, float(share))
        low = layers.floor(at)
        weight = layers.elementwise_sub(at, low)
        high = layers.elementwise_min(layers.scale(low, 1.0, 1.0), top)
        ends = [call("take_along_axis", flat, call("take_along_axis", order, layers.cast(v, "int64"), end), end) for v in (low, high)]
        # Of one place alone where it is a whole number: what stands at the other one does not count, infinities included.
        between = layers.elementwise_add(ends[0], layers.elementwise_mul(layers.elementwise_sub(ends[1], ends[0]), weight))
        found = select(layers.greater_than(weight, filled(weight, 0.0)), between, ends[0])
        if not ignore:
            some = layers.greater_than(missing_ones, filled(missing_ones, 0.0))
            found = select(some, filled(found, math.nan), found)
        sizes = [1 if i in axes else s for i, s in enumerate(x.shape)] if keepdim else [s for i, s in enumerate(x.shape) if i not in axes]
        made.append(layers.reshape(found, sizes or [1]))
    if len(made) == 1:
        return made[0]
    return layers.concat(made) if axis is None and not keepdim else layers.stack(made, 0)


def quantile(x: Any, q: Any, axis: Any = None, keepdim: bool = False) -> Any:
    """Return what a share of the elements is below, between two of them on the line between both; NaN where one is.

    Args:
        x: float32 or float64.
        q: the share, from 0 to 1, or a list of them; several become the first axis.
        axis: axis or axes along which; all by default.
        keepdim: leave an axis of size 1 in place of each.

    Returns:
        float64.
    """
    return _quantile("quantile", layers.cast(x, "float64"), q, axis, keepdim, ignore=False)


def nanquantile(x: Any, q: Any, axis: Any = None, keepdim: bool = False) -> Any:
    """Return the `quantile` of what is not NaN, float64; NaN where nothing is left."""
    return _quantile("nanquantile", layers.cast(x, "float64"), q, axis, keepdim, ignore=True)


def nanmedian(x: Any, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Any:
    """Return the middle one of what is not NaN, or the mean of the two middle ones; NaN where nothing is left."""
    return _quantile("nanmedian", x, 0.5, axis, keepdim, ignore=True)


# --- random numbers ----------------------------------------------------------------------------------------------------


def randint_like(x: Any, low: int = 0, high: int | None = None, dtype: Any = None, name: str | None = None) -> Any:
    """Draw whole numbers from [low, high), or from [0, low), in the shape of x at every step; of x's element type by default.

    Raises:
        FluidValueError: there is none; a ValueError.
    """
    from pe_cli.paddle.v2_composed_functions import _like

    first, end = (0, low) if high is None else (low, high)
    if end <= first:
        raise FluidValueError(f"randint_like: there is no whole number from {first} to below {end}", hint="high above low")
    drawn = layers.floor(_like(layers.cast(x, "float64"), "uniform_random", min=float(first), max=float(end)))
    return layers.cast(layers.clip(drawn, float(first), float(end - 1)), as_dtype(dtype or x.dtype))


def poisson(x: Any, name: str | None = None) -> Any:
    """Draw counts at every step whose mean each element is: how many waiting times fit into it.

    Exact up to a mean of 64; above, the normal number of that mean and variance is rounded.
    """
    from pe_cli.paddle.v2_composed_functions import _like

    small = layers.clip(x, 0.0, 64.0)
    # The first waiting times of rate 1: 64 events need fewer than 160 of them but for a share of 1e-18.
    end = len(x.shape)
    wide = layers.stack([small] * 160, end)
    steps = layers.scale(layers.log(layers.scale(_like(wide, "uniform_random", min=0.0, max=1.0), -1.0, 1.0)), -1.0)
    times = layers.cumsum(steps, end)
    few = layers.reduce_sum(layers.cast(layers.less_equal(times, wide), x.dtype), end)
    normal = layers.elementwise_add(x, layers.elementwise_mul(layers.sqrt(x), _like(x, "gaussian_random", mean=0.0, std=1.0)))
    many = layers.round(layers.elementwise_max(normal, filled(x, 0.0)))
    drawn = select(layers.less_equal(x, filled(x, 64.0)), few, many)
    drawn.stop_gradient = True
    return drawn


def functions() -> dict[str, Any]:
    """Return every function of this module by its name."""
    own = (
        digamma, erfinv, i0, i0e, i1, i1e, lgamma, multigammaln, nanmedian, nanquantile, poisson, polygamma, quantile, randint_like,
    )  # fmt: skip
    return {f.__name__: f for f in own}
