"""Cells that are easily misread without a word: pe init says what it takes them for, or asks for what settles it."""

from __future__ import annotations

import csv
import io
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Pe


def test_a_target_that_is_written_in_several_ways(pe: Pe, tmp_path: Path):
    rng = np.random.default_rng(0)
    rows = [(f"{x:.3f}", rng.choice(["Yes", "yes", "YES"]) if x > 0 else rng.choice(["No", "no"])) for x in rng.normal(size=120)]
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("x", "paid"), *rows])
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "paid")
    assert made.code == 0, made.err
    assert "'paid' is taken for classes: 2 classes" in made.out
    assert "writes classes in several ways, which are taken for one each (3 more texts)" in made.out
    assert "--columns paid=category keeps them apart" in made.out
    apart = pe("init", tmp_path / "d.yaml", "--from", tmp_path / "t.csv", "--target", "paid", "--columns", "paid=category")
    assert "5 classes" in apart.out
    assert "is no class" not in pe("data", tmp_path / "c.yaml").out
    trained = pe("train", tmp_path / "c.yaml", "--quiet", "-o", "train.epochs=3", "-o", f"output.dir={tmp_path}/runs")
    assert trained.code == 0, trained.err
    (run,) = (tmp_path / "runs").iterdir()
    assert pe("eval", run, tmp_path / "t.csv").code == 0
    said = pe("predict", run, tmp_path / "t.csv")
    assert len({line["paid"] for line in csv.DictReader(io.StringIO(said.out))}) == 2


