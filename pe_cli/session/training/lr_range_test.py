"""The learning-rate range test: a few steps with a growing rate, and the rate at which the loss falls fastest.

Smith 2017, "Cyclical learning rates for training neural networks", section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pe_cli.config.load import load_run
from pe_cli.config.nodes import MapNode
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.dataset import Batch
from pe_cli.session.benchmarks.learning_rates import rate_name
from pe_cli.session.job import Job
from pe_cli.session.observer import Observer
from pe_cli.session.training.step import Stepper

#: Share of the smoothed loss that each step keeps of what was before.
KEPT = 0.9
#: The loss has diverged when it exceeds the smallest loss by this factor, and the first loss.
TIMES = 3.0
#: The slope of the loss is taken over this part of all steps on either side.
WINDOW = 20


@dataclass(frozen=True)
class RangeTest:
    """What a range test measured.

    Args:
        rates: of each step that was done.
        losses: of each step, before its update.
        smoothed: mean of the losses up to each step, the latest counting most.
        diverged: whether it ended because the loss grew beyond measure.
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]
    diverged: bool

    @property
    def best(self) -> int:
        """Number of the step with the least smoothed loss."""
        return min(range(len(self.smoothed)), key=self.smoothed.__getitem__)

    @property
    def window(self) -> int:
        """Steps on either side of one that its slope is taken over."""
        return max(2, len(self.rates) // WINDOW)

    def steepest(self) -> int | None:
        """Return the number of the step at which the loss falls fastest over the logarithm of the rate; None where it never falls.

        The slope at a step is that of the line that fits the losses around it best. Steps behind the least smoothed loss, and those
        too close to an end for a whole window, are left out.
        """
        half, slopes = self.window, {}
        for i in range(half, min(self.best, len(self.rates) - half - 1) + 1):
            around = slice(i - half, i + half + 1)
            slopes[i] = float(np.polyfit(np.log(self.rates[around]), self.losses[around], 1)[0])
        least = min(slopes, key=slopes.__getitem__, default=None)
        return least if least is not None and slopes[least] < 0 else None

    @property
    def still_falls(self) -> bool:
        """Whether the loss was still falling at the largest rate."""
        return not self.diverged and self.best >= len(self.rates) - self.window


def open_for_range(path: Path, overrides: Sequence[str], observer: Observer | None = None) -> Job:
    """Return a job of a config whose learning rate is a number that steps can overwrite, in place of any schedule.

    Raises:
        PeError: any mistake in the config; or it says nothing of training, or trains otherwise than in steps of one process.
    """
    run = load_run(path, overrides)
    if run.train is None or not run.phases:
        raise PeError("there is no learning rate without training", at=run.at, hint="add train: {loss, epochs, batch_size, optimizer}")
    if run.executor.type == "async" or run.executor.processes != 1:
        text = "a range test does its steps in one process, one after the other"
        raise PeError(text, at=run.at_of("executor"), hint="-o executor.type=parallel -o executor.processes=1")
    if run.train.phases:
        text = "a range test looks for one learning rate, and every phase has its own"
        hint = "try rates with pe sweep: over: {train.phases.0.optimizer.learning_rate: ...}"
        raise PeError(text, at=run.tree_key("train", "phases"), hint=hint)
    # The rate is an optimizer's inside of others: wrappers take it from there.
    key, node = "train.optimizer", run.phases[0].optimizer
    while isinstance(node, MapNode) and isinstance(inner := node.get("inner"), MapNode):
        key, node = f"{key}.inner", inner
    return Job.open(path, (*overrides, f"{key}.learning_rate=0.001"), observer)


def range_test(job: Job, low: float, high: float, steps: int) -> RangeTest:
    """Train from initial values with a rate that grows from step to step by the same factor. Nothing is written.

    Args:
        job: of `open_for_range`, with initial values; they are changed.
        low, high: rates of the first and of the last step.
        steps: at least 2; fewer are done where the loss diverges.

    Raises:
        PeError: the data cannot be read, no batch can be trained on, or the loss is not one number.
    """
    (phase,) = job.built.phases
    stepper, name, loss = Stepper(job), rate_name(job, phase), phase.loss
    program = job.program
    if loss is None or program.var(loss).type.size != 1:
        raise PeError(f"the loss '{phase.spec.loss}' is not one number", at=job.run.at_of("train", "loss"), hint="take its mean")
    kind = program.var(name).type.numpy
    found = RangeTest([], [], [], False)
    mean = 0.0
    for step, feed in zip(range(steps), _batches(job, stepper), strict=False):
        # Exponentially, because a rate is a matter of powers of ten.
        rate = low * (high / low) ** (step / (steps - 1))
        job.scope.set(name, np.array([rate], kind))
        value = _loss(stepper, feed, loss, step)
        mean = KEPT * mean + (1 - KEPT) * value
        # Without this correction the first averages would be too small, for they begin at 0.
        smoothed = mean / (1 - KEPT ** (step + 1))
        if not math.isfinite(smoothed) or _diverged(smoothed, found.smoothed):
            return RangeTest(found.rates, found.losses, found.smoothed, True)
        found.rates.append(rate)
        found.losses.append(value)
        found.smoothed.append(smoothed)
    return found


def _loss(stepper: Stepper, feed: Batch, loss: str, step: int) -> float:
    try:
        return stepper.run(feed, [loss], step).number(loss)[0]
    except PeError as error:
        # Another error is the user's, or the machine's.
        if error.code != ExitCode.DIVERGED:
            raise
        return math.nan


def _diverged(smoothed: float, before: Sequence[float]) -> bool:
    if not before:
        return False
    least = min(before)
    return smoothed > before[0] and smoothed > least + TIMES * abs(least)


def _batches(job: Job, stepper: Stepper) -> Iterator[Batch]:
    """Give the batches that training has, epoch after epoch."""
    assert job.run.train is not None
    loader = job.data.loader("train", job.program, job.step_size, drop_last=job.run.train.drop_last)
    epoch, given = 0, 0
    while epoch == 0 or given:
        # The test may need more steps than an epoch has.
        given = 0
        for i, feed in enumerate(loader.epoch(epoch)):
            fitting = stepper.fit(feed, loader.size_of(i))
            if fitting is not None:
                given += 1
                yield dict(fitting[0])
        epoch += 1
    text = "no batch has a sample for every device, and uneven_batch is drop"
    raise PeError(text, at=job.run.executor.at_of("uneven_batch"), hint="use a larger batch_size, or uneven_batch: weighted")
