"""Tensors of cuDNN's graphs, as views of memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tests.cuda.libraries.bits import HALF

Array = np.ndarray[Any, Any]
#: cudnnDataType_t.
KINDS = {0: np.dtype(np.float32), 1: np.dtype(np.float64), 9: HALF}


def tensor(descriptor: dict[Any, Any], places: dict[int, int]) -> Array:
    """Return what a tensor's memory holds, by its sizes and steps."""
    kind, sizes, steps = KINDS[descriptor[901][0]], descriptor[902], descriptor[903]
    address = places[descriptor[906][0]]
    assert address % descriptor[900][0] == 0
    size = sum((n - 1) * s for n, s in zip(sizes, steps, strict=True)) + 1
    flat = np.ctypeslib.as_array((ctypes.c_uint8 * (size * kind.itemsize)).from_address(address)).view(kind)
    return np.lib.stride_tricks.as_strided(flat, sizes, [s * kind.itemsize for s in steps])
