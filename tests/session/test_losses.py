"""train.loss as a mapping: a weighted sum of losses, with weights that ramp up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from pe_cli.io.run_folder import RunFolder
from tests.session.conftest import Bench

MODEL = """\
name: two
feeds:
  x: {shape: [4], dtype: float32}
  y: {shape: [1], dtype: float32}
layers:
  guess: {type: fc, input: x, size: 1, bias_attr: false}
  error: {type: square_error_cost, input: guess, label: y}
  fit:   {type: mean, x: error}
  large: {type: square, x: guess}
  small: {type: mean, x: large}
fetches: [fit]
"""
CONFIG = """\
model: model.yaml
data: {train: {reader: npz, file: data.npz}, eval: {reader: npz, file: data.npz}}
train: {loss: LOSS, steps: 6, batch_size: 44, eval_every: 1 steps, optimizer: {type: SGD, learning_rate: 0.05}, init: {from: start.npz}}
fetches: {fit: {every: 1 steps}, small: {every: 1 steps}, total_loss: {every: 1 steps}}
executor: {devices: 1, seed: 3}
output: {dir: runs, checkpoint: {every: 1 steps, keep: 9, best: {by: eval/total_loss, mode: min}}}
"""


def written(bench: Bench, loss: str) -> None:
    (bench.base / "model.yaml").write_text(MODEL)
    (bench.base / "run.yaml").write_text(CONFIG.replace("LOSS", loss))
    np.savez(bench.base / "start.npz", **{"guess.w_0": np.array([[0.5], [-1.0], [0.25], [2.0]], np.float32)})


def measured(folder: Path, split: str) -> list[dict[str, float]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [m for m in found if m["split"] == split]


def by_definition(bench: Bench, weights: list[float]) -> tuple[np.ndarray, list[tuple[float, float, float]]]:
    """Return the weights of the layer after steps with these weights of `small`, and fit, small and their sum before each."""
    with np.load(bench.base / "data.npz") as data:
        x, y = data["x"].astype(np.float64), data["y"].astype(np.float64)
    w, seen = np.array([[0.5], [-1.0], [0.25], [2.0]]), []
    for weight in weights:
        guess = x @ w
        fit, small = ((guess - y) ** 2).mean(), (guess**2).mean()
        seen.append((fit, small, 2.0 * fit + weight * small))
        w = w - 0.05 * (2.0 * 2 * x.T @ (guess - y) + weight * 2 * x.T @ guess) / len(x)
    return w, seen


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize(
    ("loss", "weights"),
    [
        pytest.param("{fit: 2, small: 0.5}", [0.5] * 6, id="fixed"),
        pytest.param("{fit: 2.0, small: {weight: 0.5, ramp: 4 steps}}", [0, 0.125, 0.25, 0.375, 0.5, 0.5], id="ramp"),
    ],
)
def test_the_sum_is_minimised_and_every_term_recorded(bench: Bench, loss: str, weights: list[float], devices: int) -> None:
    written(bench, loss)
    folder = bench.train("runs", "-o", f"executor.devices={devices}")
    expected, seen = by_definition(bench, weights)
    np.testing.assert_allclose(checkpoint.load(folder)[0]["guess.w_0"], expected, rtol=1e-5)
    lines = measured(folder, "train")
    found = [(m["fit"], m["small"], m["total_loss"]) for m in lines]
    np.testing.assert_allclose(found, seen, rtol=1e-5)
    if "ramp" in loss:
        np.testing.assert_allclose([m["weight/small"] for m in lines], weights, rtol=1e-6)
    final = measured(folder, "eval")[-1]
    assert final["total_loss"] == pytest.approx(2 * final["fit"] + 0.5 * final["small"], rel=1e-6), "whole weights in evaluation"


def test_a_ramp_in_epochs_is_one_in_steps(bench: Bench) -> None:
    """The learning rate follows the same counter."""
    small = ("-o", "train.batch_size=22", "-o", "train.steps=9")
    written(bench, "{fit: 1, small: {weight: 0.5, ramp: 6 steps}}")
    steps = bench.train("steps", *small)
    written(bench, "{fit: 1, small: {weight: 0.5, ramp: 3 epochs}}")
    epochs = bench.train("epochs", *small)
    assert bench.seen(steps) == bench.seen(epochs)
    assert "ramp: 3 epochs" in RunFolder(epochs).resolved_path.read_text()


def test_a_ramp_goes_on_bit_for_bit(bench: Bench) -> None:
    written(bench, "{fit: 1, small: {weight: 0.5, ramp: 5 steps}}")
    whole = bench.seen(bench.train("whole"))
    folder = bench.train("pieces", "--max-steps", 2, code=ExitCode.STOPPED)
    assert bench.run("train", "--resume", folder) == 0, bench.err
    assert bench.seen(folder) == whole


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        pytest.param("{fit: 1, smal: 1}", "did you mean 'small'", id="no variable"),
        pytest.param("{fit: 1, large: 1}", "'large' must be one number", id="many numbers"),
        pytest.param("{fit: 1, small: {wight: 1}}", "train.loss.small must be a weight, or a mapping of weight and ramp", id="key"),
        pytest.param("{fit: 1, small: {ramp: 2 minutes}}", ":3:38: error: train.loss.small.ramp must be a number of steps", id="ramp"),
        pytest.param("{}", "must be the name of a variable, or a mapping", id="no term"),
        pytest.param("[fit, small]", "must be the name of a variable, or a mapping", id="a list"),
    ],
)
def test_mistakes_have_a_place(bench: Bench, loss: str, said: str) -> None:
    written(bench, loss)
    assert bench.run("check", bench.base / "run.yaml") == ExitCode.USAGE
    assert said in bench.err + bench.out
    assert "run.yaml:3:" in bench.err + bench.out
    if loss.startswith("{"):
        assert bench.err.count("error: ") == 1, "the sum's name is right, whatever its terms are"


def test_a_ramp_and_parts_are_refused(bench: Bench) -> None:
    written(bench, "{fit: 1, small: {weight: 1, ramp: 3 steps}}")
    assert bench.run("train", bench.base / "run.yaml", "-o", "train.accumulate=2", "-o", "train.batch_size=22") == ExitCode.USAGE
    assert "does not go with train.accumulate" in bench.err
