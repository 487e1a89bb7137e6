"""Averages of fetched numbers over steps, weighted by samples."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


class Averages:
    """Adds values with weights and gives their means.

    >>> a = Averages()
    >>> a.add("loss", 1.0, 3)
    >>> a.add("loss", 5.0, 1)
    >>> a.take(["loss"])
    {'loss': 2.0}
    >>> a.take(["loss"])
    {}
    """

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}

    def add(self, name: str, value: float, weight: float) -> None:
        """Add a value.

        Args:
            name: of the metric.
            value: any unit.
            weight: samples that it is the mean of.
        """
        total, weights = self._sums.get(name, (0.0, 0.0))
        # In float64 and as sums, so that a checkpoint can keep an average that is not complete yet.
        self._sums[name] = total + float(value) * weight, weights + weight

    def take(self, names: Iterable[str]) -> dict[str, float]:
        """Return the means of metrics and forget them; a metric without values is left out."""
        found = {}
        for name in list(names):
            if name in self._sums:
                total, weights = self._sums.pop(name)
                found[name] = total / weights if weights else float(np.nan)
        return found

    def to_json(self) -> dict[str, tuple[float, float]]:
        """Return the sums and their weights by metric; exact, as JSON numbers are."""
        return dict(self._sums)

    def restore(self, name: str, total: float, weight: float) -> None:
        """Set a metric's sum and weight, whatever was added before."""
        self._sums[name] = total, weight
