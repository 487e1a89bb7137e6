"""CSV and its kin: text with a delimiter, read by our own kernels, a window of the file at a time."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.limits import usable_cores
from pe_cli.data.notation import Notation
from pe_cli.data.raw_cells import SHOWN, Strings
from pe_cli.data.spill_storage import room
from pe_cli.data.tables import column_limit
from pe_cli.data.tables.csv_kernels import NotationWords, Words, Words64, call, native_kernels
from pe_cli.data.tables.dialect import (
    Row,
    called,
    first_bytes,
    first_rows,
    has_header,
    repeated,
    sniff_delimiter,
    split_rows,
    written,
)
from pe_cli.data.tables.findings import Bad, Dictionary
from pe_cli.data.tables.row_starts import WINDOW, find_rows
from pe_cli.data.tables.text_source import Source
from pe_cli.kernels.text import csv as kernels
from pe_cli.kernels.text.characters import SLACK
from pe_cli.kernels.text.decimal import powers_of_five

#: First line of a table by which programs tell Excel the delimiter.
_SEPARATOR = re.compile(rb"sep=([,;|\t])\r?\n", re.IGNORECASE)
#: Limit on the bytes of a column's distinct texts.
MOST_WORDS = 1 << 30
#: Bytes of the rows that a stream decodes together, about.
STRETCH_BYTES = 1 << 20
#: Numbers of a window that Python reads at a time.
LATER = 4096


@dataclass
class _Worker:
    """What one thread of a pass has found.

    Args:
        plan: int64 [columns, kernels.COLUMN], its own.
        words: column -> its texts.
        notations: column -> how its numbers are written, where that is not as programs do.
    """

    plan: Words64
    words: dict[int, Words]
    notations: Mapping[int, Notation]
    ranges: list[tuple[int, int]] = field(default_factory=list)
    hard: dict[int, list[int]] = field(default_factory=dict)
    buffer: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    scratch: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))

    def reserve(self, size: int) -> None:
        """Make room for a window."""
        if len(self.buffer) < size + 1 + SLACK:
            self.buffer = np.zeros(size + 1 + SLACK, np.uint8)
            self.scratch = np.empty(size + 1 + SLACK, np.uint8)


class CsvPart:
    """A file of text with a delimiter.

    Args:
        source: its text.
        delimiter: one ASCII character; None finds it out, or takes that of a first line `sep=;`, as Excel reads it.
        header: whether the first row has names; None finds it out.
        missing: texts that count as missing.
        most: rows to look at; all when None.
        threads: that read it; one per core when None.

    Raises:
        PeError: DATA; the text is no table, or has too many columns.
    """

    by_columns = False

    def __init__(
        self,
        source: Source,
        delimiter: str | None,
        header: bool | None,
        missing: Collection[str],
        most: int | None = None,
        threads: int | None = None,
    ) -> None:
        told = _SEPARATOR.match(source.read(source.start, 8))
        if told and delimiter is None:
            source, delimiter = replace(source, start=source.start + told.end(), before=1), told[1].decode()
        self.source, self.path = source, source.path
        self._threads = threads or usable_cores()
        self._missing = self._packed(missing)
        head, whole = first_bytes(source, delimiter or ",")
        self.delimiter = self._separator(head, whole, delimiter)
        # a first row without an end in sight is a mistake that `find_rows` tells
        rows = first_rows(head, self.delimiter, whole) or list(itertools.islice(split_rows(head, self.delimiter), 1))
        if not rows:
            raise source.origin.error(f"{self.path} is empty: it has no rows", "check what wrote it")
        self.width = len(rows[0].cells)
        if self.width > column_limit.MOST_COLUMNS:
            raise source.error_at(source.start + rows[0].start, *column_limit.too_wide(self.path))
        texts = [[str(cell) for cell in row.cells] for row in rows]
        self.header = has_header(texts, frozenset(missing)) if header is None else header
        self.names = self._names(rows[0]) if self.header else tuple(str(i) for i in range(self.width))
        self._places = {name: i for i, name in enumerate(self.names)}
        found = find_rows(source, self.delimiter, None if most is None else most + self.header, self._threads)
        self._blocks, self._rows = found.blocks, found.count
        #: The row that was asked for last, whose cells are often asked for one after the other.
        self._last: tuple[int, int, Row] | None = None
        if self._rows <= self.header:
            raise source.origin.error(
                f"{self.path} has a header and no rows", "check what wrote it, or set header: false"
            )

    def __len__(self) -> int:
        return self._rows - self.header

    @property
    def stretches(self) -> NDArray[np.int64]:
        """Rows that reading may begin at; see `Part.stretches`."""
        rows, offsets = self._blocks[:-1, 0], self._blocks[:-1, 1]
        begins = np.flatnonzero(np.diff(offsets // STRETCH_BYTES, prepend=-1))
        return np.unique(np.clip(rows[begins] - self.header, 0, len(self) - 1))

    # --- what it looks like -------------------------------------------------------------------------------------------

    @staticmethod
    def _packed(missing: Collection[str]) -> tuple[NDArray[np.uint8], Words64]:
        """Return texts one behind the other, and where each ends."""
        texts = [text.encode() for text in dict.fromkeys(missing) if text]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        return np.frombuffer(b"".join(texts) + bytes(8), np.uint8).copy(), ends

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
                f"no row has the delimiter {called(wanted)}: this looks separated by {called(found)}",
                f'set delimiter: "{written(found)}"',
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

    # --- what cells hold ----------------------------------------------------------------------------------------------

    def read(
        self,
        start: int,
        stop: int,
        numbers: Mapping[str, NDArray[np.float64]],
        codes: Mapping[str, NDArray[np.int32]],
        notations: Mapping[str, Notation],
    ) -> tuple[dict[str, Bad], dict[str, list[Dictionary]]]:
        """Read columns of rows in one pass; see `Part.read`."""
        plan = np.zeros((self.width, kernels.COLUMN), np.int64)
        told = [NotationWords(notation) for notation in notations.values()]
        for name, words in zip(notations, told, strict=True):
            plan[self._places[name], kernels.ASIDE] = words.address
        for kind, wanted in ((kernels.NUMBER, numbers), (kernels.CODE, codes)):
            for name, array in wanted.items():
                assert array.flags.c_contiguous
                plan[self._places[name], [kernels.KIND, kernels.OUT]] = kind, array.ctypes.data
        workers = self._pass(plan, start, stop, {self._places[name]: notation for name, notation in notations.items()})
        wrong = {name: self._bad(workers, self._places[name]) for name in numbers}
        meant = {}
        for name in codes:
            i = self._places[name]
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
        column = self._places[name]
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

    def _pass(self, plan: Words64, start: int, stop: int, notations: Mapping[int, Notation] = MappingProxyType({})) -> list[_Worker]:
        """Read the columns of a plan over some rows, with several threads; numbers of some columns are written in notations."""
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
        workers = [_Worker(plan.copy(), {i: Words() for i in coded}, notations) for _ in range(count)]
        native_kernels()
        with self.source.opened() as fd:
            if count == 1:
                work(workers[0])
            else:
                with ThreadPoolExecutor(count, "pe-table") as pool:
                    try:
                        for done in [pool.submit(work, worker) for worker in workers]:
                            done.result()
                    finally:
                        failed.set()  # so that an interrupted command does not read on
        return workers

    def _window(self, fd: int, worker: _Worker, task: tuple[int, int], first: int, stop: int) -> None:
        """Read the cells of a window of blocks."""
        (row, begin), (end_row, end) = self._blocks[task[0]].tolist(), self._blocks[task[1]].tolist()
        size = end - begin
        worker.reserve(size)
        self.source.read_into(fd, worker.buffer.data, begin, size)
        worker.buffer[size] = ord("\n")
        worker.buffer[size + 1 :][: SLACK] = 0
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
            call(
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
            text = worker.buffer[start : start + length].tobytes().decode()
            value = float((worker.notations[column].plain(text) if column in worker.notations else text) or "nan")
            if np.isfinite(value):
                ctypes.c_double.from_address(int(worker.plan[column, kernels.OUT]) + 8 * row).value = value
            else:
                worker.hard.setdefault(column, []).append(row)

    # --- one cell -----------------------------------------------------------------------------------------------------

    def _row(self, row: int) -> tuple[int, Row]:
        """Return a row, the header not counted, with the offset that its cells are counted from."""
        if self._last and self._last[0] == row:
            return self._last[1:]
        at = row + self.header
        block = int(np.searchsorted(self._blocks[:, 0], at, "right")) - 1
        first, begin = self._blocks[block].tolist()
        data = self.source.read(begin, int(self._blocks[block + 1, 1]) - begin)
        found = next(itertools.islice(split_rows(data, self.delimiter), at - first, None))
        self._last = row, begin, found
        return begin, found

    def array(self, name: str, start: int, stop: int) -> None:
        """Return None: text holds no arrays."""
        return

    def text(self, row: int, name: str) -> str:
        """Return a cell as it is written."""
        return str(self._row(row)[1].cells[self._places[name]])

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a cell, with file, line and column."""
        begin, found = self._row(row)
        cell = found.cells[self._places[name]]
        length = len(cell.text.partition(b"\n")[0].decode("utf-8", "replace"))
        return self.source.error_at(begin + cell.start, f"column '{name}': {message}", hint, length)
