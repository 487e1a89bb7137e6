"""Series at any times become rows at regular ones: a row stands for all that was in a step of time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.raw_cells import ListTable, Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.time_columns import moments_of

Combined = Literal["mean", "sum", "last"]
#: Seconds of the units of a step.
UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
#: Steps for each row of the table at most, and besides.
MOST_STEPS, FEW_STEPS = 20, 10_000
_STEP = re.compile(r"([1-9]\d{0,5}) ?(second|minute|hour|day|week)s?")
#: Weeks begin on a Monday, as 1970-01-05 was one.
_MONDAY = 4 * 86400


def seconds_of(step: str) -> int:
    """Return the seconds of a step of time.

    Raises:
        ValueError: it is none.

    >>> seconds_of("15 minutes"), seconds_of("1 day")
    (900, 86400)
    """
    found = _STEP.fullmatch(step)
    if found is None:
        raise ValueError("must be a number of seconds, minutes, hours, days or weeks, such as 15 minutes")
    return int(found[1]) * UNITS[found[2]]


def regular(table: Table, key: str | None, time: str, form: str | None, every: int, combined: Combined, origin: Origin) -> ListTable:
    """Return rows at regular times, one for each step of each series, from its first to its last.

    Numbers of a step are combined; of other columns the last cell of a step counts. In steps without a row numbers are missing, and other
    cells are those of the step before.

    Args:
        table: has the columns.
        key: column that tells series apart; None for one series.
        time: column of dates or seconds.
        form: of dates, as of strptime; None for ISO 8601.
        every: seconds of a step.
        combined: what becomes of several numbers.
        origin: gives errors their place.

    Raises:
        PeError: DATA; a time is none, or steps are far shorter than rows are apart.
    """
    times = moments_of(table, time, "rows are put into steps of time", form)
    series = np.zeros(len(table), np.int64) if key is None else table.cells(key).codes().codes.astype(np.int64)
    steps = np.floor((times - _MONDAY) / every).astype(np.int64)
    order = np.lexsort((times, series))
    sorted_series, sorted_steps = series[order], steps[order]
    firsts = np.flatnonzero(np.diff(sorted_series, prepend=-2))
    lasts = np.append(firsts[1:], len(order)) - 1
    lengths = sorted_steps[lasts] - sorted_steps[firsts] + 1
    total = int(lengths.sum())
    if total > MOST_STEPS * len(table) + FEW_STEPS:
        rows = f"{len(table):,} rows would become {total:,}"
        raise origin.error(f"steps of {every:,} seconds are far shorter than rows are apart: {rows}", "longer steps: every: 1 day")
    begins = np.append(0, np.cumsum(lengths))
    of_series = np.cumsum(np.diff(sorted_series, prepend=sorted_series[:1]) != 0)
    #: where a row of the table, in order, goes
    place = begins[of_series] + sorted_steps - sorted_steps[firsts][of_series]
    made: dict[str, Sequence[object]] = {}
    of_steps = np.repeat(np.arange(len(lengths)), lengths)
    numbers = sorted_steps[firsts][of_steps] + np.arange(total) - begins[of_steps]
    for name in table.names:
        if name == time:
            made[name] = _written(numbers * every + _MONDAY, dates=bool(table.cells(time).numbers().bad_count))
        elif name == key:
            codes = table.cells(name).codes()
            made[name] = [codes.words[code] if code >= 0 else None for code in sorted_series[firsts][of_steps].tolist()]
        else:
            made[name] = _column(table, name, order, place, begins, combined)
    return ListTable(made, origin, "at regular times")


def _written(moments: NDArray[np.int64], *, dates: bool) -> list[Any]:
    """Return times as cells: seconds, or dates of ISO 8601 in UTC."""
    if not dates:
        return list(moments.tolist())
    first = datetime(1970, 1, 1, tzinfo=UTC)
    found = [(first + timedelta(seconds=moment)).replace(tzinfo=None) for moment in moments.tolist()]
    midnight = not (moments % UNITS["day"]).any()
    return [moment.date().isoformat() if midnight else moment.isoformat() for moment in found]


def _column(
    table: Table, name: str, order: NDArray[np.int64], place: NDArray[np.int64], begins: NDArray[np.int64], combined: Combined
) -> list[Any]:
    """Return the cells of a column, one for each step; `place` is where each row in order goes, and `begins` where series begin."""
    cells, total = table.cells(name), int(begins[-1])
    numbers = cells.numbers()
    if not numbers.bad_count:
        values = numbers.values[order]
        there = ~np.isnan(values)
        count = np.bincount(place[there], minlength=total)
        if combined == "last":
            found = np.full(total, np.nan)
            found[place[there]] = values[there]  # of several the last one stays
        else:
            found = np.bincount(place[there], weights=values[there], minlength=total)
            found = found / np.maximum(count, 1) if combined == "mean" else found
        return [value if many else None for value, many in zip(found.tolist(), count.tolist(), strict=True)]
    codes = cells.codes()
    known = np.full(total, -1, np.int64)
    sorted_codes = codes.codes[order].astype(np.int64)
    known[place[sorted_codes >= 0]] = sorted_codes[sorted_codes >= 0]
    # the place of the last known cell, never one of the series before
    last = np.maximum.accumulate(np.where(known >= 0, np.arange(total), -1))
    starts = np.repeat(begins[:-1], np.diff(begins))
    last = np.where(last >= starts, last, -1)
    return [codes.words[known[at]] if at >= 0 else None for at in last.tolist()]
