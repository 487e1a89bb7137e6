"""What predictions say of models that write texts and of models that find things: texts, and lists of boxes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli.cli.main import run as run_command_line

WRITER = """\
name: writer
feeds:
  given: {shape: [4, 1], dtype: int64}
  taken: {shape: [4, 1], dtype: int64}
blocks:
  step:
    args: {input: ~, state: ~}
    layers:
      word:   {type: embedding, input: input, size: [12, 8], param_attr: {name: words}}
      known:  {type: concat, input: [word, state], axis: 1}
      mixed:  {type: fc, input: known, size: 16, act: tanh, param_attr: {name: w}, bias_attr: {name: b}}
      logits: {type: fc, input: mixed, size: 12, param_attr: {name: v}, bias_attr: {name: c}}
    output: logits
    next: {state: mixed}
layers:
  rows:   {type: embedding, input: given, size: [12, 8]}
  flat:   {type: reshape, x: rows, shape: [-1, 32]}
  start:  {type: fc, size: 16, act: tanh}
  zero:   {type: fill_constant_batch_size_like, input: taken, shape: [-1, 1, 1], dtype: int64, value: 0}
  most:   {type: slice, input: taken, axes: [1], starts: [0], ends: [-1]}
  before: {type: concat, input: [zero, most], axis: 1}
  logits: {scan: step, input: before, start: {state: start}}
  xent:   {type: softmax_with_cross_entropy, logits: logits.0, label: taken}
  loss:   {type: mean, x: xent}
  said:   {beam: step, start: {state: start}, start_token: 0, end_token: 0, beam_size: 3, max_step_num: 4}
fetches: [loss, said]
"""
WRITES = """\
model: model.yaml
data:
  train: {reader: table, files: pairs.csv, shuffle: true}
  columns:
    english: {type: text, tokens: words, length: 4}
    german:  {type: text, tokens: words, length: 4}
feeds: {given: english, taken: german}
train: {loss: loss, epochs: 40, batch_size: 9, optimizer: {type: Adam, learning_rate: 0.03}}
executor: {devices: DEVICES, seed: 2}
output: {dir: runs}
"""
NUMBERS = {"one": "eins", "two": "zwei", "three": "drei"}


@pytest.mark.parametrize("devices", [1, 2])
def test_a_model_that_is_taught_texts_answers_in_texts(tmp_path, monkeypatch, devices):
    """Pairs of numbers the other way round: "one two" is "zwei eins"."""
    monkeypatch.chdir(tmp_path)
    pairs = [(f"{a} {b}", f"{NUMBERS[b]} {NUMBERS[a]}") for a in NUMBERS for b in NUMBERS]
    Path("pairs.csv").write_text("english,german\n" + "".join(f"{a},{b}\n" for a, b in pairs * 4))
    Path("model.yaml").write_text(WRITER)
    Path("run.yaml").write_text(WRITES.replace("DEVICES", str(devices)))
    assert run_command_line(["train", "run.yaml", "--quiet"]) == 0
    (folder,) = Path("runs").iterdir()
    Path("new.csv").write_text("english\n" + "".join(f"{a}\n" for a, _ in pairs))
    assert run_command_line(["predict", str(folder), "new.csv", "--out", "said.csv"]) == 0
    with Path("said.csv").open() as file:
        assert [row["german"] for row in csv.DictReader(file)] == [b for _, b in pairs]


FINDER = """\
name: finder
feeds:
  box:   {shape: [3, 4]}
  score: {shape: [2, 3]}
layers:
  found: {type: multiclass_nms, bboxes: box, scores: score, score_threshold: 0.1, nms_top_k: -1, keep_top_k: 4, background_label: -1}
fetches: [found]
"""
FINDS = """\
model: model.yaml
data:
  eval: {reader: npz, file: boxes.npz}
output: {dir: runs}
"""


def test_a_detector_answers_with_a_list_of_boxes_for_each_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    box = np.array([[[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.375], [0.5, 0.5, 1, 1]]] * 2, "float32")
    score = np.array([[[0.5, 0.75, 0.25], [0, 0, 0.875]], np.zeros((2, 3))], "float32")
    np.savez("boxes.npz", box=box, score=score)
    Path("model.yaml").write_text(FINDER)
    Path("run.yaml").write_text(FINDS)
    np.savez("none.npz")
    wanted = [
        {"class": 1, "score": 0.875, "box": [0.5, 0.5, 1.0, 1.0]},
        {"class": 0, "score": 0.75, "box": [0.0, 0.0, 0.5, 0.375]},
        {"class": 0, "score": 0.25, "box": [0.5, 0.5, 1.0, 1.0]},
    ]
    assert run_command_line(["predict", "run.yaml", "--checkpoint", "none.npz", "--out", "found.jsonl"]) == 0
    rows = [json.loads(line) for line in Path("found.jsonl").read_text().splitlines()]
    assert rows == [{"row": 1, "boxes": wanted}, {"row": 2, "boxes": []}]
    assert run_command_line(["predict", "run.yaml", "--checkpoint", "none.npz", "--out", "found.csv"]) == 0
    with Path("found.csv").open() as file:
        assert [json.loads(row["boxes"]) for row in csv.DictReader(file)] == [wanted, []]
