"""Write people.csv, flats.csv, ratings.csv and machines.csv: made-up tables to learn from, the same bytes every time.

- people.csv: what people work as, and whether they earn more than 50,000 a year; numbers, categories, dates, and cells that are missing.
- flats.csv: flats and their prices in euros.
- ratings.csv: how people rated films, from 1 to 5, with the films' genres in one cell.
- machines.csv: readings of machines, a few of which fail within the hour.
"""

from __future__ import annotations

import csv
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
EDUCATION = ["none", "school", "apprenticeship", "college", "bachelor", "master", "doctorate"]
SECTORS = ["private", "public", "own business", "charity"]
JOBS = {
    "cleaner": -1.1, "cook": -0.7, "clerk": -0.3, "farmer": -0.5, "driver": -0.4, "nurse": 0.1, "teacher": 0.4, "mechanic": 0.0,
    "engineer": 1.0, "lawyer": 1.2, "physician": 1.5, "manager": 1.3, "programmer": 1.1, "painter": -0.6, "beekeeper": -0.2,
}  # fmt: skip
REGIONS = ["north", "east", "south", "west", "centre"]
DISTRICTS = {"harbour": 1.25, "old town": 1.4, "station": 0.95, "hill": 1.15, "meadows": 0.85, "mill": 0.9, "lake": 1.3}
GENRES = [
    "action", "comedy", "crime", "documentary", "drama", "family", "history", "horror", "romance", "science fiction", "thriller", "war",
]  # fmt: skip
FIRST = date(2024, 1, 1)


def write(name: str, header: list[str], rows: list[list[Any]]) -> None:
    """Write a table beside this file."""
    with (HERE / name).open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(header)
        out.writerows(rows)


def people(rng: np.random.Generator, count: int = 6000) -> None:
    """Write people.csv: income follows age, education, job and hours, and some chance."""
    rows = []
    names = list(JOBS)
    for _ in range(count):
        age = int(np.clip(rng.normal(42, 13), 17, 88))
        education = int(np.clip(rng.normal(2.8, 1.6), 0, 6))
        pull = np.array([1.5 * JOBS[name] * (education - 3) / 3 for name in names])
        job = names[int(rng.choice(len(names), p=np.exp(pull) / np.exp(pull).sum()))]
        sector = SECTORS[int(rng.choice(4, p=[0.62, 0.2, 0.12, 0.06]))]
        hours = int(np.clip(rng.normal(39, 9), 4, 80))
        savings = round(float(rng.lognormal(8.5 + 0.2 * education, 1.2)), 2)
        region = REGIONS[int(rng.integers(5))]
        married = rng.random() < 0.55
        score = (
            1.6 * JOBS[job] + 0.35 * (education - 3) + 0.05 * (hours - 39) - ((age - 50) / 17) ** 2
            + 0.35 * (sector == "own business") + 0.5 * married + 0.25 * (region == "centre") + 0.25 * (np.log(savings) - 9)
        )  # fmt: skip
        rich = rng.random() < 1 / (1 + np.exp(-(2.2 * score - 1.4)))
        since = FIRST - timedelta(days=int(rng.integers(0, 365 * max(1, age - 16))))
        cells: list[Any] = [
            age, EDUCATION[education], job, sector, hours, savings, region, "yes" if married else "no", since.isoformat(),
        ]  # fmt: skip
        for at, share in ((0, 0.02), (1, 0.02), (2, 0.03), (3, 0.05), (5, 0.08)):
            if rng.random() < share:
                cells[at] = ""
        rows.append([*cells, ">50K" if rich else "<=50K"])
    header = ["age", "education", "job", "sector", "hours", "savings", "region", "married", "employed_since", "income"]
    write("people.csv", header, rows)


