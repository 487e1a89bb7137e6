"""A test device that libraries may be opened on: its stream is a number, and its clock counts what launches and calls are said to cost."""

from __future__ import annotations

from typing import Any

from pe_cli.devices.cuda_driver import Handles
from tests.cuda.ptx.device import PtxDriver

STREAM = 0x2000


class Card(PtxDriver):
    """The test device, as the driver's library too, with events.

    Args:
        own: microseconds of each launch of a kernel of ours.
        libraries: whose calls cost what their `spent` says.
    """

    def __init__(self, own: float, libraries: list[Any]) -> None:
        super().__init__()
        self.own, self.libraries = own, libraries
        self.times: list[float] = []
        self.bytes = 0

    def handles(self) -> Handles:
        """Return itself as the driver's library."""
        return Handles(self, STREAM, lambda: None, "a card of the tests")

    def _now(self) -> float:
        return self.launches * self.own + sum(each.spent for each in self.libraries)

    def cuEventCreate(self, event: Any, flags: Any) -> int:
        self.times.append(0.0)
        event._obj.value = len(self.times)
        return 0

    def cuEventRecord(self, event: Any, stream: Any) -> int:
        assert stream == STREAM
        self.times[event.value - 1] = self._now()
        return 0

    def cuEventSynchronize(self, event: Any) -> int:
        return 0

    def cuEventElapsedTime_v2(self, found: Any, begin: Any, end: Any) -> int:
        found._obj.value = (self.times[end.value - 1] - self.times[begin.value - 1]) / 1e3
        return 0


class Kept:
    """A cache that holds nothing yet."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}

    def read(self, key: str) -> bytes | None:
        return self.bodies.get(key)

    def store(self, key: str, body: bytes) -> None:
        self.bodies[key] = body
