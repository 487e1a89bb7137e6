"""Tensor functions of 2.x whose arguments have other names or another order than fluid's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pe_cli.paddle import v2_composed_functions
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.framework import as_dtype
from pe_cli.paddle.forwarding import declared, table


def add_n(inputs: Any, name: str | None = None) -> Any:
    """Add tensors of one shape."""
    return layers.sums(inputs if isinstance(inputs, (list, tuple)) else [inputs])


def gather(x: Any, index: Any, axis: Any = None, name: str | None = None) -> Any:
    """Take the entries of an axis, the first where there is none, whose numbers a vector holds."""
    return layers.gather(x, index, overwrite=False) if axis in (None, 0) else layers.index_select(x, index, axis)


def topk(x: Any, k: Any, axis: int | None = None, largest: bool = True, sorted: bool = True, name: str | None = None) -> Any:
    """Return the k largest, or smallest, entries along an axis, the last where there is none, in order, and their int64 places."""
    last = len(x.shape) - 1
    at = last if axis is None else axis % (last + 1)
    order = [last if i == at else at if i == last else i for i in range(last + 1)]
    turned = x if at == last else layers.transpose(x, order)
    values, places = layers.topk(turned if largest else layers.scale(turned, -1.0), k)
    values = values if largest else layers.scale(values, -1.0)
    return (values, places) if at == last else (layers.transpose(values, order), layers.transpose(places, order))


def _extreme(kind: str) -> Callable[..., Any]:
    def made(x: Any, axis: int | None = None, keepdim: bool = False, dtype: Any = "int64", name: str | None = None) -> Any:
        flat = layers.reshape(x, [-1]) if axis is None else x
        found = getattr(layers, kind)(flat, 0 if axis is None else axis)
        if keepdim:
            found = layers.reshape(found, [1] * len(x.shape)) if axis is None else layers.unsqueeze(found, [axis % len(x.shape)])
        return found if as_dtype(dtype) == "int64" else layers.cast(found, dtype)

    made.__name__ = made.__qualname__ = kind
    made.__doc__ = f"Return the place of the {'largest' if kind == 'argmax' else 'smallest'} entry along an axis, or of all entries."
    return made


argmax, argmin = _extreme("argmax"), _extreme("argmin")


def sum(x: Any, axis: Any = None, dtype: Any = None, keepdim: bool = False, name: str | None = None) -> Any:
    """Add along axes, or all entries; a dtype casts x first, and bool is counted in int64."""
    if dtype is None and x.dtype == "bool":
        dtype = "int64"
    return layers.reduce_sum(x if dtype is None else layers.cast(x, dtype), axis, keepdim)


def prod(x: Any, axis: Any = None, keepdim: bool = False, dtype: Any = None, name: str | None = None) -> Any:
    """Multiply along axes, or all entries; a dtype casts x first."""
    return layers.reduce_prod(x if dtype is None else layers.cast(x, dtype), axis, keepdim)


def zeros(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Make a tensor of zeros; None is the default element type."""
    return layers.fill_constant(shape, dtype or v2_composed_functions.get_default_dtype(), 0.0)


