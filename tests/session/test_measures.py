"""What follows from measurements: moving averages, best checkpoints, early stopping, and how often is saved."""

from __future__ import annotations

import itertools
import json
import types
from pathlib import Path

import numpy as np
import pytest

from pe_cli.config.sections.train import EarlyStoppingSection
from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from pe_cli.session.training.early_stopping import Measures
from pe_cli.session.training.state import Progress
from tests.session.conftest import Bench

SMOOTH = ["-o", "train.eval_every=1 epoch", "-o", "output.checkpoint={every: 1 steps, keep: 100}"]


def lines(folder: Path, split: str) -> list[dict[str, float]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in found if line["split"] == split]


# --- moving averages --------------------------------------------------------------------------------------------------


def averaged(folder: Path, name: str, decay: float) -> np.ndarray:
    """Average a parameter over all steps from its definition, in float64."""
    total, weight = 0.0, 0.0
    for step in checkpoint.steps(folder / "checkpoints"):
        value = checkpoint.load(folder / "checkpoints" / f"step-{step}")[0][name].astype(np.float64)
        total, weight = decay * total + (1 - decay) * value, decay * weight + (1 - decay)
    return np.asarray(total / weight)


@pytest.mark.parametrize("devices", [1, 2])
def test_evaluation_and_commands_use_the_averages(bench: Bench, devices: int) -> None:
    ema = ["-o", "train.ema.decay=0.6", "-o", f"executor.devices={devices}"]
    folder = bench.train("averages", *ema, *SMOOTH)
    plain = bench.train("plain", "-o", f"executor.devices={devices}", *SMOOTH)
    arrays, meta = checkpoint.load(folder)
    np.testing.assert_array_equal(arrays["guess.w_0"], checkpoint.load(plain)[0]["guess.w_0"], "training is as without")
    expected = averaged(folder, "guess.w_0", 0.6)
    np.testing.assert_allclose(arrays["guess.w_0_ema_0"] / arrays["ema_weight_0"], expected, rtol=1e-5)
    assert not np.allclose(expected, arrays["guess.w_0"], rtol=1e-3)
    assert lines(folder, "eval") != lines(plain, "eval")
    # the command, and a program without averages that is given them as parameters, measure the same
    assert bench.run("eval", folder, "--json") == 0, bench.err
    measured = json.loads(bench.out)["loss"]
    assert measured == meta["metrics"]["eval/loss"]
    by_hand = {**arrays, **{n: averaged(folder, n, 0.6).astype(np.float32) for n in arrays if f"{n}_ema_0" in arrays}}
    np.savez(bench.base / "by_hand.npz", **by_hand)
    no = ["-o", "train.ema=null"]
    assert bench.run("eval", folder, *no, "--checkpoint", bench.base / "by_hand.npz", "--json") == 0, bench.err
    assert json.loads(bench.out)["loss"] == pytest.approx(measured, rel=1e-4)
    assert bench.run("eval", folder, *no, "--json") == 0, bench.err
    assert json.loads(bench.out)["loss"] == pytest.approx(lines(plain, "eval")[-1]["loss"])


def test_a_file_without_averages_is_refused(bench: Bench) -> None:
    folder = bench.train("plain", "--max-steps", 2, code=ExitCode.STOPPED)
    assert bench.run("eval", folder, "-o", "train.ema.decay=0.9") == ExitCode.DATA
    assert "the file has no averages" in bench.err
    assert "train.ema=null" in bench.err


# --- the best checkpoint ----------------------------------------------------------------------------------------------


def test_the_best_checkpoint_is_the_one_that_was_measured(bench: Bench) -> None:
    """Between two evaluations many are saved; none of them has been measured."""
    best = "output.checkpoint={every: 5 steps, keep: 1, best: {by: eval/loss, mode: min}}"
    folder = bench.train("runs", "-o", best, "-o", "train.eval_every=3 steps")
    measured = {line["step"]: line["loss"] for line in lines(folder, "eval")}
    step = min(measured, key=lambda step: measured[step])
    assert checkpoint.marked(folder / "checkpoints", "best") == step
    assert bench.run("eval", folder / "checkpoints" / "best", "--json") == 0
    assert json.loads(bench.out)["loss"] == measured[step]


