"""Asynchronous training (Hogwild): threads take files from a list and train one set of parameters without locks."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

from pe_cli.config.nodes import to_data
from pe_cli.core.errors import PeError
from pe_cli.core.threads import Thread
from pe_cli.data import Dataset, Loader, open_reader
from pe_cli.data.counter_random import permutation, stream_key
from pe_cli.data.dataset import Batch
from pe_cli.execute.executor import Executor
from pe_cli.session.benchmarks.plan_facts import Planned
from pe_cli.session.job import Job
from pe_cli.session.processes.process_group import ProcessGroup
from pe_cli.session.training.hogwild_files import training_files
from pe_cli.session.training.loop import Trainer
from pe_cli.session.training.resume import Resume
from pe_cli.session.training.stop import Limits


class AsyncTrainer(Trainer):
    """Trains a job with threads that share its parameters.

    Every thread has programs, temporaries and batches of its own; a step reads the parameters as it finds them and writes
    its updates while others do the same, so that results differ from run to run. Evaluation and checkpoints wait for the
    end of an epoch.

    Of several processes each has threads that share the parameters in its memory, and files of its own; servers have what all of
    them learn. Steps are counted over all processes; within an epoch each knows its own alone.

    Args:
        job: with initial values in its scope, one CPU device.
        smoke, resume, limits: see `Trainer`; a run that was stopped within an epoch begins it anew.

    Raises:
        PeError: a fetched value is not one number; or processes would have to agree between epochs.
    """

    def __init__(
        self, job: Job, *, smoke: bool = False, resume: Resume | None = None, limits: Limits | None = None
    ) -> None:
        if limits is not None and limits.steps is not None:
            # A limit on steps is one of all processes together.
            limits = replace(limits, steps=_share(limits.steps, job.group))
        super().__init__(job, smoke=smoke, resume=resume, limits=limits)
        self._datasets = self._open()
        cores = job.group.cores()
        # A thread without a file would have nothing to do.
        self.threads = min(self.run.executor.threads or cores, len(self._datasets))
        self._executors = [job.executor(job.program, alone=False) for _ in range(self.threads)]
        self._counting = threading.Lock()
        self._started = 0
        self._last: int | None = None
        self._check_watched()
        if self.step_metrics.arrays:
            name = next(iter(self.step_metrics.arrays))
            at = self.run.fetches[name].at
            raise PeError(
                f"'{name}' is not one number: asynchronous training records numbers only", at=at, hint="fetch its mean"
            )

    def _open(self) -> list[Dataset]:
        """Return a data set for every file; all are opened now, so that a mistake in the last is told at once."""
        run = self.job.data.run
        spec = run.data.get("train")
        if spec is None or self.job.data.made_up("train"):
            return [self.job.data.dataset("train")]
        options, base, read = to_data(spec.options), run.path.parent, self.job.data.prepared.sources.read
        opened = (open_reader(spec.reader, {**options, "files": [file]}, base, spec.reader_at, read) for file in training_files(run))
        return [self.job.data.prepared.of(data, "train") for data in opened]

    def _read(self) -> Sequence[Path]:
        """Return the files that the run reads, those of other processes with them."""
        # Files of other processes count as read as well: the checkpoint says what the run has seen.
        own, read = set(training_files(self.job.data.run)), super()._read()
        others = [self.run.path.parent / file for file in training_files(self.run) if file not in own]
        return sorted([*read, *others])

    def _check_watched(self) -> None:
        """Refuse metrics that several processes would have to agree about while none waits for the others."""
        output = self.run.output.checkpoint
        for section in (output.best if output else None, self.section.early_stopping):
            name = section.by.removeprefix("train/") if section is not None and self.job.group.size > 1 else ""
            if section is not None and any(name == known for known, _ in self.step_metrics.by_steps):
                text = f"'{section.by}' is measured within epochs, where processes of asynchronous training do not wait for each other"
                raise PeError(text, at=section.at_of("by"), hint=f"write fetches.{name}.every: 1 epoch, or by: eval/{name}")

    @functools.cached_property
    def files(self) -> list[Loader]:
        """A loader for every file."""
        drop = self.section.drop_last
        return [
            self.job.data.loader("train", self.job.program, self.job.batch_size, drop_last=drop, dataset=d)
            for d in self._datasets
        ]

    # --- the loop -----------------------------------------------------------------------------------------------------

    def _loader(self) -> Loader:
        count, group = len(self.files), self.job.group
        files = f"{count} files" if group.size == 1 else f"{count} of {len(training_files(self.run))} files in this trainer of {group.size}"
        text = f"{self.threads} thread{'s'[: self.threads > 1]} over {files}, asynchronous"
        self.job.resources = replace(self.job.resources, text=text)
        return self.files[0]

    def _steps_of(self, loader: Loader) -> int:
        return self.job.group.added(sum(map(len, self.files)))

    def _epochs(self, loader: Loader) -> None:
        while self.calendar.goes_on(self.at) and not self.stop.asked:
            self._epoch()
            if not self.stop.asked:
                self._after_epoch()

    def _epoch(self) -> None:
        """Train on every file once, raise a thread's first error when all have ended, and count the steps of all processes."""
        # Steps of all threads count from here on, and the share of this process ends at a number.
        before, steps = self.at.step, self.calendar.steps
        self._started = before
        self._last = None if steps is None else before + _share(steps - before, self.job.group)
        waiting: SimpleQueue[Loader] = SimpleQueue()
        # A permutation by seed and epoch: threads take files in an order that a resumed run takes again.
        order = permutation(stream_key("files", self.run.executor.seed, self.at.epoch), len(self.files))
        for i in order:
            waiting.put(self.files[int(i)])
        errors: list[BaseException] = []

        def work(executor: Executor) -> None:
            try:
                for loader in _taken(waiting):
                    for feed in loader.epoch(self.at.epoch):
                        # An error of one thread ends the others at their next step.
                        number = None if errors or self.stop.asked else self._next_step()
                        if number is None:
                            return
                        self._train_on(executor, feed, number)
            # Raised again where somebody waits for it: a thread has no caller.
            except BaseException as error:  # noqa: BLE001 (raised in the caller's thread)
                errors.append(error)

        threads = [Thread(target=work, args=(e,), name=f"async {i}") for i, e in enumerate(self._executors)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        # Other processes have done steps as well, and all count on from the same number.
        self.at.step = before + self.job.group.added(self.at.step - before)

    def _next_step(self) -> int | None:
        """Return the number of a step that nobody has begun, from 0; None where there is none left."""
        # The limit is checked and the number taken at once, so that no two threads do the last step.
        with self._counting:
            if self._last is not None and self._started >= self._last:
                return None
            self._started += 1
            return self._started - 1

    def _train_on(self, executor: Executor, feed: Batch, number: int) -> None:
        """Run one step, and count it while no other thread does."""
        found = executor.run(feed, self.step_metrics.always, number)
        # Steps overlap and what is counted about them must not.
        with self._counting:
            if self.job.observer.wants_plan() and found.plan is not None:
                self.job.observer.planned([Planned(executor, found.plan, None, number)])
            self._count(found)
            self.stop.count()
            self.job.group.heard(self.at.step)
            self._after_step()

    def _after_step(self) -> None:
        """Record what is due within an epoch: of this process's own steps, which the others do not wait for."""
        if self.job.group.size == 1:
            super()._after_step()
            return
        self.run_writer.check()
        due = [name for name, count in self.step_metrics.by_steps if self.at.step % count == 0 and not self.smoke]
        self.run_writer.write("train", self.averages.take(due))


def _share(steps: int, group: ProcessGroup) -> int:
    """Return how many of some steps are this process's."""
    whole, rest = divmod(max(0, steps), group.size)
    return whole + (group.rank < rest)


def _taken(waiting: SimpleQueue[Loader]) -> Iterator[Loader]:
    while True:
        try:
            yield waiting.get_nowait()
        except Empty:
            return
