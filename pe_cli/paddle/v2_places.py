"""Tensor functions of 2.1 to 2.6 that read and write by numbers of places, composed of layers."""

from __future__ import annotations

import math
from typing import Any

from pe_cli.paddle.errors import FluidTypeError, FluidValueError, NotThereYet
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.selection import select
from pe_cli.paddle.v2_shapes import axis_of, both, counted, filled, known, last, spread
from pe_cli.program.ir import Variable

#: 2.6's ways to join what is put with what is there -> the op's.
WAYS = {"assign": "assign", "add": "add", "multiply": "mul", "mul": "mul", "amax": "max", "amin": "min"}


def _tensor(given: Any, like: Any) -> Any:
    """Return a number, a list or a tensor as a tensor of another one's element type."""
    if isinstance(given, Variable):
        return given if given.dtype == like.dtype else layers.cast(given, like.dtype)
    from pe_cli.paddle.dynamic_mode import to_tensor

    return to_tensor([given] if isinstance(given, (int, float)) else given, like.dtype)


def _beside(function: str, x: Any, indices: Any, axis: int) -> Any:
    """Repeat axes of size 1 of numbers of places up to x's sizes, all but the one that they go along.

    Raises:
        FluidValueError: another number of axes.
    """
    if len(x.shape) != len(indices.shape):
        raise FluidValueError(f"{function}: {x} with numbers {indices}", hint="as many axes")
    if all(a == b or i == axis for i, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True))):
        return indices
    column = layers.slice(filled(x, 0.0), [axis], [0], [1])
    return spread(indices, layers.cast(column, indices.dtype))


def take_along_axis(arr: Any, indices: Any, axis: int, broadcast: bool = True) -> Any:
    """Take along an axis, at every place of the others, the entries whose numbers are given there.

    Args:
        arr: any shape with axes.
        indices: int32 or int64, as many axes; negative ones count from the end.
        axis: along which.
        broadcast: repeat axes of size 1 of indices up to those of arr.
    """
    at = axis_of("take_along_axis", arr, axis)
    return call("take_along_axis", arr, _beside("take_along_axis", arr, indices, at) if broadcast else indices, at)


def put_along_axis(
    arr: Any,
    indices: Any,
    values: Any,
    axis: int,
    reduce: str = "assign",
    include_self: bool = True,
    broadcast: bool = True,
) -> Any:
    """Put values along an axis, at every place of the others, at the entries whose numbers are given there.

    Args:
        arr: any shape with axes.
        indices: int32 or int64, as many axes; negative ones count from the end.
        values: a number, or a tensor that is repeated up to the sizes of indices.
        axis: along which.
        reduce: how a value is joined with what is there: assign, add, multiply or mul, amax, amin.
        include_self: must be True: what is there counts.
        broadcast: repeat axes of size 1 of indices up to those of arr.

    Raises:
        FluidValueError: another way to join; a ValueError.
        NotThereYet: include_self is False.
    """
    if reduce not in WAYS:
        raise FluidValueError(f"put_along_axis: reduce is {reduce!r}", hint=", ".join(WAYS))
    if not include_self:
        raise NotThereYet("put_along_axis: include_self=False is not there", hint="put the values into a tensor of zeros or ones")
    at = axis_of("put_along_axis", arr, axis)
    indices = _beside("put_along_axis", arr, indices, at) if broadcast else indices
    given = spread(_tensor(values, arr), layers.cast(indices, arr.dtype))
    return call("put_along_axis", arr, indices, given, at, WAYS[reduce])


def index_add(x: Any, index: Any, axis: int, value: Any, name: str | None = None) -> Any:
    """Add parts of a tensor to the entries of an axis whose numbers a vector holds; one that comes twice gets both."""
    at = axis_of("index_add", x, axis)
    order = [at, *(i for i in range(len(x.shape)) if i != at)]
    back = [order.index(i) for i in range(len(order))]
    front, parts = (layers.transpose(v, order) if at else v for v in (x, _tensor(value, x)))
    added = layers.scatter_nd_add(front, layers.unsqueeze(index, [1]), parts)
    return layers.transpose(added, back) if at else added