# --- early stopping ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "least", "values", "stops_after"),
    [
        pytest.param("min", 0.0, [3, 2, 2, 2, 1], 4, id="as good is no better"),
        pytest.param("min", 0.0, [3, 2, 2.5, 1.9, 2, 2, 0], 6, id="an improvement begins anew"),
        pytest.param("max", 0.0, [1, 2, 3, 2, 1, 4], 5, id="more is better"),
        pytest.param("min", 0.5, [3, 2.8, 2.6, 0], 3, id="too little better"),
        pytest.param("min", 0.5, [3, 2.8, 2.4, 2.2, 0], None, id="better by steps that add up"),
        pytest.param("min", 0.0, [float("nan"), float("nan"), 1], 2, id="no numbers"),
        pytest.param("min", 0.0, [3, 2, 1], None, id="better and better"),
    ],
)
def test_early_stopping_counts_measurements(mode, least, values, stops_after) -> None:
    section = EarlyStoppingSection.model_validate(
        {"by": "eval/loss", "mode": mode, "patience": 2, "min_delta": least}
    )
    said: list[str] = []
    at, measures = Progress(), Measures(None, section, said.append)
    stopped = None
    for i, value in enumerate(values, 1):
        measures.note(at, "train", {"loss": 100 - i})  # another metric, which does not count
        measures.note(at, "eval", {"loss": value})
        if at.stopped_early:
            stopped = i
            break
    assert stopped == stops_after
    assert len(said) == (stops_after is not None)


@pytest.mark.parametrize("every", ["1 epoch", "2 steps"])
def test_a_run_that_gets_no_better_ends_as_done(bench: Bench, every: str) -> None:
    early = ["-o", "train.early_stopping={by: eval/loss, mode: min, patience: 2, min_delta: 100.0}", "-o", f"train.eval_every={every}"]
    flat = ["-o", "train.optimizer={type: SGD, learning_rate: 1e-30}", "-o", "train.epochs=50"]
    folder = bench.train("runs", *early, *flat)
    measured = lines(folder, "eval")
    assert len(measured) == 3, "the first, and two that are no better"
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["step"]) == ("done", measured[-1]["step"])
    assert "stopped early at step" in (folder / "log.txt").read_text()
    before = bench.seen(folder)
    assert bench.run("train", "--resume", folder) == 0
    assert bench.seen(folder) == before, "it stays stopped"


def test_early_stopping_goes_on_counting_after_a_stop(bench: Bench) -> None:
    early = ["-o", "train.early_stopping={by: eval/loss, mode: min, patience: 3}", "-o", "train.eval_every=1 steps"]
    long = ["-o", "train.epochs=20"]
    whole = bench.train("whole", *early, *long)
    folder = bench.train("pieces", *early, *long, "--max-steps", 1, code=ExitCode.STOPPED)
    code = ExitCode.STOPPED
    for _ in range(100):
        code = bench.run("train", "--resume", folder, "--quiet", "--max-steps", 4)
        if code == 0:
            break
    assert code == 0, bench.err
    assert bench.seen(folder) == bench.seen(whole)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        pytest.param("train.early_stopping={by: eval/los, mode: min}", "nothing is measured as 'eval/los'", id="no metric"),
        pytest.param("train.early_stopping={by: eval/guess, mode: min}", "is no metric, one number per step", id="no number"),
        pytest.param("train.early_stopping={by: eval/loss}", "train.early_stopping needs mode", id="no mode"),
        pytest.param("train.ema.decay=1.0", "train.ema.decay must be < 1", id="a decay that forgets nothing"),
        pytest.param("train.accumulate=0", "train.accumulate must be at least 1", id="no parts"),
        pytest.param("output.checkpoint.every=5 weeks", "'10 minutes'", id="no period"),
        pytest.param("train.eval_every=10 minutes", "must be like '50 steps' or '1 epoch'", id="a time where none counts"),
        pytest.param("fetches.error.to=guess.npz", "go to one file, guess.npz", id="two fetches in a file"),
    ],
)
def test_wrong_options(bench: Bench, override: str, said: str) -> None:
    assert bench.run("train", bench.base / "run.yaml", "-o", override) == ExitCode.USAGE
    assert said in bench.err


