"""Calling one kernel on NumPy arrays, and memory laid out as buffers are."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.compiler.loader import addresses
from pe_cli.kernels.language import Kernel


def _word(value: Any, kind: str) -> int:
    if isinstance(value, np.ndarray):
        return int(value.ctypes.data)
    return int(np.float64(value).view(np.int64)) if kind == "Real" else int(value)


@pytest.fixture(scope="session")
def call() -> Callable[..., None]:
    """Return `call(kernel, dtype, *arguments)`: arrays become addresses."""

    def call(kernel: Kernel, dtype: str, *arguments: Any) -> None:
        instance = Instance(kernel, dtype)
        address = addresses([instance])[instance]
        words = [_word(a, kind) for a, kind in zip(arguments, kernel.params, strict=True)]
        record = np.array(words, np.int64)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(record.ctypes.data)

    return call


@pytest.fixture(scope="session")
def guarded() -> Callable[..., np.ndarray]:
    """Return `guarded(shape, dtype)`: an array that ends where a closed page begins, so that reading on is a crash."""
    import mmap

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    held = []

    def guarded(shape: tuple[int, ...], dtype: str) -> np.ndarray:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        pages = -(-size // mmap.PAGESIZE) + 1
        block = mmap.mmap(-1, pages * mmap.PAGESIZE)
        view = np.frombuffer(block, np.uint8)
        held.append((block, view))
        del held[:-100]  # a process may have so many mappings only
        last = (pages - 1) * mmap.PAGESIZE
        assert libc.mprotect(view.ctypes.data + last, mmap.PAGESIZE, 0) == 0
        return view[last - size : last].view(dtype).reshape(shape)

    return guarded
