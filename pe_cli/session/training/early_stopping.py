"""Tracks a measured value: which checkpoint is the best, and when to stop early or lower the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from pe_cli.config.sections.output import BestSection
from pe_cli.config.sections.train import EarlyStoppingSection, PlateauSection
from pe_cli.session.training.state import Progress

#: A loss counts as exploded when it exceeds the first step's (or 1, if that is more) by this factor, or this absolute value.
TIMES, MOST = 1e9, 1e30
#: A learning rate is not lowered by less.
LEAST_CHANGE = 1e-8


class Measures:
    """Goes through metrics as they are measured.

    Args:
        best: how the best checkpoint is chosen, if at all.
        early: when training ends early, if at all.
        tell: gets a sentence when it does.
        plateau: when the learning rate is lowered, if at all.
        lower: lowers it; gets how, and says the rates before and after, None where it stays as it is.
    """

    def __init__(
        self,
        best: BestSection | None,
        early: EarlyStoppingSection | None,
        tell: Callable[[str], None],
        plateau: PlateauSection | None = None,
        lower: Callable[[PlateauSection], tuple[float, float] | None] = lambda section: None,
    ) -> None:
        self._best, self._early, self._tell = best, early, tell
        self._plateau, self._lower = plateau, lower

    def note(self, at: Progress, use: str, values: Mapping[str, float]) -> bool:
        """Note new metrics in the progress.

        Args:
            at: gets them.
            use: of the data: train or eval.
            values: by name.

        Returns:
            Whether they are the best so far, so that a checkpoint should be written now.
        """
        named = {f"{use}/{name}": value for name, value in values.items()}
        # Kept for the checkpoint, so that a run that goes on shows what was measured before.
        at.newest |= named
        if self._early is not None and self._early.by in named:
            self._wait(at, self._early, named[self._early.by])
        if self._plateau is not None and self._plateau.by in named:
            self._level(at, self._plateau, named[self._plateau.by])
        if self._best is None or self._best.by not in named:
            return False
        value = named[self._best.by]
        better = is_better(value, at.best, self._best.mode)
        if better:
            at.best = value
        return better

    def watch(self, at: Progress, loss: float) -> str | None:
        """Note the loss of a step; return a sentence the first time that it is a finite number beyond all measure."""
        if at.first_loss is None:
            at.first_loss = loss
        # NaN is larger than nothing and is told elsewhere; here the loss is finite and useless.
        if at.outgrown is not None or not abs(loss) > min(MOST, TIMES * max(1.0, abs(at.first_loss))):
            return None
        at.outgrown = at.step
        return (
            f"the loss is {loss:.3g} at step {at.step}, and was {at.first_loss:.3g} in the first: training does not converge; "
            "lower the learning rate or clip gradients"
        )

    def _wait(self, at: Progress, section: EarlyStoppingSection, value: float) -> None:
        if is_better(value, at.target, section.mode, section.min_delta):
            at.target, at.waited = value, 0
            return
        at.waited += 1
        # Told once, though measurements go on to the end of the step.
        if at.waited >= section.patience and not at.stopped_early:
            at.stopped_early = True
            least = "" if at.target is None else f"; the best was {at.target:.6g}"
            times = f"{at.waited} measurement{'s' * (at.waited != 1)}"
            self._tell(f"stopped early at step {at.step}: {section.by} got no better in {times}{least}")


    def _level(self, at: Progress, section: PlateauSection, value: float) -> None:
        """Lower the rate when there were more measurements without improvement than patience allows, as PyTorch does."""
        if beats(value, at.plateau_best, section):
            at.plateau_best, at.plateau_waited = value, 0
            return
        at.plateau_waited += 1
        if at.plateau_waited <= section.patience:
            return
        rates = self._lower(section)
        if rates is not None:
            times = f"{at.plateau_waited} measurement{'s' * (at.plateau_waited != 1)}"
            change = f"the learning rate goes from {rates[0]:.6g} to {rates[1]:.6g} at step {at.step}"
            self._tell(f"{change}: {section.by} got no better in {times}")
        # Also where the rate is at its least: otherwise every further measurement would try again.
        at.plateau_waited = 0


def beats(value: float, before: float | None, section: PlateauSection) -> bool:
    """Return whether a measurement is better than the best by more than a relative margin; NaN never is."""
    if before is None:
        return value < math.inf if section.mode == "min" else value > -math.inf
    if section.mode == "min":
        # Relative, as in PyTorch's ReduceLROnPlateau, whose numbers people bring along.
        return value < before * (1 - section.threshold)
    return value > before * (1 + section.threshold)


def lowered(rate: float, section: PlateauSection) -> float | None:
    """Return the next lower rate; None where it would hardly differ (by 1e-8 or less)."""
    lower = max(rate * section.factor, section.min_rate)
    return lower if rate - lower > LEAST_CHANGE else None


def is_better(value: float, before: float | None, mode: str, least: float = 0.0) -> bool:
    """Tell whether a measurement beats the one before; NaN never does, and anything else beats none at all.

    Args:
        value: new.
        before: best so far.
        mode: max or min.
        least: what it must be better by, unit of the metric.

    >>> is_better(0.5, None, "max"), is_better(0.5, 0.45, "max", 0.1), is_better(float("nan"), None, "min")
    (True, False, False)
    """
    # NaN differs from itself.
    if value != value:
        return False
    if before is None:
        return True
    return value - before > least if mode == "max" else before - value > least
