"""Decays of tables that are looked up with `is_sparse`: they move all rows, as in the original, so that the gradient has to be whole.

Parameter servers get rows all the same, and move all rows themselves: a program that is divided between trainers and servers has the
update of its optimizer appended once more, for rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from pe_cli.ops.define.traits import Table
from pe_cli.paddle.fluid import unique_name
from pe_cli.program.ir import Block, Operator


def sparse_tables(block: Block, decay: Any) -> list[Operator]:
    """Return the look-ups whose table has a decay, its own or that of all parameters, and would have a gradient for rows alone."""
    found = [op for op in block.ops if op.definition.has(Table) and op.attrs.get("is_sparse")]
    return [op for op in found if decay or any(getattr(block.var(name), "regularizer", None) for name in op.inputs.get("W", ()))]


class Undone:
    """What programs were before an optimizer's ops, to append these once more for rows.

    Args:
        programs: main and startup program.
        append: appends the ops again.
    """

    def __init__(self, programs: tuple[Any, Any], append: Callable[[], Any]) -> None:
        self._blocks = [program.global_block() for program in programs]
        self._before = [(list(block.ops), dict(block.vars)) for block in self._blocks]
        # The generator's counters as well, so that the second attempt gives the same names.
        self._ids = Counter(unique_name.generator.ids)
        self._append = append
        self.tables: list[Operator] = []
        self._count = 0

    def done(self, tables: list[Operator]) -> None:
        """Take note of the tables whose gradients are whole now, and of how many ops there are."""
        self.tables, self._count = tables, len(self._blocks[0].ops)

    def again(self) -> None:
        """Append the ops once more, for rows; nothing where others follow them."""
        # A script that has appended something since would lose it.
        if not self.tables or len(self._blocks[0].ops) != self._count:
            return
        for block, (ops, names) in zip(self._blocks, self._before, strict=True):
            block.ops[:], block.vars = ops, names
        unique_name.generator.ids = self._ids
        for op in self.tables:
            op.attrs["is_sparse"] = True
        self._append()
