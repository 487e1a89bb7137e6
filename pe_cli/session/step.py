"""One training step: a batch, split over devices, and before that into parts where gradients are accumulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.data.loader import Share
from pe_cli.devices.protocol import Timeline
from pe_cli.execute.result import StepResult, joined_parts
from pe_cli.graph.compile import Stages
from pe_cli.graph.sequences import declared_levels
from pe_cli.optim.accumulate import SHARE
from pe_cli.session.job import Job
from pe_cli.session.planned import Planned
from pe_cli.session.shares import part_sizes, share_of

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

    def share(self) -> Share | None:
        """Return what says which samples of a batch are this process's; None where it is given all of them."""
        drops = self._job.run.executor.uneven_batch == "drop"
        return share_of(self._job.team, len(self._job.places), self._count, self._shares if drops else 1)

    @property
    def _shares(self) -> int:
        """Parts that a batch is cut into, over all devices."""
        return len(self._job.places) * self._job.team.size * self._count

    def fit(self, feed: Feed, samples: int) -> tuple[Feed, int] | None:
        """Apply uneven_batch, and return the batch with its samples; None leaves it out.

        Args:
            feed: this process's share of the batch.
            samples: of the batch.

        Raises:
            PeError: the batch cannot be split evenly, and the config says that this is an error.
        """
        section = self._job.run.executor
        kept = samples - samples % self._shares
        if section.uneven_batch == "weighted" or kept == samples:
            return feed, samples
        if section.uneven_batch == "error":
            devices = len(self._job.places) * self._job.team.size
            parts = f" in {self._count} parts" if self._count > 1 else ""
            raise PeError(
                f"a batch of {samples} samples cannot be split evenly over {devices} devices{parts}",
                at=section.at_of("uneven_batch"),
                hint="use uneven_batch: weighted or drop, or another batch_size",
            )
        if not kept:
            return None
        if self._job.team.shares:  # nothing else has been read
            return feed, kept
        return ({n: a[:kept] for n, a in feed.items()} if self._others else self._last.head(feed, kept)), kept

    def run(self, feed: Feed, fetches: Sequence[str], step: int, samples: int | None = None, means: Sequence[str] = ()) -> StepResult:
        """Do a step.

        Args:
            feed: the batch, or this process's share of it.
            fetches: names of variables.
            step: number of the step, from 0.
            samples: of the batch, where the feed is a share of it.
            means: those of the fetches of which the mean over all devices is all that is asked for.

        Returns:
            Values per part and device with samples; what belongs to the whole batch with the last part alone.
        """
        shown = self._job.observer.wants_plan()
        self._job.team.begin_step(step)
        shared = samples if self._job.team.shares else None
        if self._others is None:
            return self._job.team.stepped(self._alone(feed, fetches, step, shared, shown), means)
        samples = samples or len(next(iter(feed.values())))
        sizes = part_sizes(samples, self._count)
        own = sizes if shared is None else [s.stop - s.start for s in self._own(samples)]
        kind = self._job.program.global_block().var(SHARE).type
        found: list[StepResult] = []
        for i, (end, rows) in enumerate(zip(accumulate(own), own, strict=True)):
            part = {name: a[end - rows : end] if name in self._fed else a for name, a in feed.items()}
            part[SHARE] = np.full(kind.shape, sizes[i] / samples, kind.numpy)
            last = i == len(sizes) - 1
            executor = self._last if last else self._others
            # what belongs to the whole batch, like the length of its gradient, is there with the last part alone
            wanted = [n for n in fetches if last or n in self._early]
            ran = executor.run(part, wanted, step * self._count + i, None if shared is None else sizes[i])
            averaged = [n for n in means if n in wanted]
            found.append(ran.reduced(averaged) if self._job.team.peers is None else self._job.team.stepped(ran, averaged))
            plan = ran.plan
        if shown:
            self._show(replace(found[-1], plan=plan), None, step)
        return joined_parts(found)

    def _own(self, samples: int) -> Sequence[slice]:
        share = share_of(self._job.team, len(self._job.places), self._count)
        assert share is not None
        return share(samples)

    def _alone(self, feed: Feed, fetches: Sequence[str], step: int, samples: int | None, shown: bool) -> StepResult:
        """Do what this process does of a step; where it is shown, with the times of its kernels where it is one plan run once."""
        build, times = self._job.run.build_strategy, self._job.run.exec_strategy.num_iteration_per_run
        if not shown:
            return self._last.run(feed, fetches, step, samples)
        if times > 1 or not build.remove_unnecessary_lock or self._job.team.peers is not None:
            found, line = self._last.run(feed, fetches, step, samples), None
        else:
            found, line = self._last.step_timed(self._last.batch(feed, fetches, samples), step)
        self._show(found, line, step)
        return found

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
