"""What the log of a run keeps: how much data there was, and what was said of it before the run had a folder."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from pe_cli.cli.main import run as run_command_line

MODEL = """\
name: shades
feeds: {image: {shape: [3, 4, 4]}, label: {shape: [1], dtype: int64}}
layers:
  logits: {type: fc, input: image, size: 2}
  xent: {type: softmax_with_cross_entropy, logits: logits, label: label}
  loss: {type: mean, x: xent}
fetches: [loss]
"""
CONFIG = """\
model: model.yaml
data:
  source: {reader: images, folder: set, broken: skip}
  split: {eval: 0.25, stratify: label, seed: 1}
  columns: {image: {type: image, size: [4, 4]}}
train: {loss: loss, epochs: 1, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.1}}
output: {dir: runs}
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A folder of 16 pictures of two classes, one of them cut off behind its header."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    for name, shade in (("dark", 40), ("light", 200)):
        (tmp_path / "set" / name).mkdir(parents=True)
        for i in range(8):
            pixels = (shade + rng.integers(0, 40, (16, 16, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "set" / name / f"{i}.png")
    cut = tmp_path / "set/dark/3.png"
    cut.write_bytes(cut.read_bytes()[:-200])
    (tmp_path / "model.yaml").write_text(MODEL)
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def test_the_log_tells_the_samples_and_what_was_left_out(config, capfd):
    assert run_command_line(["train", str(config), "--quiet"]) == 0
    assert "note:" not in capfd.readouterr().err
    log = next(config.parent.glob("runs/*/log.txt")).read_text()
    assert log.count("1 rows have no picture that can be read and are left out") == 1
    counts = [int(line.split()[-2]) for line in log.splitlines() if "samples" in line and "data." in line]
    assert len(counts) == 2
    assert sum(counts) == 15


def test_what_a_reader_says_of_a_column_stays_where_the_config_says_nothing_of_it(config, capfd):
    given = "data.columns={image: {type: image, size: [4, 4], broken: error}}"
    assert run_command_line(["train", str(config), "--quiet", "-o", given]) == 3
    assert "3.png is cut off or damaged" in capfd.readouterr().err
    assert run_command_line(["train", str(config), "--quiet", "-o", "data.columns={image: {type: image, size: [4, 4], mode: rgb}}"]) == 0
