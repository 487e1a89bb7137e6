"""Sweeps: every trial once, whatever happens in between, and the best config ready to train."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.cli.main import run as run_command_line
from pe_cli.core.errors import PeError
from pe_cli.session.sweep.record import Sweep, Trial, read_sweep
from tests.cli.conftest import CONFIG, MODEL, Pe, Said
from tests.rotation import of_today, on_its_day

RATES = [0.001, 0.01, 0.1, 0.03]
SWEEP = """\
sweep:
  by: eval/loss
  mode: min
  over: {train.optimizer.learning_rate: [0.001, 0.01, 0.1, 0.03]}
"""
HALVING = SWEEP + "  halving: {first: 1 epoch, factor: 2}\n"


@pytest.fixture
def pe(capfd: pytest.CaptureFixture[str]) -> Pe:
    def call(*arguments: object) -> Said:
        capfd.readouterr()
        code = run_command_line([str(a) for a in arguments])
        captured = capfd.readouterr()
        return Said(code, captured.out, captured.err)

    return call


def regression(folder: Path) -> Path:
    """Write a linear regression; with these rates the larger is the better one."""
    rng = np.random.default_rng(20240229)
    x = rng.standard_normal((40, 4)).astype(np.float32)
    y = (x @ np.array([1, -2, 3, 0.5], np.float32) + 4)[:, None]
    np.savez(folder / "data.npz", x=x, y=y)
    (folder / "model.yaml").write_text(MODEL)
    path = folder / "line.yaml"
    text = CONFIG.replace("RUNS", str(folder / "runs")).replace("every: 1 epoch", "every: 4 epochs")
    path.write_text(text.replace("epochs: 2", "epochs: 8"))
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return regression(tmp_path)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a config whose sweep, of four trials one after the other, is done."""
    path = add(regression(tmp_path_factory.mktemp("swept")), SWEEP)
    assert run_command_line(["sweep", str(path), "--quiet"]) == 0
    return path


def add(config: Path, text: str) -> Path:
    config.write_text(config.read_text() + text)
    return config


def folder_of(config: Path) -> Path:
    return max((config.parent / "runs").glob("sweep-*"))


def outcome(folder: Path) -> list[dict[str, Any]]:
    """Return what sweep.json says of the trials but for the names of their folders, which hold the time."""
    trials = json.loads((folder / "sweep.json").read_text())["trials"]
    return [{key: value for key, value in trial.items() if key != "run"} for trial in trials]


@on_its_day(1, of=2)
def test_every_trial_is_trained_once_and_jobs_change_nothing(pe: Pe, swept: Path, tmp_path: Path) -> None:
    one = folder_of(swept)
    found = read_sweep(one)
    assert [t.values["train.optimizer.learning_rate"] for t in found.trials] == RATES
    for trial in found.trials:
        assert trial.run is not None
        lines = [json.loads(line) for line in (one / trial.run / "metrics.jsonl").read_text().splitlines()]
        assert trial.results == [[line["loss"] for line in lines if line["split"] == "eval"][-1]]
        assert trial.step == 24  # 8 epochs of 3 steps
    assert found.best is not None
    assert found.best.number == 1 + int(np.argmin([t.results[0] for t in found.trials]))
    said = pe("sweep", swept, "--jobs", 2, "-o", f"output.dir={tmp_path / 'runs'}")
    assert said.code == 0, said.err
    other = next((tmp_path / "runs").glob("sweep-*"))
    assert outcome(other) == outcome(one)
    assert said.out.splitlines()[-1] == f"best: trial {found.best.number} -> {other / 'best.yaml'}"


def test_the_best_config_trains_to_the_metric_of_the_best_trial(pe: Pe, swept: Path) -> None:
    found = read_sweep(folder_of(swept))
    assert found.best is not None
    assert pe("train", found.folder / "best.yaml", "--quiet").code == 0
    run = next((swept.parent / "runs").glob("line-best-*"))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines if line["split"] == "eval"][-1] == found.best.value
    assert "sweep" not in (found.folder / "best.yaml").read_text().splitlines()


@on_its_day(0, of=2)
def test_halving_goes_on_with_the_better_half_as_if_it_had_never_stopped(pe: Pe, config: Path) -> None:
    assert pe("sweep", add(config, HALVING), "--jobs", 2).code == 0
    found = read_sweep(folder_of(config))
    assert found.budgets == ["1 epoch", "2 epochs", "4 epochs", "8 epochs"]
    assert sorted(len(t.results) for t in found.trials) == [1, 1, 2, 4]
    assert sorted(t.state for t in found.trials) == ["done", *["halted"] * 3]
    losses = sorted(t.results[0] for t in found.trials)
    assert {t.results[0] for t in found.trials if len(t.results) > 1} == set(losses[:2])
    assert found.best is not None
    rate = found.best.values["train.optimizer.learning_rate"]
    assert pe("train", config, "--quiet", "-o", f"train.optimizer.learning_rate={rate}").code == 0
    run = next((config.parent / "runs").glob("line-2*"))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    evaluated = [line["loss"] for line in lines if line["split"] == "eval"]
    assert found.best.results == [evaluated[epoch - 1] for epoch in (1, 2, 4, 8)]


