"""Metrics of the order that scores put rows in: area under the ROC curve, average precision."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.metrics.classes import (
    Array,
    ClassNumber,
    ClassOptions,
    Flags,
    check_class,
    check_classes,
    check_range,
    rows_of,
)
from pe_cli.metrics.define import Gathered, UndefinedError, metric


class RankingOptions(ClassOptions):
    """Options of metrics of an order."""

    average: Literal["macro", "micro", "weighted"] | None = Field(
        default=None,
        description="of more than two classes, each against all others: macro (when absent), the mean over classes; "
        "micro, of all pairs of a row and a class in one order; weighted, by the rows of each class",
    )
    class_: ClassNumber | None = Field(
        default=None, alias="class", description="number of the one class that it is about, from 0, instead of an average"
    )


def _steps(scores: Array, hit: Flags) -> tuple[Array, Array]:
    """Return the rows of the class and the other rows that have at least each score that occurs, the largest first; float64."""
    # Equal scores are one step, whatever the order of their rows.
    order = np.argsort(-scores, kind="stable")
    scores, hit = scores[order], hit[order]
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
    hits = np.cumsum(hit, dtype=np.int64)[ends]
    return hits.astype(np.float64), (ends + 1 - hits).astype(np.float64)


def _class(number: int | None) -> str:
    return "any class" if number is None else f"class {number}"


class _Ranking(Gathered[RankingOptions]):
    inputs = ("scores", "labels")
    options = RankingOptions

    def check(self, options: RankingOptions, types: Mapping[str, TensorType]) -> None:
        """Check the types; an average is of more than two classes.

        Raises:
            PeError: USAGE; options or types that do not fit.
        """
        found = check_classes(types)
        if len(types["scores"].shape) > 2:
            raise PeError(f"scores are [batch, classes], got {types['scores']}", hint="a reshape layer makes rows of positions")
        check_class(options, options.class_, found)
        if options.average is not None and found.classes == 2 and not found.several:
            text = f"average: there are two classes, as scores are {types['scores']}, and nothing to average"
            raise PeError(text, at=options.at_of("average"), hint="leave average out")

    def result(self, options: RankingOptions, values: Mapping[str, Array]) -> float:
        """Return the metric of class 1 of two, else the mean over the classes, or that of one class."""
        scores, labels, found = rows_of(values["scores"], values["labels"])
        check_range(labels, 2 if found.several else found.classes)
        if not found.several and found.classes == 2:
            other = options.class_ == 0
            # Of two classes the first's order is the second's, turned round.
            return self.of(-scores[:, -1] if other else scores[:, -1], labels == (0 if other else 1), 0 if other else 1)
        hits = labels == 1 if found.several else labels[:, None] == np.arange(found.classes)
        if options.class_ is not None:
            return self.of(scores[:, options.class_], hits[:, options.class_], options.class_)
        if options.average == "micro":
            return self.of(scores.reshape(-1), hits.reshape(-1), None)
        each = [self.of(scores[:, i], hits[:, i], i) for i in range(found.classes)]
        if options.average != "weighted":
            return math.fsum(each) / len(each)
        rows: list[int] = hits.sum(axis=0).tolist()
        return math.fsum(value * n for value, n in zip(each, rows, strict=True)) / sum(rows)

    @abstractmethod
    def of(self, scores: Array, hit: Flags, number: int | None) -> float:
        """Return the metric of one class.

        Args:
            scores: [rows] for it.
            hit: [rows] which rows are of it.
            number: of the class; None for all of them in one order.

        Raises:
            UndefinedError: the rows lack what it is a share of.
        """


@metric
class RocAuc(_Ranking):
    """Area under the ROC curve: how often a row of the class has a larger score than another row; equal scores count half."""

    name = "roc_auc"

    def of(self, scores: Array, hit: Flags, number: int | None) -> float:
        """Return the area, exact up to one division: twice it is a whole number of pairs.

        Raises:
            UndefinedError: there is nothing to divide by.
        """
        if hit.all() or not hit.any():
            raise UndefinedError(f"{'every' if len(hit) and hit.all() else 'no'} row is of {_class(number)}")
        hits, others = _steps(scores, hit)
        # Pairs of equal scores count half: a trapezoid, doubled so that it stays a whole number.
        pairs = float((np.diff(others, prepend=0.0) * (hits + np.append(0.0, hits[:-1]))).sum())
        return pairs / (2 * float(hits[-1]) * float(others[-1]))


@metric
class AveragePrecision(_Ranking):
    """Precision at each score that occurs, weighted by the recall that it adds; points are not joined by lines."""

    name = "average_precision"

    def of(self, scores: Array, hit: Flags, number: int | None) -> float:
        """Return the sum of (R[n] - R[n - 1]) P[n].

        Raises:
            UndefinedError: there is nothing to divide by.
        """
        if not hit.any():
            raise UndefinedError(f"no row is of {_class(number)}")
        hits, others = _steps(scores, hit)
        return float((np.diff(hits, prepend=0.0) / hits[-1] * (hits / (hits + others))).sum())
