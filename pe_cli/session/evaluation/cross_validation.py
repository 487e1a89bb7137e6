"""Cross-validation: a run for every fold, each in a process of its own, and one report of all."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pe_cli.config.spec import RunSpec
from pe_cli.config.substitute import escaped
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.signals import held, interruptible
from pe_cli.io import atomic, strict_json
from pe_cli.io.history import Run, find_runs, read_run, value_at
from pe_cli.session.sweep.training_processes import Child, new_folder, start_training, stop

#: Name of the report in the folds' folder.
REPORT = "folds.json"


@dataclass(frozen=True)
class Fold:
    """The result of a fold.

    Args:
        number: from 1.
        run: folder of its run; None where it failed before there was one.
        step: at which the metrics were measured.
        metrics: of evaluation, name -> value.
        error: what ended it; empty where it was trained to its end.
        code: exit code of its process.
    """

    number: int
    run: Path | None
    step: int
    metrics: Mapping[str, float]
    error: str = ""
    code: int = 0


@dataclass(frozen=True)
class Folds:
    """All folds of a run.

    Args:
        folder: theirs.
        folds: by number.
    """

    folder: Path
    folds: Sequence[Fold]

    @property
    def good(self) -> list[Fold]:
        """Those that were trained to their end."""
        return [fold for fold in self.folds if not fold.error]

    def spread(self) -> dict[str, tuple[float, float]]:
        """Return mean and deviation (of a sample: divided by folds - 1) of every metric that all good folds have."""
        found = {}
        for name in self.good[0].metrics if self.good else ():
            values = [fold.metrics[name] for fold in self.good if name in fold.metrics]
            if len(values) == len(self.good) and all(map(math.isfinite, values)):
                found[name] = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
        return found

    def rows(self) -> list[tuple[object, ...]]:
        """Return a table: a header, a row for every fold, mean and deviation."""
        names = list(dict.fromkeys(name for fold in self.folds for name in fold.metrics))
        rows: list[tuple[object, ...]] = [("fold", "step", *names)]
        for fold in self.folds:
            shown = [f"{fold.metrics[name]:.6g}" if name in fold.metrics else "-" for name in names]
            rows.append((fold.number, fold.step or "-", *shown))
        spread = self.spread()
        for i, word in enumerate(("mean", "deviation")):
            rows.append((word, "", *(f"{spread[name][i]:.6g}" if name in spread else "-" for name in names)))
        return rows

    def to_json(self) -> dict[str, object]:
        """Return all of it as JSON values."""
        each = [
            {
                "fold": fold.number, "run": None if fold.run is None else fold.run.name, "step": fold.step,
                "metrics": dict(fold.metrics), **({"error": fold.error} if fold.error else {}),
            }
            for fold in self.folds
        ]  # fmt: skip
        spread = {name: {"mean": mean, "deviation": deviation} for name, (mean, deviation) in self.spread().items()}
        return {"folds": each, "metrics": spread}


def train_folds(
    run: RunSpec, overrides: Sequence[str], count: int, jobs: int, say: Callable[[str], None] = lambda text: None
) -> Folds:
    """Train every fold with `pe train`, and write the report.

    Args:
        run: the config, checked.
        overrides: that it was read with.
        count: folds.
        jobs: folds that are trained at a time; cores are divided among them.
        say: is told of every fold that ends.

    Raises:
        PeError: USAGE; the config has no source to divide, or asks for processes of its own.
        KeyboardInterrupt: after all folds that were training have ended.
    """
    if not any(spec.split for spec in run.data.values()):
        raise PeError(
            "--folds divides data.source, and the config has none",
            at=run.at_of("data"),
            hint="rename data.train to data.source, and leave out data.eval",
        )
    if run.executor.processes != 1:
        raise PeError("--folds starts processes of its own", at=run.executor.at_of("processes"), hint="leave executor.processes out")
    folder = new_folder(Path(run.output.dir), f"{run.name}-folds")
    waiting = list(range(1, count + 1))
    running: dict[int, Child] = {}
    ended: dict[int, Fold] = {}
    interruptible()  # the folds are to end, too
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number = waiting.pop(0)
                # No signal may come between the start of a process and its entry in `running`, by which it is ended.
                with held():
                    running[number] = _start(run, overrides, folder, number, count, jobs)
            for number in [number for number, process in running.items() if process.has_ended]:
                ended[number], said = _ended(running.pop(number), folder, number)
                say(f"fold {number} of {count}: {said}")
            time.sleep(0.02)
    except BaseException:
        stop(running.values())  # each writes a checkpoint and ends
        raise
    found = Folds(folder, [ended[number] for number in range(1, count + 1)])
    atomic.write_text(folder / REPORT, strict_json.dumps(found.to_json(), indent=1) + "\n")
    return found


def _start(run: RunSpec, overrides: Sequence[str], folder: Path, number: int, count: int, jobs: int) -> Child:
    # The folds decide which rows evaluate, so no other share may; and a sweep would train every fold many times.
    wanted = [
        *overrides, f"data.split.folds={count}", f"data.split.fold={number}", "data.split.eval=null", "sweep=null",
        f"output.dir={strict_json.dumps(escaped(str(folder)))}", f"output.name=fold-{number}",
    ]  # fmt: skip
    return start_training(run, wanted, jobs)


def _ended(process: Child, folder: Path, number: int) -> tuple[Fold, str]:
    """Return what came of a process, and what it said last."""
    code, said, error = process.ended()
    path = next((path for path in find_runs(folder) if path.name.startswith(f"fold-{number}-")), None)
    if path is None:
        return Fold(number, None, 0, {}, error or "left no run", code or ExitCode.BUG), error or said
    step, metrics = measured(read_run(path))
    return Fold(number, path, step, metrics, error, code), error or said


def measured(run: Run) -> tuple[int, dict[str, float]]:
    """Return the metrics of evaluation: where the config keeps a best checkpoint those of it, else the last; and their step."""
    evaluated = {name: series for name, series in run.series.items() if name.startswith("eval/") and series.values}
    kept = value_at(run.config, "output", "checkpoint", "best") is not None and run.best is not None
    step = run.best.step if kept and run.best else max((series.steps[-1] for series in evaluated.values()), default=0)
    found = {}
    for name, series in evaluated.items():
        at = [value for s, value in zip(series.steps, series.values, strict=True) if s == step]
        if at:
            found[name] = at[-1]
    return step, found


def read_folds(folder: Path) -> Folds:
    """Return what a folder of folds holds.

    Raises:
        PeError: DATA; it holds no report of folds.
    """
    try:
        value: Any = strict_json.loads((folder / REPORT).read_bytes())
        folds = [
            Fold(
                int(f["fold"]),
                # By its name alone, as the folder may have been moved since.
                folder / Path(str(f["run"])).name if f["run"] else None,
                int(f["step"]),
                {str(name): float(value) for name, value in f["metrics"].items()},
                str(f.get("error", "")),
            )
            for f in value["folds"]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PeError(f"{folder / REPORT}: no report of folds: {error}", code=ExitCode.DATA) from None
    return Folds(folder, folds)
