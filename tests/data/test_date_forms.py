"""Dates in forms that strptime does not know by itself."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from pe_cli.data.date_forms import _MONTHS, months, parse, written

PANDAS_QUARTERS = [("2021-Q1", "%Y-Q%q", "2021-01-01"), ("2021Q4", "%YQ%q", "2021-10-01"), ("Q3 2021", "Q%q %Y", "2021-07-01")]


@pytest.mark.parametrize(("text", "form", "day"), [
    *(pytest.param(*one, id=f"quarter {one[0]}, as pandas.Period reads it") for one in PANDAS_QUARTERS),
    pytest.param("2. Quartal 2021", "%q. Quartal %Y", "2021-04-01", id="a quarter in words"),
    pytest.param("KW 53/2020", "KW %V/%G", "2020-12-28", id="the last week of a long year"),
    pytest.param("2021-W01", None, "2021-01-04", id="a week of ISO 8601 begins on Monday"),
    pytest.param("W01 2021", "W%V %G", "2021-01-04", id="the first week of a year"),
    pytest.param("16. März 2022", "%d. %B %Y", "2022-03-16", id="German"),
    pytest.param("10. Okt. 2022", "%d. %B %Y", "2022-10-10", id="a short name with a full stop"),
    pytest.param("1er août 2021", "%d %B %Y", "2021-08-01", id="French, the first"),
    pytest.param("4 de mayo de 2021", "%d de %B de %Y", "2021-05-04", id="Spanish"),
    pytest.param("3 листопада 2021", "%d %B %Y", "2021-11-03", id="Ukrainian"),
    pytest.param("12 \u015eubat 2021", "%d %B %Y", "2021-02-12", id="Turkish"),
    pytest.param("12 wrze\u015bnia 2021", "%d %B %Y", "2021-09-12", id="Polish"),
    pytest.param("September 21st, 2021", "%B %d, %Y", "2021-09-21", id="an English ordinal"),
    pytest.param("Sept. 3, 2021", "%B %d, %Y", "2021-09-03", id="four letters of a month"),
    pytest.param("mardi 3 mars 2020", "%A %d %B %Y", "2020-03-03", id="a weekday that begins like a month"),
    pytest.param("2021年8月1日", "%Y年%m月%d日", "2021-08-01", id="Japanese"),
])  # fmt: skip
def test_days(text, form, day):
    assert parse(text, form) == datetime.fromisoformat(day).replace(tzinfo=UTC)


def test_the_afternoon_is_written_in_several_ways():
    assert [parse(text, "%I:%M %p").hour for text in ("7:36 p.m.", "7:36 PM", "7:36 a. m.")] == [19, 19, 7]


@pytest.mark.parametrize(("text", "form"), [
    ("2021-Q5", "%Y-Q%q"), ("KW 54/2021", "KW %V/%G"), ("31. Februar 2021", "%d. %B %Y"), ("3. Smarch 2021", "%d. %B %Y"), ("1 1", "%H %H"),
])  # fmt: skip
def test_no_days(text, form):
    with pytest.raises(ValueError, match=r"."):
        parse(text, form)


def test_every_week_and_quarter_comes_back():
    for week in range(0, 3000, 7):
        monday = datetime(2015, 12, 28, tzinfo=UTC) + timedelta(days=week)
        assert parse(written(monday, "KW %V/%G"), "KW %V/%G") == monday
        first = date(monday.year, 3 * ((monday.month - 1) // 3) + 1, 1)
        assert parse(written(monday, "Q%q %Y"), "Q%q %Y").date() == first


def test_no_name_stands_for_two_months():
    assert len(months()) == len({name for names in _MONTHS for name in names.split()})
    assert sum(len(set(names.split())) for names in _MONTHS) == len(months())


@pytest.mark.parametrize(("text", "day"), [
    ("1995.0", "1995-01-01"), ("1995", "1995-01-01"), ("1995.25", "1995-04-01"), ("1995.0833333", "1995-02-01"), ("1995.083", "1995-02-01"),
    ("1995.08", "1995-02-01"), ("1995.9167", "1995-12-01"), ("1995.92", "1995-12-01"), ("1994.999", "1995-01-01"),
    ("2020.125", "2020-02-15T12:00:00"),
])  # fmt: skip
def test_years_with_a_fraction(text, day):
    moment = parse(text, "year")
    assert moment == datetime.fromisoformat(day).replace(tzinfo=UTC)
    assert parse(written(moment, "year"), "year") == moment


@pytest.mark.parametrize("text", ["0.5", "-3", "9999.5", "nan", "inf", "spring"])
def test_no_years(text):
    with pytest.raises(ValueError, match=r"is no year|could not convert|cannot convert"):
        parse(text, "year")
