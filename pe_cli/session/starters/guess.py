"""Guesses column types and the target of a table that nothing is said about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.cells import MISSING, Codes, Table
from pe_cli.data.columns.date import parse
from pe_cli.data.infer import TRIED, is_bool, is_date
from pe_cli.session.starters.names import said

#: Texts without a digit that stand for a missing number, at most so many in a column.
MOST_MARKERS = 3
#: Whole numbers of a target up to which they are taken for classes, and the share of the rows that they may be.
MOST_WHOLE, WHOLE_SHARE = 20, 0.1
#: Share of the rows that may have a text of their own in a column of classes.
OWN_SHARE = 0.5
#: Deviations from the mean beyond which a number is clipped, and the quantiles that are kept.
FAR, KEPT = 10.0, (0.001, 0.999)
#: Rows that a class must have in larger tables; others count as unknown.
FEW, LARGER = 5, 500
#: Words of a cell, in the mean, from which it is a text; and characters, where there are hardly any blanks.
WORDS, CHARACTERS = 4.0, 25.0
#: Different items of a bag at most, and rows that an item must have in the mean.
MOST_ITEMS, ITEM_ROWS = 300, 5
SEPARATORS = ("|", ";", ",")
#: Forms of dates besides ISO 8601, as of strptime.
FORMS = ("%d.%m.%Y", "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%d %b %Y", "%b %d, %Y")
CLOCKS = ("", " %H:%M", " %H:%M:%S")
_ID = re.compile(
    r"(^|[\W_])(id|idx|index|key|uuid|guid|nr|no|row|rownum|rownames)$|^(id|index|row)([\W_]|$)|^unnamed|^\d*$",
    re.IGNORECASE,
)
_CAMEL_ID = re.compile(r"[a-z](Id|ID)$")
_COMMA_NUMBER = re.compile(r"[-+]?\d{1,3}([.,' ]\d{3})*[.,]\d+|[-+]?\d{1,3}([,' ]\d{3})+")


@dataclass(frozen=True)
class Guess:
    """How a column is taken.

    Args:
        name: of the column.
        type: of column; None leaves it out.
        options: without `type`.
        why: what was seen in it, for a comment.
    """

    name: str
    type: str | None
    options: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""

    @property
    def written(self) -> dict[str, Any]:
        """The column as a config declares it."""
        return {"type": self.type, **self.options}


def markers(table: Table, names: Iterable[str]) -> tuple[str, ...]:
    """Return texts that stand for missing numbers in some columns: a column is numbers but for them, and they have no digit."""
    found: dict[str, None] = {}
    for name in names:
        cells = table.cells(name)
        numbers = cells.numbers()
        if not numbers.bad_count or numbers.bad_count * 2 > np.isfinite(numbers.values).sum() + numbers.bad_count:
            continue
        words = dict.fromkeys(cells.text(int(row)) for row in numbers.bad)
        if len(words) > MOST_MARKERS or any(c.isdigit() for word in words for c in word):
            continue
        codes = cells.codes()
        counts = counts_of(codes)
        if sum(int(counts[codes.words.index(word)]) for word in words if word in codes.words) == numbers.bad_count:
            found.update(words)
    return tuple(word for word in found if word not in MISSING)


def counts_of(codes: Codes, rows: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return how many rows have each text."""
    used = codes.codes if rows is None else codes.codes[rows]
    return np.bincount(used[used >= 0], minlength=len(codes.words)).astype(np.int64)


def guess(table: Table, name: str) -> Guess:
    """Return how a column that is no target is taken."""
    if name in table.implied:
        return Guess(
            name, str(table.implied[name]["type"]), {k: v for k, v in table.implied[name].items() if k != "type"}
        )
    cells = table.cells(name)
    numbers = cells.numbers()
    if not numbers.bad_count and np.isfinite(numbers.values).any():
        return _number(name, numbers.values)
    codes = cells.codes()
    if not codes.words:
        return Guess(name, None, why="every cell is missing")
    if numbers.bad_count * 2 < int((codes.codes >= 0).sum()):
        row = int(numbers.bad[0])
        what = (
            "1 cell is no number:" if numbers.bad_count == 1 else f"{numbers.bad_count:,} cells are no numbers, such as"
        )
        return Guess(name, None, why=f"{what} '{said(cells.text(row), 30)}' in row {row + 1}")
    return _text(name, codes)


# --- numbers ----------------------------------------------------------------------------------------------------------


