"""Aligned memory: one allocation, views at byte offsets."""

from __future__ import annotations

import contextlib
import mmap
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType

#: Every buffer starts on a cache line.
ALIGN = 64
#: Bytes of a huge page, where the system has them: kernels then wait less for the addresses of what they read, which is worth 3 to 6% of
#: a matrix product on a virtual machine.
HUGE = 2 << 20


def aligned(nbytes: int, line: int = ALIGN) -> int:
    """Round up to a whole number of cache lines, or of lines of so many bytes."""
    return -(-nbytes // line) * line


def _zeroed(nbytes: int) -> np.ndarray[Any, Any]:
    """Return that many zeroed bytes and some more; if half of one or more, in huge pages where the system gives some to those who ask."""
    if nbytes < HUGE // 2 or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(nbytes + ALIGN, np.uint8)
    held = mmap.mmap(-1, (nbytes + HUGE - 1) // HUGE * HUGE + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # the system has none
        held.madvise(mmap.MADV_HUGEPAGE)
    raw = np.frombuffer(held, np.uint8)
    # A huge page begins at a multiple of its size: what lies before the first one stays unused.
    return raw[-raw.ctypes.data % HUGE :]


class Arena:
    """One zeroed allocation on the CPU, aligned to cache lines.

    Args:
        nbytes: its size.

    Raises:
        PeError: the machine has not that much memory (exit code 5).
    """

    def __init__(self, nbytes: int) -> None:
        try:
            self._raw = _zeroed(nbytes)
        except (MemoryError, ValueError, OSError, OverflowError):
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
