"""Layers of constants and of facts about tensors: eye, linspace, range, full, full_like, diag, size, rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.core.types import FLOATS, check_dtype, product
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import Number, Sizes
from pe_cli.layers.tensor.permutation import diag_embed
from pe_cli.layers.tensor.tensor import fill_constant
from pe_cli.program.ir import Variable


def constant(helper: LayerHelper, values: np.ndarray[Any, Any], dtype: str) -> Variable:
    """Write numbers in the program.

    Raises:
        PeError: an unknown dtype.
    """
    array = values.astype(check_dtype(dtype))
    return helper.one("assign_value", {}, {"shape": list(array.shape), "dtype": dtype, "values": array.ravel().tolist()})


@layer
def eye(
    num_rows: int, num_columns: int | None = None, batch_shape: list[int] | None = None, dtype: str = "float32"
) -> Variable:
    """Make a matrix of ones on the diagonal and zeros elsewhere.

    Args:
        num_rows: rows, at least 1.
        num_columns: columns; as many as rows by default.
        batch_shape: sizes before the matrix's, with a matrix for every index; none by default.
        dtype: element type.

    Returns:
        [*batch_shape, num_rows, num_columns]; gradients stop there.

    Raises:
        PeError: a size below 1, or an unknown dtype.

    Source:
        fluid.layers.eye.
    """
    helper = LayerHelper("eye")
    sizes = [*(batch_shape or ()), num_rows, num_rows if num_columns is None else num_columns]
    if min(sizes) < 1:
        raise helper.error(f"eye needs sizes of at least 1, got {sizes}")
    return constant(helper, np.broadcast_to(np.eye(*sizes[-2:]), sizes), dtype)


@layer
def linspace(start: float, stop: float, num: int, dtype: str | None = None) -> Variable:
    """Make numbers that are evenly apart.

    Out[i] = start + i (stop - start) / (num - 1)

    Args:
        start: the first.
        stop: the last.
        num: how many, at least 1.
        dtype: element type; float32 by default.

    Returns:
        [num]; gradients stop there.

    Raises:
        PeError: num is below 1, or an unknown dtype.

    Source:
        fluid.layers.linspace.
    """
    helper = LayerHelper("linspace")
    if num < 1:
        raise helper.error(f"linspace: num must be at least 1, got {num}")
    # Computed in float64 and rounded once to the dtype: adding a rounded step again and again would drift from stop.
    return constant(helper, np.linspace(start, stop, num), dtype or "float32")


def range_(start: float, end: float, step: float, dtype: str) -> Variable:
    """Make numbers from one on, a step apart, up to another, which is not reached.

    Out[i] = start + i step

    Args:
        start: the first.
        end: limit that is not reached.
        step: from one to the next, not 0.
        dtype: element type.

    Returns:
        [numbers]; gradients stop there.

    Raises:
        PeError: a step of 0, or an unknown dtype.

    Source:
        fluid.layers.range.
    """
    helper = LayerHelper("range")
    if step == 0:
        raise helper.error("range: step must not be 0")
    # As with NumPy's, a fraction as step may give one number more or fewer than expected, since (end - start) / step is rounded.
    return constant(helper, np.arange(start, end, step), dtype)


# Registered by hand: a Python function called `range` would hide the builtin.
layer(name="range")(range_)


@layer
def arange(start: float, end: float | None = None, step: float = 1.0, dtype: str = "float32") -> Variable:
    """Make numbers from one on, a step apart, up to another, which is not reached.

    Out[i] = start + i step

    Args:
        start: the first; where end is null, 0 is, and start is the limit.
        end: limit that is not reached.
        step: from one to the next, not 0.
        dtype: element type.

    Returns:
        [numbers]; gradients stop there.

    Raises:
        PeError: a step of 0, or an unknown dtype.

    Source:
        fluid.layers.arange.
    """
    first, last = (0.0, start) if end is None else (start, end)
    return range_(first, last, step, dtype)


@layer
def full(shape: Sizes, fill_value: Number, out: Variable | None = None, dtype: str = "float32", name: str | None = None) -> Variable:
    """Make a tensor whose elements all have one value.

    Args:
        shape: sizes.
        fill_value: of every element.
        out: a variable to write to; None makes one.
        dtype: element type.
        name: prefix of the output's name.

    Returns:
        Of that shape and dtype; gradients stop there.

    Raises:
        PeError: a negative size or an unknown dtype.

    Source:
        fluid.layers.full.
    """
    return fill_constant(shape, dtype, fill_value, out)


@layer
def full_like(x: Variable, fill_value: float, dtype: str | None = None, name: str | None = None) -> Variable:
    """Make a tensor of one value in the shape of another.

    Args:
        x: any; only its type counts.
        fill_value: of every element.
        dtype: element type; that of x by default.
        name: prefix of the output's name.

    Returns:
        Shape of x; gradients stop there.

    Raises:
        PeError: an unknown dtype.

    Source:
        fluid.layers.full_like.
    """
    helper = LayerHelper("full_like", name)
    # Only the shape of x counts; a cast has it in every step, whose batch size is not known here.
    like = x if dtype in (None, x.dtype) else helper.one("cast", {"X": x}, {"out_dtype": dtype})
    made = helper.one("fill_like", {"X": like}, {"value": float(fill_value)})
    made.stop_gradient = True
    return made


@layer
def diag(diagonal: Variable) -> Variable:
    """Make a square matrix with a diagonal and zeros beside it.

    Out[i, i] = diagonal[i]

    Args:
        diagonal: [size], known; any number type. Gradients of float32 and float64 flow to it.

    Returns:
        [size, size], dtype of diagonal.

    Raises:
        PeError: another number of axes, or a size that is not known.

    Source:
        fluid.layers.diag.
    """
    helper = LayerHelper("diag")
    if len(diagonal.shape) != 1 or diagonal.shape[0] < 1:
        raise helper.error(f"diag takes one axis of known size, got {diagonal}", hint="reshape it, or see diag_embed")
    if diagonal.dtype in FLOATS:
        return diag_embed(diagonal)
    # The op is for real numbers; float64 holds whole numbers exactly up to 2^53.
    wide = diag_embed(helper.one("cast", {"X": diagonal}, {"out_dtype": "float64"}))
    return helper.one("cast", {"X": wide}, {"out_dtype": diagonal.dtype})


@layer
def size(input: Variable) -> Variable:
    """Return how many elements a tensor has.

    Args:
        input: any.

    Returns:
        int64 [1]; gradients stop there.

    Source:
        fluid.layers.size.
    """
    helper = LayerHelper("size")
    if input.type.known:
        return constant(helper, np.array([product(input.shape)]), "int64")
    # Sizes are multiplied as float64, which holds counts exactly up to 2^53.
    sizes = helper.one("cast", {"X": helper.one("shape", {"Input": input})}, {"out_dtype": "float64"})
    return helper.one("cast", {"X": helper.one("reduce_prod", {"X": sizes}, {"reduce_all": True})}, {"out_dtype": "int64"})


@layer
def rank(input: Variable) -> Variable:
    """Return how many axes a tensor has.

    Args:
        input: any.

    Returns:
        int32 without axes; gradients stop there.

    Source:
        fluid.layers.rank.
    """
    return constant(LayerHelper("rank"), np.array(len(input.shape)), "int32")
