"""What reads tables of columns."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.data import open_reader
from tests.fuzz.targets import Target, refused, target

#: Bytes that pyarrow takes for a small file: it makes room for pages and for batches of rows.
ROOM = 1 << 28
#: What is said where more was asked for than there is.
_TOO_MUCH = re.compile("malloc|realloc|allocat|out of memory|don't fit into memory", re.IGNORECASE)


def _every(table: object, name: str) -> None:
    """Ask for all that a column can be taken for."""
    cells = table.cells(name)  # type: ignore[attr-defined]
    rows = len(table)  # type: ignore[arg-type]
    numbers = cells.numbers()
    assert len(numbers.values) == rows
    codes = cells.codes()
    assert len(codes.codes) == rows
    assert ((codes.codes >= -1) & (codes.codes < len(codes.words))).all()
    texts = cells.strings()
    assert len(texts) == rows
    for row in {0, rows - 1}:
        assert isinstance(texts[row], str)
        assert isinstance(cells.text(row), str)
    array = cells.array()
    assert array is None or (len(array) == rows and np.asarray(array[-1]).dtype != object)
    raise table.error(rows - 1, name, cells.text(rows - 1))  # type: ignore[attr-defined]


@contextlib.contextmanager
def _refused(folder: Path) -> Iterator[None]:
    """Let a PeError pass that does not say that memory has run out: then a small file had asked for very much."""
    said = ""
    with refused(folder, ROOM):
        try:
            yield
        except PeError as error:
            said = error.message
            raise
    assert not _TOO_MUCH.search(said), said


def _columns(ending: str) -> Target:
    def read(data: bytes, folder: Path) -> None:
        path = folder / f"f.{ending}"
        path.write_bytes(data)
        names: tuple[str, ...] = ()
        with _refused(folder):
            names = open_reader("table", {"files": path.name}, folder).names
        for name in names:
            with _refused(folder):
                found = open_reader("table", {"files": path.name}, folder)
                found.prepare(found.names[::2], found.names[1::2])
                _every(found, name)

    return read


for _ending in ("parquet", "arrow"):
    made = _columns(_ending)
    made.__name__ = _ending
    target(made)
