"""Inspects series for their starter: what is read, what is known ahead, and what is forecast."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.config.sections.data import SplitSection
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.column import Context, discover
from pe_cli.data.fields import Rows
from pe_cli.data.raw_cells import Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.readers.windows import WindowsOptions
from pe_cli.data.row_split import split_rows
from pe_cli.data.series_windows import WindowTable
from pe_cli.session.starters.column_guess import left_out
from pe_cli.session.starters.files import Settings
from pe_cli.session.starters.group_keys import group_of
from pe_cli.session.starters.guesses import Guess
from pe_cli.session.starters.names import said
from pe_cli.session.starters.redundant_columns import notation_of
from pe_cli.session.starters.series_times import Found

#: Rows after which a series is like itself again, by what lies between two rows.
SEASONS = {"minute": 60, "hour": 24, "day": 7, "working day": 5, "week": 52, "month": 12, "quarter": 4}
#: Classes of a category that is read beside numbers, at most.
MOST_CLASSES = 20
#: Names of columns whose future is often known.
_AHEAD = re.compile(r"(^|[\W_])(promo\w*|price|discount|holiday|event|campaign|aktion|preis|rabatt|feiertag|planned|plan)([\W_]|$)", re.I)


@dataclass
class Inspected:
    """Series, looked at.

    Args:
        table: the rows.
        source: reader and options, as the config says them.
        target: column that is forecast.
        found: the series.
        inputs: columns that are read, the target first.
        ahead: columns whose future is known, and calendar beside them; empty where none is.
        static: categories that are the same in all rows of a series.
        others: columns that are left out.
        windows: of the training part.
        widths: column -> numbers that it gives for each row.
        indices: category of a series, or the key -> its indices.
        deviation: of the target in the training rows.
        season: rows after which a series is like itself again, where a window has as many; 0 where not.
        given: rows of the file.
        empty: steps of time without a number, where times are made regular.
        usual: mean absolute difference of the target to a season before in the training rows, or to the row before.
    """

    table: WindowTable
    source: dict[str, Any]
    target: Guess
    found: Found
    inputs: list[Guess]
    ahead: list[Guess]
    static: list[Guess]
    others: list[Guess]
    windows: int
    widths: dict[str, int]
    indices: dict[str, int]
    deviation: float
    season: int
    usual: float
    given: int = 0
    empty: int = 0

    @property
    def suggested(self) -> list[str]:
        """Columns whose names sound as if their future were known, where nobody has said so."""
        known = {one.name for one in self.ahead}
        return [one.name for one in self.inputs[1:] if one.name not in known and one.type != "date" and _AHEAD.search(one.name)]


#: Shares for evaluation and test: the latest rows.
SPLIT = {"eval": 0.15, "test": 0.15}


def look(settings: Settings, table: Table, options: dict[str, Any], target: str, found: Found, guesses: Sequence[Guess]) -> Inspected:
    """Return series with their columns fitted.

    Args:
        settings: of the user.
        table: the rows.
        options: of the reader `table`.
        target: column that is forecast.
        found: the series in it.
        guesses: how the other columns are taken.

    Raises:
        PeError: USAGE, a column is said to be known that is not, or to be a group; DATA, no window fits, or the target cannot be learned.
    """
    check_known(settings, target, found)
    group = group_of(settings.columns)
    if group is not None:
        text = f"--columns {said(group)}=group: series are divided by time, and each has rows in every part"
        raise PeError(text, hint="leave it out, or --task number predicts from the other columns of the same row")
    rows = len(table)
    given = WindowsOptions(table="-", length=found.shape.length, horizon=found.shape.horizon, **found.options)
    windows = given.windows(table, Origin(settings.base))
    table = windows.base
    missing = bool(np.isnan(table.cells(target).numbers().values).any())
    # Holidays are known ahead, and so is the rest of the calendar with them.
    is_ahead = bool(settings.known or settings.holidays)
    shape = replace(found.shape, observed=target if is_ahead or missing else None)
    form = None if found.every else found.form
    # Made again where the target is observed: rows without it are then yet to come.
    windows = WindowTable(table, shape, found.key, found.time, Origin(settings.base), form) if shape.observed else windows
    inner: Any = options["files"] if set(options) == {"files"} else options
    source = {"reader": "windows", "table": inner, **found.options}
    source |= {"length": shape.length, "horizon": shape.horizon, **({"observed": target} if shape.observed else {})}
    parts = split_rows(windows, np.arange(len(table), dtype=np.int64), SplitSection.model_validate(SPLIT))
    inside = windows.stops > windows.bounds[:-1]
    gaps = missing and bool(np.isnan(table.cells(target).numbers().values[~windows.future]).any())
    goal = Guess(target, "number", {**({"missing": "previous"} if gaps else {}), "scale": "standard"}, "what is forecast")
    if not inside.any():
        raise table.error(0, target, "every cell of the target is missing", "name another --target")
    inspected = Inspected(windows, source, goal, found, [], [], [], [], 0, {}, {}, 1.0, 0, 1.0)
    inspected.given = rows
    inspected.empty = int(np.isnan(table.cells(target).numbers().values).sum()) if found.every else 0
    for one in [goal, *(_input(one, found, windows) for one in guesses if one.name != found.key)]:
        _fit(inspected, one, parts["train"])
    if found.key:
        _fit(inspected, Guess(found.key, "category"), parts["train"])
    inspected.ahead = [one for one in inspected.inputs[1:] if is_ahead and (one.name in settings.known or one.type == "date")]
    gone = next((one for one in inspected.others if one.name in settings.known), None)
    if gone is not None:
        raise PeError(f"--known {said(gone.name)}: the column is left out: {gone.why}", hint="correct its cells, or leave --known out")
    inspected.windows = len(windows.regroup(parts["train"], None)[1])
    inspected.season, inspected.usual = _season(inspected, parts["train"])
    return inspected


def check_known(settings: Settings, target: str, found: Found | None) -> None:
    """Refuse columns that cannot be known ahead.

    Raises:
        PeError: USAGE; says which, and why.
    """
    of = {target: "it is the target"} | ({found.time: "it orders the rows, and is known anyway"} if found else {})
    of |= {found.key: "it tells series apart"} if found and found.key else {}
    for name in settings.known:
        if name in of:
            raise PeError(f"--known {said(name)}: {of[name]}", hint="leave it out of --known")


def _fit(inspected: Inspected, one: Guess, rows: Rows) -> None:
    """Put a column where it belongs, with its width, or with those that are left out where it cannot learn."""
    is_goal = one is inspected.target
    if one.type is None:
        inspected.others.append(one)
        return
    kind = discover()[one.type]
    checked = kind.options.model_validate(dict(one.options))
    context = Context(inspected.table, one.name)
    try:
        state = kind.fit(checked, context, rows)
        field = kind.encode(checked, state, context)
    except PeError as error:
        if is_goal:
            raise
        inspected.others.append(left_out(one, said(error.message, 120)))
        return
    if one.type == "category" and "encode" not in one.options:
        inspected.indices[one.name] = len(kind.classes(state))
        if one.name != inspected.found.key:
            inspected.static.append(one)
        return
    inspected.widths[one.name] = field.type.size
    if is_goal:
        inspected.deviation = float(state["divisor"][0])
    inspected.inputs.append(one)


def _input(one: Guess, found: Found, windows: WindowTable) -> Guess:
    """Return how a column is read beside the target."""
    if one.type == "number" and found.every and not notation_of(one).is_plain:
        return left_out(one, "times are made regular, and its numbers are not written as programs write them")
    if one.name == found.time:
        parts = [part for part in one.options.get("parts", ()) if part != "timestamp"]
        form = {"format": found.form} if found.form and not found.every else {}
        form |= {"holidays": one.options["holidays"]} if "holidays" in one.options else {}
        return replace(one, options={**form, "parts": parts, "cyclic": True}) if parts else left_out(one, "it orders the rows")
    if one.type == "number":
        filled = {k: v for k, v in one.options.items() if k != "missing"}
        return replace(one, options={**filled, **({"missing": "previous"} if _gaps(one, windows) else {})})
    return one if one.type in ("bool", None) else _category(one, found, windows)


def _category(one: Guess, found: Found, windows: WindowTable) -> Guess:
    """Return how a column of categories is read: beside the windows where it is the same in all rows of a series, else in them."""
    if one.type == "category":
        codes = windows.cells(one.name).codes()
        series = windows.series_of_rows
        pairs = np.unique(np.stack([series, codes.codes.astype(np.int64)]), axis=1)
        if found.key and pairs.shape[1] == len(np.unique(series)):
            return replace(one, why=f"{one.why}; the same in all rows of a series")
        if len(codes.words) <= MOST_CLASSES:
            return replace(one, options={**one.options, "encode": "one_hot"})
        return left_out(one, f"more than {MOST_CLASSES} classes; what differs by series or day may be fed beside the windows")
    return left_out(one, f"a {one.type}; what differs by series or day may be fed beside the windows")


def _gaps(one: Guess, windows: WindowTable) -> bool:
    """Whether a number is missing in a row that is there."""
    numbers = windows.cells(one.name).numbers(notation_of(one)).values
    return bool(np.isnan(numbers[~windows.future]).any())


def _season(inspected: Inspected, rows: Rows) -> tuple[int, float]:
    """Return how many rows a season has, and how far training rows are from those a season before, in the mean.

    Source:
        Hyndman and Koehler 2006, the scale of MASE.
    """
    shape, windows = inspected.found.shape, inspected.table
    wanted = SEASONS.get(inspected.found.pace, 1)
    # The seasonal guess is a slice of the window: a season has to cover the horizon and to lie within the window.
    season = wanted if shape.horizon <= wanted <= shape.length else 0
    values = np.full(len(windows), np.nan)
    values[rows] = windows.cells(inspected.target.name).numbers().values[rows]
    ordered, series = values[windows.order], windows.series_of_rows[windows.order]
    for lag in dict.fromkeys([season or 1, 1]):
        apart = np.abs(ordered[lag:] - ordered[:-lag])[series[lag:] == series[:-lag]]
        apart = apart[~np.isnan(apart)]
        if len(apart) and apart.mean() > 0:
            return season, float(apart.mean())
    return season, 1.0
