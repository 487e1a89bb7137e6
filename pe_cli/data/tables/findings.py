"""Findings of a pass over rows of a table: bad cells and statistics, beside the parsed values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Dictionary:
    """What the codes of some rows mean.

    Args:
        words: by code.
        firsts: int64 [words], the row that each stands in first.
        ranges: rows (start, stop) that have these codes.
    """

    words: list[str]
    firsts: NDArray[np.int64]
    ranges: list[tuple[int, int]]

    def moved(self, rows: int) -> Dictionary:
        """Return the dictionary for rows that are counted from another row on."""
        return Dictionary(self.words, self.firsts + rows, [(start + rows, stop + rows) for start, stop in self.ranges])


@dataclass(frozen=True)
class Bad:
    """Rows whose cell is no number: the first of them, in order, and the number of all."""

    rows: list[int]
    count: int


class Findings:
    """What one pass over rows of a part finds, beside the numbers and codes themselves.

    Args:
        numbers: names of columns that are read as numbers.
        codes: names of columns that are read as codes.

    Attributes:
        bad: by column of numbers, the first rows whose cell is no number, at most `SHOWN`.
        count: by column of numbers, the number of all such rows.
        known: by column of codes, word -> code.
        firsts: by column of codes, the row that each word stands in first.
    """

    def __init__(self, numbers: Iterable[str], codes: Iterable[str]) -> None:
        self.bad: dict[str, list[int]] = {name: [] for name in numbers}
        self.count = dict.fromkeys(self.bad, 0)
        self.known: dict[str, dict[str, int]] = {name: {} for name in codes}
        self.firsts: dict[str, list[int]] = {name: [] for name in self.known}

    def told(self, rows: int) -> tuple[dict[str, Bad], dict[str, list[Dictionary]]]:
        """Return what `Part.read` does of a pass over so many rows."""
        bad = {name: Bad(found, self.count[name]) for name, found in self.bad.items()}
        firsts = {name: np.array(found, np.int64) for name, found in self.firsts.items()}
        return bad, {name: [Dictionary(list(words), firsts[name], [(0, rows)])] for name, words in self.known.items()}


@dataclass(frozen=True)
class Told:
    """What a pass over rows of a table has found, by column.

    Args:
        bad: of columns of numbers; rows are the table's.
        meant: of columns of codes.
    """

    bad: dict[str, list[Bad]]
    meant: dict[str, list[Dictionary]]

    def values(self) -> list[Any]:
        """Return it as JSON values."""
        bad = {name: [[found.rows, found.count] for found in each] for name, each in self.bad.items()}
        return [bad, {n: [[d.words, d.firsts.tolist(), d.ranges] for d in each] for n, each in self.meant.items()}]

    @classmethod
    def of(cls, values: Sequence[Any]) -> Told:
        """Return what `values` gave."""
        bad = {name: [Bad(rows, count) for rows, count in each] for name, each in values[0].items()}
        return cls(bad, {n: [Dictionary(w, np.array(firsts, np.int64), ranges) for w, firsts, ranges in e] for n, e in values[1].items()})
