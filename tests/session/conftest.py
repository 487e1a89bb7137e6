"""A small network in which everything has state, and the command that trains it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pe_cli.cli.main import run as run_command_line
from pe_cli.io.checkpoint import load

#: Dropout draws by step, batch_norm keeps statistics on every device, Adam keeps moments, the rate follows a counter.
MODEL = """\
name: busy
feeds:
  x: {shape: [4], dtype: float32}
  y: {shape: [1], dtype: float32}
layers:
  hidden: {type: fc, input: x, size: 6, act: tanh}
  normal: {type: batch_norm, input: hidden}
  some:   {type: dropout, x: normal, dropout_prob: 0.3}
  guess:  {type: fc, input: some, size: 1}
  error:  {type: square_error_cost, input: guess, label: y}
  loss:   {type: mean, x: error}
fetches: [loss]
"""
CONFIG = """\
model: model.yaml
data:
  train: {reader: npz, file: data.npz, shuffle: true}
  eval:  {reader: npz, file: data.npz, limit: 12}
feeds: {x: x, y: y}
train:
  loss: loss
  epochs: 3
  batch_size: 8
  optimizer: {type: Adam, learning_rate: {type: exponential_decay, learning_rate: 0.05, decay_steps: 5, decay_rate: 0.8}}
  eval_every: 4 steps
fetches:
  loss:    {every: 3 steps}
  guess:   {every: 2 steps, to: guess.npz}
  error:   {every: 3 steps, to: error.csv}
  hidden:  {every: 1 steps, to: hidden.jsonl}
executor: {devices: 1, seed: 3}
output: {dir: RUNS, checkpoint: {every: 2 steps, keep: 2, best: {by: eval/loss, mode: min}}}
"""


class Bench:
    """Trains in folders of its own and compares what is left."""

    def __init__(self, base: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.base, self._capfd = base, capfd
        self.err = self.out = ""

    def run(self, *arguments: object) -> int:
        """Run `pe`; what it says is kept."""
        self._capfd.readouterr()
        code = run_command_line([str(a) for a in arguments])
        self.out, self.err = self._capfd.readouterr()
        return code

    def train(self, where: str, *arguments: object, code: int = 0) -> Path:
        """Run `pe train` into runs of a name and return the only folder there."""
        into = self.base / where
        found = self.run("train", self.base / "run.yaml", "--quiet", "-o", f"output.dir={into}", *arguments)
        assert found == code, self.err
        (folder,) = into.iterdir()
        return folder

    def seen(self, folder: Path) -> dict[str, object]:
        """Return what a run has to show: outputs, and the last and best checkpoints with every bit of their arrays."""
        outputs = {p.name: p.read_bytes() for p in (folder / "fetches").iterdir() if p.suffix != ".npz"}
        for path in (folder / "fetches").glob("*.npz"):
            with np.load(path) as arrays:
                outputs[path.name] = b"".join(n.encode() + arrays[n].tobytes() for n in sorted(arrays.files))
        found: dict[str, object] = {"metrics": (folder / "metrics.jsonl").read_text(), **outputs}
        checkpoints = folder / "checkpoints"
        for mark in (path for path in checkpoints.iterdir() if path.is_file()):
            arrays, meta = load(mark)
            facts = {key: meta[key] for key in ("step", "progress", "averages", "metrics")}
            found[mark.name] = facts, {n: a.tobytes() for n, a in arrays.items()}
        return found


@pytest.fixture
def bench(
    tmp_path: Path, rng: np.random.Generator, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Bench:
    """A network that is to be trained on 44 samples: five batches of eight and one of four, an epoch."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power fails here, and flushing takes most of the time
    x = rng.standard_normal((44, 4)).astype(np.float32)
    y = (np.sin(x[:, :1]) + x[:, 1:2]).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    (tmp_path / "model.yaml").write_text(MODEL)
    (tmp_path / "run.yaml").write_text(CONFIG.replace("RUNS", str(tmp_path / "runs")))
    return Bench(tmp_path, capfd)
