"""Write visitors.csv: how many people visited six pools a day, made up, the same bytes every time.

Numbers follow the weekday, the temperature, which is warm or cold for days in a row, and a state of each pool that changes slowly. Some
days were not counted.
"""

from __future__ import annotations

import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
POOLS = {"forest": 420, "harbour": 900, "lake": 650, "meadow": 300, "mill": 520, "station": 760}
#: Visitors of a day of the week, Monday first, in relation to the mean.
WEEK = np.array([0.72, 0.78, 0.84, 0.86, 1.02, 1.42, 1.36])
FIRST, DAYS = date(2023, 1, 1), 800


def slow(rng: np.random.Generator, keep: float, step: float) -> np.ndarray:
    """Return a state of every day that forgets the day before at a rate, float64 [DAYS]."""
    found = np.zeros(DAYS)
    for i in range(1, DAYS):
        found[i] = keep * found[i - 1] + step * rng.normal()
    return found


def main() -> None:
    """Write the table, by day and pool."""
    rng = np.random.default_rng(20261128)
    days = [FIRST + timedelta(days=i) for i in range(DAYS)]
    year = np.array([np.cos(2 * np.pi * (day.timetuple().tm_yday - 200) / 365.25) for day in days])
    temperature = 11 + 10 * year + slow(rng, 0.8, 2.4)
    week = WEEK[[day.weekday() for day in days]]
    rows = []
    for name, mean in POOLS.items():
        pull = 0.035 * (temperature - 11) + slow(rng, 0.97, 0.04)
        counts = rng.poisson(mean * week * np.exp(pull + 0.05 * rng.normal(size=DAYS)))
        missing = rng.random(DAYS) < 0.01
        rows += [
            (day.isoformat(), name, f"{warm:.1f}", "" if gone else int(count))
            for day, warm, count, gone in zip(days, temperature, counts, missing, strict=True)
        ]
    with (HERE / "visitors.csv").open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["day", "pool", "temperature", "visitors"])
        out.writerows(sorted(rows))


if __name__ == "__main__":
    main()
