"""Tensor functions of 2.1 to 2.6 that take tensors apart and put parts into them, composed of layers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.framework import as_dtype
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.program.ir import Variable


def filled(like: Any, value: float) -> Any:
    """Return one value in the shape and element type of a tensor."""
    made = layers.full_like(like, value)
    made.stop_gradient = True
    return made


def spread(x: Any, *others: Any) -> Any:
    """Repeat a tensor's axes of size 1 up to the sizes of others."""
    kind = x.dtype
    for other in others:
        if list(x.shape) != list(other.shape):
            wide = layers.cast(x, "int32") if kind == "bool" else x
            zeros = filled(other if other.dtype == wide.dtype else layers.cast(other, wide.dtype), 0)
            x = layers.cast(layers.elementwise_add(wide, zeros), kind) if kind == "bool" else layers.elementwise_add(wide, zeros)
    return x


def both(x: Any, y: Any) -> tuple[Any, Any]:
    """Repeat axes of size 1 of two tensors up to the sizes of the other."""
    return spread(x, y), spread(y, x)


def counted(numbers: Any) -> Any:
    """Return whole numbers as an int64 tensor of the program."""
    return layers.assign(np.array(numbers, "int64"))


def axis_of(function: str, x: Any, axis: int) -> int:
    """Return the number of an axis from the front.

    Raises:
        FluidValueError: there is none.
    """
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise FluidValueError(f"{function}: axis is {axis} of {x}", hint=f"from {-rank} to {rank - 1}")
    return axis % rank


def known(function: str, x: Any, axes: Sequence[int]) -> list[int]:
    """Return sizes of axes.

    Raises:
        FluidValueError: one that only a step knows.
    """
    sizes = [x.shape[a] for a in axes]
    if min(sizes, default=0) < 0:
        raise FluidValueError(f"{function}: {x} has sizes that only a step knows", hint="give paddle.static.data all sizes")
    return sizes


def last(x: Any, axes: Sequence[int]) -> Any:
    """Move axes to the end."""
    order = [i for i in range(len(x.shape)) if i not in axes] + list(axes)
    return x if order == list(range(len(order))) else layers.transpose(x, order)


def back(x: Any, axes: Sequence[int]) -> Any:
    """Move the last axes back to where `last` took them from."""
    order = [i for i in range(len(x.shape)) if i not in axes] + list(axes)
    return x if order == list(range(len(order))) else layers.transpose(x, [order.index(i) for i in range(len(order))])


# --- shapes ------------------------------------------------------------------------------------------------------------


def _at_least(axes: int) -> Any:
    def made(*inputs: Any, name: str | None = None) -> Any:
        from pe_cli.paddle.dynamic_mode import to_tensor

        found = []
        for given in inputs:
            x = given if isinstance(given, Variable) else to_tensor(given)
            rank = len(x.shape)
            if rank == 0:
                x = layers.reshape(x, [1] * axes)
            elif rank < axes:
                x = layers.unsqueeze(x, {(1, 2): [0], (1, 3): [0, 2], (2, 3): [2]}[rank, axes])
            found.append(x)
        return found[0] if len(found) == 1 else found

    made.__name__ = made.__qualname__ = f"atleast_{axes}d"
    made.__doc__ = f"Give tensors {axes} axes, where they have fewer, by axes of size 1; several come back as a list."
    return made


atleast_1d, atleast_2d, atleast_3d = _at_least(1), _at_least(2), _at_least(3)


def broadcast_shape(x_shape: Any, y_shape: Any) -> list[int]:
    """Return the sizes that two tensors are repeated up to.

    Raises:
        FluidValueError: they do not fit; a ValueError.
    """
    made = []
    for a, b in itertools.zip_longest(reversed(list(x_shape)), reversed(list(y_shape)), fillvalue=1):
        if a != b and 1 not in (a, b) and -1 not in (a, b):
            raise FluidValueError(f"broadcast_shape: {list(x_shape)} and {list(y_shape)}", hint="equal sizes from the end, or 1")
        made.append(b if a == 1 else a if b == 1 else max(a, b))
    return made[::-1]


