"""Measures that scripts update from fetched arrays."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid.detection_map import DetectionMAP
from pe_cli.paddle.reference_names import missing


class MetricBase:
    """A measure with counts that `update` adds to, `eval` reads and `reset` clears."""

    def __init__(self, name: str | None = None) -> None:
        self._name = name or type(self).__name__

    def __str__(self) -> str:
        return self._name

    def _states(self) -> dict[str, Any]:
        # Public attributes are the counts, as in the original, where classes of scripts rely on it.
        return {k: v for k, v in vars(self).items() if not k.startswith("_")}

    def reset(self) -> None:
        """Clear the counts: numbers and arrays become 0, anything else None."""
        for name, value in self._states().items():
            if isinstance(value, (np.ndarray, np.generic)):
                setattr(self, name, np.zeros_like(value))
            else:
                setattr(self, name, type(value)(0) if isinstance(value, (int, float)) else None)

    def get_config(self) -> dict[str, Any]:
        """Return the name, and a copy of the counts as `states`."""
        return {"name": self._name, "states": copy.deepcopy(self._states())}

    def update(self, *args: Any, **given: Any) -> None:
        """Add a batch."""
        raise NotImplementedError

    def eval(self) -> Any:
        """Return the measure of all batches so far."""
        raise NotImplementedError


def _labels(preds: Any, labels: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    if not isinstance(preds, np.ndarray) or not isinstance(labels, np.ndarray):
        raise FluidValueError("preds and labels must be arrays")
    if len(preds) != len(labels):
        raise FluidValueError(f"there are {len(preds)} preds for {len(labels)} labels")
    # Rounded to the nearest label, as the original does.
    return np.rint(preds).astype("int32").ravel(), labels.ravel()


class Precision(MetricBase):
    """Right ones among those called positive."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp = self.fp = 0

    def update(self, preds: Any, labels: Any) -> None:
        """Add probabilities [batch, 1], positive from 0.5 on, and labels 0 or 1."""
        called, truth = _labels(preds, labels)
        self.tp += int(np.sum((called == 1) & (truth == 1)))
        self.fp += int(np.sum((called == 1) & (truth != 1)))

    def eval(self) -> float:
        """Return the share, 0 where nothing is called positive."""
        found = self.tp + self.fp
        return self.tp / found if found else 0.0


class Recall(MetricBase):
    """Those called positive among the positive ones."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp = self.fn = 0

    def update(self, preds: Any, labels: Any) -> None:
        """Add probabilities [batch, 1], positive from 0.5 on, and labels 0 or 1."""
        called, truth = _labels(preds, labels)
        self.tp += int(np.sum((called == 1) & (truth == 1)))
        self.fn += int(np.sum((called != 1) & (truth == 1)))

    def eval(self) -> float:
        """Return the share, 0 where nothing is positive."""
        there = self.tp + self.fn
        return self.tp / there if there else 0.0


class Accuracy(MetricBase):
    """Mean of values, weighted."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.value = 0.0
        self.weight = 0.0

    def update(self, value: Any, weight: Any) -> None:
        """Add a batch's accuracy and its number of samples.

        Raises:
            FluidValueError: the weight is no number of at least 0.
        """
        if np.size(weight) != 1 or float(np.ravel(weight)[0]) < 0:
            raise FluidValueError(f"the weight must be a number of at least 0, got {weight!r}")
        self.value += float(np.ravel(value)[0]) * float(np.ravel(weight)[0])
        self.weight += float(np.ravel(weight)[0])

    def eval(self) -> float:
        """Return the mean.

        Raises:
            FluidValueError: nothing was added; a ValueError.
        """
        if self.weight == 0:
            raise FluidValueError("there is no data in Accuracy", hint="call update first")
        return self.value / self.weight


