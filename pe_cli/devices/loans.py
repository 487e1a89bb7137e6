"""Loans: a step reads a caller's array where it lies, instead of a copy of it, by having its address in the tape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pe_cli.devices.protocol import Spot
from pe_cli.devices.tape import Tape

Array = np.ndarray[Any, Any]
Key = tuple[int, int]


class Loans:
    """The words of a step's records and tables that are addresses in memory for which another may stand in."""

    def __init__(self) -> None:
        self._records: dict[Key, dict[int, int]] = {}
        self._tables: dict[Key, dict[tuple[int, int], tuple[Array, int]]] = {}
        self._arrays: dict[Key, tuple[Array, Array]] = {}
        self._held: dict[Key, tuple[Spot, Array]] = {}
        self._fixed: set[Key] = set()
        # by word of the records: the spots whose addresses are in it, or in the table that it points to
        self._spots: dict[int, Key] = {}
        self._table_spots: dict[int, set[Key]] = {}

    @staticmethod
    def _key(spot: Spot) -> Key:
        return id(spot.memory), spot.offset

    def note(self, spot: Spot, word: int, offset: int) -> None:
        """Say that a word of the records is the address of a spot, plus bytes."""
        key = self._key(spot)
        self._records.setdefault(key, {})[word] = offset
        self._arrays.pop(key, None)
        self._spots[word] = key

    def note_table(self, spot: Spot, word: int, table: Array, index: int, offset: int) -> None:
        """Say the same of a word of a table, whose address a word of the records is."""
        key = self._key(spot)
        self._tables.setdefault(key, {})[word, index] = table, offset
        self._table_spots.setdefault(word, set()).add(key)

    def forget(self, words: Iterable[int]) -> None:
        """Say that words of the records will be something else; nothing is lent now."""
        assert not self._held
        for word in words:
            spot = self._spots.pop(word, None)
            if spot is not None:
                del self._records[spot][word]
                self._arrays.pop(spot, None)
            for spot in self._table_spots.pop(word, ()):
                self._tables[spot] = {at: place for at, place in self._tables[spot].items() if at[0] != word}

    def forbid(self, spot: Spot) -> None:
        """Say that a spot's address stands elsewhere, too: it can't be lent."""
        self._fixed.add(self._key(spot))

    def lend(self, tapes: list[Tape], spot: Spot, array: Array | None) -> bool:
        """Make a step read an array in the place of a spot; None: the spot itself again.

        Args:
            tapes: all that may run next.
            array: of the spot's type, contiguous; held until the next loan for this spot.

        Returns:
            Whether that is possible.
        """
        key = self._key(spot)
        if key in self._fixed:
            return False
        if array is None and key not in self._held:
            return True
        if key not in self._arrays:
            pairs = np.array([*self._records.get(key, {}).items()], np.int64).reshape(-1, 2)
            self._arrays[key] = pairs[:, 0].copy(), pairs[:, 1].copy()
        words, offsets = self._arrays[key]
        base = spot.memory.address + spot.offset if array is None else array.__array_interface__["data"][0]
        for tape in tapes:
            tape.records[words] = base + offsets
        for (_, index), (table, offset) in self._tables.get(key, {}).items():
            table[index] = base + offset
        if array is None:
            del self._held[key]
        else:
            self._held[key] = spot, array
        return True

    def end(self, tapes: list[Tape]) -> None:
        """Make a step read every spot itself again."""
        for spot, _ in [*self._held.values()]:
            self.lend(tapes, spot, None)

    def renew(self, tape: Tape) -> None:
        """Write the loans that run into a further tape."""
        for key, (_, array) in self._held.items():
            words, offsets = self._arrays[key]
            tape.records[words] = array.ctypes.data + offsets
