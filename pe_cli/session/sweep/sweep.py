"""A sweep before and after its trials are trained: its folder, whether it may go on, and the best config."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.nodes import find, to_data
from pe_cli.config.resolved import resolved_yaml
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io import atomic
from pe_cli.session.sweep.record import BEST, RECORD, Sweep, Trial, read_sweep
from pe_cli.session.sweep.tpe import require_optuna
from pe_cli.session.sweep.training_processes import new_folder
from pe_cli.session.sweep.trial_locks import record
from pe_cli.session.sweep.trials import (
    check_trials,
    combinations_of,
    count_of,
    probes_of,
    repeats_of,
    trials_of,
    variant,
)
from pe_cli.session.training.config_diff import config_diff

#: What ends a trial that may end well another time: the machine, or somebody's signal.
_AGAIN = (ExitCode.DEVICE, ExitCode.PEER_LOST, ExitCode.STALLED)


def new_sweep(run: RunSpec) -> Sweep:
    """Check the config of every trial, and make the folder of a sweep.

    Args:
        run: the config, checked.

    Raises:
        PeError: USAGE; the config has no sweep, a trial's config has a mistake, or the folder can't be written.
    """
    made = checked(run)
    made.folder = new_folder(Path(run.output.dir), f"sweep-{run.name}")
    made.write()
    return made


def checked(run: RunSpec) -> Sweep:
    """Return the sweep that a config asks for, before it has a folder, with the config of every trial checked.

    Raises:
        PeError: USAGE; as `new_sweep`.
    """
    made = _asked(run)
    assert run.sweep is not None
    # Before anything is trained: the package is needed only for the second draw.
    if run.sweep.method == "tpe":
        require_optuna(run.sweep.at_of("method"))
    check_trials(run, [trial.values for trial in made.trials] or probes_of(run.sweep))
    return made


def open_sweep(run: RunSpec, folder: Path | None) -> Sweep | None:
    """Return a sweep to go on with; trials that the machine has ended are to be tried again.

    Args:
        run: the config, checked.
        folder: of the sweep; the newest of this config when None.

    Returns:
        None where the config has none yet.

    Raises:
        PeError: DATA, the folder holds no sweep; USAGE, it was started with another config.
    """
    wanted = _asked(run)
    if folder is None:
        parent, prefix = Path(run.output.dir), f"sweep-{run.name}-"
        found = [p for p in (parent.iterdir() if parent.is_dir() else ()) if p.name.startswith(prefix) and (p / RECORD).is_file()]
        if not found:
            return None
        folder = max(found, key=lambda path: (path.name.split("-")[-2:], path.name))
    # Compared before the lock is taken, so that a wrong config changes nothing.
    _check_same(read_sweep(folder), wanted)
    with record(folder) as sweep:
        atomic.clean_temporaries(folder, held=True)
        for trial in sweep.trials:
            # Trials that failed by the machine are tried again; those that failed by themselves would fail again.
            if trial.state == "failed" and (trial.code in _AGAIN or trial.code < 0):
                trial.state, trial.error, trial.code = "waiting", "", 0
    return sweep


def _check_same(sweep: Sweep, wanted: Sweep) -> None:
    """Refuse to go on with a sweep whose config says something else now.

    Raises:
        PeError: USAGE; it does.
    """
    hint = "write the config as it was, with the same -o; without --resume a new sweep begins"
    old, new = sweep.asked, wanted.asked
    if any(old.get(key) != new[key] for key in ("config", "model")):
        found = config_diff((str(old.get("config")), str(old.get("model"))), (new["config"], new["model"]))
        listed = "; ".join(map(str, found[:5])) or "its text differs"
        raise PeError(f"{sweep.folder} was started with another config: {listed}", hint=hint)
    same = not wanted.trials or [dict(t.values) for t in sweep.trials] == [dict(t.values) for t in wanted.trials]
    same = same and (sweep.repeats, list(sweep.budgets)) == (wanted.repeats, list(wanted.budgets))
    if old.get("sweep") != new["sweep"] or not same:
        raise PeError(f"{sweep.folder} was started with another section sweep", hint=hint)


def _asked(run: RunSpec) -> Sweep:
    """Return the sweep that a config asks for, before anything is trained or checked."""
    section = run.sweep
    if section is None:
        hint = "add sweep: {by: eval/loss, mode: min, over: {train.optimizer.learning_rate: [0.1, 0.01]}}"
        raise PeError("the config has no sweep", at=run.at, hint=hint)
    if run.executor.processes != 1:
        raise PeError("pe sweep starts processes of its own", at=run.executor.at_of("processes"), hint="leave executor.processes out")
    asked = {
        "config": resolved_yaml(run, standalone=True),
        "model": text(run.model_path),
        "sweep": to_data(found) if (found := find(run.tree, ("sweep",))) else None,
    }
    trials = [Trial(number, values) for number, values in enumerate(trials_of(section, combinations_of(section)), 1)]
    repeats, wanted = len(repeats_of(section)), count_of(section)
    return Sweep(Path(), section.by, section.mode, _budgets(run), asked, trials, repeats, wanted)


def _budgets(run: RunSpec) -> list[str]:
    """Return how long trials are trained in turn."""
    assert run.sweep is not None
    assert run.train is not None
    halving = run.sweep.halving
    if halving is None:
        return [""]
    whole = run.train.epochs if halving.first.unit == "epoch" else run.train.steps
    assert whole is not None
    counts = [halving.first.count]
    # As many budgets as factors fit below the whole one.
    while counts[-1] * halving.factor < whole:
        counts.append(counts[-1] * halving.factor)
    return [f"{count} {halving.first.unit}{'s' * (count > 1)}" for count in (*counts, whole)]


def write_best(run: RunSpec, sweep: Sweep) -> Path | None:
    """Write the config of the best trial, ready to train, and its model beside it.

    Returns:
        Its path; None where no trial has a finite metric.

    Raises:
        PeError: it can't be written.
    """
    best = sweep.best
    if best is None:
        return None
    mistakes = Mistakes()
    found = variant(run, best.values, mistakes)
    mistakes.raise_all()
    assert found is not None
    if found.output.name is None:  # the file's name is another one now
        # The best config is a file of its own, and its runs get a name of their own.
        found = replace(found, output=found.output.model_copy(update={"name": f"{run.name}-best"}))
    assert best.value is not None
    assert math.isfinite(best.value)
    path = sweep.folder / BEST
    atomic.write_text(sweep.folder / "model.yaml", text(found.model_path))
    what, how = f"Trial {best.label}", ""
    if sweep.repeats > 1:
        what, how = f"Trials {best.label}", f" on average over {sweep.repeats}, with a standard deviation of {best.deviation:.6g}"
    head = f"# {what} of {sweep.count}: {sweep.by} {best.value:.6g}{how}, at step {best.step}.\n"
    atomic.write_text(path, head + resolved_yaml(found, standalone=True))
    return path


def text(path: Path) -> str:
    """Return the contents of a config or model file, as a sweep keeps them."""
    return path.read_bytes().decode("utf-8-sig")
