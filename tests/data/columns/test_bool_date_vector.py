"""Columns of truth values, dates and vectors."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from pe_cli.core.errors import PeError, PeErrors
from pe_cli.data.column import Context, discover
from pe_cli.data.raw_cells import ListTable
from pe_cli.data.reader_context import Origin


def test_truth_values(column):
    assert column("bool", ["yes", "No", True, 0, "T"]).encode()[:, 0].tolist() == [1, 0, 1, 0, 1]
    assert column("bool", ["ja", "nein"], yes=["ja"], no=["nein"]).encode()[:, 0].tolist() == [1, 0]
    assert column("bool", ["1", ""], missing=True).encode()[:, 0].tolist() == [1, 1]
    assert column("bool", ["1", "0"], dtype_of_feed="int64").encode().dtype == np.int64


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        pytest.param(["yes", "maybe"], "row 2, column 'c': 'maybe' is neither true nor false", id="a third value"),
        pytest.param(["yes", ""], "row 2, column 'c': the cell is missing", id="missing"),
    ],
)
def test_what_is_no_truth_value(column, cells, message):
    with pytest.raises(PeError, match=message):
        column("bool", cells)


def test_a_text_means_one_thing():
    with pytest.raises(ValidationError, match="'x' is listed under yes and under no"):
        discover()["bool"].options.model_validate({"yes": ["x"], "no": ["X"]})


def test_parts_that_come_around_are_sine_and_cosine(column):
    found = column("date", ["2024-01-01", "2024-07-01"], parts=["month", "weekday"]).encode()
    turn = 2 * math.pi
    expected = [  # both days are Mondays
        [math.sin(0), math.cos(0), 0, 1],
        [math.sin(turn / 2), math.cos(turn / 2), 0, 1],
    ]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_other_parts_have_mean_0_and_deviation_1(column):
    found = column("date", ["2020-03-01", "2022-03-01", "2030-01-01"], [0, 1], parts=["year"]).encode()
    assert found[:, 0].tolist() == [-1, 1, 9]


def test_parts_as_they_are(column):
    found = column("date", ["13.02.2024 18:30", "14.02.2024 06:00"], format="%d.%m.%Y %H:%M", parts=["day", "hour"], cyclic=False)
    scaled = found.encode()
    back = scaled * np.array(found.state["divisor"]) + np.array(found.state["shift"])
    np.testing.assert_allclose(back, [[13, 18.5], [14, 6]], rtol=1e-6)


def test_time_zones_and_missing_dates(column):
    found = column("date", ["2024-01-01T02:00:00+02:00", ""], parts=["timestamp"], missing="zero", cyclic=False)
    assert found.state["shift"] == [datetime(2024, 1, 1, tzinfo=UTC).timestamp()]
    assert found.encode().tolist() == [[0], [0]]


@pytest.mark.parametrize(("cell", "said"), [("soon", "no date of ISO 8601"), ("2024-13-01", "no date of ISO 8601")])
def test_what_is_no_date(column, cell, said):
    with pytest.raises(PeError, match=f"row 2, column 'c': '{cell}' is {said}"):
        column("date", ["2024-01-01", cell])


def table(**columns):
    return ListTable(columns, Origin(Path()))


def test_vectors_are_columns_side_by_side():
    kind = discover()["vector"]
    options = kind.options.model_validate({"of": ["b", "a"], "scale": "minmax", "missing": "mean"})
    context = Context(table(a=[0, 10, 5], b=[1, "", 3]), "v")
    state = kind.fit(options, context, None)
    assert kind.encode(options, state, context).values.tolist() == [[0, 0], [0.5, 1], [1, 0.5]]


def test_all_bad_columns_of_a_vector_are_told():
    kind = discover()["vector"]
    options = kind.options.model_validate({"of": ["a", "b"]})
    with pytest.raises(PeErrors) as caught:
        kind.fit(options, Context(table(a=[1, "x"], b=["y", 2]), "v"), None)
    assert ["'x'" in e.message or "'y'" in e.message for e in caught.value.errors] == [True, True]
