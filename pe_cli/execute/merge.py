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
    weights = np.asarray(sizes, np.float64) / max(1, sum(sizes))
    total = sum(w * v.astype(np.float64) for w, v in zip(weights, values, strict=True))
    return np.asarray(total).astype(values[0].dtype)


def mean_of_numbers(values: Sequence[Array], sizes: Sequence[int]) -> float:
    """Return what `merge` gives for the mean of single numbers, to the last bit, in few calls: NumPy has left the caches after a step.

    Args:
        values: one per device; of several numbers it is the mean of all.
        sizes: how much each counts.
    """
    first = values[0]
    if first.dtype.kind != "f":
        return float(np.asarray(merge(values, sizes, "mean"), np.float64).mean())
    samples, total = max(1, sum(sizes)), 0.0
    for size, value in zip(sizes, values, strict=True):
        if value.size != 1:
            return float(np.asarray(merge(values, sizes, "mean"), np.float64).mean())
        total += size / samples * value.item()
    return float(first.dtype.type(total)) if len(values) > 1 else float(first.item())
