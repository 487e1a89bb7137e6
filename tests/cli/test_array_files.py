"""Files of arrays and of slots, named behind a run as tables are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pe_cli.io.checkpoint import load
from tests.cli.conftest import Pe

MODEL = """\
feeds: {x: {shape: [2]}, y: {shape: [1], dtype: int64}}
layers:
  logits: {type: fc, input: x, size: 2, param_attr: w, bias_attr: b}
  xent: {type: softmax_with_cross_entropy, logits: logits, label: y}
  loss: {type: mean, x: xent}
fetches: [loss, logits]
"""
CONFIG = """\
model: model.yaml
data:
  source: SOURCE
  split: {eval: 0.25}
train: {loss: loss, epochs: 1, batch_size: 8, optimizer: {type: SGD, learning_rate: 0.1}}
executor: {devices: 1, seed: 1}
output: {dir: RUNS}
"""


def trained(pe: Pe, folder: Path, source: str) -> Path:
    (folder / "model.yaml").write_text(MODEL)
    config = folder / "config.yaml"
    config.write_text(CONFIG.replace("SOURCE", source).replace("RUNS", str(folder / "runs")))
    said = pe("train", config, "--quiet")
    assert said.code == 0, said.err
    return next((folder / "runs").iterdir())


def check(pe: Pe, run: Path, file: Path, x: np.ndarray) -> None:
    """Compare the answers with those of NumPy."""
    values, _ = load(run / "checkpoints/last")
    out = run / "out.npz"
    said = pe("predict", run, file, "--fetch", "logits", "--raw", "--out", out)
    assert said.code == 0, said.err
    with np.load(out) as arrays:
        found = arrays["logits"]
    np.testing.assert_allclose(found, x @ values["w"] + values["b"], rtol=1e-4, atol=1e-5)
    said = pe("eval", run, file)
    assert said.code == 0, said.err
    assert f"({len(x)} samples" in said.out


def test_an_npz_file(pe: Pe, tmp_path: Path, rng: np.random.Generator) -> None:
    def write(name: str, rows: int) -> np.ndarray:
        x = rng.normal(size=(rows, 2)).astype(np.float32)
        np.savez(tmp_path / name, x=x, y=(x[:, :1] > 0).astype(np.int64))
        return x

    write("train.npz", 32)
    run = trained(pe, tmp_path, "{reader: npz, file: train.npz}")
    check(pe, run, tmp_path / "new.npz", write("new.npz", 5))
    said = pe("predict", run, tmp_path / "new.npz", tmp_path / "train.npz")
    assert said.code == 2
    assert "the reader npz takes one file" in said.err


def test_a_file_of_slots(pe: Pe, tmp_path: Path, rng: np.random.Generator) -> None:
    def write(name: str, rows: int) -> np.ndarray:
        x = rng.normal(size=(rows, 2)).astype(np.float32)
        (tmp_path / name).write_text("".join(f"2 {a} {b} 1 {int(a > 0)}\n" for a, b in x))
        return x

    write("train.txt", 32)
    slots = "{x: {type: float, dense: true, shape: [2]}, y: {type: uint64, dense: true}}"
    run = trained(pe, tmp_path, f"{{reader: multi_slot, files: [train.txt], slots: {slots}}}")
    check(pe, run, tmp_path / "new.txt", write("new.txt", 5))
