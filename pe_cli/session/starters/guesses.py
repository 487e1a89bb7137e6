"""Guesses about columns of a table, and the callback that asks the user where a wrong guess would cost much."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.session.starters.names import said


@dataclass(frozen=True)
class Guess:
    """How a column is taken.

    Args:
        name: of the column.
        type: of column; None leaves it out.
        options: without `type`.
        why: what was seen in it, for a comment.
        note: what is said on the screen, where its cells are taken as something that a reader would not expect.
        spare: options of a number, for a column that is left out unless no other one is left to learn from.
        kind: of a target: one of `KINDS` in `target_kinds.py`.
    """

    name: str
    type: str | None
    options: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    note: str = ""
    spare: Mapping[str, Any] | None = None
    kind: str = ""

    @property
    def written(self) -> dict[str, Any]:
        """The column as a config declares it."""
        return {"type": self.type, **self.options}


@dataclass(frozen=True)
class Asked:
    """What is known of a table besides a column's own cells.

    Args:
        ask: puts a question with answers and returns the index of one; None where nobody is there to be asked.
        decimal: sign before decimals in other columns of the table, or by the delimiter; nothing where neither tells.
        seen: by what `decimal` was found.
        sure: whether other columns have it.
    """

    ask: Callable[[str, Sequence[str]], int] | None = None
    decimal: str = ""
    seen: str = ""
    sure: bool = False

    def choose(self, question: str, answers: Sequence[str]) -> int | None:
        """Return the index of the answer; None where nobody can be asked."""
        return None if self.ask is None else self.ask(question, answers)


def three(words: Sequence[str]) -> str:
    """Return three cells for the screen.

    >>> three(["a", "b", "c", "d"])
    "'a', 'b', 'c'"
    """
    return ", ".join(f"'{said(word, 24)}'" for word in words[:3])


def short(value: float) -> str:
    """Return a number for a comment.

    >>> short(3.0), short(0.123456), short(1234567)
    ('3', '0.1235', '1,234,567')
    """
    return f"{int(value):,}" if float(value).is_integer() and abs(value) < 1e12 else f"{value:.4g}"
