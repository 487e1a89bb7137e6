"""Arenas that plans share: only one plan runs at a time, and no temporary outlives its step."""

from __future__ import annotations

import weakref

from pe_cli.core.types import Place
from pe_cli.devices.protocol import Memory, device


class Arenas:
    """The arenas of plans of which one runs at a time, by device; they live as long as a plan that uses them."""

    def __init__(self) -> None:
        self._live: dict[int, weakref.WeakSet[Memory]] = {}

    def take(self, d: int, place: Place, nbytes: int) -> Memory:
        """Return memory of at least a given size for a device of a plan.

        That is the largest of another plan where it will do.

        Args:
            d: number of the device in the graph.
            place: what it is.
            nbytes: of the plan's temporaries.

        Raises:
            PeError: there is not that much memory (exit code 5).
        """
        live = self._live.setdefault(d, weakref.WeakSet())
        # The largest serves all smaller plans; weak references let it go with the last plan that has addresses in it.
        largest = max(live, key=lambda arena: arena.nbytes, default=None)
        if largest is not None and largest.nbytes >= nbytes:
            return largest
        made = device(place.kind).allocate(place.index, nbytes)
        live.add(made)
        return made
