"""Public holidays beside dates: known ahead in series, and what is said where they cannot be told."""

from __future__ import annotations

import csv
import io
import sys
from datetime import date, timedelta

import numpy as np
import pytest

from pe_cli.data.public_holidays import calendar_of
from tests.cli.conftest import Pe

#: Holidays of all of Germany by law, and by the date of Easter in 2023 (9 April) and 2024 (31 March).
FIXED = [(1, 1), (5, 1), (10, 3), (12, 25), (12, 26)]
EASTER = {2022: date(2022, 4, 17), 2023: date(2023, 4, 9), 2024: date(2024, 3, 31)}
MOVING = [day + timedelta(days=n) for day in EASTER.values() for n in (-2, 1, 39, 50)]
HOLIDAYS = {date(year, *day) for year in (2022, 2023, 2024) for day in FIXED} | set(MOVING)
DAYS = [date(2022, 1, 1) + timedelta(days=n) for n in range(900)]


def write(folder, name, days, known=None):
    rng = np.random.default_rng(3)
    lines = ["day,shop,sold"]
    for shop, level in (("a", 100), ("b", 60), ("c", 200)):
        for i, day in enumerate(days):
            sold = level * (1 + 0.2 * np.sin(day.weekday())) * (0.33 if day in HOLIDAYS else 1) + rng.normal(0, 2)
            lines.append(f"{day},{shop},{'' if known is not None and i >= known else f'{sold:.1f}'}")
    (folder / name).write_text("\n".join(lines) + "\n")


def test_the_calendar_is_that_of_the_law():
    calendar = calendar_of("DE")
    assert {day for day in DAYS if day in calendar} == {day for day in HOLIDAYS if day in set(DAYS)}
    assert date(2024, 1, 6) in calendar_of("DE-BY")
    assert date(2024, 1, 6) not in calendar


def test_holidays_of_a_series_are_known_ahead(pe: Pe, tmp_path):
    write(tmp_path, "t.csv", DAYS)
    # Easter of 2024, and the days before it, are to be forecast
    until = (date(2024, 3, 29) - DAYS[0]).days
    write(tmp_path, "new.csv", DAYS[: until + 7], known=until)
    wrong = {}
    for name, options in (("with", ("--holidays", "DE")), ("without", ())):
        made = pe("init", tmp_path / f"{name}.yaml", "--from", tmp_path / "t.csv", "--target", "sold", *options)
        assert made.code == 0, made.err
        assert ("known ahead: day" in made.out) == (name == "with")
        out = f"output.dir={tmp_path}/{name}"
        trained = pe("train", tmp_path / f"{name}.yaml", "--quiet", "-o", "train.epochs=12", "-o", out)
        assert trained.code == 0, trained.err
        (run,) = (tmp_path / name).iterdir()
        if name == "without":
            write(tmp_path, "new.csv", DAYS[:until])
        said = pe("predict", run / "checkpoints" / "best", tmp_path / "new.csv")
        assert said.code == 0, said.err
        row = next(row for row in csv.DictReader(io.StringIO(said.out)) if row["shop"] == "a")
        # Good Friday and Easter Monday
        truth = [100 * (1 + 0.2 * np.sin(day)) * 0.33 for day in (4, 0)]
        wrong[name] = np.abs([float(row[f"sold_{n}"]) - t for n, t in zip((1, 4), truth, strict=True)]).mean()
    assert wrong["with"] < wrong["without"] / 2, wrong


def test_holidays_of_a_table(pe: Pe, tmp_path):
    rng = np.random.default_rng(1)
    days = rng.permutation(DAYS)[:300]
    rows = [f"{day},{rng.choice(['x', 'y'])},{(10 if day in HOLIDAYS else 0) + rng.normal():.2f}" for day in days]
    (tmp_path / "t.csv").write_text("day,kind,y\n" + "\n".join(rows) + "\n")
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "y", "--holidays", "DE", "--task", "number")
    assert made.code == 0, made.err
    assert "parts: [timestamp, month, weekday, holiday], holidays: DE}" in (tmp_path / "c.yaml").read_text()
    trained = pe("train", tmp_path / "c.yaml", "--quiet", "-o", "train.epochs=2", "-o", f"output.dir={tmp_path}/runs")
    assert trained.code == 0, trained.err


@pytest.mark.parametrize(("code", "said"), [
    ("XX", "no holidays are known of the country 'XX'"), ("DE-ZZ", "no holidays are known of the region 'ZZ' of DE"),
])  # fmt: skip
def test_unknown_calendars(pe: Pe, tmp_path, code, said):
    write(tmp_path, "t.csv", DAYS)
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "sold", "--holidays", code)
    assert (made.code, said in made.err) == (2, True), made.err


def test_without_days_or_without_the_package(pe: Pe, tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i},{i * i % 7 + 0.5}\n" for i in range(60)))
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "y", "--holidays", "DE")
    assert (made.code, "no column has the days of at least two weeks" in made.err) == (3, True), made.err
    calendar_of.cache_clear()
    monkeypatch.setitem(sys.modules, "holidays", None)
    write(tmp_path, "t.csv", DAYS)
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "sold", "--holidays", "DE")
    assert (made.code, "pip install 'pe-cli[holidays]'" in made.err) == (2, True), made.err


def test_the_option_and_the_part_go_together(pe: Pe, tmp_path):
    write(tmp_path, "t.csv", DAYS)
    assert pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "sold").code == 0
    said = pe("check", tmp_path / "c.yaml", "-o", "data.columns.day={type: date, parts: [weekday, holiday]}")
    assert (said.code, "the part holiday goes with holidays" in said.err) == (2, True), said.err
