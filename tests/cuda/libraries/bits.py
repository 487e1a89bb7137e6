"""Arrays of a library's element types: bfloat16 as NumPy's uint16, made and read by PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.needs import torch

Array = np.ndarray[Any, Any]
#: What holds bfloat16.
HALF = np.dtype(np.uint16)


def numbers(held: Array) -> Array:
    """Return the numbers in an array, as float64."""
    if held.dtype == HALF:
        return torch.from_numpy(held.view(np.int16).copy()).view(torch.bfloat16).double().numpy()
    return held.astype(float)


def put(held: Array, values: Array) -> None:
    """Write numbers to an array; sums of bfloat16 are float32 before they are rounded."""
    if held.dtype == HALF:
        values = torch.from_numpy(values.astype(np.float32)).to(torch.bfloat16).view(torch.int16).numpy().view(HALF)
    held[...] = values
