"""Double-buffered feeds of a CUDA device: the host fills one array while a step reads the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.devices.cuda_driver_protocol import Mark
from pe_cli.devices.cuda_launch_integers import WORD, words_of
from pe_cli.devices.cuda_memory import CudaMemory
from pe_cli.devices.protocol import Carried

Array = np.ndarray[Any, Any]
#: Bytes from which on a feed is copied to the card beside the step before; smaller ones behind it, which takes one copy less.
LARGE = 1 << 18
#: Places on the host that take turns: what one of them holds is copied while another is filled.
TURNS = 2


def carried(nbytes: int) -> Carried:
    """Return the double buffer that carries a feed of a given size to a device."""
    if not nbytes:
        return Carried(0, 0)
    return Carried(TURNS * WORD * words_of(nbytes), TURNS * nbytes if nbytes >= LARGE else 0)


class CudaFeed:
    """Copies a caller's arrays to a place on a device; see `Loan`. The caller may change an array as soon as `lend` has returned.

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
        self._turn = (self._turn + 1) % TURNS
        if len(self._halves) < TURNS:
            words = self._driver.pinned(words_of(array.nbytes))
            room = CudaMemory(self._driver, array.nbytes) if array.nbytes >= LARGE else None
            self._halves.append((words.view(np.uint8)[: array.nbytes], self._driver.mark(), room))
            self._turn = len(self._halves) - 1
        held, copied, room = self._halves[self._turn]
        # Not filled before the copy of two steps ago has left it.
        copied.wait()
        np.copyto(held.view(array.dtype).reshape(array.shape), array)
        if room is None:
            self._driver.send(self._address, held)
        else:
            self._driver.ahead(self._address, room.address, held)
        copied.note()
