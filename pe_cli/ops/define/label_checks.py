"""Checks of labels and ids in kernels, which report one that is out of range; and labels for sample tests."""

from __future__ import annotations

import numpy as np

from pe_cli.kernels.language import helper
from pe_cli.kernels.status_codes import OUT_OF_RANGE


@helper
def report(status, row, value, limit):
    """Write an error report, its code last."""
    status[1] = row
    status[2] = value
    status[3] = limit
    status[0] = OUT_OF_RANGE


def per_sample(rows: int, shape: tuple[int, ...]) -> int:
    """Return how many rows make a sample of a batch; error reports count samples, as the executor does."""
    return max(1, rows // shape[0]) if shape and shape[0] else 1


def classes(low: int, high: int, *shape: int):
    """Return a maker of class numbers for samples."""
    return lambda rng: rng.integers(low, high, shape, dtype=np.int64)
