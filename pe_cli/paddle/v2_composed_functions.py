"""Tensor functions of 2.x that are composed of layers, or call them with other arguments than fluid."""

from __future__ import annotations

import math
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.framework import as_dtype
from pe_cli.program.ir import Variable


def norm(x: Any, p: Any = "fro", axis: Any = None, keepdim: bool = False, name: str | None = None) -> Any:
    """Measure the length of vectors; 'fro' is the root of the sum of squares.

    Raises:
        FluidValueError: p is neither 'fro' nor a number.
    """
    if isinstance(p, str) and p != "fro":
        raise FluidValueError(f"norm: p is {p!r}", hint="'fro' or a number")
    axes = list(axis) if isinstance(axis, tuple) else axis
    return layers.norm(x, 2.0 if p == "fro" else float(p), axes, keepdim)


def std(x: Any, axis: Any = None, unbiased: bool = True, keepdim: bool = False, name: str | None = None) -> Any:
    """Return the standard deviation along axes."""
    return layers.std(x, list(axis) if isinstance(axis, tuple) else axis, unbiased, keepdim)


def var(x: Any, axis: Any = None, unbiased: bool = True, keepdim: bool = False, name: str | None = None) -> Any:
    """Return the variance along axes."""
    return layers.var(x, list(axis) if isinstance(axis, tuple) else axis, unbiased, keepdim)


def arange(start: Any = 0, end: Any = None, step: Any = 1, dtype: Any = None, name: str | None = None) -> Any:
    """Make the numbers from start on, by step, below end; with one number, those from 0 on below it.

    Args:
        dtype: int64 by default where all numbers are whole, else the default element type.
    """
    first, last = (0, start) if end is None else (start, end)
    if dtype is None:
        whole = all(v.dtype in ("int32", "int64") if isinstance(v, Variable) else isinstance(v, int) for v in (first, last, step))
        dtype = "int64" if whole else get_default_dtype()
    return layers.range(first, last, step, dtype)


def unique(
    x: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    dtype: Any = "int64",
    name: str | None = None,
) -> Any:
    """Find the different elements of a tensor, or its different parts along an axis, in order; what is asked for besides in this order.

    Args:
        return_index: where each comes first.
        return_inverse: the place of each element, or part, among the different ones.
        return_counts: how often each comes.
        axis: whose parts are compared.
        dtype: of these, int32 or int64.

    Raises:
        FluidValueError: there is no such axis; a ValueError.
    """
    axes = [] if axis is None else [axis + len(x.shape) if axis < 0 else axis]
    with raised_as(FluidValueError):
        slots = ("Out", "Index", "Inverse", "Count")
        made = LayerHelper("unique", name).op("unique_sorted", {"X": x}, {"axis": axes, "dtype": as_dtype(dtype)}, slots)
    asked = [v for v, wanted in zip(made, (True, return_index, return_inverse, return_counts), strict=True) if wanted]
    return asked[0] if len(asked) == 1 else tuple(asked)


def numel(x: Any, name: str | None = None) -> Any:
    """Return how many elements there are, as int64 [1]."""
    # Through float64, which holds every product of sizes exactly that memory can have.
    return layers.cast(layers.reduce_prod(layers.cast(layers.shape(x), "float64")), "int64")


def allclose(
    x: Any, y: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False, name: str | None = None
) -> Any:
    """Tell whether |x - y| <= atol + rtol |y| for all elements: bool [1]; infinities are near themselves only."""
    room = layers.scale(layers.abs(y), float(rtol), float(atol))
    near = layers.less_equal(layers.abs(layers.elementwise_sub(x, y)), room)
    # An infinite y would make the allowed distance infinite, and everything near it.
    near = layers.logical_and(near, _finite(y))
    near = layers.logical_or(near, layers.equal(x, y))
    if equal_nan:
        near = layers.logical_or(near, layers.logical_and(layers.isnan(x), layers.isnan(y)))
    return layers.reduce_all(near)


def _finite(x: Any) -> Any:
    from pe_cli.layers.define.registry import find

    return find("isfinite").fn(x)


