"""The record of a sweep, `sweep.json`: its trials, their order and the values that rank them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pe_cli.config.sweep_checks import REPEATS
from pe_cli.config.yaml_scalars import show
from pe_cli.core.errors import ExitCode, PeError, shown
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io import atomic, strict_json
from pe_cli.io.regular_files import read_regular

#: Name of the record in a sweep's folder, and of the best config.
RECORD, BEST = "sweep.json", "best.yaml"
State = Literal["waiting", "running", "stopped", "done", "halted", "failed"]
#: Groups that the values of a range are cut into, to see what they explain.
GROUPS = 3


@dataclass
class Trial:
    """One trial.

    Args:
        number: from 1.
        values: key -> value.
        state: halted means that halving stopped it early.
        results: the metric after every budget that it was trained for, the shortest first; NaN and infinities are the worst.
        step: at which the last of them was measured.
        run: name of its run's folder in that of the sweep; None where there is none yet.
        error: what ended it; empty where nothing did.
        code: exit code of its process.
    """

    number: int
    values: Mapping[str, Any]
    state: State = "waiting"
    results: list[float] = field(default_factory=list)
    step: int = 0
    run: str | None = None
    error: str = ""
    code: int = 0

    @property
    def value(self) -> float | None:
        """The metric after the longest budget, None before there is one."""
        return self.results[-1] if self.results else None


@dataclass(frozen=True)
class Candidate:
    """A combination of the values that are chosen between, with its trials: one, or one for each of the repeats, such as the folds.

    Args:
        number: of its first trial.
        values: key -> value, without the repeats.
        trials: in order.
    """

    number: int
    values: Mapping[str, Any]
    trials: Sequence[Trial]

    @property
    def results(self) -> list[float]:
        """The mean of the metric over the trials, after every budget that all of them were trained for."""
        # Budgets that all repeats have finished: the mean of fewer would compare unlike things.
        budgets = zip(*(trial.results for trial in self.trials), strict=False)
        return [statistics.fmean(values) if all(map(math.isfinite, values)) else math.nan for values in budgets]

    @property
    def value(self) -> float | None:
        """The mean after the longest budget, None before there is one."""
        return self.results[-1] if self.results else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation of a sample (divided by trials - 1) of what `value` is the mean of; None where that is not known."""
        if len(self.trials) < 2 or self.value is None or not math.isfinite(self.value):
            return None
        return statistics.stdev(trial.results[len(self.results) - 1] for trial in self.trials)

    @property
    def step(self) -> int:
        """At which the metric was measured, in the trial that was trained longest."""
        return max(trial.step for trial in self.trials)

    @property
    def state(self) -> State:
        """That of the trials where they agree, else the first one that there is of: failed, running, stopped, waiting, halted."""
        # A candidate is what is worst among its trials.
        there = {trial.state for trial in self.trials}
        return next((state for state in _TELLING if state in there), "done")

    @property
    def label(self) -> str:
        """Numbers of the trials: 3, or 4-6."""
        last = self.trials[-1].number
        return str(self.number) if last == self.number else f"{self.number}-{last}"


#: States of a trial that tell of its candidate, the most telling first.
_TELLING: tuple[State, ...] = ("failed", "running", "stopped", "waiting", "halted")


