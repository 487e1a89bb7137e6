"""Lengths of time: pandas reads the same ones."""

from __future__ import annotations

import pandas
import pytest

from pe_cli.data.date_forms import parse
from pe_cli.data.durations import seconds_of, written


@pytest.mark.parametrize("text", [
    "1:23:45", "26:10:00", "0:00:01.5", "2 days 01:00:00", "P1DT2H3M4S", "PT5H31M", "PT0.5S", "2h 11m", "3m 33s", "1 day 2 hours", "250 ms",
    "-1:00:00", "3 min 20 sec",
])  # fmt: skip
def test_what_pandas_says(text):
    expected = pandas.Timedelta(text).total_seconds()
    assert seconds_of(text) == pytest.approx(expected, abs=1e-9)
    assert seconds_of(written(expected)) == pytest.approx(expected, abs=1e-3)
    assert parse(text, "duration").timestamp() == pytest.approx(expected, abs=1e-6)


def test_what_people_write():
    assert [seconds_of(text) for text in ("26:10", "2 Std. 5 Min.", "3 Tage 1:00", "1,5 h")] == [94200, 7500, 262800, 5400]


@pytest.mark.parametrize("text", ["", "P", "PT", "1:60", "1:2:3", "5m 2h", "2h 3h", "12", "12 apples", "h", "5'6\"", "2024-01-01"])
def test_what_is_none(text):
    with pytest.raises(ValueError, match=r"no length of time"):
        seconds_of(text)
