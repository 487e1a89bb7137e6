"""Metrics of predicted numbers: R2, and mean errors."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
from pydantic import Field

from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Name
from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.metrics.define import Array, Gathered, UndefinedError, metric

#: What MAPE divides by at least.
LEAST_DIVISOR = float(np.finfo(np.float64).eps)


class RegressionOptions(Section):
    """Options of metrics of numbers."""

    predictions: Name = Field(description="variable: [batch, ...] floats")
    labels: Name = Field(description="variable: the true numbers, as many per row as predictions")


def _matrix(values: Array) -> Array:
    """Return float64 [rows, numbers]."""
    return values.astype(np.float64).reshape(len(values), math.prod(values.shape[1:]))


class _Regression(Gathered[RegressionOptions]):
    inputs = ("predictions", "labels")
    options = RegressionOptions

    def check(self, options: RegressionOptions, types: Mapping[str, TensorType]) -> None:
        """Check that both have as many numbers per row.

        Raises:
            PeError: USAGE; options or types that do not fit.
        """
        one, two = types["predictions"], types["labels"]
        if not one.dtype.startswith("float"):
            raise PeError(f"predictions must be float32 or float64, got {one}")
        shapes = [[size for size in t.shape[1:] if size != 1] for t in (one, two)]
        if len(shapes[0]) != len(shapes[1]) or any(-1 not in (a, b) and a != b for a, b in zip(*shapes, strict=True)):
            raise PeError(f"predictions are {one}, and labels are {two}", hint="both have one shape, but for sizes of 1")

    def result(self, options: RegressionOptions, values: Mapping[str, Array]) -> float:
        """Return the metric over all numbers, in float64.

        Raises:
            UndefinedError: there is nothing to divide by.
        """
        guess, truth = (_matrix(values[key]) for key in self.inputs)
        if not truth.size:
            raise UndefinedError("there are no rows")
        # Numbers beyond float64's squares become infinite, which the result shows; warnings would end the evaluation.
        with np.errstate(over="ignore", invalid="ignore"):
            return self.of(guess, truth)

    @abstractmethod
    def of(self, guess: Array, truth: Array) -> float:
        """Return the metric of float64 [rows, numbers]."""


@metric
class MeanAbsoluteError(_Regression):
    """Mean of |prediction - label|, in the unit of the feed."""

    name = "mae"

    def of(self, guess: Array, truth: Array) -> float:
        """Return the mean over all numbers."""
        return float(np.abs(guess - truth).mean())


@metric
class RootMeanSquaredError(_Regression):
    """Square root of the mean of (prediction - label)^2, in the unit of the feed."""

    name = "rmse"

    def of(self, guess: Array, truth: Array) -> float:
        """Return the root of the mean over all numbers."""
        return math.sqrt(float(np.square(guess - truth).mean()))


@metric
class MeanAbsolutePercentageError(_Regression):
    """Mean of |prediction - label| / |label|, as a share and not in percent; labels of 0 count as 2.2e-16, so keep them out."""

    name = "mape"

    def of(self, guess: Array, truth: Array) -> float:
        """Return the mean over all numbers."""
        return float((np.abs(guess - truth) / np.maximum(np.abs(truth), LEAST_DIVISOR)).mean())


@metric
class R2(_Regression):
    """1 - squared errors / squared distances of the labels from their mean; of several numbers per row the mean of each one's."""

    name = "r2"

    def of(self, guess: Array, truth: Array) -> float:
        """Return the mean over the numbers of a row.

        Raises:
            UndefinedError: there is nothing to divide by.
        """
        spread = np.square(truth - truth.mean(axis=0)).sum(axis=0)
        if not spread.all():
            raise UndefinedError("all labels are the same")
        return float((1 - np.square(guess - truth).sum(axis=0) / spread).mean())
