"""Raw cells: columns of a table as a reader found them, before a column type interprets them.

A `Table` has named columns of cells. A cell is text, a number, or missing; a column can be had as numbers, as codes of distinct
texts, or as text. A column type (`pe_cli/data/columns/`) chooses one of these views, learns from the training rows, and makes
a field of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import NoneType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.dataset import Array
from pe_cli.data.notation import PLAIN, Notation, Notations
from pe_cli.data.reader_context import Origin

if TYPE_CHECKING:
    from pe_cli.data.machine_processes import MachineProcesses

#: Cells that count as missing besides the empty one, unless the config names others.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
#: Rows of a mistake that are kept for its message.
SHOWN = 5


@dataclass(frozen=True)
class Numbers:
    """A column of numbers.

    Args:
        values: float64 [rows]; NaN where the cell is missing or no number.
        bad: int64 [k], the first rows (at most `SHOWN`) whose cell is neither a number nor missing, in order.
        bad_count: number of all such rows.
    """

    values: NDArray[np.float64]
    bad: NDArray[np.int64]
    bad_count: int


@dataclass(frozen=True)
class Codes:
    """A column of texts of which many are equal.

    Args:
        codes: int32 [rows], indices into `words`; -1 where the cell is missing.
        words: distinct texts in the order of their first rows, without surrounding blanks.
    """

    codes: NDArray[np.int32]
    words: list[str]

    def merged(self, meant: Mapping[str, str]) -> Codes:
        """Return the same with texts that stand for others in their place.

        Args:
            meant: text -> the one that it stands for.
        """
        if not any(word in meant for word in self.words):
            return self
        index: dict[str, int] = {}
        table = [index.setdefault(meant.get(word, word), len(index)) for word in self.words]
        return Codes(np.array([*table, -1], np.int32)[self.codes], list(index))


@dataclass(frozen=True)
class Strings:
    """A column of texts, one after the other.

    Args:
        bytes: uint8 [total], UTF-8.
        offsets: int64 [rows + 1]; text i is bytes[offsets[i]:offsets[i + 1]].
    """

    bytes: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> str:
        return self.bytes[self.offsets[row] : self.offsets[row + 1]].tobytes().decode("utf-8", "replace")


class Cells(Protocol):
    """One column of a table. What is asked for twice is read once."""

    @property
    def name(self) -> str:
        """Name of the column."""

    def __len__(self) -> int:
        """Number of rows."""

    def numbers(self, notation: Notation = PLAIN) -> Numbers:
        """Return the column as numbers; texts are read in a notation, and `inf` and numbers above float64 count as bad."""

    def codes(self) -> Codes:
        """Return the column as codes of its distinct texts."""

    def strings(self) -> Strings:
        """Return the column as texts; a missing cell is an empty one."""

    def array(self) -> Array | None:
        """Return the column as the array that a file of arrays holds, [rows, *shape]; None for a column of cells."""

    def text(self, row: int) -> str:
        """Return a cell as it is written, for messages."""


class Table(Protocol):
    """Rows of named columns.

    Attributes:
        implied: columns that the reader itself declares, as a config's `data.columns` would: name -> options with `type`.
            What the config says of a column of the same name counts instead.
        fields: names of the columns that are samples' fields when nothing is said of columns.
    """

    implied: Mapping[str, Mapping[str, Any]]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in the order of the file."""

    def __len__(self) -> int:
        """Number of rows, at least 1."""

    def cells(self, name: str) -> Cells:
        """Return a column, one of `names`."""

    def prepare(self, numbers: Notations, codes: Sequence[str], together: MachineProcesses | None = None) -> None:
        """Say which columns will be asked for as what, so that one pass over the file reads them all.

        Where several processes read `together`, all of them say so at the same time.
        """

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error (exit code 3) at a cell: with file, line and column where the reader knows them."""


class ListCells:
    """A column of Python values: None (missing), numbers, truth values or texts.

    Args:
        name: of the column.
        values: one per row.
        missing: texts that count as missing.
    """

    def __init__(self, name: str, values: Sequence[object], missing: Iterable[str] = MISSING) -> None:
        self.name = name
        self.values, self._missing = values, frozenset(missing)
        self._numbers: dict[Notation, Numbers] = {}

    def __len__(self) -> int:
        return len(self.values)

    def text(self, row: int) -> str:
        """Return a cell as it is written; see `Cells.text`."""
        value = self.values[row]
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        # JSON and spreadsheets write whole numbers as floats; as a category `3.0` and `3` are one.
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            return str(int(value))
        text = str(value).strip()
        # JSON may hold half of a character of UTF-16
        return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _is_missing(self, row: int) -> bool:
        value = self.values[row]
        return value is None or (isinstance(value, str) and value.strip() in self._missing) or value != value

    def numbers(self, notation: Notation = PLAIN) -> Numbers:
        """Return the column as numbers; see `Cells.numbers`."""
        if notation not in self._numbers:
            self._numbers[notation] = self._read(notation)
            notation.drop_empty(self._numbers[notation].values)
        return self._numbers[notation]

    def _read(self, notation: Notation) -> Numbers:
        found = np.full(len(self.values), np.nan)
        bad: list[int] = []
        # Numbers without gaps are most columns of a request, and need no look at each.
        if {type(value) for value in self.values} <= {float, NoneType}:
            found[:] = [np.nan if value is None else value for value in self.values]
            bad = np.flatnonzero(np.isinf(found)).tolist()
            found[bad] = np.nan
            return Numbers(found, np.array(bad[:SHOWN], np.int64), len(bad))
        for row, value in enumerate(self.values):
            if self._is_missing(row):
                continue
            number = _number(value, notation)
            if number is None:
                bad.append(row)
            else:
                found[row] = number
        return Numbers(found, np.array(bad[:SHOWN], np.int64), len(bad))

    def codes(self) -> Codes:
        """Return the column as codes; see `Cells.codes`."""
        return self._codes

    @cached_property
    def _codes(self) -> Codes:
        known: dict[str, int] = {}
        seen: dict[tuple[type, object], int] = {}  # equal values are looked at once; 1, 1.0 and true are equal, and differ
        found: list[int] = []
        for row, value in enumerate(self.values):
            code = seen.get((type(value), value))
            if code is None:
                code = -1 if self._is_missing(row) else known.setdefault(self.text(row), len(known))
                seen[type(value), value] = code
            found.append(code)
        return Codes(np.array(found, np.int32), list(known))

    def strings(self) -> Strings:
        """Return the column as texts; see `Cells.strings`."""
        parts = [b"" if self._is_missing(row) else self.text(row).encode() for row in range(len(self.values))]
        return join_strings(parts)

    def array(self) -> Array | None:
        """Return None: these are cells."""
        return None


def join_strings(parts: Sequence[bytes]) -> Strings:
    """Return UTF-8 texts as one column."""
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return Strings(np.frombuffer(b"".join(parts), np.uint8), offsets)


def _number(value: object, notation: Notation) -> float | None:
    """Return a finite number, or None for what is none."""
    if isinstance(value, str) and not notation.is_plain:
        value = notation.plain(value)
    try:
        found = float(value.strip()) if isinstance(value, str) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    # Python reads "1_0" as a number.
    return found if np.isfinite(found) and not (isinstance(value, str) and "_" in value) else None


class ListTable:
    """A table of Python values, as JSON gives them.

    Args:
        columns: name -> one value per row.
        origin: gives errors their place.
        where: names what holds the rows in a message, as in "row 3 of the request".
        first: number of the first row in messages.
    """

    def __init__(
        self,
        columns: Mapping[str, Sequence[object]],
        origin: Origin,
        where: str = "",
        missing: Iterable[str] = MISSING,
        first: int = 1,
    ) -> None:
        assert len({len(values) for values in columns.values()}) == 1, "columns of one length"
        self.implied: Mapping[str, Mapping[str, Any]] = {}
        self._cells = {name: ListCells(name, values, missing) for name, values in columns.items()}
        self._origin, self._where, self._first = origin, where, first

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._cells)

    def __len__(self) -> int:
        return len(next(iter(self._cells.values())))

    def cells(self, name: str) -> Cells:
        """Return a column; see `Table.cells`."""
        return self._cells[name]

    def prepare(self, numbers: Notations, codes: Sequence[str], together: MachineProcesses | None = None) -> None:
        """Do nothing: all is in memory."""

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a cell."""
        where = f"{self._where}, " if self._where else ""
        return self._origin.error(f"{where}row {row + self._first}, column '{name}': {message}", hint)