def made_of(pe: Pe, folder: Path, columns: dict[str, list[object]], *options: str, first: str = "", delimiter: str = ","):
    """Write a table whose last column is the target, and return what pe init says."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerows([columns, *zip(*columns.values(), strict=True)])
    (folder / "t.csv").write_text(first + out.getvalue(), encoding="utf-8")
    return pe("init", folder / "c.yaml", "--from", folder / "t.csv", "--target", list(columns)[-1], "--force", *options)


X = [round(float(x), 3) for x in np.random.default_rng(1).normal(size=120)]
PARTS = [f"{i * 61 % 100}.{i % 10}%" if i % 3 else f"{i / 121:.4f}" for i in range(1, 121)]
YES = ["ja" if x > 0.3 else "nein" for x in X]


@pytest.mark.parametrize(("target", "said"), [
    pytest.param([999 if i % 30 == 2 else 20 + i % 50 for i in range(120)], "the target is 999, and so are 3 more", id="999 in a target"),
    pytest.param(PARTS, "numbers of several units (%, none)", id="percents and parts"),
    pytest.param([f"{i} kg" if i % 2 else f"{i * 1000} g" for i in range(120)], "numbers of several units (g, kg)", id="two units"),
])  # fmt: skip
def test_targets_that_cannot_be_settled(pe: Pe, tmp_path, target, said):
    made = made_of(pe, tmp_path, {"x": X, "y": target})
    assert (made.code, said in made.err) == (3, True), made.err


def test_a_number_that_looks_missing_is_taken_where_the_user_says_so(pe: Pe, tmp_path):
    made = made_of(pe, tmp_path, {"x": X, "y": [999 if i % 30 == 2 else 20 + i % 50 for i in range(120)]}, "--columns", "y=number")
    assert made.code == 0, made.err
    assert "'y' is taken for a number: 20 to 999" in made.out


def test_counts_that_a_program_wrote_with_decimals(pe: Pe, tmp_path):
    counts = [f"{n}.0" for n in np.random.default_rng(0).geometric(0.25, 400) - 1]
    made = made_of(pe, tmp_path, {"x": [i % 7 for i in range(400)], "n": counts})
    assert made.code == 0, made.err
    assert "'n' is taken for a count" in made.out


@pytest.mark.parametrize(("cells", "said"), [
    pytest.param(PARTS, "numbers of several units (%, none)", id="percents and parts"),
    pytest.param([f"{i}:{i % 60:02}" for i in range(120)], "times? write them as numbers", id="minutes, or hours"),
    pytest.param([f"{50 + i / 99:.4f}, {8 + i / 77:.4f}" for i in range(120)], "two numbers in a cell?", id="coordinates"),
    pytest.param([f"{2024 - i}-01-{i % 28 + 1:02}" if i % 2 else f"{i % 28 + 1}.2.{1900 + i}" for i in range(120)],
                 "dates of several forms?", id="dates of two forms"),
    pytest.param([str(10**17 + 7919 * i**3) for i in range(120)], "an id", id="account numbers"),
])  # fmt: skip
def test_columns_that_are_left_out_say_what_they_look_like(pe: Pe, tmp_path, cells, said):
    made = made_of(pe, tmp_path, {"x": X, "odd": cells, "y": YES})
    assert made.code == 0, made.err
    (line,) = [line for line in made.out.splitlines() if line.startswith("left out: 'odd'")]
    assert said in line


@pytest.mark.parametrize(("cells", "declared"), [
    pytest.param([f"{i % 24:02}:{i * 7 % 60:02}" for i in range(120)], 'odd: {type: date, format: "%H:%M", parts: [hour]',
                 id="times of day"),
    pytest.param([f"{i}:{i % 60:02}:01" for i in range(120)], "odd: {type: date, format: duration, parts: [timestamp]", id="lengths"),
    pytest.param([f"{1990 + i // 12}-{i % 12 + 1:02}" for i in range(120)], 'odd: {type: date, format: "%Y-%m"', id="months"),
    pytest.param([f"{i % 12 + 1:02}/{1990 + i // 12}" for i in range(120)], 'odd: {type: date, format: "%m/%Y"', id="months first"),
])  # fmt: skip
def test_columns_of_times(pe: Pe, tmp_path, cells, declared):
    made = made_of(pe, tmp_path, {"x": X, "odd": cells, "y": YES})
    assert made.code == 0, made.err
    assert declared in (tmp_path / "c.yaml").read_text()
    assert pe("check", tmp_path / "c.yaml").code == 0


def test_the_line_that_tells_excel_the_delimiter(pe: Pe, tmp_path):
    made = made_of(pe, tmp_path, {"x": [str(x).replace(".", ",") for x in X], "y": YES}, first="sep=;\n", delimiter=";")
    assert made.code == 0, made.err
    assert "'y' is taken for classes: 2 classes" in made.out
    assert pe("check", tmp_path / "c.yaml").code == 0
    lines = (tmp_path / "t.csv").read_text().splitlines()
    (tmp_path / "t.csv").write_text("\n".join([*lines[:4], "zero;ja", *lines[5:]]))
    assert "t.csv:5:1: error" in pe("check", tmp_path / "c.yaml").err, "lines are counted with the first one"


@pytest.mark.parametrize(("text", "said"), [
    pytest.param("Export of 3 April,,\n,,\nx,place,y\n1,a,2\n", "stand below a title", id="a title"),
    pytest.param("x  place   y\n1  a  2\n", "where blanks stand between several", id="blanks"),
])  # fmt: skip
def test_tables_without_a_header_where_it_is_looked_for(pe: Pe, tmp_path, text, said):
    (tmp_path / "t.csv").write_text(text)
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "y")
    assert (made.code, said in made.err) == (3, True), made.err


@pytest.mark.parametrize(("digits", "steps"), [(7, 12), (2, 12), (3, 12), (2, 4)])
def test_years_with_a_fraction_are_dates(pe: Pe, tmp_path, digits, steps):
    """R writes a series of months or quarters so; half of its rows, in any order, are no series."""
    rng = np.random.default_rng(1)
    taken = rng.permutation(200)[:100]
    columns = {"time": [round(1991.5 + i / steps, digits) for i in taken], "y": rng.normal(size=100).round(3).tolist()}
    made = made_of(pe, tmp_path, columns)
    assert made.code == 0, made.err
    assert "'time' is taken for years with a fraction for the month, 19" in made.out
    assert "as numbers: --columns 'time=number'" in made.out
    assert "{type: date, format: year, parts: [timestamp, month]}" in (tmp_path / "c.yaml").read_text()


@pytest.mark.parametrize(("name", "cells"), [
    ("price", [1990 + i / 4 for i in range(100)]), ("year", [1950 + i / 2 for i in range(100)]), ("time", [i / 12 for i in range(100)]),
    ("time", [1900 + i * 0.37 for i in range(100)]),
], ids=["a price", "years and halves", "no years", "other fractions"])  # fmt: skip
def test_numbers_that_are_no_years_with_a_fraction(pe: Pe, tmp_path, name, cells):
    rng = np.random.default_rng(1)
    order = rng.permutation(100)[:80]
    columns = {name: [cells[i] for i in order], "y": rng.normal(size=80).round(3).tolist()}
    made = made_of(pe, tmp_path, columns)
    assert made.code == 0, made.err
    assert "fraction" not in made.out


def test_a_series_of_years_with_a_fraction(pe: Pe, tmp_path):
    columns = {"time": [round(1991.5 + i / 12, 4) for i in range(120)], "value": [10 + i % 12 + i / 50 for i in range(120)]}
    made = made_of(pe, tmp_path, columns)
    assert made.code == 0, made.err
    assert "120 rows at regular times, a month apart by 'time': taken for a series" in made.out


def test_classes_that_look_like_numbers_are_said(pe: Pe, tmp_path):
    sizes = [("1 1/2", "3", "2 3/4", "1/4", "5 1/8")[i % 5] for i in range(120)]
    made = made_of(pe, tmp_path, {"size": sizes, "x": X, "y": YES})
    assert made.code == 0, made.err
    assert "'size' is taken for classes, no numbers: '1 1/2', '3', '2 3/4': fractions? write them as decimals, such as 1.5" in made.out


@pytest.mark.parametrize("form", ["%Y %b", "%Y %B", "%Y/%b", "%b/%Y", "%B/%Y", "%b %y", "%YM%m", "%Y-M%m", "%Y M%m", "%Y %b %d", "%Y%b"])
def test_months_as_programs_write_them(pe: Pe, tmp_path, form):
    """1991 Sep is tsibble's, 1991M09 that of the IMF and of Eurostat; their names of months are no units of numbers."""
    days = [date(1950 + i // 12, i % 12 + 1, 5) for i in np.random.default_rng(1).permutation(600)[:120]]
    made = made_of(pe, tmp_path, {"period": [day.strftime(form) for day in days], "y": X})
    assert made.code == 0, made.err
    assert "period: {type: date, format:" in (tmp_path / "c.yaml").read_text()
    assert pe("data", tmp_path / "c.yaml").code == 0


def test_numbers_with_a_few_words_that_repeat_are_classes(pe: Pe, tmp_path):
    """As openintro's yrbss has hours of television; a single word among many different numbers is a slip, and no class."""
    hours = [("1", "2", "5+", "3", "do not watch", "4", "<1", "2")[i % 8] for i in range(120)]
    prices = ["12x" if i == 40 else f"{i * 37 % 101}" for i in range(120)]
    made = made_of(pe, tmp_path, {"hours": hours, "price": prices, "x": X, "y": YES})
    assert made.code == 0, made.err
    assert "'hours' is taken for classes, as 45 cells are no numbers, such as '5+' in row 3: '1', '2', '5+'" in made.out
    assert "hours: {type: category}" in (tmp_path / "c.yaml").read_text()
    assert "left out: 'price': 1 cell is no number: '12x' in row 41" in made.out


def test_columns_that_are_left_out_for_one_reason_are_said_in_a_line(pe: Pe, tmp_path):
    gone = [f"e{i}" for i in range(20)]
    rows = "".join(f"{i % 7},{3 * (i % 7) + 1}.5,{','.join('' for _ in gone)}\n" for i in range(60))
    (tmp_path / "t.csv").write_text(f"a,y,{','.join(gone)}\n{rows}")
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "y")
    assert made.code == 0, made.err
    (line,) = [line for line in made.out.splitlines() if line.startswith("left out: ")]
    assert line == f"left out: {', '.join(repr(name) for name in gone[:12])} and 8 more: every cell is missing"
    assert "# Left out: 'e0', 'e1'" in (tmp_path / "c.yaml").read_text()
    assert pe("check", tmp_path / "c.yaml").code == 0
