"""Writes a training run's folder: metrics, fetched values, checkpoints and status."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np

from pe_cli.config.resolved import resolved_yaml
from pe_cli.config.sections.train import PlateauSection
from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.io import checkpoint
from pe_cli.io.environment import environment
from pe_cli.io.input_hashes import Inputs, changed
from pe_cli.io.run_folder import RunFolder, State
from pe_cli.kernels.compiler import target
from pe_cli.metrics.decisions import Decision
from pe_cli.session.job import Job
from pe_cli.session.observer import NORM, Observer
from pe_cli.session.processes.agreement import differing
from pe_cli.session.training.averages import Averages
from pe_cli.session.training.checkpoint_writer import CheckpointWriter, Snapshot, kept
from pe_cli.session.training.early_stopping import Measures, lowered
from pe_cli.session.training.kept_outputs import Outputs
from pe_cli.session.training.resume import Resume, check_config, environment_changes, restore
from pe_cli.session.training.state import Progress


def folder_of(job: Job, resume: Resume | None) -> RunFolder:
    """Return the folder of the run that is gone on with, or a new one.

    Raises:
        PeError: USAGE or DEVICE, it can't be written.
    """
    if resume is not None:
        return resume.folder
    run = job.run
    model_text = run.model_path.read_text(encoding="utf-8")
    resolved = resolved_yaml(run, standalone=True)
    return RunFolder.create(Path(run.output.dir), run.name, run.text, resolved, recorded(job), model_text=model_text)


def recorded(job: Job) -> dict[str, object]:
    """Return what decides about the bits of a run beside its config, as JSON values."""
    code = f"{target.chosen()} ({target.cpu_name()}, vectors of {8 * target.vector_bytes()} bits)"
    # Kernels for other instructions may round otherwise: the record says which ones ran.
    return {**environment(), "devices": [place.kind for place in job.places] * job.group.size, "instructions": code}


def begun(job: Job, folder: RunFolder) -> None:
    """Begin together: where several processes train, with the same values.

    Raises:
        PeError: DEVICE; another process begins with other values.
    """
    if job.group.peers is None:
        return
    job.share()
    job.group.trains_in(folder.path.absolute())
    job.group.advise(f"{job.group.again(folder.path)} goes on from the last checkpoint, with any number of processes")
    # All begin with equal values, or they train two models that are averaged.
    if found := differing(job.group.peers, job.values.digest().encode()):
        other = min(rank for rank in found if rank)
        hint = "they need the same files, packages and kind of processor"
        raise PeError(f"process {other} begins with other values than process 0", hint=hint, code=ExitCode.DEVICE)


class RunWriter:
    """Writes what training leaves; use it with the folder held.

    Args:
        job: that is trained.
        folder: of the run.
        fetched: names of the fetches that go to files.
        observer: is told of metrics.

    Attributes:
        at: where training stands.
        averages: of the metrics since they were last recorded.
        outputs: growing files.
    """

    def __init__(self, job: Job, folder: RunFolder, fetched: Collection[str], observer: Observer) -> None:
        self._job, self._run, self.folder, self._observer = job, job.run, folder, observer
        self._section = self._run.output.checkpoint
        self.at, self.averages = Progress(), Averages()
        self.outputs = Outputs(folder, {name: self._run.fetches[name] for name in fetched})
        self._measures = self._measuring()
        self._saver = CheckpointWriter(folder.checkpoints, self._section.keep if self._section else 1, self._changing())
        self._saved: tuple[int, int, int, bool] | None = None
        # Seconds between checkpoints count from the start of this process.
        self._saved_at = time.monotonic()
        self._learned: tuple[Decision | None, Mapping[str, bytes]] | None = None
        self._inputs = Inputs(folder)
        job.group.watch_time(self._period_over)

    def _changing(self) -> dict[str, Span | None]:
        """Return the parameters that training writes, with their places: a constant, such as a mask, may hold infinities."""
        built = self._job.built
        written = {name for op in [*built.ops, *(built.last.ops if built.last else ())] for names in op.outputs.values() for name in names}
        return {p.name: p.at for p in built.eval.parameters() if p.trainable or p.name in written}

    def _measuring(self) -> Measures:
        train, best = self._run.train, self._section.best if self._section else None
        return Measures(best, train.early_stopping if train else None, self.tell, train.plateau if train else None, self._lower)

    def _lower(self, section: PlateauSection) -> tuple[float, float] | None:
        """Lower the learning rate, a variable that checkpoints keep."""
        scope, name = self._job.scope, self._job.built.recorded["learning_rate"]
        before = scope.get(name)
        rate = lowered(float(before[0]), section)
        if rate is None:
            return None
        self._job.values.change(name, np.full_like(before, rate))
        return float(before[0]), rate

    # --- beginning and end --------------------------------------------------------------------------------------------

    def hold(self) -> contextlib.AbstractContextManager[None]:
        """Keep other runs out of the folder; see `RunFolder.hold`."""
        return self.folder.hold()

    def open(self, resume: Resume | None) -> None:
        """Begin; where a run is resumed, go back to its checkpoint.

        Raises:
            PeError: USAGE, the config changes its meaning, or a file can't be written; DATA, it has no whole checkpoint.
        """
        if resume is not None:
            self._restore(resume)
        told = {"step": self.at.step if self._saved else None, "partial": resume is not None and resume.allow_changes}
        # Told before anything is written: the other processes wait here for the folder.
        self._job.group.texts({"folder": str(self.folder.path.absolute()), **told})
        begun(self._job, self.folder)
        self._job.log_to(self.folder.log)
        if resume is not None:
            for text in changed(self.folder, self._job.data.prepared.sources.read):
                self.tell(f"data: {text}")
        self._inputs.begin(self._job.data.prepared.sources.read)

    def _restore(self, resume: Resume) -> None:
        # What an earlier process left unfinished; the folder is held, so nobody else writes.
        self.folder.clean()
        for text in (*check_config(resume, self._run), *environment_changes(self.folder)):
            self.tell(text)
        self.folder.write_missing(recorded(self._job))
        damaged = self.folder.known_status().get("damaged")
        if damaged:
            self.tell(f"{damaged}; the checkpoints say how far the run is")
        found = restore(resume)
        if found.arrays:
            self._job.release(found.progress.released, kept=False)
            self._job.values.restore(found.arrays, partial=resume.allow_changes)
        self.at, self.averages = found.progress, found.averages
        if found.arrays:
            self._saved = self._now()
            if self._section is not None:
                # Marks are right by now, so that nothing that they point at is removed.
                checkpoint.prune(self.folder.checkpoints, self._section.keep)  # a kill may have ended the last one
        for text in (*found.notes, *self.outputs.restore(found.positions)):
            self.tell(text)
        # A warning that belongs to steps that are done again does not hold any more.
        self.folder.status(warning="" if self.at.outgrown is None else None)
        self._status("running")

    def close(self, state: State) -> None:
        """End well.

        Raises:
            PeError: USAGE or DEVICE, something can't be written; DIVERGED, a parameter of the last checkpoint is not finite.
        """
        # Everything that is in the air is on the disk before the state says so.
        self._saver.wait()
        self.outputs.close()
        self._inputs.finish(self._job.data.prepared.sources.read, self._job.kernels())
        self.folder.clean()
        self._status(state)

    def abandon(self, why: BaseException) -> None:
        """End as well as that goes, and say why in log and status: the error that is on its way counts."""
        said = _said(why)
        first = said.splitlines()[0].removeprefix("error: ")
        ends = (
            self._saver.wait,
            self.outputs.abandon,
            lambda: self.folder.log(said),
            lambda: self.folder.status(state="failed", step=self.at.step, epoch=self.at.epoch, error=first),
        )
        for end in ends:
            # As much as possible is saved: an error while ending must not hide the first one.
            with contextlib.suppress(PeError):
                end()

    def log(self, text: str) -> None:
        """Write something in the log."""
        self.folder.log(text)

    def tell(self, text: str) -> None:
        """Say something to the user, and in the log."""
        self._job.note(text)

    def _status(self, state: State | None = None) -> None:
        self.folder.status(state=state, step=self.at.step, epoch=self.at.epoch, best=self.at.best)

    # --- metrics ------------------------------------------------------------------------------------------------------

    def note(self, use: str, values: Mapping[str, float]) -> bool:
        """Note metrics; return whether they are the best so far, so that a checkpoint should be written."""
        # Lengths of gradients are recorded and no measure of how good a model is.
        return self._measures.note(self.at, use, {n: v for n, v in values.items() if not n.startswith(NORM)})

    def watch(self, loss: float) -> None:
        """Look at the finite loss of a step, and warn once where it has grown beyond all measure.

        Raises:
            PeError: log or status can't be written.
        """
        said = self._measures.watch(self.at, loss)
        if said is not None:
            self.folder.log(f"warning: {said}")
            self._job.observer.note(said)
            self.folder.status(step=self.at.step, epoch=self.at.epoch, warning=said)

    def record(self, use: str, values: Mapping[str, float]) -> bool:
        """Note metrics and write them down; see `note`.

        Raises:
            PeError: the file can't be written.
        """
        best = self.note(use, values)
        self.write(use, values)
        return best

    def write(self, use: str, values: Mapping[str, float]) -> None:
        """Write metrics down, where there are any.

        Raises:
            PeError: the file can't be written.
        """
        if not values:
            return
        self.outputs.metric({"step": self.at.step, "epoch": self.at.epoch, "split": use, **values})
        self._status()
        self._observer.recorded(self.at.step, self.at.epoch, {f"{use}/{n}": v for n, v in values.items()})

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise what went wrong in the thread that writes.

        Raises:
            PeError: see `CheckpointWriter.check`.
        """
        self._saver.check()

    def newest(self) -> str:
        """Return a clause on the newest checkpoint."""
        with contextlib.suppress(PeError):
            self._saver.wait()
        return kept(self.folder.checkpoints)

    def save_due(self) -> bool:
        """Whether a period of time is over since the last checkpoint."""
        return self._job.group.save_due()

    def _period_over(self) -> bool:
        """Whether it is by this process's clock, which nobody sets."""
        seconds = self._section.every.seconds if self._section else None
        return seconds is not None and time.monotonic() - self._saved_at >= seconds

    def _now(self) -> tuple[int, int, int, bool]:
        return self.at.step, self.at.epoch, self.at.batch, self.at.pending

    def _is_new(self, best: bool) -> bool:
        """Whether a checkpoint is due of this very state, which counts as saved from now on; best: it is the best so far."""
        # A checkpoint of the same place would replace itself.
        if self._section is None or self._saved == self._now():
            return False
        self._saved, self._saved_at = self._now(), time.monotonic()
        if best:
            self.at.best_step = self.at.step
        return True

    def save(self, best: bool = False) -> None:
        """Hand a copy of everything to the thread that writes; nothing where this very state is saved already.

        Args:
            best: whether it is the best so far.

        Raises:
            PeError: the checkpoint before could not be written.
        """
        if not self._is_new(best):
            return
        meta = {
            "epoch": self.at.epoch,
            "batch": self.at.batch,
            "metrics": dict(self.at.newest),
            "seed": self._run.executor.seed,
            "model": self._run.model.name,
            "progress": self.at.to_json(),
            "averages": self.averages.to_json(),
            "outputs": self.outputs.positions(),
            "config": self._config,
        }
        # One writer at a time works in the folder.
        self._saver.wait()  # it may tidy the folder in which servers write now
        state, pieces = self._job.values.save(self.folder.checkpoints)
        self._saver.save(Snapshot(self.at.step, state, meta, best, self.outputs.paths(), self._beside(), pieces))

    @cached_property
    def _config(self) -> str:
        """The config as checkpoints keep it; it never changes in a run, and to write it takes as long as a small step."""
        # Made once: it is the same in all checkpoints of a run, and takes a while.
        return resolved_yaml(self._run, standalone=True)

    def _beside(self) -> Mapping[str, bytes]:
        """Return what the columns of the data have learned, which never changes in a run, and what was decided, as files."""
        fitted = self._job.data.fitted
        if self._learned is None or self._learned[0] is not fitted.decision:
            self._learned = fitted.decision, fitted.to_files() if fitted.columns or fitted.split or fitted.decision else {}
        return self._learned[1]


def _said(error: BaseException) -> str:
    """Return what the terminal says of what ended a run."""
    if isinstance(error, PeError):
        return error.render()
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return f"error: {type(error).__name__}: {error}".rstrip(": ")
