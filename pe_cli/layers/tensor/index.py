"""Layers that order, sum and place elements: cumsum, argsort, gather_nd, scatter, scatter_nd_add."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer
def cumsum(x: Variable, axis: int | None = None, exclusive: bool = False, reverse: bool = False) -> Variable:
    """Sum everything up to each element, along an axis.

    Args:
        x: any shape with axes.
        axis: along which; the last one by default.
        exclusive: leave the element itself out.
        reverse: from the end.

    Returns:
        Shape and dtype of x.

    Raises:
        PeError: there is no such axis.

    Source:
        fluid.layers.cumsum.
    """
    attrs = {"axis": -1 if axis is None else axis, "exclusive": exclusive, "reverse": reverse}
    return LayerHelper("cumsum").one("cumsum", {"X": x}, attrs)


@layer
def argsort(
    input: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """Sort along an axis; equal values keep their order.

    Args:
        input: any shape with axes.
        axis: along which.
        descending: the largest first.
        name: prefix of the outputs' names.

    Returns:
        Sorted values, and their int64 places before.

    Raises:
        PeError: there is no such axis.

    Source:
        fluid.layers.argsort.
    """
    attrs = {"axis": axis, "descending": descending}
    values, places = LayerHelper("argsort", name).op("argsort", {"X": input}, attrs, ("Out", "Indices"))
    return values, places


@layer
def gather_nd(input: Variable, index: Variable, name: str | None = None) -> Variable:
    """Take parts of a tensor by index over its first axes.

    Args:
        input: [sizes...].
        index: [..., axes] int32 or int64, from 0.
        name: prefix of the output's name.

    Returns:
        [..., sizes of the other axes].

    Raises:
        PeError: index does not fit; in a step, a part that does not exist.

    Source:
        fluid.layers.gather_nd.
    """
    return LayerHelper("gather_nd", name).one("gather_nd", {"X": input, "Index": index})


@layer
def scatter(
    input: Variable, index: Variable, updates: Variable, name: str | None = None, overwrite: bool = True
) -> Variable:
    """Write rows by number; the other rows stay.

    Args:
        input: [rows, ...].
        index: [count] or [count, 1] int32 or int64, from 0.
        updates: [count, ...].
        name: prefix of the output's name.
        overwrite: rows become their last update; else the sum of their updates.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: shapes that do not fit; in a step, a row that does not exist.

    Source:
        fluid.layers.scatter.
    """
    inputs = {"X": input, "Ids": index, "Updates": updates}
    return LayerHelper("scatter", name).one("scatter", inputs, {"overwrite": overwrite})


@layer
def scatter_nd_add(ref: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """Add to parts of a tensor by index over its first axes; parts that are named twice get both.

    Args:
        ref: [sizes...].
        index: [..., axes] int32 or int64, from 0.
        updates: [..., sizes of the other axes].
        name: prefix of the output's name.

    Returns:
        Shape and dtype of ref.

    Raises:
        PeError: shapes that do not fit; in a step, a part that does not exist.

    Source:
        fluid.layers.scatter_nd_add.
    """
    return LayerHelper("scatter_nd_add", name).one("scatter_nd_add", {"X": ref, "Index": index, "Updates": updates})
