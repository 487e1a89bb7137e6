"""CSV and its kin: text with a delimiter, read by our own kernels, a window of the file at a time."""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.data.cells import SHOWN, Strings
from pe_cli.data.room import room
from pe_cli.data.tables.dialect import (
    BLANKS,
    Row,
    first_rows,
    has_header,
    repeated,
    sniff_delimiter,
    split_rows,
)
from pe_cli.data.tables.parts import Bad, Dictionary
from pe_cli.data.tables.source import Source
from pe_cli.kernels import csv as kernels
from pe_cli.kernels import words
from pe_cli.kernels.decimal import powers_of_five

Words64 = NDArray[np.int64]
#: Bytes of a window; a block of rows that is longer is a window by itself.
WINDOW = 1 << 21
#: Bytes that the delimiter and the header are found out from, unless the first row is longer.
HEAD, LONGEST_HEAD = 1 << 16, 1 << 28
#: A row may have so many bytes: one that is longer is a quote that is not closed.
LONGEST_ROW = 1 << 30
#: Distinct texts of a column may have so many bytes.
MOST_WORDS = 1 << 30
#: Numbers of a window that Python reads at a time.
LATER = 4096


def cores() -> int:
    """Return the number of this process's cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


@functools.cache
def _native() -> dict[str, Callable[[int], None]]:
    """Return the kernels by name, compiled at the first need."""
    from pe_cli.devices.pool import native_function

    found = (kernels.find_rows, kernels.check_utf8, kernels.read_cells, words.spread_words)
    return {kernel.fn.__name__: native_function(kernel) for kernel in found}


def _call(name: str, *arguments: int | NDArray[Any]) -> None:
    """Call a kernel; arrays are passed by address."""
    record = np.array([a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments], np.int64)
    _native()[name](record.ctypes.data)


class Words:
    """The distinct texts of a column, as one thread has seen them.

    Args:
        name: of the column, for messages.
    """

    def __init__(self) -> None:
        self.slots = np.zeros(1024, np.int32)
        self.entries = np.empty((512, words.ENTRY), np.int64)
        self.bytes = np.empty(0, np.uint8)
        self.table = np.zeros(words.KEY + 1, np.int64)
        # no result depends on it, and nobody can choose texts that collide
        self.table[words.KEY] = int.from_bytes(os.urandom(7), "little") | 1
        self._point()

    def _point(self) -> None:
        self.table[words.SLOTS] = self.slots.ctypes.data
        self.table[words.ENTRIES] = self.entries.ctypes.data
        self.table[words.BYTES] = self.bytes.ctypes.data
        self.table[words.MASK] = len(self.slots) - 1
        self.table[words.MOST] = len(self.entries)

    @property
    def used(self) -> int:
        """Bytes of all texts."""
        return int(self.table[words.USED])

    def ensure(self, size: int) -> None:
        """Make room for so many bytes of texts more, and for an entry."""
        if self.used + size + 8 > len(self.bytes):
            grown = np.empty(max(self.used + size + 8, 2 * len(self.bytes)), np.uint8)
            grown[: self.used] = self.bytes[: self.used]
            self.bytes = grown
        count = int(self.table[words.COUNT])
        if count >= len(self.entries):
            self.entries = np.concatenate([self.entries, np.empty_like(self.entries)])
            self.slots = np.zeros(2 * len(self.slots), np.int32)
            _call("spread_words", self.entries, count, self.slots, len(self.slots) - 1)
        self._point()

    def dictionary(self, ranges: list[tuple[int, int]]) -> Dictionary:
        """Return what the codes of some rows mean."""
        count = int(self.table[words.COUNT])
        data = self.bytes[: self.used].tobytes()
        bounds = [*self.entries[:count, words.START].tolist(), self.used]
        texts = [data[start:end].decode("utf-8", "replace") for start, end in itertools.pairwise(bounds)]
        return Dictionary(texts, self.entries[:count, words.ROW].copy(), ranges)


@dataclass
class _Worker:
    """What one thread of a pass has found.

    Args:
        plan: int64 [columns, kernels.COLUMN], its own.
        words: column -> its texts.
    """

    plan: Words64
    words: dict[int, Words]
    ranges: list[tuple[int, int]] = field(default_factory=list)
    hard: dict[int, list[int]] = field(default_factory=dict)
    buffer: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    scratch: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))

    def reserve(self, size: int) -> None:
        """Make room for a window."""
        if len(self.buffer) < size + 1 + kernels.SLACK:
            self.buffer = np.zeros(size + 1 + kernels.SLACK, np.uint8)
            self.scratch = np.empty(size + 1 + kernels.SLACK, np.uint8)


class CsvPart:
    """A file of text with a delimiter.

    Args:
        source: its text.
        delimiter: one ASCII character; None finds it out.
        header: whether the first row has names; None finds it out.
        missing: texts that count as missing.
        most: rows to look at; all when None.
        threads: that read cells.

    Raises:
        PeError: DATA; the text is no table.
    """

    def __init__(
        self,
        source: Source,
        delimiter: str | None,
        header: bool | None,
        missing: Collection[str],
        most: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.source, self.path = source, source.path
        self._threads = threads or cores()
        self._missing = self._packed(missing)
        head, whole = self._head(delimiter)
        self.delimiter = self._separator(head, whole, delimiter)
        rows = first_rows(head, self.delimiter, whole)
        if not rows:
            raise source.origin.error(f"{self.path} is empty: it has no rows", "check what wrote it")
        self.width = len(rows[0].cells)
        texts = [[str(cell) for cell in row.cells] for row in rows]
        self.header = has_header(texts, frozenset(missing)) if header is None else header
        self.names = self._names(rows[0]) if self.header else tuple(str(i) for i in range(self.width))
        self._blocks, self._rows = self._scan(None if most is None else most + self.header)
        if self._rows <= self.header:
            raise source.origin.error(
                f"{self.path} has a header and no rows", "check what wrote it, or set header: false"
            )

    def __len__(self) -> int:
        return self._rows - self.header

    # --- what it looks like -------------------------------------------------------------------------------------------

    @staticmethod
    def _packed(missing: Collection[str]) -> tuple[NDArray[np.uint8], Words64]:
        """Return texts one behind the other, and where each ends."""
        texts = [text.encode() for text in dict.fromkeys(missing) if text]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        return np.frombuffer(b"".join(texts) + bytes(8), np.uint8).copy(), ends

    def _head(self, delimiter: str | None) -> tuple[bytes, bool]:
        """Return the first bytes, with at least one whole row, and whether they are all."""
        size = HEAD
        while True:
            data = self.source.read(self.source.start, size)
            whole = self.source.start + len(data) >= self.source.end
            if (
                whole
                or size >= LONGEST_HEAD
                or any(row.whole for row in itertools.islice(split_rows(data, delimiter or ","), 1))
            ):
                return data, whole
            size *= 8

    def _separator(self, head: bytes, whole: bool, wanted: str | None) -> str:
        """Return the delimiter.

        Raises:
            PeError: DATA; the one that was asked for does not occur, and another would do.
        """
        found, sure = sniff_delimiter(head, whole)
        if wanted is None:
            return found or ","
        if found and sure and found != wanted and all(len(row.cells) == 1 for row in first_rows(head, wanted, whole)):
            raise self.source.error_at(
                self.source.start,
                f"no row has the delimiter {_called(wanted)}: this looks separated by {_called(found)}",
                f'set delimiter: "{_written(found)}", or leave delimiter out',
            )
        return wanted

    def _names(self, row: Row) -> tuple[str, ...]:
        """Return the names of the first row; a column without a name is called by its number.

        Raises:
            PeError: DATA; two columns have one name.
        """
        names = [str(cell) or str(i) for i, cell in enumerate(row.cells)]
        twice = repeated(names)
        if twice is None:
            return tuple(names)
        cell = row.cells[twice]
        count = names.count(names[twice])
        raise self.source.error_at(
            self.source.start + cell.start,
            f"{count} columns are named '{names[twice]}', number {names.index(names[twice]) + 1} and {twice + 1}",
            "give every column a name of its own, or set header: false where the first row is no header",
            len(str(cell)) or 1,
        )

    # --- where rows are -----------------------------------------------------------------------------------------------

    def _scan(self, most: int | None) -> tuple[Words64, int]:
        """Find all rows: return the (row, offset) of every block, with the end as the last one; and the number of rows."""
        state = np.zeros(kernels.SCAN, np.int64)
        state[[kernels.EMPTY, kernels.BLOCKS]] = 1
        state[kernels.ROW] = self.source.start
        state[kernels.ENOUGH] = -1 if most is None else most
        blocks = np.zeros((1024, 2), np.int64)
        blocks[0] = 0, self.source.start
        buffer = np.zeros(WINDOW + kernels.SLACK, np.uint8)
        at = self.source.start
        with self.source.opened() as fd:
            while at < self.source.end and state[kernels.WHY] == kernels.DONE:
                size = min(WINDOW - 1, self.source.end - at)
                self.source.read_into(fd, buffer.data, at, size)
                if at + size < self.source.end:
                    size -= _cut_character(buffer[:size])
                elif buffer[size - 1] not in b"\r\n":
                    buffer[size] = ord("\n")
                    size += 1
                more = size // (2 * kernels.BLOCK_ROWS) + size // kernels.BLOCK_BYTES + 2
                if state[kernels.BLOCKS] + more > len(blocks):
                    blocks = np.concatenate([blocks, np.zeros((max(len(blocks), more), 2), np.int64)])
                state[[kernels.AT, kernels.HIGH]] = at, 0
                _call("find_rows", buffer, size, ord(self.delimiter), state, blocks)
                if state[kernels.HIGH]:
                    self._check_utf8(buffer, size, at)
                at += size
        self._check_scan(state, blocks)
        count = int(state[kernels.BLOCKS])
        end = int(state[kernels.ROW]) if state[kernels.WHY] == kernels.FULL else self.source.end
        blocks = np.concatenate([blocks[:count], [[state[kernels.ROWS], min(end, self.source.end)]]])
        if blocks[-2, 0] == blocks[-1, 0] and len(blocks) > 2:
            blocks = blocks[:-1]
        long = np.flatnonzero(np.diff(blocks[:, 1]) > LONGEST_ROW)
        if len(long):
            row, start = blocks[long[0]].tolist()
            raise self.source.error_at(
                start, f"row {row + 1} has more than {LONGEST_ROW:,} bytes", "look for a quote that is not closed"
            )
        return blocks, int(state[kernels.ROWS])

    def _check_utf8(self, buffer: NDArray[np.uint8], size: int, at: int) -> None:
        out = np.zeros(1, np.int64)
        kept = buffer[size : size + 4].copy()
        buffer[size : size + 4] = 0
        _call("check_utf8", buffer, size, out)
        buffer[size : size + 4] = kept
        if out[0] >= 0:
            place, odd = at + int(out[0]), int(buffer[out[0]])
            raise self._no_utf8(place, odd)

    def _no_utf8(self, place: int, odd: int) -> PeError:
        span = self.source.span(place)
        guess = bytes([odd]).decode("cp1252", "replace")
        means = f", where this byte is '{guess}'" if guess.isprintable() and guess != "\ufffd" else ""
        return self.source.error_at(
            place,
            f"{self.path} is not UTF-8 text: byte {odd:#04x} in line {span.line}",
            f"give its encoding: encoding: cp1252 or latin-1{means}; or save it as UTF-8",
        )

    def _check_scan(self, state: Words64, blocks: Words64) -> None:
        """Raise what ended a scan.

        Raises:
            PeError: DATA; a row has another number of cells than the first, a quote is not closed, or a byte is 0.
        """
        why, place = int(state[kernels.WHY]), int(state[kernels.PLACE])
        if why == kernels.NUL:
            wide = self.source.read(self.source.start, 64)
            hint = "it is no text file, or damaged"
            if wide[1::2].count(0) > len(wide) // 4 or wide[::2].count(0) > len(wide) // 4:
                hint = f"if it is UTF-16, set encoding: utf-16-{'le' if wide[1:2] == bytes(1) else 'be'}"
            raise self.source.error_at(place, "a byte is 0, which text never has", hint)
        if why == kernels.BEHIND_QUOTE:
            raise self.source.error_at(
                place,
                "text behind the closing quote of a cell",
                'write a quote inside a quoted cell twice: "say ""hi"""',
            )
        if why == kernels.RAGGED:
            raise self._ragged(place, int(state[kernels.FOUND]))
        if why == kernels.DONE and state[kernels.QUOTED] == 1:
            raise self.source.error_at(
                int(state[kernels.OPEN]),
                "a quote is opened here and never closed",
                'close it; a quote that belongs to the text is written twice inside a quoted cell: """hi"""',
            )

    def _ragged(self, place: int, found: int) -> PeError:
        """Return the error of the first row whose number of cells is not that of the first row."""
        head, whole = self._head(self.delimiter)
        first = self.source.span(self.source.start + first_rows(head, self.delimiter, whole, 1)[0].start)
        sniffed, sure = sniff_delimiter(head, whole)
        last = self.source.read(place, 1 << 16)
        if sniffed and sure and sniffed != self.delimiter:
            hint = f'this looks separated by {_called(sniffed)}: set delimiter: "{_written(sniffed)}"'
        elif found > self.width:
            hint = f"quote text that holds the delimiter {_called(self.delimiter)}, or set another delimiter"
            if found == self.width + 1 and last.splitlines()[0].rstrip(BLANKS).endswith(self.delimiter.encode()):
                hint = f"remove the delimiter at the end of the line, or put one at the end of line {first.line}"
        elif place + len(last) >= self.source.end and not last.endswith((b"\n", b"\r")) and len(last.splitlines()) == 1:
            hint = "the last line is cut off: copy or download the file again"
        else:
            hint = "quote text that holds the end of a line, or write a delimiter for every empty cell"
        line = last.splitlines()[0] if last else b""
        said = f"{found} cell{'s' * (found != 1)}, but line {first.line} has {self.width}"
        return self.source.error_at(place, said, hint, len(line.decode("utf-8", "replace").strip()))

    # --- what cells hold ----------------------------------------------------------------------------------------------

    def read(
        self,
        start: int,
        stop: int,
        numbers: Mapping[str, NDArray[np.float64]],
        codes: Mapping[str, NDArray[np.int32]],
    ) -> tuple[dict[str, Bad], dict[str, list[Dictionary]]]:
        """Read columns of rows in one pass; see `Part.read`."""
        plan = np.zeros((self.width, kernels.COLUMN), np.int64)
        for kind, wanted in ((kernels.NUMBER, numbers), (kernels.CODE, codes)):
            for name, array in wanted.items():
                assert array.flags.c_contiguous
                plan[self.names.index(name), [kernels.KIND, kernels.OUT]] = kind, array.ctypes.data
        workers = self._pass(plan, start, stop)
        wrong = {name: self._bad(workers, self.names.index(name)) for name in numbers}
        meant = {}
        for name in codes:
            i = self.names.index(name)
            meant[name] = [worker.words[i].dictionary(worker.ranges) for worker in workers]
            for worker in workers:
                del worker.words[i]
        return wrong, meant

    @staticmethod
    def _bad(workers: list[_Worker], column: int) -> Bad:
        rows: list[int] = []
        count = 0
        for worker in workers:
            native = int(worker.plan[column, kernels.BAD])
            rows += worker.plan[column, kernels.FIRST_BAD :][: min(native, SHOWN)].tolist()
            hard = worker.hard.get(column, [])
            rows += hard[:SHOWN]
            count += native + len(hard)
        return Bad(sorted(rows)[:SHOWN], count)

    def strings(self, name: str, start: int, stop: int) -> Strings:
        """Return a column of rows as texts, in two passes: their lengths, then their bytes."""
        column = self.names.index(name)
        offsets = room((stop - start + 1,), "int64", f"column '{name}'")
        plan = np.zeros((self.width, kernels.COLUMN), np.int64)
        plan[column, [kernels.KIND, kernels.OUT]] = kernels.LENGTH, offsets.ctypes.data
        self._pass(plan, start, stop)
        np.cumsum(offsets, out=offsets)
        data = room((int(offsets[-1]),), "uint8", f"column '{name}'")
        plan[column, [kernels.KIND, kernels.OUT, kernels.ASIDE]] = kernels.COPY, data.ctypes.data, offsets.ctypes.data
        self._pass(plan, start, stop)
        return Strings(data, offsets)

    def _tasks(self, first: int, stop: int) -> list[tuple[int, int]]:
        """Return the windows that hold rows first to stop, the header counted: ranges of blocks."""
        rows, offsets = self._blocks[:, 0], self._blocks[:, 1]
        block = int(np.searchsorted(rows, first, "right")) - 1
        end = int(np.searchsorted(rows, stop, "left"))
        tasks = []
        while block < end:
            after = int(np.searchsorted(offsets, offsets[block] + WINDOW, "right")) - 1
            after = min(max(after, block + 1), end)
            tasks.append((block, after))
            block = after
        return tasks

    def _pass(self, plan: Words64, start: int, stop: int) -> list[_Worker]:
        """Read the columns of a plan over some rows, with several threads."""
        first, stop = start + self.header, stop + self.header
        tasks = iter(self._tasks(first, stop))
        lock = threading.Lock()
        failed = threading.Event()
        coded = np.flatnonzero(plan[:, kernels.KIND] == kernels.CODE).tolist()

        def work(worker: _Worker) -> None:
            try:
                while not failed.is_set():
                    with lock:
                        task = next(tasks, None)
                    if task is None:
                        return
                    self._window(fd, worker, task, first, stop)
            except BaseException:
                failed.set()
                raise

        count = max(1, min(self._threads, len(self._tasks(first, stop))))
        workers = [_Worker(plan.copy(), {i: Words() for i in coded}) for _ in range(count)]
        _native()
        with self.source.opened() as fd:
            if count == 1:
                work(workers[0])
            else:
                with ThreadPoolExecutor(count, "pe-table") as pool:
                    for done in [pool.submit(work, worker) for worker in workers]:
                        done.result()
        return workers

    def _window(self, fd: int, worker: _Worker, task: tuple[int, int], first: int, stop: int) -> None:
        """Read the cells of a window of blocks."""
        (row, begin), (end_row, end) = self._blocks[task[0]].tolist(), self._blocks[task[1]].tolist()
        size = end - begin
        worker.reserve(size)
        self.source.read_into(fd, worker.buffer.data, begin, size)
        worker.buffer[size] = ord("\n")
        worker.buffer[size + 1 :][: kernels.SLACK] = 0
        state = np.zeros(kernels.PASS, np.int64)
        later = np.empty((max(LATER, self.width), kernels.LATER_WORDS), np.int64)
        state[[kernels.NEXT, kernels.FROM, kernels.STOP]] = row, max(first, row), min(stop, end_row)
        state[[kernels.SHIFT, kernels.LATER_MOST, kernels.ENDED]] = first, len(later), kernels.FULL
        while state[kernels.ENDED] == kernels.FULL:
            for column, texts in worker.words.items():
                self._check_words(column, texts.used)
                texts.ensure(size)
                worker.plan[column, kernels.ASIDE] = texts.table.ctypes.data
            blob, ends = self._missing
            _call(
                "read_cells",
                worker.buffer, size, ord(self.delimiter), self.width, worker.plan, state, later, worker.scratch,
                powers_of_five(), blob, ends, len(ends) - 1,
            )  # fmt: skip
            self._read_hard(worker, later[: state[kernels.LATER]])
            state[kernels.LATER] = 0
        if state[kernels.ENDED] != kernels.DONE:
            raise self.source.changed()
        worker.ranges.append((max(first, row) - first, min(stop, end_row) - first))

    def _check_words(self, column: int, used: int) -> None:
        if used > MOST_WORDS:
            raise self.source.origin.error(
                f"column '{self.names[column]}' of {self.path} has more than {MOST_WORDS:,} bytes of different texts: it has no classes",
                "declare it as {type: text, tokens: words}, or leave it out",
            )

    @staticmethod
    def _read_hard(worker: _Worker, later: Words64) -> None:
        """Let Python round the numbers that the kernel leaves: those of many digits, and those near the ends of float64."""
        import ctypes

        for column, row, start, length in later.tolist():
            value = float(worker.buffer[start : start + length].tobytes())
            if np.isfinite(value):
                ctypes.c_double.from_address(int(worker.plan[column, kernels.OUT]) + 8 * row).value = value
            else:
                worker.hard.setdefault(column, []).append(row)

    # --- one cell -----------------------------------------------------------------------------------------------------

    def _row(self, row: int) -> tuple[int, Row]:
        """Return a row, the header not counted, with the offset that its cells are counted from."""
        at = row + self.header
        block = int(np.searchsorted(self._blocks[:, 0], at, "right")) - 1
        first, begin = self._blocks[block].tolist()
        data = self.source.read(begin, int(self._blocks[block + 1, 1]) - begin)
        return begin, next(itertools.islice(split_rows(data, self.delimiter), at - first, None))

    def text(self, row: int, name: str) -> str:
        """Return a cell as it is written."""
        return str(self._row(row)[1].cells[self.names.index(name)])

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a cell, with file, line and column."""
        begin, found = self._row(row)
        cell = found.cells[self.names.index(name)]
        length = len(cell.text.partition(b"\n")[0].decode("utf-8", "replace"))
        return self.source.error_at(begin + cell.start, f"column '{name}': {message}", hint, length)


def _cut_character(text: NDArray[np.uint8]) -> int:
    """Return how many bytes at the end belong to a character of UTF-8 that is not whole."""
    for back in range(1, min(4, len(text) + 1)):
        byte = int(text[-back])
        if byte & 0xC0 == 0x80:
            continue
        size = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if size > back and back < len(text) else 0
    return 0


def _written(delimiter: str) -> str:
    return "\\t" if delimiter == "\t" else delimiter


def _called(delimiter: str) -> str:
    """Return a delimiter as a message shows it."""
    return {"\t": "tab", " ": "blank"}.get(delimiter, f"'{delimiter}'")
