"""A table that is read as a stream: rows are decoded a stretch at a time, when they are needed, and forgotten again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.data.dataset import Array
from pe_cli.data.notation import Notation
from pe_cli.data.raw_cells import Strings
from pe_cli.data.reader_context import Origin
from pe_cli.data.tables.findings import Bad, Dictionary
from pe_cli.data.tables.table_files import Part, PartsTable

#: Rows that columns learn from, and stretches that these are taken from, at most.
SAMPLE, PLACES = 200_000, 64
#: Rows of a stretch, at most.
STRETCH = 1 << 17


class PartRange:
    """Some neighbouring rows of a part; see `Part`.

    Args:
        part: the file.
        start: first row.
        stop: row behind the last one.
    """

    def __init__(self, part: Part, start: int, stop: int) -> None:
        assert 0 <= start < stop <= len(part)
        self._part, self._start, self._rows = part, start, stop - start
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
    def stretches(self) -> NDArray[np.int64]:
        """All rows at once."""
        return np.zeros(1, np.int64)

    def __len__(self) -> int:
        return self._rows

    def read(
        self,
        start: int,
        stop: int,
        numbers: Mapping[str, NDArray[np.float64]],
        codes: Mapping[str, NDArray[np.int32]],
        notations: Mapping[str, Notation],
    ) -> tuple[dict[str, Bad], dict[str, list[Dictionary]]]:
        """Read columns of rows in one pass."""
        return self._part.read(self._start + start, self._start + stop, numbers, codes, notations)

    def strings(self, name: str, start: int, stop: int) -> Strings:
        """Return a column of rows as texts."""
        return self._part.strings(name, self._start + start, self._start + stop)

    def array(self, name: str, start: int, stop: int) -> Array | None:
        """Return a column of rows whose cells are arrays of one shape; None for one of other cells."""
        return self._part.array(name, self._start + start, self._start + stop)

    def text(self, row: int, name: str) -> str:
        """Return a cell as it is written."""
        return self._part.text(self._start + row, name)

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a cell."""
        return self._part.error(self._start + row, name, message, hint)


class StreamTable(PartsTable):
    """Rows of several files that are read as a stream; as a table, it reads all of a column that is asked for.

    Args:
        parts, origin, skip, limit, missing: as of `PartsTable`.
    """

    def __init__(self, parts: Sequence[Part], origin: Origin, skip: int, limit: int | None, missing: frozenset[str]) -> None:
        super().__init__(parts, origin, skip, limit, missing)
        self._origin = origin

    @cached_property
    def stretches(self) -> NDArray[np.int64]:
        """First row of each stretch, and the number of all rows, int64 [stretches + 1]."""
        found = []
        for part, start, stop, row in self._ranges():
            # A stretch never goes over the border of two files, nor over that of a row group.
            begins = np.unique(np.clip(part.stretches, start, stop - 1))
            ends = np.append(begins[1:], stop)
            cut = [np.arange(begin, end, STRETCH) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
            found.append(np.concatenate(cut) - start + row)
        return np.append(np.concatenate(found), len(self)).astype(np.int64)

    def piece(self, stretch: int) -> PartsTable:
        """Return the rows of a stretch as a table."""
        first, last = self.stretches[stretch : stretch + 2].tolist()
        return self._of([(first, last)])

    def _of(self, spans: Sequence[tuple[int, int]]) -> PartsTable:
        ranges = [PartRange(part, start, stop) for first, last in spans for part, start, stop, _ in self._ranges(first, last)]
        return PartsTable(ranges, self._origin, 0, None, self._missing, self.implied)

    @cached_property
    def sample_rows(self) -> NDArray[np.int64]:
        """The rows that columns learn from, int64: all of them, or some that lie in stretches spread evenly over all."""
        return np.concatenate([np.arange(first, last, dtype=np.int64) for first, last in self._spans()])

    @cached_property
    def sample(self) -> PartsTable:
        """The rows that columns learn from, as a table."""
        return self._of(self._spans())

    def _spans(self) -> list[tuple[int, int]]:
        rows = len(self)
        if rows <= SAMPLE:
            return [(0, rows)]
        # Spread evenly, because the beginning of a stream is often unlike the rest.
        begins = self.stretches[:-1]
        chosen = begins[np.unique(np.linspace(0, len(begins) - 1, min(PLACES, len(begins))).astype(np.int64))].tolist()
        most = SAMPLE // len(chosen)
        return [(first, min(first + most, last)) for first, last in zip(chosen, [*chosen[1:], rows], strict=True)]
