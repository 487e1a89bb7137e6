"""The training loop: steps, metrics, evaluation, checkpoints, and what ends it."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.config.period import Period
from pe_cli.config.resolved import resolved_yaml
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.data import Loader
from pe_cli.execute.executor import Executor, merge
from pe_cli.graph.dot import to_dot
from pe_cli.graph.pipeline import apply_passes
from pe_cli.graph.replicate import replicate
from pe_cli.io import atomic, checkpoint
from pe_cli.io.fetches import open_writer
from pe_cli.io.run_folder import RunFolder, environment
from pe_cli.session.averages import Averages
from pe_cli.session.job import Job
from pe_cli.session.observer import NORM, Observer, Observers, Start
from pe_cli.session.profiling import write_trace
from pe_cli.session.recorder import Recorder

Array = np.ndarray[Any, Any]
#: Steps and evaluation batches of a smoke run.
SMOKE_STEPS = 2


@dataclass
class Result:
    """What a training run did.

    Args:
        folder: the run's.
        step: steps done.
        metrics: the newest value of every metric, by `train/loss`, `eval/acc`.
        seconds: spent in the loop, compilation and evaluation included.
        stopped: by a signal.
    """

    folder: Path
    step: int
    metrics: dict[str, float]
    seconds: float
    stopped: bool = False


class StopRequest:
    """Turns the first SIGINT or SIGTERM into a request to stop after the step; the second ends the process at once."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._before[number] = signal.signal(number, self._handle)
            except ValueError:  # not the main thread: whoever runs us there handles signals
                return self
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: object) -> None:
        if self.asked:
            os._exit(ExitCode.INTERRUPTED)
        self.asked = True


