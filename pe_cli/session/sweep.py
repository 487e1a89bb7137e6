"""A sweep: trials with other values, each trained in a process of its own, until the best config is known."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pe_cli.config.mistakes import Mistakes
from pe_cli.config.nodes import MapNode, find, to_data
from pe_cli.config.overrides import apply_overrides
from pe_cli.config.resolved import resolved_yaml
from pe_cli.config.spec import RunSpec
from pe_cli.config.substitute import escaped
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.core.signals import interruptible
from pe_cli.io import atomic, lock, strict_json
from pe_cli.io.history import Run, find_runs, read_run, value_at
from pe_cli.io.run_folder import is_run
from pe_cli.session.changes import changes
from pe_cli.session.children import Child, new_folder, start_training, stop
from pe_cli.session.sweep_record import BEST, RECORD, Sweep, Trial, read_sweep, text_of
from pe_cli.session.trials import check_trials, trials_of, variant

#: Seconds that a sweep waits for trials of an earlier process, which end with a checkpoint when that process is killed.
PATIENCE = 30.0
#: What ends a trial that may end well another time: the machine, or somebody's signal.
_AGAIN = (ExitCode.DEVICE, ExitCode.PEER_LOST, ExitCode.STALLED)

Say = Callable[[str], None]


def new_sweep(run: RunSpec) -> Sweep:
    """Check the config of every trial, and make the folder of a sweep.

    Args:
        run: the config, checked.

    Raises:
        PeError: USAGE; the config has no sweep, a trial's config has a mistake, or the folder can't be written.
    """
    made = _asked(run, Path())
    check_trials(run, [trial.values for trial in made.trials])
    folder = new_folder(Path(run.output.dir), f"sweep-{run.name}")
    made = Sweep(folder, made.by, made.mode, made.budgets, made.asked, made.trials)
    made.write()
    return made


def open_sweep(run: RunSpec, folder: Path | None) -> Sweep | None:
    """Return a sweep to go on with.

    Args:
        run: the config, checked.
        folder: of the sweep; the newest of this config when None.

    Returns:
        None where the config has none yet.

    Raises:
        PeError: DATA, the folder holds no sweep; USAGE, it was started with another config.
    """
    wanted = _asked(run, Path())
    if folder is None:
        parent, prefix = Path(run.output.dir), f"sweep-{run.name}-"
        found = [p for p in (parent.iterdir() if parent.is_dir() else ()) if p.name.startswith(prefix) and (p / RECORD).is_file()]
        if not found:
            return None
        folder = max(found, key=lambda path: (path.name.split("-")[-2:], path.name))
    sweep = read_sweep(folder)
    _check_same(sweep, wanted)
    for trial in sweep.trials:
        if trial.state in ("running", "stopped", "halted") or trial.code in _AGAIN or trial.code < 0:
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
        found = changes((str(old.get("config")), str(old.get("model"))), (new["config"], new["model"]))
        listed = "; ".join(map(str, found[:5])) or "its text differs"
        raise PeError(f"{sweep.folder} was started with another config: {listed}", hint=hint)
    same = [dict(t.values) for t in sweep.trials] == [dict(t.values) for t in wanted.trials]
    if old.get("sweep") != new["sweep"] or not same or list(sweep.budgets) != list(wanted.budgets):
        raise PeError(f"{sweep.folder} was started with another section sweep", hint=hint)


def _asked(run: RunSpec, folder: Path) -> Sweep:
    """Return the sweep that a config asks for, before anything is trained."""
    section = run.sweep
    if section is None:
        hint = "add sweep: {by: eval/loss, mode: min, over: {train.optimizer.learning_rate: [0.1, 0.01]}}"
        raise PeError("the config has no sweep", at=run.at, hint=hint)
    if run.executor.processes != 1:
        raise PeError("pe sweep starts processes of its own", at=run.executor.at_of("processes"), hint="leave executor.processes out")
    asked = {
        "config": resolved_yaml(run, standalone=True),
        "model": _text(run.model_path),
        "sweep": to_data(found) if (found := find(run.tree, ("sweep",))) else None,
    }
    trials = [Trial(number, values) for number, values in enumerate(trials_of(section), 1)]
    return Sweep(folder, section.by, section.mode, _budgets(run), asked, trials)


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
    while counts[-1] * halving.factor < whole:
        counts.append(counts[-1] * halving.factor)
    return [f"{count} {halving.first.unit}{'s' * (count > 1)}" for count in (*counts, whole)]


@dataclass
class Runner:
    """Trains what is left of a sweep.

    Args:
        run: the config, checked.
        overrides: that it was read with.
        sweep: as far as it has come.
        jobs: trials that are trained at a time.
        say: is told of every trial that ends.
    """

    run: RunSpec
    overrides: Sequence[str]
    sweep: Sweep
    jobs: int
    say: Say
    _running: dict[int, Child] = field(default_factory=dict)
    _held: int = -1

    def train(self) -> bool:
        """Train until the sweep is done, and write the best config.

        Returns:
            Whether it is done; False where it was interrupted, or somebody stopped a trial.

        Raises:
            PeError: USAGE, another process has the folder, or a file was changed; it can't be written.
            KeyboardInterrupt: the second interrupt.
        """
        interruptible()  # the trials are to end, too
        with _hold(self.sweep.folder, self.say) as self._held:
            atomic.clean_temporaries(self.sweep.folder, held=True)
            try:
                done = self._rungs()
            except KeyboardInterrupt:
                self._interrupt()
                done = False
            except BaseException:
                stop(self._running.values())
                raise
            write_best(self.run, self.sweep)
        return done

    def _rungs(self) -> bool:
        going = list(self.sweep.trials)
        last = len(self.sweep.budgets) - 1
        for rung in range(last + 1):
            self._train_all(going, rung)
            if any(trial.state == "stopped" for trial in going):
                return False
            if rung < last:
                going = self._better(going, rung)
        self.sweep.write()
        return True

    def _better(self, trials: Sequence[Trial], rung: int) -> list[Trial]:
        """Return those that go on after a budget; the others are halted."""
        assert self.run.sweep is not None
        assert self.run.sweep.halving is not None
        good = sorted((t for t in trials if len(t.results) > rung), key=lambda t: self.sweep.rank(t, rung))
        kept = good[: max(1, len(trials) // self.run.sweep.halving.factor)]
        for trial in good:
            trial.state = trial.state if trial in kept else "halted"
        return sorted(kept, key=lambda t: t.number)

    def _train_all(self, trials: Sequence[Trial], rung: int) -> None:
        waiting = [trial for trial in trials if trial.state != "failed" and len(trial.results) <= rung]
        by_number = {trial.number: trial for trial in trials}
        while waiting or self._running:
            while waiting and len(self._running) < self.jobs:
                self._start(waiting.pop(0), rung)
            for number in [number for number, child in self._running.items() if child.has_ended]:
                self._ended(by_number[number], self._running.pop(number), rung)
            time.sleep(0.02)

    def _start(self, trial: Trial, rung: int) -> None:
        _check_unchanged(self.run, self.sweep)
        folder = self.sweep.folder
        wanted = [
            *self.overrides, "sweep=null", *(f"{key}={strict_json.dumps(value)}" for key, value in trial.values.items()),
            f"output.dir={strict_json.dumps(escaped(str(folder)))}", f"output.name=trial-{trial.number}",
        ]  # fmt: skip
        if self.sweep.budgets[rung]:
            count, _, unit = self.sweep.budgets[rung].partition(" ")
            wanted.append(f"train.{'epochs' if unit.startswith('epoch') else 'steps'}={count}")
        earlier = run_of(folder, trial.number)
        trial.state = "running"
        self.sweep.write()
        self._running[trial.number] = start_training(self.run, wanted, self.jobs, resume=earlier, keep=(self._held,))

    def _ended(self, trial: Trial, child: Child, rung: int) -> None:
        """Note what came of a trial."""
        code, _, error = child.ended()
        path = run_of(self.sweep.folder, trial.number)
        trial.run = None if path is None else path.name
        if code in (ExitCode.STOPPED, ExitCode.INTERRUPTED):
            trial.state = "stopped"
        else:
            self._measure(trial, path, code, error)
            if trial.state == "running":
                trial.state = "done" if rung == len(self.sweep.budgets) - 1 else "waiting"
        self.sweep.write()
        self._tell(trial, rung)

    def _measure(self, trial: Trial, path: Path | None, code: int, error: str) -> None:
        if not code and path is not None:
            read = read_run(path)
            found = metric_of(read, self.sweep.by, self.sweep.mode)
            if found is not None:
                value, trial.step = found
                trial.results.append(value)
                return
            error = f"error: nothing was measured as '{self.sweep.by}'"
            error += f"\nhint: {did_you_mean(self.sweep.by, read.series) or 'evaluate more often, by train.eval_every'}"
        trial.state, trial.error, trial.code = "failed", error or "error: it left no run", code or ExitCode.DATA

    def _tell(self, trial: Trial, rung: int) -> None:
        names = self.sweep.names()
        values = ", ".join(f"{names[key]} {text_of(value)}" for key, value in trial.values.items())
        after = f" after {self.sweep.budgets[rung]}" if self.sweep.budgets[rung] else ""
        came = f"{self.sweep.by} {trial.value:.6g}" if trial.state in ("done", "waiting") else trial.state
        self.say(f"trial {trial.number} of {len(self.sweep.trials)}{after}: {came}  ({values})")

    def _interrupt(self) -> None:
        """Let the trials write checkpoints and end."""
        stop(self._running.values())
        for trial in self.sweep.trials:
            if trial.state == "running":
                path = run_of(self.sweep.folder, trial.number)
                trial.state, trial.run = "stopped", None if path is None else path.name
        self._running.clear()
        self.sweep.write()


@contextlib.contextmanager
def _hold(folder: Path, say: Say) -> Iterator[int]:
    """Keep other processes out of a sweep's folder; trials inherit the lock, so that none is trained twice."""
    until, told = time.monotonic() + PATIENCE, False
    with contextlib.ExitStack() as stack:
        while True:
            try:
                descriptor, _ = stack.enter_context(lock.held(folder))
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise PeError(f"{folder}: another process trains this sweep", hint="wait for its end, or stop it") from None
            if not told:
                say("waits for another process, or for trials that it has left")
            told = True
            time.sleep(0.1)
        yield descriptor


