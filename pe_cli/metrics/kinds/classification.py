"""Metrics of predicted classes: accuracy, precision, recall, F1, MCC and mean IoU."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.metrics.classes import ClassNumber, DecisionOptions, check_class, check_decisions, decide
from pe_cli.metrics.define import Array, Counted, Counts, UndefinedError, metric


class AveragedOptions(DecisionOptions):
    """Options of metrics that every class has."""

    average: Literal["binary", "micro", "macro", "weighted"] = Field(
        default="macro",
        description="binary: of class 1 of two; micro: of all decisions together; macro: mean over the classes that occur in labels or "
        "decisions, or over all where a row may be of several; weighted: the same, weighted by the rows of each class",
    )
    class_: ClassNumber | None = Field(
        default=None, alias="class", description="number of the one class that it is about, from 0, instead of an average"
    )


def _counted(labels: Counts, taken: Counts, classes: int) -> Counts:
    """Return right decisions, decisions and labels of every class, int64 [3, classes]."""
    kept = (labels[labels == taken], taken, labels)
    return np.stack([np.bincount(which, minlength=classes) for which in kept]).astype(np.int64)


class _PerClass(Counted[AveragedOptions]):
    """A metric of three counts for each class: right decisions, decisions, and labels."""

    inputs = ("scores", "labels")
    options = AveragedOptions

    def check(self, options: AveragedOptions, types: Mapping[str, TensorType]) -> None:
        """Check what is common; and that `binary` has two classes.

        Raises:
            PeError: USAGE; options or types that do not fit.
        """
        found = check_decisions(options, types, several=True)
        check_class(options, options.class_, found)
        if options.average == "binary" and (found.several or found.classes != 2):
            raise PeError(
                f"average: binary is of two classes, and scores are {types['scores']}",
                at=options.at_of("average"),
                hint="use average: macro",
            )

    def count(self, options: AveragedOptions, values: Mapping[str, Array]) -> Counts:
        """Return right decisions, decisions, labels, and 1 for classes that count even if they never come, int64 [4, classes]."""
        labels, taken, found = decide(options, values)
        if found.several:
            # Of tags every class counts even if it never comes, as scikit-learn has it for multi-label rows.
            return np.stack([(labels * taken).sum(axis=0), taken.sum(axis=0), labels.sum(axis=0), np.ones(found.classes, np.int64)])
        return np.concatenate([_counted(labels, taken, found.classes), np.zeros((1, found.classes), np.int64)])

    def result(self, options: AveragedOptions, counts: Counts) -> float:
        """Return the metric; 0 where there is nothing to divide by."""
        right, taken, there, _ = counts
        if options.class_ is not None:
            return self.of(int(right[options.class_]), int(taken[options.class_]), int(there[options.class_]))
        if options.average == "binary":
            return self.of(int(right[1]), int(taken[1]), int(there[1]))
        if options.average == "micro":
            return self.of(int(right.sum()), int(taken.sum()), int(there.sum()))
        # Of one class per row, a class that never comes would lower the mean by a 0 that says nothing.
        each = [(self.of(r, p, t), t) for r, p, t, always in zip(*counts.tolist(), strict=True) if p or t or always]
        if options.average == "weighted":
            rows = int(there.sum())
            return math.fsum(value * n for value, n in each) / rows if rows else 0.0
        return math.fsum(value for value, _ in each) / len(each) if each else 0.0

    @abstractmethod
    def of(self, right: int, taken: int, there: int) -> float:
        """Return the metric of one class.

        Args:
            right: decisions for it that are right.
            taken: decisions for it.
            there: labels of it.
        """


@metric
class Precision(_PerClass):
    """Share of the decisions for a class that are right; 0 without such decisions."""

    name = "precision"

    def of(self, right: int, taken: int, there: int) -> float:
        """Return right / taken."""
        return right / taken if taken else 0.0


@metric
class Recall(_PerClass):
    """Share of a class's rows that are taken for it; 0 without such rows."""

    name = "recall"

    def of(self, right: int, taken: int, there: int) -> float:
        """Return right / there."""
        return right / there if there else 0.0


@metric
class F1(_PerClass):
    """Harmonic mean of precision and recall."""

    name = "f1"

    def of(self, right: int, taken: int, there: int) -> float:
        """Return 2 right / (taken + there)."""
        return 2 * right / (taken + there) if taken + there else 0.0


class _OneClass(Counted[DecisionOptions]):
    """A metric of the same three counts, over all classes at once."""

    inputs = ("scores", "labels")
    options = DecisionOptions

    def check(self, options: DecisionOptions, types: Mapping[str, TensorType]) -> None:
        """Check that every row is of one class."""
        check_decisions(options, types)

    def count(self, options: DecisionOptions, values: Mapping[str, Array]) -> Counts:
        """Return right decisions, decisions and labels, int64 [3, classes]."""
        labels, taken, found = decide(options, values)
        return _counted(labels, taken, found.classes)


@metric
class MeanIou(_OneClass):
    """Mean over the classes that occur of intersection / union of the positions that are labelled and taken as the class."""

    name = "mean_iou"

    def result(self, options: DecisionOptions, counts: Counts) -> float:
        """Return the mean of right / (taken + there - right).

        Raises:
            UndefinedError: there is nothing to divide by.
        """
        each = [right / (taken + there - right) for right, taken, there in zip(*counts.tolist(), strict=True) if taken or there]
        if not each:
            raise UndefinedError("no row counts")
        return math.fsum(each) / len(each)


@metric
class Accuracy(_OneClass):
    """Share of rows whose class is the one that is taken."""

    name = "accuracy"

    def result(self, options: DecisionOptions, counts: Counts) -> float:
        """Return right / rows.

        Raises:
            UndefinedError: there is nothing to divide by.
        """
        right, _, there = counts.sum(axis=1).tolist()
        if not there:
            raise UndefinedError("no row counts")
        return float(right / there)


@metric
class Mcc(_OneClass):
    """Matthews's correlation of labels and decisions, of any number of classes: -1 to 1; 0 where either is always the same."""

    name = "mcc"

    def result(self, options: DecisionOptions, counts: Counts) -> float:
        """Return (c s - sum t p) / sqrt((s^2 - sum p^2) (s^2 - sum t^2)); Gorodkin 2004."""
        right, taken, there = counts.tolist()  # Python's integers do not overflow
        rows = sum(there)
        spread: list[int] = [rows * rows - sum(n * n for n in numbers) for numbers in (taken, there)]
        if not spread[0] or not spread[1]:
            return 0.0
        covariance: int = sum(right) * rows - sum(p * t for p, t in zip(taken, there, strict=True))
        return covariance / math.sqrt(spread[0] * spread[1])
