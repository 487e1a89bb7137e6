"""A reader of drawn signs: warpctc in a model file, trained on sequences whose labels have no places."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from pe_cli.cli.main import run as run_command_line
from tests.needs import torch

MODEL = """\
name: reader
feeds:
  steps:  {shape: [1], dtype: int64, lod_level: 1}
  labels: {shape: [1], dtype: int64, lod_level: 1}
layers:
  table:  {type: embedding, input: steps, size: [8, 6]}
  wide:   {type: sequence_conv, input: table, num_filters: 12, filter_size: 3, act: tanh}
  logits: {type: fc, input: wide, size: 4}
  cost:   {type: warpctc, input: logits, label: labels, blank: 0}
  loss:   {type: mean, x: cost}
fetches: [loss]
"""
CONFIG = """\
model: model.yaml
data:
  train: {reader: multi_slot, files: [signs], shuffle: false, slots: {steps: {type: uint64}, labels: {type: uint64}}}
feeds: {steps: steps, labels: labels}
train: {loss: loss, epochs: 30, batch_size: 10, optimizer: {type: Adam, learning_rate: 0.02}}
fetches:
  logits: {every: 1 steps, to: logits.npz}
  cost:   {every: 1 steps, to: cost.npz}
  loss:   {every: 1 steps}
executor: {devices: 1, seed: 3}
output: {dir: RUNS}
"""


def written(folder: Path, count: int = 20) -> list[tuple[list[int], list[int]]]:
    """Write sequences: sign k is drawn as k, then k + 3 one to three times; a 7 stands between signs."""
    rng, samples = np.random.default_rng(0), []
    for _ in range(count):
        labels = rng.integers(1, 4, rng.integers(1, 4)).tolist()
        steps = [s for k in labels for s in [k, *[k + 3] * rng.integers(1, 4), 7]]
        samples.append((steps, labels))
    rows = (" ".join(map(str, [len(s), *s, len(y), *y])) for s, y in samples)
    (folder / "signs").write_text("\n".join(rows) + "\n")
    return samples


def test_a_reader_learns_signs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    samples = written(tmp_path)
    Path("model.yaml").write_text(MODEL)
    Path("run.yaml").write_text(CONFIG.replace("RUNS", str(tmp_path / "runs")))
    assert run_command_line(["train", "run.yaml", "--quiet"]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    losses = [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < 0.1 < 4 < losses[0]
    with np.load(folder / "fetches" / "logits.npz") as logits, np.load(folder / "fetches" / "cost.npz") as costs:
        rows, found = torch.tensor(logits["logits"]), costs["cost"][:10]
    steps, labels = zip(*samples[:10], strict=True)
    rows = rows[: sum(len(s) for s in steps)]
    padded = torch.nn.utils.rnn.pad_sequence(rows.log_softmax(-1).split([len(s) for s in steps]))
    lengths = [torch.tensor([len(v) for v in each]) for each in (steps, labels)]
    flat = torch.tensor([k for own in labels for k in own])
    expected = torch.nn.functional.ctc_loss(padded, flat, *lengths, reduction="none").numpy()
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-5)
    np.testing.assert_allclose(losses[0], expected.mean(), rtol=1e-5)


PADDED = """\
name: reader
feeds:
  steps:  {shape: [15, 1], dtype: int64}
  n:      {shape: [1], dtype: int64}
  labels: {shape: [3], dtype: int64}
  m:      {shape: [1], dtype: int64}
layers:
  table:  {type: embedding, input: steps, size: [8, 6]}
  wide:   {type: fc, input: table, size: 12, num_flatten_dims: 2, act: tanh}
  logits: {type: fc, input: wide, size: 4, num_flatten_dims: 2}
  first:  {type: transpose, x: logits, perm: [1, 0, 2]}
  cost:   {type: warpctc, input: first, label: labels, input_length: n, label_length: m}
  read:   {type: ctc_greedy_decoder, input: logits, blank: 0, input_length: n}
  loss:   {type: mean, x: cost}
fetches: [loss]
"""
JUDGED = """\
model: model.yaml
data:
  train: {reader: npz, file: signs.npz}
  eval:  {reader: npz, file: signs.npz}
feeds: {steps: steps, n: n, labels: labels, m: m}
train: {loss: loss, epochs: 40, batch_size: 10, optimizer: {type: Adam, learning_rate: 0.03}, eval_every: 40 epochs}
metrics:
  errors: {type: edit_distance, predictions: read.0, labels: labels, ignored_tokens: [0]}
  wrong:  {type: edit_distance, predictions: read.0, labels: labels, ignored_tokens: [0], per: wrong}
executor: {devices: 1, seed: 3}
output: {dir: RUNS}
"""


def test_what_is_read_is_judged_by_its_edits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    samples = written(tmp_path, 40)
    fields = {name: np.zeros((40, *np.atleast_1d(size)), "int64") for name, size in (("steps", (15, 1)), ("n", 1), ("labels", 3), ("m", 1))}
    for i, (steps, labels) in enumerate(samples):
        fields["steps"][i, : len(steps)], fields["n"][i] = np.array(steps)[:, None], len(steps)
        fields["labels"][i, : len(labels)], fields["m"][i] = labels, len(labels)
    np.savez("signs.npz", **fields)
    Path("model.yaml").write_text(PADDED)
    Path("run.yaml").write_text(JUDGED.replace("RUNS", str(tmp_path / "runs")))
    assert run_command_line(["train", "run.yaml", "--quiet"]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last = next(line for line in reversed(lines) if line["split"] == "eval")
    assert last["errors"] < 0.1
    assert last["wrong"] < 0.25
