"""A starter for series in a table: an LSTM reads some rows and forecasts those that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.config.sections.data import SplitSection
from pe_cli.config.substitute import escaped
from pe_cli.core.errors import PeError
from pe_cli.core.yaml_inline import flow, quoted
from pe_cli.data.column import Context, discover
from pe_cli.data.raw_cells import Table
from pe_cli.data.reader_context import Origin
from pe_cli.data.row_split import split_rows
from pe_cli.data.series_windows import Shape, WindowTable
from pe_cli.data.time_columns import moments_of
from pe_cli.session.starters.column_guess import left_out
from pe_cli.session.starters.files import Lines, Starter, Wish, aligned, column_row, data_section, head, text, training
from pe_cli.session.starters.guessed import Guess
from pe_cli.session.starters.names import safe, said
from pe_cli.session.starters.training_plan import plan

#: Rows that a series must have in the mean, and the share of its steps that are as long as the usual one, nearly.
FEWEST, REGULAR, NEARLY = 40, 0.9, 0.15
#: Steps in seconds up to which rows are so far apart, what they are called, and how many are read and forecast.
PACES = (
    (120, "minute", 60, 15), (2 * 3600, "hour", 48, 24), (2 * 86400, "day", 28, 7), (10 * 86400, "week", 26, 4),
    (45 * 86400, "month", 24, 12), (120 * 86400, "quarter", 12, 4), (float("inf"), "year", 12, 3),
)  # fmt: skip
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
    """

    time: str
    key: str | None
    pace: str
    shape: Shape


