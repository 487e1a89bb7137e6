"""A target with any number of classes per row: each is a yes-or-no question, and the answer names all that are a yes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Pe

MODEL = """\
name: tags
feeds:
  x: {shape: [2]}
  tags: {shape: [3]}
layers:
  logits: {type: fc, input: x, size: 3}
  prob:   {type: sigmoid, x: logits}
  xent:   {type: LOSS}
  loss:   {type: mean, x: xent}
fetches: [loss]
"""
CONFIG = """\
model: model.yaml
data:
  source: {reader: table, files: rows.csv}
  split: {test: 0.25}
  columns: {tags: {type: bag, separator: "/"ENCODE}}
feeds: {x: [a, b]}
train: {loss: loss, epochs: 20, batch_size: 8, optimizer: {type: Adam, learning_rate: 0.3}}
executor: {devices: 1, seed: 1}
output: {dir: RUNS, checkpoint: {every: 20 epochs}}
"""
SIGMOID = "sigmoid_cross_entropy_with_logits, x: logits, label: tags"


@pytest.fixture
def trained(pe: Pe, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A run of 40 rows: `left` where a < 0, `low` where b < 0, `always` everywhere; so a row has one to three tags."""
    loss, encode = request.param
    rng = np.random.default_rng(2)
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["a", "b", "tags"])
        for a, b in rng.standard_normal((40, 2)).round(3).tolist():
            out.writerow([a, b, "/".join(["left"] * (a < 0) + ["low"] * (b < 0) + ["always"])])
    (tmp_path / "model.yaml").write_text(MODEL.replace("LOSS", loss))
    (tmp_path / "run.yaml").write_text(CONFIG.replace("RUNS", str(tmp_path / "runs")).replace("ENCODE", encode))
    said = pe("train", tmp_path / "run.yaml", "--quiet")
    assert said.code == 0, said.err
    return next((tmp_path / "runs").iterdir())


def asked(pe: Pe, run: Path) -> list[dict[str, str]]:
    rows = run.parents[1] / "new.csv"
    rows.write_text("a,b\n-2,-2\n-2,2\n2,-2\n2,2\n")
    said = pe("predict", run, rows)
    assert said.code == 0, said.err
    return list(csv.DictReader(io.StringIO(said.out)))


@pytest.mark.parametrize(
    "trained", [(SIGMOID, ""), ("log_loss, input: prob, label: tags", "")], indirect=True, ids=["logits", "probabilities"]
)
def test_every_class_that_is_at_least_as_probable_as_not_is_named(pe: Pe, trained: Path) -> None:
    found = asked(pe, trained)
    assert [row["tags"] for row in found] == ["always/left/low", "always/left", "always/low", "always"]
    assert pe("predict", trained, trained.parents[1] / "new.csv", "--raw", "--fetch", "logits", "--out", trained / "scores.npz").code == 0
    with np.load(trained / "scores.npz") as raw:
        scores = raw["logits"]
    told = [[float(row[f"prob_{name}"]) for name in ("always", "left", "low")] for row in found]
    np.testing.assert_allclose(told, 1 / (1 + np.exp(-scores)), atol=1e-6)
    assert pe("predict", trained, "--split", "test", "--out", trained / "test.jsonl").code == 0
    lines = [json.loads(line) for line in (trained / "test.jsonl").read_text().splitlines()]
    assert all("always" in line["tags"].split("/") for line in lines)


@pytest.mark.parametrize("trained", [("square_error_cost, input: logits, label: tags", ", encode: counts")], indirect=True, ids=["counts"])
def test_how_often_each_class_is_there_is_a_number_of_its_own(pe: Pe, trained: Path) -> None:
    for row in asked(pe, trained):
        assert list(row)[-3:] == ["tags_always", "tags_left", "tags_low"]
        assert abs(float(row["tags_always"]) - 1) < 0.3
