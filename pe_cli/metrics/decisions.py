"""Decisions: how a classifier's scores become probabilities and classes, as chosen on rows that were not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.metrics.calibrators import Steps, as_logits, isotonic, probabilities, temperature
from pe_cli.metrics.thresholds import Rule, choose

Array = NDArray[Any]
#: Points of all functions of a decision that are read.
MOST_POINTS = 10_000_000


@dataclass(frozen=True)
class Decision:
    """What stands behind a model's scores.

    Args:
        label: feed of the model whose scores it is of.
        thresholds: one for the second of two classes; one for each tag; none where the most probable class is taken.
        temperature: that logits are divided by; None for 1.
        steps: functions of the probabilities: of the second of two classes, or one for each tag; none for no change.
        said: what it was chosen by, for people.
    """

    label: str
    thresholds: tuple[float, ...] = ()
    temperature: float | None = None
    steps: tuple[Steps, ...] = ()
    said: str = ""

    def probabilities(self, scores: Array, *, logits: bool, several: bool) -> Array:
        """Return calibrated probabilities, float64 [rows, classes]; see `calibrators.probabilities`."""
        if self.temperature is not None:
            # A temperature is fitted on logits, so probabilities are turned into logits for it first.
            warm = as_logits(scores, logits=logits, several=several) / self.temperature
            return probabilities(warm, logits=True, several=several)
        found = probabilities(scores, logits=logits, several=several)
        if not self.steps:
            return found
        if several:
            return np.stack([step(found[:, i]) for i, step in enumerate(self.steps)], axis=1)
        second = self.steps[0](found[:, 1])
        return np.stack([1 - second, second], axis=1)

    def taken(self, found: Array, *, several: bool) -> Array:
        """Return what probabilities [rows, classes] are taken for: bool [rows, classes] of tags, else int64 [rows]."""
        if several:
            return np.asarray(found >= np.array(self.thresholds or (0.5,)))
        if self.thresholds:
            return (found[:, 1] >= self.thresholds[0]).astype(np.int64)
        return np.asarray(found.argmax(axis=1))

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        steps = [{"at": list(step.at), "to": list(step.to)} for step in self.steps]
        return {
            "format": 1, "label": self.label, "thresholds": list(self.thresholds), "temperature": self.temperature, "steps": steps,
            "said": self.said,
        }  # fmt: skip

    @classmethod
    def from_json(cls, value: object) -> Decision:
        """Return what `to_json` wrote.

        Raises:
            pydantic.ValidationError: the values, which are untrusted, are none of that.
        """
        read = _Written.model_validate(value)
        steps = tuple(Steps(tuple(one.at), tuple(one.to)) for one in read.steps)
        return cls(read.label, tuple(read.thresholds), read.temperature, steps, read.said)


_Shares = list[float]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class _Points(_Strict):
    at: _Shares = Field(min_length=1, max_length=MOST_POINTS)
    to: _Shares

    @model_validator(mode="after")
    def _rise(self) -> _Points:
        at, to = np.array(self.at), np.array(self.to)
        # What is read from a file must have the form that `isotonic` makes, as np.interp accepts any numbers without a word.
        if len(at) != len(to) or (np.diff(at) <= 0).any() or (np.diff(to) < 0).any() or to.min() < 0 or to.max() > 1:
            raise ValueError("must rise, with as many values from 0 to 1")
        return self


class _Written(_Strict):
    format: int = Field(ge=1, le=1)
    label: str
    thresholds: _Shares
    temperature: float | None = Field(gt=0)
    steps: list[_Points]
    said: str = Field(max_length=100_000)

    @model_validator(mode="after")
    def _shares(self) -> _Written:
        if any(not 0 <= value <= 1 for value in self.thresholds):
            raise ValueError("thresholds must be from 0 to 1")
        return self


@dataclass(frozen=True)
class DecisionSettings:
    """What is chosen.

    Args:
        rule: of thresholds; None leaves them.
        calibrate: temperature, isotonic, or nothing.
    """

    rule: Rule | None
    calibrate: str = ""


def decide(
    wish: DecisionSettings, label: str, scores: Array, labels: Array, names: Sequence[str], *, logits: bool, several: bool
) -> tuple[Decision, list[str]]:
    """Fit a calibration, then choose thresholds of what it gives.

    Args:
        wish: what is chosen.
        label: feed of the model.
        scores: [rows, width], at least one row.
        labels: int64 [rows] class numbers; 0 and 1 [rows, width] of tags.
        names: of the classes.
        logits: what the scores are.
        several: whether they are of tags.

    Returns:
        The decision, and sentences on classes of which the rows do not say what is wanted.
    """
    # Of two classes that share a score, only the second is decided about.
    hits = labels.astype(bool) if several else (labels.reshape(-1) == 1)[:, None]
    made = Decision(label)
    if wish.calibrate == "temperature":
        warm = as_logits(scores, logits=logits, several=several)
        made = replace(made, temperature=temperature(warm, labels, several=several))
    elif wish.calibrate == "isotonic":
        found = probabilities(scores, logits=logits, several=several)
        columns = range(found.shape[1]) if several else [1]
        made = replace(made, steps=tuple(isotonic(found[:, c], hits[:, i]) for i, c in enumerate(columns)))
    if wish.rule is None:
        return made, []
    # Thresholds are chosen on calibrated scores, as these are what they will be compared with.
    found = made.probabilities(scores, logits=logits, several=several)
    notes, thresholds = [], []
    for i, column in enumerate(range(found.shape[1]) if several else [1]):
        chosen = choose(wish.rule, found[:, column], hits[:, i])
        thresholds.append(chosen.threshold)
        if chosen.short:
            notes.append(f"threshold of '{names[column]}': {chosen.short}; it is {chosen.threshold:.4g}")
    return replace(made, thresholds=tuple(thresholds), said=wish.rule.said), notes
