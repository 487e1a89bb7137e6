"""Rows of a table that have no cell at all, as spreadsheets write them: where they are, and files without them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.data.dataset import Array
from pe_cli.data.notation import Notation
from pe_cli.data.raw_cells import Strings, Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.spill_storage import room
from pe_cli.data.tables.findings import Bad, Dictionary
from pe_cli.data.tables.table_files import Part, PartsTable

Rows = NDArray[np.int64]
#: Rows whose cells are looked at one by one; more of them are told by whole columns.
FEW = 1000
#: Places that are said.
LISTED = 5


def empty_rows(table: Table, names: Sequence[str], missing: Collection[str]) -> Rows:
    """Return the rows of which every cell is missing, int64, in order; none where there is one column, or a cell holds an array.

    Args:
        table: whose columns are read as numbers, until few rows are left that may be empty.
        names: of the columns that count.
        missing: texts that count as a missing cell.
    """
    if len(names) < 2:
        return np.zeros(0, np.int64)
    gone = {text.strip() for text in missing} | {""}
    rows: Rows | None = None
    texts: list[str] = []
    for name in names:
        cells = table.cells(name)
        if cells.array() is not None:
            return np.zeros(0, np.int64)
        numbers = cells.numbers()
        absent = np.isnan(numbers.values)
        # A cell that is no number is there, so that a column without gaps is known by counting.
        if int(absent.sum()) == numbers.bad_count:
            return np.zeros(0, np.int64)
        if numbers.bad_count:
            texts.append(name)
        rows = np.flatnonzero(absent) if rows is None else rows[absent[rows]]
        if len(rows) <= FEW:
            break
    assert rows is not None
    # Different texts of a column may take much memory, so they are read where numbers leave many rows.
    for name in texts if len(rows) > FEW else ():
        rows = rows[table.cells(name).codes().codes[rows] < 0]
    here = [row for row in rows.tolist() if len(rows) > FEW or all(table.cells(name).text(row).strip() in gone for name in names)]
    return np.array(here, np.int64)


def said_of(table: Table, rows: Rows) -> str:
    """Return that rows are left out, for people: by lines of text files, by numbers of rows elsewhere."""
    places = [table.error(row, table.names[0], "").at for row in rows[:LISTED].tolist()]
    what = "line" if all(place is not None and place.text for place in places) else "row"
    numbers = [place.line if place is not None and what == "line" else row + 1 for place, row in zip(places, rows.tolist(), strict=False)]
    more = f" and {len(rows) - LISTED:,} more" if len(rows) > LISTED else ""
    where = f"{what}{'s' * (len(rows) > 1)} {', '.join(map(str, numbers))}{more}"
    return f"{len(rows):,} rows without a cell are left out ({where})" if len(rows) > 1 else f"a row without a cell is left out ({where})"


def without_empty(part: Part, missing: Collection[str], origin: Origin) -> Part:
    """Return a file without its rows that have no cell.

    Args:
        part: the file.
        missing: texts that count as a missing cell.
        origin: gives errors their place.

    Raises:
        PeError: DATA; no row of the file has a cell.
    """
    table = PartsTable([part], origin, 0, None, frozenset(missing))
    rows = empty_rows(table, part.names, missing)
    if not len(rows):
        return part
    if len(rows) == len(part):
        raise origin.error(f"{part.path} has no row with a cell", "check what wrote it")
    return FilledPart(part, rows, f"{part.path}: {said_of(table, rows)}")


class FilledPart:
    """A file without some of its rows; see `Part`.

    Args:
        part: the file.
        empty: the rows that are left out, in order; at least one row is left.
        left_out: says which they are, for people.
    """

    def __init__(self, part: Part, empty: Rows, left_out: str) -> None:
        assert len(empty) < len(part)
        self._part, self._empty, self.left_out = part, empty, left_out
        # How many rows are left above each one that is left out.
        self._above = empty - np.arange(len(empty))
        self.by_columns = part.by_columns

    @property
    def path(self) -> Path:
        """The file."""
        return self._part.path

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self._part.names

    @property
    def stretches(self) -> Rows:
        """All rows at once: no stream leaves rows out."""
        return np.zeros(1, np.int64)

    def __len__(self) -> int:
        return len(self._part) - len(self._empty)

    def _place(self, row: int) -> int:
        """Return the row of the file that a row is."""
        return row + int(np.searchsorted(self._above, row, "right"))

    def _kept(self, start: int, stop: int) -> tuple[int, int, NDArray[np.bool_]]:
        """Return the rows of the file from start to stop, and which of them are left."""
        first, last = self._place(start), self._place(stop - 1) + 1
        kept = np.ones(last - first, np.bool_)
        kept[self._empty[np.searchsorted(self._empty, first) : np.searchsorted(self._empty, last)] - first] = False
        return first, last, kept

    def read(
        self,
        start: int,
        stop: int,
        numbers: Mapping[str, NDArray[np.float64]],
        codes: Mapping[str, NDArray[np.int32]],
        notations: Mapping[str, Notation],
    ) -> tuple[dict[str, Bad], dict[str, list[Dictionary]]]:
        """Read columns of rows in one pass."""
        first, last, kept = self._kept(start, stop)
        if kept.all():
            return self._part.read(first, last, numbers, codes, notations)
        wide_numbers = {name: room((last - first,), "float64", f"column '{name}'") for name in numbers}
        wide_codes = {name: room((last - first,), "int32", f"column '{name}'") for name in codes}
        bad, meant = self._part.read(first, last, wide_numbers, wide_codes, notations)
        for name, out in numbers.items():
            out[:] = wide_numbers[name][kept]
        for name, whole in codes.items():
            whole[:] = wide_codes[name][kept]
        above = np.append(0, np.cumsum(kept, dtype=np.int64))
        wrong = {name: Bad(above[found.rows].tolist(), found.count) for name, found in bad.items()}
        return wrong, {name: [_moved(one, above) for one in found] for name, found in meant.items()}

    def strings(self, name: str, start: int, stop: int) -> Strings:
        """Return a column of rows as texts."""
        first, last, kept = self._kept(start, stop)
        found = self._part.strings(name, first, last)
        lengths = np.diff(found.offsets)
        inside = found.bytes[found.offsets[0] : found.offsets[-1]]
        # Most formats give a missing cell no bytes, so that none have to be taken out.
        kept_bytes = inside[np.repeat(kept, lengths)] if lengths[~kept].any() else inside
        return Strings(kept_bytes, np.append(0, np.cumsum(lengths[kept])))

    def array(self, name: str, start: int, stop: int) -> Array | None:
        """Return a column of rows whose cells are arrays of one shape; None for one of other cells."""
        first, last, kept = self._kept(start, stop)
        found = self._part.array(name, first, last)
        return None if found is None else found[kept]

    def text(self, row: int, name: str) -> str:
        """Return a cell as it is written."""
        return self._part.text(self._place(row), name)

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a cell."""
        return self._part.error(self._place(row), name, message, hint)


def _moved(one: Dictionary, above: Rows) -> Dictionary:
    """Return what codes mean where rows are left out; `above` has how many are left above each."""
    ranges = [(int(above[start]), int(above[stop])) for start, stop in one.ranges]
    return Dictionary(one.words, above[one.firsts], [(start, stop) for start, stop in ranges if start < stop])