def _at(function: str, x: Any, index: Any, axis: int) -> Any:
    """Return whether elements are in one of the entries of an axis whose numbers a vector holds, bool in x's shape."""
    (size,) = known(function, x, [axis])
    ones = filled(layers.cast(index, "float32"), 1.0)
    marks = call("put_along_axis", layers.fill_constant([size], "float32", 0.0), index, ones, 0)
    column = layers.reshape(marks, [size if i == axis else 1 for i in range(len(x.shape))])
    return layers.cast(spread(column, layers.cast(x, "float32")), "bool")


def index_fill(x: Any, index: Any, axis: int, value: Any, name: str | None = None) -> Any:
    """Put a number, or a tensor of one number, at the entries of an axis whose numbers a vector holds."""
    at = axis_of("index_fill", x, axis)
    return select(_at("index_fill", x, index, at), spread(layers.reshape(_tensor(value, x), [1] * len(x.shape)), x), x)


def index_put(x: Any, indices: Any, value: Any, accumulate: bool = False, name: str | None = None) -> Any:
    """Put values at the places that tensors of numbers say, one tensor for each of the first axes.

    Args:
        x: any shape.
        indices: int32 or int64 tensors that are repeated up to one shape, negative numbers count from the end; or one bool tensor in
            x's shape, with one value for all places.
        value: repeated up to the shape of what is put.
        accumulate: add the values; else of several at one place the last one stays.
        name: without effect.

    Raises:
        FluidValueError: bool tensors of another shape, or sizes that only a step knows; a ValueError.
    """
    chosen = list(indices) if isinstance(indices, (list, tuple)) else [indices]
    values = _tensor(value, x)
    if any(v.dtype == "bool" for v in chosen):
        if len(chosen) != 1 or list(chosen[0].shape) != list(x.shape) or math.prod(values.shape) != 1:
            raise FluidValueError(f"index_put: {x} by {chosen[0]}", hint="a condition in the shape of x and one value, or whole numbers")
        given = spread(layers.reshape(values, [1] * len(x.shape)), x)
        return select(chosen[0], layers.elementwise_add(x, given) if accumulate else given, x)
    sizes = known("index_put", x, range(len(x.shape)))
    front, rest = sizes[: len(chosen)], sizes[len(chosen) :]
    whole = layers.cast(chosen[0], "int64")
    wide = [spread(layers.cast(v, "int64"), *(layers.cast(o, "int64") for o in chosen if o is not v)) for v in chosen]
    place: Any = None
    for number, size in zip(wide, front, strict=True):
        inside = layers.elementwise_mod(number, counted([size]))
        place = inside if place is None else layers.elementwise_add(layers.elementwise_mul(place, counted([size])), inside)
    count = known("index_put", place, range(len(place.shape))) if whole is not None else []
    target = spread(values, layers.fill_constant([*count, *rest], x.dtype, 0.0))
    flat, parts = layers.reshape(x, [math.prod(front), *rest]), layers.reshape(target, [-1, *rest])
    numbers = layers.reshape(place, [-1])
    if accumulate:
        put = layers.scatter_nd_add(flat, layers.unsqueeze(numbers, [1]), parts)
    else:
        rows = spread(layers.reshape(numbers, [-1] + [1] * len(rest)), layers.cast(parts, "int64"))
        put = call("put_along_axis", flat, rows, parts, 0)
    return layers.reshape(put, sizes)


def select_scatter(x: Any, values: Any, axis: int, index: int, name: str | None = None) -> Any:
    """Put a tensor, which has x's shape but for an axis, at one entry of that axis.

    Raises:
        FluidValueError: another shape, or an entry that is not there; a ValueError.
    """
    at = axis_of("select_scatter", x, axis)
    (size,) = known("select_scatter", x, [at])
    if list(values.shape) != [s for i, s in enumerate(x.shape) if i != at] or not -size <= index < size:
        raise FluidValueError(f"select_scatter: {values} at entry {index} of axis {axis} of {x}", hint="x's shape without that axis")
    index %= size
    parts = [layers.slice(x, [at], [0], [index])] if index else []
    parts.append(layers.unsqueeze(_tensor(values, x), [at]))
    parts += [layers.slice(x, [at], [index + 1], [size])] if index + 1 < size else []
    return layers.concat(parts, at) if len(parts) > 1 else parts[0]


