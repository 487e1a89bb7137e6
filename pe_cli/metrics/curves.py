"""Curves of a classifier over all rows of an evaluation: exact, and the same however the rows were divided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.metrics.decisions import Decision

Array = NDArray[Any]
#: Intervals of equal width that probabilities are sorted into.
BINS = 10


@dataclass
class Scores:
    """Probabilities and labels of the rows that were seen so far, by anyone.

    Rows come from batches, devices or processes in any order: `merge` puts two together, and no curve depends on the order.

    Args:
        several: whether a row may be of several classes.

    Attributes:
        probabilities: of each batch, float64 [rows, classes]; [rows, 1] of the second of two classes.
        labels: of each batch, int64 [rows]; 0 and 1 [rows, classes] where a row may be of several.
    """

    several: bool = False
    probabilities: list[Array] = field(default_factory=list)
    labels: list[Array] = field(default_factory=list)

    def add(self, probabilities: Array, labels: Array) -> None:
        """Add the rows of a batch."""
        self.probabilities.append(np.asarray(probabilities, np.float64))
        self.labels.append(np.asarray(labels, np.int64).reshape(-1, *((labels.shape[-1],) if self.several else ())))

    def merge(self, other: Scores) -> None:
        """Add the rows that another one has seen."""
        self.probabilities += other.probabilities
        self.labels += other.labels

    def whole(self) -> tuple[Array, Array]:
        """Return the probabilities [rows, classes] and labels [rows] of all rows; of two classes by one number, of both."""
        scores, labels = np.concatenate(self.probabilities), np.concatenate(self.labels)
        # One number per row is of the second of two classes; the first has the rest.
        return (np.hstack([1 - scores, scores]) if scores.shape[1] == 1 and not self.several else scores), labels


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
class PrecisionRecall:
    """Precision and recall of one class at every score that occurs.

    Args:
        name: of the class.
        recall, precision: float64 [points], recall rising.
        share: of the rows that are of the class, which is the precision of a random order.
    """

    name: str
    recall: Array
    precision: Array
    share: float

    @property
    def average(self) -> float:
        """Average precision: precision weighted by the recall that each score adds; points are not joined by lines."""
        return float((np.diff(self.recall, prepend=0.0) * self.precision).sum())


@dataclass(frozen=True)
class ClassFigures:
    """What is decided of one class.

    Args:
        name: of the class.
        threshold: of its probability, from which on it is taken; None where the most probable class is.
        precision, recall, f1: of the decisions; 0 where there is nothing to divide by.
        average: average precision; None where no row is of the class.
        rows: that are of it.
    """

    name: str
    threshold: float | None
    precision: float
    recall: float
    f1: float
    average: float | None
    rows: int


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
class ClassifierEvaluation:
    """What a classifier does over a split.

    Args:
        split: of the data.
        names: of the classes.
        rows: that were seen.
        right: rows whose class, or whole set of classes, is right.
        confusion: int64 [classes, classes] rows; true classes down, taken ones across; none where a row may be of several classes.
        rocs: one of each class that has rows and is not alone; of two classes the second one's.
        precisions: likewise.
        figures: one for each class.
        calibration: of the second of two classes, of all pairs of a row and a class where a row may be of several, else of the class
            that is taken.
        said: what the calibration is the probability of.
    """

    split: str
    names: tuple[str, ...]
    rows: int
    right: int
    confusion: Array | None
    rocs: tuple[Roc, ...]
    precisions: tuple[PrecisionRecall, ...]
    figures: tuple[ClassFigures, ...]
    calibration: Calibration
    said: str


def roc(name: str, scores: Array, positive: Array) -> Roc:
    """Return the curve of scores [rows] by which rows may be of a class, and whether they are."""
    order = np.argsort(-scores, kind="stable")
    scores, positive = scores[order], positive[order].astype(bool)
    # Equal scores are one point: which of their rows comes first must not bend the curve.
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
    hits = np.cumsum(positive, dtype=np.int64)[ends]
    misses = ends + 1 - hits
    return Roc(name, np.concatenate([[0.0], misses / misses[-1]]), np.concatenate([[0.0], hits / hits[-1]]))


def calibration(probabilities: Array, right: Array, bins: int = BINS) -> Calibration:
    """Return how probabilities [rows] compare with what came true, in intervals of equal width that include their lower end."""
    # Without the outermost edges, so that probabilities of exactly 0 and 1 fall into the first and the last interval.
    index = np.searchsorted(np.linspace(0.0, 1.0, bins + 1)[1:-1], probabilities)
    rows = np.bincount(index, minlength=bins)
    there = rows > 0
    said, came = (np.bincount(index, weights=w, minlength=bins)[there] / rows[there] for w in (probabilities, right.astype(np.float64)))
    return Calibration(said, came, rows[there])


def precision_recall(name: str, scores: Array, positive: Array) -> PrecisionRecall:
    """Return the curve of scores [rows] by which rows may be of a class, and whether they are; at least one is."""
    order = np.argsort(-scores, kind="stable")
    scores, positive = scores[order], positive[order].astype(bool)
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
    hits = np.cumsum(positive, dtype=np.int64)[ends].astype(np.float64)
    return PrecisionRecall(name, hits / hits[-1], hits / (ends + 1), float(positive.mean()))


def evaluate_classifier(scores: Scores, names: Sequence[str], split: str, decision: Decision | None = None) -> ClassifierEvaluation:
    """Return all curves of what was seen.

    Args:
        scores: at least one row, of calibrated probabilities.
        names: of the classes.
        split: of the data.
        decision: thresholds; None where the most probable class is taken, and tags from 0.5 on.
    """
    probabilities, labels = scores.whole()
    classes, several = probabilities.shape[1], scores.several
    hits = labels == 1 if several else labels[:, None] == np.arange(classes)
    decided = (decision or Decision("")).taken(probabilities, several=several)
    taken = decided if several else decided[:, None] == np.arange(classes)
    of = [1] if classes == 2 and not several else range(classes)
    mixed = [c for c in of if 0 < hits[:, c].sum() < len(labels)]
    rocs = tuple(roc(names[c], probabilities[:, c], hits[:, c]) for c in mixed)
    curves = {c: precision_recall(names[c], probabilities[:, c], hits[:, c]) for c in range(classes) if hits[:, c].any()}
    figures = tuple(_figures(names[c], _threshold(decision, c, classes, several), hits[:, c], taken[:, c], curves.get(c))
                    for c in range(classes))  # fmt: skip
    counts = None
    if several:
        found, said = calibration(probabilities.reshape(-1), hits.reshape(-1)), "a tag"
    else:
        counts = np.zeros((classes, classes), np.int64)
        np.add.at(counts, (labels, decided), 1)
        if classes == 2:
            found, said = calibration(probabilities[:, 1], hits[:, 1]), names[1]
        else:
            found = calibration(probabilities[np.arange(len(labels)), decided], labels == decided)
            said = "the class that is taken"
    right = int((hits == taken).all(axis=1).sum())
    precisions = tuple(curves[c] for c in mixed)
    return ClassifierEvaluation(split, tuple(names), len(labels), right, counts, rocs, precisions, figures, found, said)


def _threshold(decision: Decision | None, number: int, classes: int, several: bool) -> float | None:
    given = decision.thresholds if decision is not None else ()
    if several:
        return (given[number] if len(given) > 1 else given[0]) if given else 0.5
    return given[0] if given and classes == 2 and number == 1 else None


def _figures(name: str, threshold: float | None, hit: Array, taken: Array, curve: PrecisionRecall | None) -> ClassFigures:
    both, there, said = int((hit & taken).sum()), int(hit.sum()), int(taken.sum())
    # Without rows that are of the class or taken for it, F1 is 0 and no division by 0.
    f1 = 2 * both / (there + said) if there + said else 0.0
    precision, recall = (both / many if many else 0.0 for many in (said, there))
    return ClassFigures(name, threshold, precision, recall, f1, None if curve is None else curve.average, there)
