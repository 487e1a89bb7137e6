"""Infers the type of a column that the config does not declare, from its cells and the feed that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.column import Context, selected
from pe_cli.data.columns.bool import NO, YES
from pe_cli.data.columns.number_fit import numbers_of
from pe_cli.data.date_forms import parse
from pe_cli.data.fields import Rows
from pe_cli.data.raw_cells import Codes, Table

#: Classes up to which text becomes a row of 0 and 1 by itself.
MOST_CLASSES = 64
#: Distinct texts that are tried as dates; all of them when there are fewer.
TRIED = 1000


@dataclass(frozen=True)
class Inferred:
    """A column as it is taken.

    Args:
        type: of column.
        options: without `type`.
    """

    type: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        said = "".join(f", {key}: {str(value).lower() if isinstance(value, bool) else value}" for key, value in self.options.items())
        return f"{{type: {self.type}{said}}}"


def infer(context: Context, rows: Rows | None, level: int = 0) -> Inferred:
    """Return what a column is, when the config does not say.

    Numbers are scaled (`standard`) unless they are a target; for an int64 feed they are classes. Text is true or false, dates or
    classes.

    Args:
        context: the column, and whether it is a target or fed as int64.
        rows: the training rows.
        level: levels of the feed's sequences.

    Raises:
        PeError: DATA; text of so many values that no type is safe to assume.
    """
    # An embedding wants indices, whatever the cells look like.
    whole = context.dtype in ("int64", "int32")
    if level:
        return Inferred("text", {"tokens": "words"})
    if whole:
        return Inferred("category")
    numbers = context.cells.numbers()
    if not numbers.bad_count:
        missing = bool(np.isnan(selected(numbers.values, rows)).any())
        fill = {"missing": "mean"} if missing and not context.target else {}
        return Inferred("number", fill if context.target else {**fill, "scale": "standard"})
    codes = context.cells.codes()
    # Mostly numbers: the other cells are mistakes, and taking the column for classes would hide them.
    if numbers.bad_count * 2 < int((codes.codes >= 0).sum()):
        numbers_of(context, context.name)  # a column of numbers with some cells that are none: says which
    if is_bool(codes):
        return Inferred("bool")
    if is_date(codes):
        return Inferred("date")
    if len(codes.words) <= MOST_CLASSES:
        return Inferred("category", {"encode": "one_hot"})
    raise _unclear(context, codes)


def read_ahead(table: Table, names: Sequence[str]) -> None:
    """Let the table read columns of which nothing is known in one pass, and those that are no numbers, as texts, in a second one."""
    table.prepare(names, [])
    found = {name: table.cells(name).numbers() for name in names}
    table.prepare([], [name for name, numbers in found.items() if numbers.bad_count or not np.isfinite(numbers.values).any()])


def is_bool(codes: Codes) -> bool:
    """Return whether all texts say yes or no."""
    words = {word.lower() for word in codes.words}
    return len(words) <= 2 and words <= {*YES, *NO}


def is_date(codes: Codes) -> bool:
    """Return whether all texts are dates of ISO 8601 (of many texts, the first thousand)."""
    # All of the first texts have to be dates: one that is none makes it another column.
    try:
        for word in codes.words[:TRIED]:
            parse(word, None)
    except ValueError:
        return False
    return bool(codes.words)


def _unclear(context: Context, codes: Codes) -> PeError:
    return context.error(
        0,
        f"{len(codes.words):,} different texts, such as '{codes.words[0][:40]}', and the config does not say what they are",
        f"declare {context.name} under data.columns: {{type: category}}, {{type: text, tokens: words}} or {{type: number}}",
    )
