"""Sweeps over folds, by results, and by several processes: the mean decides, and who trains a trial changes nothing."""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.cli.main import run as run_command_line
from pe_cli.config.load import load_run
from pe_cli.session.sweep.record import Sweep, Trial, read_sweep
from tests import needs
from tests.cli.conftest import CONFIG, MODEL, Pe, Said
from tests.mpi_support import ENVIRONMENT, finished, mpiexec, needs_mpi
from tests.rotation import on_its_day

needs_optuna = needs.needs_package("optuna")
FOLDS = """\
sweep:
  by: eval/loss
  mode: min
  over: {data.split.fold: [1, 2], train.optimizer.learning_rate: [0.001, 0.1]}
"""
RATES = """\
sweep:
  by: eval/loss
  mode: min
  over: {train.optimizer.learning_rate: [0.001, 0.01, 0.1]}
"""
TPE = """\
sweep:
  by: eval/loss
  mode: min
  method: tpe
  trials: 4
  together: 2
  seed: 5
  over: {train.optimizer.learning_rate: {log: [0.0001, 0.3]}, train.batch_size: [8, 16]}
"""


@pytest.fixture
def pe(capfd: pytest.CaptureFixture[str]) -> Pe:
    def call(*arguments: object) -> Said:
        capfd.readouterr()
        code = run_command_line([str(a) for a in arguments])
        captured = capfd.readouterr()
        return Said(code, captured.out, captured.err)

    return call


