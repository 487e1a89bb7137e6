"""Finds series in a table: what orders the rows, what tells series apart, and how far rows are apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.date_forms import DURATION
from pe_cli.data.raw_cells import Table
from pe_cli.data.series_windows import Shape
from pe_cli.data.time_columns import moments_of, working_days
from pe_cli.session.starters.guesses import Guess
from pe_cli.session.starters.names import said

#: Rows that a series must have in the mean, and the share of its steps that are as long as the usual one, nearly.
FEWEST, REGULAR, NEARLY = 40, 0.9, 0.15
#: Steps in seconds up to which rows are so far apart, what they are called, and how many are read and forecast.
PACES = (
    (120, "minute", 60, 15), (2 * 3600, "hour", 48, 24), (2 * 86400, "day", 28, 7), (10 * 86400, "week", 26, 4),
    (45 * 86400, "month", 24, 12), (120 * 86400, "quarter", 12, 4), (float("inf"), "year", 12, 3),
)  # fmt: skip
#: The same for days from Monday to Friday.
WORKING = (2 * 86400, "working day", 20, 5)
#: Steps that times are made regular by: what lies between rows then, as `every` says it, and in seconds.
STEPS = (
    ("minute", "1 minute", 60), ("minute", "15 minutes", 900), ("hour", "1 hour", 3600), ("day", "1 day", 86400),
    ("week", "1 week", 7 * 86400),
)  # fmt: skip
#: Share of the steps that have a row, at least; and the correlation of numbers with the ones before from which they are a series.
FILLED, GOES_ON = 0.5, 0.5
#: Share of the rows that may have the time of another one, such as the hour at which clocks are set back.
TWICE = 0.01
#: A series has so many times the rows of a window.
WINDOWS = 6


@dataclass(frozen=True)
class Found:
    """Series in a table.

    Args:
        time: column that orders them.
        key: column that tells them apart; None for one series.
        pace: what lies between two rows.
        shape: of windows.
        form: of the dates, as of strptime; None for ISO 8601.
        every: step by which times are made regular; None where they are.
    """

    time: str
    key: str | None
    pace: str
    shape: Shape
    form: str | None = None
    every: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Options of the reader that say how times are read."""
        form = {"format": self.form} if self.form else {}
        return {**({"key": self.key} if self.key else {}), "time": self.time, **form, **({"every": self.every} if self.every else {})}


@dataclass(frozen=True)
class Missed:
    """Why a table holds no series.

    Args:
        why: in words.
        timed: whether rows have times, so that it is worth to be said.
        remedy: what makes it one.
    """

    why: str
    timed: bool = False
    remedy: str = ""


def find(table: Table, target: str, guesses: Sequence[Guess], *, sure: bool = False) -> Found | Missed:
    """Return the series that a table holds, or why it holds none.

    Args:
        table: the rows.
        target: column that would be forecast.
        guesses: how the other columns are taken.
        sure: the user says that it holds series, so that times which are not regular are made so.
    """
    if table.cells(target).numbers().bad_count:
        return Missed(f"'{said(target)}' is no column of numbers")
    dates = [found for found in guesses if found.type == "date" and "missing" not in found.options and found.options["parts"] != ["hour"]
             and found.options.get("format") != DURATION]  # fmt: skip
    if not dates:
        return Missed("no column has a date, such as 2024-05-31, in every row")
    reasons, timed, remedy = [], False, ""
    for found in dates:
        form = found.options.get("format")
        times = moments_of(table, found.name, "series are ordered by it", form)
        keys = _keys(table, [g for g in guesses if g.name != found.name])
        for key, codes in keys:
            pace = _pace(times, codes)
            if pace is not None:
                return Found(found.name, key, *pace, form)
        reasons.append(_irregular(table, found.name, times, keys[0][1]))
        for key, codes in keys:
            step = _step(times, codes)
            if step is not None and sure:
                name, every, steps = step
                return Found(found.name, key, name, _shape(name, steps), form, every)
            remedy = remedy or (f"--task series makes one row for every {step[1]}" if step is not None else "")
        timed = timed or _advance(times, table.cells(target).numbers().values)
    return Missed("; ".join(reasons), timed, remedy)


