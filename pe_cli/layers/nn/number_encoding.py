"""Layers that write a number as several: piecewise_linear_encoding."""

from __future__ import annotations

import itertools

import numpy as np

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.tensor.constants import constant
from pe_cli.layers.tensor.permutation import index_select
from pe_cli.program.ir import Variable


@layer
def piecewise_linear_encoding(input: Variable, edges: list[list[float]], name: str | None = None) -> Variable:
    """Write every number as its place in bins: how much of each bin lies below it, from 0 to 1.

    Out[i, k] = clip((input[i, c] - low[k]) / (high[k] - low[k]), 0, 1)

    A bin k is the stretch between two edges that follow one another, those of column c = 0 first. Sums of such places are all
    functions that are linear between the edges, so that one fully connected layer can follow a curve with many bends.

    Args:
        input: [batch, columns] float32 or float64.
        edges: for every column its edges in the unit of input, each greater than the one before; a column with no edge or one has no bins.
        name: prefix of the output's name.

    Returns:
        [batch, bins of all columns], dtype of input, no unit.

    Raises:
        PeError: another number of lists than columns, edges that are not finite or do not increase, or no bin at all.

    Source:
        Gorishniy, Rubachev, Babenko 2022, On Embeddings for Numerical Features in Tabular Deep Learning, eq. 1, without the outer
        bins' going on beyond 0 and 1.
    """
    helper = LayerHelper("piecewise_linear_encoding", name)
    helper.check_rank(input, "input", 2, "[batch, columns]")
    if len(edges) != input.shape[1]:
        hint = "write a list for every column, [] for one without bins"
        raise helper.error(f"piecewise_linear_encoding: {len(edges)} lists of edges for {input}", hint=hint)
    _check_edges(helper, edges)
    bins = [(column, low, high) for column, row in enumerate(edges) for low, high in itertools.pairwise(row)]
    if not bins:
        raise helper.error("piecewise_linear_encoding: no column has two edges, so there is no bin", hint="leave the layer out")
    columns, low, high = (np.array(part) for part in zip(*bins, strict=True))
    # A column is repeated once for each of its bins, so that products with constants do all columns at once.
    taken = index_select(input, constant(helper, columns, "int64"), axis=1)
    moved = helper.one("elementwise_sub", {"X": taken, "Y": constant(helper, low, input.dtype)})
    share = helper.one("elementwise_mul", {"X": moved, "Y": constant(helper, 1 / (high - low), input.dtype)})
    return helper.one("clip", {"X": share}, {"min": 0.0, "max": 1.0})


def _check_edges(helper: LayerHelper, edges: list[list[float]]) -> None:
    for column, row in enumerate(edges):
        of = f"piecewise_linear_encoding: the edges of column {column}"
        hint = "write numbers from the least to the greatest, each once"
        if not np.isfinite(row).all():
            raise helper.error(f"{of} are not finite: {row}", hint=hint)
        if (np.diff(row) <= 0).any():
            raise helper.error(f"{of} do not increase: {row}", hint=hint)
        # The layer multiplies by 1 / width, which may overflow for a width below the least normal float32.
        if (np.diff(row) < np.finfo(np.float32).tiny).any() or not np.isfinite(np.diff(row)).all():
            raise helper.error(f"{of} are too near or too far apart: {row}", hint="widths are numbers of float32")
