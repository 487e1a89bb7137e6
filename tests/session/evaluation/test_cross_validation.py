"""Cross-validation: runs that take turns with their parts, in processes of their own."""

from __future__ import annotations

import csv
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pe_cli.session.evaluation.cross_validation import read_folds
from tests.cli.conftest import Pe
from tests.rotation import on_its_day

MODEL = """\
feeds: {x: {shape: [1]}, y: {shape: [1]}}
layers:
  guess: {type: fc, input: x, size: 1}
  error: {type: square_error_cost, input: guess, label: y}
  loss:  {type: mean, x: error}
fetches: [loss]
"""
CONFIG = """\
model: m.yaml
data:
  source: {reader: table, files: t.csv}
  columns: {x: {type: number, scale: standard}, y: {type: number}}
train: {loss: loss, epochs: EPOCHS, batch_size: 16, optimizer: {type: SGD, learning_rate: 0.1}}
executor: {devices: 1, seed: 1}
output: {dir: RUNS}
"""


@pytest.fixture
def config(tmp_path: Path, rng: np.random.Generator) -> Path:
    with (tmp_path / "t.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["x", "y"])
        out.writerows([f"{x:.3f}", f"{2 * x + 1:.3f}"] for x in rng.normal(size=60))
    (tmp_path / "m.yaml").write_text(MODEL)
    (tmp_path / "c.yaml").write_text(CONFIG.replace("EPOCHS", "8").replace("RUNS", str(tmp_path / "runs")))
    return tmp_path / "c.yaml"


@pytest.fixture
def pe(capfd: pytest.CaptureFixture[str]) -> Pe:
    from pe_cli.cli.main import run as run_command_line
    from tests.cli.conftest import Said

    def call(*arguments: object) -> Said:
        capfd.readouterr()
        code = run_command_line([str(a) for a in arguments])
        captured = capfd.readouterr()
        return Said(code, captured.out, captured.err)

    return call


@on_its_day(0, of=3)
def test_mean_and_deviation_are_those_of_the_runs(pe: Pe, config: Path) -> None:
    said = pe("train", config, "--folds", 3, "--jobs", 2)
    assert said.code == 0, said.err
    folder = next((config.parent / "runs").iterdir())
    report = json.loads((folder / "folds.json").read_text())
    losses, rows = [], []
    for fold in report["folds"]:
        lines = [json.loads(line) for line in (folder / fold["run"] / "metrics.jsonl").read_text().splitlines()]
        last = [line for line in lines if line["split"] == "eval"][-1]
        assert fold["metrics"]["eval/loss"] == last["loss"]
        losses.append(last["loss"])
        newest = sorted((folder / fold["run"] / "checkpoints").glob("step-*"))[-1]
        rows.append(json.loads((newest / "data.json").read_text())["split"]["parts"])
    assert rows == [{"train": 40, "eval": 20}] * 3
    assert len(set(losses)) == 3
    assert report["metrics"]["eval/loss"] == {"mean": statistics.fmean(losses), "deviation": statistics.stdev(losses)}
    assert "3 of 3 folds ->" in said.out
    assert read_folds(folder).spread()["eval/loss"][0] == statistics.fmean(losses)
    assert pe("report", folder).code == 0
    page = (folder / "report.html").read_text()
    assert f"<tr><th>mean</th><td></td><td>{statistics.fmean(losses):.6g}</td></tr>" in page
    assert f"<tr><th>deviation</th><td></td><td>{statistics.stdev(losses):.6g}</td></tr>" in page
    assert all(fold["run"] in page for fold in report["folds"])


@pytest.mark.parametrize("text", ["[]", '{"folds": [{"fold": 1, "run": "r", "step": 1, "metrics": {"eval/loss": "much"}}]}', "{"])
def test_a_report_of_folds_that_is_none_is_refused(pe: Pe, tmp_path: Path, text: str) -> None:
    (tmp_path / "folds.json").write_text(text)
    said = pe("report", tmp_path)
    assert said.code == 3
    assert "no report of folds" in said.err


def test_a_fold_that_fails_is_told_and_the_others_go_on(pe: Pe, config: Path) -> None:
    rows = (config.parent / "t.csv").read_text().splitlines()
    # one class in one row only: it is unknown to the fold that evaluates that row
    rows = ["x,y,k", *(f"{row},{'rare' if i == 5 else 'ab'[i % 2]}" for i, row in enumerate(rows[1:]))]
    (config.parent / "t.csv").write_text("\n".join(rows) + "\n")
    (config.parent / "m.yaml").write_text(
        "feeds: {x: {shape: [1]}, k: {shape: [1], dtype: int64}}\nlayers:\n  logits: {type: fc, input: x, size: 3}\n"
        "  xent: {type: softmax_with_cross_entropy, logits: logits, label: k}\n  loss: {type: mean, x: xent}\nfetches: [loss]\n"
    )
    columns = "data.columns={x: {type: number}, k: {type: category}}"
    said = pe("train", config, "--folds", 3, "-o", columns, "--quiet")
    assert said.code == 3
    assert "2 of 3 folds ->" in said.out
    assert "'rare' is not among the 2 classes of the training rows" in said.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--folds", "3", "--smoke"], "--folds goes with -o, --jobs and --quiet only", id="with --smoke"),
        pytest.param(["--folds", "1"], "1 is not in the range 2<=x<=100", id="one fold"),
        pytest.param(
            ["--folds", "3", "-o", "data={train: {reader: table, files: t.csv}}"], "--folds divides data.source", id="no source"
        ),
    ],
)
def test_what_has_no_folds(pe: Pe, config: Path, arguments: list[str], message: str) -> None:
    said = pe("train", config, *arguments)
    assert said.code == 2
    assert message in said.err


def test_ctrl_c_ends_all_folds_with_a_checkpoint(config: Path) -> None:
    config.write_text(config.read_text().replace("epochs: 8", "epochs: 1000000"))
    command = [sys.executable, "-m", "pe_cli", "train", str(config), "--folds", "2", "--jobs", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "CPU_NUM": "1"}) as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(list((config.parent / "runs").glob("*/fold-*/checkpoints/last"))) < 2:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    for folder in (config.parent / "runs").glob("*/fold-*"):
        assert json.loads((folder / "status.json").read_text())["state"] == "stopped"
