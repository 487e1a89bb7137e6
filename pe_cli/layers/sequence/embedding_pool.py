"""fused_embedding_seq_pool: the sum of the rows that a sequence of ids names."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def fused_embedding_seq_pool(
    input: Variable,
    size: list[int],
    is_sparse: bool = False,
    padding_idx: int | None = None,
    combiner: str = "sum",
    param_attr: ParamAttr | None = None,
    dtype: str = "float32",
) -> Variable:
    """Look up the rows of ids, and add them up for each sequence.

    Args:
        input: [ids, 1] or [ids, n] int64 with sequences.
        size: [rows, width] of the table.
        is_sparse: the table's gradient has only the rows that were looked up.
        padding_idx: id whose row counts as 0; from the end below 0.
        combiner: sum.
        param_attr: of the table; Xavier by default.
        dtype: of the table.

    Returns:
        [sequences, n width].

    Raises:
        PeError: another combiner, or a bad size; input has no sequences; in a step, an id out of range.

    Source:
        fluid.contrib.layers.fused_embedding_seq_pool.
    """
    helper = LayerHelper("fused_embedding_seq_pool")
    if combiner != "sum":
        raise helper.error(f"fused_embedding_seq_pool: combiner is {combiner!r}", hint="sum")
    if len(size) != 2 or min(size) < 1:
        raise helper.error(f"fused_embedding_seq_pool: size is {size}", hint="give [number of ids, width]")
    if padding_idx is not None and not -size[0] <= padding_idx < size[0]:
        raise helper.error(f"fused_embedding_seq_pool: padding_idx is {padding_idx}", hint=f"an id below {size[0]}, or null")
    helper.check_rank(input, "input", 2, "[ids, n]")
    table = helper.parameter(param_attr, size, dtype)
    # -1 means none in the op, so a place counted from the end is turned into one from the start.
    pad = -1 if padding_idx is None else padding_idx if padding_idx >= 0 else size[0] + padding_idx
    rows = helper.one("lookup_table_v2", {"W": table, "Ids": input}, {"is_sparse": is_sparse, "padding_idx": pad})
    # The n ids of a row lie side by side before the sum, as in the original: they are places of their own and not added to each other.
    flat = helper.one("reshape", {"X": rows}, {"shape": [-1, input.shape[-1] * size[1]]})
    return helper.op("sequence_pool", {"X": flat}, {"pooltype": "SUM"})[0]
