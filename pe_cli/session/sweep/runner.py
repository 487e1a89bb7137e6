"""Trains the trials of a sweep, alone or beside other processes; whoever is free takes the next trial of the shared record."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path

from pe_cli.config.sections.sweep import SweepSection
from pe_cli.config.spec import RunSpec
from pe_cli.config.substitute import escaped
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.signals import held, interruptible
from pe_cli.io import strict_json
from pe_cli.io.history import Run, find_runs, read_run, value_at
from pe_cli.io.run_files import is_run
from pe_cli.session.sweep.record import Sweep, Trial, text_of
from pe_cli.session.sweep.successive_halving import OpenTrials, open_trials
from pe_cli.session.sweep.sweep import text, write_best
from pe_cli.session.sweep.training_processes import Child, start_training, stop
from pe_cli.session.sweep.trial_locks import claim, record
from pe_cli.session.sweep.trials import key_of

#: Seconds between two polls of the trials that are trained here, and of the record while others train.
LOOK, LOOK_FOR_OTHERS = 0.02, 0.3

Say = Callable[[str], None]


@dataclass
class _Training:
    """A trial that is trained here: its number, its budget, its process and its claim."""

    number: int
    rung: int
    child: Child
    claim: int


@dataclass
class Runner:
    """Trains what is left of a sweep.

    Args:
        run: the config, checked.
        overrides: that it was read with.
        folder: of the sweep.
        jobs: trials that are trained here at a time.
        say: is told of every trial that ends here.
        shared: how many processes with as many jobs share the cores of this machine.
    """

    run: RunSpec
    overrides: Sequence[str]
    folder: Path
    jobs: int
    say: Say
    shared: int = 1
    _running: list[_Training] = field(default_factory=list)
    _stopped: set[int] = field(default_factory=set)
    _waits: bool = False

    def train(self) -> bool:
        """Train until the sweep is done, and write the best config.

        Returns:
            Whether it is done; False where it was interrupted, or somebody stopped a trial.

        Raises:
            PeError: USAGE, a file was changed, or the folder can't be written.
            KeyboardInterrupt: the second interrupt.
        """
        interruptible()  # the trials are to end, too
        # None while the sweep goes on; then whether all is done.
        done: bool | None = None
        try:
            while done is None:
                done = self._look()
        except KeyboardInterrupt:
            self._interrupt()
            done = False
        except BaseException:
            stop([one.child for one in self._running])
            raise
        with record(self.folder) as sweep:
            write_best(self.run, sweep)
        return done

    def _look(self) -> bool | None:
        """Note what has ended, start what can be, and wait a moment; return whether the sweep is done once there is nothing to do."""
        # The record is held for a moment only: other processes of the sweep wait for it.
        with record(self.folder) as sweep:
            for one in [one for one in self._running if one.child.has_ended]:
                self._running.remove(one)
                # All that is decided here follows from the record, so that any process may decide it.
                self._ended(sweep, one)
            left = open_trials(self._section, sweep)
            here = {one.number for one in self._running}
            ready = [t for t in left.trials if t.number not in here | self._stopped]
            others = self._start(sweep, ready, left)
        if not self._running and not others:
            if not left.trials:
                return True
            if all(trial.number in self._stopped for trial in left.trials):
                return False
        self._wait(others)
        return None

    @property
    def _section(self) -> SweepSection:
        assert self.run.sweep is not None
        return self.run.sweep

    def _start(self, sweep: Sweep, ready: Sequence[Trial], left: OpenTrials) -> int:
        """Start trials that nobody trains, as many as there is room for; return how many others train."""
        others = 0
        for trial in ready:
            if len(self._running) >= self.jobs:
                break
            # Whoever holds the lock of a trial trains it, on whichever machine.
            descriptor = claim(self.folder, trial.number)
            if descriptor is None:
                others += 1
                continue
            # Signals wait until the child is noted, or it would be left running.
            with held():
                try:
                    child = self._child(sweep, trial, left.rung, descriptor)
                except BaseException:
                    os.close(descriptor)
                    raise
                trial.state = "running"
                self._running.append(_Training(trial.number, left.rung, child, descriptor))
        return others

    # A file that changes in the middle would give trials that do not compare.
    def _child(self, sweep: Sweep, trial: Trial, rung: int, descriptor: int) -> Child:
        """Start the process of a trial, which keeps the claim, too: none is trained twice where this process dies."""
        _check_unchanged(self.run, sweep)
        wanted = [
            *self.overrides, "sweep=null",
            *(f"{key_of(self.run, key)}={strict_json.dumps(escaped(value))}" for key, value in trial.values.items()),
            f"output.dir={strict_json.dumps(escaped(str(self.folder)))}", f"output.name=trial-{trial.number}",
        ]  # fmt: skip
        if sweep.budgets[rung]:
            count, _, unit = sweep.budgets[rung].partition(" ")
            wanted.append(f"train.{'epochs' if unit.startswith('epoch') else 'steps'}={count}")
        earlier = run_of(self.folder, trial.number)
        # A trial of a larger budget goes on from where the smaller one ended.
        return start_training(self.run, wanted, self.jobs * self.shared, resume=earlier, keep=(descriptor,))

    def _wait(self, others: int) -> None:
        """Wait until a trial of this process has ended, or others may have gone on."""
        if self._running:
            free = len(self._running) < self.jobs
            until = time.monotonic() + LOOK_FOR_OTHERS
            # It looks around for others' ends only where there is room to start something.
            while not any(one.child.has_ended for one in self._running) and not (free and others and time.monotonic() > until):
                time.sleep(LOOK)
            return
        if not self._waits:
            self.say("waits for trials that other processes train")
            self._waits = True
        time.sleep(LOOK_FOR_OTHERS)

    def _ended(self, sweep: Sweep, one: _Training) -> None:
        """Note what came of a trial."""
        trial = sweep.trials[one.number - 1]
        code, _, error = one.child.ended()
        # The child kept it open as well: the trial is free once both are closed.
        os.close(one.claim)
        path = run_of(self.folder, trial.number)
        trial.run = None if path is None else path.name
        if code in (ExitCode.STOPPED, ExitCode.INTERRUPTED):
            trial.state = "stopped"
            # Stopped by somebody: this process does not start it again.
            self._stopped.add(trial.number)
        else:
            _measure(sweep, trial, path, code, error)
            if trial.state == "running":
                trial.state = "done" if one.rung == len(sweep.budgets) - 1 else "waiting"
        self._tell(sweep, trial, one.rung)

    def _tell(self, sweep: Sweep, trial: Trial, rung: int) -> None:
        names = sweep.names()
        values = ", ".join(f"{names[key]} {text_of(value)}" for key, value in trial.values.items())
        after = f" after {sweep.budgets[rung]}" if sweep.budgets[rung] else ""
        came = f"{sweep.by} {trial.value:.6g}" if trial.state in ("done", "waiting") else trial.state
        self.say(f"trial {trial.number} of {sweep.count}{after}: {came}  ({values})")

    def _interrupt(self) -> None:
        """Make the trials write checkpoints and end."""
        stop([one.child for one in self._running])
        # Written before the locks are given back, so that nobody takes a trial that is noted as running.
        with record(self.folder) as sweep:
            for one in self._running:
                trial, path = sweep.trials[one.number - 1], run_of(self.folder, one.number)
                trial.state, trial.run = "stopped", None if path is None else path.name
                os.close(one.claim)
        self._running.clear()


def _measure(sweep: Sweep, trial: Trial, path: Path | None, code: int, error: str) -> None:
    """Note the metric of a trial that was trained to the end of its budget, or why there is none."""
    if not code and path is not None:
        read = read_run(path)
        found = metric_of(read, sweep.by, sweep.mode)
        if found is not None:
            value, trial.step = found
            trial.results.append(value)
            return
        error = f"error: nothing was measured as '{sweep.by}'"
        error += f"\nhint: {did_you_mean(sweep.by, read.series) or 'evaluate more often, by train.eval_every'}"
    trial.state, trial.error, trial.code = "failed", error or "error: it left no run", code or ExitCode.DATA


def _check_unchanged(run: RunSpec, sweep: Sweep) -> None:
    """Refuse to go on where a file was changed under the sweep: trials could not be compared.

    Raises:
        PeError: USAGE; config or model were changed.
    """
    for path, known in ((run.path, run.text), (run.model_path, str(sweep.asked.get("model")))):
        # The trial itself tells what it cannot read.
        with contextlib.suppress(OSError, ValueError):  # the trial says it, with more words
            if text(path) != known:
                raise PeError(f"{path} was changed while the sweep trained", hint="undo the change, then go on with --resume")


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
