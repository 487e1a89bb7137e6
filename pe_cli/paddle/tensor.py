"""Tensor functions of 2.x's top level, on static variables."""

from __future__ import annotations

import functools
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle import v2_composed_functions as further
from pe_cli.paddle import v2_distributions, v2_later_functions, v2_modes, v2_numbers, v2_places, v2_shapes
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.layers.selection import select
from pe_cli.paddle.v2_functions import later_functions

#: 2.x's name -> fluid's, where the arguments have the same order.
SAME = {
    **{
        name: name
        for name in (
            "abs", "acos", "asin", "atan", "cast", "ceil", "cos", "exp", "floor", "log",
            "logical_and", "logical_not", "logical_or", "logical_xor", "matmul", "multiplex",
            "reciprocal", "reshape", "round", "rsqrt", "scale", "shape", "sign", "sin", "sqrt", "square",
            "stanh", "tanh", "transpose", "unbind", "unstack", "slice", "rank", "scatter_nd", "erf", "bmm",
            "broadcast_to", "cholesky", "cosh", "cross", "diag_embed", "dist", "dot", "index_sample",
            "index_select", "inverse", "isinf", "isnan", "kron", "log10", "log1p", "log2", "logsumexp", "median", "mv", "roll", "sinh",
            "t", "tan", "tile", "trace",
        )
    },
    "subtract": "elementwise_sub",
    "multiply": "elementwise_mul",
    "divide": "elementwise_div",
    "maximum": "elementwise_max",
    "minimum": "elementwise_min",
    "floor_divide": "elementwise_floordiv",
    "mod": "elementwise_mod",
}  # fmt: skip


def mean(x: Any, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Any:
    """Average all elements to [1], or those along axes."""
    return layers.mean(x) if axis is None else layers.reduce_mean(x, axis, keepdim)


def full(shape: Any, fill_value: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Make a tensor of one value."""
    return layers.full(shape, fill_value, None, dtype or further.get_default_dtype())


def pow(x: Any, y: Any, name: str | None = None) -> Any:
    """Raise to a power: a number or a tensor."""
    return layers.pow(x, y) if isinstance(y, (int, float)) else layers.elementwise_pow(x, y)


def clip(x: Any, min: float | None = None, max: float | None = None, name: str | None = None) -> Any:
    """Limit values to a range."""
    low, high = (-3.4e38 if min is None else min), (3.4e38 if max is None else max)
    return layers.clip(x, low, high)


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """Choose between two tensors element by element; without them, find where a condition holds."""
    return layers.where(condition) if x is None and y is None else select(condition, x, y)


def nonzero(x: Any, as_tuple: bool = False) -> Any:
    """Find where a tensor is not 0: int64 [places, axes], or one [places, 1] for each axis."""
    found = layers.where(layers.cast(x, "bool"))
    return tuple(layers.slice(found, [1], [i], [i + 1]) for i in range(len(x.shape))) if as_tuple else found


def masked_select(x: Any, mask: Any, name: str | None = None) -> Any:
    """Take the elements where a mask of x's shape holds, as a vector."""
    helper, flat = LayerHelper("masked_select", name), [layers.reshape(v, [-1]) for v in (x, mask)]
    return helper.op("split_rows", {"X": flat[0], "Mask": flat[1]}, {}, ("OutTrue", "OutFalse"))[0]


def cumsum(x: Any, axis: int | None = None, dtype: Any = None, name: str | None = None) -> Any:
    """Sum everything up to each element, along an axis, or of the elements in a row."""
    x = x if dtype is None else layers.cast(x, dtype)
    return layers.cumsum(layers.reshape(x, [-1]) if axis is None else x, -1 if axis is None else axis)


def einsum(equation: str, *operands: Any) -> Any:
    """Multiply tensors and add up, as letters of their axes say."""
    return layers.einsum(equation, list(operands))


def argsort(x: Any, axis: int = -1, descending: bool = False, name: str | None = None) -> Any:
    """Return the places of the elements in order, along an axis."""
    return layers.argsort(x, axis, descending)[1]


def sort(x: Any, axis: int = -1, descending: bool = False, name: str | None = None) -> Any:
    """Sort along an axis."""
    return layers.argsort(x, axis, descending)[0]


def scatter(x: Any, index: Any, updates: Any, overwrite: bool = True, name: str | None = None) -> Any:
    """Write rows by number; the other rows stay."""
    return layers.scatter(x, index, updates, name, overwrite)


def randperm(n: int, dtype: str = "int64", name: str | None = None) -> Any:
    """Put the integers from 0 to n - 1 in a random order."""
    return layers.randperm(n, dtype=dtype)


@functools.cache
def functions() -> dict[str, Any]:
    """Return every function that is there."""
    same = {name: getattr(layers, other) for name, other in SAME.items() if hasattr(layers, other)}
    own = (mean, full, pow, clip, where, nonzero, masked_select, cumsum, einsum, argsort, sort, scatter, randperm)
    more = {name: getattr(further, name) for name in further.__all__}
    found = {**same, **{f.__name__: f for f in own}, **more, **later_functions(), **v2_later_functions.later_functions()}
    for module in (v2_shapes, v2_numbers, v2_distributions, v2_places):
        found |= {name: raised_as(FluidValueError)(function) for name, function in module.functions().items()}
    return {**v2_modes.functions(), **v2_modes.in_place(found), **found}