@dataclass
class Sweep:
    """A sweep, as far as it has come.

    Args:
        folder: its own.
        by, mode: what candidates are compared by.
        budgets: how long trials are trained in turn, as `2 epochs`; one empty text without halving.
        asked: what it was started with, as JSON values: going on needs the same.
        trials: by number, those of a candidate side by side; with method tpe those that were drawn so far.
        repeats: trials of a candidate.
        wanted: candidates in all; as many as there are where that is not said.
    """

    folder: Path
    by: str
    mode: str
    budgets: Sequence[str]
    asked: Mapping[str, Any]
    trials: list[Trial]
    repeats: int = 1
    wanted: int = 0

    @property
    def count(self) -> int:
        """Trials in all, with those that are not drawn yet."""
        return max(self.wanted * self.repeats, len(self.trials))

    @property
    def candidates(self) -> list[Candidate]:
        """All candidates by number."""
        found = []
        for first in range(0, len(self.trials), self.repeats):
            trials = self.trials[first : first + self.repeats]
            found.append(Candidate(trials[0].number, self._chosen(trials[0].values), trials))
        return found

    def _chosen(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return values if self.repeats == 1 else {key: value for key, value in values.items() if key not in REPEATS}

    def ranked(self) -> list[Candidate]:
        """Return the candidates, the best first: those that were trained longest, by their metric, then by their number."""
        # Those that were trained longest come first: their results are of the largest budget.
        return sorted(self.candidates, key=lambda one: (-len(one.results), *self.rank(one, len(one.results) - 1)))

    def rank(self, candidate: Candidate, rung: int) -> tuple[float, int]:
        """Return what candidates are sorted by after a budget: less is better."""
        results = candidate.results
        value = results[rung] if 0 <= rung < len(results) else math.nan
        worth = value if self.mode == "min" else -value
        # Numbers decide between equals, so that the order does not change from one look to the next.
        return (worth if math.isfinite(worth) else math.inf), candidate.number

    @property
    def best(self) -> Candidate | None:
        """The best candidate, None where none has a finite metric."""
        first = next(iter(self.ranked()), None)
        return first if first and first.value is not None and math.isfinite(first.value) else None

    def names(self) -> dict[str, str]:
        """Return short names of the keys: the last part, or all where two keys share it."""
        keys = list(self.trials[0].values) if self.trials else []
        last = [key.rpartition(".")[2] for key in keys]
        # The end of a key is shown where it is the only one.
        return {key: short if last.count(short) == 1 else key for key, short in zip(keys, last, strict=True)}

    def rows(self) -> list[tuple[object, ...]]:
        """Return a table, the best first: a header, and a row for every candidate."""
        halving, several = len(self.budgets) > 1, self.repeats > 1
        names = self.names()
        keys = self._chosen(self.trials[0].values) if self.trials else {}
        head = ["trials" if several else "trial", *(shown(names[key]) for key in keys), shown(self.by)]
        rows: list[tuple[object, ...]] = [
            (*head, *(("deviation",) if several else ()), *(("after",) if halving else ()), "step", "state")
        ]
        for one in self.ranked():
            after = (self.budgets[len(one.results) - 1] if one.results else "-",) if halving else ()
            value = "-" if one.value is None else f"{one.value:.6g}"
            spread = ("-" if one.deviation is None else f"{one.deviation:.6g}",) if several else ()
            rows.append((one.label, *(text_of(v) for v in one.values.values()), value, *spread, *after, one.step or "-", one.state))
        return rows

    def importance(self) -> dict[str, float | None]:
        """Return the share of the metric's variance that the values of each key explain, as an adjusted R squared.

        Candidates are put into groups with the same value of the key; numbers with more than three values into three groups of equal
        size by their order. R^2 = 1 - (within / (n - k)) / (total / (n - 1)) with the sums of squares within k groups and in total, of n
        candidates; what is below 0 is 0. The metric is that after the first budget, which all candidates have in common.

        Returns:
            Short name of a key -> share; None for a key where too few are measured to tell, or all have the same metric.
        """
        known = [one for one in self.candidates if one.results and math.isfinite(one.results[0])]
        # By results after the first budget, which all candidates have.
        values, names = [one.results[0] for one in known], self.names()
        keys = self._chosen(self.trials[0].values) if self.trials else {}
        return {names[key]: _explained(_groups([one.values[key] for one in known]), values) for key in keys}

    def points(self) -> list[dict[str, Any]]:
        """Return what lines of parallel coordinates go through, the best first: the values of every candidate that was measured."""
        found, names = [], self.names()
        for one in self.ranked():
            if one.value is not None and math.isfinite(one.value):
                # The name of the metric ends in a space, so that no key's own name can take its place.
                found.append({**{names[key]: value for key, value in one.values.items()}, f"{self.by} ": one.value})
        return found

    def to_json(self) -> dict[str, object]:
        """Return all of it as JSON values."""
        trials = [
            {
                "trial": t.number, "values": dict(t.values), "state": t.state, "results": t.results, "step": t.step, "run": t.run,
                **({"error": t.error, "code": t.code} if t.error else {}),
            }
            for t in self.trials
        ]  # fmt: skip
        head = {"by": self.by, "mode": self.mode, "budgets": list(self.budgets), "repeats": self.repeats, "wanted": self.wanted}
        return {**head, "trials": trials, "asked": dict(self.asked)}

    def write(self) -> None:
        """Write the record.

        Raises:
            PeError: it can't be written.
        """
        atomic.write_text(self.folder / RECORD, strict_json.dumps(self.to_json(), indent=1) + "\n")


def text_of(value: object) -> str:
    """Return a value of a trial as a table shows it."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return shown(value if isinstance(value, str) else strict_json.dumps(value) if isinstance(value, dict) else show(value))[:40]


def _groups(values: Sequence[Any]) -> list[object]:
    """Return a group for every value."""
    texts = [strict_json.dumps(value) for value in values]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if not numbers or len(set(texts)) <= GROUPS:
        return list(texts)
    order = sorted(set(values))
    return [order.index(value) * GROUPS // len(order) for value in values]


def _explained(groups: Sequence[object], values: Sequence[float]) -> float | None:
    n, k = len(values), len(set(groups))
    if n <= k or k < 2:
        return None
    mean = statistics.fmean(values)
    total = sum((value - mean) ** 2 for value in values)
    if not total > 0 or not math.isfinite(total):
        return None
    # Within groups: what a key does not explain.
    within = 0.0
    for group in set(groups):
        inside = [value for value, of in zip(values, groups, strict=True) if of == group]
        centre = statistics.fmean(inside)
        within += sum((value - centre) ** 2 for value in inside)
    # Corrected for the number of groups: random groups explain something, too.
    return max(0.0, 1 - (within / (n - k)) / (total / (n - 1)))


def read_sweep(folder: Path) -> Sweep:
    """Return what a sweep's folder holds.

    Raises:
        PeError: DATA; it holds no record of a sweep.
    """
    path = folder / RECORD
    try:
        value: Any = strict_json.loads(read_regular(path))
        trials = [_trial(entry) for entry in value["trials"]]
        repeats, wanted = int(value.get("repeats", 1)), int(value.get("wanted", 0))
        # The record may have been written by hand or be damaged: whatever follows relies on this.
        if [t.number for t in trials] != list(range(1, len(trials) + 1)) or len({tuple(t.values) for t in trials}) > 1:
            raise ValueError("its trials do not fit together")
        if repeats < 1 or len(trials) % repeats or not (trials or wanted > 0):
            raise ValueError("its trials are not complete")
        if value["mode"] not in ("max", "min") or (trials and not trials[0].values) or not isinstance(value["asked"], dict):
            raise ValueError("it does not say what was asked for")
        budgets = [str(budget) for budget in value["budgets"]]
        if any(len(trial.results) > len(budgets) for trial in trials):
            raise ValueError("a trial has more results than there are budgets")
        return Sweep(folder, str(value["by"]), value["mode"], budgets, value["asked"], trials, repeats, wanted)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        said = (error.strerror or str(error)).lower() if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        raise PeError(f"{path}: no record of a sweep: {said}", hint="name a folder that pe sweep wrote", code=ExitCode.DATA) from None


def _trial(entry: Any) -> Trial:
    state = entry["state"]
    if state not in get_args(State) or not isinstance(entry["values"], dict):
        raise ValueError("a trial has no known state, or no values")
    # A name and no path: a record must not point out of its folder.
    run = None if entry["run"] is None else Path(str(entry["run"])).name
    results = [float(value) for value in entry["results"]]
    number, step, code = (int(entry.get(key, 0)) for key in ("trial", "step", "code"))
    return Trial(number, entry["values"], cast(State, state), results, step, run, str(entry.get("error", "")), code)
