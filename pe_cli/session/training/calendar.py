"""When a training run evaluates, checkpoints, records arrays, unfreezes parameters, and ends."""

from __future__ import annotations

from pe_cli.config.period import Period
from pe_cli.config.spec import RunSpec
from pe_cli.session.training.state import Progress

#: Steps and evaluation batches of a smoke run.
SMOKE_STEPS = 2


class Calendar:
    """What is due after which steps and epochs of a run. In a smoke run everything is due after every step.

    Args:
        run: declares it, with a `train` section.
        smoke: whether the run is a smoke run.

    Attributes:
        steps: after how many steps the run ends; None where only its epochs end it.
        epochs: after how many epochs it ends; None where only its steps end it.
        evaluation: steps from one evaluation to the next; None where evaluations follow epochs alone.
    """

    def __init__(self, run: RunSpec, smoke: bool) -> None:
        assert run.train
        self._eval_every, self._checkpoint = run.train.eval_every, run.output.checkpoint
        self.evaluation = self._eval_every.count if self._eval_every.unit == "step" else None
        self._smoke = smoke
        # A smoke run goes once through everything that a training does, however long the config says that it is.
        self.steps: int | None = SMOKE_STEPS if smoke else run.train.steps
        self.epochs: int | None = 1 if smoke else run.train.epochs
        self._last_epoch = run.train.epochs

    def enough(self, at: Progress) -> bool:
        """Return whether the run has done all its steps, or was stopped early."""
        return at.stopped_early or (self.steps is not None and at.step >= self.steps)

    def goes_on(self, at: Progress) -> bool:
        """Return whether anything is left to do: a step, or what follows the last one."""
        # An epoch that was begun is ended even where it is past the last one: its samples would be seen in part only.
        return at.batch > 0 or ((self.epochs is None or at.epoch < self.epochs) and not self.enough(at))

    def total(self, epoch_steps: int) -> int | None:
        """Return the steps of the whole run, given the steps of an epoch; None where only the user ends it."""
        steps = None if self.epochs is None else self.epochs * epoch_steps
        # Whichever comes first.
        return min((n for n in (steps, self.steps) if n is not None), default=None)

    def has_come(self, period: Period, at: Progress) -> bool:
        """Return whether a period in steps or epochs is over; in a smoke run it is over after one step."""
        if self._smoke:
            return at.step > 0
        return (at.epoch if period.unit == "epoch" else at.step) >= period.count

    # --- after a step -------------------------------------------------------------------------------------------------

    def ends(self, every: Period, step: int) -> bool:
        """Return whether a period that counts steps ends with a step; those of epochs end where the epoch does."""
        return (every.unit == "step" and step % every.count == 0) or self._smoke

    def evaluates(self, step: int) -> bool:
        """Return whether an evaluation follows a step, beside those that follow epochs."""
        return self.evaluation is not None and step % self.evaluation == 0

    def saves(self, step: int) -> bool:
        """Return whether a checkpoint follows a step, whatever the metrics are."""
        return self._checkpoint is not None and self.ends(self._checkpoint.every, step)

    # --- after an epoch -----------------------------------------------------------------------------------------------

    def is_last(self, epoch: int) -> bool:
        """Return whether the run's epochs end with an epoch, whose number starts at 1."""
        return epoch == self._last_epoch

    def evaluates_epoch(self, epoch: int) -> bool:
        """Return whether an evaluation follows an epoch that is not the run's last."""
        return self.ends_epoch(self._eval_every, epoch) or self._smoke

    def saves_epoch(self, epoch: int) -> bool:
        """Return whether a checkpoint follows an epoch that is not the run's last, whatever the metrics are."""
        return self._checkpoint is not None and (self._smoke or self.ends_epoch(self._checkpoint.every, epoch))

    def ends_epoch(self, every: Period, epoch: int) -> bool:
        """Return whether a period that counts epochs ends with an epoch."""
        return every.unit == "epoch" and epoch % every.count == 0
