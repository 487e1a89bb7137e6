"""Series whose future is known in part: from two commands to forecasts with intervals."""

from __future__ import annotations

import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Pe

ROWS, AHEAD = 230, 7


def series(path: Path, rows: int = ROWS, ahead: int = 0, empty: str = "") -> np.ndarray:
    """Write three series with a promotion that lifts them by half; return what is sold, also in the rows ahead: [3, rows + ahead]."""
    rng = np.random.default_rng(7)
    promo = (rng.random((3, ROWS + AHEAD)) < 0.25).astype(int)
    week = np.array([1, 0.9, 1, 1, 1.2, 1.5, 1.3])[np.arange(ROWS + AHEAD) % 7]
    sold = np.array([[50], [100], [150]]) * week * (1 + 0.5 * promo) * np.exp(rng.normal(0, 0.03, promo.shape))
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["shop", "kind", "day", "promo", "sold"])
        for shop in range(3):
            for day in range(rows + ahead):
                cell = f"{sold[shop, day]:.1f}" if day < rows else empty
                when = (date(2024, 1, 1) + timedelta(days=day)).isoformat()
                out.writerow([f"s{shop}", ["small", "big", "big"][shop], when, promo[shop, day], cell])
    return sold


def test_a_promotion_that_is_known_ahead_is_forecast(pe: Pe, tmp_path):
    truth = series(tmp_path / "t.csv")[:, ROWS:]
    config = tmp_path / "c.yaml"
    plain = pe("init", config, "--from", tmp_path / "t.csv", "--target", "sold")
    assert plain.code == 0, plain.err
    assert "'promo' is read up to now; if its future is known, too: --known 'promo'" in plain.out
    made = pe("init", config, "--from", tmp_path / "t.csv", "--target", "sold", "--known", "promo", "--force")
    assert made.code == 0, made.err
    assert "known ahead: day, promo" in made.out
    assert "the same in all rows of a series: kind" in made.out
    trained = pe("train", config, "--quiet", "-o", "train.epochs=30", "-o", f"output.dir={tmp_path}/runs", "-o", "executor.devices=1")
    assert trained.code == 0, trained.err
    figures = {name: float(trained.out.split(f"eval/{name} ")[1].split()[0]) for name in ("error", "naive", "seasonal", "mase", "covered")}
    assert figures["error"] < 0.6 * min(figures["naive"], figures["seasonal"])
    assert 0.2 < figures["covered"] <= 1
    (run,) = (tmp_path / "runs").iterdir()
    series(tmp_path / "new.csv", ahead=AHEAD)
    said = pe("predict", run / "checkpoints/best", tmp_path / "new.csv", "--out", tmp_path / "o.csv")
    assert said.code == 0, said.err
    with (tmp_path / "o.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["shop"] for row in rows] == ["s0", "s1", "s2"]
    low, middle, high = (np.array([[float(row[f"sold_{i + 1}{q}"]) for i in range(AHEAD)] for row in rows]) for q in ("_q10", "", "_q90"))
    assert (low < middle).all()
    assert (middle < high).all()
    last_week = series(tmp_path / "t.csv")[:, ROWS - 7 : ROWS]
    assert np.abs(middle - truth).mean() < 0.6 * np.abs(last_week - truth).mean()
    _bad_futures(pe, run, tmp_path)


def _bad_futures(pe: Pe, run: Path, tmp_path: Path) -> None:
    series(tmp_path / "none.csv")
    series(tmp_path / "short.csv", ahead=3)
    text = (tmp_path / "new.csv").read_text().splitlines()
    (tmp_path / "gap.csv").write_text("\n".join(line.replace(",0,", ",,").replace(",1,", ",,") if line.endswith(",") else line
                                                for line in text) + "\n")  # fmt: skip
    for file, message in (("none", "0 of 's0' are there"), ("short", "3 of 's0' are there"), ("gap", "missing")):
        said = pe("predict", run, tmp_path / f"{file}.csv")
        assert said.code == 3, said.err
        assert message in said.err
        assert "hint" in said.err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        pytest.param(["--known", "nope"], 3, "--known: the data has no column 'nope'", id="no column"),
        pytest.param(["--known", "sold"], 2, "--known sold: it is the target", id="the target"),
        pytest.param(["--known", "day"], 2, "is known anyway", id="the time"),
        pytest.param(["--known", "shop"], 2, "it tells series apart", id="the key"),
        pytest.param(["--known", "promo", "--task", "number"], 3, "--known is about series", id="no series"),
    ],
)
def test_what_cannot_be_known_ahead(pe: Pe, tmp_path, options, code, message):
    series(tmp_path / "t.csv", 60)
    said = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "sold", *options)
    assert said.code == code, said.err
    assert message in said.err
    assert "hint" in said.err
