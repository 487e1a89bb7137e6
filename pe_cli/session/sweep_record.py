"""What a sweep knows of its trials: `sweep.json`, the order of the trials, and which values decide."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pe_cli.config.scalars import show
from pe_cli.core.errors import ExitCode, PeError, shown
from pe_cli.io import atomic, strict_json
from pe_cli.io.regular import read_regular

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


@dataclass
class Sweep:
    """A sweep, as far as it has come.

    Args:
        folder: its own.
        by, mode: what trials are compared by.
        budgets: how long trials are trained in turn, as `2 epochs`; one empty text without halving.
        asked: what it was started with, as JSON values: going on needs the same.
        trials: by number.
    """

    folder: Path
    by: str
    mode: str
    budgets: Sequence[str]
    asked: Mapping[str, Any]
    trials: Sequence[Trial]

    def ranked(self) -> list[Trial]:
        """Return the trials, the best first: those that were trained longest, by their metric, then by their number."""
        return sorted(self.trials, key=lambda trial: (-len(trial.results), *self.rank(trial, len(trial.results) - 1)))

    def rank(self, trial: Trial, rung: int) -> tuple[float, int]:
        """Return what trials are sorted by after a budget: less is better."""
        value = trial.results[rung] if 0 <= rung < len(trial.results) else math.nan
        worth = value if self.mode == "min" else -value
        return (worth if math.isfinite(worth) else math.inf), trial.number

    @property
    def best(self) -> Trial | None:
        """The best trial, None where none has a finite metric."""
        first = self.ranked()[0]
        return first if first.value is not None and math.isfinite(first.value) else None

    def names(self) -> dict[str, str]:
        """Return short names of the keys: the last part, or all where two keys share it."""
        keys = list(self.trials[0].values)
        last = [key.rpartition(".")[2] for key in keys]
        return {key: short if last.count(short) == 1 else key for key, short in zip(keys, last, strict=True)}

    def rows(self) -> list[tuple[object, ...]]:
        """Return a table, the best first: a header, and a row for every trial."""
        halving = len(self.budgets) > 1
        rows: list[tuple[object, ...]] = [
            ("trial", *(shown(name) for name in self.names().values()), shown(self.by), *(("after",) if halving else ()), "step", "state")
        ]
        for trial in self.ranked():
            after = (self.budgets[len(trial.results) - 1] if trial.results else "-",) if halving else ()
            value = "-" if trial.value is None else f"{trial.value:.6g}"
            rows.append((trial.number, *(text_of(v) for v in trial.values.values()), value, *after, trial.step or "-", trial.state))
        return rows

    def importance(self) -> dict[str, float | None]:
        """Return the share of the metric's variance that the values of each key explain, as an adjusted R squared.

        Trials are put into groups with the same value of the key; numbers with more than three values into three groups of equal size
        by their order. R^2 = 1 - (within / (n - k)) / (total / (n - 1)) with the sums of squares within k groups and in total, of n
        trials; what is below 0 is 0. The metric is that after the first budget, which all trials have in common.

        Returns:
            Short name of a key -> share; None for a key where too few trials are measured to tell, or all have the same metric.
        """
        known = [trial for trial in self.trials if trial.results and math.isfinite(trial.results[0])]
        values = [trial.results[0] for trial in known]
        return {name: _explained(_groups([trial.values[key] for trial in known]), values) for key, name in self.names().items()}

    def points(self) -> list[dict[str, Any]]:
        """Return what lines of parallel coordinates go through, the best trial first: the values of every trial that was measured."""
        found = []
        for trial in self.ranked():
            if trial.value is not None and math.isfinite(trial.value):
                found.append({**{self.names()[key]: value for key, value in trial.values.items()}, f"{self.by} ": trial.value})
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
        return {"by": self.by, "mode": self.mode, "budgets": list(self.budgets), "trials": trials, "asked": dict(self.asked)}

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
    within = 0.0
    for group in set(groups):
        inside = [value for value, of in zip(values, groups, strict=True) if of == group]
        centre = statistics.fmean(inside)
        within += sum((value - centre) ** 2 for value in inside)
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
        if not trials or [t.number for t in trials] != list(range(1, len(trials) + 1)) or len({tuple(t.values) for t in trials}) > 1:
            raise ValueError("its trials do not fit together")
        if value["mode"] not in ("max", "min") or not trials[0].values or not isinstance(value["asked"], dict):
            raise ValueError("it does not say what was asked for")
        budgets = [str(budget) for budget in value["budgets"]]
        if any(len(trial.results) > len(budgets) for trial in trials):
            raise ValueError("a trial has more results than there are budgets")
        return Sweep(folder, str(value["by"]), value["mode"], budgets, value["asked"], trials)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        said = (error.strerror or str(error)).lower() if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        raise PeError(f"{path}: no record of a sweep: {said}", hint="name a folder that pe sweep wrote", code=ExitCode.DATA) from None


def _trial(entry: Any) -> Trial:
    state = entry["state"]
    if state not in get_args(State) or not isinstance(entry["values"], dict):
        raise ValueError("a trial has no known state, or no values")
    run = None if entry["run"] is None else Path(str(entry["run"])).name
    results = [float(value) for value in entry["results"]]
    number, step, code = (int(entry.get(key, 0)) for key in ("trial", "step", "code"))
    return Trial(number, entry["values"], cast(State, state), results, step, run, str(entry.get("error", "")), code)
