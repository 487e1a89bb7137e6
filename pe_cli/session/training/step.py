"""One training step: its phases and their batches, split over devices and, with gradient accumulation, into parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np

from pe_cli.build.phases import Phase
from pe_cli.core.errors import PeError
from pe_cli.data.loader import Share
from pe_cli.devices.protocol import Timeline
from pe_cli.execute.batch import StepResult, joined_parts
from pe_cli.execute.executor import Executor
from pe_cli.execute.merge import merge
from pe_cli.graph.compile import Stages
from pe_cli.graph.lod_resolution import declared_levels
from pe_cli.optim.gradient_accumulation import SHARE
from pe_cli.session.benchmarks.plan_facts import Planned
from pe_cli.session.job import Job
from pe_cli.session.processes.batch_shares import part_sizes, share_of

Array = np.ndarray[Any, Any]
Feed = Mapping[str, Array]


class Stepper:
    """Runs the training programs of a job.

    A step takes as many batches as its phase has that repeats most. A phase takes one for every update; one that repeats less often takes
    the last ones, so that all phases end with the same batch.

    Args:
        job: with values in its scope when `run` is called.

    Raises:
        PeError: `accumulate` together with `num_iteration_per_run` or with sequences.
    """

    def __init__(self, job: Job) -> None:
        assert job.programs, "there is something to train"
        self._job = job
        self._runners = [_Runner(job, phase) for phase in job.built.phases]
        self._newest = {variable for phase in job.built.phases for variable in phase.newest.values()}
        self._updates = sum(phase.repeat for phase in job.built.phases)

    def share(self) -> Share | None:
        """Return what says which samples of a batch are this process's; None where it is given all of them."""
        job = self._job
        assert job.run.train, "there is a training program"
        parts = job.built.batches, job.run.train.accumulate
        return share_of(job.group, len(job.places), parts, self._shares if job.run.executor.uneven_batch == "drop" else 1)

    @property
    def _shares(self) -> int:
        """Parts that a batch is cut into, over all devices."""
        return len(self._job.places) * self._job.group.size * self._job.shares

    def fits(self, samples: int) -> bool:
        """Whether a batch is trained on: uneven_batch may skip one with too few samples for all devices."""
        return self._job.run.executor.uneven_batch != "drop" or samples >= self._shares

    def fit(self, feed: Feed, samples: int) -> tuple[Feed, int] | None:
        """Apply uneven_batch, and return the batch with its samples; None leaves it out.

        Args:
            feed: this process's share of the batch.
            samples: of the batch.

        Raises:
            PeError: the batch cannot be split evenly, and the config says that this is an error.
        """
        job, section = self._job, self._job.run.executor
        kept = samples - samples % self._shares
        # Rows that make no full share for each device are left out, so that no device waits with less.
        if section.uneven_batch == "weighted" or kept == samples:
            return feed, samples
        if section.uneven_batch == "error":
            parts = f" in {job.shares} parts" if job.shares > 1 else ""
            raise PeError(
                f"a batch of {samples} samples cannot be split evenly over {len(job.places) * job.group.size} devices{parts}",
                at=section.at_of("uneven_batch"),
                hint="use uneven_batch: weighted or drop, or another batch_size",
            )
        if not kept:
            return None
        # This process has read its share alone, which was cut to what all keep.
        if job.group.shares:  # nothing else has been read
            return feed, kept
        found: dict[str, Array] = {}
        for runner in self._runners:
            found |= runner.part(runner.known(feed), 0, kept)
        return found, kept

    @property
    def executors(self) -> list[Executor]:
        """What an update of every phase ends with."""
        return [runner.last for runner in self._runners]

    def samples(self, feed: Feed) -> int:
        """Return the number of samples of a step."""
        return max(runner.samples(runner.known(feed)) for runner in self._runners)

    def run(
        self,
        feed: Feed,
        # Only where somebody looks: recording a timeline costs time in every kernel.
        fetches: Sequence[str],
        step: int,
        samples: int | None = None,
        means: Sequence[str] = (),
        *,
        late: bool = False,
    ) -> StepResult:
        """Do a step.

        Args:
            feed: its samples, or this process's share of them.
            fetches: names of variables; of one that several phases compute, that of `Built.phase_of` is returned.
            step: number of the step, from 0.
            samples: of the batch, where the feed is a share of it.
            means: the fetches of which only the mean over all devices is needed, not the value of each device.
            late: whether the step may still be running when this returns, see `Plan.run`.

        Returns:
            Values per phase, update, part and device with samples; what belongs to a whole batch with its last part alone.
        """
        show = self._job.observer.wants_plan()
        self._job.group.begin_step(step)
        shown = step if show else None
        # The usual case has one update and nothing to join.
        if self._updates == 1:
            found = self._runners[0].run(feed, fetches, step, shown, samples, means, late=late)
        else:
            found = self._updated(feed, fetches, step, samples, means, shown)
        if show:
            self._job.observer.planned([runner.shown for runner in self._runners if runner.shown])
        return found

    def _updated(
        self, feed: Feed, fetches: Sequence[str], step: int, samples: int | None, means: Sequence[str], shown: int | None
    ) -> StepResult:
        """Do several updates; see `run`. shown: the step's number where its timeline is recorded, else None."""
        group = self._job.group
        samples = samples if group.shares and samples is not None else self.samples(feed)
        sizes = part_sizes(samples, self._job.built.batches)
        own = [self._runners[0].held(n) for n in sizes]
        cuts = [(n, end - rows, end) for n, rows, end in zip(sizes, own, accumulate(own), strict=True)]
        done: list[tuple[Sequence[str], StepResult]] = []
        for runner in self._runners:
            wanted = [name for name in fetches if self._job.built.phase_of(name) is runner.phase]
            known = runner.known(feed)
            mine = cuts[-runner.phase.repeat :]
            averaged = [name for name in means if name in wanted]
            for i, (size, begin, end) in enumerate(mine):
                part = known if len(sizes) == 1 else runner.part(known, begin, end)
                # Only the last part of a phase is shown, as the others are like it.
                looked = shown if i == len(mine) - 1 else None
                found = runner.run(part, wanted, step * self._updates + len(done), looked, size, averaged)
                done.append((wanted, found.reduced([name for name in averaged if name not in found.means])))
        return _joined(done, fetches, samples, self._newest)

    def stages(self, fetches: Sequence[str]) -> dict[str, Stages]:
        """Return the stages of the programs that a step with these fetches ends with, by phase."""
        known = {runner.phase.name: {*runner.phase.program.vars} for runner in self._runners}
        return {r.phase.name: r.last.stages([n for n in fetches if n in known[r.phase.name]]) for r in self._runners}

    def drop_unused(self) -> None:
        """Forget temporaries that have not been used lately."""
        for runner in self._runners:
            runner.drop_unused()