def flats(rng: np.random.Generator, count: int = 3000) -> None:
    """Write flats.csv: the price follows size, place, age of the house, floor and the day of the offer."""
    rows = []
    names = list(DISTRICTS)
    for _ in range(count):
        area = round(float(np.clip(rng.lognormal(4.2, 0.4), 18, 260)), 1)
        rooms = int(np.clip(round(area / 27 + rng.normal(0, 0.6)), 1, 8))
        district = names[int(rng.integers(len(names)))]
        built = int(np.clip(rng.normal(1972, 32), 1880, 2024))
        floor = int(rng.integers(0, 9))
        lift = rng.random() < (0.25 if floor < 3 else 0.65)
        balcony = rng.random() < 0.6
        offered = FIRST + timedelta(days=int(rng.integers(0, 700)))
        square = 3900 * DISTRICTS[district] * (1 + 0.004 * max(0, built - 1990) + 0.15 * (built < 1915))
        square *= 1 + 0.04 * balcony + (0.015 * floor if lift else -0.02 * floor) + 0.05 * (offered - FIRST).days / 365
        price = area * square * float(np.exp(rng.normal(0, 0.07))) + 9000 * rooms
        cells: list[Any] = [
            area, rooms, district, built, floor, "true" if lift else "false", "true" if balcony else "false", offered.isoformat(),
        ]  # fmt: skip
        if rng.random() < 0.04:
            cells[3] = ""
        rows.append([*cells, int(round(price, -2))])
    header = ["area_m2", "rooms", "district", "built", "floor", "lift", "balcony", "offered", "price_eur"]
    write("flats.csv", header, rows)


def ratings(rng: np.random.Generator, users: int = 150, films: int = 300, each: int = 50) -> None:
    """Write ratings.csv: users like some genres, and films are better or worse."""
    taste = rng.normal(0, 0.9, (users, len(GENRES)))
    mood = rng.normal(0, 0.3, users)
    kinds = [sorted(rng.choice(len(GENRES), int(rng.integers(1, 4)), replace=False)) for _ in range(films)]
    quality = rng.normal(0, 0.6, films)
    years = rng.integers(1950, 2025, films)
    rows = []
    for user in range(users):
        for film in rng.choice(films, each, replace=False):
            score = 3.2 + mood[user] + quality[film] + taste[user, kinds[film]].mean() + rng.normal(0, 0.35)
            genres = "|".join(GENRES[k] for k in kinds[film])
            rows.append([f"u{user:03d}", f"f{film:03d}", genres, int(years[film]), int(np.clip(round(score), 1, 5))])
    order = rng.permutation(len(rows))
    write("ratings.csv", ["user", "film", "genres", "year", "rating"], [rows[i] for i in order])


def machines(rng: np.random.Generator, count: int = 6000) -> None:
    """Write machines.csv: readings of milling machines, of which one in eighteen fails within the hour."""
    rows = []
    for _ in range(count):
        kind = ("small", "medium", "large")[int(rng.choice(3, p=[0.5, 0.3, 0.2]))]
        room = rng.normal(27, 2.5)
        heat = room + rng.normal(10, 1.2)
        speed = float(np.clip(rng.gamma(12, 45) + 1000, 1100, 2900))
        torque = float(np.clip(60000 / speed + rng.normal(0, 8), 5, 80))
        worn = int(rng.integers(0, 240))
        power = torque * speed * 2 * np.pi / 60
        limit = {"small": 9.3, "medium": 10.2, "large": 11.2}[kind]
        score = (
            9.0 * (heat - room < 8.4) * (speed < 1400) + 0.005 * max(0.0, power - 8800) + 0.4 * max(0, worn - 222)
            + 4.0 * max(0.0, worn * torque / 1000 - limit) - 6.0
        )  # fmt: skip
        fails = rng.random() < 1 / (1 + np.exp(-score))
        rows.append([kind, round(room, 1), round(heat, 1), round(speed), round(torque, 1), worn, "yes" if fails else "no"])
    write("machines.csv", ["kind", "room_c", "heat_c", "speed_rpm", "torque_nm", "worn_min", "fails"], rows)


def main() -> None:
    """Write the tables."""
    people(np.random.default_rng(20261125))
    flats(np.random.default_rng(20261126))
    ratings(np.random.default_rng(20261127))
    machines(np.random.default_rng(20261201))


if __name__ == "__main__":
    main()
