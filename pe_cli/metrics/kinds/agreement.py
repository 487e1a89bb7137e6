"""Metrics of how far decisions agree with labels beyond chance: Cohen's kappa, also of classes that have an order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.metrics.classes import DecisionOptions, check_decisions, decide
from pe_cli.metrics.define import Array, Counted, Counts, UndefinedError, metric

#: Classes at most: every pair of them is counted.
MOST_CLASSES = 1_000


class KappaOptions(DecisionOptions):
    """Options of kappa."""

    weights: Literal["none", "linear", "quadratic"] = Field(
        default="none",
        description="what a wrong class counts: none, each alike; linear, by how many classes lie between, of classes that have an order; "
        "quadratic, by the square of it",
    )


@metric
class Kappa(Counted[KappaOptions]):
    """Cohen's kappa: 1 where all decisions are right, 0 where they are as good as chance, negative where they are worse."""

    name = "kappa"
    options = KappaOptions
    inputs = ("scores", "labels")

    def check(self, options: KappaOptions, types: Mapping[str, TensorType]) -> None:
        """Check that every row is of one class, of not too many.

        Raises:
            PeError: USAGE; options or types that do not fit.
        """
        found = check_decisions(options, types)
        if found.classes > MOST_CLASSES:
            text = f"kappa counts every pair of classes, and scores are {types['scores']}: more than {MOST_CLASSES:,} classes"
            raise PeError(text, hint="use accuracy, or mcc")

    def count(self, options: KappaOptions, values: Mapping[str, Array]) -> Counts:
        """Return how many rows have each label and each decision, int64 [classes, classes]."""
        labels, taken, found = decide(options, values)
        # One bincount over pairs of numbers: much faster than adding at indices.
        pairs = np.bincount(labels * found.classes + taken, minlength=found.classes**2)
        return pairs.astype(np.int64).reshape(found.classes, found.classes)

    def result(self, options: KappaOptions, counts: Counts) -> float:
        """Return 1 - sum w n / sum w e, with e what chance would count; Cohen 1968.

        Raises:
            UndefinedError: there are no rows, or labels and decisions are all of one class.
        """
        rows = int(counts.sum())
        if not rows:
            raise UndefinedError("no row counts")
        apart = np.abs(np.arange(len(counts))[:, None] - np.arange(len(counts)))
        weights = {"none": (apart > 0), "linear": apart, "quadratic": apart**2}[options.weights].astype(np.float64)
        chance = float((weights * np.outer(counts.sum(axis=1) / rows, counts.sum(axis=0))).sum())
        # Chance agrees always where only one class occurs: the ratio is 0 / 0.
        if not chance:
            raise UndefinedError("labels and decisions are all of one class")
        return 1 - float((weights * counts).sum()) / chance
