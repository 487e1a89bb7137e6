"""A test device that libraries may be opened on: its stream is a number, and its clock counts what launches and calls are said to cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pe_cli.devices.cuda_driver import Handles
from pe_cli.kernels.cuda import Built
from tests.cuda.ptx.device import PtxDriver

STREAM = 0x2000
SMALL = ("turn_filters", "add_parts")


class Card(PtxDriver):
    """The test device, as the driver's library too, with events.

    Args:
        own: microseconds of each launch of a kernel of ours; a tenth for those of `SMALL`.
        libraries: whose calls cost what their `spent` says.
    """

    def __init__(self, own: float, libraries: list[Any]) -> None:
        super().__init__()
        self.own, self.libraries = own, libraries
        self.times: list[float] = []
        self.spent = 0.0

    def handles(self) -> Handles:
        """Return itself as the driver's library."""
        return Handles(self, STREAM, lambda: None, "a card of the tests")

    def launcher(self, built: Built, grid: Any, block: Any, args: Any) -> Callable[[], None]:
        """Return what launches a kernel, and counts what that costs."""
        launch, cost = super().launcher(built, grid, block, args), self.own / (10 if built.kernel.name.endswith(SMALL) else 1)

        def run() -> None:
            launch()
            self.spent += cost

        return run

    def _now(self) -> float:
        return self.spent + sum(each.spent for each in self.libraries)

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
