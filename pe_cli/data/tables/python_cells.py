"""Converts Python values, from JSON and Arrow, to cells: as numbers and as text."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import tempfile
from collections.abc import Collection
from typing import IO

import numpy as np

from pe_cli.data.notation import PLAIN, Notation
from pe_cli.data.raw_cells import Strings
from pe_cli.data.spill_storage import most_of_one, room
from pe_cli.data.tables.dialect import is_number
from pe_cli.data.tables.text_source import no_room

#: Bytes of texts that are written at a time, where they do not stay in memory.
PIECE = 1 << 20


def as_number(value: object, missing: Collection[str], notation: Notation = PLAIN) -> float | None:
    """Return a cell as a finite number, a text by its notation; NaN where it is missing, None where it is no number."""
    if value is None:
        return math.nan
    if isinstance(value, (bool, int, float, decimal.Decimal)):
        try:
            number = float(value)
        except OverflowError:
            return None
        return None if math.isinf(number) else number
    if isinstance(value, str):
        text = value.strip()
        plain = text if notation.is_plain else notation.plain(text)
        if plain is not None and is_number(plain):
            return float(plain)
        return math.nan if not text or text in missing else None
    return None


def as_text(value: object) -> str:  # noqa: PLR0911 - one case per type
    """Return a cell as text: nothing for a missing one, whole numbers without a point, lists and objects as JSON, times as ISO 8601."""
    if isinstance(value, str):
        return whole(value.strip())
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return str(value.total_seconds())
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    if isinstance(value, (list, dict, tuple)):
        return whole(json.dumps(value, ensure_ascii=False, default=as_text))
    return str(value)


def whole(text: str) -> str:
    """Return text that has bytes in UTF-8: half a surrogate pair becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class Texts:
    """Texts that become a column.

    Args:
        rows: number of them.
        name: of the column, for messages.
        missing: texts that become empty.
    """

    def __init__(self, rows: int, name: str, missing: Collection[str]) -> None:
        self._offsets = room((rows + 1,), "int64", f"column '{name}'")
        self._name, self._missing = name, missing
        self._row = 0
        self._size = 0
        self._data = bytearray()
        self._file: IO[bytes] | None = None

    def add(self, text: str) -> None:
        """Append a text."""
        if text and text not in self._missing:
            self._data += text.encode()
        self._row += 1
        self._offsets[self._row] = self._size + len(self._data)
        if len(self._data) > PIECE and (self._file or self._size + len(self._data) > most_of_one()):
            self._spill()

    @property
    def size(self) -> int:
        """Bytes of all texts."""
        return self._size + len(self._data)

    def _spill(self) -> None:
        try:
            self._file = self._file or tempfile.TemporaryFile(prefix="pe-column-")  # noqa: SIM115 - lives as long as the column
            self._file.write(self._data)
        except OSError as error:
            raise no_room(f"column '{self._name}'", error) from None
        self._size += len(self._data)
        self._data.clear()

    def strings(self) -> Strings:
        """Return the column."""
        if self._file is None:
            return Strings(np.frombuffer(self._data, np.uint8), self._offsets)
        self._spill()
        with self._file as file:
            file.flush()
            return Strings(np.memmap(file, np.uint8, "r+"), self._offsets)
