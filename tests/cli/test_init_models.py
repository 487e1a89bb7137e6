"""What a table's starter learns: curves of a number, gaps that only new rows have, and few rows."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.cli.conftest import Pe
from tests.cli.test_init_from import table
from tests.rotation import on_its_day


def scored(pe: Pe, tmp_path: Path, columns: Mapping[str, Sequence[float]], target: str) -> float:
    """Return R2 on the last quarter of rows that stand in no order, of a model that is made of the others."""
    cut = len(columns[target]) * 3 // 4
    train = table(tmp_path / "train.csv", {name: values[:cut] for name, values in columns.items()})
    test = table(tmp_path / "test.csv", {name: values[cut:] for name, values in columns.items() if name != target})
    config, runs = tmp_path / "run.yaml", tmp_path / "runs"
    for command in (
        ("init", config, "--from", train, "--target", target),
        ("train", config, "--quiet", "-o", f"output.dir={runs}"),
        ("predict", runs, test, "--out", tmp_path / "answers.csv"),
    ):
        where = [next(runs.iterdir()) if part == runs else part for part in command]
        said = pe(*where)
        assert said.code == 0, said.err
    with (tmp_path / "answers.csv").open(encoding="utf-8") as file:
        answers = np.array([float(row[target]) for row in csv.DictReader(file)])
    wanted = np.array(columns[target][cut:])
    return float(1 - ((answers - wanted) ** 2).sum() / ((wanted - wanted.mean()) ** 2).sum())


@on_its_day(1, of=3)
def test_a_wave_of_a_number_is_followed(pe, tmp_path, rng):
    t = rng.uniform(0, 1, 480).round(5)
    wave = np.sin(2 * np.pi * 4 * t) + rng.normal(0, 0.1, len(t))
    # four periods: a straight line explains nothing of it, and the noise leaves 0.98 at best
    assert scored(pe, tmp_path, {"t": t.tolist(), "y": wave.round(5).tolist()}, "y") > 0.85


def test_new_rows_may_miss_numbers_that_no_training_row_missed(pe, tmp_path, rng):
    x, z = rng.normal(size=(2, 60)).round(4).tolist()
    config, runs = tmp_path / "run.yaml", tmp_path / "runs"
    assert pe("init", config, "--from", table(tmp_path / "t.csv", {"x": x, "z": z, "y": x}), "--target", "y").code == 0
    assert pe("train", config, "--quiet", "-o", "train.steps=2", "-o", f"output.dir={runs}").code == 0
    new = table(tmp_path / "new.csv", {"x": ["", "1.5"], "z": ["0.5", ""]})
    said = pe("predict", next(runs.iterdir()), new, "--out", tmp_path / "answers.csv")
    assert said.code == 0, said.err


def test_few_rows_get_no_bins_and_no_test_part(pe, tmp_path, rng):
    columns = {name: rng.normal(size=40).round(4).tolist() for name in "abcy"}
    assert pe("init", tmp_path / "run.yaml", "--from", table(tmp_path / "t.csv", columns), "--target", "y").code == 0
    assert "piecewise_linear_encoding" not in (tmp_path / "run_model.yaml").read_text()
    assert "split: {eval: 0.2, seed: 1}" in (tmp_path / "run.yaml").read_text()
