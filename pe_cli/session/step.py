"""One training step: a batch, split over devices, and before that into parts where gradients are accumulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.devices.protocol import Timeline
from pe_cli.execute.result import StepResult
from pe_cli.execute.split import split_sizes
from pe_cli.graph.compile import Stages
from pe_cli.graph.sequences import declared_levels
from pe_cli.optim.accumulate import SHARE
from pe_cli.session.job import Job
from pe_cli.session.planned import Planned

Array = np.ndarray[Any, Any]
Feed = Mapping[str, Array]


class Stepper:
    """Runs the training programs of a job.

    Args:
        job: with values in its scope when `run` is called.

    Raises:
        PeError: `accumulate` together with `num_iteration_per_run` or with sequences.
    """

    def __init__(self, job: Job) -> None:
        assert job.run.train, "there is a training program"
        self._job = job
        self._count = job.run.train.accumulate
        self._last = job.executor(job.program)
        self._others = job.executor(job.built.parts.program) if job.built.parts else None
        self._early = set(job.built.parts.program.global_block().vars) if job.built.parts else set()
        self._fed = {v.name for v in job.program.list_vars() if v.is_data and not v.type.known}
        if self._others and any(declared_levels(job.program).values()):
            raise PeError(
                "train.accumulate cuts batches into rows, and this model has feeds with sequences",
                at=job.run.train.at_of("accumulate"),
                hint="remove it, or pad the sequences",
            )
        if self._others and job.run.exec_strategy.num_iteration_per_run > 1:
            raise PeError(
                "train.accumulate and exec_strategy.num_iteration_per_run can't be used together",
                at=job.run.train.at_of("accumulate"),
                hint="remove one of them",
            )

    @property
    def batch_size(self) -> int:
        """Samples of a step: of all its parts."""
        return self._job.batch_size * self._count

    def fit(self, feed: Feed) -> Feed | None:
        """Apply uneven_batch; None leaves the batch out.

        Raises:
            PeError: the batch cannot be split evenly, and the config says that this is an error.
        """
        section = self._job.run.executor
        devices = len(self._job.places) * self._job.team.size
        shares = devices * self._count
        if shares == 1 or section.uneven_batch == "weighted":
            return feed
        samples = self._samples(feed)
        kept = samples - samples % shares
        if kept == samples:
            return feed
        if section.uneven_batch == "error":
            parts = f" in {self._count} parts" if self._count > 1 else ""
            raise PeError(
                f"a batch of {samples} samples cannot be split evenly over {devices} devices{parts}",
                at=section.at_of("uneven_batch"),
                hint="use uneven_batch: weighted or drop, or another batch_size",
            )
        if not kept:
            return None
        return {n: a[:kept] for n, a in feed.items()} if self._others else self._last.head(feed, kept)

    def _samples(self, feed: Feed) -> int:
        return len(next(iter(feed.values()))) if self._others else self._last.samples(feed)

    def run(self, feed: Feed, fetches: Sequence[str], step: int) -> StepResult:
        """Do a step.

        Args:
            feed: the batch.
            fetches: names of variables.
            step: number of the step, from 0.

        Returns:
            Values per part and device with samples; what belongs to the whole batch with the last part alone.
        """
        shown = self._job.observer.wants_plan()
        self._job.team.begin_step(step)
        if self._others is None:
            return self._shown(feed, fetches, step) if shown else self._job.team.stepped(self._last.run(feed, fetches, step))
        samples = len(next(iter(feed.values())))
        # the largest part comes last: a device without samples in it has had none before, whose gradients would be lost
        sizes = [n for n in split_sizes(samples, self._count) if n]
        kind = self._job.program.global_block().var(SHARE).type
        values: list[Mapping[str, Array]] = []
        weights: list[int] = []
        for i, (end, size) in enumerate(zip(accumulate(sizes), sizes, strict=True)):
            part = {name: a[end - size : end] if name in self._fed else a for name, a in feed.items()}
            part[SHARE] = np.full(kind.shape, size / samples, kind.numpy)
            last = i == len(sizes) - 1
            executor = self._last if last else self._others
            # what belongs to the whole batch, like the length of its gradient, is there with the last part alone
            wanted = [n for n in fetches if last or n in self._early]
            found = self._job.team.stepped(executor.run(part, wanted, step * self._count + i))
            values += found.values
            weights += found.sizes
        if shown:
            self._show(found, None, step)
        return StepResult(values, weights, dict.fromkeys(fetches, weights), found.plan)

    def _shown(self, feed: Feed, fetches: Sequence[str], step: int) -> StepResult:
        """Do an ordinary step and tell how it went, with the times of its kernels where it is one plan run once."""
        build, times = self._job.run.build_strategy, self._job.run.exec_strategy.num_iteration_per_run
        if times > 1 or not build.remove_unnecessary_lock or self._job.team.peers is not None:
            found = self._last.run(feed, fetches, step)
            self._show(found, None, step)
            return self._job.team.stepped(found)
        found, line = self._last.step_timed(self._last.batch(feed, fetches), step)
        self._show(found, line, step)
        return self._job.team.stepped(found)

    def _show(self, found: StepResult, line: Timeline | None, step: int) -> None:
        assert found.plan is not None, "a step of one plan"
        self._job.observer.planned(Planned(self._last, found.plan, line, step))

    def stages(self, fetches: Sequence[str]) -> Stages:
        """Return the stages of the program that a step with these fetches ends with."""
        return self._last.stages(fetches)

    def drop_unused(self) -> None:
        """Forget temporaries that have not been used lately."""
        for executor in (self._last, self._others):
            if executor is not None:
                executor.drop_unused()