@pytest.mark.parametrize(
    ("section", "number"),
    of_today(
        [
            pytest.param(HALVING, signal.SIGKILL, id="halving is killed"),
            pytest.param(SWEEP, signal.SIGINT, id="whole trials are interrupted"),
        ],
        2,
    ),
)
@on_its_day(2, of=3)
def test_a_sweep_that_ends_early_goes_on_to_the_same_result(pe: Pe, config: Path, section: str, number: signal.Signals) -> None:
    add(config, section)
    longer = (("epochs: 8", "epochs: 120"), ("first: 1 epoch", "first: 30 epochs"), ("every: 4 epochs", "every: 10 epochs"))
    for old, new in longer:
        config.write_text(config.read_text().replace(old, new))
    command = [sys.executable, "-m", "pe_cli", "sweep", str(config), "--jobs", "2"]
    environment = {**os.environ, "CPU_NUM": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        until = time.monotonic() + 120
        while time.monotonic() < until and not list((config.parent / "runs").glob("sweep-*/trial-3-*/checkpoints/last")):
            time.sleep(0.01)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == (75 if number == signal.SIGINT else -number)
    stopped = folder_of(config)
    before = read_sweep(stopped)
    assert any(not t.results for t in before.trials)
    assert any(t.results for t in before.trials)
    said = pe("sweep", config, "--resume", "--jobs", 2)
    assert said.code == 0, said.err
    assert folder_of(config) == stopped
    after = read_sweep(stopped)
    assert all(after.trials[t.number - 1].run == t.run for t in before.trials if t.run is not None)
    assert pe("sweep", config, "--jobs", 2).code == 0
    assert folder_of(config) != stopped
    assert outcome(folder_of(config)) == outcome(stopped)


@on_its_day(2, of=3)
def test_a_trial_that_fails_is_told_and_the_others_go_on(pe: Pe, config: Path) -> None:
    said = pe("sweep", add(config, SWEEP.replace("0.1,", "1e30,")), "--quiet")
    assert said.code == 0
    assert "trial 3 failed: " in said.err
    found = read_sweep(folder_of(config))
    assert [t.state for t in found.trials] == ["done", "done", "failed", "done"]
    assert found.trials[2].code == 4
    assert found.ranked()[-1].number == 3


def test_a_changed_config_is_another_sweep(pe: Pe, swept: Path) -> None:
    for changed, message in (
        (["-o", "train.batch_size=8"], "was started with another config: train.batch_size: 16 -> 8"),
        (["-o", "sweep.mode=max"], "was started with another section sweep"),
    ):
        said = pe("sweep", swept, "--resume", *changed)
        assert said.code == 2
        assert message in said.err
    said = pe("sweep", swept, "--resume", folder_of(swept))
    assert said.code == 0
    assert "trial 1 of 4" not in said.out


def test_nothing_is_trained_where_one_trial_is_wrong(pe: Pe, config: Path) -> None:
    said = pe("sweep", add(config, SWEEP.replace("learning_rate", "learning_rat")))
    assert said.code == 2
    assert "did you mean 'learning_rate'?" in said.err
    assert f"{config}:" in said.err
    assert not (config.parent / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param([], "the config has no sweep", id="no section"),
        pytest.param(["--html", "x.html"], "--html goes with --report", id="a page without a report"),
        pytest.param(["--report", "runs"], "--report goes with --html only", id="a report and a config"),
        pytest.param(["-o", "sweep={by: eval/los, mode: min, over: {train.epochs: [1]}}"], "did you mean 'eval/loss'?", id="metric"),
    ],
)
def test_what_is_no_sweep(pe: Pe, config: Path, arguments: list[str], message: str) -> None:
    said = pe("sweep", config, *arguments)
    assert said.code == 2
    assert message in said.err


def test_train_says_that_it_leaves_the_sweep_out(pe: Pe, config: Path) -> None:
    said = pe("train", add(config, SWEEP))
    assert said.code == 0
    assert "note: the config's sweep is left out" in said.out + said.err


def test_a_report_shows_table_importance_and_lines(pe: Pe, swept: Path, tmp_path: Path) -> None:
    said = pe("sweep", "--report", folder_of(swept), "--html", tmp_path / "r.html")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0].split() == ["trial", "learning_rate", "eval/loss", "step", "state"]
    values = [float(line.split()[2]) for line in lines[1:5]]
    assert values == sorted(values)
    page = (tmp_path / "r.html").read_text()
    assert page.count('<path class="line"') == 4
    assert "<script" not in page


def made(values: list[dict[str, Any]], results: list[float]) -> Sweep:
    trials = [Trial(i, v, "done", [r], 1) for i, (v, r) in enumerate(zip(values, results, strict=True), 1)]
    return Sweep(Path(), "eval/acc", "max", [""], {}, trials)


def test_importance_is_the_adjusted_share_of_the_variance() -> None:
    sweep = made([{"m.a": a, "b": b} for a in ("x", "y") for b in ("u", "v")], [0.0, 2.0, 10.0, 12.0])
    # mean 6: total 36 + 16 + 16 + 36 = 104; within a 1 + 1 + 1 + 1 = 4; within b 25 * 4 = 100; n = 4, k = 2
    assert sweep.importance() == {"a": pytest.approx(1 - (4 / 2) / (104 / 3)), "b": 0.0}
    assert made([{"a": 1}, {"a": 2}], [0.0, 1.0]).importance() == {"a": None}


def test_the_best_comes_first_and_what_is_no_number_last() -> None:
    sweep = made([{"a": i} for i in range(5)], [0.5, float("nan"), 0.75, 0.75, float("inf")])
    assert [t.number for t in sweep.ranked()] == [3, 4, 1, 2, 5]
    nothing = made([{"a": 1}], [float("nan")])
    assert nothing.best is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="no JSON"),
        pytest.param("[]", id="a list"),
        pytest.param('{"trials": []}', id="no trials"),
        pytest.param('{"trials": [{"trial": 1, "values": {"a": 1}, "state": "odd", "results": [], "run": null}]}', id="an unknown state"),
        pytest.param('{"trials": [{"trial": 1, "values": {"a": 1}, "state": "done", "results": [[]], "run": null}]}', id="no numbers"),
    ],
)
def test_a_record_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(PeError, match="no record of a sweep"):
        read_sweep(tmp_path)
