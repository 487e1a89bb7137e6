"""Traits about rows: row-sparse gradients, and what depends on one row alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pe_cli.ops.define.traits.trait import Named, Trait, need

#: Attributes and shapes by slot, of a gradient op by the slots that its gradients are of -> whether something holds.
Holds = Callable[[Mapping[str, Any], Mapping[str, Sequence[int]]], bool]


class Table(Trait):
    """The op takes rows of a table: where its attribute is_sparse is set, the table's gradient is these rows alone.

    Args:
        table, ids: input slots.
        out: output slot.
    """

    table: str
    ids: str
    out: str

    def verify(self, op: Named) -> None:
        need(op, [self.table, self.ids])
        need(op, [self.out], outputs=True)
        assert "is_sparse" in op.attrs, op.name


class MergesRows(Trait):
    """The op makes a row-sparse gradient, of which every row is there once.

    Args:
        out, rows: output slots: the values, and the numbers of their rows.
    """

    out: str
    rows: str

    def verify(self, op: Named) -> None:
        need(op, [self.out, self.rows], outputs=True)


class ByValue(Trait):
    """The op may take the values of a row-sparse gradient for a tensor: places without a row hold 0, and stay without one.

    Args:
        keeps_rows: whether its output is such a gradient of the same rows.
    """

    keeps_rows: bool = True


class UpdatesTable(Trait):
    """The op takes the step of a table together with the table's gradient, which is never there as a whole.

    Args:
        update: the op that takes the step alone.
    """

    update: str

    def verify(self, op: Named) -> None:
        need(op, ["Param", "Grad", "Ids", "LearningRate"])


class ByRows(Trait):
    """With an input Rows, what the op does for one of them touches nothing else, so that several threads may share them."""

    def verify(self, op: Named) -> None:
        need(op, ["Rows"])


class RowsApart(Trait):
    """What the op makes of a row, along axis 0, of all tensors of the parameter's shape depends on that row and on single numbers alone.

    So processes may share the rows. With an input Rows that does not count: each row of the gradient has its number then.
    """


class OwnRows(Trait):
    """The op takes the rows of a variable that are this process's own, by its attributes rows and rank, or gives them.

    Args:
        slot: of the variable with all rows.
        gives: the other processes get the rows then.
    """

    slot: str
    gives: bool = False

    def verify(self, op: Named) -> None:
        need(op, [self.slot], outputs=self.gives)


class RowWise(Trait):
    """What the op, and its gradient, makes of a row, along axis 0, depends on that row alone; rows stay rows.

    Args:
        applies: whether that is so.
    """

    applies: Holds = lambda attrs, shapes: True


class SumsRows(Trait):
    """What the op makes of a row, along axis 0, depends on that row alone, and gradients of some inputs add up over the rows.

    So the gradients of several batches add up to that of one batch of all their rows.

    Args:
        slots: the inputs that all rows share.
        applies: whether that is so.
    """

    slots: tuple[str, ...]
    applies: Holds = lambda attrs, shapes: True

    def verify(self, op: Named) -> None:
        need(op, self.slots)
