"""Sampling: training samples that are drawn by weight, with replacement, instead of each once per epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.counter_random import stream_key, uniform

Weights = NDArray[np.float64]


def balanced_weights(labels: NDArray[np.int64]) -> Weights:
    """Return weights with which every class that occurs is drawn as often as any other.

    Args:
        labels: int64 [samples], class indices.

    Returns:
        float64 [samples], 1 / (samples of the class).
    """
    _, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    weights: Weights = 1.0 / counts[places.reshape(-1)]
    return weights


def check_weights(values: NDArray[np.float64], name: str) -> Weights:
    """Return a column of weights.

    Args:
        values: float64 [samples]; NaN where the cell is missing.
        name: of the column.

    Raises:
        PeError: DATA; a weight is missing, infinite or below 0, or all of them are 0.
    """
    bad = np.flatnonzero(~((values >= 0) & np.isfinite(values)))
    if len(bad):
        said = "missing" if np.isnan(values[bad[0]]) else f"{values[bad[0]]:g}"
        more = f", and {len(bad) - 1:,} more are no weights" if len(bad) > 1 else ""
        raise PeError(
            f"data.sampling: weight {int(bad[0]) + 1} of the training samples is {said}{more}: column '{name}'",
            hint="weights are numbers, at least 0",
            code=ExitCode.DATA,
        )
    if not values.any():
        raise PeError(
            f"data.sampling: all weights of column '{name}' are 0", hint="give some sample a weight above 0", code=ExitCode.DATA
        )
    return np.ascontiguousarray(values, np.float64)


class Sampler:
    """Draws the samples of every epoch.

    Args:
        weights: float64 [samples], at least 0 and not all 0; a sample is drawn in proportion to its weight.
        seed: another one draws other samples.
    """

    def __init__(self, weights: Weights, seed: int) -> None:
        assert len(weights)
        assert (weights >= 0).all()
        self._seed = seed
        self._ends = np.cumsum(weights)
        assert self._ends[-1] > 0

    def draw(self, epoch: int) -> NDArray[np.int64]:
        """Return as many samples as there are, int64 [samples]; a function of the seed, the weights and the epoch only."""
        count = len(self._ends)
        places = uniform(stream_key("sampling", self._seed, epoch), np.arange(count, dtype=np.int64)) * self._ends[-1]
        # a product may be rounded up to the end; samples without weight have an empty interval, which side="right" leaves out
        found: NDArray[np.int64] = np.searchsorted(self._ends, places, side="right")
        last = int(np.searchsorted(self._ends, self._ends[-1], side="left"))
        return np.minimum(found, last, dtype=np.int64)


def repetitions(order: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for every sample of an order how often it stands before, int64."""
    samples = np.asarray(order, np.int64)
    places = np.argsort(samples, kind="stable")
    ranked = samples[places]
    starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1])) if len(samples) else np.zeros(0, np.int64)
    lengths = np.diff(np.append(starts, len(samples)))
    found = np.empty(len(samples), np.int64)
    found[places] = np.arange(len(samples)) - np.repeat(starts, lengths)
    return found
