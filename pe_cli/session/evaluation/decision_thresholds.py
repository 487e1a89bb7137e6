"""Fits calibration and thresholds on evaluation rows, and measures what they change for the rows of a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.build.decisions import Deciding
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.metrics.classes import check_range, whole_numbers
from pe_cli.metrics.collection import MOST
from pe_cli.metrics.decisions import Decision, decide

if TYPE_CHECKING:
    from pe_cli.session.job import Job

Array = NDArray[Any]
#: Tags whose counts are said.
MOST_SAID = 12


@dataclass(frozen=True)
class Counts:
    """What a threshold does to the rows of a split.

    Args:
        name: of the class.
        threshold: from which probability on a row is taken for it.
        found: rows of the class that are taken for it.
        missed: rows of it that are not.
        false_alarms: other rows that are taken for it.
        passed: other rows that are not.
    """

    name: str
    threshold: float
    found: int
    missed: int
    false_alarms: int
    passed: int

    @property
    def text(self) -> str:
        """The counts in a line."""
        f1 = 2 * self.found / (2 * self.found + self.missed + self.false_alarms or 1)
        return (
            f"'{self.name}' from a probability of {self.threshold:.4g} on: {self.found:,} found, {self.missed:,} missed, "
            f"{self.false_alarms:,} false alarms, {self.passed:,} rightly passed (F1 {f1:.4g})"
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "class": self.name, "threshold": self.threshold, "found": self.found, "missed": self.missed,
            "false_alarms": self.false_alarms, "passed": self.passed,
        }  # fmt: skip


@dataclass
class Decider:
    """Takes the scores of an evaluation's batches, and decides when all are there.

    Args:
        job: whose classifier it is.
        deciding: what is decided.
        split: of the data.

    Attributes:
        notes: sentences on classes of which the rows do not say what is wanted.
    """

    job: Job
    deciding: Deciding
    split: str
    notes: list[str] = field(default_factory=list)
    _scores: list[Array] = field(default_factory=list)
    _labels: list[Array] = field(default_factory=list)
    _bytes: int = 0

    @property
    def variables(self) -> tuple[str, str]:
        """The variables that it takes: scores, and labels, which are fed."""
        return self.deciding.of.variable(self.deciding.wish)[0], self.deciding.of.label

    def add(self, values: Mapping[str, Array]) -> None:
        """Take a batch.

        Raises:
            PeError: USAGE; the values of all rows take more memory than they may.
        """
        scores, label = self.variables
        self._bytes += values[scores].nbytes + values[label].nbytes
        if self._bytes > MOST:
            said = f"train.decide: scores and labels of all rows of data.{self.split} take more than {MOST / 2**30:g} GiB"
            raise PeError(said, hint="evaluate fewer rows, or leave decide and calibrate out")
        self._scores.append(np.array(values[scores]))
        self._labels.append(np.array(values[label]))

    def _rows(self) -> tuple[Array, Array]:
        of = self.deciding.of
        labels = np.concatenate(self._labels)
        whole = labels.astype(np.int64) if labels.dtype.kind != "f" else whole_numbers(labels)
        check_range(whole, 2 if of.several else of.classes)
        return np.concatenate(self._scores), whole

    def decide(self) -> dict[str, float]:
        """Keep the decision with what the columns of the job's data have learned; return its numbers as metrics.

        Nothing is decided where there are no rows, or a score is not finite.

        Raises:
            PeError: DATA; a label is no class.
        """
        if not self._scores or not all(np.isfinite(scores).all() for scores in self._scores):
            return {}
        scores, labels = self._rows()
        of, wish = self.deciding.of, self.deciding.wish
        logits = of.variable(wish)[1]
        made, self.notes = decide(wish, of.label, scores, labels, self.names, logits=logits, several=of.several)
        self.job.data.fitted.decision = made
        found = {"threshold": made.thresholds[0]} if len(made.thresholds) == 1 else {}
        return found if made.temperature is None else {**found, "temperature": made.temperature}

    @property
    def names(self) -> Sequence[str]:
        """Names of the classes; numbers where the data has none."""
        source = self.job.data.sources.get(self.deciding.of.label)
        name = source.names[0] if source is not None and len(source.names) == 1 else self.deciding.of.label
        column = self.job.data.fitted.columns.get(name)
        known = column.classes if column is not None else ()
        return known if len(known) == self.deciding.of.classes else tuple(map(str, range(self.deciding.of.classes)))

    def counts(self, decision: Decision) -> list[Counts]:
        """Return what the thresholds of a decision do to the rows that were taken; none where it has no thresholds."""
        if not decision.thresholds or not self._scores:
            return []
        of = self.deciding.of
        scores, labels = self._rows()
        logits = of.variable(self.deciding.wish)[1]
        found = decision.probabilities(scores, logits=logits, several=of.several)
        taken = decision.taken(found, several=of.several)
        columns = range(of.classes) if of.several else [1]
        made = []
        for i, column in enumerate(columns):
            hit = labels[:, column] == 1 if of.several else labels.reshape(-1) == 1
            said = taken[:, column] if of.several else taken == 1
            numbers = [int((a & b).sum()) for a, b in ((hit, said), (hit, ~said), (~hit, said), (~hit, ~said))]
            threshold = decision.thresholds[i if len(decision.thresholds) > 1 else 0]
            made.append(Counts(self.names[column], threshold, *numbers))
        return made

    def told(self, decision: Decision) -> list[str]:
        """Return sentences on a decision and what it does to the rows that were taken."""
        found = list(self.notes)
        if decision.temperature is not None:
            found.append(f"calibrated: logits are divided by a temperature of {decision.temperature:.4g}")
        if decision.steps:
            points = sum(len(step.at) for step in decision.steps)
            found.append(f"calibrated: probabilities go through a function of {points:,} points that never falls (isotonic)")
        counts, by = self.counts(decision), f" by {decision.said}" if decision.said else ""
        found += [f"decided{by}, data.{self.split}: {one.text}" for one in counts[:MOST_SAID]]
        if len(counts) > MOST_SAID:
            found.append(f"and {len(counts) - MOST_SAID} more tags: pe eval --classes has them all")
        return found
