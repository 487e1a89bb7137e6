"""Memory that ends where a page begins that nobody may touch: `python -m pytest -p tests.guarded ...`.

Arenas, and the arrays of the native tape and of the pool of threads, lie so that one byte behind them ends the process with a signal, and
so does one byte before them where they fill their pages. A sanitizer would say more, but instruments what a compiler of C makes, and the
tape is made by numba.
"""

from __future__ import annotations

import ctypes
import mmap
from types import ModuleType
from typing import Any

import numpy as np

from pe_cli.devices import aligned_memory, tape, thread_pool, timestamps

PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)


def room(nbytes: int) -> np.ndarray[Any, Any]:
    """Return zeroed bytes that end where a page begins that may not be touched; one such page lies before them, too."""
    pages = max(1, (nbytes + PAGE - 1) // PAGE)
    held = mmap.mmap(-1, (pages + 2) * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    raw = np.frombuffer(held, np.uint8)
    for begin in (raw.ctypes.data, raw.ctypes.data + (pages + 1) * PAGE):
        if _LIBC.mprotect(ctypes.c_void_p(begin), ctypes.c_size_t(PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    end = (pages + 1) * PAGE
    return raw[end - nbytes : end]


class _Guarded(ModuleType):
    """NumPy with a `zeros` whose memory is guarded."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def zeros(shape: Any, dtype: Any = float) -> np.ndarray[Any, Any]:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        kind = np.dtype(dtype)
        return room(int(np.prod(shape)) * kind.itemsize).view(kind).reshape(shape)


def _zeroed(nbytes: int) -> np.ndarray[Any, Any]:
    return room(aligned_memory.aligned(nbytes))


aligned_memory._zeroed = _zeroed
for module in (tape, thread_pool, timestamps):
    module.np = _Guarded("numpy")  # type: ignore[attr-defined]
