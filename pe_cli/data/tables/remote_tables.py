"""Tables in files elsewhere: a file is fetched when its rows are read, and may leave the cache in between."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.data.dataset import Array
from pe_cli.data.notation import Notation
from pe_cli.data.raw_cells import Strings
from pe_cli.data.reader_context import Origin
from pe_cli.data.tables.findings import Bad, Dictionary
from pe_cli.data.tables.table_files import Part
from pe_cli.data.tables.text_source import stamp_of


class FetchedPart:
    """The rows of a file elsewhere; see `Part`.

    Args:
        url: address of the file.
        origin: fetches it, and gives errors their place.
        open: makes a part of the file where it lies on this disk.

    Raises:
        PeError: DATA; the file is not given, or is no table.
    """

    def __init__(self, url: str, origin: Origin, open: Callable[[Path], Part]) -> None:
        self._url, self._origin, self._open = url, origin, open
        self._found: tuple[tuple[int, int, int, int], Part] | None = None
        self._lock = threading.Lock()
        with self._lent() as part:
            self.by_columns, self.path, self.names, self.stretches = part.by_columns, part.path, part.names, part.stretches
            self._rows = len(part)

    def __len__(self) -> int:
        return self._rows

    @contextlib.contextmanager
    def _lent(self) -> Iterator[Part]:
        """Give the part, whose file stays meanwhile; one that was fetched anew is opened anew."""
        with contextlib.ExitStack() as stack:
            with self._origin.fetching(self._url):
                path = stack.enter_context(self._origin.remote.borrowed(self._url))
            with self._lock:
                stamp = stamp_of(path)
                if self._found is None or self._found[0] != stamp:
                    self._found = stamp, self._open(path)
                part = self._found[1]
            yield part

    def read(
        self,
        start: int,
        stop: int,
        numbers: Mapping[str, NDArray[np.float64]],
        codes: Mapping[str, NDArray[np.int32]],
        notations: Mapping[str, Notation],
    ) -> tuple[dict[str, Bad], dict[str, list[Dictionary]]]:
        """Read columns of rows in one pass."""
        with self._lent() as part:
            return part.read(start, stop, numbers, codes, notations)

    def strings(self, name: str, start: int, stop: int) -> Strings:
        """Return a column of rows as texts."""
        with self._lent() as part:
            return part.strings(name, start, stop)

    def array(self, name: str, start: int, stop: int) -> Array | None:
        """Return a column of rows whose cells are arrays of one shape; None for one of other cells."""
        with self._lent() as part:
            return part.array(name, start, stop)

    def text(self, row: int, name: str) -> str:
        """Return a cell as it is written."""
        with self._lent() as part:
            return part.text(row, name)

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a cell."""
        with self._lent() as part:
            return part.error(row, name, message, hint)
