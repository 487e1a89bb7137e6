"""Calibration: functions that make probabilities as large as what comes true, fitted on rows that were not trained on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass

Array = NDArray[Any]
#: Bounds of a temperature: a model whose best one lies outside tells nothing, or all.
COLDEST, HOTTEST = 0.02, 50.0
#: The smallest probability whose logarithm is taken.
TINY = 1e-45


def probabilities(scores: Array, *, logits: bool, several: bool) -> Array:
    """Return what scores say, float64 [rows, classes]: of one number per row, which is of the second of two classes, both.

    Args:
        scores: [rows, width].
        logits: whether softmax or a sigmoid makes probabilities of them.
        several: whether a row may be of several classes: each has a probability of its own.
    """
    found: Array = scores.astype(np.float64)
    if several or scores.shape[1] == 1:
        if logits:
            # By logaddexp: 1 / (1 + e^-x) written out overflows for large negative logits.
            found = np.exp(-np.logaddexp(0.0, -found))
        return found if several else np.concatenate([1 - found, found], axis=1)
    if logits:
        # The largest logit is taken out, so that exp does not overflow.
        found = np.exp(found - found.max(axis=1, keepdims=True))
        found /= found.sum(axis=1, keepdims=True)
    return found


def as_logits(scores: Array, *, logits: bool, several: bool) -> Array:
    """Return scores as logits, float64 of the same shape; the arguments are those of `probabilities`."""
    found: Array = scores.astype(np.float64)
    if logits:
        return found
    if several or scores.shape[1] == 1:
        # Probabilities of exactly 0 and 1 have no finite logit; TINY keeps them far outside instead.
        return np.asarray(np.log(np.maximum(found, TINY)) - np.log(np.maximum(1 - found, TINY)))
    return np.asarray(np.log(np.maximum(found, TINY)))


def temperature(logits: Array, labels: Array, *, several: bool) -> float:
    """Return the number that logits are divided by for the least cross entropy.

    The cross entropy is convex in 1 / temperature, so that its slope has one zero, which is bracketed and halved.

    Args:
        logits: float64 [rows, width]; of width 1, those of the second of two classes.
        labels: int64 [rows] class numbers; or 0 and 1 [rows, width] where a row may be of several classes.
        several: whether it may.

    Source:
        Guo et al. 2017, On Calibration of Modern Neural Networks, section 4.2.
    """
    given = labels if several else labels.reshape(-1)

    def slope(factor: float) -> float:
        """Return the derivative of the sum of cross entropies by the factor."""
        made = probabilities(logits * factor, logits=True, several=several or logits.shape[1] == 1)
        if several or logits.shape[1] == 1:
            return float((logits * (made - given.reshape(made.shape))).sum())
        return float(((made * logits).sum(axis=1) - logits[np.arange(len(given)), given]).sum())

    # Factors are one over temperatures, and the slope never falls with the factor: its zero is found by bisection.
    low, high = 1 / HOTTEST, 1 / COLDEST
    if slope(low) >= 0:
        return HOTTEST
    if slope(high) <= 0:
        return COLDEST
    # Bisection of the logarithm: temperatures below and above 1 are met with the same relative precision.
    while high / low > 1 + 1e-12:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return 1 / math.sqrt(low * high)


@dataclass(frozen=True)
class Steps:
    """A function that never falls: straight lines between points, and constant outside.

    Args:
        at: float64 [points], rising.
        to: float64 [points], from 0 to 1, never falling.
    """

    at: tuple[float, ...]
    to: tuple[float, ...]

    def __call__(self, values: Array) -> Array:
        """Return the function of values of any shape."""
        return np.interp(values, self.at, self.to)


def isotonic(scores: Array, hit: Array) -> Steps:
    """Return the function of scores that never falls and is nearest to what came true, in squares.

    Neighbours in order of their scores that fall are pooled until none does; equal scores are pooled first. Only the ends of pools are
    kept.

    Args:
        scores: float64 [rows].
        hit: bool [rows].

    Source:
        Ayer et al. 1955, An Empirical Distribution Function for Sampling with Incomplete Information (pool adjacent violators).
    """
    at, where = np.unique(scores, return_inverse=True)
    rows = np.bincount(where).astype(np.float64)
    means = np.bincount(where, weights=hit.astype(np.float64)) / rows
    pools: list[tuple[float, float, int]] = []  # mean, rows, number of the first score behind it
    for i in range(len(at)):
        mean, weight = float(means[i]), float(rows[i])
        # Pool adjacent violators: a mean that is not above its neighbour's joins it, back as far as needed.
        while pools and pools[-1][0] >= mean:
            before, many, _ = pools.pop()
            mean, weight = (before * many + mean * weight) / (many + weight), many + weight
        pools.append((mean, weight, i + 1))
    points: list[tuple[float, float]] = []
    begin = 0
    for mean, _, end in pools:
        # A pool of several scores is flat: its first and its last score say the same.
        points += [(float(at[i]), min(1.0, max(0.0, mean))) for i in sorted({begin, end - 1})]
        begin = end
    return Steps(tuple(x for x, _ in points), tuple(y for _, y in points))