class Auc(MetricBase):
    """Area under the ROC curve, by counts in `num_thresholds` + 1 bins of the probability of class 1; for curve='PR', too, as in 1.8.

    Raises:
        FluidValueError: curve is neither ROC nor PR.
    """

    def __init__(self, name: str | None = None, curve: str = "ROC", num_thresholds: int = 4095) -> None:
        super().__init__(name)
        if curve not in ("ROC", "PR"):
            raise FluidValueError(f"Auc: curve is {curve!r}", hint="ROC or PR")
        self._curve, self._bins = curve, num_thresholds
        self.positive = np.zeros(num_thresholds + 1, "int64")
        self.negative = np.zeros(num_thresholds + 1, "int64")

    def update(self, preds: Any, labels: Any) -> None:
        """Add probabilities [batch, 2] and labels 0 or 1.

        Raises:
            FluidValueError: a probability outside [0, 1], or not a label for each; a ValueError.
        """
        # Bins of equal width; 1 has the last one by itself.
        bins = (np.asarray(preds)[:, 1] * self._bins).astype("int64")
        truth = np.asarray(labels).ravel() != 0
        if len(bins) != len(truth) or (bins < 0).any() or (bins > self._bins).any():
            raise FluidValueError(f"Auc takes probabilities from 0 to 1 and a label for each, got {len(bins)} and {len(truth)} labels")
        # Not `positive[bins] += 1`, which adds 1 to a bin however often it occurs.
        np.add.at(self.positive, bins[truth], 1)
        np.add.at(self.negative, bins[~truth], 1)

    @staticmethod
    def trapezoid_area(x1: float, x2: float, y1: float, y2: float) -> float:
        """Return the area between two points of a curve and the axis."""
        return abs(x1 - x2) * (y1 + y2) / 2.0

    def eval(self) -> float:
        """Return the area by trapezoids, 0 where one class is absent."""
        # From the highest probability down: moving the threshold past one bin adds its samples to those called positive.
        hits = np.concatenate([[0], np.cumsum(self.positive[::-1])])
        false = np.concatenate([[0], np.cumsum(self.negative[::-1])])
        area = float(np.sum(np.diff(false) * (hits[1:] + hits[:-1]) / 2))
        # In floats: the product of two int64 counts may overflow.
        total = float(hits[-1]) * float(false[-1])
        return area / total if total else 0.0


class ChunkEvaluator(MetricBase):
    """Precision, recall and F1 of chunks."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.num_infer_chunks: Any = 0
        self.num_label_chunks: Any = 0
        self.num_correct_chunks: Any = 0

    def update(self, num_infer_chunks: Any, num_label_chunks: Any, num_correct_chunks: Any) -> None:
        """Add the counts of a batch: numbers, or arrays of one number."""
        self.num_infer_chunks = self.num_infer_chunks + _count(num_infer_chunks)
        self.num_label_chunks = self.num_label_chunks + _count(num_label_chunks)
        self.num_correct_chunks = self.num_correct_chunks + _count(num_correct_chunks)

    def eval(self) -> tuple[Any, Any, Any]:
        """Return precision, recall and F1; arrays of one number where the counts of batches were such arrays."""
        right = self.num_correct_chunks
        precision = right / self.num_infer_chunks if self.num_infer_chunks else 0.0
        recall = right / self.num_label_chunks if self.num_label_chunks else 0.0
        return precision, recall, 2 * precision * recall / (precision + recall) if right else 0.0


def _count(given: Any) -> Any:
    """Return a count as it is given.

    Raises:
        FluidValueError: it is no number and no array of one; a ValueError.
    """
    if np.size(given) != 1:
        raise FluidValueError(f"a count must be one number, got {given!r}")
    # Counts stay arrays where they were: the original's results then print as arrays.
    return given if isinstance(given, np.ndarray) else int(given)


class EditDistance(MetricBase):
    """Mean edit distance, and the share of sequences that have one."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.total_distance = 0.0
        self.seq_num = 0
        self.instance_error = 0

    def update(self, distances: Any, seq_num: Any) -> None:
        """Add a batch's distances and its number of sequences."""
        found = np.asarray(distances)
        self.total_distance += float(found.sum())
        self.seq_num += int(np.ravel(seq_num)[0])
        self.instance_error += int(np.ravel(seq_num)[0]) - int(np.sum(found == 0))

    def eval(self) -> tuple[float, float]:
        """Return the mean distance and the share of sequences with an error.

        Raises:
            FluidValueError: nothing was added yet.
        """
        if self.seq_num == 0:
            raise FluidValueError("there is no data in EditDistance", hint="call update first")
        return self.total_distance / self.seq_num, self.instance_error / self.seq_num


class CompositeMetric(MetricBase):
    """Several measures of the same arrays."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._metrics: list[MetricBase] = []

    def add_metric(self, metric: Any) -> None:
        """Add a measure.

        Raises:
            FluidTypeError: it is no metric.
        """
        if not isinstance(metric, MetricBase):
            raise FluidTypeError(f"add_metric takes a metric, got {type(metric).__name__}")
        self._metrics.append(metric)

    def update(self, preds: Any, labels: Any) -> None:
        """Add a batch to each."""
        for metric in self._metrics:
            metric.update(preds, labels)

    def eval(self) -> list[Any]:
        """Return the value of each."""
        return [metric.eval() for metric in self._metrics]


__all__ = [
    "Accuracy",
    "Auc",
    "ChunkEvaluator",
    "CompositeMetric",
    "DetectionMAP",
    "EditDistance",
    "MetricBase",
    "Precision",
    "Recall",
]

__getattr__ = missing("fluid.metrics", lambda: globals())
