"""Losses in model files: a run learns with each, and a loss of pairs does not make its embedding an answer."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.session.conftest import Bench

HEAD = """\
name: pairs
feeds:
  a:    {shape: [4], dtype: float32}
  b:    {shape: [4], dtype: float32}
  same: {shape: [1], dtype: int64}
  kind: {shape: [1], dtype: int64}
  y:    {shape: [1], dtype: float32}
layers:
  one:  {type: fc, input: a, size: 3, param_attr: {name: shared}, bias_attr: false}
  two:  {type: fc, input: b, size: 3, param_attr: {name: shared}, bias_attr: false}
  key:  {type: fc, input: a, size: 3}
  guess: {type: fc, input: a, size: 1}
  prob: {type: softmax, input: one}
  LOSS
  loss: {type: mean, x: cost}
fetches: [loss, one, guess]
"""
CONFIG = """\
model: model.yaml
data: {train: {reader: npz, file: data.npz, shuffle: true}, eval: {reader: npz, file: data.npz, limit: 33}}
feeds: FEEDS
train: {loss: loss, epochs: 6, batch_size: 8, optimizer: {type: Adam, learning_rate: 0.03}}
executor: {devices: DEVICES, seed: 3}
output: {dir: RUNS}
"""


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize(
    "loss",
    [
        "cost: {type: contrastive_loss, first: one, second: two, label: same, margin: 2.0}",
        "cost: {type: triplet_margin_loss, anchor: one, positive: two, negative: prob}",
        "cost: {type: info_nce, queries: one, keys: key, temperature: 0.5}",
        "cost: {type: smoothed_cross_entropy, logits: one, label: kind}",
        "cost: {type: focal_loss, logits: one, label: kind}",
        "cost: {type: dice_loss, input: prob, label: kind}",
        "cost: {type: quantile_loss, input: guess, label: y, quantile: 0.9}",
        "cost: {type: poisson_nll_loss, input: guess, label: y, full: true}",
    ],
    ids=lambda text: text.partition("type: ")[2].partition(",")[0],
)
def test_a_run_learns_with_the_loss(bench: Bench, rng: np.random.Generator, loss: str, devices: int) -> None:
    a = rng.standard_normal((61, 4)).astype(np.float32)
    same = rng.integers(0, 2, (61, 1))
    b = np.where(same == 1, a + 0.1, rng.standard_normal((61, 4))).astype(np.float32)
    kind = (a[:, :1] > 0).astype(np.int64) + (a[:, 1:2] > 0.5)
    np.savez(bench.base / "data.npz", a=a, b=b, same=same, kind=kind, y=kind.astype(np.float32))
    (bench.base / "model.yaml").write_text(HEAD.replace("LOSS", loss))
    config = CONFIG.replace("RUNS", str(bench.base / "runs")).replace("DEVICES", str(devices))
    (bench.base / "run.yaml").write_text(config.replace("FEEDS", "{a: a, b: b, same: same, kind: kind, y: y}"))
    folder = bench.train("learned")
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in found if line["split"] == "eval"]
    assert losses[-1] < losses[0] * 0.97 or losses[-1] < losses[0] - 0.02
    if "same" in loss:
        assert bench.run("predict", folder, "--split", "eval") == 0, bench.err
        header = bench.out.splitlines()[0]
        assert header.split(",") == ["row", "one_1", "one_2", "one_3", "guess"], "embeddings are no classes of the label"
