"""Guesses the form of a column of dates: the one order of day, month and year that all of its cells allow."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from datetime import date as date_of
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.column_inference import TRIED, is_date
from pe_cli.data.date_forms import DURATION, NEAR, YEARS, parse
from pe_cli.data.date_forms import written as as_written
from pe_cli.data.raw_cells import Codes, Table
from pe_cli.session.starters.guesses import Asked, Guess, three
from pe_cli.session.starters.names import said

#: Forms of dates besides ISO 8601, see `pe_cli.data.date_forms`; those of one line mean other days where they fit the same texts.
FORMS = (
    ("%d.%m.%Y",), ("%d.%m.%y",), ("%Y/%m/%d",), ("%m/%d/%Y", "%d/%m/%Y"), ("%m/%d/%y", "%d/%m/%y"), ("%y/%m/%d",),
    ("%d-%m-%Y", "%m-%d-%Y"), ("%d-%m-%y", "%m-%d-%y"), ("%y-%m-%d",), ("%Y.%m.%d",), ("%Y. %m. %d.",), ("%d. %m. %Y",),
    ("%d %b %Y",), ("%d %B %Y",), ("%d-%b-%Y",), ("%d-%b-%y",), ("%b %d, %Y",), ("%B %d, %Y",), ("%b %d %Y",), ("%d/%b/%Y",),
    *((form,) for form in (
        "%d. %B %Y", "%d.%B.%Y", "%d de %B de %Y", "%d %B, %Y", "%Y年%m月%d日", "%Y년 %m월 %d일", "%Y-%b-%d", "%Y %B %d", "%a, %d %b %Y",
        "%A, %d %B %Y", "%A %d %B %Y", "%A, %d. %B %Y", "%A, %d.%m.%Y", "%A, %B %d, %Y", "%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S %Z %Y",
        "%a %b %d %H:%M:%S %z %Y", "%a, %d %b %Y %H:%M:%S %Z", "%Y-%m", "%Y/%m", "%m/%Y", "%m.%Y", "%b %Y", "%B %Y", "%b-%Y", "%b-%y",
        "%Y-%b", "%Y %b", "%Y%b", "%Y %B", "%Y/%b", "%b/%Y", "%B/%Y", "%B-%Y", "%b %y", "%YM%m", "%Y-M%m", "%Y M%m", "%Y %b %d",
        "%B de %Y", "%Y年%m月", "%Y-Q%q", "%YQ%q", "%Y Q%q", "%Y/Q%q", "Q%q %Y", "Q%q-%Y", "Q%q/%Y", "Q%q%Y", "Q%q/%y", "Q%q %y",
        "Q%q-%y", "%qQ%Y", "%qQ %Y", "%qQ%y", "%q. Quartal %Y", "T%q %Y", "T%q-%Y", "%Y-T%q", "%YT%q", "W%V %G", "W%V/%G", "W%V-%G",
        "%G/W%V", "%G W%V", "Week %V %G", "Week %V, %G", "KW %V/%G", "KW%V/%G", "KW %V %G", "KW%V %G", "%G-KW%V", "%G/KW%V", "%G KW %V",
        "%GKW%V",
    )),
)  # fmt: skip
#: Forms of a time of day, which have no day.
TIMES = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p", "%I:%M%p", "%H:%M:%S.%f", "%H:%M Uhr")
CLOCKS = (
    "", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", "T%H:%M:%S", ":%H:%M:%S", ", %H:%M", ", %H:%M:%S", ", %I:%M %p",
    ", %I:%M:%S %p", " %H:%M Uhr", ", %H:%M Uhr", " um %H:%M Uhr", " %H:%M:%S.%f", " %H:%M:%S %z", " %Hh%M", " %I:%M%p", "T%H:%M",
)  # fmt: skip
_DIRECTIVE = re.compile("%.")
_UNIT = re.compile(r"\d\s*[^\W\d_]")
#: Names of columns whose clocks are lengths of time, and no times of day.
_LENGTH = re.compile(r"duration|dauer|elapsed|runtime|laufzeit|length|dur[e\u00e9]e|lap|finish|splits?$|took", re.IGNORECASE)
#: Years that dates of a table usually have.
EARLIEST, LATEST = 1800, 2150
#: Whole numbers of dates without signs between: their forms, and what the numbers lie between.
COMPACT = (("%Y%m%d", 19000101, 21001231), ("%Y%m", 190001, 210012))
#: Names of columns whose numbers may be moments, and seconds, or thousandths of them, from 1998 to 2040; days as Excel counts them.
_MOMENT = re.compile(r"(^|[\W_])(ts|time|times|timestamp|epoch|date|datum|created|updated|at|unix)([\W_]|$)|(Time|Date|At)$", re.I)
#: Names of columns whose numbers may be years with a fraction.
_YEAR = re.compile(r"(^|[\W_])(time|year|date|yr|period|month|quarter|jahr|zeit)([\W_]|$)|(Time|Year|Date)$|^t$", re.I)
SECONDS, EXCEL = (9e8, 2.21e9), (20000, 60000)
#: Different dates at least from which such numbers are taken for dates.
MANY = 8
#: Dates that stand for a missing one, and those that do where all others are later by so many days.
NO_DAY = re.compile(r"(0000-00-00|9999-12-3[01]|2999-12-31|0001-01-01|00[./]00[./]0000|31[./]12[./]9999|12/31/9999)([ T]\d\d:\d\d.*)?")
FIRST_DAY, LATER = re.compile(r"(1900-01-0[01]|1970-01-01|0?1[./]0?1[./]1900|0?1[./]0?1[./]1970)([ T]00:00.*)?"), 20 * 365


def date(table: Table, name: str, codes: Codes, missing: int, asked: Asked) -> Guess | None:
    """Return a column of dates; None where some text is none.

    Raises:
        PeError: DATA; every date may be another one, and nobody can be asked.
    """
    tried = codes.words[:TRIED]
    if (length := _duration(name, codes, missing)) is not None:
        return length
    if all(":" in word for word in tried) and (clock := next((form for form in TIMES if _parses(codes.words, form)), None)):
        lengths = "where they say how long something took, write numbers"
        note = f"'{said(name, 30)}' is taken for times of day: {three(codes.words)}; {lengths}"
        told = {"format": clock, "parts": ["hour"]} | ({"missing": "zero"} if missing else {})
        return Guess(name, "date", told, f"times of day{f', {missing:,} missing' if missing else ''}", note)
    # The shortest dates, such as Q1/26, have five characters.
    if min(map(len, tried)) < 5:
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
    note = f"'{said(name, 30)}' has dates of the form {form}{why}: {three(codes.words)}" if why else _odd_years(name, codes.words, moments)
    shown = f"{moments[0].date()} to {moments[-1].date()}" + (f", {missing:,} missing" if missing else "") + why
    return Guess(name, "date", options, shown, note)


def _odd_years(name: str, words: Sequence[str], moments: Sequence[datetime]) -> str:
    """Return what to say of dates that lie in years of another calendar, or far away; nothing for others."""
    years = moments[0].year, moments[-1].year
    if years[0] >= EARLIEST and years[1] <= LATEST:
        return ""
    remedy = "where some stand for no date, empty these cells"
    return f"'{said(name, 30)}' has dates of the years {years[0]} to {years[1]}, such as {three(words)}; {remedy}"


def compact(table: Table, name: str, values: NDArray[np.float64]) -> Guess | None:
    """Return a column of whole numbers that are dates without signs between, such as 20210816 and 202108; None for others."""
    there = values[np.isfinite(values)]
    for form, least, most in COMPACT:
        if there.min() < least or there.max() > most:
            continue
        codes = table.cells(name).codes()
        if len(codes.words) < MANY or not _parses(codes.words, form):
            return None
        moments = sorted(parse(word, form) for word in codes.words)
        missing = {"missing": "zero"} if len(there) < len(values) else {}
        otherwise = f"as numbers: --columns '{said(name, 60)}=number'"
        note = f"'{said(name, 30)}' is taken for dates of the form {form}: {three(codes.words)}; {otherwise}"
        shown = f"{moments[0].date()} to {moments[-1].date()}, of the form {form}"
        return Guess(name, "date", {"format": form, "parts": _parts(moments), **missing}, shown, note)
    return None


def since(table: Table, name: str, values: NDArray[np.float64]) -> Guess | None:
    """Return a column that is called like a time, of whole seconds or milliseconds since 1970; None for others."""
    there = values[np.isfinite(values)]
    form, unit = ("%s", 1.0) if there.max() <= SECONDS[1] else ("%Q", 0.001)
    if not _MOMENT.search(name) or there.min() * unit < SECONDS[0] or there.max() * unit > SECONDS[1]:
        return None
    words = table.cells(name).codes().words
    if len(words) < MANY or not _parses(words, form):
        return None
    moments = sorted(parse(word, form) for word in words)
    missing = {"missing": "zero"} if len(there) < len(values) else {}
    shown = f"{moments[0].date()} to {moments[-1].date()}"
    what = "seconds" if form == "%s" else "milliseconds"
    note = f"'{said(name, 30)}' is taken for {what} since 1970, {shown}: {three(words)}; as numbers: --columns '{said(name, 60)}=number'"
    return Guess(name, "date", {"format": form, "parts": _parts(moments), **missing}, f"{what} since 1970: {shown}", note)


def years(table: Table, name: str, values: NDArray[np.float64]) -> Guess | None:
    """Return a column that is called like a time, of years with a fraction for the month or quarter, as R writes it; None for others."""
    there = values[np.isfinite(values)]
    if not _YEAR.search(name) or there.min() < EARLIEST or there.max() > LATEST:
        return None
    months = there * 12
    kinds = np.unique(np.rint(months) % 12)
    # Years alone are numbers; with their halves, they may be half of a scale.
    if len(kinds) < 3 or len(np.unique(there)) < MANY or float(np.abs(months - np.rint(months)).max()) >= NEAR:
        return None
    words = table.cells(name).codes().words
    if not _parses(words, YEARS):
        return None
    moments = sorted(parse(word, YEARS) for word in words)
    missing = {"missing": "zero"} if len(there) < len(values) else {}
    shown = f"{moments[0].date()} to {moments[-1].date()}"
    note = f"'{said(name, 30)}' is taken for years with a fraction for the month, {shown}: {three(words)}"
    note += f"; as numbers: --columns '{said(name, 60)}=number'"
    return Guess(name, "date", {"format": YEARS, "parts": _parts(moments), **missing}, f"years with a fraction: {shown}", note)


def excel_note(name: str, there: NDArray[np.float64]) -> str:
    """Return what to say of numbers that may be days as Excel counts them, in a column that is called like a date; nothing for others."""
    if not _MOMENT.search(name) or there.min() < EXCEL[0] or there.max() > EXCEL[1]:
        return ""
    first = date_of(1899, 12, 30) + timedelta(days=float(there.min()))
    what = f"'{said(name, 30)}' is taken for numbers, such as {there.min():g}; days as Excel counts them ({there.min():g} is {first})"
    return f"{what} would tell months and weekdays: save them as dates, such as {first}"


def no_days(words: Sequence[str]) -> list[str]:
    """Return the texts of a column of dates that stand for a missing one, such as 0000-00-00 and 9999-12-31.

    >>> no_days(["2024-05-01", "9999-12-31"]), no_days(["1970-01-01", "2024-05-01"]), no_days(["1970-01-01", "1970-01-02"])
    (['9999-12-31'], ['1970-01-01'], [])
    """
    never = [word for word in words if NO_DAY.fullmatch(word)]
    first = [word for word in words if FIRST_DAY.fullmatch(word)]
    if not never and not first:
        return []
    others = [word for word in words if word not in never and word not in first]
    forms = (None, *(form + clock for forms in FORMS[:12] for form in forms for clock in CLOCKS[:3]))
    fitting = [form for form in forms if others and _parses(others, form)]
    if not fitting:
        return []
    earliest = min(parse(word, form) for form in fitting for word in others)
    later = timedelta(days=LATER)
    return never + [word for word in first if any(_parses([word], form) and earliest - parse(word, form) > later for form in fitting)]


def _duration(name: str, codes: Codes, missing: int) -> Guess | None:
    """Return a column of lengths of time; None for others, and for those that may be times of day by their cells and their name."""
    words = codes.words
    tried = words[:TRIED]
    clocks = all(word.count(":") == 2 for word in tried)
    # 45:43 may be minutes and hours alike; a number with a single unit is a number with a unit.
    if not clocks and (any(word.count(":") == 1 for word in tried) or not any(len(_UNIT.findall(word)) > 1 for word in tried)):
        return None
    if not _parses(words[:TRIED], DURATION) or not _parses(words, DURATION):
        return None
    if clocks and not _LENGTH.search(name) and any(_parses(words, form) for form in TIMES):
        return None
    moments = sorted(parse(word, DURATION) for word in words)
    shown = f"{as_written(moments[0], DURATION)} to {as_written(moments[-1], DURATION)}"
    told = {"format": DURATION, "parts": ["timestamp"]} | ({"missing": "zero"} if missing else {})
    how = f"{shown} (hours, minutes and seconds): {three(words)}"
    note = f"'{said(name, 30)}' is taken for lengths of time, {how}"
    return Guess(name, "date", told, f"lengths of time, {shown}{f', {missing:,} missing' if missing else ''}", note)


def _fitting(words: Sequence[str], forms: Sequence[str]) -> list[str]:
    """Return the forms that all texts have, with one clock."""
    for clock in CLOCKS:
        # A few texts rule most forms out; only of several that are left all texts are read.
        likely = [form + clock for form in forms if _may_have(words[0], form + clock) and not (clock and "%H" in form)]
        found = [form for form in likely if _parses(words[:TRIED], form)]
        if found:
            return found if len(found) == 1 else [form for form in found if _parses(words, form)] or found[:1]
    return []


def _may_have(word: str, form: str) -> bool:
    """Return whether a text has the signs that a form has, which is told faster than whether it is of the form."""
    return all(sign in word.lower() for sign in _DIRECTIVE.sub("", form).lower())


def _parses(words: Sequence[str], form: str | None) -> bool:
    try:
        for word in words:
            parse(word, form)
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
    # Months and quarters are told by their first day, whose weekday says nothing, and weeks by their Monday.
    are_days = len({moment.weekday() for moment in moments}) > 1 and any(moment.day != 1 for moment in moments)
    if span >= timedelta(days=14) and are_days:
        parts.append("weekday")
    if any(moment.hour or moment.minute for moment in moments):
        parts.append("hour")
    return parts
