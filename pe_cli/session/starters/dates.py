"""Guesses the form of a column of dates: the one order of day, month and year that all of its cells allow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta

from pe_cli.data.column_inference import TRIED, is_date
from pe_cli.data.columns.date import parse
from pe_cli.data.raw_cells import Codes, Table
from pe_cli.session.starters.guesses import Asked, Guess, three
from pe_cli.session.starters.names import said

#: Forms of dates besides ISO 8601, as of strptime; those of one line mean other days where they fit the same texts.
FORMS = (
    ("%d.%m.%Y",), ("%d.%m.%y",), ("%Y/%m/%d",), ("%m/%d/%Y", "%d/%m/%Y"), ("%m/%d/%y", "%d/%m/%y"), ("%y/%m/%d",),
    ("%d-%m-%Y", "%m-%d-%Y"), ("%d-%m-%y", "%m-%d-%y"), ("%y-%m-%d",), ("%Y.%m.%d",), ("%Y. %m. %d.",), ("%d %b %Y",), ("%d %B %Y",),
    ("%d-%b-%Y",), ("%d-%b-%y",), ("%b %d, %Y",), ("%B %d, %Y",), ("%b %d %Y",), ("%a, %d %b %Y",), ("%d/%b/%Y",),
    ("%Y-%m",), ("%Y/%m",), ("%m/%Y",), ("%m.%Y",), ("%b %Y",), ("%B %Y",), ("%b-%Y",), ("%b-%y",), ("%Y-%b",),
)  # fmt: skip
#: Forms of a time of day, which have no day.
TIMES = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p")
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", "T%H:%M:%S", ":%H:%M:%S", ", %H:%M")


def date(table: Table, name: str, codes: Codes, missing: int, asked: Asked) -> Guess | None:
    """Return a column of dates; None where some text is none.

    Raises:
        PeError: DATA; every date may be another one, and nobody can be asked.
    """
    tried = codes.words[:TRIED]
    if all(":" in word for word in tried) and (clock := next((form for form in TIMES if _parses(codes.words, form)), None)):
        lengths = "where they say how long something took, write numbers"
        note = f"'{said(name, 30)}' is taken for times of day: {three(codes.words)}; {lengths}"
        told = {"format": clock, "parts": ["hour"]} | ({"missing": "zero"} if missing else {})
        return Guess(name, "date", told, f"times of day{f', {missing:,} missing' if missing else ''}", note)
    # The shortest dates, such as 1.1.26 and 1/2026, have six characters.
    if min(map(len, tried)) < 6:
        return None
    form, why = None, ""
    if not is_date(codes):
        fitting = next((found for forms in FORMS if (found := _fitting(codes.words, forms))), [])
        if not fitting:
            return None
        form, why = _settled(table, name, codes, fitting, asked) if len(fitting) > 1 else (fitting[0], "")
    try:
        moments = sorted(parse(word, form) for word in codes.words)
    except ValueError:
        return None
    options: dict[str, object] = {"format": form} if form else {}
    options |= {"parts": _parts(moments)} | ({"missing": "zero"} if missing else {})
    shown = f"{moments[0].date()} to {moments[-1].date()}" + (f", {missing:,} missing" if missing else "") + why
    return Guess(name, "date", options, shown, f"'{said(name, 30)}' has dates of the form {form}{why}: {three(codes.words)}" if why else "")


def _fitting(words: Sequence[str], forms: Sequence[str]) -> list[str]:
    """Return the forms that all texts have, with one clock."""
    for clock in CLOCKS:
        # A few texts rule most forms out; only of several that are left all texts are read.
        found = [form + clock for form in forms if _parses(words[:TRIED], form + clock)]
        if found:
            return found if len(found) == 1 else [form for form in found if _parses(words, form)] or found[:1]
    return []


def _parses(words: Sequence[str], form: str) -> bool:
    try:
        for word in words:
            datetime.strptime(word, form)
    except ValueError:
        return False
    return True


def _settled(table: Table, name: str, codes: Codes, fitting: Sequence[str], asked: Asked) -> tuple[str, str]:
    """Return the form of dates that have several, and by what it was chosen.

    Raises:
        PeError: DATA; nothing tells.
    """
    same = [form for form in fitting if all(parse(word, form) == parse(word, fitting[0]) for word in codes.words)]
    if len(same) == len(fitting):
        return fitting[0], ""
    rising = [form for form in fitting if _in_order(codes, form)]
    if len(rising) == 1:
        return rising[0], ", an order in which the rows follow each other in time"
    first = codes.words[0]
    meant = [f"{parse(first, form).date()} ({form})" for form in fitting]
    chosen = asked.choose(f"'{said(name, 30)}': {three(codes.words)}. What is the first of these dates?", meant)
    if chosen is not None:
        return fitting[chosen], ", as was answered"
    raise table.error(
        0, name, f"'{said(first, 30)}' may be {' or '.join(meant)}, and no date of the column tells which",
        f"""say it: --columns '{name}={{type: date, format: "{fitting[0]}"}}' or "{fitting[1]}", as data.columns of the config has it""",
    )  # fmt: skip


def _in_order(codes: Codes, form: str) -> bool:
    moments = [parse(word, form) for word in codes.words]
    rows = [moments[code] for code in codes.codes.tolist() if code >= 0]
    return len(rows) > 2 and (all(a <= b for a, b in itertools.pairwise(rows)) or all(a >= b for a, b in itertools.pairwise(rows)))


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
