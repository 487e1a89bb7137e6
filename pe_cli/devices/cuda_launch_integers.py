"""Integer arguments of launches, kept in one allocation and sent to the device in one copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from pe_cli.devices.cuda_driver_protocol import Driver, Extent

#: Bytes of an allocation and of an integer, and the alignment of a group of integers.
PAGE, WORD, ALIGNMENT = 1 << 16, 8, 64


def words_of(nbytes: int) -> int:
    """Return the whole numbers that have room for so many bytes; at least one."""
    return -(-max(1, nbytes) // WORD)


class _Held(Protocol):
    address: int


class LaunchIntegers:
    """Memory for whole numbers, which are on the device after `flush`.

    Args:
        driver: of the device.
        allocate: returns zeroed memory of so many bytes, which lasts as long as the object that is returned.
    """

    def __init__(self, driver: Driver, allocate: Callable[[int], _Held]) -> None:
        self._driver, self._allocate = driver, allocate
        self._pages: list[tuple[_Held, np.ndarray]] = []
        self._used = 0
        self._known: dict[bytes, Extent] = {}
        self._waiting: set[int] = set()

    def put(self, values: np.ndarray) -> Extent:
        """Return where numbers lie, [count] int64: a place of their own.

        Raises:
            PeError: the device has not that much memory (exit code 5).
        """
        room = -(-values.nbytes // ALIGNMENT) * ALIGNMENT
        if not self._pages or self._used + room > self._pages[-1][1].nbytes:
            # What is left of the page before stays unused: no place reaches over two allocations.
            size = max(PAGE, room)
            self._pages.append((self._allocate(size), np.zeros(size // WORD, np.int64)))
            self._used = 0
        memory, host = self._pages[-1]
        at = self._used // WORD
        host[at : at + len(values)] = values
        self._waiting.add(len(self._pages) - 1)
        self._used += room
        return Extent(memory.address + WORD * at, values.nbytes)

    def constant(self, values: np.ndarray) -> Extent:
        """Return where numbers lie that nobody writes: once for all that are the same."""
        key = values.tobytes()
        if key not in self._known:
            self._known[key] = self.put(values)
        return self._known[key]

    def flush(self) -> None:
        """Bring to the device what it has not yet; before the first launch that needs it."""
        for page in sorted(self._waiting):
            memory, host = self._pages[page]
            self._driver.write(memory.address, host)
        self._waiting.clear()
