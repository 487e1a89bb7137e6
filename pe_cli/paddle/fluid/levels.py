"""Blocks of loops as scripts see them: a loop that is being written is a block of its own, whose parent ops can be appended to.

All ops stand in one block here until a loop is done. What is appended to a parent block is moved before the loop.
"""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from pe_cli.paddle.errors import NotThereYet
from pe_cli.paddle.fluid.constant_sizes import CLOSED, OPEN

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def _before_loops(block: Any, index: int) -> Iterator[None]:
    """Move what is appended inside before the loops that are deeper than the block of an index."""
    # Told by what is new behind the loop's ops, since layers append any number of ops by one call.
    first, names = len(block.ops), set(block.vars)
    yield
    moved, made = block.ops[first:], set(block.vars) - names
    del block.ops[first:]
    begin = OPEN[index].begin
    block.ops[begin:begin] = moved
    # Loops that are still open know their ops by number, which moved on.
    for outline in OPEN[index:]:
        outline.moved_on(len(moved), made)


class Levels:
    """What a program says of blocks: the one that ops are appended to has the index that it has in the original."""

    blocks: list[Any]
    _above: tuple[int, AbstractContextManager[None]] | None = None

    def current_block(self) -> Any:
        """Return the block that ops are appended to; its index is how many loops are open around it."""
        block, depth = self.blocks[0], len(OPEN)
        if not depth or OPEN[-1].block is not block:
            return block
        # A copy with another index: scripts ask for the block's number, and append to it as to the block itself.
        made = copy.copy(block)
        made.index, made.parent_idx = depth, depth - 1
        return made

    @property
    def current_block_idx(self) -> int:
        """The index of the block that ops are appended to; that of a block around open loops moves what follows before them."""
        return len(OPEN) if self._above is None else self._above[0]

    @current_block_idx.setter
    def current_block_idx(self, index: int) -> None:
        above, self._above = self._above, None
        # Setting the index again ends what an earlier setting began.
        if above is not None:
            above[1].__exit__(None, None, None)
        if index < 0 and CLOSED:
            raise NotThereYet("a while_loop appends to the block around it", hint="While")
        if index < len(OPEN):
            self._above = index, _before_loops(self.blocks[0], index)
            self._above[1].__enter__()