@dataclass
class Progress:
    """Where training stands; saved in every checkpoint."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    best: float | None = None
    newest: dict[str, float] = field(default_factory=dict)


class Trainer:
    """Trains a job.

    Args:
        job: with initial values in its scope.
        smoke: two steps and one evaluation batch, every output written.
    """

    def __init__(self, job: Job, *, smoke: bool = False) -> None:
        self.job = job
        self.run = job.run
        self.smoke = smoke
        self.program = job.program
        assert self.run.train, "there is a training program"
        self.section = self.run.train
        self.loss = self.section.loss
        self.executor: Executor = job.executor(self.program)
        self.at = Progress()
        self.averages = Averages()
        self.numbers = job.numbers(self.program)
        self.arrays = {n: job.variable(n) for n in self.run.fetches if n not in self.numbers}
        self.norms = [f"{NORM}{name}" for name in job.built.norms]
        self.periods = self._periods()
        self.observer: Observer = Observers([Recorder(self.run.output, [*self.numbers, *self.norms]), job.observer])
        self.writers: dict[str, Any] = {}
        self._check()

    def _periods(self) -> dict[str, Period]:
        """Return how often every number is recorded; what is watched beside the loss, as often as it."""
        default, fetches = Period(1, "epoch"), self.run.fetches
        beside = {*self.job.built.recorded, *self.norms} - set(fetches)
        every = {n: fetches[n].every for n in fetches}
        return {n: every.get(self.loss if n in beside else n, default) for n in (*self.numbers, *self.norms)}

    def _check(self) -> None:
        """Refuse now what would only fail when the first checkpoint is written or the first value fetched."""
        if self.loss not in self.numbers:
            kind = self.program.global_block().var(self.job.built.loss or self.loss).type
            raise PeError(
                f"the loss '{self.loss}' is {kind}, not one number", at=self.section.at_of("loss"), hint="take its mean"
            )
        output = self.run.output.checkpoint
        if output is not None and output.best is not None:
            known = [
                f"{split}/{name}" for split in self.run.data for name in self.numbers if split in ("train", "eval")
            ]
            if output.best.by not in known:
                hint = did_you_mean(output.best.by, known) or f"one of {', '.join(known)}"
                raise PeError(
                    f"'{output.best.by}' is no metric, one number a step", at=output.best.at_of("by"), hint=hint
                )

    # --- the loop -----------------------------------------------------------------------------------------------------

    def train(self) -> Result:
        """Run all epochs.

        Raises:
            PeError: the loss is no number any more (4), a file cannot be written (2 or 5), data is wrong (3).
        """
        loader = self._loader()
        self.folder = self._folder()
        begin = time.perf_counter()
        state = "failed"
        try:
            with StopRequest() as stop:
                self._announce(loader)
                self._epochs(loader, stop)
                if stop.asked:
                    self._save()
                    state = "stopped"
                    return self._result(begin, stopped=True)
            state = "done"
            result = self._result(begin)
            if self.run.output.trace:
                write_trace(self.job, self.folder.trace_path, self.run.output.trace)
            return result
        finally:
            for writer in self.writers.values():
                writer.close()
            self.folder.status(state=state, step=self.at.step, epoch=self.at.epoch, best=self.at.best)  # type: ignore[arg-type]
            self.observer.ended(state)

    def _epochs(self, loader: Loader, stop: StopRequest) -> None:
        last = 1 if self.smoke else self.section.epochs
        while (last is None or self.at.epoch < last) and not self._enough():
            for feed in loader.epoch(self.at.epoch, self.at.batch):
                fitting = self._fit(feed)
                if fitting is None:
                    continue
                self._step(fitting)
                self.at.batch += 1
                self._after_step()
                if stop.asked:
                    return
                if self._enough():
                    break
            self.at.epoch += 1
            self.at.batch = 0
            self._after_epoch()

    def _enough(self) -> bool:
        limit = SMOKE_STEPS if self.smoke else self.section.steps
        return limit is not None and self.at.step >= limit

    def _fit(self, feed: Mapping[str, Array]) -> Mapping[str, Array] | None:
        """Apply uneven_batch; None leaves the batch out."""
        policy, devices = self.run.executor.uneven_batch, len(self.job.places)
        samples = len(next(iter(feed.values())))
        rest = samples % devices
        if not rest or policy == "weighted":
            return feed
        if policy == "error":
            raise PeError(
                f"a batch of {samples} samples cannot be split evenly over {devices} devices",
                at=self.run.executor.at_of("uneven_batch"),
                hint="use uneven_batch: weighted or drop, or another batch_size",
            )
        return {name: a[: samples - rest] for name, a in feed.items()} if samples > rest else None

    def _step(self, feed: Mapping[str, Array]) -> None:
        due = [n for n in self.arrays if self._due(self.run.fetches[n].every, self.at.step + 1)]
        watched = [self.job.built.norms_name] if self.norms else []
        wanted = dict.fromkeys([*self.numbers.values(), *watched, *(self.arrays[n] for n in due)])
        values, sizes = self.executor.run(feed, list(wanted), self.at.step)
        self.at.step += 1
        samples = sum(sizes)
        loss = math.nan
        for name, variable in self.numbers.items():
            section = self.run.fetches.get(name)
            how = (section.merge if section else None) or "mean"
            joined = np.asarray(merge([v[variable] for v in values], sizes, how), np.float64)
            self.averages.add(name, float(joined.mean()), samples)
            if name == self.loss:
                loss = float(joined.mean())
        for name, length in zip(self.norms, values[0][watched[0]].tolist() if watched else (), strict=True):
            self.averages.add(name, length, samples)
        for name in due:
            self._writer(name).write(self.at.step, {name: self._joined(name, values, sizes)})
        if not math.isfinite(loss):
            at = self.program.global_block().var(self.numbers[self.loss]).at
            raise PeError(
                f"the loss '{self.loss}' is {loss} at step {self.at.step}",
                at=at,
                hint=f"lower the learning rate or clip gradients; {self._kept()}",
                code=ExitCode.DIVERGED,
            )
        self.observer.stepped(self.at.step, self.at.epoch, loss, samples)

    def _joined(self, name: str, values: Sequence[Mapping[str, Array]], sizes: Sequence[int]) -> Array:
        """Return an array's value over all devices: samples one after the other, the rest by its mean."""
        parts = [v[self.arrays[name]] for v in values]
        section = self.run.fetches[name]
        whole = self.program.global_block().var(self.arrays[name]).shape[:1] == (-1,)
        how = section.merge or ("concat" if whole else "mean")
        if how != "list":
            return np.asarray(merge(parts, sizes, how))
        if len({part.shape for part in parts}) > 1:
            raise PeError(
                f"fetch '{name}': devices with {', '.join(map(str, sizes))} samples give no list of one shape",
                at=section.at_of("merge"),
                hint="use merge: concat",
            )
        return np.stack(parts)

    def _kept(self) -> str:
        found = checkpoint.steps(self.folder.checkpoints)
        if not found:
            return "there is no checkpoint yet"
        return f"the last checkpoint is {self.folder.checkpoints}/step-{found[-1]}"

    def _due(self, every: Period, step: int) -> bool:
        """Whether a step-counted period ends at a step; epochs are counted where they end."""
        return (every.unit == "step" and step % every.count == 0) or self.smoke

    def _after_step(self) -> None:
        step = self.at.step
        due = [n for n, period in self.periods.items() if self._due(period, step)]
        if due and not self.smoke:
            self._record("train", self.averages.take(due))
        if self.smoke:
            return
        if self._due(self.section.eval_every, step) and self.section.eval_every.unit == "step":
            self._evaluate()
        output = self.run.output.checkpoint
        if output is not None and output.every.unit == "step" and self._due(output.every, step):
            self._save()
        if step % self.run.exec_strategy.num_iteration_per_drop_scope == 0:
            self.executor.drop_unused()

    def _after_epoch(self) -> None:
        epoch = self.at.epoch
        ended = self._enough() or epoch == self.section.epochs
        due = [n for n, p in self.periods.items() if (p.unit == "epoch" and epoch % p.count == 0) or ended]
        self._record("train", self.averages.take(due))
        every = self.section.eval_every
        if (every.unit == "epoch" and epoch % every.count == 0) or ended or self.smoke:
            self._evaluate()
        output = self.run.output.checkpoint
        if output is not None and (
            (output.every.unit == "epoch" and epoch % output.every.count == 0) or ended or self.smoke
        ):
            self._save()

    # --- what is kept -------------------------------------------------------------------------------------------------

    def _record(self, split: str, values: Mapping[str, float]) -> None:
        if not values:
            return
        self.folder.metric({"step": self.at.step, "epoch": self.at.epoch, "split": split, **values})
        self.at.newest |= {f"{split}/{name}": value for name, value in values.items() if name not in self.norms}
        self.folder.status(state="running", step=self.at.step, epoch=self.at.epoch, best=self.at.best)
        self.observer.recorded(self.at.step, self.at.epoch, {f"{split}/{n}": v for n, v in values.items()})

    def _evaluate(self) -> None:
        if "eval" in self.run.data or (self.smoke and not self.run.data):
            self._record("eval", self.job.evaluate("eval", limit=1 if self.smoke else None))

    def _save(self) -> None:
        output = self.run.output.checkpoint
        if output is None:
            return
        meta = {
            "step": self.at.step,
            "epoch": self.at.epoch,
            "batch": self.at.batch,
            "metrics": self.at.newest,
            "seed": self.run.executor.seed,
            "model": self.run.model.name,
        }
        best = self._is_best()
        checkpoint.save(self.folder.checkpoints, self.at.step, self.job.state(), meta, output.keep)
        checkpoint.mark(self.folder.checkpoints, "last", self.at.step)
        if best:
            checkpoint.mark(self.folder.checkpoints, "best", self.at.step)
        checkpoint.prune(self.folder.checkpoints, output.keep)

    def _is_best(self) -> bool:
        output = self.run.output.checkpoint
        if output is None or output.best is None:
            return False
        value = self.at.newest.get(output.best.by)
        if value is None:  # saved before it was measured for the first time
            return False
        better = self.at.best is None or (value > self.at.best if output.best.mode == "max" else value < self.at.best)
        if better:
            self.at.best = value
        return better

    def _writer(self, name: str) -> Any:
        if name not in self.writers:
            target = self.run.fetches[name].to or f"{name.replace('/', '.').replace('@', '.')}.npz"
            self.writers[name] = open_writer(self.folder.fetches / Path(target).name)
        return self.writers[name]

    # --- beginning and end --------------------------------------------------------------------------------------------

    def _loader(self) -> Loader:
        return self.job.loader("train", self.program, self.job.batch_size, drop_last=self.section.drop_last)

    def _folder(self) -> RunFolder:
        run = self.run
        folder = RunFolder.create(Path(run.output.dir), run.name, run.text, resolved_yaml(run, standalone=True), environment())
        atomic.write_text(folder.path / "model.yaml", run.model_path.read_text(encoding="utf-8"))
        if run.build_strategy.debug_graphviz_path:
            self._draw(folder)
        return folder

    def _draw(self, folder: RunFolder) -> None:
        """Write the graph as it was, after passes, and over all devices."""
        strategy = self.run.build_strategy
        program = self.program
        optimised = apply_passes(program, strategy, [])
        one = self.job.places[:1]
        for name, graph in (
            ("original_graph", replicate(program, one, strategy)),
            ("fused_graph", replicate(optimised, one, strategy)),
            ("multi_devices_graph", replicate(optimised, self.job.places, strategy)),
        ):
            path = folder.path / f"{strategy.debug_graphviz_path}{name}.dot"
            if not path.resolve().is_relative_to(folder.path.resolve()):
                path = Path(f"{strategy.debug_graphviz_path}{name}.dot")
            atomic.write_text(path, to_dot(graph, title=f"{self.run.model.name}: {name}"))

    def _announce(self, loader: Loader) -> None:
        count = sum(math.prod(p.shape) for p in self.program.global_block().parameters())
        epochs = 1 if self.smoke else self.section.epochs
        steps = None if epochs is None else epochs * len(loader)
        limit = SMOKE_STEPS if self.smoke else self.section.steps
        steps = limit if steps is None else (steps if limit is None else min(steps, limit))
        self.observer.started(
            Start(self.run.model.name, count, self.job.devices, steps, epochs, str(self.folder.path))
        )
        self.folder.log(f"devices: {self.job.devices}")

    def _result(self, begin: float, stopped: bool = False) -> Result:
        return Result(self.folder.path, self.at.step, dict(self.at.newest), time.perf_counter() - begin, stopped)
