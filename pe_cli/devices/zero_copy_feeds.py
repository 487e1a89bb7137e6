"""Zero-copy feeds: a step reads the caller's array in place, by patching its address into the tape."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

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

    def changed(self) -> None:
        """Mark `records` as changed, so that cached addresses are computed again."""
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
        # by word of the records: the spots whose addresses are in it, or in the table that it points to
        self._spots: dict[int, Key] = {}
        self._table_spots: dict[int, set[Key]] = {}

    @staticmethod
    def _key(spot: Spot) -> Key:
        return id(spot.memory), spot.offset

    def _of(self, spot: Spot) -> ZeroCopyFeed:
        key = self._key(spot)
        if key not in self._loans:
            self._loans[key] = ZeroCopyFeed(spot, self._tapes)
        return self._loans[key]

    def note(self, spot: Spot, word: int, offset: int) -> None:
        """Register a word of the records that holds a spot's address plus an offset in bytes."""
        found = self._of(spot)
        found.records[word] = offset
        found.changed()
        self._spots[word] = self._key(spot)

    def note_table(self, spot: Spot, word: int, table: Array, index: int, offset: int) -> None:
        """Register a word of a table that holds a spot's address; a word of the records holds the table's address."""
        self._of(spot).tables[word, index] = table, offset
        self._table_spots.setdefault(word, set()).add(self._key(spot))

    def forget(self, words: Iterable[int]) -> None:
        """Unregister words of the records, which will be reused; no array may be lent meanwhile, see `end`."""
        for word in words:
            spot = self._spots.pop(word, None)
            if spot is not None:
                del self._loans[spot].records[word]
                self._loans[spot].changed()
            for spot in self._table_spots.pop(word, ()):
                found = self._loans[spot]
                found.tables = {at: place for at, place in found.tables.items() if at[0] != word}

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
