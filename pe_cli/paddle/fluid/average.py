"""average: a mean of values that are added one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidValueError


class WeightedAverage:
    """A weighted mean of numbers, or of arrays of one shape."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.numerator: Any = 0.0
        self.denominator = 0.0

    def add(self, value: Any, weight: Any) -> None:
        """Add a value with its weight, a number.

        Raises:
            FluidValueError: the weight is no number; a ValueError.
        """
        if np.size(weight) != 1:
            raise FluidValueError(f"the weight must be a number, got {weight!r:.60}")
        share = float(np.ravel(weight)[0])
        self.numerator = self.numerator + np.asarray(value) * share
        self.denominator += share

    def eval(self) -> Any:
        """Return the mean.

        Raises:
            FluidValueError: nothing was added, or weights of 0 only; a ValueError.
        """
        if self.denominator == 0:
            raise FluidValueError("there is no data in WeightedAverage", hint="call add first")
        return self.numerator / self.denominator


__all__ = ["WeightedAverage"]
