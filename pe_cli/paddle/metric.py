"""metric: measures of 2.x that scripts update from fetched arrays, and `accuracy`, which is computed in a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid import metrics
from pe_cli.paddle.reference_names import missing
from pe_cli.program.ir import Variable


class Metric:
    """The base of metrics: `compute` prepares what a batch gives, `update` adds it up, `accumulate` returns the value so far."""

    def reset(self) -> None:
        """Clear the counts."""
        raise NotImplementedError(f"{type(self).__name__} has no reset: define it")

    def update(self, *args: Any) -> Any:
        """Add what `compute` gave for a batch."""
        raise NotImplementedError(f"{type(self).__name__} has no update: define it")

    def accumulate(self) -> Any:
        """Return the value of all batches so far."""
        raise NotImplementedError(f"{type(self).__name__} has no accumulate: define it")

    def name(self) -> Any:
        """Return the name, or a list of names where there are several values."""
        raise NotImplementedError(f"{type(self).__name__} has no name: define it")

    def compute(self, *args: Any) -> Any:
        """Return what `update` gets of predictions and labels, variables or arrays; as they are, unless a metric says otherwise."""
        return args


class Accuracy(Metric):
    """Share of samples whose label is among the k highest predictions.

    Args:
        topk: values of k; `accumulate` returns a share for each, or one number where there is one.
        name: prefix of the names.

    Raises:
        FluidValueError: topk is not of numbers of at least 1.
    """

    def __init__(self, topk: Sequence[int] | int = (1,), name: str | None = None) -> None:
        self.topk = (topk,) if isinstance(topk, int) else tuple(topk)
        if not self.topk or min(self.topk) < 1:
            raise FluidValueError(f"Accuracy: topk is {topk!r}", hint="numbers of at least 1")
        self._prefix = name or "acc"
        self.reset()

    def reset(self) -> None:
        """Clear the counts."""
        self.total = [0.0] * len(self.topk)
        self.count = [0] * len(self.topk)

    def compute(self, pred: Any, label: Any, *args: Any) -> Any:
        """Return which of the highest predictions are right, float32 [batch, max k].

        Args:
            pred: [batch, classes].
            label: class indices, [batch] or [batch, 1]; or one-hot rows, [batch, classes].

        Both are arrays, or both are variables of a program, which then gets the ops.
        """
        if isinstance(pred, Variable):
            return _right(pred, label, min(max(self.topk), pred.shape[-1]))
        pred, label = np.asarray(pred), np.asarray(label)
        most = min(max(self.topk), pred.shape[-1])
        best = np.argsort(-pred, axis=-1, kind="stable")[..., :most]
        one_hot = label.ndim == pred.ndim and label.shape[-1] == pred.shape[-1] != 1
        if one_hot:
            label = label.argmax(axis=-1)
        return (best == label.reshape(*pred.shape[:-1], 1)).astype("float32")

    def update(self, correct: Any, *args: Any) -> Any:
        """Add what `compute` returned; returns the shares of this batch."""
        correct = np.asarray(correct)
        rows, shares = int(np.prod(correct.shape[:-1])), []
        for i, k in enumerate(self.topk):
            right = float(correct[..., :k].sum())
            self.total[i] += right
            self.count[i] += rows
            shares.append(right / rows if rows else 0.0)
        return shares[0] if len(shares) == 1 else shares

    def accumulate(self) -> Any:
        """Return the share, or a list of shares."""
        shares = [t / n if n else 0.0 for t, n in zip(self.total, self.count, strict=True)]
        return shares[0] if len(shares) == 1 else shares

    def name(self) -> list[str]:
        """Return the names of the values."""
        return [f"{self._prefix}_top{k}" for k in self.topk] if len(self.topk) > 1 else [self._prefix]


def _right(pred: Any, label: Any, most: int) -> Any:
    from pe_cli.paddle.fluid import layers

    if len(label.shape) == len(pred.shape) and label.shape[-1] == pred.shape[-1] != 1:
        label = layers.unsqueeze(layers.argmax(label, -1), [-1])
    elif len(label.shape) < len(pred.shape):
        label = layers.unsqueeze(label, [len(label.shape)])
    best = layers.topk(pred, most)[1]
    wanted = layers.expand(label, [1] * (len(pred.shape) - 1) + [most]) if most > 1 else label
    return layers.cast(layers.equal(best, wanted), "float32")


class _Counted(Metric):
    """A metric of fluid's by the methods of 2.x."""

    _default: str

    def __init__(self, counts: Any, name: str | None) -> None:
        self._counts, self._given = counts, name or self._default

    def reset(self) -> None:
        """Clear the counts."""
        self._counts.reset()

    def accumulate(self) -> float:
        """Return the value of all batches so far."""
        return float(self._counts.eval())

    def name(self) -> str:
        """Return the name."""
        return self._given

    def update(self, preds: Any, labels: Any) -> None:
        """Add probabilities and labels of a batch."""
        self._counts.update(np.asarray(preds), np.asarray(labels))


class Precision(_Counted):
    """Share of right ones among those called positive: probabilities [batch, 1], positive from 0.5 on, and labels 0 or 1."""

    _default = "precision"

    def __init__(self, name: str | None = None) -> None:
        super().__init__(metrics.Precision(), name)

    def update(self, preds: Any, labels: Any) -> None:
        """Add probabilities and labels of a batch."""
        super().update(_called(preds), labels)


class Recall(_Counted):
    """Share of those called positive among the positive ones: probabilities [batch, 1], positive from 0.5 on, and labels 0 or 1."""

    _default = "recall"

    def __init__(self, name: str | None = None) -> None:
        super().__init__(metrics.Recall(), name)

    def update(self, preds: Any, labels: Any) -> None:
        """Add probabilities and labels of a batch."""
        super().update(_called(preds), labels)


def _called(preds: Any) -> Any:
    """Return 1 for what is called positive: from 0.5 on, where rounding to even would say 0."""
    return np.floor(np.asarray(preds) + 0.5).astype("float32")


class Auc(_Counted):
    """Area under the ROC curve, by counts in bins of the probability of class 1.

    Args:
        curve: ROC.
        num_thresholds: bins less one.
        name: of the metric.
    """

    _default = "auc"

    def __init__(self, curve: str = "ROC", num_thresholds: int = 4095, name: str | None = None) -> None:
        super().__init__(metrics.Auc(curve=curve, num_thresholds=num_thresholds), name)


def accuracy(input: Any, label: Any, k: int = 1, correct: Any = None, total: Any = None, name: str | None = None) -> Any:
    """Append the share of samples whose label is among the k highest predictions; see `fluid.layers.accuracy`."""
    from pe_cli.paddle.fluid import layers

    return layers.accuracy(input, label, k, correct, total)


__all__ = ["Accuracy", "Auc", "Metric", "Precision", "Recall", "accuracy"]
__getattr__ = missing("paddle.metric", lambda: globals())