def _check_unchanged(run: RunSpec, sweep: Sweep) -> None:
    """Refuse to go on where a file was changed under the sweep: trials could not be compared.

    Raises:
        PeError: USAGE; config or model were changed.
    """
    for path, text in ((run.path, run.text), (run.model_path, str(sweep.asked.get("model")))):
        with contextlib.suppress(OSError, ValueError):  # the trial says it, with more words
            if _text(path) != text:
                raise PeError(f"{path} was changed while the sweep trained", hint="undo the change, then go on with --resume")


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8-sig")


def run_of(folder: Path, number: int) -> Path | None:
    """Return the folder of a trial's run, None where there is none yet."""
    if not folder.is_dir() or is_run(folder):
        return None
    found = [path for path in find_runs(folder) if path.name.startswith(f"trial-{number}-")]
    return found[-1] if found else None


def metric_of(run: Run, by: str, mode: str) -> tuple[float, int] | None:
    """Return a metric and its step: where the config keeps the checkpoint that is best by it the best, else the last."""
    series = run.series.get(by)
    if series is None or not series.values:
        return None
    rule = value_at(run.config, "output", "checkpoint", "best")
    if isinstance(rule, dict) and (rule.get("by"), rule.get("mode")) == (by, mode) and run.best is not None:
        return run.best.value, run.best.step
    return series.values[-1], series.steps[-1]


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
    named = run if run.output.name else replace(run, tree=_named(run))
    found = variant(named, best.values, mistakes)
    mistakes.raise_all()
    assert found is not None
    assert best.value is not None
    assert math.isfinite(best.value)
    path = sweep.folder / BEST
    atomic.write_text(sweep.folder / "model.yaml", _text(found.model_path))
    head = f"# Trial {best.number} of {len(sweep.trials)}: {sweep.by} {best.value:.6g} at step {best.step}.\n"
    atomic.write_text(path, head + resolved_yaml(found, standalone=True))
    return path


def _named(run: RunSpec) -> MapNode:
    """Return the tree with a name of the run, as the file's name is now another one."""
    mistakes = Mistakes()
    return apply_overrides(run.tree, [f"output.name={strict_json.dumps(f'{run.name}-best')}"], mistakes)
