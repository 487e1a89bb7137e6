"""Twelve made-up series with promotions of a known effect: forecasts are no worse than those of boosted trees on lags."""

from __future__ import annotations

import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from tests.cli.conftest import Pe
from tests.rotation import on_its_day

SERIES, ROWS, AHEAD, ROUNDS, SEEN = 12, 300, 7, 3, 28


def made(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what is sold, and whether there is a promotion, [series, rows]: a level, a week, a lift, a trend and 5% of noise."""
    rng = np.random.default_rng(seed)
    promo = (rng.random((SERIES, ROWS)) < 0.2).astype(int)
    week = 1 + 0.3 * np.sin(2 * np.pi * np.arange(ROWS) / 7)
    lift = 1 + rng.uniform(0.3, 0.8, (SERIES, 1)) * promo
    sold = rng.uniform(50, 300, (SERIES, 1)) * week * lift * (1 + 0.0005 * np.arange(ROWS)) * np.exp(rng.normal(0, 0.05, promo.shape))
    return sold, promo


def written(path: Path, sold: np.ndarray, promo: np.ndarray, known: int, rows: int) -> Path:
    """Write the first rows of all series, of which those from `known` on have no target."""
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["shop", "day", "promo", "sold"])
        for shop in range(SERIES):
            for day in range(rows):
                cell = f"{sold[shop, day]:.2f}" if day < known else ""
                out.writerow([f"s{shop}", date(2022, 1, 1) + timedelta(day), promo[shop, day], cell])
    return path


def lags(sold: np.ndarray, promo: np.ndarray, shop: int, origin: int, ahead: int) -> list[float]:
    """Return what trees see of a row that is to be forecast: the same columns, lags, and what is known ahead."""
    past = sold[shop, origin - SEEN : origin]
    same = past[ahead % 7 - 7]
    seen = [*past[-14:], *promo[shop, origin - 14 : origin]]
    return [shop, ahead, promo[shop, origin + ahead], (origin + ahead) % 7, same, past.mean(), *seen]


@on_its_day(2, of=3)
def test_promotions_are_forecast_no_worse_than_by_trees(pe: Pe, tmp_path):
    sold, promo = made(0)
    first = ROWS - ROUNDS * AHEAD
    config, runs = tmp_path / "c.yaml", tmp_path / "runs"
    train = written(tmp_path / "train.csv", sold, promo, first, first)
    assert pe("init", config, "--from", train, "--target", "sold", "--known", "promo").code == 0
    trained = pe("train", config, "--quiet", "-o", f"output.dir={runs}")
    assert trained.code == 0, trained.err
    (run,) = runs.iterdir()
    origins = [first + i * AHEAD for i in range(ROUNDS)]
    errors = []
    for origin in origins:
        now = written(tmp_path / "now.csv", sold, promo, origin, origin + AHEAD)
        said = pe("predict", run, now, "--out", tmp_path / "p.csv")
        assert said.code == 0, said.err
        with (tmp_path / "p.csv").open() as file:
            found = {row["shop"]: [float(row[f"sold_{i + 1}"]) for i in range(AHEAD)] for row in csv.DictReader(file)}
        errors += [np.abs(np.array(found[f"s{shop}"]) - sold[shop, origin : origin + AHEAD]).mean() for shop in range(SERIES)]

    rows = [(shop, origin, ahead) for shop in range(SERIES) for origin in range(SEEN, first - AHEAD + 1) for ahead in range(AHEAD)]
    trees = HistGradientBoostingRegressor(max_iter=300, learning_rate=0.05, categorical_features=[0, 3], random_state=0)
    trees.fit(np.array([lags(sold, promo, *row) for row in rows]), np.array([sold[shop, origin + ahead] for shop, origin, ahead in rows]))
    asked = [(shop, origin, ahead) for origin in origins for shop in range(SERIES) for ahead in range(AHEAD)]
    truth = np.array([sold[shop, origin + ahead] for shop, origin, ahead in asked])
    theirs = np.abs(trees.predict(np.array([lags(sold, promo, *row) for row in asked])) - truth).mean()
    assert np.mean(errors) < 1.1 * theirs, (np.mean(errors), theirs)
    # The noise alone makes 4% of the level, in the mean.
    assert np.mean(errors) < 0.09 * truth.mean()
