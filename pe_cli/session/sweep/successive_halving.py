"""Successive halving: which trials of a sweep can be trained next and which have to be drawn, as a function of the record alone."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.config.sections.sweep import SweepSection
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.session.sweep.record import Candidate, Sweep, Trial
from pe_cli.session.sweep.tpe import draw
from pe_cli.session.sweep.trials import trials_of


@dataclass(frozen=True)
class OpenTrials:
    """Trials whose training is left before a sweep can go on.

    Args:
        rung: number of the budget that they are trained for, from 0.
        trials: by number; none where the sweep is done.
    """

    rung: int
    trials: Sequence[Trial]


def open_trials(section: SweepSection, sweep: Sweep) -> OpenTrials:
    """Return what is left to be trained now; draws what can be drawn, and halts candidates that are not among the better ones.

    Args:
        section: that the sweep was made of.
        sweep: gets new trials and states.

    Raises:
        PeError: USAGE; tpe needs optuna, which is not installed.
    """
    # Everything follows from the record: a sweep that was killed goes on where it was.
    going: Sequence[Candidate] = sweep.candidates
    last = len(sweep.budgets) - 1
    for rung in range(last + 1):
        left = [t for one in going for t in one.trials if t.state != "failed" and len(t.results) <= rung]
        # Method tpe draws new candidates only when the known ones have results to learn from.
        if rung == 0 and not left and len(going) < sweep.wanted:
            left = _draw(section, sweep)
        if left:
            return OpenTrials(rung, left)
        if rung < last:
            going = _better(sweep, going, rung, section)
    return OpenTrials(last, [])


def _draw(section: SweepSection, sweep: Sweep) -> list[Trial]:
    """Add the next trials: those that are trained side by side before their results decide about others."""
    known = [(one.values, one.results[0] if one.results else None) for one in sweep.candidates]
    first = len(sweep.trials) + 1
    made = trials_of(section, draw(section, known, min(section.together, sweep.wanted - len(known))))
    new = [Trial(number, values) for number, values in enumerate(made, first)]
    sweep.trials += new
    return new


def _better(sweep: Sweep, candidates: Sequence[Candidate], rung: int, section: SweepSection) -> list[Candidate]:
    """Return those that go on after a budget, by number; the others are halted."""
    assert section.halving is not None
    # Failed ones have no result of this budget and take no part.
    good = sorted((one for one in candidates if len(one.results) > rung), key=lambda one: sweep.rank(one, rung))
    kept = good[: max(1, len(candidates) // section.halving.factor)]
    numbers = {one.number for one in kept}
    for trial in (trial for one in candidates if one.number not in numbers for trial in one.trials):
        # A failed trial stays failed, so that its error is told.
        trial.state = trial.state if trial.state == "failed" else "halted"
    return sorted(kept, key=lambda one: one.number)
