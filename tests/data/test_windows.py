"""Windows of series: what they show, and that training never sees what comes later."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import TimeSeriesSplit

from pe_cli.config.sections.data import SplitSection
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.column import Context, discover
from pe_cli.data.fields import ArrayField
from pe_cli.data.raw_cells import ListTable
from pe_cli.data.reader_context import Origin
from pe_cli.data.registry import open_reader
from pe_cli.data.row_split import split_rows
from pe_cli.data.series_windows import Shape, WindowTable

ORIGIN = Origin(Path())


def series_of(lengths, seed, shape, *, time=True):
    """Return a table of series in a random order of rows, and its values as a frame."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "shop": [f"s{i}" for i, length in enumerate(lengths) for _ in range(length)],
        "day": [day for length in lengths for day in np.cumsum(rng.integers(1, 3, length)).tolist()],
    })  # fmt: skip
    frame["sold"] = rng.permutation(len(frame)).astype(float)
    if time:
        frame = frame.sample(frac=1, random_state=seed).reset_index(drop=True)
    table = ListTable({name: frame[name].tolist() for name in frame}, ORIGIN)
    return WindowTable(table, shape, "shop", "day" if time else None, ORIGIN), frame


def shown(table, frame, rows=None):
    """Return anchors, inputs and horizons."""
    field = ArrayField(frame["sold"].to_numpy()[:, None], "float64")
    _, anchors = table.regroup(rows, None)
    past = table.window([field], "input", True, "past").take(anchors)[0]
    if table.shape.ends:
        return anchors, past, None
    return anchors, past, table.window([field], "horizon", True, "next").take(anchors)[0]


shapes = st.builds(Shape, st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.integers(1, 3))
lengths = st.lists(st.integers(1, 25), min_size=1, max_size=4)


