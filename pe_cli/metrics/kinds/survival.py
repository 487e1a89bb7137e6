"""Metrics of times until an event, some of which are censored: only known to be longer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Name
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.metrics.define import Array, Gathered, UndefinedError, metric


class ConcordanceOptions(Section):
    """Options of concordance."""

    predictions: Name = Field(description="variable: [batch, 1], the time that is predicted, or anything that grows with it")
    labels: Name = Field(description="variable: the times, or what grows with them")
    events: Name = Field(description="variable: 1 where the event was seen, 0 where the time is censored")


@metric
class Concordance(Gathered[ConcordanceOptions]):
    """Harrell's C: of the pairs of rows of which one is known to have lasted longer, the share whose predictions are in that order.

    0.5 is chance; equal predictions count a half. Of a pair, the shorter time has to have ended in the event; of equal times, one has
    ended and the other not.
    """

    name = "concordance"
    options = ConcordanceOptions
    inputs = ("predictions", "labels", "events")

    def check(self, options: ConcordanceOptions, types: Mapping[str, TensorType]) -> None:
        """Check that each is one number per row.

        Raises:
            PeError: USAGE; options or types that do not fit.
        """
        for key, type_ in types.items():
            if any(size != 1 for size in type_.shape[1:]):
                raise PeError(f"{key} must be one number per row, got {type_}", hint="concordance compares pairs of rows")

    def result(self, options: ConcordanceOptions, values: Mapping[str, Array]) -> float:
        """Return the share.

        Raises:
            PeError: DATA; an event is neither 0 nor 1.
            UndefinedError: no pair can be compared.

        Source:
            Harrell, Lee and Mark 1996; lifelines.utils.concordance_index.
        """
        guess, times, events = (np.asarray(values[key], np.float64).reshape(-1) for key in self.inputs)
        odd = events[(events != 0) & (events != 1)]
        if len(odd):
            raise PeError(f"concordance: events must be 0 or 1, got {odd[0]:g}", hint="1: seen, 0: censored", code=ExitCode.DATA)
        right, equal, pairs = _pairs(guess, times, events > 0)
        if not pairs:
            raise UndefinedError("no two rows can be compared: no event was seen before another row ended")
        return (right + 0.5 * equal) / pairs


def _pairs(guess: Array, times: Array, seen: Array) -> tuple[int, int, int]:
    """Return the pairs that are in order, those of equal predictions, and all that can be compared."""
    if not np.isfinite(guess).all():
        raise UndefinedError("a prediction is not finite")
    # Of all who lasted longer than an event, those with a larger prediction: rows are added to a tree of counts from the longest time on.
    ranks = np.unique(guess, return_inverse=True)[1].reshape(-1)
    counts = np.zeros(int(ranks.max(initial=0)) + 2, np.int64)
    right = equal = pairs = added = 0
    # Censored rows of a time have lasted longer than the events of that time, so that they are added first.
    for time in np.unique(times)[::-1]:
        here = times == time
        added += _add(counts, ranks[here & ~seen])
        events = ranks[here & seen]
        for rank in events:
            below, with_it = _below(counts, int(rank)), _below(counts, int(rank) + 1)
            right, equal, pairs = right + added - with_it, equal + with_it - below, pairs + added
        added += _add(counts, events)
    return right, equal, pairs


def _add(counts: Array, ranks: Array) -> int:
    """Add rows to a tree of counts (Fenwick 1994); return how many."""
    for rank in ranks:
        at = int(rank) + 1
        while at < len(counts):
            counts[at] += 1
            at += at & -at
    return len(ranks)


def _below(counts: Array, rank: int) -> int:
    """Return the rows of a smaller rank."""
    found = 0
    while rank > 0:
        found += int(counts[rank])
        rank -= rank & -rank
    return found
