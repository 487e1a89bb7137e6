"""Zero-copy feeds: a step reads the caller's array in place, by patching its address into the tape."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from pe_cli.devices.protocol import Spot
from pe_cli.devices.tape import Tape

Array = np.ndarray[Any, Any]
Key = tuple[int, int]


def address(array: Array) -> int:
    """Return where a contiguous array begins."""
    try:  # NumPy's own ways to say it describe the whole array, which takes ten times as long
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):  # it must not be written, or is empty
        return int(array.ctypes.data)


#: Words of the records that hold addresses of spots: number of the spot, word and bytes after the spot's start, one after the other. As a
#: row of integers they cost a garbage collector nothing, however many are kept.
Notes = tuple[int, ...]


class Entry(NamedTuple):
    """A word of a table that holds the address of a spot.

    Args:
        spot: its number.
        word: of the records: that which holds the address of the table.
        offset: bytes after the spot's start.
        table: it.
        place: index of the word in the table.
    """

    spot: int
    word: int
    offset: int
    table: Array
    place: int


class ZeroCopyFeed:
    """A zero-copy feed: the caller's array in the place of a spot; see `Loan`.

    Args:
        spot: that others stand in for.
        tapes: all that may run, also later ones.
    """

    __slots__ = ("_spot", "_tapes", "_words", "array", "records", "tables")

    def __init__(self, spot: Spot, tapes: list[Tape]) -> None:
        self.array: Array | None = None
        self.records: dict[int, int] = {}  # word of the records -> bytes after the spot's start
        self.tables: dict[tuple[int, int], tuple[Array, int]] = {}  # word of the records, index in its table -> table, bytes
        self._spot = spot
        self._tapes = tapes
        self._words: tuple[Array, Array] | None = None

    def note(self, word: int, offset: int) -> None:
        """Register a word of the records that holds the spot's address plus an offset in bytes."""
        self.records[word] = offset
        self._words = None

    def forget(self, word: int) -> None:
        """Unregister a word of the records."""
        del self.records[word]
        self._words = None

    def lend(self, array: Array | None) -> None:
        """Read an array from the next step on; None: the spot itself again."""
        if array is not self.array:
            self.write(self._tapes, array)
        self.array = array

    def write(self, tapes: Iterable[Tape], array: Array | None) -> None:
        """Write where an array lies into tapes and tables."""
        if self._words is None:
            pairs = np.array([*self.records.items()], np.int64).reshape(-1, 2)
            self._words = pairs[:, 0].copy(), pairs[:, 1].copy()
        words, offsets = self._words
        base = self._spot.memory.address + self._spot.offset if array is None else address(array)
        for tape in tapes:
            # All words at once: one numpy call, however many kernels read the feed.
            tape.records[words] = base + offsets
        for (_, index), (table, offset) in self.tables.items():
            table[index] = base + offset


class ZeroCopyFeeds:
    """The words of a step's records and tables that are addresses in memory for which another may stand in."""

    def __init__(self) -> None:
        self._tapes: list[Tape] = []
        self._loans: dict[Key, ZeroCopyFeed] = {}
        self._fixed: set[Key] = set()
        self._numbers: dict[Key, int] = {}
        self._numbered: list[ZeroCopyFeed] = []

    @staticmethod
    def _key(spot: Spot) -> Key:
        return id(spot.memory), spot.offset

    def _of(self, spot: Spot) -> ZeroCopyFeed:
        key = self._key(spot)
        if key not in self._loans:
            self._loans[key] = ZeroCopyFeed(spot, self._tapes)
        return self._loans[key]

    def number(self, spot: Spot) -> int:
        """Return the number of a spot, by which notes and entries name it."""
        key = self._key(spot)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbered)
            self._numbered.append(self._of(spot))
        return self._numbers[key]

    def note(self, notes: Notes, entries: Iterable[Entry]) -> None:
        """Register words; no array may be lent meanwhile, see `end`."""
        for k in range(0, len(notes), 3):
            self._numbered[notes[k]].note(notes[k + 1], notes[k + 2])
        for entry in entries:
            self._numbered[entry.spot].tables[entry.word, entry.place] = entry.table, entry.offset

    def forget(self, notes: Notes, entries: Iterable[Entry]) -> None:
        """Unregister words, which will be reused; no array may be lent meanwhile, see `end`."""
        for k in range(0, len(notes), 3):
            self._numbered[notes[k]].forget(notes[k + 1])
        for entry in entries:
            del self._numbered[entry.spot].tables[entry.word, entry.place]

    def forbid(self, spot: Spot) -> None:
        """Exclude a spot from zero-copy: its address is also stored where it cannot be patched."""
        self._fixed.add(self._key(spot))

    def loan(self, spot: Spot) -> ZeroCopyFeed | None:
        """Return the zero-copy feed of a spot; None where its address cannot be patched."""
        return None if self._key(spot) in self._fixed else self._of(spot)

    def end(self) -> None:
        """End all zero-copy feeds: the step reads its own memory again."""
        for found in self._loans.values():
            if found.array is not None:
                found.lend(None)

    def renew(self, tape: Tape) -> None:
        """Patch the arrays that are lent now, and all later ones, into a further tape."""
        self._tapes.append(tape)
        for found in self._loans.values():
            if found.array is not None:
                found.write([tape], found.array)
