"""Layers on ids: embedding, one_hot."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import Size, fed_size
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def embedding(
    input: Variable,
    size: list[int],
    is_sparse: bool = False,
    padding_idx: int | None = None,
    param_attr: ParamAttr | None = None,
    dtype: str = "float32",
) -> Variable:
    """Look up a learned row for every id.

    Out[..., :] = W[input[...], :]

    Args:
        input: [..., 1] int64 ids, from 0.
        size: [ids, width] of the table W.
        is_sparse: the gradient has only the rows that were looked up, so that a step costs what the batch needs and not what
            the table has: for SGD, Adagrad, and Adam with lazy_mode; Momentum and Adam without it move all rows. Weight
            decay acts on the rows of the batch only. Fetched, the gradient is a whole table.
        padding_idx: an id whose row counts as zeros; negative ones count from the end.
        param_attr: of W; Xavier by default.
        dtype: of W.

    Returns:
        [..., width].

    Raises:
        PeError: ids that are no integers, or a bad size; in a step, an id out of range.

    Source:
        fluid.layers.embedding.
    """
    helper = LayerHelper("embedding")
    if len(size) != 2 or min(size) < 1:
        raise helper.error(f"embedding: size is {size}", hint="give [number of ids, width]")
    if padding_idx is not None and not -size[0] <= padding_idx < size[0]:
        raise helper.error(f"embedding: padding_idx is {padding_idx}, but there are {size[0]} ids")
    table = helper.parameter(param_attr, size, dtype)
    # -1 means "none" in the op; a negative id counts from the end, as in Python.
    index = -1 if padding_idx is None else padding_idx % size[0]
    return helper.one("lookup_table", {"W": table, "Ids": input}, {"is_sparse": is_sparse, "padding_idx": index})


@layer
def one_hot(input: Variable, depth: Size, allow_out_of_range: bool = False) -> Variable:
    """Write a 1 at every id and 0 elsewhere.

    Args:
        input: [..., 1] int64 ids, from 0.
        depth: number of ids.
        allow_out_of_range: an id that is not in [0, depth) gives zeros instead of an error.

    Returns:
        [..., depth] float32.

    Raises:
        PeError: ids that are no integers; in a step, an id out of range.

    Source:
        fluid.layers.one_hot.
    """
    helper = LayerHelper("one_hot")
    number, fed = fed_size(helper, "depth", depth)
    attrs = {"allow_out_of_range": allow_out_of_range, **({} if fed is not None else {"depth": number})}
    return helper.one("one_hot", {"X": input, "Depth": fed}, attrs)