def _joined(
    done: Sequence[tuple[Sequence[str], StepResult]], fetches: Sequence[str], samples: int, newest: Collection[str]
) -> StepResult:
    """Return what several updates gave as one: names that were fetched, and values of them.

    A fetched number becomes its mean over the updates. Of a variable with several numbers, and of those in `newest`, the value of the
    last update is returned.
    """
    values = [value for _, found in done for value in found.values or [{}] * len(found.sizes)]
    sizes = [size for _, found in done for size in found.sizes]
    shares: dict[str, list[int]] = {name: [] for name in fetches}
    means: dict[str, tuple[Array, int]] = {}
    for name in fetches:
        for wanted, found in done:
            # A phase that does not compute a number counts for nothing in its mean.
            shares[name] += found.shares[name] if name in wanted and name not in found.means else [0] * len(found.sizes)
        known = [found.means[name] for _, found in done if name in found.means]
        if known:
            weights = [n for _, n in known]
            mean = merge([v for v, _ in known], weights, "mean")
            means[name] = (np.asarray(mean), sum(weights)) if known[0][0].size == 1 and name not in newest else known[-1]
    return StepResult(values, sizes, shares, whole=samples, means=means)


class _Runner:
    """Runs the programs of one phase.

    Args:
        job: with values in its scope when `run` is called.
        phase: of it.

    Attributes:
        last: executor of what an update ends with.
        shown: how the last update went that was looked at.
    """

    shown: Planned | None = None

    def __init__(self, job: Job, phase: Phase) -> None:
        assert job.run.train, "there is a training program"
        self._job, self.phase = job, phase
        self._count = job.run.train.accumulate
        self.last = job.executor(phase.program)
        self._others = job.executor(phase.parts.program) if phase.parts else None
        self._early = set(phase.parts.program.vars) if phase.parts else set()
        # Feeds without a batch axis go to each part whole.
        self._fed = {v.name for v in phase.program.list_vars() if v.is_data and not v.type.known}
        if self._others and any(declared_levels(phase.program).values()):
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

    def known(self, feed: Feed) -> Feed:
        """Return what this phase is fed of a batch."""
        return self.last.known(feed) if len(self._job.built.phases) > 1 else feed

    def samples(self, feed: Feed) -> int:
        """Return the samples of a batch; 1 where nothing that is fed has a batch axis."""
        if self._others is None:
            return self.last.samples(feed)
        return next((len(a) for name, a in feed.items() if name in self._fed), 1)

    def part(self, feed: Feed, begin: int, end: int) -> Feed:
        """Return some samples of a batch."""
        if self._others is None:
            return self.last.part(feed, begin, end)
        return {name: a[begin:end] if name in self._fed else a for name, a in feed.items()}

    def run(
        self,
        feed: Feed,
        fetches: Sequence[str],
        number: int,
        shown: int | None,
        samples: int | None = None,
        means: Sequence[str] = (),
        *,
        late: bool = False,
    ) -> StepResult:
        """Run one update.

        Args:
            feed: the batch, or this process's share of it.
            fetches: names of variables.
            number: of the update among those of all phases, from 0.
            shown: number of the step under which its timeline is kept.
            samples: of the batch, where the feed is a share of it.
            means, late: see `Stepper.run`.
        """
        group = self._job.group
        shared = samples if group.shares else None
        if self._others is None:
            # Steps that overlap have no place for an exchange between two of them.
            late = late and group.peers is None and self._job.served is None
            return group.stepped(self._alone(feed, fetches, number, shown, shared, late), means)
        samples = samples or self.samples(feed)
        sizes = part_sizes(samples, self._count)
        own = [self._rows(s) for s in sizes]
        kind = self.phase.program.var(SHARE).type
        found: list[StepResult] = []
        for i, (end, rows) in enumerate(zip(accumulate(own), own, strict=True)):
            # The share of this part weighs its gradients; the last part adds what was kept, and updates.
            part = {**self.part(feed, end - rows, end), SHARE: np.full(kind.shape, sizes[i] / samples, kind.numpy)}
            last = i == len(sizes) - 1
            executor = self.last if last else self._others
            # what belongs to the whole batch, like the length of its gradient, is there with the last part alone
            wanted = [n for n in fetches if last or n in self._early]
            ran = executor.run(part, wanted, number * self._count + i, None if shared is None else sizes[i])
            averaged = [n for n in means if n in wanted]
            found.append(ran.reduced(averaged) if group.peers is None else group.stepped(ran, averaged))
            plan = ran.plan
        if shown is not None:
            self._show(replace(found[-1], plan=plan), None, shown)
        return joined_parts(found)

    def held(self, samples: int) -> int:
        """Return how many samples of a batch this process has; they are spread over the parts that gradients are accumulated of."""
        return sum(self._rows(n) for n in part_sizes(samples, self._count))

    def _rows(self, samples: int) -> int:
        """Return how many samples of a part this process has."""
        share = share_of(self._job.group, len(self._job.places))
        return samples if share is None else sum(s.stop - s.start for s in share(samples))

    def _alone(
        self, feed: Feed, fetches: Sequence[str], number: int, shown: int | None, samples: int | None, late: bool
    ) -> StepResult:
        """Do what this process does of an update; where it is shown, with the times of its kernels where it is one plan run once."""
        build, times = self._job.run.build_strategy, self._job.run.exec_strategy.num_iteration_per_run
        if shown is None:
            how = {"late": True} if late else {}
            return self.last.run(feed, fetches, number, samples, **how)
        # A timed step is another tape, which other threads or processes do not run.
        if times > 1 or not build.remove_unnecessary_lock or self._job.group.peers is not None:
            found, line = self.last.run(feed, fetches, number, samples), None
        else:
            found, line = self.last.step_timed(self.last.batch(feed, fetches, samples), number)
        self._show(found, line, shown)
        return found

    def _show(self, found: StepResult, line: Timeline | None, step: int) -> None:
        assert found.plan is not None, "a step of one plan"
        self.shown = Planned(self.last, found.plan, line, step, self.phase.name)

    def drop_unused(self) -> None:
        """Forget temporaries that have not been used lately."""
        for executor in (self.last, self._others):
            if executor is not None:
                executor.drop_unused()
