"""Tables without a target, from pe init --task anomaly to scores of rows and cells."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from tests.cli.conftest import Pe


def table(path: Path, rows: int, wrong: int, seed: int) -> list[str]:
    """Write rows of four numbers and a category that two causes make; in the first `wrong` ones a cell is changed. Return which."""
    rng = np.random.default_rng(seed)
    cause = rng.normal(size=(rows, 2))
    values = cause @ np.array([[1.0, 0.5, -1.0, 0.0], [0.0, 1.0, 0.5, 1.0]]) + rng.normal(0, 0.1, (rows, 4))
    kinds = np.where(cause[:, 0] > 0, "hot", "cold")
    changed = []
    for i in range(wrong):
        which = int(rng.integers(4))
        values[i, which] += 2.5 * (1 if values[i, which] < 0 else -1)
        changed.append("abcd"[which])
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow([*"abcd", "kind"])
        out.writerows([*row.round(3).tolist(), kind] for row, kind in zip(values, kinds, strict=True))
    return changed


def test_wrong_cells_have_the_highest_scores(pe: Pe, tmp_path):
    table(tmp_path / "t.csv", 600, 0, 0)
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--task", "anomaly")
    assert made.code == 0, made.err
    assert "600 rows; 5 columns are learned" in made.out
    short = ("-o", "train.epochs=40", "-o", "executor.devices=1", "-o", f"output.dir={tmp_path}/runs")
    trained = pe("train", tmp_path / "c.yaml", "--quiet", *short)
    assert trained.code == 0, trained.err
    (run,) = (tmp_path / "runs").iterdir()
    changed = table(tmp_path / "new.csv", 200, 20, 1)
    said = pe("predict", run, tmp_path / "new.csv", "--out", tmp_path / "o.csv")
    assert said.code == 0, said.err
    with (tmp_path / "o.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    scores = np.array([float(row["score"]) for row in rows])
    above = np.mean(scores[:20, None] > scores[None, 20:])
    assert above > 0.9, "the share of pairs in which the changed row has the higher score: the area under the ROC curve"
    first = [max("abcd", key=lambda name, row=row: float(row[f"score_{name}"])) for row in rows[:20]]
    assert np.mean([found == name for found, name in zip(first, changed, strict=True)]) > 0.5, "0.25 by chance"
    code = pe("predict", run, tmp_path / "new.csv", "--fetch", "code")
    assert code.out.splitlines()[0].split(",")[-1] == "code_2"


def test_a_target_is_refused(pe: Pe, tmp_path):
    table(tmp_path / "t.csv", 40, 0, 0)
    said = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--task", "anomaly", "--target", "a")
    assert said.code == 2
    assert "--task anomaly has no target" in said.err
