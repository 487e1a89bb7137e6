"""Attributes of ops that a config gives in epochs, and that become numbers of steps when the length of an epoch is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pe_cli.core.errors import PeError, Span
from pe_cli.program.ir import Block, Operator, Program

#: Steps that an epoch is taken for until its length is known. Any number would do that schedules do not refuse as too small.
PROVISIONAL = 1000


class Epochs(int):
    """So many epochs, in a place that counts steps; `count_epochs` puts the number of steps there.

    Args:
        count: epochs, at least 1.
        at: where they are written.
    """

    count: int
    at: Span | None

    def __new__(cls, count: int, at: Span | None = None) -> Epochs:
        """Return epochs, which are a provisional number of steps.

        >>> Epochs(10)
        10 epochs
        """
        made = super().__new__(cls, count * PROVISIONAL)
        made.count, made.at = count, at
        return made

    def __repr__(self) -> str:
        return f"{self.count} epoch{'s' * (self.count > 1)}"

    __str__ = __repr__


def epochs_of(program: Program) -> list[Epochs]:
    """Return all numbers of steps in a program that are written in epochs, in the order of the ops."""
    return [value for *_, values in _places(program) for value in values if isinstance(value, Epochs)]


def count_epochs(program: Program, steps: int) -> None:
    """Turn epochs into steps.

    Args:
        program: its attributes are changed.
        steps: of an epoch.

    Raises:
        PeError: the numbers of an op do not fit any more, such as boundaries that do not increase; with its place.
    """
    places = [*_places(program)]
    for _, op, name, values in places:
        found = [value.count * steps if isinstance(value, Epochs) else value for value in values]
        # In place: the program may be compiled already, and its ops are shared with its graph.
        op.attrs[name] = found if isinstance(op.attrs[name], list) else found[0]
    for block, op, _, values in places:
        place = next(value.at for value in values if isinstance(value, Epochs))
        try:
            # Types are inferred again, so that an attribute that does not fit is found here and not in a kernel.
            block.infer(op, lambda variable, block=block: block.var(variable).type)
        except PeError as error:
            error.at = place or op.at
            error.hint = error.hint or f"an epoch has {steps:,} steps"
            raise


def _places(program: Program) -> Iterator[tuple[Block, Operator, str, list[Any]]]:
    """Return ops with an attribute in epochs, with their block, its name, and its values."""
    for block in program.blocks:
        for op in block.ops:
            for name, value in op.attrs.items():
                values = value if isinstance(value, list) else [value]
                if any(isinstance(each, Epochs) for each in values):
                    yield block, op, name, values