def find(table: Table, target: str, guesses: Sequence[Guess]) -> Found | str:
    """Return the series that a table holds, or why it holds none.

    Args:
        table: the rows.
        target: column that would be forecast.
        guesses: how the other columns are taken.
    """
    if table.cells(target).numbers().bad_count:
        return f"'{said(target)}' is no column of numbers"
    dates = [found for found in guesses if found.type == "date" and not {"format", "missing"} & set(found.options)]
    if not dates:
        return "no column has a date of ISO 8601, such as 2024-05-31, in every row"
    for found in dates:
        times = moments_of(table, found.name, "series are ordered by it")
        for key, codes in _keys(table, [g for g in guesses if g.name != found.name]):
            pace = _pace(times, codes)
            if pace is not None:
                return Found(found.name, key, *pace)
    names = ", ".join(f"'{said(found.name, 30)}'" for found in dates)
    return f"rows are not at regular times by {names}, neither all together nor for each value of another column, with {FEWEST} rows each"


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
    order = np.lexsort((times, series))
    steps, same = np.diff(times[order]), np.diff(series[order]) == 0
    steps = steps[same]
    rows = int(np.median(np.bincount(series)[np.unique(series)]))
    if rows < FEWEST or not len(steps) or (steps <= 0).any():
        return None
    usual = float(np.median(steps))
    if (np.abs(steps - usual) <= NEARLY * usual).mean() < REGULAR:
        return None
    name, length, horizon = next(pace[1:] for pace in PACES if usual <= pace[0])
    while (length + horizon) * WINDOWS > rows and length > 2:
        length, horizon = max(2, length // 2), max(1, horizon // 2)
    return name, Shape(length, horizon)


@dataclass
class Looked:
    """Series, looked at.

    Args:
        table: the rows.
        source: reader and options, as the config says them.
        target: column that is forecast.
        found: the series.
        inputs: columns that are read, the target first.
        others: columns that are left out.
        windows: of the training part.
        deviation: of the target in the training rows.
        width: numbers of a row that is read.
        keys: indices of the key.
    """

    table: WindowTable
    source: dict[str, Any]
    target: Guess
    found: Found
    inputs: list[Guess]
    others: list[Guess]
    windows: int
    deviation: float
    width: int
    keys: int


def starter(wish: Wish, table: Table, options: dict[str, Any], target: str, found: Found, guesses: Sequence[Guess]) -> Starter:
    """Return a starter for series.

    Args:
        wish: of the user.
        table: the rows.
        options: of the reader `table`.
        target: column that is forecast.
        found: the series in it.
        guesses: how the other columns are taken.

    Raises:
        PeError: DATA; no window fits, or the target cannot be learned.
    """
    looked = _look(wish, table, options, target, found, guesses)
    return Starter(_config(looked, wish), _model(looked, wish), _notes(looked))


def _look(
    wish: Wish, table: Table, options: dict[str, Any], target: str, found: Found, guesses: Sequence[Guess]
) -> Looked:
    windows = WindowTable(table, found.shape, found.key, found.time, Origin(wish.base))
    inner: Any = options["files"] if set(options) == {"files"} else options
    source = {"reader": "windows", "table": inner, **({"key": found.key} if found.key else {}), "time": found.time}
    source |= {"length": found.shape.length, "horizon": found.shape.horizon}
    missing = bool(np.isnan(table.cells(target).numbers().values).any())
    goal = Guess(target, "number", {**({"missing": "previous"} if missing else {}), "scale": "standard"}, "what is forecast")
    parts = split_rows(windows, np.arange(len(table), dtype=np.int64), SplitSection.model_validate(_SPLIT))
    inputs, others = [goal], []
    width, deviation = 0, 1.0
    for one in [goal, *(_input(guess_of, found) for guess_of in guesses if guess_of.name != found.key)]:
        if one.type is None:
            others.append(one)
            continue
        kind = discover()[one.type]
        checked = kind.options.model_validate(dict(one.options))
        context = Context(windows, one.name)
        try:
            state = kind.fit(checked, context, parts["train"])
            field = kind.encode(checked, state, context)
        except PeError as error:
            if one is goal:
                raise
            others.append(left_out(one, said(error.message, 120)))
            continue
        width += field.type.size
        if one is goal:
            deviation = float(state["divisor"][0])
        else:
            inputs.append(one)
    keys = 0
    if found.key:
        category = discover()["category"]
        checked = category.options.model_validate({})
        keys = len(category.classes(category.fit(checked, Context(windows, found.key), parts["train"])))
    samples = len(windows.regroup(parts["train"], None)[1])
    return Looked(windows, source, goal, found, inputs, others, samples, deviation, width, keys)


#: Shares for evaluation and test: the latest rows.
_SPLIT = {"eval": 0.15, "test": 0.15}


def _input(one: Guess, found: Found) -> Guess:
    """Return how a column is read beside the target."""
    if one.name == found.time:
        parts = [part for part in one.options.get("parts", ()) if part != "timestamp"]
        return replace(one, options={"parts": parts, "cyclic": True}) if parts else left_out(one, "it orders the rows")
    if one.type == "number":
        options = {**one.options, **({"missing": "previous"} if "missing" in one.options else {})}
        return replace(one, options=options)
    if one.type in ("bool", None):
        return one
    return left_out(one, f"a {one.type}; what differs by series or day may be fed beside the windows")


# --- the files --------------------------------------------------------------------------------------------------------


def _config(looked: Looked, wish: Wish) -> str:
    found, target = looked.found, looked.target
    shape = found.shape
    many = f" of every '{said(found.key)}'" if found.key else ""
    what = f"Forecasts '{said(target.name)}'{many} for {_count(shape.horizon, found.pace)}, from {_count(shape.length, found.pace)} before."
    comments = ["By time: the latest 15% of the rows test, the 15% before evaluate. Training never sees what comes later."]
    columns = [column_row(g.name, g.written, g.why) for g in looked.inputs]
    past, before, following = (_free(name, looked) for name in ("past", "before", "next"))
    columns += [
        column_row(past, {"type": "window", "of": [g.name for g in looked.inputs]}, "rows that are known, the oldest first"),
        column_row(before, {"type": "window", "of": target.name}, "the same rows of what is forecast, alone"),
        column_row(following, {"type": "window", "of": target.name, "part": "horizon"}, "the rows to forecast"),
    ]
    if found.key:
        columns.append(column_row(found.key, {"type": "category"}, "which series"))
    out = [f"  # Left out: '{said(g.name)}': {said(g.why, 200)}" for g in looked.others]
    feeds: Lines = [(f"{feed}:", quoted(escaped(field)), "") for feed, field in (("past", past), ("before", before), ("next", following))]
    if found.key:
        feeds.append(("key:", quoted(escaped(found.key)), ""))
    numbers = replace(plan(looked.windows, 2000), learning_rate=0.002)
    lines = [
        *head(what),
        *data_section(looked.source, _SPLIT, comments, columns, out),
        "",
        "# Inputs of the model.",
        "feeds:",
        *aligned(feeds, "  "),
        *training(numbers, looked.windows, best="eval/error", mode="min", metrics=("loss", "error")),
    ]
    return text(lines)


def _free(name: str, looked: Looked) -> str:
    """Return a name that no column of the table has."""
    while name in looked.table.names:
        name += "_rows"
    return name


def _model(looked: Looked, wish: Wish) -> str:
    shape, name = looked.found.shape, said(looked.target.name)
    hidden = 32 if looked.windows < 1000 else 64
    feeds: Lines = [
        ("past:", flow({"shape": [shape.length, looked.width]}), f"{shape.length} rows of {looked.width} numbers"),
        ("before:", flow({"shape": [shape.length]}), f"'{name}' of these rows"),
        ("next:", flow({"shape": [shape.horizon]}), f"'{name}' of the rows that follow"),
    ]
    layers: Lines = [
        ("lstm:", flow({"type": "lstm", "input": "past", "hidden_size": hidden}), ""),
        ("last:", flow({"type": "slice", "input": "lstm.0", "axes": [1], "starts": [-1], "ends": [shape.length]}), "after the last row"),
        ("state:", flow({"type": "reshape", "shape": [-1, hidden]}), ""),
    ]
    if looked.found.key:
        feeds.append(("key:", "{shape: [1], dtype: int64}", "which series"))
        layers += [
            ("which:", flow({"type": "embedding", "input": "key", "size": [looked.keys, 4]}), "2 more than series: unknown, missing"),
            ("all:", "{type: concat, input: [state, which], axis: 1}", ""),
        ]
    layers += [
        ("drop:", "{type: dropout, dropout_prob: 0.1}", "in training only"),
        ("hidden:", flow({"type": "fc", "size": hidden, "act": "relu"}), ""),
        ("change:", flow({"type": "fc", "size": shape.horizon}), ""),
        ("period:", flow({"type": "slice", "input": "before", "axes": [1], "starts": [-shape.horizon], "ends": [shape.length]}),
         f"the last {shape.horizon}, as a first guess"),
        ("forecast:", "{type: elementwise_add, x: period, y: change}", f"pe predict gives it in the unit of '{name}'"),
        ("square:", "{type: square_error_cost, input: forecast, label: next}", ""),
        ("loss:", "{type: mean, x: square}", ""),
        ("gap:", "{type: elementwise_sub, x: forecast, y: next}", ""),
        ("distance:", "{type: abs, x: gap}", ""),
        ("mean_distance:", "{type: mean, x: distance}", ""),
        ("error:", flow({"type": "scale", "x": "mean_distance", "scale": float(f"{looked.deviation:.9g}")}),
         f"mean absolute error in the unit of '{name}'"),
    ]  # fmt: skip
    lines = [
        f"# What is computed for {said(wish.config.name)}. `pe ops` lists every type of layer, `pe ops fc` explains one of them.",
        f"name: {quoted(safe(wish.config.stem, [], 'starter'))}",
        "",
        "# Inputs, each with the shape of one sample.",
        "feeds:",
        *aligned(feeds, "  "),
        "",
        "# Layers in order: the key names the output; a layer that names no input takes the output of the layer before it.",
        "layers:",
        *aligned(layers, "  "),
        "",
        "# What is measured and predicted; single numbers become metrics.",
        f"fetches: {flow(['loss', 'error', 'forecast'])}",
    ]
    return text(lines)


def _count(rows: int, pace: str) -> str:
    return f"{rows} {pace}s" if rows > 1 else f"a {pace}"


def _notes(looked: Looked) -> tuple[str, ...]:
    found = looked.found
    key = f", a series for each of {len(looked.table.bounds) - 1:,} values of '{said(found.key, 30)}'" if found.key else ""
    notes = [
        f"{len(looked.table):,} rows at regular times, a {found.pace} apart by '{said(found.time, 30)}'{key}: taken for a series",
        "--task number would predict from the other columns of the same row instead",
        f"{looked.windows:,} windows for training: {found.shape.length} rows are read, {found.shape.horizon} are forecast",
        f"read: {', '.join(said(g.name, 30) for g in looked.inputs)}",
    ]
    notes += [f"left out: '{said(g.name, 30)}': {g.why}" for g in looked.others]
    return tuple(notes)