# --- time -------------------------------------------------------------------------------------------------------------


def clock(monkeypatch: pytest.MonkeyPatch, module: str, seconds: float) -> None:
    """Give a module a monotonic clock that goes on so many seconds a look, and a wall clock that jumps back."""
    looks, jumps = itertools.count(0.0, seconds), itertools.count(1e9, -1e5)
    faked = types.SimpleNamespace(monotonic=lambda: next(looks), time=lambda: next(jumps))
    monkeypatch.setattr(f"pe_cli.session.training.{module}.time", faked)


def test_a_checkpoint_every_few_minutes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is looked at once a step, and once when a checkpoint is saved."""
    clock(monkeypatch, "run_writer", 60.0)
    folder = bench.train("runs", "-o", "output.checkpoint={every: 5 minutes, keep: 100}", "-o", "train.eval_every=1 epoch")
    assert checkpoint.steps(folder / "checkpoints") == [5, 10, 15, 18]


def test_the_time_of_a_call_is_limited_by_a_clock_that_nobody_sets(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        clock(patch, "stop", 1.0)
        folder = bench.train("runs", "--max-time", "15s", code=ExitCode.STOPPED)
    assert json.loads((folder / "status.json").read_text())["state"] == "stopped"
    assert 0 < checkpoint.steps(folder / "checkpoints")[-1] < 18
    assert bench.run("train", "--resume", folder, "--max-time", "1h") == 0


# --- a loss that grows beyond all measure --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        pytest.param([2.0, 1e9, 2.1e9, 3e9], 3, id="a thousand million times the first"),
        pytest.param([-2.0, -2.1e9], 2, id="below zero"),
        pytest.param([1e-6, 1e5, 1.1e9], 3, id="a small first loss counts as 1"),
        pytest.param([1e25, 9e29, 1.1e30], 3, id="above 1e30 whatever the first was"),
        pytest.param([2e30], 1, id="in the first step"),
        pytest.param([2.0, 1e9, 1e3], None, id="large, but not beyond measure"),
        pytest.param([0.0, 0.0, 5.0], None, id="from nothing"),
    ],
)
def test_a_loss_beyond_all_measure_is_told_once(losses: list[float], told: int | None) -> None:
    measures, at = Measures(None, None, pytest.fail), Progress()
    said = []
    for step, loss in enumerate(losses, 1):
        at.step = step
        said.append(measures.watch(at, loss))
    assert [step for step, text in enumerate(said, 1) if text] == ([] if told is None else [told])
    assert at.outgrown == told
    again = Progress.from_json(at.to_json(), "")
    assert measures.watch(again, 1e35 if told else 0.5) is None, "also in a run that is resumed"


def test_a_run_that_does_not_converge_warns_and_goes_on(bench: Bench) -> None:
    rate = ["-o", "train.optimizer={type: SGD, learning_rate: 1e6}", "-o", "train.steps=2"]
    quiet = bench.train("runs", *rate)
    loud = ["-o", f"output.dir={bench.base / 'loud'}"]
    assert bench.run("train", bench.base / "run.yaml", *rate, *loud) == 0
    assert bench.err.count("note: the loss is ") == 1
    (folder,) = (bench.base / "loud").iterdir()
    for run in (quiet, folder):
        status = json.loads((run / "status.json").read_text())
        assert status["state"] == "done"
        assert status["warning"].endswith("training does not converge; lower the learning rate or clip gradients")
        assert (run / "log.txt").read_text().count("warning: the loss is ") == 1
    assert bench.run("runs", bench.base / "loud") == 0
    assert bench.out.splitlines()[-1] == f"{folder.name}: {status['warning']}"
    assert bench.run("report", folder) == 0
    assert f'<p class="warning">{status["warning"]}</p>' in (folder / "report.html").read_text()
