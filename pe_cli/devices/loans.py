"""Loans: a step reads a caller's array where it lies, instead of a copy of it, by having its address in the tape."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.devices.protocol import Spot
from pe_cli.devices.tape import Tape

Array = np.ndarray[Any, Any]
Key = tuple[int, int]


class Loans:
    """The words of a step's records and tables that are addresses in memory for which another may stand in."""

    def __init__(self) -> None:
        self._records: dict[Key, list[tuple[int, int]]] = {}
        self._tables: dict[Key, list[tuple[Array, int, int]]] = {}
        self._arrays: dict[Key, tuple[Array, Array]] = {}
        self._held: dict[Key, Array] = {}
        self._fixed: set[Key] = set()

    @staticmethod
    def _key(spot: Spot) -> Key:
        return id(spot.memory), spot.offset

    def note(self, spot: Spot, word: int, offset: int) -> None:
        """Say that a word of the records is the address of a spot, plus bytes."""
        self._records.setdefault(self._key(spot), []).append((word, offset))

    def note_table(self, spot: Spot, table: Array, index: int, offset: int) -> None:
        """Say the same of a word of a table."""
        self._tables.setdefault(self._key(spot), []).append((table, index, offset))

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
            pairs = np.array(self._records.get(key, []), np.int64).reshape(-1, 2)
            self._arrays[key] = pairs[:, 0].copy(), pairs[:, 1].copy()
        words, offsets = self._arrays[key]
        base = spot.memory.address + spot.offset if array is None else array.__array_interface__["data"][0]
        for tape in tapes:
            tape.records[words] = base + offsets
        for table, index, offset in self._tables.get(key, ()):
            table[index] = base + offset
        if array is None:
            del self._held[key]
        else:
            self._held[key] = array
        return True

    def renew(self, tape: Tape) -> None:
        """Write the loans that run into a further tape."""
        for key, array in self._held.items():
            words, offsets = self._arrays[key]
            tape.records[words] = array.ctypes.data + offsets
