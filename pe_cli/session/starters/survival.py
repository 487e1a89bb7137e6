"""Times until an event as a target: the column that says whether it has happened, and what is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.columns.bool import BoolOptions, truth
from pe_cli.data.raw_cells import Table
from pe_cli.session.starters.files import Settings, aligned
from pe_cli.session.starters.guesses import Guess
from pe_cli.session.starters.names import said

#: Words for an event that was seen and for a time that is censored, besides yes and no, in small letters.
_WORDS = (
    ("dead", "alive"), ("died", "alive"), ("deceased", "alive"), ("dead", "censored"), ("event", "censored"), ("observed", "censored"),
    ("churned", "active"), ("failed", "running"), ("failure", "suspended"), ("f", "s"), ("failed", "censored"), ("tot", "lebt"),
    ("verstorben", "lebend"), ("relapse", "no relapse"), ("uncensored", "censored"),
)  # fmt: skip


def check_event(targets: Sequence[str], settings: Settings) -> None:
    """Refuse an event where there is no single time.

    Raises:
        PeError: USAGE; says why.
    """
    if settings.event is None:
        return
    if len(targets) != 1 or settings.event in targets:
        text = f"--event {said(settings.event)} goes with one --target, the time until the event"
        raise PeError(text, hint=f"for example --target duration --event {said(settings.event)}")
    if settings.event in settings.drop:
        raise PeError(f"--drop {said(settings.event)}: the column is the --event", hint="keep it, or leave --event out")
    if settings.task not in ("auto", "number"):
        raise PeError(f"--event goes with a time, and --task {settings.task} predicts none", hint="leave --task out")


def event_of(table: Table, name: str, columns: Mapping[str, Mapping[str, Any]]) -> Guess:
    """Return the column that says whether the event was seen.

    Raises:
        PeError: DATA; a cell is missing, or it has not two values of which one is yes.
    """
    codes = table.cells(name).codes()
    if (codes.codes < 0).any():
        row = int(np.flatnonzero(codes.codes < 0)[0])
        raise table.error(row, name, "the cell is missing, and it says whether the event was seen", "fill it: 1 for seen, 0 for not")
    declared = dict(columns.get(name, {}))
    if declared.pop("type", "bool") != "bool":
        raise PeError(f"--columns {said(name)}: an event is a bool", hint="leave it out", code=ExitCode.USAGE)
    options = declared or _options(codes.words)
    if options is None:
        shown = ", ".join(f"'{said(word, 20)}'" for word in codes.words[:5])
        example = f"{{type: bool, \"yes\": [{said(codes.words[0], 20)}], \"no\": [...]}}"
        what = f"{len(codes.words):,} values ({shown}), of which none is known to mean that the event was seen"
        raise table.error(0, name, what, f"--columns '{said(name)}={example}' says which means so")
    yes = {word.lower() for word in BoolOptions.model_validate(options).yes}
    seen = sum(int((codes.codes == i).sum()) for i, word in enumerate(codes.words) if word.lower() in yes)
    if not seen:
        raise table.error(0, name, "the event was seen in no row: nothing tells how long times are", "look for the column that says so")
    words = " or ".join(word for word in codes.words if word.lower() in yes)
    share = f"{seen:,} of {len(table):,} rows ({100 * seen / len(table):.3g}%)"
    note = f"'{said(name, 30)}' says that the event was seen where it is {words}: {share}; other times are only known to be longer"
    return Guess(name, "bool", options, f"whether the event was seen: {share}", note)


def _options(words: Sequence[str]) -> dict[str, list[str]] | None:
    """Return the options under which texts are yes and no; None for others."""
    small = {word.lower(): word for word in words}
    if len(small) == 1 and set(small) <= {"1", "true", "yes"}:
        return {}
    if len(small) == 2 and (pair := next((pair for pair in _WORDS if set(pair) == set(small)), None)):
        return {"yes": [small[pair[0]]], "no": [small[pair[1]]]}
    return truth(words)


def concordance_section() -> list[str]:
    """Return the lines of `metrics`."""
    options = "{type: concordance, predictions: estimate, labels: value, events: event}"
    return aligned([("concordance:", options, "share of the pairs that are in the right order; 0.5 by chance")], "  ")
