"""Memory of a CUDA device."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.devices.cuda_driver_protocol import Driver


class CudaMemory:
    """One zeroed allocation on a device.

    Args:
        driver: of the device.
        nbytes: its size.

    Raises:
        PeError: the device has not that much memory (exit code 5).
    """

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self.nbytes = nbytes
        self.driver = driver
        self.address = driver.allocate(max(1, nbytes))
        # Not __del__: at the end of the process the driver may be gone first.
        weakref.finalize(self, _free, driver, self.address)
        driver.zero(self.address, max(1, nbytes))

    def read(self, offset: int, kind: TensorType) -> np.ndarray[Any, Any]:
        """Return a copy of the value at a byte offset."""
        found = np.zeros(kind.shape, kind.numpy)
        if kind.size:
            self.driver.read(self.address + offset, found)
        return found

    def write(self, offset: int, kind: TensorType, value: np.ndarray[Any, Any]) -> None:
        """Write a value of that shape at a byte offset."""
        if kind.size:
            self.driver.write(self.address + offset, np.ascontiguousarray(np.broadcast_to(value, kind.shape), kind.numpy))


def _free(driver: Driver, address: int) -> None:
    with contextlib.suppress(PeError):  # a device that has failed gives nothing back
        driver.free(address)
