"""Calls the native kernels that parse tables, and holds the memory that they work in."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.notation import Notation
from pe_cli.data.tables.findings import Dictionary
from pe_cli.kernels.text import csv as kernels
from pe_cli.kernels.text import distinct_texts

Words64 = NDArray[np.int64]


@functools.cache
def native_kernels() -> dict[str, Callable[[int], None]]:
    """Return the kernels by name, compiled at the first need."""
    from pe_cli.devices.thread_pool import native_function

    found = (kernels.find_rows, kernels.check_utf8, kernels.read_cells, distinct_texts.spread_words)
    return {kernel.fn.__name__: native_function(kernel) for kernel in found}


def call(name: str, *arguments: int | NDArray[Any]) -> None:
    """Call a kernel; arrays are passed by address."""
    record = np.array([a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments], np.int64)
    native_kernels()[name](record.ctypes.data)


class NotationWords:
    """A notation of numbers as kernels take it; see `pe_cli.kernels.notation`. What they read is there as long as this object."""

    def __init__(self, notation: Notation) -> None:
        unit = notation.unit.encode()
        self._unit = np.frombuffer(unit + bytes(8), np.uint8).copy()
        group = ord(notation.thousands) if notation.thousands else 0
        self._words = np.array([ord(notation.decimal), group, self._unit.ctypes.data, len(unit)], np.int64)

    @property
    def address(self) -> int:
        """Where its words lie."""
        return int(self._words.ctypes.data)


class Words:
    """The distinct texts of a column, as one thread has seen them; see `pe_cli.kernels.text.distinct_texts`."""

    def __init__(self) -> None:
        self.slots = np.zeros(1024, np.int32)
        self.entries = np.empty((512, distinct_texts.ENTRY), np.int64)
        self.bytes = np.empty(0, np.uint8)
        self.table = np.zeros(distinct_texts.KEY + 1, np.int64)
        # no result depends on it, and nobody can choose texts that collide
        self.table[distinct_texts.KEY] = int.from_bytes(os.urandom(7), "little") | 1
        self._point()

    def _point(self) -> None:
        self.table[distinct_texts.SLOTS] = self.slots.ctypes.data
        self.table[distinct_texts.ENTRIES] = self.entries.ctypes.data
        self.table[distinct_texts.BYTES] = self.bytes.ctypes.data
        self.table[distinct_texts.MASK] = len(self.slots) - 1
        self.table[distinct_texts.MOST] = len(self.entries)

    @property
    def used(self) -> int:
        """Bytes of all texts."""
        return int(self.table[distinct_texts.USED])

    def ensure(self, size: int) -> None:
        """Make room for so many bytes of texts more, and for an entry."""
        if self.used + size + 8 > len(self.bytes):
            grown = np.empty(max(self.used + size + 8, 2 * len(self.bytes)), np.uint8)
            grown[: self.used] = self.bytes[: self.used]
            self.bytes = grown
        count = int(self.table[distinct_texts.COUNT])
        if count >= len(self.entries):
            self.entries = np.concatenate([self.entries, np.empty_like(self.entries)])
            self.slots = np.zeros(2 * len(self.slots), np.int32)
            call("spread_words", self.entries, count, self.slots, len(self.slots) - 1)
        self._point()

    def dictionary(self, ranges: list[tuple[int, int]]) -> Dictionary:
        """Return what the codes of some rows mean."""
        count = int(self.table[distinct_texts.COUNT])
        data = self.bytes[: self.used].tobytes()
        bounds = [*self.entries[:count, distinct_texts.START].tolist(), self.used]
        texts = [data[start:end].decode("utf-8", "replace") for start, end in itertools.pairwise(bounds)]
        return Dictionary(texts, self.entries[:count, distinct_texts.ROW].copy(), ranges)