def take(x: Any, index: Any, mode: str = "raise", name: str | None = None) -> Any:
    """Take elements of all in a row by their numbers, in the shape of these.

    Args:
        x: any shape of known sizes.
        index: int32 or int64, any shape.
        mode: raise: numbers count from either end; wrap: they go around; clip: those outside are the nearest inside.
        name: without effect.

    Raises:
        FluidTypeError: index is no whole numbers; a TypeError.
        FluidValueError: another mode.
    """
    if mode not in ("raise", "wrap", "clip"):
        raise FluidValueError(f"take: mode is {mode!r}", hint="raise, wrap or clip")
    if not isinstance(index, Variable) or index.dtype not in ("int32", "int64"):
        raise FluidTypeError(f"take: index is {index}", hint="a tensor of int32 or int64")
    numbers = layers.reshape(layers.cast(index, "int64"), [-1])
    total = math.prod(known("take", x, range(len(x.shape))))
    if mode == "clip":
        numbers = layers.elementwise_min(layers.elementwise_max(numbers, counted([0])), counted([total - 1]))
    elif mode == "wrap":
        numbers = layers.elementwise_mod(numbers, counted([total]))
    found = call("take_along_axis", layers.reshape(x, [-1]), numbers, 0)
    return layers.reshape(found, list(index.shape))


# --- order -------------------------------------------------------------------------------------------------------------


def searchsorted(sorted_sequence: Any, values: Any, out_int32: bool = False, right: bool = False, name: str | None = None) -> Any:
    """Return at which place of rows in order each value would stand: before those that equal it, or behind with right.

    Args:
        sorted_sequence: [..., sorted], or [sorted] for values of any shape.
        values: [..., values].
        out_int32: return int32, else int64.
        right: behind those that equal it.
        name: without effect.

    Raises:
        FluidValueError: shapes that do not fit; a ValueError.
    """
    rows = list(sorted_sequence.shape)
    if len(rows) > 1 and (len(values.shape) != len(rows) or rows[:-1] != list(values.shape[:-1])):
        raise FluidValueError(f"searchsorted: {values} in {sorted_sequence}", hint="equal sizes but for the last axis")
    wide = layers.unsqueeze(values, [len(values.shape)])
    line = layers.unsqueeze(sorted_sequence, [len(rows) - 1]) if len(rows) > 1 else sorted_sequence
    line, wide = both(line, wide)
    before = (layers.less_equal if right else layers.less_than)(line, wide)
    return layers.reduce_sum(layers.cast(before, "int32" if out_int32 else "int64"), -1)


def bucketize(x: Any, sorted_sequence: Any, out_int32: bool = False, right: bool = False, name: str | None = None) -> Any:
    """Return in which bucket each element is, whose limits a vector holds in order; see `searchsorted`.

    Raises:
        FluidValueError: the limits are no vector; a ValueError.
    """
    if len(sorted_sequence.shape) != 1:
        raise FluidValueError(f"bucketize: limits are {sorted_sequence}", hint="a vector")
    return searchsorted(sorted_sequence, x, out_int32, right)


def _kept(found: Any, keepdim: bool, axis: int) -> Any:
    return found if keepdim else layers.squeeze(found, [axis])


def kthvalue(x: Any, k: int, axis: int | None = None, keepdim: bool = False, name: str | None = None) -> tuple[Any, Any]:
    """Return the k-th smallest entry along an axis, the last where there is none, and its place.

    Raises:
        FluidValueError: there are fewer; a ValueError.
    """
    at = axis_of("kthvalue", x, -1 if axis is None else axis)
    size = x.shape[at]
    if k < 1 or (size >= 0 and k > size):
        raise FluidValueError(f"kthvalue: k is {k} of axis {at} of {x}", hint=f"from 1 to {size}")
    place = layers.slice(layers.argsort(x, at)[1], [at], [k - 1], [k])
    return _kept(call("take_along_axis", x, place, at), keepdim, at), _kept(place, keepdim, at)


