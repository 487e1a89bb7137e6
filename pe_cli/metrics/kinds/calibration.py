"""Calibration: whether a model is right as often as its probabilities say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import Field

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.metrics.classes import ClassOptions, check_classes, check_range, rows_of
from pe_cli.metrics.define import Array, Gathered, UndefinedError, metric

#: How far a sum of float32 probabilities may be from 0 and 1.
ROUNDING = 1e-4


class CalibrationOptions(ClassOptions):
    """Options of `calibration_error`."""

    bins: Annotated[int, Field(strict=True, ge=1, le=10_000)] = Field(
        default=15, description="intervals of equal width that probabilities are sorted into"
    )


@metric
class CalibrationError(Gathered[CalibrationOptions]):
    """Expected calibration error: the mean over rows of |share that is right - mean probability| of the taken class in their interval."""

    name = "calibration_error"
    inputs = ("scores", "labels")
    options = CalibrationOptions

    def check(self, options: CalibrationOptions, types: Mapping[str, TensorType]) -> None:
        """Check that there is one class per row.

        Raises:
            PeError: USAGE; options or types that do not fit.
        """
        if check_classes(types).several:
            raise PeError(f"labels are {types['labels']}, and this metric is of one class per row", hint="label with class numbers")

    def result(self, options: CalibrationOptions, values: Mapping[str, Array]) -> float:
        """Return sum_b |right(b) - confidence(b)| / rows over the intervals ((b - 1) / bins, b / bins]; Guo et al. 2017, eq. 3.

        Raises:
            UndefinedError: there is nothing to divide by.
            PeError: DATA; values that are no probabilities.
        """
        scores, labels, found = rows_of(values["scores"], values["labels"])
        check_range(labels, found.classes)
        if not len(labels):
            raise UndefinedError("there are no rows")
        low, high = float(scores.min()), float(scores.max())
        if low < -ROUNDING or high > 1 + ROUNDING:
            raise PeError(
                f"scores are from {low:.6g} to {high:.6g}, and this metric is of probabilities",
                hint="name what a softmax or a sigmoid makes of them",
                code=ExitCode.DATA,
            )
        if scores.shape[1] == 1:
            taken = (scores[:, 0] >= 0.5).astype(np.int64)
            confidence = np.where(taken == 1, scores[:, 0], 1 - scores[:, 0]).astype(np.float64)
        else:
            taken, confidence = scores.argmax(axis=1), scores.max(axis=1).astype(np.float64)
        # Intervals include their upper end, so ceil; a confidence of 0 belongs to the first.
        which = np.clip(np.ceil(confidence * options.bins).astype(np.int64) - 1, 0, options.bins - 1)
        gaps = np.bincount(which, (taken == labels) - confidence, options.bins)
        return float(np.abs(gaps).sum() / len(labels))
