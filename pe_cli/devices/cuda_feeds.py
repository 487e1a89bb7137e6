"""Feeds of a CUDA device: two arrays that it copies from take turns, so that the host fills one while a step needs the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.devices.cuda_memory import CudaMemory
from pe_cli.devices.cuda_protocol import Mark

Array = np.ndarray[Any, Any]
#: Bytes from which on a feed is copied to the card beside the step before; smaller ones behind it, which takes one copy less.
LARGE = 1 << 18


class CudaFeed:
    """What brings arrays to a place on a device; see `Loan`. An array may be changed as soon as it has been lent.

    Args:
        memory: that the place is in.
        offset: of the place, in bytes.
    """

    array = None

    def __init__(self, memory: CudaMemory, offset: int) -> None:
        self._driver, self._address = memory.driver, memory.address + offset
        self._halves: list[tuple[Array, Mark, CudaMemory | None]] = []
        self._turn = 0

    def lend(self, array: Array | None) -> None:
        """Let the next step read an array; None: what is written to the place."""
        if array is None or not array.nbytes:
            return
        self._turn = 1 - self._turn
        if len(self._halves) < 2:
            words = self._driver.pinned(-(-array.nbytes // 8))
            room = CudaMemory(self._driver, array.nbytes) if array.nbytes >= LARGE else None
            self._halves.append((words.view(np.uint8)[: array.nbytes], self._driver.mark(), room))
            self._turn = len(self._halves) - 1
        held, copied, room = self._halves[self._turn]
        copied.wait()
        np.copyto(held.view(array.dtype).reshape(array.shape), array)
        if room is None:
            self._driver.send(self._address, held)
        else:
            self._driver.ahead(self._address, room.address, held)
        copied.note()
