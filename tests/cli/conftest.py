"""The command line as tests call it, and a small config with data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pe_cli.cli.main import run as run_command_line

ROOT = Path(__file__).parents[2]

MODEL = """\
name: line
feeds:
  x: {shape: [4], dtype: float32}
  y: {shape: [1], dtype: float32}
layers:
  guess: {type: fc, input: x, size: 1}
  error: {type: square_error_cost, input: guess, label: y}
  loss:  {type: mean, x: error}
fetches: [loss]
"""
CONFIG = """\
model: model.yaml
data:
  train: {reader: npz, file: data.npz}
  eval:  {reader: npz, file: data.npz, limit: 16}
feeds: {x: x, y: y}
train:
  loss: loss
  epochs: 2
  batch_size: 16
  optimizer: {type: SGD, learning_rate: 0.1}
executor: {devices: 1, seed: 3}
output: {dir: RUNS, checkpoint: {every: 1 epoch, keep: 2}}
"""


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str


Pe = Callable[..., Said]


@pytest.fixture
def pe(capfd: pytest.CaptureFixture[str]) -> Pe:
    """Run `pe` in this process."""

    def call(*arguments: object) -> Said:
        capfd.readouterr()
        code = run_command_line([str(a) for a in arguments])
        captured = capfd.readouterr()
        return Said(code, captured.out, captured.err)

    return call


def train(config: Path) -> Path:
    """Train by a config whose runs go to `runs` beside it, for tests of which none changes what is left; return the run's folder."""
    assert run_command_line(["train", str(config), "--quiet"]) == 0
    (found,) = (config.parent / "runs").iterdir()
    return found


@pytest.fixture
def config(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A linear regression on 40 samples of y = x . (1, -2, 3, 0.5) + 4; runs go to tmp_path/runs."""
    x = rng.standard_normal((40, 4)).astype(np.float32)
    y = (x @ np.array([1, -2, 3, 0.5], np.float32) + 4)[:, None]
    np.savez(tmp_path / "data.npz", x=x, y=y)
    (tmp_path / "model.yaml").write_text(MODEL)
    path = tmp_path / "line.yaml"
    path.write_text(CONFIG.replace("RUNS", str(tmp_path / "runs")))
    return path


@pytest.fixture
def trained(config: Path, pe: Pe) -> Path:
    """The run folder of the trained linear regression."""
    said = pe("train", config, "--quiet")
    assert said.code == 0, said.err
    return next((config.parent / "runs").iterdir())