def isfinite(x: Any, name: str | None = None) -> Any:
    """Tell which elements are neither NaN nor infinite; fluid's tells it of all together."""
    return _finite(x)


def equal_all(x: Any, y: Any, name: str | None = None) -> Any:
    """Tell whether two tensors have one shape and the same elements: bool [1]."""
    # Without one shape they are not equal, which is known while the program is made.
    if len(x.shape) != len(y.shape) or any(-1 not in (a, b) and a != b for a, b in zip(x.shape, y.shape, strict=True)):
        return layers.cast(layers.fill_constant([1], "int32", 0), "bool")
    return layers.reduce_all(layers.equal(x, y))


def squeeze(x: Any, axis: Any = None, name: str | None = None) -> Any:
    """Leave out axes of size 1."""
    return layers.squeeze(x, _axes(axis))


def unsqueeze(x: Any, axis: Any, name: str | None = None) -> Any:
    """Insert axes of size 1."""
    return layers.unsqueeze(x, _axes(axis))


def meshgrid(*args: Any, **given: Any) -> Any:
    """Lay vectors out along the axes of a grid: vectors, or one list of them."""
    vectors = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
    return layers.meshgrid(list(vectors))


def expand_as(x: Any, y: Any, name: str | None = None) -> Any:
    """Repeat axes of size 1 up to the sizes of another tensor."""
    return layers.broadcast_to(x, list(y.shape))


