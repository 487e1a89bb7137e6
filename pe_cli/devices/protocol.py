"""What a kind of device must offer: memory, and something that runs a plan's kernel calls over it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pe_cli.core.types import TensorType
from pe_cli.kernels.calls import Buffer, Call

Progress = Callable[[int, int, str], None]


class Memory(Protocol):
    """One allocation on a device."""

    nbytes: int

    def read(self, offset: int, kind: TensorType) -> np.ndarray[Any, Any]:
        """Return a copy of the value at a byte offset."""

    def write(self, offset: int, kind: TensorType, value: np.ndarray[Any, Any]) -> None:
        """Write a value of that shape at a byte offset."""


@dataclass(frozen=True)
class Spot:
    """Where a buffer lies.

    Args:
        memory: the allocation.
        offset: bytes.
        space: numbers allocations, for dependency analysis; -1 - n for the scope's.
    """

    memory: Any
    offset: int
    space: int


@dataclass(frozen=True)
class Work:
    """Kernel calls that run one after the other on a device.

    Args:
        home: index of the device.
        calls: in order.
        waits: earlier works that must be done before; empty when order is all that counts.
    """

    home: int
    calls: Sequence[Call]
    waits: frozenset[int]


class Step(Protocol):
    """A plan's calls, ready to run again and again."""

    def run(self, step: int) -> tuple[int, list[int]] | None:
        """Run once; return None, or the first work that reported an error with its report."""


class Device(Protocol):
    """A kind of device; `pe_cli.devices.<kind>` holds one as `DEVICE`."""

    def allocate(self, index: int, nbytes: int) -> Memory:
        """Return zeroed memory on the device of an index."""

    def compile(
        self, works: Sequence[Work], spot: Callable[[Buffer], Spot], threads: int, progress: Progress | None
    ) -> Step:
        """Return works ready to run.

        Args:
            works: in a valid order.
            spot: where each buffer lies.
            threads: native threads (CPU); 1 means in order.
            progress: told about kernels that must be compiled.
        """


def device(kind: str) -> Device:
    """Return a kind of device: cpu or cuda."""
    found: Device = importlib.import_module(f"pe_cli.devices.{kind}").DEVICE
    return found
