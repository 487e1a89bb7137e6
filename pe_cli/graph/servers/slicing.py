"""Slices variables into blocks of whole rows, one for each server where they are large enough."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType


@dataclass(frozen=True)
class VarBlock:
    """A block of a variable.

    Args:
        varname: of the variable.
        offset: number of the block, from 0.
        size: elements.
    """

    varname: str
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.varname}:{self.offset}:{self.size}"


def same_or_split_var(p_name: str, var_name: str) -> bool:
    """Return whether `p_name` is the variable `var_name` or a block of it."""
    return p_name == var_name or p_name.startswith(f"{var_name}.block")


def blocks_of(name: str, shape: Sequence[int], slice_count: int, min_block_size: int) -> list[VarBlock]:
    """Cut a variable into at most `slice_count` blocks of whole rows.

    A block has at least `min_block_size` elements where the variable has; all blocks but the last are of one size.
    """
    elements = math.prod(shape)
    # Few large blocks: each has a message and an update of its own.
    count = min(slice_count, max(1, elements // min_block_size))
    size = max(1, math.ceil(elements / count))
    if len(shape) > 1:
        # Rounded up to whole rows, because updates and lookups work row by row.
        size = math.ceil(size / math.prod(shape[1:])) * math.prod(shape[1:])
    return [VarBlock(name, i, min(size, elements - begin)) for i, begin in enumerate(range(0, elements, size))]


def slice_variable(var_list: Iterable[Any], slice_count: int, min_block_size: int) -> list[str]:
    """Cut variables into blocks of whole rows, for servers to share.

    Args:
        var_list: variables; their `name` and `shape` are used.
        slice_count: blocks of a variable, at most.
        min_block_size: elements of a block, at least, unless the variable has fewer.

    Returns:
        `name:number of the block:elements`, for each block.
    """
    return [str(b) for v in var_list for b in blocks_of(v.name, v.shape, slice_count, min_block_size)]


@dataclass(frozen=True)
class Piece:
    """A block of a parameter, or a whole one, with its gradient's.

    Args:
        parameter: name of the whole parameter.
        name: of the block.
        gradient: name of the gradient's block as a server has it, of all trainers.
        sent: name of the gradient's block as this trainer sends it.
        type: of the block.
        index: number of the block.
        begin: first row.
        whole: it is not cut.
        sparse: the gradient is rows with their numbers.
    """

    parameter: str
    name: str
    gradient: str
    sent: str
    type: TensorType
    index: int
    begin: int
    whole: bool
    sparse: bool

    @property
    def rows(self) -> int:
        """Rows of the block."""
        return self.type.shape[0] if self.type.shape else 1


__all__ = ["Piece", "VarBlock", "blocks_of", "same_or_split_var", "slice_variable"]
