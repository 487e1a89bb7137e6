"""Aligned memory: one allocation, views at byte offsets."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType

#: Every buffer starts on a cache line.
ALIGN = 64


def aligned(nbytes: int) -> int:
    """Round up to a whole number of cache lines."""
    return (nbytes + ALIGN - 1) // ALIGN * ALIGN


class Arena:
    """One zeroed allocation on the CPU, aligned to cache lines.

    Args:
        nbytes: its size.

    Raises:
        PeError: the machine has not that much memory (exit code 5).
    """

    def __init__(self, nbytes: int) -> None:
        try:
            self._raw = np.zeros(nbytes + ALIGN, np.uint8)
        except (MemoryError, ValueError):
            raise PeError(
                f"cannot allocate {nbytes / 2**20:,.0f} MiB",
                hint="use a smaller batch_size or fewer devices",
                code=ExitCode.DEVICE,
            ) from None
        self._skip = -self._raw.ctypes.data % ALIGN
        self.nbytes = nbytes
        self.address = self._raw.ctypes.data + self._skip

    def read(self, offset: int, kind: TensorType) -> np.ndarray[Any, Any]:
        """Return a copy of the value at an offset."""
        return self.view(offset, kind).copy()

    def write(self, offset: int, kind: TensorType, value: np.ndarray[Any, Any]) -> None:
        """Write a value of that shape at an offset."""
        np.copyto(self.view(offset, kind), value)

    def view(self, offset: int, kind: TensorType) -> np.ndarray[Any, Any]:
        """Return an array over the bytes at an offset."""
        start = self._skip + offset
        return self._raw[start : start + kind.nbytes].view(kind.numpy).reshape(kind.shape)
