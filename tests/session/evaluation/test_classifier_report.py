"""The report's curves are those of the predictions that the checkpoint makes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, roc_auc_score

from pe_cli.cli.main import run as run_command_line
from pe_cli.io.history import read_run
from pe_cli.io.view.run_list import names_of

MODEL = """\
name: two
feeds: {x: {shape: [3]}, y: {shape: [1], dtype: KIND}}
layers:
  made: {type: fc, input: x, size: SIZE}
  each: {type: LOSS}
  loss: {type: mean, x: each}
fetches: [loss, made]
"""
CONFIG = """\
model: model.yaml
data:
  train: {reader: npz, file: data.npz}
  eval: {reader: npz, file: data.npz}
feeds: {x: x, y: {from: y, dtype: KIND}}
train: {loss: loss, epochs: 2, batch_size: 16, optimizer: {type: SGD, learning_rate: 0.5}}
executor: {devices: 2}
output: {dir: runs}
"""


def train(folder: Path, size: int, *overrides: str) -> Path:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((70, 3)).astype(np.float32)
    np.savez(folder / "data.npz", x=x, y=(x[:, :1] + 0.8 * rng.standard_normal((70, 1)) > 0).astype(np.int64))
    several = "int64", "softmax_with_cross_entropy, logits: made, label: y"
    kind, loss = ("float32", "sigmoid_cross_entropy_with_logits, x: made, label: y") if size == 1 else several
    (folder / "model.yaml").write_text(MODEL.replace("KIND", kind).replace("SIZE", str(size)).replace("LOSS", loss))
    (folder / "run.yaml").write_text(CONFIG.replace("KIND", kind))
    options = [part for text in overrides for part in ("-o", text)]
    assert run_command_line(["train", str(folder / "run.yaml"), "--quiet", *options]) == 0
    return max((folder / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.parametrize("size", [1, 2])
def test_the_report_of_a_classifier_draws_its_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.chdir(tmp_path)
    run = train(tmp_path, size)
    assert run_command_line(["predict", str(run), "--split", "eval", "--fetch", "made", "--out", "made.npz"]) == 0
    logits = np.load("made.npz")["made"].astype(float)
    labels = np.load("data.npz")["y"][:, 0]
    score = logits[:, 0] if size == 1 else logits[:, 1] - logits[:, 0]
    assert run_command_line(["report", str(run), "--out", "r.html"]) == 0
    page = Path("r.html").read_text()
    assert f"1: area {roc_auc_score(labels, score):.4f}" in page
    cells = re.search(r'<table class="confusion">.*?</table>', page)[0]
    counts = [int(n) for n in re.findall(r"<td[^>]*>(\d+)</td>", cells)]
    assert counts == confusion_matrix(labels, score > 0).ravel().tolist()
    assert 'id="plot-calibration"' in page
    assert run_command_line(["report", str(run), "--out", "r.html", "--no-curves"]) == 0
    assert 'id="plot-roc"' not in Path("r.html").read_text()


def test_runs_are_called_by_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rates = [train(tmp_path, 2, f"train.optimizer.learning_rate={rate}", f"output.name=r{rate}") for rate in (0.25, 0.5)]
    assert names_of([read_run(path) for path in rates]) == ["learning_rate 0.25", "learning_rate 0.5"]
    again = train(tmp_path, 2, "train.optimizer.learning_rate=0.5", "output.name=again")
    assert names_of([read_run(path) for path in (*rates, again)])[1:] == [f"learning_rate 0.5 {path.name}" for path in (rates[1], again)]
    assert names_of([read_run(rates[0])]) == [rates[0].name]
    assert run_command_line(["report", *map(str, rates), "--out", "r.html", "--no-curves"]) == 0
    legend = re.search(r'id="plot-m-loss"><figcaption>(.*?)</figcaption>', Path("r.html").read_text())[1]
    assert "learning_rate 0.25" in legend
    assert "learning_rate 0.5" in legend
    assert run_command_line(["plot", *map(str, rates), "--out", "p.svg"]) == 0
    svg = Path("p.svg").read_text()
    assert "learning_rate 0.25 train" in svg
    assert "var(" not in svg