def broadcast_tensors(input: Any, name: str | None = None) -> list[Any]:
    """Repeat axes of size 1 of several tensors up to the sizes of the others."""
    given = list(input)
    return [spread(x, *(other for other in given if other is not x)) for x in given]


def unflatten(x: Any, axis: int, shape: Any, name: str | None = None) -> Any:
    """Make several axes of one; one of the sizes may be -1.

    Raises:
        FluidValueError: several sizes that only a step knows; a ValueError.
    """
    at = axis_of("unflatten", x, axis)
    if isinstance(shape, Variable):
        sizes = layers.shape(x)
        parts = [layers.slice(sizes, [0], [0], [at])] if at else []
        parts.append(layers.cast(shape, sizes.dtype))
        parts += [layers.slice(sizes, [0], [at + 1], [len(x.shape)])] if at + 1 < len(x.shape) else []
        return layers.reshape(x, layers.concat(parts) if len(parts) > 1 else parts[0])
    front = [0 if s == -1 else s for s in x.shape[:at]]
    sizes = [int(s) for s in shape]
    behind = list(x.shape[at + 1 :])
    if -1 in sizes and x.shape[at] != -1:
        sizes[sizes.index(-1)] = x.shape[at] // -math.prod(sizes)
    if -1 in behind and -1 not in sizes and behind.count(-1) > 1:
        raise FluidValueError(f"unflatten: {x} has several sizes that only a step knows", hint="give paddle.static.data all sizes")
    return layers.reshape(x, [*front, *sizes, *behind])


def view(x: Any, shape_or_dtype: Any, name: str | None = None) -> Any:
    """Return `reshape(x, shape)`.

    Raises:
        FluidTypeError: a dtype other than x's is given; a TypeError.
    """
    if isinstance(shape_or_dtype, (list, tuple)):
        return layers.reshape(x, list(shape_or_dtype))
    if as_dtype(shape_or_dtype) != x.dtype:
        raise FluidTypeError(f"view: {x} as {shape_or_dtype}", hint="a shape, or cast(x, dtype)")
    return x


def view_as(x: Any, other: Any, name: str | None = None) -> Any:
    """Return x in the shape of another tensor."""
    return layers.reshape(x, [0 if s == -1 and i < len(x.shape) else s for i, s in enumerate(other.shape)])


def vsplit(x: Any, num_or_sections: Any, name: str | None = None) -> list[Any]:
    """Cut the first of at least two axes into a number of equal parts, or into given sizes.

    Raises:
        FluidValueError: x has fewer axes; a ValueError.
    """
    if len(x.shape) < 2:
        raise FluidValueError(f"vsplit: {x} has one axis", hint="split")
    return list(layers.split(x, num_or_sections, 0))


def reverse(x: Any, axis: Any, name: str | None = None) -> Any:
    """Reverse the order along axes."""
    return layers.reverse(x, axis)


def rot90(x: Any, k: int = 1, axes: Sequence[int] = [0, 1], name: str | None = None) -> Any:
    """Turn by k quarters, from the first of two axes towards the second.

    Raises:
        FluidValueError: not two different axes.
    """
    first, second = (axis_of("rot90", x, a) for a in (axes if len(axes) == 2 else [0, 0]))
    if first == second:
        raise FluidValueError(f"rot90: axes are {axes}", hint="two different ones")
    order = list(range(len(x.shape)))
    order[first], order[second] = second, first
    k %= 4
    if k == 0:
        return x
    if k == 2:
        return layers.flip(x, [first, second])
    return layers.transpose(layers.flip(x, [second]), order) if k == 1 else layers.flip(layers.transpose(x, order), [second])


def as_strided(x: Any, shape: Any, stride: Any, offset: int = 0, name: str | None = None) -> Any:
    """Take elements of a tensor in a row: the one at each index is that at offset + the sum of index times stride."""
    places = np.full([int(s) for s in shape], offset, "int64")
    for axis, step in enumerate(stride):
        along = np.arange(places.shape[axis]) * step
        places += along.reshape([-1 if a == axis else 1 for a in range(places.ndim)])
    return layers.reshape(layers.gather(layers.reshape(x, [-1]), counted(places.ravel()), overwrite=False), list(places.shape))