@given(lengths=lengths, shape=shapes, seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_windows_are_numpys_sliding_ones(lengths, shape, seed):
    table, frame = series_of([*lengths, 12], seed, shape)
    anchors, past, following = shown(table, frame)
    expected = []
    for _, rows in frame.sort_values("day").groupby("shop"):
        values = rows["sold"].to_numpy()
        whole = shape.length + shape.gap + shape.horizon
        if len(values) >= whole:
            views = np.lib.stride_tricks.sliding_window_view(values, whole)[:: shape.stride]
            expected += [(tuple(view[: shape.length]), tuple(view[whole - shape.horizon :])) for view in views]
    assert sorted(zip(map(tuple, past), map(tuple, following), strict=True)) == sorted(expected)
    assert (frame["sold"].to_numpy()[anchors] == past[:, -1]).all()


@given(
    lengths=st.lists(st.integers(20, 40), min_size=1, max_size=4), shape=shapes, seed=st.integers(0, 99), time=st.booleans(),
    shares=st.tuples(st.sampled_from([0.2, 0.3]), st.sampled_from([0.2, 0.3])),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_training_never_sees_what_evaluation_forecasts(lengths, shape, seed, time, shares):
    table, frame = series_of(lengths, seed, shape, time=time)
    rows = np.arange(len(table), dtype=np.int64)
    parts = split_rows(table, rows, SplitSection(eval=shares[0], test=shares[1]))
    part_of = np.empty(len(table), object)
    for name, found in parts.items():
        part_of[found] = name
    of_value = dict(zip(frame["sold"], part_of, strict=True))
    rank = {"train": 0, "eval": 1, "test": 2}
    for name, found in parts.items():
        try:
            _, past, following = shown(table, frame, found)
        except PeError as error:
            assert "no window of" in error.message  # noqa: PT017 - a part may be too short for a horizon
            continue
        assert {of_value[value] for value in following.ravel()} == {name}
        assert all(rank[of_value[value]] <= rank[name] for value in past.ravel())
    if time:
        days = frame["day"].to_numpy()
        assert days[parts["train"]].max() < days[parts["eval"]].min()
        assert days[parts["eval"]].max() < days[parts["test"]].min()
    else:
        for _, own in frame.groupby("shop"):
            ranks = [rank[part_of[row]] for row in own.index]
            assert ranks == sorted(ranks)


def test_ends_are_the_last_rows_of_every_series():
    table, frame = series_of([9, 3, 6], 1, Shape(4, 2, ends=True))
    anchors, past, _ = shown(table, frame)
    for anchor, values in zip(anchors, past, strict=True):
        own = frame[frame["shop"] == frame["shop"][anchor]].sort_values("day")
        assert values.tolist() == own["sold"].tolist()[-4:]
    assert sorted(frame["shop"][anchors]) == ["s0", "s2"]
    assert table.notes[0] == "1 of 3 series have fewer than 4 rows, and no window: 's1'"


def test_folds_are_scikit_learns_in_the_order_of_time():
    table, _ = series_of([24], 3, Shape(2, 1))
    rows = np.arange(24, dtype=np.int64)
    for fold, (train, test) in enumerate(TimeSeriesSplit(3).split(rows), 1):
        found = split_rows(table, rows, SplitSection(folds=3, fold=fold))
        assert sorted(table.place[found["train"]]) == train.tolist()
        assert sorted(table.place[found["eval"]]) == test.tolist()


def test_whole_series_may_be_kept_together():
    table, frame = series_of([10] * 6, 2, Shape(3, 1))
    parts = split_rows(table, np.arange(60, dtype=np.int64), SplitSection(eval=0.3, group="shop"))
    assert not set(frame["shop"][parts["train"]]) & set(frame["shop"][parts["eval"]])
    assert len(shown(table, frame, parts["eval"])[0]) == 2 * 7


@pytest.mark.parametrize("seed", range(5))
def test_a_missing_number_is_the_one_before_as_in_pandas(seed):
    table, frame = series_of([12, 7, 9], seed, Shape(2, 1))
    rng = np.random.default_rng(seed)
    frame.loc[rng.random(len(frame)) < 0.4, "sold"] = np.nan
    columns = {name: [None if value != value else value for value in frame[name]] for name in frame}
    table = WindowTable(ListTable(columns, ORIGIN), table.shape, "shop", "day", ORIGIN)
    number = discover()["number"]
    options = number.options.model_validate({"missing": "previous", "dtype": "float64"})
    context = Context(table, "sold")
    found = number.encode(options, number.fit(options, context, None), context).values[:, 0]
    expected = frame.sort_values("day").groupby("shop")["sold"].ffill().fillna(frame["sold"].mean())
    assert found.tolist() == expected.sort_index().tolist()


def test_gaps_of_time_are_told():
    days = [f"2024-01-{d:02d}" for d in (1, 2, 3, 4, 8, 9, 10)]
    table = WindowTable(ListTable({"day": days}, ORIGIN), Shape(2, 1), None, "day", ORIGIN)
    assert table.notes == ["1 of 6 steps of 'day' are longer than 1.5 usual ones, and windows go over them"]


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        pytest.param("d,v\n1,2\n2,3\n", {"time": "day"}, "time: the table has no column 'day'", id="no time"),
        pytest.param("d,v\n1,2\n1,3\n", {"time": "d"}, "column 'd': row 1 has the same time", id="a time twice"),
        pytest.param("k,d,v\na,1,2\nb,1,3\na,1,4\n", {"time": "d", "key": "k"}, "row 1 of 'a' has the same time", id="twice in a series"),
        pytest.param("k,v\na,1\n,2\n", {"key": "k"}, "the key is missing", id="no key"),
        pytest.param("d,v\n1,2\nsoon,3\n", {"time": "d"}, "'soon' is neither a number nor a date", id="a cell that is no number"),
        pytest.param("d,v\n2024-01-01,2\nsoon,3\n", {"time": "d"}, "'soon' is neither a number nor a date", id="a cell that is no date"),
        pytest.param("d,v\n1,2\n,3\n", {"time": "d"}, "the time is missing", id="a missing time"),
    ],
)
def test_what_is_no_series(tmp_path, lines, options, message):
    (tmp_path / "s.csv").write_text(lines)
    with pytest.raises(PeError) as caught:
        open_reader("windows", {"table": "s.csv", "length": 1, **options}, tmp_path)
    assert message in caught.value.message
    assert caught.value.code == ExitCode.DATA