def mode(x: Any, axis: int = -1, keepdim: bool = False, name: str | None = None) -> tuple[Any, Any]:
    """Return the entry that is most frequent along an axis, the smallest of several, and the last of its places.

    Every entry is compared with every other of its line.
    """
    at = axis_of("mode", x, axis)
    moved = last(x, [at])
    end = len(x.shape) - 1
    ordered, places = layers.argsort(moved, end)
    rows, columns = both(layers.unsqueeze(ordered, [end]), layers.unsqueeze(ordered, [end + 1]))
    counts = layers.reduce_sum(layers.cast(layers.equal(rows, columns), "int64"), -1)
    first = layers.unsqueeze(layers.argmax(counts, end), [end])
    # Equal values stand behind each other in the order of their places: the last one is as many behind the first as there are others.
    final = layers.elementwise_add(first, layers.elementwise_sub(layers.reduce_max(counts, end, True), counted([1])))
    place = call("take_along_axis", places, final, end)
    found = call("take_along_axis", moved, place, end)
    if not keepdim:
        return layers.squeeze(found, [end]), layers.squeeze(place, [end])
    order = [*range(at), end, *range(at, end)]
    return (found, place) if at == end else (layers.transpose(found, order), layers.transpose(place, order))


def bincount(x: Any, weights: Any = None, minlength: int = 0, name: str | None = None) -> Any:
    """Count how often each whole number from 0 on comes in a vector, or add up weights of its places.

    Args:
        x: [elements] int32 or int64, none negative.
        weights: [elements], or None.
        minlength: numbers that are counted at least.
        name: without effect.

    Raises:
        FluidTypeError: x is no whole numbers; a TypeError.
    """
    if x.dtype not in ("int32", "int64"):
        raise FluidTypeError(f"bincount: {x}", hint="int32 or int64")
    most = layers.elementwise_add(layers.reshape(layers.reduce_max(layers.cast(x, "int64")), [1]), counted([1]))
    numbers = layers.range(counted([0]), layers.elementwise_max(most, counted([minlength])), counted([1]), "int64")
    rows, columns = both(layers.unsqueeze(layers.cast(x, "int64"), [0]), layers.unsqueeze(numbers, [1]))
    kind = x.dtype if weights is None else weights.dtype
    marks = layers.cast(layers.equal(rows, columns), kind)
    return layers.reduce_sum(marks if weights is None else layers.elementwise_mul(marks, layers.unsqueeze(weights, [0])), 1)


def unique_consecutive(
    x: Any,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    dtype: Any = "int64",
    name: str | None = None,
) -> Any:
    """Leave out elements, or parts along an axis, that equal the one before them; then what is asked for besides in this order.

    Args:
        x: any shape of known sizes.
        return_inverse: the place of each element, or part, among those that stay.
        return_counts: how often each comes in a row.
        axis: whose parts are compared; by default all elements in a row.
        dtype: of these, int32 or int64.
        name: without effect.
    """
    line = layers.reshape(x, [-1]) if axis is None else x
    at = 0 if axis is None else axis_of("unique_consecutive", x, axis)
    (size,) = [math.prod(known("unique_consecutive", x, range(len(x.shape))))] if axis is None else known("unique_consecutive", x, [at])
    before, behind = (layers.slice(line, [at], [i], [size - 1 + i]) for i in (0, 1))
    new = layers.cast(layers.not_equal(behind, before), "int64")
    others = [i for i in range(len(line.shape)) if i != at]
    new = layers.reduce_max(new, others) if others else new
    marks = layers.concat([counted([1]), layers.reshape(new, [size - 1])]) if size > 1 else counted([1])
    firsts = layers.reshape(layers.where(layers.cast(marks, "bool")), [-1])
    made = [layers.index_select(line, firsts, at) if at else layers.gather(line, firsts, overwrite=False)]
    if return_inverse:
        made.append(layers.cast(layers.elementwise_sub(layers.cumsum(marks, 0), counted([1])), dtype))
    if return_counts:
        ends = layers.concat([layers.slice(firsts, [0], [1], [1 << 30]), counted([size])])
        made.append(layers.cast(layers.elementwise_sub(ends, firsts), dtype))
    return made[0] if len(made) == 1 else tuple(made)


def functions() -> dict[str, Any]:
    """Return every function of this module by its name."""
    own = (
        bincount, bucketize, index_add, index_fill, index_put, kthvalue, mode, put_along_axis, searchsorted, select_scatter, take,
        take_along_axis, unique_consecutive,
    )  # fmt: skip
    return {f.__name__: f for f in own}
