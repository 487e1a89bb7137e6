"""Series whose times are written in another way, or are not regular."""

from __future__ import annotations

import csv
import io
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from pe_cli.session.starters.series_times import _step
from tests.cli.conftest import Pe
from tests.rotation import on_its_day

START = datetime(2023, 1, 2)


def written(folder: Path, times: list[str], values: np.ndarray) -> Path:
    with (folder / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("when", "n"), *zip(times, values.round(2).tolist(), strict=True)])
    return folder / "t.csv"


def wave(rows: int, period: int = 7) -> np.ndarray:
    return 100 + 20 * np.sin(2 * np.pi * np.arange(rows) / period) + np.random.default_rng(0).normal(size=rows)


DAYS = [START + timedelta(days=i) for i in range(200)]


@pytest.mark.parametrize(("times", "said", "line"), [
    pytest.param([day.strftime("%d/%m/%Y") for day in DAYS], "a day apart by 'when'", 'time: when, format: "%d/%m/%Y"', id="days first"),
    pytest.param([f"{2000 + i // 12}-{i % 12 + 1:02}" for i in range(200)], "a month apart", 'format: "%Y-%m"', id="months"),
    pytest.param([day.date().isoformat() for day in DAYS if day.weekday() < 5], "a working day apart", "time: when, length: 10",
                 id="working days"),
    pytest.param([f"{START + timedelta(hours=i):%Y-%m-%d %H:%M}" for i in range(200)], "an hour apart by 'when'", "time: when", id="hours"),
])  # fmt: skip
def test_regular_times(pe: Pe, tmp_path, times, said, line):
    source = written(tmp_path, times, wave(len(times)))
    made = pe("init", tmp_path / "c.yaml", "--from", source, "--target", "n")
    assert made.code == 0, made.err
    assert said in made.out
    assert "are longer than" not in made.out
    assert line in (tmp_path / "c.yaml").read_text()
    assert pe("check", tmp_path / "c.yaml").code == 0


def test_gaps_are_said(pe: Pe, tmp_path):
    days = [day.date().isoformat() for i, day in enumerate(DAYS) if i % 25]
    made = pe("init", tmp_path / "c.yaml", "--from", written(tmp_path, days, wave(len(days))), "--target", "n")
    assert "7 of 191 steps of 'when' are longer than 1.5 usual ones, and windows go over them" in made.out


def irregular(rows: int = 300) -> list[str]:
    moments = np.sort(np.random.default_rng(1).uniform(0, 100 * 86400, rows))
    return [(START + timedelta(seconds=float(moment))).isoformat(timespec="seconds") for moment in moments]


def test_irregular_times_are_no_series_unless_the_user_says_so(pe: Pe, tmp_path):
    source = written(tmp_path, irregular(), wave(300, 21))
    plain = pe("init", tmp_path / "c.yaml", "--from", source, "--target", "n")
    assert plain.code == 0, plain.err
    assert "No series: rows are not at regular times by 'when'" in plain.out
    assert "--task series makes one row for every 1 day." in plain.out
    made = pe("init", tmp_path / "c.yaml", "--from", source, "--target", "n", "--task", "series", "--force")
    assert made.code == 0, made.err
    assert "300 rows become 100, one for every 1 day by 'when': numbers in it are averaged" in made.out
    assert 'every: "1 day"' in (tmp_path / "c.yaml").read_text()


def test_rows_of_one_time(pe: Pe, tmp_path):
    days = [day.date().isoformat() for day in DAYS]
    few = written(tmp_path, [*days, days[3]], wave(201))
    made = pe("init", tmp_path / "c.yaml", "--from", few, "--target", "n")
    assert "No series: rows 4 and 201 have the same 'when', 2023-01-05, and no other column tells series apart; --task series" in made.out
    many = written(tmp_path, [*days, *days], wave(400))
    told = pe("init", tmp_path / "c.yaml", "--from", many, "--target", "n", "--task", "series", "--force")
    assert told.code == 3
    assert "have the same 'when', 2023-01-02, and so have 199 more pairs" in told.err


@on_its_day(1, of=2)
def test_an_irregular_series_is_forecast(pe: Pe, tmp_path):
    source = written(tmp_path, irregular(), wave(300, 21))
    assert pe("init", tmp_path / "c.yaml", "--from", source, "--target", "n", "--task", "series").code == 0
    trained = pe("train", tmp_path / "c.yaml", "--quiet", "-o", "train.epochs=2", "-o", f"output.dir={tmp_path}/runs")
    assert trained.code == 0, trained.err
    (run,) = (tmp_path / "runs").iterdir()
    said = pe("predict", run, source)
    assert said.code == 0, said.err
    (row,) = csv.DictReader(io.StringIO(said.out))
    assert row["when"] == "2023-04-11", "the last of 100 days"
    assert 60 < float(row["n"]) < 140


def test_more_than_a_thousand_series_of_irregular_times():
    days = np.random.default_rng(5).uniform(0, 200, 1500 * 80)
    series = np.repeat(np.arange(1500), 80)
    mixed = np.random.default_rng(0).permutation(len(days))
    few = mixed[series[mixed] < 300]
    found = _step(days[mixed] * 86400, series[mixed])  # steps of a day, of which a third has a row, would not do
    assert found == _step(days[few] * 86400, series[few])


@on_its_day(1, of=3)
def test_a_level_that_no_training_row_has_is_forecast_from(pe: Pe, tmp_path):
    """A walk is nowhere near the levels of its past; a forecast far behind the last number would be worth nothing."""
    rng = np.random.default_rng(0)
    days = [(START + timedelta(days=i)).date().isoformat() for i in range(700)]
    source = written(tmp_path, days, 50 + np.cumsum(rng.normal(-0.15, 1, 700)))
    made = pe("init", tmp_path / "c.yaml", "--from", source, "--target", "n")
    assert made.code == 0, made.err
    trained = pe("train", tmp_path / "c.yaml", "--quiet", "-o", "train.epochs=40", "-o", f"output.dir={tmp_path}/runs")
    assert trained.code == 0, trained.err
    (run,) = (tmp_path / "runs").iterdir()
    measured = pe("eval", run, "--split", "test").out
    figures = {name: float(measured.split(f"  {name} ")[1].split()[0]) for name in ("error", "naive", "covered")}
    assert figures["error"] < 1.5 * figures["naive"], measured
    assert figures["covered"] > 0.5, measured