def test_a_series_that_is_too_short():
    table, frame = series_of([5, 4], 0, Shape(4, 2))
    with pytest.raises(PeError, match="no window of 6 rows fits: the longest series has 5"):
        shown(table, frame)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        pytest.param({"stratify": "shop"}, "data.split.stratify: windows are divided by time", id="stratify"),
        pytest.param({"order": "random"}, "data.split.order: windows are divided by time", id="order"),
        pytest.param({"group": "sold"}, "data.split.group: windows are divided by time", id="another group"),
        pytest.param({"time": "sold"}, "data.split.time: windows are divided by time", id="another time"),
    ],
)
def test_splits_that_would_look_into_the_future(section, message):
    table, _ = series_of([20, 20], 0, Shape(2, 1))
    with pytest.raises(PeError) as caught:
        split_rows(table, np.arange(40, dtype=np.int64), SplitSection(eval=0.2, **section))
    assert message in caught.value.message


# --- rows that are yet to come ----------------------------------------------------------------------------------------


def open_ahead(sold, promo, shape, shop=None):
    """Return a table whose `sold` is empty in rows that are yet to come."""
    columns = {"shop": shop or ["a"] * len(sold), "day": list(range(len(sold))), "sold": sold, "promo": promo}
    return WindowTable(ListTable(columns, ORIGIN), shape, "shop", "day", ORIGIN)


def encoded(table, name, **options):
    kind = discover()["number"]
    checked = kind.options.model_validate(options)
    context = Context(table, name)
    return kind.encode(checked, kind.fit(checked, context, np.arange(3)), context)


def test_columns_that_are_known_ahead_are_seen_in_the_horizon():
    table = open_ahead([1, 2, 3, 4, "", ""], [0, 1, 0, 1, 1, 0], Shape(2, 2, ends=True, observed="sold"))
    assert table.future.tolist() == [False] * 4 + [True] * 2
    _, anchors = table.regroup(None, None)
    assert anchors.tolist() == [3]
    assert table.window([encoded(table, "sold")], "input", True, "before").take(anchors)[0].tolist() == [[3, 4]]
    assert table.window([encoded(table, "promo")], "horizon", True, "ahead").take(anchors)[0].tolist() == [[1, 0]]


def test_training_forecasts_no_row_that_is_yet_to_come():
    table = open_ahead([1, 2, 3, 4, 5, "", ""], [0] * 7, Shape(2, 2, observed="sold"))
    assert table.regroup(None, None)[1].tolist() == [1, 2]


def test_an_empty_cell_before_the_last_known_one_is_still_missing():
    table = open_ahead([1, "", 3, 4, "", ""], [0] * 6, Shape(2, 2, ends=True, observed="sold"))
    with pytest.raises(PeError, match="row 2, column 'sold': the cell is missing"):
        encoded(table, "sold")


@pytest.mark.parametrize(
    ("sold", "promo", "message"),
    [
        pytest.param([1, 2, 3, ""], [0, 0, 0, 1], "shows 2 rows that are yet to come, and 1 of 'a' are there", id="too few rows"),
        pytest.param([1, 2, 3], [0, 0, 0], "and 0 of 'a' are there", id="none"),
        pytest.param([1, 2, 3, "", ""], [0, 0, 0, 1, ""], r"row 5.*needs a cell of 'a' that is missing", id="an empty cell"),
    ],
)
def test_what_is_not_known_ahead_is_told(sold, promo, message):
    table = open_ahead(sold, promo, Shape(2, 2, ends=True, observed="sold"))
    with pytest.raises(PeError, match=message) as caught:
        table.window([encoded(table, "promo")], "horizon", True, "ahead")
    assert "'sold' empty" in str(caught.value.hint)
    assert caught.value.code == ExitCode.DATA


def test_each_series_ends_where_it_is_last_observed():
    table = open_ahead([1, 2, "", 5, 6, 7], [0] * 6, Shape(1, 1, ends=True, observed="sold"), shop=[*"aaa", *"bbb"])
    assert table.regroup(None, None)[1].tolist() == [1, 5]
    assert table.stops.tolist() == [2, 6]
