"""Asynchronous training (Hogwild): threads take files from a list and train one set of parameters without locks."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from dataclasses import replace
from queue import Empty, SimpleQueue

from pe_cli.config.nodes import to_data
from pe_cli.core.cores import usable_cores
from pe_cli.core.errors import PeError
from pe_cli.core.threads import Thread
from pe_cli.data import Dataset, Loader, open_reader
from pe_cli.data.dataset import Batch
from pe_cli.data.hashing import permutation, stream_key
from pe_cli.execute.executor import Executor
from pe_cli.session.job import Job
from pe_cli.session.planned import Planned
from pe_cli.session.resume import Resume
from pe_cli.session.stop import Limits
from pe_cli.session.train import Trainer


class AsyncTrainer(Trainer):
    """Trains a job with threads that share its parameters.

    Every thread has programs, temporaries and batches of its own; a step reads the parameters as it finds them and writes
    its updates while others do the same, so that results differ from run to run. Evaluation and checkpoints wait for the
    end of an epoch.

    Args:
        job: with initial values in its scope, one CPU device.
        smoke, resume, limits: see `Trainer`; a run that was stopped within an epoch begins it anew.

    Raises:
        PeError: a fetched value is not one number.
    """

    def __init__(
        self, job: Job, *, smoke: bool = False, resume: Resume | None = None, limits: Limits | None = None
    ) -> None:
        super().__init__(job, smoke=smoke, resume=resume, limits=limits)
        self._datasets = self._open()
        wanted = self.run.executor.threads or usable_cores()
        self.threads = min(wanted, len(self._datasets))
        self._executors = [job.executor(job.program, alone=False) for _ in range(self.threads)]
        self._counting = threading.Lock()
        self._started = 0
        if self.readings.arrays:
            name = next(iter(self.readings.arrays))
            at = self.run.fetches[name].at
            raise PeError(
                f"'{name}' is not one number: asynchronous training records numbers only", at=at, hint="fetch its mean"
            )

    def _open(self) -> list[Dataset]:
        """Return a data set for every file; all are opened now, so that a mistake in the last is told at once."""
        spec = self.run.data.get("train")
        if spec is None or self.job.data.made_up("train"):
            return [self.job.data.dataset("train")]
        options = to_data(spec.options)
        files = self.run.executor.files or options.get("files", [])
        base, read = self.run.path.parent, self.job.data.prepared.sources.read
        opened = (open_reader(spec.reader, {**options, "files": [file]}, base, spec.reader_at, read) for file in files)
        return [self.job.data.prepared.of(data, "train") for data in opened]

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
        text = f"{self.threads} threads over {len(self.files)} files, asynchronous"
        self.job.resources = replace(self.job.resources, text=text)
        return self.files[0]

    def _steps_of(self, loader: Loader) -> int:
        return sum(map(len, self.files))

    def _epochs(self, loader: Loader) -> None:
        self._started = self.at.step
        while self.calendar.goes_on(self.at) and not self.stop.asked:
            self._epoch()
            if not self.stop.asked:
                self._after_epoch()

    def _epoch(self) -> None:
        """Train on every file once, and raise a thread's first error when all have ended."""
        waiting: SimpleQueue[Loader] = SimpleQueue()
        order = permutation(stream_key("files", self.run.executor.seed, self.at.epoch), len(self.files))
        for i in order:
            waiting.put(self.files[int(i)])
        errors: list[BaseException] = []

        def work(executor: Executor) -> None:
            try:
                for loader in _taken(waiting):
                    for feed in loader.epoch(self.at.epoch):
                        number = None if errors or self.stop.asked else self._next_step()
                        if number is None:
                            return
                        self._train_on(executor, feed, number)
            except BaseException as error:  # noqa: BLE001 (raised in the caller's thread)
                errors.append(error)

        threads = [Thread(target=work, args=(e,), name=f"async {i}") for i, e in enumerate(self._executors)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _next_step(self) -> int | None:
        """Return the number of a step that nobody has begun, from 0; None where there is none left."""
        limit = self.calendar.steps
        with self._counting:
            if limit is not None and self._started >= limit:
                return None
            self._started += 1
            return self._started - 1

    def _train_on(self, executor: Executor, feed: Batch, number: int) -> None:
        """Run one step, and count it while no other thread does."""
        found = executor.run(feed, self.readings.always, number)
        with self._counting:
            if self.job.observer.wants_plan() and found.plan is not None:
                self.job.observer.planned([Planned(executor, found.plan, None, number)])
            self._count(found)
            self.stop.count()
            self._after_step()


def _taken(waiting: SimpleQueue[Loader]) -> Iterator[Loader]:
    while True:
        try:
            yield waiting.get_nowait()
        except Empty:
            return