def empty(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Make a tensor whose values do not matter: zeros."""
    return layers.fill_constant(shape, _floats(dtype), 0.0)


def empty_like(x: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Make a tensor whose values do not matter, in the shape of another: zeros."""
    return layers.full_like(x, 0.0, dtype)


def is_tensor(x: Any) -> bool:
    """Tell whether something is a variable of a program."""
    return isinstance(x, Variable)


# --- the default element type ------------------------------------------------------------------------------------------

_FLOATS = ["float32"]


def get_default_dtype() -> str:
    """Return the element type of functions that make numbers, where none is given."""
    return _FLOATS[0]


def set_default_dtype(d: Any) -> None:
    """Set the element type of functions that make numbers, where none is given.

    Raises:
        FluidTypeError: neither float32 nor float64.
    """
    found = as_dtype(d)
    if found not in ("float32", "float64"):
        raise FluidTypeError(f"set_default_dtype takes float32 or float64, got {found}")
    _FLOATS[0] = found


def _floats(dtype: Any) -> str:
    return get_default_dtype() if dtype is None else as_dtype(dtype)


# --- random numbers ------------------------------------------------------------------------------------------------------


def rand(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Draw numbers from [0, 1) at every step."""
    return uniform(shape, dtype, 0.0, 1.0)


def uniform(
    shape: Any, dtype: Any = None, min: float = -1.0, max: float = 1.0, seed: int = 0, name: str | None = None
) -> Any:
    """Draw numbers from [min, max) at every step."""
    return layers.uniform_random(shape, _floats(dtype), float(min), float(max), seed)


def randn(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Draw standard normal numbers at every step."""
    return layers.gaussian_random(shape, 0.0, 1.0, 0, _floats(dtype))


def normal(mean: Any = 0.0, std: Any = 1.0, shape: Any = None, name: str | None = None) -> Any:
    """Draw normal numbers at every step; mean and std are numbers or tensors, which say the shape.

    Raises:
        FluidValueError: numbers without a shape.
    """
    like = next((v for v in (mean, std) if isinstance(v, Variable)), None)
    if like is None:
        if shape is None:
            raise FluidValueError("normal: there is no shape", hint="give shape, or a tensor for mean or std")
        return layers.gaussian_random(shape, float(mean), float(std), 0, get_default_dtype())
    drawn = _like(like, "gaussian_random", mean=0.0, std=1.0)
    drawn = layers.elementwise_mul(drawn, std) if isinstance(std, Variable) else layers.scale(drawn, float(std))
    return layers.elementwise_add(drawn, mean) if isinstance(mean, Variable) else layers.scale(drawn, 1.0, float(mean))


def _like(x: Any, kind: str, **given: Any) -> Any:
    """Draw in the shape of x."""
    if -1 in x.shape[1:]:
        raise FluidValueError(f"random numbers for {x}: only the first size may be unknown", hint="reshape it")
    if x.shape[0] == -1:
        return getattr(layers, f"{kind}_batch_size_like")(x, list(x.shape), dtype=x.dtype, **given)
    return getattr(layers, kind)(list(x.shape), dtype=x.dtype, **given)


def randint(low: int = 0, high: int | None = None, shape: Any = (1,), dtype: Any = None, name: str | None = None) -> Any:
    """Draw integers from [low, high) at every step; from [0, low) without high.

    Raises:
        FluidValueError: there is none.
    """
    first, last = (0, low) if high is None else (low, high)
    if last <= first or max(abs(first), abs(last)) > 1 << 52:
        raise FluidValueError(f"randint: there is no integer from {first} to below {last}", hint="high above low")
    # float64 has integers up to 2^52 and a fraction beside; rounding may still reach the upper end, which is cut off.
    numbers = layers.floor(layers.uniform_random(shape, "float64", float(first), float(last)))
    return layers.cast(layers.clip(numbers, float(first), float(last - 1)), as_dtype(dtype or "int64"))


def bernoulli(x: Any, name: str | None = None) -> Any:
    """Draw 1 with the probability that each element is, else 0, at every step."""
    return layers.cast(layers.less_than(_like(x, "uniform_random", min=0.0, max=1.0), x), x.dtype)


def multinomial(x: Any, num_samples: int = 1, replacement: bool = False, name: str | None = None) -> Any:
    """Draw numbers of classes at every step, in proportion to the weights of the last axis: int64.

    Raises:
        FluidValueError: more samples than classes, without replacement.
    """
    classes = x.shape[-1]
    if not replacement and num_samples > classes:
        raise FluidValueError(f"multinomial: {num_samples} different ones of {classes} classes", hint="replacement=True")
    # Of waiting times -ln(1 - u) / weight, the least is that of a class with the probability of its weight.
    weights = x
    if replacement:
        weights = layers.tile(layers.unsqueeze(x, [len(x.shape) - 1]), [num_samples, 1])
    drawn = layers.log(layers.scale(_like(weights, "uniform_random", min=0.0, max=1.0), -1.0, 1.0))
    # A waiting time of 0 would divide by 0.
    waiting = layers.clip(layers.scale(drawn, -1.0), 1e-30, math.inf)
    found = layers.topk(layers.elementwise_div(weights, waiting), 1 if replacement else num_samples)[1]
    return layers.squeeze(found, [len(weights.shape) - 1]) if replacement else found


# --- in place -------------------------------------------------------------------------------------------------------------
# In the static mode of the original these return a new tensor, too; memory is shared by the plans of `enable_inplace`.


def squeeze_(x: Any, axis: Any = None, name: str | None = None) -> Any:
    """Return `squeeze(x, axis)`."""
    return squeeze(x, axis)


def unsqueeze_(x: Any, axis: Any, name: str | None = None) -> Any:
    """Return `unsqueeze(x, axis)`."""
    return unsqueeze(x, axis)


def _axes(axis: Any) -> list[int]:
    return [] if axis is None else list(axis) if isinstance(axis, (list, tuple)) else [axis]


def scatter_(x: Any, index: Any, updates: Any, overwrite: bool = True, name: str | None = None) -> Any:
    """Return `scatter(x, index, updates, overwrite)`."""
    return layers.scatter(x, index, updates, name, overwrite)


__all__ = [
    "allclose", "arange", "bernoulli", "empty", "empty_like", "equal_all", "expand_as",
    "get_default_dtype", "is_tensor", "isfinite", "meshgrid", "multinomial", "norm", "normal", "numel", "rand",
    "randint", "randn", "scatter_", "set_default_dtype", "squeeze", "squeeze_", "std",
    "uniform", "unique", "unsqueeze", "unsqueeze_", "var",
]  # fmt: skip
