"""What devices made of their parts of a batch, joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def merge(values: Sequence[Array], sizes: Sequence[int], how: str) -> Array | list[Array]:
    """Join one variable's per-device values.

    Args:
        values: one per device.
        sizes: samples of each.
        how: mean (weighted by samples), sum, concat (axis 0) or list.
    """
    if how == "list":
        return list(values)
    if how == "concat":
        return np.concatenate([np.atleast_1d(v) for v in values])
    if how == "sum":
        return np.asarray(sum(values))
    if len(values) == 1:
        return values[0]
    if values[0].dtype.kind == "f" and all(v.size == 1 for v in values):
        return _mean_number(values, sizes)
    weights = np.asarray(sizes, np.float64) / max(1, sum(sizes))
    total = sum(w * v.astype(np.float64) for w, v in zip(weights, values, strict=True))
    return np.asarray(total).astype(values[0].dtype)


def _mean_number(values: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Return the mean of single numbers as `merge` does, to the last bit, in few calls: NumPy has left the caches after a step."""
    samples, total = max(1, sum(sizes)), 0.0
    for size, value in zip(sizes, values, strict=True):
        total += size / samples * value.item()
    out = values[0].copy()
    out.fill(total)
    return out
