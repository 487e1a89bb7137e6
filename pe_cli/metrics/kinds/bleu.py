"""BLEU: how many of the short runs of words in translations stand in the right ones, too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import Field

from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Int, Name
from pe_cli.core.types import TensorType
from pe_cli.metrics.define import Array, Counted, Counts, UndefinedError, metric
from pe_cli.metrics.kinds.edit_distance import check_tokens, compared


class BleuOptions(Section):
    """Options of `bleu`."""

    predictions: Name = Field(description="variable: [batch, time] whole numbers, for example the best sequences of a beam")
    labels: Name = Field(description="variable: [batch, time] whole numbers, one right translation each; the two may have different times")
    ignored_tokens: list[Int] = Field(
        default_factory=list, description="numbers that are left out of both, such as those that fill up"
    )
    max_order: Annotated[int, Field(strict=True, ge=1, le=16)] = Field(default=4, description="runs of one word up to so many count")


@metric
class Bleu(Counted[BleuOptions]):
    """BLEU of all rows together, from 0 to 1: the geometric mean of the shares of runs that are right, lowered for short translations."""

    name = "bleu"
    inputs = ("predictions", "labels")
    options = BleuOptions

    def check(self, options: BleuOptions, types: Mapping[str, TensorType]) -> None:
        """Check the types.

        Raises:
            PeError: USAGE; a variable is not [batch, time] of whole numbers.
        """
        check_tokens(types)

    def count(self, options: BleuOptions, values: Mapping[str, Array]) -> Counts:
        """Return right runs and runs for each order, then words of the predictions and of the labels, int64 [2 max_order + 2]."""
        most = options.max_order
        totals = np.zeros(2 * most + 2, np.int64)
        for guess, truth in compared(values, options.ignored_tokens):
            for n in range(1, most + 1):
                said, wanted = _runs(guess.tolist(), n), _runs(truth.tolist(), n)
                # The smaller count of each run: a word said five times counts as often as the label has it (clipped counts).
                totals[n - 1] += (said & wanted).total()
                totals[most + n - 1] += said.total()
            totals[-2:] += len(guess), len(truth)
        return totals

    def result(self, options: BleuOptions, counts: Counts) -> float:
        """Return min(1, e^(1 - labels / words)) times the geometric mean of the shares; Papineni et al. 2002, without smoothing.

        Raises:
            UndefinedError: there is nothing to divide by.
        """
        most = options.max_order
        right, runs, (words, labels) = counts[:most].tolist(), counts[most : 2 * most].tolist(), counts[-2:].tolist()
        if not labels:
            raise UndefinedError("there is no label")
        # The geometric mean with a share of 0; without smoothing, as Papineni et al. define it.
        if not all(right):
            return 0.0
        mean = math.fsum(math.log(r / n) for r, n in zip(right, runs, strict=True)) / most
        # The penalty for short translations, min(1, exp(1 - labels / words)), added in logarithms.
        return math.exp(mean + min(0.0, 1 - labels / words))


def _runs(words: list[int], size: int) -> Counter[tuple[int, ...]]:
    return Counter(zip(*(words[i:] for i in range(size)), strict=False))