def _advance(times: NDArray[np.float64], values: NDArray[np.float64]) -> bool:
    """Whether rows stand in the order of their times, and a number goes on from one to the next."""
    order = np.argsort(times, kind="stable")
    in_order = bool((np.diff(times) >= 0).mean() > REGULAR) if len(times) > 1 else False
    ordered = values[order]
    there = ordered[~np.isnan(ordered)]
    if len(there) < FEWEST or there.std() == 0:
        return in_order
    return in_order or bool(np.corrcoef(there[1:], there[:-1])[0, 1] > GOES_ON)


def _irregular(table: Table, name: str, times: NDArray[np.float64], series: NDArray[np.int64]) -> str:
    """Return why rows are not at regular times by a column."""
    order = np.lexsort((times, series))
    same = np.flatnonzero((np.diff(times[order]) == 0) & (np.diff(series[order]) == 0))
    if len(same):
        pair = sorted(int(row) + 1 for row in order[same[0] : same[0] + 2])
        cell = said(table.cells(name).text(pair[0] - 1), 30)
        more = f", and so have {len(same) - 1:,} more pairs" if len(same) > 1 else ""
        return f"rows {pair[0]} and {pair[1]} have the same '{said(name, 30)}', {cell}{more}, and no other column tells series apart"
    return f"rows are not at regular times by '{said(name, 30)}', neither all together nor for each value of another column"


def _step(times: NDArray[np.float64], series: NDArray[np.int64]) -> tuple[str, str, int] | None:
    """Return what lies between rows when times are made regular, the step, and the steps of the usual series; None where nothing fits."""
    order = np.lexsort((times, series))
    apart = np.diff(times[order])[np.diff(series[order]) == 0]
    # many rows of one time are series that nothing tells apart, and no mean of them is one
    if not len(apart) or (apart == 0).mean() > TWICE:
        return None
    apart = apart[apart > 0]
    # In that order the rows of a series are neighbours: its times go from that of the first to that of the last.
    begins = np.flatnonzero(np.diff(series[order], prepend=-1))
    lasts = np.append(begins[1:], len(order)) - 1
    for name, every, seconds in STEPS:
        steps = np.floor(times / seconds).astype(np.int64)
        filled = len(np.unique(np.stack([series, steps]), axis=1)[0])
        spans = steps[order[lasts]] - steps[order[begins]] + 1
        if seconds >= np.median(apart) / 2 and filled >= FILLED * int(spans.sum()):
            return (name, every, int(np.median(spans))) if np.median(spans) >= FEWEST else None
    return None


def _keys(table: Table, guesses: Sequence[Guess]) -> list[tuple[str | None, NDArray[np.int64]]]:
    """Return columns that could tell series apart, with the series of every row; the one with the fewest series first."""
    found: list[tuple[str | None, NDArray[np.int64]]] = []
    for one in guesses:
        codes = table.cells(one.name).codes()
        series = len(codes.words)
        if one.type in ("date", "text", "bag") or not 2 <= series <= len(table) // FEWEST or (codes.codes < 0).any():
            continue
        found.append((one.name, codes.codes.astype(np.int64)))
    return [(None, np.zeros(len(table), np.int64)), *sorted(found, key=lambda pair: int(pair[1].max()))]


def _pace(times: NDArray[np.float64], series: NDArray[np.int64]) -> tuple[str, Shape] | None:
    """Return what lies between rows, and windows that fit; None where rows are not regular."""
    rows = int(np.median(np.bincount(series)[np.unique(series)]))
    working = working_days(times)
    for at in (times, working) if working is not None else (times,):
        order = np.lexsort((at, series))
        steps = np.diff(at[order])[np.diff(series[order]) == 0]
        # Two rows of one time are rows of two series, which this key does not tell apart.
        if rows < FEWEST or not len(steps) or (steps <= 0).any():
            return None
        usual = float(np.median(steps))
        if (np.abs(steps - usual) <= NEARLY * usual).mean() >= REGULAR:
            name = next(pace[1] for pace in PACES if usual <= pace[0])
            name = "working day" if at is working and name == "day" else name
            return name, _shape(name, rows)
    return None


def _shape(name: str, rows: int) -> Shape:
    """Return windows for what lies between rows, of series with so many."""
    length, horizon = next(pace[2:] for pace in (*PACES, WORKING) if pace[1] == name)
    while (length + horizon) * WINDOWS > rows and length > 2:
        length, horizon = max(2, length // 2), max(1, horizon // 2)
    return Shape(length, horizon)
