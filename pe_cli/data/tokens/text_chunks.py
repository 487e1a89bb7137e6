"""Texts in chunks that threads work on: copied, checked, and made lower case where that is asked for."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.limits import usable_cores
from pe_cli.data.fields import Rows
from pe_cli.data.raw_cells import Strings
from pe_cli.data.tokens.unicode_tables import classes
from pe_cli.kernels.text.characters import SLACK

#: Bytes of a chunk; a text is never in two.
CHUNK = 1 << 19

Result = TypeVar("Result")
Words64 = NDArray[np.int64]


#: Kernels that are needed together: those that are missing are compiled side by side.
_TOGETHER = (
    ("check_utf8", "find_nul", "gather_texts", "lower_texts"),
    ("count_pieces", "add_words", "list_words", "encode_words"),
    ("count_pairs", "learn_merges", "spread_pairs", "encode_pairs"),
    ("count_points", "encode_points"),
    ("split_lines", "cut_pieces"),
)


@functools.cache
def _native(name: str) -> Callable[[int], None]:
    """Return a kernel, compiled at the first need."""
    from pe_cli.devices.thread_pool import native_function
    from pe_cli.kernels.compiler.instance import Instance
    from pe_cli.kernels.compiler.loader import addresses
    from pe_cli.kernels.text import byte_pair_learning, byte_pair_merging, csv, lines, tokens

    modules = (tokens, byte_pair_learning, byte_pair_merging, lines, csv)
    together = next(names for names in _TOGETHER if name in names)
    found = {each: next(getattr(module, each) for module in modules if hasattr(module, each)) for each in together}
    addresses(Instance(kernel) for kernel in found.values())
    return native_function(found[name])


def call(name: str, *arguments: int | NDArray[Any]) -> None:
    """Call a kernel that works on texts; arrays are passed by address."""
    record = np.array([a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments], np.int64)
    _native(name)(record.ctypes.data)


class BadTextError(Exception):
    """A text that is no text.

    Args:
        row: of the column.
        message: what is wrong.
        hint: what to do.
    """

    def __init__(self, row: int, message: str, hint: str) -> None:
        super().__init__(message)
        self.row, self.message, self.hint = row, message, hint

    def __reduce__(self) -> tuple[Any, ...]:
        # Pools of processes pickle errors by their arguments.
        return type(self), (self.row, self.message, self.hint)


@dataclass(frozen=True)
class Chunk:
    """Texts one after the other.

    Args:
        buffer: uint8, their bytes and `SLACK` more.
        ends: int64 [texts + 1], where each begins, and where the last one ends.
    """

    buffer: NDArray[np.uint8]
    ends: Words64

    def __len__(self) -> int:
        return len(self.ends) - 1

    @property
    def size(self) -> int:
        """Bytes of all texts."""
        return int(self.ends[-1])


class Texts:
    """Some rows of a column of texts.

    Args:
        strings: the column.
        rows: int64, those that are meant; all when None.
        lower: make them lower case, character by character.
    """

    def __init__(self, strings: Strings, rows: Rows | None = None, lower: bool = False) -> None:
        self.strings, self.lower = strings, lower
        self.rows = np.arange(len(strings), dtype=np.int64) if rows is None else np.ascontiguousarray(rows, np.int64)
        sizes = np.diff(strings.offsets)[self.rows]
        total = np.append(0, np.cumsum(sizes))
        # the first text that begins in each stretch of CHUNK bytes begins a chunk
        firsts = np.searchsorted(total, np.arange(0, int(total[-1]) + 1, CHUNK), side="left")
        self.bounds = np.unique(np.append(firsts[firsts < len(self.rows)], len(self.rows)))
        if len(self.bounds) == 1:
            self.bounds = np.array([0, len(self.rows)])
        self.size = int(total[-1])

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.bounds) - 1

    def chunk(self, index: int) -> Chunk:
        """Return a chunk, checked.

        Raises:
            BadTextError: a text has a NUL byte, or is no UTF-8.
        """
        rows = self.rows[self.bounds[index] : self.bounds[index + 1]]
        offsets = self.strings.offsets
        size = int((offsets[rows + 1] - offsets[rows]).sum())
        buffer = np.zeros(size + SLACK, np.uint8)
        ends = np.empty(len(rows) + 1, np.int64)
        call("gather_texts", self.strings.bytes, offsets, rows, len(rows), buffer, ends)
        self._check(buffer, ends, rows)
        if not self.lower:
            return Chunk(buffer, ends)
        small = np.zeros(size + size // 2 + 8 + SLACK, np.uint8)
        moved = np.empty_like(ends)
        call("lower_texts", buffer, ends, len(rows), classes(), small, moved)
        return Chunk(small, moved)

    def _check(self, buffer: NDArray[np.uint8], ends: Words64, rows: Rows) -> None:
        found = np.empty(2, np.int64)
        size = int(ends[-1])
        call("find_nul", buffer, size, found[:1])
        call("check_utf8", buffer, size, found[1:])
        # a character that is cut in two by the end of a text is whole here
        starts = ends[1:-1][ends[1:-1] < size]
        split = np.flatnonzero(buffer[starts] & 0xC0 == 0x80)
        if len(split):
            first = int(starts[split[0]]) - 1
            while first and buffer[first] & 0xC0 == 0x80:
                first -= 1
            if buffer[first] >= 0xC0 and not 0 <= found[1] < first:
                # A broken character that begins in one text and ends in the next is a mistake of the first.
                found[1] = first
        if (found < 0).all():
            return
        at = int(found[found >= 0].min())
        row = int(np.searchsorted(ends, at, side="right")) - 1
        place = f"byte {at - int(ends[row]) + 1:,} of the text"
        if at == found[0]:
            raise BadTextError(
                int(rows[row]), f"{place} is NUL, which no text has", "the data is binary, or UTF-16: save it as UTF-8"
            )
        raise BadTextError(
            int(rows[row]),
            f"{place}, {buffer[at]:#04x}, is no UTF-8",
            "save the file as UTF-8, or give the reader its encoding",
        )


def in_order(work: Callable[[int], Result], count: int, threads: int | None = None) -> Iterator[Result]:
    """Yield `work(0)`, `work(1)`, ... in this order; several threads work ahead, by two results each.

    Args:
        work: may run in any thread.
        count: number of results.
        threads: number of them; one per core when None.

    Raises:
        BaseException: what the first call that fails has raised.
    """
    threads = min(threads or usable_cores(), count)
    if threads <= 1:
        yield from map(work, range(count))
        return
    from concurrent.futures import Future, ThreadPoolExecutor

    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="texts") as pool:
        try:
            for i in range(count):
                # Bounded, so that results do not pile up while the first one takes long.
                if len(waiting) == 2 * threads:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(work, i))
            while waiting:
                yield waiting.popleft().result()
        finally:
            # An error ends the others at once.
            for future in waiting:
                future.cancel()


class Locals:
    """A value per thread, made when a thread first asks for it.

    Args:
        make: makes one.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._here = make, threading.local()
        self.all: list[Any] = []

    def get(self) -> Any:
        """Return this thread's value."""
        found = getattr(self._here, "value", None)
        if found is None:
            found = self._here.value = self._make()
            self.all.append(found)
        return found
