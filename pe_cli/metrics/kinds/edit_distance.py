"""Edit distance between predicted and true sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Int, Name
from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.metrics.define import Array, Counted, Counts, UndefinedError, metric


class EditOptions(Section):
    """Options of `edit_distance`."""

    predictions: Name = Field(description="variable: [batch, time] whole numbers, for example labels of ctc_greedy_decoder")
    labels: Name = Field(description="variable: [batch, time] whole numbers; the two may have different times")
    ignored_tokens: list[Int] = Field(
        default_factory=list, description="numbers that are left out of both, such as those that fill up"
    )
    per: Literal["label", "sequence", "wrong"] = Field(
        default="label",
        description="label: edits by labels, which is the label error rate; sequence: edits by sequences; wrong: share of sequences "
        "that have an edit",
    )


@metric
class EditDistance(Counted[EditOptions]):
    """Insertions, deletions and replacements that make the labels of the predictions, of whole sequences, by what `per` says."""

    name = "edit_distance"
    inputs = ("predictions", "labels")
    options = EditOptions

    def check(self, options: EditOptions, types: Mapping[str, TensorType]) -> None:
        """Check the types.

        Raises:
            PeError: USAGE; a variable is not [batch, time] of whole numbers.
        """
        check_tokens(types)

    def count(self, options: EditOptions, values: Mapping[str, Array]) -> Counts:
        """Return edits, labels, sequences that have an edit, and sequences, int64 [4]."""
        totals = np.zeros(4, np.int64)
        for guess, truth in compared(values, options.ignored_tokens):
            edits = edits_between(guess, truth)
            totals += edits, len(truth), edits > 0, 1
        return totals

    def result(self, options: EditOptions, counts: Counts) -> float:
        """Return the share.

        Raises:
            UndefinedError: there is nothing to divide by.
        """
        edits, labels, wrong, sequences = counts.tolist()
        above, below = {"label": (edits, labels), "sequence": (edits, sequences), "wrong": (wrong, sequences)}[options.per]
        if not below:
            raise UndefinedError("there is no label" if options.per == "label" else "there is no sequence")
        return float(above / below)


def compared(values: Mapping[str, Array], ignored: Sequence[int]) -> Iterator[tuple[Array, Array]]:
    """Yield the prediction and the label of every row, as whole numbers without those that are ignored."""
    for one, two in zip(values["predictions"], values["labels"], strict=True):
        yield one[~np.isin(one, ignored)], two[~np.isin(two, ignored)]


def check_tokens(types: Mapping[str, TensorType]) -> None:
    """Check that variables are sequences of tokens.

    Raises:
        PeError: USAGE; one is not [batch, time] of whole numbers.
    """
    for key, kind in types.items():
        if len(kind.shape) != 2 or kind.dtype not in ("int32", "int64"):
            hint = "ctc_greedy_decoder with input_length makes them, and so does a beam"
            raise PeError(f"{key} are [batch, time] whole numbers, got {kind}", hint=hint)


def edits_between(one: Array, two: Array) -> int:
    """Return the least number of insertions, deletions and replacements that make one sequence of another."""
    places = np.arange(len(two) + 1)
    row = places
    for i, token in enumerate(one, 1):
        best = np.minimum(row[1:] + 1, row[:-1] + (two != token))
        # An insertion costs 1 per place, so the running minimum of (cost - place) does all of them at once.
        row = np.minimum.accumulate(np.concatenate([[i], best]) - places) + places
    return int(row[-1])