def _number(name: str, values: NDArray[np.float64]) -> Guess:
    there = values[np.isfinite(values)]
    missing = len(values) - len(there)
    distinct = np.unique(there)
    shown = f"{short(distinct[0])} to {short(distinct[-1])}" if len(distinct) > 1 else short(distinct[0])
    if len(distinct) == 1:
        if missing:
            return Guess(name, "category", why=f"{shown} or missing")
        return Guess(name, None, why=f"it is {shown} in every row")
    if not missing and len(distinct) == len(values) and _is_id(name, there):
        return Guess(name, None, why="another whole number in every row: an id")
    if not missing and set(distinct.tolist()) <= {0.0, 1.0}:
        return Guess(name, "bool", why="0 or 1")
    options: dict[str, Any] = {"missing": "median"} if missing else {}
    if missing:
        shown += f", {missing:,} missing"
    deviation = float(there.std())
    if max(distinct[-1] - there.mean(), there.mean() - distinct[0]) > FAR * deviation:
        low, high = (float(f"{value:.6g}") for value in np.quantile(there, KEPT))
        if low < high:
            options["clip"] = [low, high]
            shown += ", a few far from the others"
    return Guess(name, "number", {**options, "scale": "standard"}, shown)


def _is_id(name: str, values: NDArray[np.float64]) -> bool:
    """Return whether whole numbers, another one in every row, number the rows."""
    if not (values == np.rint(values)).all():
        return False
    consecutive = bool((np.diff(values) == 1).all())
    return consecutive or bool(_ID.search(name) or _CAMEL_ID.search(name))


def short(value: float) -> str:
    """Return a number for a comment.

    >>> short(3.0), short(0.123456), short(1234567)
    ('3', '0.1235', '1,234,567')
    """
    return f"{int(value):,}" if float(value).is_integer() and abs(value) < 1e12 else f"{value:.4g}"


# --- texts ------------------------------------------------------------------------------------------------------------


def _text(name: str, codes: Codes) -> Guess:  # noqa: PLR0911 - one return per kind
    counts = counts_of(codes)
    rows = int(counts.sum())
    missing = len(codes.codes) - rows
    distinct = len(codes.words)
    gaps = f", {missing:,} missing" if missing else ""
    if distinct == 1:
        if missing:
            return Guess(name, "category", why=f"'{said(codes.words[0], 30)}' or missing")
        return Guess(name, None, why=f"it is '{said(codes.words[0], 30)}' in every row")
    if is_bool(codes) and not missing:
        return Guess(name, "bool", why=" or ".join(sorted(said(word) for word in codes.words)))
    found = _date(name, codes, missing) or _bag(name, codes, counts, gaps)
    if found is not None:
        return found
    share = distinct / rows
    lengths = np.array([len(word) for word in codes.words[:TRIED]])
    blanks = np.array([len(word.split()) for word in codes.words[:TRIED]])
    if share > 0.3 and blanks.mean() >= WORDS:
        return Guess(name, "text", {"tokens": "words"}, f"texts of {blanks.mean():.0f} words in the mean{gaps}")
    if (
        share > 0.3
        and lengths.mean() >= CHARACTERS
        and (lengths / blanks).mean() >= CHARACTERS
        and not _ascii(codes.words)
    ):
        return Guess(
            name, "text", {"tokens": "characters"}, f"texts of {lengths.mean():.0f} characters in the mean{gaps}"
        )
    if sum(bool(_COMMA_NUMBER.fullmatch(word)) for word in codes.words[:TRIED]) * 10 >= 9 * len(codes.words[:TRIED]):
        return Guess(
            name,
            None,
            why=f"numbers with commas or blanks, such as '{said(codes.words[0], 30)}': write them like 1234.5",
        )
    if share > OWN_SHARE:
        return Guess(
            name,
            None,
            why=f"{distinct:,} different texts in {rows:,} rows, such as '{said(codes.words[0], 30)}': an id?",
        )
    few = len(codes.codes) >= LARGER and bool((counts < FEW).any())
    shown = f"{distinct:,} texts, such as {', '.join(_most(codes, counts))}{gaps}"
    return Guess(name, "category", {"min_count": FEW} if few else {}, shown)


def _ascii(words: list[str]) -> bool:
    return all(word.isascii() for word in words[:TRIED])


def _most(codes: Codes, counts: NDArray[np.int64], number: int = 3) -> list[str]:
    """Return the most frequent texts."""
    order = np.argsort(-counts, kind="stable")[:number]
    return [f"'{said(codes.words[i], 24)}'" for i in order]


def _date(name: str, codes: Codes, missing: int) -> Guess | None:
    """Return a column of dates; None where some text is none."""
    tried = codes.words[:TRIED]
    if min(map(len, tried)) < 6:
        return None
    form, other = None, None
    if not is_date(codes):
        fitting = [day + clock for day in FORMS for clock in CLOCKS if _parses(tried, day + clock)]
        if not fitting:
            return None
        form, other = fitting[0], next(iter(fitting[1:]), None)
    try:
        moments = sorted(parse(word, form) for word in codes.words)
    except ValueError:
        return None
    parts = _parts(moments)
    options: dict[str, Any] = {"format": form} if form else {}
    options |= {"parts": parts} | ({"missing": "zero"} if missing else {})
    shown = f"{moments[0].date()} to {moments[-1].date()}" + (f", {missing:,} missing" if missing else "")
    if other:
        shown += f"; format may also be {other}"
    return Guess(name, "date", options, shown)


