"""Curves of a classifier over all rows of an evaluation: exact, and the same however the rows were divided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: Intervals of equal width that probabilities are sorted into.
BINS = 10


@dataclass
class Scores:
    """Probabilities and labels of the rows that were seen so far, by anyone.

    Rows come from batches, devices or processes in any order: `merge` puts two together, and no curve depends on the order.

    Attributes:
        probabilities: of each batch, float64 [rows, classes]; [rows, 1] of the second of two classes.
        labels: of each batch, int64 [rows].
    """

    probabilities: list[Array] = field(default_factory=list)
    labels: list[Array] = field(default_factory=list)

    def add(self, probabilities: Array, labels: Array) -> None:
        """Add the rows of a batch."""
        self.probabilities.append(np.asarray(probabilities, np.float64))
        self.labels.append(np.asarray(labels, np.int64).reshape(-1))

    def merge(self, other: Scores) -> None:
        """Add the rows that another one has seen."""
        self.probabilities += other.probabilities
        self.labels += other.labels

    def whole(self) -> tuple[Array, Array]:
        """Return the probabilities [rows, classes] and labels [rows] of all rows; of two classes by one number, of both."""
        scores, labels = np.concatenate(self.probabilities), np.concatenate(self.labels)
        return (np.hstack([1 - scores, scores]) if scores.shape[1] == 1 else scores), labels


@dataclass(frozen=True)
class Roc:
    """The receiver operating characteristic of one class against all others.

    Args:
        name: of the class.
        false, true: shares of the other rows, and of the class's, whose score is at least each score that occurs; float64 [points],
            from 0 to 1.
    """

    name: str
    false: Array
    true: Array

    @property
    def area(self) -> float:
        """Area under the curve."""
        return float(np.trapezoid(self.true, self.false))


@dataclass(frozen=True)
class Calibration:
    """How often predictions of a probability are right.

    Args:
        said: mean probability in each interval that has rows, float64 [intervals].
        right: share of them that is right.
        rows: how many there are, int64.
    """

    said: Array
    right: Array
    rows: Array


@dataclass(frozen=True)
class Judged:
    """What a classifier does over a split.

    Args:
        split: of the data.
        names: of the classes.
        confusion: int64 [classes, classes] rows; true classes down, taken ones across.
        rocs: one of each class that has rows and is not alone; of two classes the second one's.
        calibration: of the second of two classes, else of the class that is taken.
        taken: whether it is of the class that is taken.
    """

    split: str
    names: tuple[str, ...]
    confusion: Array
    rocs: tuple[Roc, ...]
    calibration: Calibration
    taken: bool


def roc(name: str, scores: Array, positive: Array) -> Roc:
    """Return the curve of scores [rows] by which rows may be of a class, and whether they are."""
    order = np.argsort(-scores, kind="stable")
    scores, positive = scores[order], positive[order].astype(bool)
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
    hits = np.cumsum(positive, dtype=np.int64)[ends]
    misses = ends + 1 - hits
    return Roc(name, np.concatenate([[0.0], misses / misses[-1]]), np.concatenate([[0.0], hits / hits[-1]]))


def calibration(probabilities: Array, right: Array, bins: int = BINS) -> Calibration:
    """Return how probabilities [rows] compare with what came true, in intervals of equal width that include their lower end."""
    index = np.searchsorted(np.linspace(0.0, 1.0, bins + 1)[1:-1], probabilities)
    rows = np.bincount(index, minlength=bins)
    there = rows > 0
    said, came = (np.bincount(index, weights=w, minlength=bins)[there] / rows[there] for w in (probabilities, right.astype(np.float64)))
    return Calibration(said, came, rows[there])


def judge(scores: Scores, names: Sequence[str], split: str) -> Judged:
    """Return all curves of what was seen.

    Args:
        scores: at least one row.
        names: of the classes.
        split: of the data.
    """
    probabilities, labels = scores.whole()
    classes = probabilities.shape[1]
    counts = np.zeros((classes, classes), np.int64)
    taken = probabilities.argmax(axis=1)
    np.add.at(counts, (labels, taken), 1)
    of = [1] if classes == 2 else range(classes)
    rocs = tuple(roc(names[c], probabilities[:, c], labels == c) for c in of if 0 < (labels == c).sum() < len(labels))
    if classes == 2:
        found = calibration(probabilities[:, 1], labels == 1)
    else:
        found = calibration(probabilities[np.arange(len(labels)), taken], labels == taken)
    return Judged(split, tuple(names), counts, rocs, found, classes > 2)
