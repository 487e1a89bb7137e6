"""Merges the values that devices computed for their parts of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.kernels.math.tree_sum import fold

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
        # From the first device on: a fixed order, so that a sum has the same bits in every run.
        return np.asarray(sum(values))
    if len(values) == 1:
        return values[0]
    # Devices have unequal parts of a batch: the mean is over samples, not over devices.
    weights = np.asarray(sizes, np.float64) / max(1, sum(sizes))
    total = sum(w * v.astype(np.float64) for w, v in zip(weights, values, strict=True))
    return np.asarray(total).astype(values[0].dtype)


def mean_of_numbers(values: Sequence[Array], sizes: Sequence[int], places: tuple[int, Sequence[int]] | None = None) -> float:
    """Return the mean of single numbers, in few calls: NumPy has left the caches after a step.

    Args:
        values: one per device; of several numbers it is the mean of all.
        sizes: how much each counts.
        places: how many devices there are, and which of them the values are of: they are added in the order of the tree; None for those
            that are one after the other.
    """
    # A difference of a microsecond counts: this runs after every step for every metric.
    first = values[0]
    parts: list[float] = []
    samples = max(1, sum(sizes))
    for size, value in zip(sizes, values, strict=True):  # a loop: comprehensions are calls
        if value.size != 1 or first.dtype.kind != "f":
            return float(np.asarray(merge(values, sizes, "mean"), np.float64).mean())
        parts.append(size / samples * value.item())
    if len(values) == 1:
        return float(first.item())
    whole = len(parts) == 2 or places is None  # two are added in one way
    total = sum(parts) if whole or places is None else fold(places[0], dict(zip(places[1], parts, strict=True)))
    return float(first.dtype.type(total))
