"""Runs whose model files have layers that are made of several ops: pictures and rankings, learned on one device and on two."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.session.conftest import Bench

PICTURES = """\
name: pictures
feeds:
  image: {shape: [2, 8, 8]}
  label: {shape: [1], dtype: int64}
layers:
  small:  {type: space_to_depth, x: image, blocksize: 2}
  conv:   {type: conv2d, input: small, num_filters: 8, filter_size: 3, padding: 1}
  norm:   {type: group_norm, groups: 2}
  act:    {type: prelu, mode: channel}
  mixed:  {type: shuffle_channel, group: 4}
  conv2:  {type: conv2d, input: mixed, num_filters: 8, filter_size: 3, padding: 1, bias_attr: false}
  norm2:  {type: instance_norm}
  gain:   {type: create_parameter, shape: [8], dtype: float32, attr: {initializer: {type: Constant, value: 1}}}
  shift:  {type: create_parameter, shape: [8], dtype: float32, attr: {initializer: {type: Constant, value: 0}}}
  affine: {type: affine_channel, x: norm2, scale: gain, bias: shift, act: relu}
  near:   {type: lrn, input: affine, n: 3}
  large:  {type: pixel_shuffle, x: near, upscale_factor: 2}
  most:   {type: maxout, x: large, groups: 2}
  norm3:  {type: inplace_abn, input: most, act: elu}
  sides:  {type: image_resize_short, input: norm3, out_short_len: 4}
  cut:    {type: strided_slice, input: sides, axes: [2, 3], starts: [0, 3], ends: [4, 0], strides: [2, -1]}
  curved: {type: selu, x: cut}
  logits: {type: fc, input: curved, size: 3}
  cost:   {type: bpr_loss, input: logits, label: label}
  loss:   {type: mean, x: cost}
fetches: [loss, logits]
"""
RANKS = """\
name: ranks
feeds:
  a:    {shape: [4]}
  b:    {shape: [4]}
  won:  {shape: [1]}
  kind: {shape: [1], dtype: int64}
layers:
  left:  {type: fc, input: a, size: 1, param_attr: {name: shared}, bias_attr: {name: level}}
  right: {type: fc, input: b, size: 1, param_attr: {name: shared}, bias_attr: {name: level}}
  one:   {type: fc, input: a, size: 3}
  two:   {type: fc, input: b, size: 3}
  sign:  {type: scale, x: won, scale: 2.0, bias: -1.0}
  boxes: {type: full, shape: [1], fill_value: 8}
  COST
  loss:  {type: mean, x: cost}
fetches: [loss, one]
"""
CONFIG = """\
model: model.yaml
data: {train: {reader: npz, file: data.npz, shuffle: true}, eval: {reader: npz, file: data.npz, limit: 33}}
feeds: FEEDS
train: {loss: loss, epochs: 5, batch_size: 8, optimizer: {type: Adam, learning_rate: 0.03}}
executor: {devices: DEVICES, seed: 3}
output: {dir: RUNS}
"""


def learns(bench: Bench, model: str, feeds: str, devices: int, **arrays: object) -> None:
    """Train a model and check that the loss of its evaluations falls."""
    np.savez(bench.base / "data.npz", **arrays)
    (bench.base / "model.yaml").write_text(model)
    config = CONFIG.replace("RUNS", str(bench.base / "runs")).replace("DEVICES", str(devices))
    (bench.base / "run.yaml").write_text(config.replace("FEEDS", feeds))
    folder = bench.train("learned")
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in found if line["split"] == "eval"]
    assert losses[-1] < losses[0] * 0.95


@pytest.mark.parametrize("devices", [1, 2])
def test_a_run_learns_pictures(bench: Bench, rng: np.random.Generator, devices: int) -> None:
    label = rng.integers(0, 3, (64, 1))
    image = rng.standard_normal((64, 2, 8, 8)) * 0.3
    image[np.arange(64), 0, label[:, 0]] += 2.0
    learns(bench, PICTURES, "{image: image, label: label}", devices, image=image.astype(np.float32), label=label)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize(
    "cost",
    [
        "cost: {type: rank_loss, label: won, left: left, right: right}",
        "cost: {type: margin_rank_loss, label: sign, left: left, right: right, margin: 0.5}",
        "cost: {type: npair_loss, anchor: one, positive: two, labels: kind}",
        "cost: {type: sigmoid_focal_loss, x: one, label: kind, fg_num: boxes}",
        "near: {type: cos_sim, X: one, Y: two}\n  cost: {type: square_error_cost, input: near, label: won}",
    ],
    ids=lambda text: text.partition("type: ")[2].partition(",")[0],
)
def test_a_run_learns_with_the_loss(bench: Bench, rng: np.random.Generator, cost: str, devices: int) -> None:
    a, b = rng.standard_normal((2, 64, 4)).astype(np.float32)
    won = (a[:, :1] > b[:, :1]).astype(np.float32)
    kind = (a[:, :1] > 0).astype(np.int64) + (a[:, 1:2] > 0.5)
    feeds = "{a: a, b: b, won: won, kind: kind}"
    learns(bench, RANKS.replace("COST", cost), feeds, devices, a=a, b=b, won=won, kind=kind)
