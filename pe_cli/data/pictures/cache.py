"""A cache of decoded pictures: from the second epoch on, those that fit into memory are not decoded again."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable

from pe_cli.data.dataset import Array
from pe_cli.data.spill_storage import most_of_one


class Cache:
    """Arrays by a key that stands for their content.

    What was kept first stays, because epochs take every picture once: to replace those that were not used for the longest time would
    replace each of them just before it is needed. What belongs to an owner goes with it.

    Args:
        limit: bytes of all arrays together; `most_of_one` when None.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self.bytes = 0
        self._found: dict[Hashable, Array] = {}
        self._owned: dict[int, list[Hashable]] = {}
        # an owner may be collected while this thread holds the lock
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: Hashable) -> Array | None:
        """Return an array, or None."""
        return self._found.get(key)

    def put(self, key: Hashable, array: Array, owner: object) -> None:
        """Keep an array while its owner lives, if there is room; from then on it is read-only."""
        with self._lock:
            if key in self._found or self.bytes + array.nbytes > (most_of_one() if self._limit is None else self._limit):
                return
            if id(owner) not in self._owned:
                self._owned[id(owner)] = []
                weakref.finalize(owner, self._drop, id(owner))
            self._owned[id(owner)].append(key)
            array.flags.writeable = False
            self._found[key] = array
            self.bytes += array.nbytes

    def _drop(self, owner: int) -> None:
        with self._lock:
            for key in self._owned.pop(owner):
                self.bytes -= self._found.pop(key).nbytes


#: The pictures of this process.
PICTURES = Cache()