def unfold(x: Any, axis: int, size: int, step: int, name: str | None = None) -> Any:
    """Cut an axis into windows of a size, a step apart; the windows' own axis is the last one.

    Raises:
        FluidValueError: there is no window, or the axis has a size that only a step knows; a ValueError.
    """
    at = axis_of("unfold", x, axis)
    (n,) = known("unfold", x, [at])
    if not 0 < size <= n or step < 1:
        raise FluidValueError(f"unfold: windows of {size} by {step} in an axis of {n}", hint="1 <= size <= the axis, step >= 1")
    count = (n - size) // step + 1
    rows = layers.index_select(x, counted([i * step + j for i in range(count) for j in range(size)]), at)
    return last(unflatten(rows, at, [count, size]), [at + 1])


# --- diagonals ---------------------------------------------------------------------------------------------------------


def _diagonal(function: str, x: Any, offset: int, axis1: int, axis2: int) -> tuple[list[int], int, list[int]]:
    axes = [axis_of(function, x, axis1), axis_of(function, x, axis2)]
    rows, columns = known(function, x, axes)
    first = max(0, -offset)
    count = min(rows - first, columns - max(0, offset))
    if axes[0] == axes[1] or count < 1:
        raise FluidValueError(f"{function}: {x} has no diagonal {offset} of axes {axis1} and {axis2}", hint="two axes, an offset within")
    return axes, rows * columns, [(first + i) * columns + first + i + offset for i in range(count)]


def _joined(x: Any, axes: list[int], area: int) -> Any:
    moved = last(x, axes)
    return layers.reshape(moved, [*(0 if s == -1 else s for s in moved.shape[:-2]), area])


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, name: str | None = None) -> Any:
    """Take a diagonal of two axes; it becomes the last axis."""
    axes, area, places = _diagonal("diagonal", x, offset, axis1, axis2)
    flat = _joined(x, axes, area)
    return layers.index_select(flat, counted(places), len(flat.shape) - 1)


def diagonal_scatter(x: Any, y: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, name: str | None = None) -> Any:
    """Put a tensor, whose last axis is the diagonal, in the place of `diagonal(x, ...)`."""
    axes, area, places = _diagonal("diagonal_scatter", x, offset, axis1, axis2)
    flat = _joined(x, axes, area)
    indices = spread(layers.reshape(counted(places), [*([1] * (len(y.shape) - 1)), -1]), y)
    put = call("put_along_axis", flat, indices, layers.cast(y, x.dtype) if y.dtype != x.dtype else y, -1)
    return back(unflatten(put, -1, known("diagonal_scatter", x, axes)), axes)


def diagflat(x: Any, offset: int = 0, name: str | None = None) -> Any:
    """Put all elements in a row on a diagonal of a square matrix."""
    return layers.diag_embed(layers.reshape(x, [-1]), offset)


def tril_indices(row: int, col: int, offset: int = 0, dtype: Any = "int64") -> Any:
    """Return the rows and columns of the places on and below a diagonal of a matrix: [2, places]."""
    return layers.assign(np.array(np.tril_indices(row, offset, col)).astype(as_dtype(dtype)))


def triu_indices(row: int, col: int | None = None, offset: int = 0, dtype: Any = "int64") -> Any:
    """Return the rows and columns of the places on and above a diagonal of a matrix: [2, places]."""
    return layers.assign(np.array(np.triu_indices(row, offset, row if col is None else col)).astype(as_dtype(dtype)))


# --- products and choices ----------------------------------------------------------------------------------------------


