"""JSON lines: one object per line, whose keys are the columns."""

from __future__ import annotations

import bisect
import contextlib
import json
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError, Span
from pe_cli.core.flat_objects import Twice, flattened
from pe_cli.core.json_size import count
from pe_cli.data.notation import PLAIN, Notation
from pe_cli.data.raw_cells import SHOWN, Strings
from pe_cli.data.tables import column_limit
from pe_cli.data.tables.decompression import CHUNK
from pe_cli.data.tables.dialect import repeated
from pe_cli.data.tables.findings import Bad, Dictionary, Findings
from pe_cli.data.tables.python_cells import Texts, as_number, as_text
from pe_cli.data.tables.text_source import LONGEST, Source

#: Bytes that a key takes at least, with its value.
KEY = 5
#: The offset of one line in this many is kept, to find rows again.
STRIDE = 256


class JsonlPart:
    """A file of JSON lines. What a line lacks is missing; objects in it are flattened, and lists in cells are JSON text.

    Args:
        source: its text.
        missing: texts that count as missing.
        most: rows to look at; all when None.
        of_document: the lines were made of one JSON text, so that rows of the file are told, and not its lines.

    Raises:
        PeError: DATA; a line is no object, or the file has none.
    """

    by_columns = False

    def __init__(self, source: Source, missing: Collection[str], most: int | None = None, *, of_document: bool = False) -> None:
        self.source, self.path = source, source.path
        self._missing = frozenset(missing)
        self._of_document = of_document
        together = source.shared(1)
        found = None
        if together and most is None:
            # Each process looks at its own part of the lines; parts end at line ends.
            begin, end = (self._line_at(source.start + at) for at in together.span(source.end - source.start))
            with contextlib.suppress(PeError):  # all look at all of it then, and tell the same
                found = self._look(begin, end, None)
        every = source.told(found)
        if together is None or None in every:
            every = [self._look(source.start, source.end, most)]
        names = dict.fromkeys(name for each, _, _ in every for name in each)
        self._marks: list[tuple[int, int]] = []
        self._rows = 0
        for _, marks, rows in every:
            self._marks += [(row + self._rows, at) for row, at in marks]
            self._rows += rows
        if len(names) > column_limit.MOST_COLUMNS:
            raise self._too_wide(source.start)
        if not self._rows:
            raise source.origin.error(f"{self.path} is empty: it has no rows", "check what wrote it")
        if not names:
            raise source.origin.error(f"{self.path} has no columns: all its objects are empty", "check what wrote it")
        self.names = tuple(names)
        #: The row that was asked for last, whose cells are often asked for one after the other.
        self._last: tuple[int, dict[str, Any]] | None = None

    def __len__(self) -> int:
        return self._rows

    @property
    def stretches(self) -> NDArray[np.int64]:
        """Rows that reading may begin at; see `Part.stretches`."""
        rows, offsets = np.array(self._marks, np.int64).T
        found: NDArray[np.int64] = rows[np.flatnonzero(np.diff((offsets - offsets[0]) // CHUNK, prepend=-1))]
        return found

    def _line_at(self, at: int) -> int:
        """Return where the first line begins that begins at an offset or behind it."""
        if at in (self.source.start, self.source.end):
            return at
        at -= 1
        while at < self.source.end:
            data = self.source.read(at, CHUNK)
            newline = data.find(b"\n")
            if newline >= 0:
                return at + newline + 1
            at += len(data)
        return at

    def _look(self, begin: int, end: int, most: int | None) -> tuple[list[str], list[tuple[int, int]], int]:
        """Return the names of columns in the lines of a stretch, the offset of every `STRIDE`th row, and the number of rows.

        Raises:
            PeError: DATA; a line is no object, or there are too many names.
        """
        names: dict[str, None] = {}
        marks, rows = [], 0
        for at, data in self._lines(begin):
            if at >= end or rows == most:
                break
            # Only every so many offsets are kept: a file of a billion lines would fill memory with places.
            if rows % STRIDE == 0:
                marks.append((rows, at))
            # A line that is too short for so many keys need not be counted.
            if len(data) > KEY * column_limit.MOST_COLUMNS and count(data).outer > column_limit.MOST_COLUMNS:
                raise self._too_wide(at)
            names.update(dict.fromkeys(self._parse(data, at)))
            if len(names) > column_limit.MOST_COLUMNS:
                raise self._too_wide(at)
            rows += 1
        return list(names), marks, rows

    def _too_wide(self, at: int) -> PeError:
        said, hint = column_limit.too_wide(self.path)
        return self.source.error_at(at, said, f"keys are the names of columns, equal in every line; {hint}")

    def _lines(self, at: int) -> Iterator[tuple[int, bytes]]:
        """Yield the lines from an offset on that are not blank: offset and bytes."""
        rest = b""
        position = at
        with self.source.opened() as fd:
            while position < self.source.end:
                size = min(CHUNK, self.source.end - position)
                data = bytearray(size)
                self.source.read_into(fd, memoryview(data), position, size)
                position += size
                if position == self.source.end:
                    data += b"\n"
                *lines, rest = (rest + data).split(b"\n")
                for found in lines:
                    if found.strip():
                        yield at, found
                    at += len(found) + 1
                # A line that never ends is no JSON Lines, and would be kept whole.
                if len(rest) > LONGEST:
                    raise self.source.error_at(
                        at, f"a line of more than {LONGEST:,} bytes", "write one object per line"
                    )

    def _parse(self, data: bytes, at: int) -> dict[str, Any]:
        """Return the object of a line.

        Raises:
            PeError: DATA; it is none.
        """
        try:
            found = DECODER.decode(data.decode())
        except UnicodeDecodeError as error:
            raise self.source.error_at(
                at + error.start,
                f"{self.path} is not UTF-8 text: byte {data[error.start]:#04x}",
                "JSON is UTF-8; give another encoding where it has one: encoding: cp1252 or latin-1",
            ) from None
        except json.JSONDecodeError as error:
            text = data.decode()
            place = at + len(text[: error.pos].encode())
            hint = "write one whole object per line, without a comma behind it"
            raise self.source.error_at(place, f"no JSON: {_said(error.msg)}", hint) from None
        except _Twice as error:
            raise self.source.error_at(at, f"the key '{error}' stands there twice", "name every key once") from None
        except RecursionError:
            raise self.source.error_at(
                at, "lists and objects are nested too deeply", "write the columns as plain values"
            ) from None
        except ValueError:
            raise self.source.error_at(
                at, "a number has too many digits", "write it as a number below 1e308, or as text"
            ) from None
        if not isinstance(found, dict):
            kind = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}.get(
                type(found), "a number"
            )
            hint = 'write one object per line: {"name": value, ...}'
            raise self.source.error_at(at, f"the line is {kind}, not an object", hint, min(len(data), 200))
        try:
            return flattened(found)
        except Twice as error:
            hint = "objects become columns with dots in their names: name them apart"
            raise self.source.error_at(at, f"two values are called '{error}'", hint) from None

    def _objects(self, start: int, stop: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield rows start to stop: offset and object."""
        row, at = self._marks[bisect.bisect_right(self._marks, start, key=lambda mark: mark[0]) - 1]
        for place, data in self._lines(at):
            if row >= stop:
                return
            if row >= start:
                yield place, self._parse(data, place)
            row += 1
        if row < stop:
            raise self.source.changed()

    def read(
        self,
        start: int,
        stop: int,
        numbers: Mapping[str, NDArray[np.float64]],
        codes: Mapping[str, NDArray[np.int32]],
        notations: Mapping[str, Notation],
    ) -> tuple[dict[str, Bad], dict[str, list[Dictionary]]]:
        """Read columns of rows in one pass; see `Part.read`."""
        found = Findings(numbers, codes)
        known, firsts = found.known, found.firsts
        for row, (_, cells) in enumerate(self._objects(start, stop)):
            for name, array in numbers.items():
                value = as_number(cells.get(name), self._missing, notations.get(name, PLAIN))
                array[row] = math.nan if value is None else value
                if value is None:
                    found.count[name] += 1
                    if len(found.bad[name]) < SHOWN:
                        found.bad[name].append(row)
            for name, coded in codes.items():
                words = known[name]
                code = coded[row] = words.setdefault(as_text(cells.get(name)), len(words))
                if code == len(firsts[name]):
                    firsts[name].append(row)
        return found.told(stop - start)

    def strings(self, name: str, start: int, stop: int) -> Strings:
        """Return a column of rows as texts."""
        texts = Texts(stop - start, name, self._missing)
        for _, found in self._objects(start, stop):
            texts.add(as_text(found.get(name)))
        return texts.strings()

    def array(self, name: str, start: int, stop: int) -> None:
        """Return None: text holds no arrays."""
        return

    def text(self, row: int, name: str) -> str:
        """Return a cell as it is written."""
        if self._last is None or self._last[0] != row:
            self._last = row, next(self._objects(row, row + 1))[1]
        found = self._last[1]
        return as_text(found.get(name))

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a cell, with file and line."""
        if self._of_document:
            return self.source.origin.error(f"{self.path}, row {row + 1}, column '{name}': {message}", hint)
        at, found = next(self._objects(row, row + 1))
        error = self.source.error_at(at, f"column '{name}': {message}", hint)
        key = json.dumps(name if f'"{name}"' in (error.at.text if error.at else "") else name.rpartition(".")[2], ensure_ascii=False)
        if name in found and error.at and key in error.at.text:
            span = error.at
            error.at = Span(span.file, span.line, span.text.index(key) + 1, len(key), span.text)
        return error


class _Twice(ValueError):
    """A key stands in an object twice."""


# JSON allows a key twice and keeps the last, which would lose a value in silence.
def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(names[repeated(names) or 0])
    return found


DECODER = json.JSONDecoder(object_pairs_hook=_pairs)


def _said(message: str) -> str:
    return message[:1].lower() + message[1:]
