"""A CUDA driver for dry runs: it records launches instead of making them, to plan steps where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.devices.cuda import CudaStep
from pe_cli.devices.cuda_driver_protocol import Extent, OneDevice
from pe_cli.devices.protocol import Spot, Work
from pe_cli.kernels.calls import Buffer
from pe_cli.kernels.cuda.compiler import USUAL, Capability
from pe_cli.kernels.cuda.language import Built

Array = np.ndarray[Any, Any]
#: Address of the first allocation; those of a step lie below.
FIRST = 1 << 44
#: Bytes that an allocation is a multiple of.
ALIGNMENT = 256


@dataclass(frozen=True)
class _Line:
    """The memory of a step, from an address on."""

    address: int = ALIGNMENT


class NoMark:
    """A place among launches that are done when they return; see `cuda_driver.Mark`."""

    def note(self) -> None:
        """Do nothing."""

    def wait(self) -> None:
        """Do nothing."""


class DryRunDriver(OneDevice):
    """A driver, as `cuda_driver.Driver` has it, without memory.

    Attributes:
        launched: kernels that steps have, a launch each.
    """

    def __init__(self, capability: Capability = USUAL[0]) -> None:
        self.capability = capability
        self.launched: list[Built] = []
        self._next = FIRST

    def allocate(self, nbytes: int) -> int:
        """Return an address that no other memory has."""
        address = self._next
        self._next += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return address

    def free(self, address: int) -> None:
        """Do nothing."""

    def zero(self, address: int, nbytes: int) -> None:
        """Do nothing."""

    def write(self, address: int, value: Array) -> None:
        """Do nothing."""

    def read(self, address: int, value: Array) -> None:
        """Do nothing."""

    def send(self, address: int, value: Array) -> None:
        """Do nothing."""

    def fetch(self, address: int, value: Array) -> None:
        """Do nothing."""

    def pinned(self, words: int) -> Array:
        """Return memory of the host."""
        return np.zeros(words, np.int64)

    def ahead(self, address: int, room: int, value: Array) -> None:
        """Do nothing."""

    def ask(self, entry: Any, record: Array) -> None:
        """Do nothing."""

    def mark(self) -> NoMark:
        """Return what notes nothing."""
        return NoMark()

    def captured(self, launches: Sequence[Callable[[], None]], waits: Sequence[Collection[int]]) -> Callable[[], None]:
        """Return what does nothing."""
        return lambda: None

    def handles(self) -> None:
        """Return None: no library has a device."""

    def has(self, built: Built) -> bool:
        """Return True: nothing has to be compiled."""
        return True

    def launcher(
        self, built: Built, grid: Sequence[int], block: Sequence[int], args: Sequence[Extent | int | float]
    ) -> Callable[[], None]:
        """Note a launch."""
        self.launched.append(built)
        return lambda: None

    def is_done(self) -> bool:
        """Return True: there is nothing to do."""
        return True

    def wait(self) -> None:
        """Do nothing."""


def launches_of(works: Sequence[Work], places: Mapping[Buffer, Spot]) -> list[Built]:
    """Return the kernels that a step launches, in order.

    Args:
        works: of the first device, in order.
        places: buffer -> where it lies.
    """
    driver = DryRunDriver()
    CudaStep(driver, works, lambda b: replace(places[b], memory=_Line()), None)
    return driver.launched
