"""Step metrics: numbers fetched at every step, how values of several devices are merged, and how often each is recorded; and arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.build.model_warnings import loss_warnings
from pe_cli.config.period import Period
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.execute.batch import StepResult
from pe_cli.program.ir import Block
from pe_cli.session.job import Job
from pe_cli.session.observer import NORM
from pe_cli.session.training.averages import Averages
from pe_cli.session.training.kept_outputs import files_of

Array = np.ndarray[Any, Any]


class StepMetrics:
    """What is read of the steps of a job, with the programs that it has now.

    Args:
        job: that is trained.

    Attributes:
        losses: name of each phase's loss.
        numbers: name of a number -> its variable.
        arrays: name of a fetch that is no single number -> its variable.
        always: variables of a step at which no array is due.
        means: variables whose values of several processes become one by their mean.
        periods: name of a number -> how often it is recorded.
        by_steps: those of them that count steps: name, and every how many.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        fetches = job.run.fetches
        self.losses = [phase.spec.loss or "" for phase in job.built.phases]
        self.numbers = job.trained_numbers
        self.arrays = {n: job.variable(n) for n in fetches if n not in self.numbers}
        #: Variables with the lengths of gradients, where they are asked for.
        self._lengths = [phase.norms_name for phase in job.built.phases if phase.norms]
        self._merges = [(n, v, (fetches[n].merge if n in fetches else None) or "mean") for n, v in self.numbers.items()]
        self._newest = {name for phase in job.built.phases for name in phase.newest}
        self.always = self.variables()
        # Means are merged over processes inside of the step; all else is told to the first process.
        self.means = list(dict.fromkeys([*(v for _, v, how in self._merges if how == "mean"), *self._lengths]))
        self.periods = self._periods()
        self.by_steps = [(name, period.count) for name, period in self.periods.items() if period.unit == "step"]

    def _periods(self) -> dict[str, Period]:
        """Return how often every number is recorded; what is watched beside the loss, as often as it."""
        default, fetches = Period(1, "epoch"), self._job.run.fetches
        like: dict[str, str] = {}
        for phase in self._job.built.phases:
            beside = [name for name in (*phase.recorded, *(f"{NORM}{name}" for name in phase.norms)) if name not in fetches]
            like |= dict.fromkeys(beside, phase.spec.loss or "")
        every = {n: fetches[n].every for n in fetches}
        # Numbers that a phase records beside its loss are due with it.
        return {n: every.get(like.get(n, n), default) for n in (*self.numbers, *like)}

    def check(self) -> None:
        """Refuse now what would only fail when the first checkpoint is written or the first value fetched.

        Raises:
            PeError: USAGE; a loss is not one number, an array cannot go to its file, or there is no metric of a name.
        """
        run = self._job.run
        assert run.train is not None
        for phase, loss in zip(self._job.built.phases, self.losses, strict=True):
            if loss not in self.numbers:
                kind = phase.program.var(phase.loss or loss).type
                at = run.at_of(*phase.spec.path, "loss")
                raise PeError(f"the loss '{loss}' is {kind}, not one number", at=at, hint="take its mean")
        files_of({name: run.fetches[name] for name in self.arrays})
        output = run.output.checkpoint
        for section in (output.best if output else None, run.train.early_stopping, run.train.plateau):
            if section is None:
                continue
            known = [f"{use}/{name}" for use in run.data for name in self.numbers if use in ("train", "eval")]
            known += [f"eval/{metric.name}" for metric in self._job.built.metrics if "eval" in run.data]
            if section.by not in known:
                hint = did_you_mean(section.by, known) or f"one of {', '.join(known)}"
                raise PeError(f"'{section.by}' is no metric, one number per step", at=section.at_of("by"), hint=hint)

    def variables(self, due: Sequence[str] = ()) -> list[str]:
        """Return the variables of all numbers, and of the arrays that are due."""
        return list(dict.fromkeys([*self.numbers.values(), *self._lengths, *(self.arrays[n] for n in due)]))

    def add(self, found: StepResult, averages: Averages) -> dict[str, float]:
        """Take the numbers of a step into averages, and return the value of every loss."""
        # NaN until a step has told the loss, so that a step without one is noticed.
        losses = dict.fromkeys(self.losses, math.nan)
        for name, variable, how in self._merges:
            value, weight = found.number(variable, how)
            if name in self._newest:
                averages.restore(name, value, 1.0)  # a mean would be one that no step had
            else:
                averages.add(name, value, weight)
            if name in losses:
                losses[name] = value
        for phase in self._job.built.phases:
            if phase.norms:
                lengths = found.last(phase.norms_name).tolist()
                for name, length in zip(phase.norms, lengths, strict=True):
                    averages.add(f"{NORM}{name}", length, samples_of(found))
        return losses

    def joined(self, name: str, found: StepResult) -> Array:
        """Return an array's value over all devices: samples one after the other, the rest by its mean.

        Raises:
            PeError: USAGE; `merge: list`, and the devices' values have several shapes.
        """
        section, variable = self._job.run.fetches[name], self.arrays[name]
        # A value with a row for each sample is joined; a single one is averaged.
        whole = self._block(variable).var(variable).shape[:1] == (-1,)
        how = section.merge or ("concat" if whole else "mean")
        if how != "list":
            return found.merged(variable, how)
        parts = [v[variable] for v in found.values if variable in v]
        if len({part.shape for part in parts}) > 1:
            raise PeError(
                f"fetch '{name}': devices with {', '.join(map(str, found.sizes))} samples give no list of one shape",
                at=section.at_of("merge"),
                hint="use merge: concat",
            )
        return np.stack(parts)

    def diverged(self, name: str, loss: float, step: int, newest: str) -> PeError:
        """Return the error that a loss is no number any more, DIVERGED.

        Args:
            name: of the loss.
            loss: its value.
            step: that gave it, from 1.
            newest: which checkpoint is the newest, as a sentence.
        """
        variable = self.numbers[name]
        block = self._block(variable)
        # The op's name tells more than the variable's, which may be the layer's.
        op = next((op.type for op in reversed(block.ops) if variable in op.output_names()), "feed")
        # where the data is finite the cause is the model, or else the training
        doubted = loss_warnings(self._job.built.eval)
        remedy = doubted[0] if doubted else "lower the learning rate or clip gradients"
        return PeError(
            f"the loss '{name}' ({op}) is {loss} at step {step}",
            at=block.var(variable).at,
            hint=f"{remedy}; {newest}",
            code=ExitCode.DIVERGED,
        )

    def metrics(self) -> tuple[str, ...]:
        """Return the names of what will be recorded, numbers that change with the data first."""
        job = self._job
        names = sorted(self.numbers, key=lambda name: name in self._newest)
        made = [f"train/{name}" for name in names]
        if "eval" in job.run.data:
            made += [f"eval/{name}" for name in job.numbers(job.built.eval)]
            made += [f"eval/{metric.name}" for metric in job.built.metrics]
            made += [f"eval/{name}" for name in (job.built.deciding.numbers if job.built.deciding else ())]
        return tuple(made)

    def _block(self, variable: str) -> Block:
        """Return the block that a value of training is taken from."""
        phase = self._job.built.phase_of(variable)
        assert phase is not None, "it is fetched"
        return phase.program.main_block


def samples_of(found: StepResult) -> int:
    """Return the number of samples of a step."""
    return sum(found.sizes) if found.whole is None else found.whole