def tensordot(x: Any, y: Any, axes: Any = 2, name: str | None = None) -> Any:
    """Multiply along axes of both and add up; the axes that are left follow each other.

    Args:
        x: any shape.
        y: any shape.
        axes: how many of the last of x and the first of y; or those of both; or those of x and those of y.
        name: without effect.

    Raises:
        FluidTypeError: axes are a variable; a TypeError.
        FluidValueError: sizes that do not fit.
    """
    if isinstance(axes, Variable) or (isinstance(axes, (list, tuple)) and any(isinstance(a, Variable) for a in axes)):
        raise FluidTypeError("tensordot: axes are variables", hint="numbers, or lists of them")
    if isinstance(axes, (int, np.integer)):
        of_x, of_y = list(range(len(x.shape) - int(axes), len(x.shape))), list(range(int(axes)))
    elif not axes or isinstance(axes[0], (int, np.integer)):
        of_x = of_y = list(axes)
    else:
        of_x, of_y = list(axes[0]), list(axes[1] if len(axes) > 1 else axes[0])
    # What one list says more holds for the other, too.
    of_x, of_y = of_x + of_y[len(of_x) :], of_y + of_x[len(of_y) :]
    of_x, of_y = [axis_of("tensordot", x, a) for a in of_x], [axis_of("tensordot", y, a) for a in of_y]
    for a, b in zip(of_x, of_y, strict=True):
        if x.shape[a] == 1 != y.shape[b]:
            y = layers.reduce_sum(y, b, True)
        elif y.shape[b] == 1 != x.shape[a]:
            x = layers.reduce_sum(x, a, True)
        elif x.shape[a] != y.shape[b]:
            raise FluidValueError(f"tensordot: axis {a} of {x} and axis {b} of {y}", hint="equal sizes")
    inner = math.prod(x.shape[a] for a in of_x)
    kept = [[s for i, s in enumerate(v.shape) if i not in used] for v, used in ((x, of_x), (y, of_y))]
    left = layers.reshape(last(x, of_x), [-1, inner])
    rest = [i for i in range(len(y.shape)) if i not in of_y]
    right = layers.reshape(layers.transpose(y, [*of_y, *rest]), [inner, -1])
    return layers.reshape(layers.matmul(left, right), [*kept[0], *kept[1]] or [1])


def vander(x: Any, n: int | None = None, increasing: bool = False, name: str | None = None) -> Any:
    """Return the powers of every element of a vector, from n - 1 down to 0, or upwards: [elements, n].

    Raises:
        FluidValueError: x is no vector, or n is below 1; a ValueError.
    """
    count = x.shape[0] if n is None else n
    if len(x.shape) != 1 or count < 1:
        raise FluidValueError(f"vander: {x} with n={n}", hint="a vector, n at least 1")
    powers = [filled(x, 1)]
    for _ in range(count - 1):
        powers.append(x if len(powers) == 1 else layers.elementwise_mul(powers[-1], x))
    return layers.stack(powers if increasing else powers[::-1], 1)


def combinations(x: Any, r: int = 2, with_replacement: bool = False, name: str | None = None) -> Any:
    """Return all ways to choose r elements of a vector, in order: [ways, r].

    Raises:
        FluidValueError: x is no vector of known size, or there is no way; a ValueError.
    """
    if len(x.shape) != 1 or not isinstance(r, int) or r < 1:
        raise FluidValueError(f"combinations: {x} with r={r}", hint="a vector, and a number from 1 on")
    (n,) = known("combinations", x, [0])
    chosen = list((itertools.combinations_with_replacement if with_replacement else itertools.combinations)(range(n), r))
    if not chosen:
        raise FluidValueError(f"combinations: {r} of {n} elements", hint="r at most as many as there are")
    return layers.reshape(layers.gather(x, counted(np.ravel(chosen)), overwrite=False), [len(chosen), r])


def functions() -> dict[str, Any]:
    """Return every function of this module by its name."""
    own = (
        as_strided, atleast_1d, atleast_2d, atleast_3d, broadcast_shape, broadcast_tensors, combinations, diagflat, diagonal,
        diagonal_scatter, reverse, rot90, tensordot, tril_indices, triu_indices, unflatten, unfold, vander, view, view_as, vsplit,
    )  # fmt: skip
    return {f.__name__: f for f in own}