@pytest.fixture
def config(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A linear regression over the rows of a table; with these rates the larger is the better one."""
    x = rng.standard_normal((48, 4)).astype(np.float32)
    y = (x @ np.array([1, -2, 3, 0.5], np.float32) + 4)[:, None]
    np.savez(tmp_path / "data.npz", x=x, y=y)
    (tmp_path / "model.yaml").write_text(MODEL)
    path = tmp_path / "line.yaml"
    path.write_text(CONFIG.replace("RUNS", str(tmp_path / "runs")).replace("every: 1 epoch", "every: 50 epochs"))
    return path


@pytest.fixture
def folds(config: Path) -> Path:
    text = config.read_text()
    a, b = text.index("data:"), text.index("feeds:")
    source = "data: {source: {reader: npz, file: data.npz}, split: {folds: 2, fold: 2, seed: 1}}\n"
    config.write_text(text[:a] + source + text[b:] + FOLDS)
    return config


def folder_of(config: Path) -> Path:
    return max((config.parent / "runs").glob("sweep-*"))


def outcome(folder: Path) -> list[dict[str, Any]]:
    trials = json.loads((folder / "sweep.json").read_text())["trials"]
    return [{key: value for key, value in trial.items() if key != "run"} for trial in trials]


def trained(pe: Pe, config: Path, trial: Trial) -> float:
    """Train what a trial does by itself, in this process, and return its last loss in evaluation."""
    overrides = [part for key, value in trial.values.items() for part in ("-o", f"{key}={value}")]
    assert pe("train", config, "--quiet", *overrides, "-o", f"output.name=alone-{trial.number}").code == 0
    (run,) = (config.parent / "runs").glob(f"alone-{trial.number}-*")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["split"] == "eval"][-1]  # type: ignore[no-any-return]


@on_its_day(1, of=3)
def test_the_best_mean_over_folds_is_written_with_the_fold_of_the_config(pe: Pe, folds: Path) -> None:
    said = pe("sweep", folds)
    assert said.code == 0, said.err
    found = read_sweep(folder_of(folds))
    assert [t.values["data.split.fold"] for t in found.trials] == [1, 2] * 2
    assert [t.results for t in found.trials] == [[trained(pe, folds, t)] for t in found.trials]
    head, *rows = [line.split() for line in said.out.splitlines() if line.split()[0] in ("trials", "1-2", "3-4")]
    assert head == ["trials", "learning_rate", "eval/loss", "deviation", "step", "state"]
    losses = {"1-2": [t.results[0] for t in found.trials[:2]], "3-4": [t.results[0] for t in found.trials[2:]]}
    wanted = [[name, f"{statistics.fmean(loss):.6g}", f"{statistics.stdev(loss):.6g}"] for name, loss in losses.items()]
    assert [[row[0], *row[2:4]] for row in rows] == sorted(wanted, key=lambda row: float(row[1]))
    assert found.best is not None
    assert found.best.values == {"train.optimizer.learning_rate": 0.1}
    best = load_run(found.folder / "best.yaml")
    assert best.preparation.split is not None
    assert best.preparation.split.fold == 2
    mean = statistics.fmean(losses["3-4"])
    assert best.text.startswith(f"# Trials 3-4 of 4: eval/loss {mean:.6g} on average over 2, with a standard deviation of")


def test_a_combination_with_a_failed_fold_has_no_mean() -> None:
    values = [{"a": a, "executor.seed": seed} for a in (1, 2) for seed in (1, 2)]
    trials = [Trial(i, v, "done", [float(i)], 1) for i, v in enumerate(values, 1)]
    trials[0].state, trials[0].results = "failed", []
    sweep = Sweep(Path(), "eval/loss", "min", [""], {}, trials, 2, 2)
    assert [one.value for one in sweep.candidates] == [None, 3.5]
    assert [one.state for one in sweep.candidates] == ["failed", "done"]
    assert [one.deviation for one in sweep.candidates] == [None, pytest.approx(math.sqrt(0.5))]
    assert sweep.best is not None
    assert sweep.best.number == 3


@on_its_day(2, of=3)
def test_tasks_of_a_job_share_the_trials_and_one_that_is_killed_loses_nothing(pe: Pe, config: Path) -> None:
    text = config.read_text().replace("epochs: 2", "epochs: 60")
    config.write_text(text + RATES)
    command = [sys.executable, "-m", "pe_cli", "sweep", str(config), "--launcher", "slurm"]
    environment = ENVIRONMENT | {"SLURM_ARRAY_JOB_ID": "17", "CPU_NUM": "1"}
    first, second = (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) for _ in range(2)
    )
    until = time.monotonic() + 120
    while time.monotonic() < until and not list((config.parent / "runs").glob("sweep-*/trial-2-*/metrics.jsonl")):
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    code, out, err = finished(second)
    assert code == 0, err
    assert "best: trial 3 " in out
    assert len(list((config.parent / "runs").glob("sweep-*"))) == 1
    found = read_sweep(folder_of(config))
    begun = [path.name.split("-")[1] for path in found.folder.glob("trial-*")]
    assert set(begun) == {"1", "2", "3"}
    assert len(begun) <= 4  # one that was killed before its first checkpoint begins anew
    assert [t.results for t in found.trials] == [[trained(pe, config, t)] for t in found.trials]


@on_its_day(0, of=3)
@needs_mpi
def test_processes_of_mpiexec_share_the_trials(pe: Pe, config: Path) -> None:
    config.write_text(config.read_text() + RATES.replace("0.001, ", ""))
    code, out, err = finished(mpiexec(2, "-m", "pe_cli", "sweep", config, "--launcher", "mpi"))
    assert code == 0, err
    assert out.count("2 trials -> ") == out.count("best: trial 2 -> ") == 1
    found = read_sweep(folder_of(config))
    assert [t.results for t in found.trials] == [[trained(pe, config, t)] for t in found.trials]


@needs_mpi
def test_a_mistake_ends_all_processes_of_mpiexec(folds: Path) -> None:
    folds.write_text(folds.read_text().replace("learning_rate: [", "learning_rat: ["))
    code, _, err = finished(mpiexec(2, "-m", "pe_cli", "sweep", folds, "--launcher", "mpi"))
    assert code == 2
    assert err.count("did you mean 'learning_rate'?") == 1


def test_a_launcher_that_is_not_there_is_an_error(pe: Pe, folds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    said = pe("sweep", folds, "--launcher", "slurm")
    assert said.code == 2
    assert "neither SLURM_ARRAY_JOB_ID nor SLURM_JOB_ID is set" in said.err
    assert "sbatch --array" in said.err


def test_tpe_without_optuna_names_the_extra(pe: Pe, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text(config.read_text() + TPE)
    monkeypatch.setitem(sys.modules, "optuna", None)
    said = pe("sweep", config)
    assert said.code == 2
    assert f"{config}:16:11: error: sweep.method: tpe needs the package optuna" in said.err
    assert "pip install 'pe-cli[search]'" in said.err
    assert pe("train", config, "--quiet").code == 0


@needs_optuna
def test_draws_depend_on_results_alone_and_go_where_they_are_good(config: Path) -> None:
    from pe_cli.session.sweep.tpe import draw

    config.write_text(config.read_text() + TPE)
    section = load_run(config).sweep
    assert section is not None
    known: list[tuple[Any, float | None]] = []
    for _ in range(20):  # the best rate is 0.01
        drawn = draw(section, known, 2)
        assert drawn == draw(section, known, 2)
        known += [(values, abs(math.log10(values["train.optimizer.learning_rate"]) + 2)) for values in drawn]
    assert all(0.0001 <= values["train.optimizer.learning_rate"] <= 0.3 for values, _ in known)
    assert {values["train.batch_size"] for values, _ in known} == {8, 16}
    far = [result for _, result in known if result is not None]
    assert statistics.median(far[-20:]) < 0.6  # half of what is drawn evenly is further than 0.87 away
    known[0] = (known[0][0], None)
    draw(section, known, 2)  # one that failed is known, too


@needs_optuna
@on_its_day(2, of=3)
def test_tpe_goes_on_to_the_same_draws_after_a_kill(pe: Pe, config: Path) -> None:
    config.write_text(config.read_text() + TPE)
    command = [sys.executable, "-m", "pe_cli", "sweep", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | ENVIRONMENT) as process:
        until = time.monotonic() + 120
        while time.monotonic() < until and process.poll() is None and not list((config.parent / "runs").glob("sweep-*/trial-2-*")):
            time.sleep(0.01)
        process.kill()
        assert process.returncode is None, process.communicate()
    killed = folder_of(config)
    assert len(read_sweep(killed).trials) == 2
    assert pe("sweep", config, "--resume", "--quiet").code == 0
    assert pe("sweep", config, "--jobs", 2, "--quiet").code == 0
    assert folder_of(config) != killed
    assert outcome(folder_of(config)) == outcome(killed)
    assert len(outcome(killed)) == 4
