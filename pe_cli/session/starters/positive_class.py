"""Chooses which of two classes metrics are about: the one that the user names, or the rarer one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pe_cli.config.substitute import escaped
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.yaml_inline import flow, quoted
from pe_cli.data.columns.bool import PAIRS, YES
from pe_cli.data.raw_cells import Codes, Table
from pe_cli.session.starters.files import Lines, aligned
from pe_cli.session.starters.guesses import Guess
from pe_cli.session.starters.names import of_class, said
from pe_cli.session.starters.numbers import counts_of

#: Share of the rows below which a class is rare: accuracy says little then.
RARE = 0.2
#: Key of a metric in a config, its type, and its options besides scores and labels.
_METRICS = (
    ("precision", {"type": "precision", "average": "binary"}, "share of the rows taken for it that are of it"),
    ("recall", {"type": "recall", "average": "binary"}, "share of its rows that are found"),
    ("average_precision", {"type": "average_precision"}, "precision over all thresholds; {share:.3g} for a random order"),
)


@dataclass(frozen=True)
class Positive:
    """The class that metrics are about.

    Args:
        name: of the class.
        share: of the rows that are of it.
        why: it is this one.
        suffix: of the names of its target's layers; empty for the only target.
    """

    name: str
    share: float
    why: str
    suffix: str = ""

    def of(self, suffix: str) -> Positive:
        """Return it with the suffix of a target."""
        return replace(self, suffix=suffix)

    def metric(self, key: str) -> str:
        """Return what a metric of the class is called."""
        return of_class(f"{key}{self.suffix}", self.name)

    @property
    def best(self) -> tuple[str, str]:
        """The metric that decides which checkpoint is the best, and whether more of it is better: max, or min."""
        return (self.metric("average_precision"), "max") if self.is_rare else ("loss", "min")

    @property
    def is_rare(self) -> bool:
        """Whether so few rows are of it that accuracy says little."""
        return self.share < RARE

    def section(self) -> list[str]:
        """Return lines of `metrics`."""
        rows: Lines = []
        for key, options, what in _METRICS:
            declared = {**options, "scores": f"prob{self.suffix}", "labels": f"label{self.suffix}"}
            rows.append((f"{quoted(escaped(self.metric(key)))}:", flow(declared), what.format(share=self.share)))
        return [
            f"  # Of all rows of an evaluation, about '{said(self.name, 40)}', class 1: {self.why}. --positive of pe init chooses another.",
            *aligned(rows, "  "),
        ]


def classes_in(table: Table, target: Guess) -> Codes:
    """Return the cells of a target of classes, with one text for each class."""
    return table.cells(target.name).codes().merged({w: name for name, words in target.options.get("spellings", {}).items() for w in words})


def positive_of(table: Table, target: Guess, wanted: str | None) -> tuple[Guess, Positive | None]:
    """Return a target with the positive one of two classes as its last; and that class, None for other targets.

    Raises:
        PeError: USAGE, there are no two classes; DATA, the class that is asked for does not occur.
    """
    codes = classes_in(table, target) if target.type == "category" else Codes(np.zeros(0, np.int32), [])
    words = codes.words
    if wanted is not None and len(words) != 2:
        has = f"{len(words):,} classes" if words else "tags, each with metrics of its own" if target.type == "bag" else "numbers"
        raise PeError(f"--positive '{said(wanted)}': '{said(target.name)}' has {has}, not two classes", hint="leave --positive out")
    if len(words) != 2:
        return target, None
    if wanted is not None and wanted not in words:
        hint = did_you_mean(wanted, words) or f"the classes are {' and '.join(repr(said(word, 30)) for word in words)}"
        raise PeError(f"--positive: '{said(target.name)}' has no class '{said(wanted)}'", hint=hint, code=ExitCode.DATA)
    counts = counts_of(codes).tolist()
    chosen = _chosen(words, counts) if wanted is None else words.index(wanted)
    share = counts[chosen] / sum(counts)
    why = "--positive says so" if wanted is not None else f"the rarer one, {100 * share:.3g}% of the rows"
    if wanted is None and counts[0] == counts[1]:
        why = "both have as many rows"
    made = Positive(words[chosen], share, why)
    return replace(target, options={**target.options, "classes": [words[1 - chosen], words[chosen]]}), made


def _chosen(words: list[str], counts: list[int]) -> int:
    """Return the index of the rarer class; of two that are as many the one that says yes, else the second one that the file has."""
    if counts[0] != counts[1]:
        return int(counts[1] < counts[0])
    yes = {*YES, *(word for word, _ in PAIRS)}
    return 0 if words[0].lower() in yes and words[1].lower() not in yes else 1
