"""train.plateau: the learning rate is lowered when a metric gets no better."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pe_cli.config.sections.train import PlateauSection
from pe_cli.io import checkpoint
from pe_cli.io.run_folder import RunFolder
from pe_cli.session.training.early_stopping import Measures, lowered
from pe_cli.session.training.state import Progress
from tests.needs import torch

PLATEAU = "train.plateau={by: eval/loss, mode: min, patience: 1, factor: 0.5, threshold: 0.5}"
RATE = "train.optimizer.learning_rate=0.05"
SETTINGS = ("-o", PLATEAU, "-o", RATE, "-o", "train.eval_every=1 steps")


class Rates:
    """A rate that measurements lower."""

    def __init__(self, section: PlateauSection, rate: float) -> None:
        self.rate, self.at, self.said = rate, Progress(), []
        self.measures = Measures(None, None, self.said.append, section, self.lower)

    def lower(self, section: PlateauSection) -> tuple[float, float] | None:
        before, after = self.rate, lowered(self.rate, section)
        if after is None:
            return None
        self.rate = after
        return before, after

    def measure(self, value: float) -> float:
        self.measures.note(self.at, "eval", {"loss": value})
        return self.rate


def section(**given: object) -> PlateauSection:
    return PlateauSection(**{"by": "eval/loss", "mode": "min", **given})


@pytest.mark.parametrize(
    ("settings", "values", "rates"),
    [
        pytest.param({"patience": 1, "factor": 0.5}, [3, 3, 3, 3, 3], [8, 8, 4, 4, 2], id="patience of one lets one pass"),
        pytest.param({"patience": 0, "factor": 0.5}, [3, 3, 2, 2], [8, 4, 4, 2], id="without patience at once"),
        pytest.param({"patience": 1, "factor": 0.5}, [3, 4, 2, 4, 4], [8, 8, 8, 8, 4], id="a better one begins the count anew"),
        pytest.param({"patience": 0, "factor": 0.5, "min_rate": 3}, [3, 3, 3, 3], [8, 4, 3, 3], id="not below min_rate"),
        pytest.param({"patience": 0, "factor": 0.5, "threshold": 0.1}, [100, 91, 89, 80.5], [8, 4, 4, 2], id="better by a tenth"),
        pytest.param({"mode": "max", "patience": 0, "factor": 0.5}, [1, 2, 2], [8, 8, 4], id="more is better"),
        pytest.param({"patience": 0, "factor": 0.5}, [1, float("nan"), 0.5], [8, 4, 4], id="NaN is no better"),
    ],
)
def test_rates_after_each_measurement(settings, values, rates):
    trial = Rates(section(**settings), 8.0)
    assert [trial.measure(v) for v in values] == rates


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("sign", [1, -1])
def test_torch_lowers_alike(mode, sign, rng):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.7)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode, 0.6, 3, 0.01, min_lr=1e-3)
    ours = Rates(section(mode=mode, factor=0.6, patience=3, threshold=0.01, min_rate=1e-3), 0.7)
    for value in sign * (2 + np.cumsum(rng.normal(0, 0.02, 200))):
        theirs.step(float(value))
        assert ours.measure(float(value)) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
    assert ours.rate < 0.1


def test_defaults_are_those_of_torch():
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0))
    ours = section()
    assert (ours.patience, ours.factor, ours.threshold) == (theirs.patience, theirs.factor, theirs.threshold)


def rates_of(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row["learning_rate"] for row in rows if row["split"] == "train"]


def test_training_goes_on_with_the_lower_rate(bench):
    folder = bench.train("lower", *SETTINGS, "-o", "fetches.loss.every=1 steps")
    losses = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    trial, wanted = Rates(section(patience=1, factor=0.5, threshold=0.5), 0.05), [0.05]
    for row in losses:
        if row["split"] == "eval":
            wanted.append(trial.measure(row["loss"]))
    assert min(wanted) < 0.01
    assert rates_of(folder) == pytest.approx(wanted[:-1], rel=1e-6)
    log = RunFolder(folder).log_path.read_text()
    assert "the learning rate goes from 0.05 to 0.025 at step" in log
    arrays, _ = checkpoint.load(folder)
    (name,) = [n for n in arrays if n.startswith("learning_rate")]
    assert arrays[name][0] == pytest.approx(wanted[-1], rel=1e-6)


@pytest.mark.parametrize("stop", [3, 7, 12])
def test_a_resumed_run_goes_on_bit_for_bit(bench, stop):
    whole = bench.seen(bench.train("whole", *SETTINGS))
    stopped = bench.train("parts", *SETTINGS, "--max-steps", stop, code=75)
    assert bench.run("train", "--resume", stopped, "--quiet") == 0, bench.err
    assert bench.seen(stopped) == whole


def test_the_run_can_be_verified_and_with_two_devices(bench):
    folder = bench.train("run", *SETTINGS, "-o", "executor.devices=2")
    assert bench.run("verify", folder) == 0, bench.err
    assert bench.run("graph", bench.base / "run.yaml", "--schedule", "-o", PLATEAU, "-o", RATE) == 0, bench.err
    assert "train.plateau will lower this rate" in bench.out


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        pytest.param(("-o", PLATEAU), "train.plateau lowers a learning rate that is a number", id="a schedule"),
        pytest.param(("-o", RATE, "-o", "train.plateau={by: eval/los, mode: min}"), "nothing is measured as 'eval/los'", id="no metric"),
        pytest.param(("-o", RATE, "-o", "train.plateau={by: eval/guess, mode: min}"), "is no metric, one number per step", id="no number"),
        pytest.param(("-o", RATE, "-o", "train.plateau={by: eval/loss}"), "train.plateau needs mode", id="no mode"),
        pytest.param(("-o", RATE, "-o", "train.plateau={by: eval/loss, mode: min, factor: 1}"), "factor", id="a factor of one"),
    ],
)
def test_what_is_refused(bench, settings, sentence):
    assert bench.run("train", bench.base / "run.yaml", *settings) == 2
    assert sentence in bench.err
