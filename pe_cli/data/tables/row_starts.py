"""Finds where the rows of a text table begin, in one scan of all bytes, by several threads for large files."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.tables.csv_kernels import Words64, call
from pe_cli.data.tables.decompression import chunks_of
from pe_cli.data.tables.dialect import BLANKS, called, first_bytes, first_rows, sniff_delimiter, split_rows, written
from pe_cli.data.tables.encodings import detect, remedy
from pe_cli.data.tables.text_source import LONGEST, Source
from pe_cli.kernels.text import csv as kernels
from pe_cli.kernels.text.characters import SLACK

#: Bytes that are looked at at a time.
WINDOW = 1 << 21
#: Lines at the end of a file that may be sums or notes.
FOOTER = 5
#: Bytes for which one more thread pays, and bytes in which the end of a line is looked for where it begins.
SHARE, LINE = 1 << 23, 1 << 20


@dataclass(frozen=True)
class Rows:
    """The rows of a file, the header among them.

    Args:
        blocks: int64 [blocks + 1, 2], the row that a block of rows begins with, and its offset; the last one is the end.
        count: number of rows.
    """

    blocks: Words64
    count: int


def find_rows(source: Source, delimiter: str, most: int | None, threads: int) -> Rows:
    """Find the rows of a file.

    Every thread looks at a part of the file, which begins behind the end of a line. That this is the end of a row is not known yet: a
    cell in quotes may hold it. So where a part ends elsewhere than between two rows, the next one is looked at again from there.

    Where several processes open the same file of one machine, each looks at some of the parts.

    Args:
        source: the text.
        delimiter: between cells.
        most: rows to find; all when None.
        threads: that look.

    Raises:
        PeError: DATA; rows differ in their number of cells, a quote is not closed, or bytes are no text.
    """
    together = source.shared(threads)
    bounds = _bounds(source, threads * (together.count if together else 1)) if most is None else [source.start, source.end]
    scans = [_Scan(source, delimiter, start, end, most) for start, end in itertools.pairwise(bounds)]
    mine = scans if together is None or len(scans) == 1 else scans[together.index :: together.count]
    if len(mine) > 1:
        with ThreadPoolExecutor(len(mine), "pe-table") as pool:
            list(pool.map(_Scan.run, mine))
    for scan in mine[:1] if len(mine) == 1 else ():
        scan.run()
    told = source.told([scan.found() for scan in mine])
    if together and len(scans) > 1:
        for index, each in enumerate(told):
            for scan, found in zip(scans[index :: together.count], each, strict=True):
                scan.take(found)
    kept = scans[:1]
    for scan in scans[1:]:
        last = kept[-1]
        # A part that began inside of a quoted cell has found wrong rows.
        last.check()
        if last.between_rows and scan.width in (0, last.width or scan.width):
            scan.width = last.width
            kept.append(scan)
        else:
            # It is gone over again by the part before, which knows where it stands.
            last.run(scan.end)
    kept[-1].check(end=True)
    return _joined(source, kept, delimiter)


def _bounds(source: Source, threads: int) -> list[int]:
    """Return where the parts of a file begin, and its end."""
    size = source.end - source.start
    count = max(1, min(threads, size // SHARE))
    found = [source.start]
    for k in range(1, count):
        at = source.start + size * k // count
        newline = source.read(at, LINE).find(b"\n")
        if newline >= 0 and found[-1] < at + newline + 1 < source.end:
            found.append(at + newline + 1)
    return [*found, source.end]


def _joined(source: Source, scans: list[_Scan], delimiter: str) -> Rows:
    """Return the rows of all parts."""
    blocks, rows = [], 0
    for scan in scans:
        blocks.append(scan.blocks[: scan.state[kernels.BLOCKS]] + np.array([rows, 0]))
        rows += int(scan.state[kernels.ROWS])
    last = scans[-1].state
    end = int(last[kernels.ROW]) if last[kernels.WHY] == kernels.FULL else source.end
    every = np.concatenate([*blocks, [[rows, min(end, source.end)]]])
    # blocks without rows are those of blank lines alone
    every = every[np.append(np.diff(every[:, 0]) > 0, True)]
    long = np.flatnonzero(np.diff(every[:, 1]) > LONGEST)
    if len(long):
        # a block ends with the row that makes it large
        row, start = int(every[long[0] + 1, 0]), int(every[long[0], 1])
        *_, long_row = split_rows(source.read(start, kernels.BLOCK_BYTES + 1), delimiter)
        raise source.error_at(
            start + long_row.start, f"row {row} has more than {LONGEST:,} bytes", "look for a quote that is not closed"
        )
    return Rows(every, rows)


class _Scan:
    """A look at a part of a file.

    Args:
        source: the text.
        delimiter: between cells.
        start: offset of its first byte, which is taken for the first of a row.
        end: offset behind its last byte.
        most: rows to find.
    """

    def __init__(self, source: Source, delimiter: str, start: int, end: int, most: int | None) -> None:
        self.source, self.end = source, end
        self._delimiter, self._at = delimiter, start
        self.state = np.zeros(kernels.SCAN, np.int64)
        self.state[[kernels.EMPTY, kernels.BLOCKS]] = 1
        self.state[kernels.ROW] = start
        self.state[kernels.ENOUGH] = -1 if most is None else most
        self.blocks = np.zeros((1024, 2), np.int64)
        self.blocks[0] = 0, start
        self._odd: tuple[int, int] | None = None

    @property
    def width(self) -> int:
        """Cells of every row; 0 before the first one."""
        return int(self.state[kernels.WIDTH])

    @width.setter
    def width(self, width: int) -> None:
        self.state[kernels.WIDTH] = width or self.state[kernels.WIDTH]

    @property
    def between_rows(self) -> bool:
        """Whether the scan ended behind a whole row."""
        quoted, cells, empty = self.state[[kernels.QUOTED, kernels.CELLS, kernels.EMPTY]].tolist()
        return (quoted, cells, empty) == (0, 0, 1)

    def found(self) -> list[Any]:
        """Return what was found, as JSON values."""
        return [self.state.tolist(), self.blocks[: self.state[kernels.BLOCKS]].tolist(), self._odd, self._at]

    def take(self, found: list[Any]) -> None:
        """Take over what `found` gave in the process that has looked."""
        self.state[:], self.blocks = found[0], np.array(found[1], np.int64)
        self._odd, self._at = found[2] and (found[2][0], found[2][1]), found[3]

    def run(self, end: int | None = None) -> None:
        """Look at all of it, or further to another end; a mistake ends it, and is kept for `check`."""
        self.end = end or self.end
        buffer = np.zeros(WINDOW + SLACK, np.uint8)
        with self.source.opened() as fd:
            while self._at < self.end and self.state[kernels.WHY] == kernels.DONE and self._odd is None:
                size = min(WINDOW - 1, self.end - self._at)
                self.source.read_into(fd, buffer.data, self._at, size)
                # A character that is cut in two by the window is left for the next one.
                if self._at + size < self.end:
                    size -= _cut_character(buffer[:size])
                elif self.end == self.source.end and buffer[size - 1] not in b"\r\n":
                    buffer[size] = ord("\n")
                    size += 1
                self._window(buffer, size)
                self._at += size

    def _window(self, buffer: NDArray[np.uint8], size: int) -> None:
        more = size // (2 * kernels.BLOCK_ROWS) + size // kernels.BLOCK_BYTES + 2
        if self.state[kernels.BLOCKS] + more > len(self.blocks):
            self.blocks = np.concatenate([self.blocks, np.zeros((max(len(self.blocks), more), 2), np.int64)])
        self.state[[kernels.AT, kernels.HIGH]] = self._at, 0
        call("find_rows", buffer, size, ord(self._delimiter), self.state, self.blocks)
        if self.state[kernels.HIGH]:
            out = np.zeros(1, np.int64)
            buffer[size : size + 4] = 0  # nothing behind the end is part of a character
            call("check_utf8", buffer, size, out)
            if out[0] >= 0:
                self._odd = self._at + int(out[0]), int(buffer[out[0]])

    def check(self, *, end: bool = False) -> None:
        """Raise the error that ended the scan.

        Args:
            end: whether it is the last part of the file.

        Raises:
            PeError: DATA; a row has another number of cells than the first, a quote is not closed, or bytes are no text.
        """
        if self._odd is not None:
            raise self._no_utf8(*self._odd)
        why, place = int(self.state[kernels.WHY]), int(self.state[kernels.PLACE])
        if why == kernels.NUL:
            wide = self.source.read(self.source.start, 64)
            hint = "it is no text file, or damaged"
            if wide[1::2].count(0) > len(wide) // 4 or wide[::2].count(0) > len(wide) // 4:
                hint = f"if it is UTF-16, set encoding: utf-16-{'le' if wide[1:2] == bytes(1) else 'be'}"
            raise self.source.error_at(place, "a byte is 0, which text never has", hint)
        if why == kernels.BEHIND_QUOTE:
            hint = 'write a quote inside a quoted cell twice: "say ""hi"""'
            raise self.source.error_at(place, "text behind the closing quote of a cell", hint)
        if why == kernels.RAGGED:
            raise self._ragged(place, int(self.state[kernels.FOUND]))
        if end and why == kernels.DONE and self.state[kernels.QUOTED] == 1:
            hint = 'close it; a quote that belongs to the text is written twice inside a quoted cell: """hi"""'
            raise self.source.error_at(int(self.state[kernels.OPEN]), "a quote is opened here and never closed", hint)

    def _no_utf8(self, place: int, odd: int) -> PeError:
        span = self.source.span(place)
        said = f"{self.source.path} is not UTF-8 text: byte {odd:#04x} in line {span.line}"
        found = detect(chunks_of(self.source.path, self.source.origin))
        return self.source.error_at(place, said, remedy(found))

    def _ragged(self, place: int, found: int) -> PeError:
        """Return the error of a row whose number of cells is not that of the first row."""
        head, whole = first_bytes(self.source, self._delimiter)
        first = self.source.span(self.source.start + first_rows(head, self._delimiter, whole, 1)[0].start)
        sniffed, sure = sniff_delimiter(head, whole)
        rest = self.source.read(place, 1 << 16)
        line = rest.splitlines()[0] if rest else b""
        if sniffed and sure and sniffed != self._delimiter:
            hint = f'this looks separated by {called(sniffed)}: set delimiter: "{written(sniffed)}"'
        elif found == self.width + 1 and line.rstrip(BLANKS).endswith(self._delimiter.encode()):
            hint = f"remove the delimiter at the end of the line, or put one at the end of line {first.line}"
        elif found > self.width:
            hint = f"quote text that holds the delimiter {called(self._delimiter)}, or set another delimiter"
        elif place + len(rest) >= self.source.end and rest == line:
            hint = "the last line is cut off: copy or download the file again"
        elif place + len(rest) >= self.source.end and len(rest.splitlines()) <= FOOTER < self.source.span(place).line - first.line:
            last = self.source.span(place).line - 1
            hint = f"a sum or a note below the table? keep what is above it: head -n {last:d} {self.source.path.name} > table.csv;"
            hint += " or write a delimiter for every empty cell"
        else:
            hint = "quote text that holds the end of a line, or write a delimiter for every empty cell"
        said = f"{found} cell{'s' * (found != 1)}, but line {first.line} has {self.width}"
        return self.source.error_at(place, said, hint, len(line.decode("utf-8", "replace").strip()))


def _cut_character(text: NDArray[np.uint8]) -> int:
    """Return how many bytes at the end belong to a character of UTF-8 that is not whole."""
    for back in range(1, min(4, len(text) + 1)):
        byte = int(text[-back])
        if byte & 0xC0 == 0x80:
            continue
        size = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if size > back and back < len(text) else 0
    return 0
