"""A table in several files: each file is a part, and its columns are matched by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.data.dataset import Array
from pe_cli.data.notation import PLAIN, Notation, Notations, notations_of
from pe_cli.data.raw_cells import SHOWN, Codes, Numbers, Strings
from pe_cli.data.reader_context import Origin
from pe_cli.data.spill_storage import room
from pe_cli.data.tables.findings import Bad, Dictionary, Told

if TYPE_CHECKING:
    from pe_cli.data.machine_processes import MachineProcesses

#: Rows whose codes are translated at a time.
CHUNK = 1 << 20


class Part(Protocol):
    """The rows of one file. Rows are counted from 0; ranges have a start and a stop.

    Attributes:
        by_columns: whether some columns take less time than all of them, and some rows as much as all.
    """

    by_columns: bool

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in the order of the file."""

    @property
    def stretches(self) -> NDArray[np.int64]:
        """Rows that reading may begin at without reading much before them, int64, in order; the first is 0."""

    def __len__(self) -> int:
        """Number of rows that are used, counted from the first of the file."""

    def read(
        self,
        start: int,
        stop: int,
        numbers: Mapping[str, NDArray[np.float64]],
        codes: Mapping[str, NDArray[np.int32]],
        notations: Mapping[str, Notation],
    ) -> tuple[dict[str, Bad], dict[str, list[Dictionary]]]:
        """Read columns of rows in one pass.

        Args:
            start: first row.
            stop: row behind the last one.
            numbers: column -> [rows] to write; NaN for what is missing or no number.
            codes: column -> [rows] to write; no column of `numbers`.
            notations: of columns of `numbers` that are not written as programs write numbers.

        Returns:
            What is no number, and what codes mean; rows are counted from start.
        """

    def strings(self, name: str, start: int, stop: int) -> Strings:
        """Return a column of rows as texts."""

    def array(self, name: str, start: int, stop: int) -> Array | None:
        """Return a column of rows whose cells are arrays of one shape, [rows, *shape]; None for one of other cells."""

    def text(self, row: int, name: str) -> str:
        """Return a cell as it is written."""

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a cell."""


class PartsCells:
    """One column of a table of files; see `pe_cli.data.raw_cells.Cells`."""

    def __init__(self, table: PartsTable, name: str) -> None:
        self.name = name
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def numbers(self, notation: Notation = PLAIN) -> Numbers:
        """Return the column as numbers."""
        return self._table.numbers(self.name, notation)

    def codes(self) -> Codes:
        """Return the column as codes."""
        return self._table.codes(self.name)

    def strings(self) -> Strings:
        """Return the column as texts."""
        return self._table.strings(self.name)

    def array(self) -> Array | None:
        """Return a column of arrays of one shape; None for one of other cells."""
        return self._table.array(self.name)

    def text(self, row: int) -> str:
        """Return a cell as it is written."""
        return self._table.text(row, self.name)


class PartsTable:
    """Rows of several files, one file after the other; see `pe_cli.data.raw_cells.Table`.

    Args:
        parts: the files, at least one.
        origin: gives errors their place.
        skip: rows to leave out at the start.
        limit: rows to use at most.
        missing: texts that count as missing.
        implied: columns that the reader declares.

    Raises:
        PeError: DATA; the files have different columns, or no row is left.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        origin: Origin,
        skip: int,
        limit: int | None,
        missing: frozenset[str],
        implied: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.implied: Mapping[str, Mapping[str, Any]] = dict(implied or {})
        self.names = parts[0].names
        for part in parts[1:]:
            self._check_columns(part, parts[0], origin)
        self._parts = list(parts)
        self._starts = np.cumsum([0, *(len(part) for part in parts)])
        total = int(self._starts[-1])
        # Rows of several files are one table: the last of a file is followed by the first of the next.
        if skip >= total:
            raise origin.error(f"skip: {skip} leaves none of {total} rows", "skip fewer")
        self._first = skip
        self._rows = total - skip if limit is None else min(limit, total - skip)
        self._missing = missing
        self._numbers: dict[tuple[str, Notation], Numbers] = {}
        self._codes: dict[str, Codes] = {}
        self._strings: dict[str, Strings] = {}
        self._arrays: dict[str, Array | None] = {}

    @staticmethod
    def _check_columns(part: Part, first: Part, origin: Origin) -> None:
        there, before = set(part.names), set(first.names)
        absent = [name for name in first.names if name not in there]
        new = [name for name in part.names if name not in before]
        if not absent and not new:
            return
        said = [f"no column '{name}'" for name in absent[:3]] + [f"a column '{name}'" for name in new[:3]]
        more = len(absent) + len(new) - len(said)
        hint = (
            did_you_mean(absent[0], new) if absent and new else None
        ) or "files of one table have the same columns, in any order"
        raise origin.error(
            f"{part.path} has {' and '.join(said)}{f' and {more} more differences' if more else ''}, unlike {first.path}",
            hint,
        )

    def __len__(self) -> int:
        return self._rows

    @property
    def left_out(self) -> tuple[str, ...]:
        """Sentences on rows that the files have and the table has not."""
        return tuple(said for part in self._parts if (said := getattr(part, "left_out", "")))

    def cells(self, name: str) -> PartsCells:
        """Return a column, one of `names`."""
        return PartsCells(self, name)

    def prepare(self, numbers: Notations, codes: Sequence[str], together: MachineProcesses | None = None) -> None:
        """Read columns that have not been read yet, in one pass; in a second one those that are wanted as both.

        Args:
            numbers: columns that are wanted as numbers, with their notations.
            codes: columns that are wanted as codes.
            together: processes that read the same: each reads its part, and has all of it then.
        """
        numbers = {name: how for name, how in notations_of(numbers).items() if (name, how) not in self._numbers}
        codes = [name for name in dict.fromkeys(codes) if name not in self._codes]
        # Two views of one column are read apart, as a pass over the file gives one each.
        both = frozenset(numbers) & frozenset(codes)
        twice = [name for name in codes if name in both]
        self._read(numbers, [name for name in codes if name not in both], together)
        self._read({}, twice, together)

    def _ranges(self, first: int = 0, last: int | None = None) -> Iterator[tuple[Part, int, int, int]]:
        """Yield every part with those of its used rows that are asked for, and the row of the table that the first of them is."""
        last = self._rows if last is None else last
        for part, begin, end in zip(self._parts, self._starts[:-1].tolist(), self._starts[1:].tolist(), strict=True):
            start, stop = max(begin, self._first + first), min(end, self._first + last)
            if start < stop:
                yield part, start - begin, stop - begin, start - self._first

    def _read(self, numbers: Mapping[str, Notation], codes: Sequence[str], together: MachineProcesses | None) -> None:
        if not numbers and not codes:
            return
        kinds = dict.fromkeys(numbers, "float64") | dict.fromkeys(codes, "int32")
        arrays = None
        if together:
            arrays = together.rooms([((self._rows,), kind) for kind in kinds.values()], f"columns {', '.join(kinds)}")
        if arrays is None:
            # Without shared memory every process reads all.
            together = None
            arrays = [room((self._rows,), kind, f"column '{name}'") for name, kind in kinds.items()]
        found = dict(zip(kinds, arrays, strict=True))
        mine, first, last = list(kinds), 0, self._rows
        if together and all(part.by_columns for part in self._parts):
            mine = mine[together.index :: together.count]
        elif together:
            first, last = together.span(self._rows)
        told = self._pass(found, mine, first, last, numbers)
        every = [told] if together is None else [Told.of(each) for each in together.told("what columns hold", told.values())]
        for name in numbers:
            bad = [wrong for each in every for wrong in each.bad.get(name, [])]
            rows = sorted(row for wrong in bad for row in wrong.rows)[:SHOWN]
            self._numbers[name, numbers[name]] = Numbers(found[name], np.array(rows, np.int64), sum(wrong.count for wrong in bad))
        translated = frozenset(mine)
        for name in codes:
            meant = [dictionary for each in every for dictionary in each.meant.get(name, [])]
            self._codes[name] = merge_codes(found[name], meant, self._missing, (first, last) if name in translated else (0, 0))
        if together:
            together.wait("codes")

    def _pass(self, arrays: Mapping[str, Array], mine: Sequence[str], first: int, last: int, notations: Mapping[str, Notation]) -> Told:
        """Read columns of some rows into their arrays."""
        told = Told({}, {})
        numbers = [name for name in mine if arrays[name].dtype.kind == "f"]
        codes = [name for name in mine if arrays[name].dtype.kind != "f"]
        for part, start, stop, row in self._ranges(first, last) if mine else ():
            here = slice(row, row + stop - start)
            odd = {n: notations[n] for n in numbers if not notations[n].is_plain}
            wrong, words = part.read(start, stop, {n: arrays[n][here] for n in numbers}, {n: arrays[n][here] for n in codes}, odd)
            for name in numbers:
                notations[name].drop_empty(arrays[name][here])
            for name, found in wrong.items():
                told.bad.setdefault(name, []).append(Bad([row + r for r in found.rows], found.count))
            for name, dictionaries in words.items():
                told.meant.setdefault(name, []).extend(dictionary.moved(row) for dictionary in dictionaries)
        return told

    def numbers(self, name: str, notation: Notation = PLAIN) -> Numbers:
        """Return a column as numbers."""
        self.prepare({name: notation}, [])
        return self._numbers[name, notation]

    def codes(self, name: str) -> Codes:
        """Return a column as codes."""
        self.prepare([], [name])
        return self._codes[name]

    def strings(self, name: str) -> Strings:
        """Return a column as texts."""
        if name not in self._strings:
            self._strings[name] = join([part.strings(name, start, stop) for part, start, stop, _ in self._ranges()])
        return self._strings[name]

    def array(self, name: str) -> Array | None:
        """Return a column of arrays of one shape; None for one of other cells."""
        if name not in self._arrays:
            parts: list[Array] = []
            for part, start, stop, _ in self._ranges():
                found = part.array(name, start, stop)
                if found is None or (parts and found.shape[1:] != parts[0].shape[1:]):
                    parts = []
                    break
                parts.append(found)
            self._arrays[name] = _stacked(parts, name)
        return self._arrays[name]

    def _place(self, row: int) -> tuple[Part, int]:
        at = row + self._first
        k = int(np.searchsorted(self._starts, at, "right")) - 1
        return self._parts[k], at - int(self._starts[k])

    def text(self, row: int, name: str) -> str:
        """Return a cell as it is written."""
        part, at = self._place(row)
        return part.text(at, name)

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a cell, with file, line and column where the format has them."""
        part, at = self._place(row)
        return part.error(at, name, message, hint)


def merge_codes(
    codes: NDArray[np.int32], dictionaries: Sequence[Dictionary], missing: frozenset[str], rows: tuple[int, int] | None = None
) -> Codes:
    """Return codes of several dictionaries as codes of one, whose words are in the order of their first rows.

    Args:
        codes: int32 [rows], overwritten.
        dictionaries: what they mean now.
        missing: words that become -1.
        rows: first and last + 1 of those that this process translates, where others do the rest; all of them when None.
    """
    tables = [np.empty(len(dictionary.words), np.int32) for dictionary in dictionaries]
    owner = np.repeat(np.arange(len(dictionaries)), [len(dictionary.words) for dictionary in dictionaries])
    firsts = np.concatenate([dictionary.firsts for dictionary in dictionaries])
    within = np.concatenate([np.arange(len(table)) for table in tables])
    # Words in the order of their first rows, whichever part of the file was read first.
    order = np.argsort(firsts, kind="stable")
    known: dict[str, int] = {}
    for k, i in zip(owner[order].tolist(), within[order].tolist(), strict=True):
        word = dictionaries[k].words[i].strip()
        tables[k][i] = -1 if word in missing or not word else known.setdefault(word, len(known))
    for dictionary, table in zip(dictionaries, tables, strict=True):
        # Most dictionaries are in order already, and their codes need no pass.
        if np.array_equal(table, np.arange(len(table))):
            continue
        for start, stop in dictionary.ranges:
            if rows is not None and not rows[0] <= start < rows[1]:
                continue
            for begin in range(start, stop, CHUNK):
                part = codes[begin : min(stop, begin + CHUNK)]
                np.take(table, part, out=part, mode="clip")
    return Codes(codes, list(known))


def _stacked(parts: Sequence[Array], name: str) -> Array | None:
    """Return arrays one behind the other; None where there are none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    out = room((sum(map(len, parts)), *parts[0].shape[1:]), np.result_type(*parts), f"column '{name}'")
    row = 0
    for part in parts:
        out[row : row + len(part)] = part
        row += len(part)
    return out


def join(found: Sequence[Strings]) -> Strings:
    """Return texts of several parts as one column."""
    if len(found) == 1:
        return found[0]
    total = sum(len(strings.bytes) for strings in found)
    data, offsets = room((total,), "uint8"), room((sum(map(len, found)) + 1,), "int64")
    row = place = 0
    for strings in found:
        data[place : place + len(strings.bytes)] = strings.bytes
        offsets[row : row + len(strings) + 1] = strings.offsets + place
        row, place = row + len(strings), place + len(strings.bytes)
    return Strings(data, offsets)
