"""The training loop: steps, metrics, evaluation, checkpoints, and what ends it."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.build.model_warnings import model_warnings
from pe_cli.config.period import Period
from pe_cli.config.spec import DataSpec
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data import Loader
from pe_cli.devices.protocol import device
from pe_cli.execute.batch import StepResult
from pe_cli.io.run_folder import RunFolder, State
from pe_cli.kernels.compiler import garbage_collection
from pe_cli.ops.define.status import OutOfRangeError
from pe_cli.program.text import print_program
from pe_cli.session.data.diagnostics import diagnose_data
from pe_cli.session.data.row_locator import RowPlace, locate_row, not_finite_feed
from pe_cli.session.evaluation.evaluator import Evaluator
from pe_cli.session.job import Job
from pe_cli.session.observer import NORM, Observer, Start
from pe_cli.session.training.averages import Averages
from pe_cli.session.training.calendar import Calendar
from pe_cli.session.training.epoch_lines import EpochLines
from pe_cli.session.training.initial_values import some
from pe_cli.session.training.outcome import Result, Running
from pe_cli.session.training.resume import Resume, fitted_of
from pe_cli.session.training.run_log import Recorder
from pe_cli.session.training.run_writer import RunWriter, folder_of
from pe_cli.session.training.state import Progress
from pe_cli.session.training.step import Stepper
from pe_cli.session.training.step_metrics import StepMetrics, samples_of
from pe_cli.session.training.stop import Limits

Array = np.ndarray[Any, Any]


class Trainer:
    """Trains a job.

    Args:
        job: with initial values in its scope.
        smoke: two steps and one evaluation batch, every output written.
        resume: run to go on with; None starts a new one.
        limits: of this call.
        rerun_check: the folder of a run that is compared with what is computed; nothing else is written then.
    """

    def __init__(
        self,
        job: Job,
        *,
        smoke: bool = False,
        resume: Resume | None = None,
        limits: Limits | None = None,
        rerun_check: RunFolder | None = None,
    ) -> None:
        self.job, self.evaluator = job, Evaluator(job)
        self.rerun_check = rerun_check
        self.run = job.run
        self.smoke = smoke
        self.resume = resume
        _ = job.programs  # says what is missing where there are none
        assert self.run.train
        learned = fitted_of(resume) if resume is not None else None
        if learned is not None:
            job.data.refit(learned)
        self.section = self.run.train
        self.calendar = Calendar(self.run, smoke)
        self._take_programs()
        self.stop = job.group.stop(limits)
        writes = job.group.leads and rerun_check is None
        norms = [f"{NORM}{name}" for name in (job.built.last or job.built).norms]
        decided = job.built.deciding.numbers if job.built.deciding else ()
        recorded = [*self.step_metrics.numbers, *norms, *(metric.name for metric in job.built.metrics), *decided]
        recorder = [Recorder(self.run.output, recorded)] if writes else []
        told = _observers(job) if writes and self.run.output.observers else []
        self.observer: Observer = EpochLines([*recorder, *([] if smoke else told), job.observer])
        self._reading: tuple[Loader, DataSpec | None]
        self.at = Progress()
        self.averages = Averages()
        self._running: Running | None = None
        # On a card Python prepares the next step while one runs; on the CPU both would want the same cores.
        self._ahead = not any(device(place.kind).is_host for place in job.places)  # a step may begin while one is running
        self.step_metrics.check()

    def _take_programs(self) -> None:
        """Train with the programs that the job has now."""
        job = self.job
        self.stepper = Stepper(job)
        self.step_metrics = StepMetrics(job)

    def _release(self) -> None:
        """Train from here on what was frozen until now."""
        waiting = self.job.built.waiting
        come = {str(period) for period in waiting.values() if self.calendar.has_come(period, self.at)}
        if not come:
            return
        self._settle()
        names = [name for name, period in waiting.items() if str(period) in come]
        self.at.released = sorted({*self.at.released, *come})
        self.job.release(self.at.released)
        self._take_programs()
        self.run_writer.tell(f"trained from step {self.at.step + 1} on: {some(names)}")

    # --- the loop -----------------------------------------------------------------------------------------------------

    def train(self, *, given: bool = False) -> Result:
        """Run all epochs.

        Args:
            given: the values in the scope are not those of the startup program: a checkpoint of step 0 keeps them.

        Raises:
            PeError: the loss is no number any more (4), a file cannot be written (2 or 5), data is wrong (3), another process
                trains in the folder (2).
        """
        self.job.group.agree(lambda: "".join(print_program(p, details=True) for p in self.job.programs), self._read)
        loader = self._loader()
        begin = time.monotonic()
        with self.run_writer.hold():
            self.run_writer.open(self.resume)
            self.at, self.averages = self.run_writer.at, self.run_writer.averages
            if self.at.released:
                self._take_programs()
            state: State = "failed"
            try:
                if (prefix := self.run.build_strategy.debug_graphviz_path) and self.job.group.leads and self.rerun_check is None:
                    from pe_cli.session.training.graph_pictures import draw

                    for phase, stages in self.stepper.stages(self.step_metrics.always).items():
                        draw(stages, self.run_writer.folder, f"{prefix}{phase}_" if phase else prefix, self.run.model.name)
                if given:  # values from elsewhere cannot be made again from the seed, so a resume needs them in a checkpoint
                    self.run_writer.save()
                with self.stop, garbage_collection.steady():
                    self._announce(loader)
                    if self.resume is None and self.job.group.leads and self.rerun_check is None:
                        self._look()
                    self._epochs(loader)
                    stopped = self.stop.asked and self.calendar.goes_on(self.at)
                    if stopped:
                        self.run_writer.save()
                for text in [] if self.smoke else self.evaluator.decided():
                    self.run_writer.tell(text)
                state = "stopped" if stopped else "done"
                self.run_writer.close(state)
                if self.run.output.trace and not stopped and self.rerun_check is None:
                    from pe_cli.session.benchmarks.profiling import write_trace

                    write_trace(self.job, self.run_writer.folder.trace_path, self.run.output.trace)
            except BaseException as error:
                self.run_writer.abandon(error)
                raise
            finally:
                self.observer.ended(state)
            metrics = dict(sorted(self.at.newest.items(), key=lambda item: not item[0].startswith("train/")))
            result = Result(self.run_writer.folder.path, self.at.step, metrics, time.monotonic() - begin, stopped, self.smoke)
            self.run_writer.log(result.line())
        return result

    @functools.cached_property
    def run_writer(self) -> RunWriter:
        """What is written of the run; a new run's folder is made when this is first asked for."""
        if self.rerun_check is not None:
            from pe_cli.session.verification.rerun_check import RerunCheck

            return RerunCheck(self.job, self.rerun_check, self.step_metrics.arrays, self.observer)
        if self.job.group.leads:
            return RunWriter(self.job, folder_of(self.job, self.resume), self.step_metrics.arrays, self.observer)
        from pe_cli.session.training.silent_run_writer import SilentRunWriter

        return SilentRunWriter(self.job, None, self.step_metrics.arrays, self.observer)

    def _read(self) -> Sequence[Path]:
        """Return the files and folders that the run reads."""
        data = self.job.data
        with data.prepared.shared(self.job.group.sums):
            for use in ("train", "eval"):
                if use in self.run.data:
                    _ = data.dataset(use) if self.smoke else data.prepared.sources.opened(use)
        return self.job.data.prepared.sources.read

    def _loader(self) -> Loader:
        group, split, stepper = self.job.group, self.run.data.get("train"), self.stepper
        if group.sums is not None:
            with self.job.data.prepared.shared(group.sums):
                for use in [use for use in ("train", "eval") if use in self.run.data]:
                    self.job.data.fed(use)
        if group.size > 1 and split is not None and len(self.job.data.fed("train")) < group.size:
            text = f"data.train has {len(self.job.data.fed('train'))} rows for {group.size} processes that train: some would never have any"
            raise PeError(text, at=split.at, hint="start fewer processes", code=ExitCode.DATA)
        programs, size = self.job.programs, self.job.step_size
        return self.job.data.loader("train", programs, size, drop_last=self.section.drop_last, share=stepper.share())

    def _epochs(self, loader: Loader) -> None:
        if self.at.pending:
            self._after_step()
        while self.calendar.goes_on(self.at) and not self.stop.asked:
            if not self.calendar.enough(self.at):
                self._steps(loader)
            if not self.stop.asked:
                self._after_epoch()

    def _steps(self, loader: Loader) -> None:
        """Do what is left of the epoch."""
        spec = None if self.job.data.made_up("train") else self.run.data.get("train")
        self._reading = loader, spec
        for feed in loader.epoch(self.at.epoch, self.at.batch):
            fitting = self.stepper.fit(feed, loader.size_of(self.at.batch))
            self.at.batch += 1
            if fitting is None:
                continue
            if self.job.built.waiting:
                self._release()
            self._step(*fitting)
            self.stop.count()
            self._after_step()
            if self.stop.asked or self.calendar.enough(self.at):
                break
        self._settle()

    def _step(self, feed: Mapping[str, Array], samples: int) -> None:
        step_metrics = self.step_metrics
        due = [n for n in step_metrics.arrays if self._fetched_now(self.run.fetches[n].every)] if step_metrics.arrays else []
        wanted = step_metrics.variables(due) if due else step_metrics.always
        # a GPU computes one step while Python prepares the next, unless something of this step is needed before the next begins
        late = self._ahead and not due and self._may_be_late()
        if not late and self._running is not None:
            self._settle()
        batch = self.at.batch - 1
        try:
            found = self.stepper.run(feed, wanted, self.at.step, samples, step_metrics.means, late=late)
        except PeError as error:
            self._settle()  # an error of the step before comes first
            self._explain(error, feed, batch)
            raise
        self.at.step += 1
        if late:
            self._settle()  # the step before, while this one may be running
        if found.late:
            self._running = Running(feed, batch, self.at.step, found, due)
        else:
            self._take_explained(found, due, self.at.step, feed, batch)

    def _may_be_late(self) -> bool:
        """Whether what the next step gives may be looked at when the one after it has begun: nothing is known to be due behind it."""
        step = self.at.step + 1
        recorded = any(step % count == 0 for _, count in self.step_metrics.by_steps)
        return not (self.smoke or self.rerun_check or recorded or self.calendar.evaluates(step) or self.calendar.saves(step))

    def _settle(self) -> None:
        """Take what the newest step gave, if that has not been done; this waits for the step."""
        if self._running is None:
            return
        step, self._running = self._running, None
        self._take_explained(step.found, step.due, step.number, step.feed, step.batch)

    def _take_explained(self, found: StepResult, due: Sequence[str], step: int, feed: Mapping[str, Array], batch: int) -> None:
        """Do `_take`; an error names the row of the data that caused it."""
        try:
            self._take(found, due, step)
        except PeError as error:
            self._explain(error, feed, batch)
            raise

    def _fetched_now(self, every: Period) -> bool:
        """Whether a fetch goes to its file with the step that begins; one by epochs does with an epoch's last step, and the run's."""
        step, epoch, loader = self.at.step + 1, self.at.epoch + 1, self._reading[0]
        if every.unit == "step" or self.smoke:
            return self.calendar.ends(every, step)
        if step == self.calendar.steps:
            return True
        # Whether a further step will fit is known from sizes alone: no batch is read for that.
        if any(self.stepper.fits(loader.size_of(batch)) for batch in range(self.at.batch, len(loader))[:2]):
            return False
        return self.calendar.ends_epoch(every, epoch) or self.calendar.is_last(epoch)

    def _explain(self, error: PeError, feed: Mapping[str, Array], batch: int) -> None:
        """Add the row of the data to an error of a step."""
        place = RowPlace(self._reading[0], self.at.epoch, batch, self._reading[1])
        if isinstance(error, OutOfRangeError):
            locate_row(error, feed, place)
        elif error.code == ExitCode.DIVERGED and (bad := not_finite_feed(feed, place)) is not None:
            error.hint = f"{bad}: mend the data; {self.run_writer.newest()}"

    def _count(self, found: StepResult) -> None:
        """Count a step, and take what it gave."""
        self.at.step += 1
        self._take(found, (), self.at.step)

    def _take(self, found: StepResult, due: Sequence[str], step: int) -> None:
        """Take what a step gave into the averages and files.

        Args:
            found: values of all numbers, and of the arrays that are due.
            due: arrays that go to files.
            step: its number, from 1.
        """
        losses = self.step_metrics.add(found, self.averages)
        for name in due:
            self.run_writer.outputs.fetch(name, step, self.step_metrics.joined(name, found))
        for name, loss in losses.items():
            if not math.isfinite(loss):
                raise self.step_metrics.diverged(name, loss, step, self.run_writer.newest())
        self.run_writer.watch(loss)
        self.observer.stepped(step, self.at.epoch, loss, samples_of(found))

    # --- after steps and epochs ---------------------------------------------------------------------------------------

    def _after_step(self) -> None:
        step = self.at.step
        self.run_writer.check()
        if self.smoke:
            return
        output = self.run.output.checkpoint
        saved = output is not None and (self.calendar.saves(step) or self.run_writer.save_due())
        if saved:
            self._settle()
        evaluated: dict[str, float] | None = {}
        if self.calendar.evaluation is not None and self.calendar.evaluates(step):
            evaluated = self._evaluate()
        self.at.pending = evaluated is None
        if evaluated is None:
            return
        by_steps = self.step_metrics.by_steps
        due = [n for n, count in by_steps if step % count == 0] if by_steps else []
        best = bool(due) and self.run_writer.record("train", self.job.group.averaged(self.averages.take(due)))
        if evaluated:
            best |= self.run_writer.record("eval", evaluated)
        if output is not None and (best or saved):
            self.run_writer.save(best)
        if step % self.run.exec_strategy.num_iteration_per_drop_scope == 0:
            self.stepper.drop_unused()

    def _after_epoch(self) -> None:
        """End the epoch; when the evaluation is asked to stop, nothing has changed, and a resumed run begins here."""
        epoch = self.at.epoch + 1
        ended = self.calendar.enough(self.at) or self.calendar.is_last(epoch)
        evaluated = self._evaluate() if ended or self.calendar.evaluates_epoch(epoch) else {}
        if evaluated is None:
            return
        self.at.epoch, self.at.batch = epoch, 0
        best = self.run_writer.note("eval", evaluated)
        ended |= self.calendar.enough(self.at)
        due = [n for n, p in self.step_metrics.periods.items() if ended or self.calendar.ends_epoch(p, epoch)]
        best |= self.run_writer.record("train", self.job.group.averaged(self.averages.take(due)))
        self.run_writer.write("eval", evaluated)
        if self.run.output.checkpoint is not None and (best or ended or self.calendar.saves_epoch(epoch)):
            self.run_writer.save(best)
        self.observer.epoch_ended(self.at.step, epoch)

    def _evaluate(self) -> dict[str, float] | None:
        """Return the metrics of evaluation, none where they are known for this step; None when it was asked to stop."""
        if "eval" not in self.run.data and not (self.smoke and not self.run.data):
            return {}
        if self.at.evaluated == self.at.step:
            return {}
        found = self.evaluator.evaluate("eval", limit=1 if self.smoke else None, stop=lambda: self.stop.now, deciding=not self.smoke)
        if found is not None:
            self.at.evaluated = self.at.step
        return found

    # --- beginning and end --------------------------------------------------------------------------------------------

    def _steps_of(self, loader: Loader) -> int:
        """Return the steps of an epoch."""
        return len(loader)

    def _look(self) -> None:
        """Note how much data there is, and what is wrong with it though it can be trained on; refuse metrics that are too large."""
        for use in ("train", "eval"):
            if use in self.run.data:
                self.run_writer.log(f"data.{use}: {len(self.job.data.fed(use)):,} samples")
        if "eval" in self.run.data and not self.smoke:
            self.evaluator.collector("eval")
        for text in (*model_warnings(self.job.built.eval, self.run.model, self.job.built.read), *diagnose_data(self.job)):
            self.run_writer.tell(text)

    def _announce(self, loader: Loader) -> None:
        count = sum(math.prod(p.shape) for p in self.job.built.eval.parameters())
        steps, epochs = self.calendar.total(self._steps_of(loader)), self.calendar.epochs
        metrics, folder = self.step_metrics.metrics(), str(self.run_writer.folder.path)
        start = Start(self.run.model.name, count, self.job.resources.text, steps, epochs, folder, self.at.step, metrics)
        self.observer.started(start)
        self.run_writer.log(f"devices: {self.job.resources.text}")


def _observers(job: Job) -> list[Observer]:
    """Return what tells the observers that the run file asks for."""
    from pe_cli.session.observers.observer_processes import outside

    return outside(job.run, job.note)
