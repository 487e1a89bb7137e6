"""What a table's starter learns: curves of a number, gaps that only new rows have, and few rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

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
    paid = rng.choice(["yes", "no"], 60, p=[0.8, 0.2]).tolist()
    flag = rng.integers(0, 2, 60).tolist()
    kind = rng.choice(["a", "b", "c"], 60).tolist()
    config, runs = tmp_path / "run.yaml", tmp_path / "runs"
    columns = {"x": x, "z": z, "paid": paid, "flag": flag, "kind": kind, "y": x}
    assert pe("init", config, "--from", table(tmp_path / "t.csv", columns), "--target", "y").code == 0
    assert "paid: {type: bool, missing: true}" in " ".join(config.read_text().split())
    assert pe("train", config, "--quiet", "-o", "train.steps=2", "-o", f"output.dir={runs}").code == 0
    new = {"x": ["", "1.5"], "z": ["0.5", ""], "paid": ["", "no"], "flag": [1, ""], "kind": ["", "c"]}
    new = table(tmp_path / "new.csv", new)
    said = pe("predict", next(runs.iterdir()), new, "--out", tmp_path / "answers.csv")
    assert said.code == 0, said.err


def test_few_rows_get_no_bins_and_no_test_part(pe, tmp_path, rng):
    columns = {name: rng.normal(size=40).round(4).tolist() for name in "abcy"}
    assert pe("init", tmp_path / "run.yaml", "--from", table(tmp_path / "t.csv", columns), "--target", "y").code == 0
    assert "piecewise_linear_encoding" not in (tmp_path / "run_model.yaml").read_text()
    assert "split: {eval: 0.2, seed: 1}" in (tmp_path / "run.yaml").read_text()


@pytest.mark.parametrize("cells", [("0.0", "1.0"), ("1.00", "0"), ("1e0", "0.0")])
def test_zeros_and_ones_with_decimals_are_learned_from(pe, tmp_path, rng, cells):
    flag = rng.integers(0, 2, 60)
    columns = {"flag": [cells[i] for i in flag], "z": rng.normal(size=60).round(3).tolist(), "y": rng.choice(["a", "b"], 60).tolist()}
    said = pe("init", tmp_path / "run.yaml", "--from", table(tmp_path / "t.csv", columns), "--target", "y")
    assert said.code == 0, said.err
    assert "numbers: flag, z" in said.out
    assert pe("data", tmp_path / "run.yaml").code == 0


def test_numbers_of_very_different_sizes_are_told_apart(pe, tmp_path, rng):
    """Growth in percent and numbers of people in one column, as the World Bank's tables have them: beside 1e9 all growth is one number."""
    kinds = rng.choice(["growth", "fall", "people"], 300)
    sizes = {"growth": rng.uniform(1, 4, 300), "fall": rng.uniform(-4, -1, 300), "people": np.exp(rng.normal(15, 3, 300))}
    columns = {"a": [f"{sizes[kind][i]:.5g}" for i, kind in enumerate(kinds)], "kind": kinds.tolist()}
    test = {name: cells[240:] for name, cells in columns.items()}
    train = {name: cells[:240] for name, cells in columns.items()}
    config, runs = tmp_path / "run.yaml", tmp_path / "runs"
    assert pe("init", config, "--from", table(tmp_path / "t.csv", train), "--target", "kind").code == 0
    assert "transform: asinh" in config.read_text()
    assert pe("train", config, "--quiet", "-o", f"output.dir={runs}").code == 0
    said = pe("eval", next(runs.iterdir()), table(tmp_path / "new.csv", test), "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["acc"] > 0.95
