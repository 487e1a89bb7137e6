"""Layers on parts of rows, and on their order: partial_concat, partial_sum, shuffle_batch."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper, as_list
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


def _parts(helper: LayerHelper, input: list[Variable], start_index: int, length: int) -> list[Variable]:
    """Return the same columns of several matrices.

    Raises:
        PeError: no matrices of one width, or columns that they do not have.
    """
    given = as_list(input)
    widths = {v.shape[1] if len(v.shape) == 2 else -1 for v in given}
    # Matrices must be of one width although only a part of them is read: an index below 0 would mean other columns in each.
    width = widths.pop() if len(widths) == 1 else -1
    begin = start_index + width if start_index < 0 else start_index
    end = width if length < 0 else begin + length
    if width < 0 or not 0 <= begin < end <= width:
        got = ", ".join(str(v.type) for v in given)
        raise helper.error(f"{helper.layer_type} needs matrices of one width with columns {begin} to {end}, got {got}")
    attrs = {"axes": [1], "starts": [begin], "ends": [end]}
    return [helper.one("slice", {"Input": v}, attrs) for v in given]


@layer
def partial_concat(input: list[Variable], start_index: int = 0, length: int = -1) -> Variable:
    """Put columns of matrices side by side, the same of each.

    Args:
        input: [batch, width] each.
        start_index: first column; below 0 it counts from the end.
        length: columns of each; -1 for all that follow.

    Returns:
        [batch, length for each], dtype of input.

    Raises:
        PeError: no matrices of one width, or columns that they do not have.

    Source:
        fluid.contrib.layers.partial_concat.
    """
    helper = LayerHelper("partial_concat")
    return helper.one("concat", {"X": _parts(helper, input, start_index, length)}, {"axis": 1})


@layer
def partial_sum(input: list[Variable], start_index: int = 0, length: int = -1) -> Variable:
    """Add up columns of matrices, the same of each.

    Args:
        input: [batch, width] each.
        start_index: first column; below 0 it counts from the end.
        length: columns; -1 for all that follow.

    Returns:
        [batch, length], dtype of input.

    Raises:
        PeError: no matrices of one width, or columns that they do not have.

    Source:
        fluid.contrib.layers.partial_sum.
    """
    helper = LayerHelper("partial_sum")
    return helper.one("sum", {"X": _parts(helper, input, start_index, length)})


@layer
def shuffle_batch(x: Variable, seed: int | None = None) -> Variable:
    """Put the rows of a tensor, all axes but the last taken together, into a random order, another in every step.

    Args:
        x: [..., width].
        seed: own seed, the same order in every step; 0 or null for the program's.

    Returns:
        Type of x.

    Raises:
        PeError: x is a scalar.

    Source:
        fluid.contrib.layers.shuffle_batch; the order follows from other draws than the original's.
    """
    helper = LayerHelper("shuffle_batch")
    if not x.shape:
        raise helper.error("shuffle_batch needs rows, got a scalar")
    flat = helper.one("reshape", {"X": x}, {"shape": [-1, x.shape[-1]]}) if len(x.shape) != 2 else x
    attrs = {"shape": [-1, 1], "min": 0.0, "max": 1.0, "seed": seed or 0, "dtype": "float32"}
    drawn = helper.one("uniform_random_batch_size_like", {"Input": flat}, attrs)
    # Sorting random numbers gives a random order of as many rows as a step has.
    drawn.stop_gradient = True
    order = helper.op("argsort", {"X": drawn}, {"axis": 0}, ("Out", "Indices"))[1]
    rows = helper.one("reshape", {"X": order}, {"shape": [-1]})
    made = helper.one("gather", {"X": flat, "Index": rows})
    return made if flat is x else helper.one("reshape", {"X": made}, {"shape": [-1, *x.shape[1:]]})
