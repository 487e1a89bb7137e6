"""split_byref, split_selected_rows: gradients are cut into the blocks that servers have."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import Attr, op
from pe_cli.ops.define.traits import Remote


@op(
    "split_byref",
    traits=[Remote("cut")],
    inputs="X",
    outputs="Out*",
    attrs={"sections": Attr([0], "rows of each block"), "num": Attr(0, "number of blocks, where they are of one size")},
    differentiable="",
)
def split_byref(x: TensorType, *, sections: list[int], num: int) -> list[TensorType]:
    """Cut a variable into blocks of rows, which are parts of its memory and no copies.

    Args:
        X: any type with at least one axis.

    Returns:
        Out: the blocks, `sections[i]` rows each.

    Raises:
        PeError: the sections are not all rows of X.

    Source:
        fluid.DistributeTranspiler of PaddlePaddle 1.8.
    """
    del num
    if not x.shape or sum(sections) != x.shape[0]:
        raise PeError(f"split_byref: sections {sections} are not the rows of {x}", hint="they have to add up to all rows")
    return [TensorType((rows, *x.shape[1:]), x.dtype) for rows in sections]


@op(
    "split_selected_rows",
    traits=[Remote("cut")],
    inputs="X Rows",
    outputs="Out*",
    attrs={"height_sections": Attr([0], "rows of the table in each block")},
    differentiable="",
)
def split_selected_rows(x: TensorType, rows: TensorType, *, height_sections: list[int]) -> list[TensorType]:
    """Cut a row-sparse gradient by the blocks of its table; rows of a block are counted from the block's first.

    Args:
        X: [rows, width]; values.
        Rows: [rows] int64; row numbers, -1 for none.

    Returns:
        Out: a row-sparse gradient for each block; its declared type is the block's of the table.

    Source:
        fluid.DistributeTranspiler of PaddlePaddle 1.8.
    """
    del rows
    return [TensorType((height, *x.shape[1:]), x.dtype) for height in height_sections]
