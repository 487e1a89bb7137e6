"""Layers of click-through models: rank_attention over ranked results, batch_fc for each slot."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def rank_attention(
    input: Variable, rank_offset: Variable, rank_param_shape: list[int], rank_param_attr: ParamAttr | None = None, max_rank: int = 3
) -> Variable:
    """Let every row of a page of results see the others: each is multiplied with weights of its own for the ranks of both.

    Args:
        input: [rows, width], the results of all pages.
        rank_offset: int32 [rows, 1 + 2 max_rank]: the rank of a row, from 1, then of every row of its page its rank and its number in
            input, from 0; where devices share a batch, in a device's part of it, as in the original. A rank below 1 counts nothing.
        rank_param_shape: of the weights, [max_rank max_rank width, size].
        rank_param_attr: of the weights; Xavier by default.
        max_rank: ranks that count.

    Returns:
        [rows, size], dtype of input. As in the original, input gets no gradient.

    Raises:
        PeError: shapes or dtypes that do not fit; in a step, a rank or a row that there is not.

    Source:
        fluid.contrib.layers.rank_attention, which the original has for GPUs alone.
    """
    helper = LayerHelper("rank_attention")
    helper.check_rank(input, "input", 2, "[rows, width]")
    # A block of `width` rows for every pair of ranks, that of the row and that of the other one.
    wanted = max_rank * max_rank * input.shape[1]
    if len(rank_param_shape) != 2 or rank_param_shape[0] != wanted:
        raise helper.error(f"rank_attention: rank_param_shape is {rank_param_shape}", hint=f"[{wanted}, size] for {max_rank} ranks")
    weights = helper.parameter(rank_param_attr, rank_param_shape, input.dtype)
    inputs = {"X": input, "RankOffset": rank_offset, "RankParam": weights}
    return helper.one("rank_attention", inputs, {"MaxRank": max_rank})


@layer
def batch_fc(
    input: Variable,
    param_size: list[int],
    param_attr: ParamAttr | None,
    bias_size: list[int],
    bias_attr: ParamAttr | None,
    act: str | None = None,
) -> Variable:
    """Give every slot a fully connected layer of its own.

    Out[s] = act(input[s] W[s] + b[s])

    Args:
        input: [slots, batch, width].
        param_size: of W, [slots, width, size].
        param_attr: of W; Xavier by default, which null stands for.
        bias_size: of b, [slots, size].
        bias_attr: of b; 0 by default, which null stands for.
        act: name of an activation, or None.

    Returns:
        [slots, batch, size], dtype of input.

    Raises:
        PeError: sizes that do not fit.

    Source:
        fluid.contrib.layers.batch_fc of 2.0, which the original has for GPUs alone.
    """
    helper = LayerHelper("batch_fc")
    helper.check_rank(input, "input", 3, "[slots, batch, width]")
    slots, width = input.shape[0], input.shape[2]
    if len(param_size) != 3 or param_size[:2] != [slots, width] or bias_size != [slots, param_size[2]]:
        sizes = f"param_size {param_size} and bias_size {bias_size}"
        raise helper.error(f"batch_fc: {sizes} do not fit {input}", hint=f"[{slots}, {width}, size] and [{slots}, size]")
    weight = helper.parameter(param_attr, param_size, input.dtype)
    bias = helper.parameter(bias_attr, bias_size, input.dtype, is_bias=True)
    out = helper.one("matmul", {"X": input, "Y": weight})
    # An axis of 1 for the batch: without it the bias's slots would be taken for rows of the batch.
    rows = helper.one("unsqueeze", {"X": bias}, {"axes": [1]})
    return helper.activate(helper.one("elementwise_add", {"X": out, "Y": rows}), act)