def _parses(words: list[str], form: str) -> bool:
    try:
        for word in words:
            datetime.strptime(word, form)
    except ValueError:
        return False
    return True


def _parts(moments: list[datetime]) -> list[str]:
    """Return the parts of a date that differ often enough to tell something."""
    span = moments[-1] - moments[0]
    parts = ["timestamp"]
    if span >= timedelta(days=300):
        parts.append("month")
    if span >= timedelta(days=14):
        parts.append("weekday")
    if any(moment.hour or moment.minute for moment in moments):
        parts.append("hour")
    return parts


def _bag(name: str, codes: Codes, counts: NDArray[np.int64], gaps: str) -> Guess | None:
    """Return a column with several categories in a cell; None for any other."""
    rows = int(counts.sum())
    for separator in SEPARATORS:
        several = np.array([separator in word for word in codes.words])
        if int(counts[several].sum()) * 5 < rows:
            continue
        items: dict[str, int] = {}
        for word, number in zip(codes.words, counts.tolist(), strict=True):
            for item in dict.fromkeys(part.strip() for part in word.split(separator)):
                if item:
                    items[item] = items.get(item, 0) + number
            if len(items) > MOST_ITEMS:
                break
        longest = max((len(item.split()) for item in items), default=0)
        if (
            len(items) <= MOST_ITEMS
            and longest <= 3
            and sum(items.values()) >= ITEM_ROWS * len(items)
            and len(items) <= len(codes.words)
        ):
            options = {} if separator == "|" else {"separator": separator}
            most = ", ".join(f"'{said(item, 24)}'" for item in sorted(items, key=lambda item: -items[item])[:3])
            return Guess(name, "bag", options, f"lists of {len(items):,} items, such as {most}{gaps}")
    return None


# --- the target -------------------------------------------------------------------------------------------------------


def guess_target(table: Table, name: str, task: str) -> Guess:
    """Return how the target is taken: as classes (type category) or as a number.

    Args:
        table: has the column.
        name: of it.
        task: classes, number, or auto.

    Raises:
        PeError: DATA; a cell is missing, all cells are the same, or it has another text in every row.
    """
    cells = table.cells(name)
    numbers, codes = cells.numbers(), cells.codes()
    gaps = np.flatnonzero(codes.codes < 0)
    if len(gaps):
        more = f", and so are {len(gaps) - 1:,} more" if len(gaps) > 1 else ""
        hint = "fill them, or take these rows out of the file: nothing is learned from a row without a target"
        raise table.error(int(gaps[0]), name, f"the target is missing{more}", hint)
    if len(codes.words) == 1:
        constant = f"the target is '{said(codes.words[0])}' in every row: there is nothing to learn"
        raise table.error(0, name, constant, "name another --target")
    number = not numbers.bad_count
    if task == "number" and not number:
        row = int(numbers.bad[0])
        raise table.error(
            row, name, f"'{said(cells.text(row))}' is no number, and --task number predicts numbers", "--task classes"
        )
    few = len(codes.words) <= min(MOST_WHOLE, max(2, WHOLE_SHARE * len(table)))
    whole = number and bool((numbers.values == np.rint(numbers.values)).all())
    if task == "number" or (task == "auto" and number and not (whole and few)):
        low, high = numbers.values.min(), numbers.values.max()
        return Guess(name, "number", {"scale": "standard"}, f"{short(low)} to {short(high)}")
    if len(codes.words) > OWN_SHARE * len(table):
        raise table.error(
            0,
            name,
            f"the target has {len(codes.words):,} different texts in {len(table):,} rows, such as '{said(codes.words[0])}'",
            "name a --target with classes that repeat, or with numbers",
        )
    most = ", ".join(_most(codes, counts_of(codes)))
    return Guess(name, "category", {}, f"{len(codes.words):,} classes, such as {most}")


def no_target(names: tuple[str, ...], asked: str | None) -> PeError:
    """Return the error of a table without a target, or with one that it does not have."""
    from pe_cli.core.errors import did_you_mean

    listed = ", ".join(said(name, 30) for name in names[:60]) + (
        f" and {len(names) - 60} more" if len(names) > 60 else ""
    )
    if asked is None:
        return PeError(
            f"--from a table needs --target COLUMN, the column that is to be predicted; the columns are: {listed}",
            hint=f"for example --target {shell(names[-1])}",
        )
    hint = did_you_mean(asked, names) or "--target takes a name of these, as it is written in the file"
    return PeError(f"the data has no column '{said(asked)}'; the columns are: {listed}", hint=hint, code=ExitCode.DATA)


def shell(text: str) -> str:
    """Return a text as an argument of a command."""
    import shlex

    return shlex.quote(said(text, 200))


def left_out(guess: Guess, why: str) -> Guess:
    """Return a column that is left out after all."""
    return replace(guess, type=None, why=why)
