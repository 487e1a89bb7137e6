"""Columns that tell which rows are of one thing, such as the visits of a patient: learned where the same ones come again, else groups."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.data.raw_cells import Table
from pe_cli.session.starters.guesses import Asked, Guess, three
from pe_cli.session.starters.names import said

#: What `--columns NAME=TYPE` calls such a column, which is not learned, and whose rows stay in one part of the data.
GROUP = "group"
#: Values at least, and rows of one in the mean at least and at most: fewer values are classes, and of many rows each is well known.
VALUES, LEAST, MOST = 20, 1.5, 50.0
_KEY = re.compile(
    r"(^|[\W_])(id|ids|nr|no|key|uuid|guid|subj|subject|patient|person|participant|respondent|pupil|student|child|household|customer|client|"
    r"user|animal|plot)([\W_]|$)|[a-z](Id|ID)$",
    re.IGNORECASE,
)


def group_of(columns: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the column that was said to be a group; None where none was.

    Raises:
        PeError: USAGE; there are several.
    """
    found = [name for name, declared in columns.items() if declared.get("type") == GROUP]
    if len(found) > 1:
        text = f"--columns: '{said(found[0])}' and '{said(found[1])}' are groups, and rows stay together by one column"
        raise PeError(text, hint="say it of one of them")
    return found[0] if found else None


def as_group(name: str) -> Guess:
    """Return a column that is a group."""
    return Guess(name, None, why="a group: not learned, as rows to come have other values")


def with_group(table: Table, guesses: Sequence[Guess], columns: Mapping[str, Any], asked: Asked) -> tuple[list[Guess], str | None]:
    """Return the columns, and the one whose rows stay together in one part of the data; None where rows are drawn one by one.

    Only who has the data knows whether rows to come are of the same things. So it is asked where somebody is there, and said elsewhere.

    Args:
        table: the rows.
        guesses: how its columns are taken.
        columns: what was said of them.
        asked: puts questions.
    """
    group = group_of(columns)
    if group is not None:
        return list(guesses), group
    found = list(guesses)
    for i, one in enumerate(guesses):
        rows = _rows_of_one(table, one) if one.name not in columns else None
        if rows is None:
            continue
        words = table.cells(one.name).codes().words
        tells = f"'{said(one.name, 30)}' ({three(words)}) tells which rows are of one thing: {len(words):,} values, {rows:.3g} rows of each"
        again, others = "of the same values: they are learned", "of other values: they are not learned, and evaluation rows have other ones"
        chosen = asked.choose(f"{tells}. Of which values will the rows be that are to be predicted?", (again, others))
        if chosen == 1:
            found[i] = as_group(one.name)
            return found, one.name
        why = "it is learned, and evaluation rows have values that are known"
        note = f"{tells}; {why}; where rows to come have others: --columns '{said(one.name, 60)}={GROUP}'"
        found[i] = replace(one, note=note if chosen is None else "")
    return found, None


def _rows_of_one(table: Table, one: Guess) -> float | None:
    """Return how many rows of a value there are in the mean, of a category that is a key of repeated rows; None for other columns."""
    if one.type != "category" or not _KEY.search(one.name):
        return None
    codes = table.cells(one.name).codes()
    rows = float((codes.codes >= 0).sum()) / max(1, len(codes.words))
    return rows if len(codes.words) >= VALUES and LEAST <= rows <= MOST else None