def ones(shape: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Make a tensor of ones; None is the default element type."""
    return layers.fill_constant(shape, dtype or v2_composed_functions.get_default_dtype(), 1.0)


def eye(num_rows: int, num_columns: int | None = None, dtype: Any = None, name: str | None = None) -> Any:
    """Make a matrix with ones on the diagonal and zeros elsewhere."""
    return layers.eye(num_rows, num_columns, None, dtype or v2_composed_functions.get_default_dtype())


def full_like(x: Any, fill_value: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Make a tensor of one value and of x's shape."""
    made = layers.full_like(x if dtype is None else layers.cast(x, dtype), fill_value)
    made.stop_gradient = True
    return made


def zeros_like(x: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Make zeros of x's shape."""
    return full_like(x, 0.0, dtype)


def ones_like(x: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Make ones of x's shape."""
    return full_like(x, 1.0, dtype)


def linspace(start: Any, stop: Any, num: int, dtype: Any = None, name: str | None = None) -> Any:
    """Make numbers at equal distances, both ends included."""
    return layers.linspace(start, stop, num, dtype or v2_composed_functions.get_default_dtype())


def diag(x: Any, offset: int = 0, padding_value: float = 0, name: str | None = None) -> Any:
    """Put a vector on a diagonal of a matrix, or take a diagonal of a matrix as a vector.

    Args:
        x: [n], or [rows, columns].
        offset: of the diagonal, above the main one where it is positive.
        padding_value: what stands beside the diagonal.
        name: without effect.

    Raises:
        FluidValueError: x has more axes, or sizes that only a step knows; a ValueError.
    """
    if len(x.shape) not in (1, 2) or min(x.shape) < 1:
        raise FluidValueError(f"diag takes a vector or a matrix of known sizes, got {x}")
    if len(x.shape) == 1:
        made = layers.diag_embed(x, offset)
        if padding_value:
            beside = layers.scale(layers.diag_embed(ones_like(x), offset), -1.0, 1.0)
            made = layers.elementwise_add(made, layers.scale(beside, float(padding_value)))
        return made
    rows, columns = x.shape
    first, count = max(0, -offset), min(rows - max(0, -offset), columns - max(0, offset))
    if count < 1:
        raise FluidValueError(f"diag: {x} has no diagonal {offset}")
    places = [(first + i) * columns + first + i + offset for i in range(count)]
    return layers.gather(layers.reshape(x, [-1]), layers.assign(_int64(places)))


def _int64(numbers: list[int]) -> Any:
    import numpy as np

    return np.array(numbers, "int64")


def flatten(x: Any, start_axis: int = 0, stop_axis: int = -1, name: str | None = None) -> Any:
    """Join the axes from one to another; a size that only a step knows stays the first.

    Raises:
        FluidValueError: the last axis to join stands before the first; a ValueError.
    """
    axes = len(x.shape)
    first, last = start_axis % max(axes, 1), stop_axis % max(axes, 1)
    if last < first:
        raise FluidValueError(f"flatten: stop_axis {stop_axis} stands before start_axis {start_axis}", hint="give them in order")
    return layers.reshape(x, [*([0] * first), -1, *x.shape[last + 1 :]])


#: Functions that are another one of fluid's by 2.x's arguments: that one, the arguments, the first line of the doc.
_FORWARDED = {
    "concat": ("concat", "x axis=0 name", "Put tensors one behind the other along an axis."),
    "strided_slice": ("strided_slice", "x axes starts ends strides name", "Take every few entries between two places along axes."),
    "crop": ("crop_tensor", "x shape=None offsets=None name", "Cut a part of a shape out of a tensor."),
    "is_empty": ("is_empty", "x name", "Tell whether a tensor has no entries."),
    "assign": ("assign", "x output=None", "Copy a tensor, an array or numbers."),
    "addmm": ("addmm", "input x y beta:beta=1.0 alpha:alpha=1.0 name", "Return beta input + alpha x y."),
    "shard_index": (
        "shard_index", "input index_num nshards shard_id ignore_value=-1",
        "Number ids within the shard that holds them; see `fluid.layers.shard_index`.",
    ),
    "chunk": ("split", "x chunks axis=0 name", "Cut an axis into equal parts."),
    "split": (
        "split", "x num_or_sections axis=0 name",
        "Cut an axis into a number of equal parts, or into given sizes; the first axis, where fluid's takes the last.",
    ),
    "flip": ("flip", "x axis name", "Reverse the order along axes."),
    "expand": ("broadcast_to", "x shape name", "Repeat axes of size 1 up to given sizes; fluid's takes the numbers of copies."),
    "reshape_": ("reshape", "x shape name", "Return `reshape(x, shape)`."),
    "tanh_": ("tanh", "x name", "Return `tanh(x)`."),
    "add": ("elementwise_add", "x y name", "Add two tensors."),
    **{
        kind: (kind, "x y name", f"Append `{kind}` of two tensors and return its bool result.")
        for kind in ("equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal")
    },
    **{
        kind: (f"reduce_{kind}", "x axis=None keepdim=False name", f"Append `reduce_{kind}` along axes.")
        for kind in ("max", "min", "all", "any")
    },
}


def later_functions() -> dict[str, Any]:
    """Return every function of this module by its name in 2.x, and those that ops declare."""
    own = (
        add_n, gather, topk, argmax, argmin, sum, prod, zeros, ones, eye, full_like, zeros_like, ones_like, linspace, diag, flatten,
    )  # fmt: skip
    return {**{f.__name__: f for f in own}, **table({**_FORWARDED, **declared("tensor")}, lambda name: getattr(layers, name))}
