"""train.groups: parameters that are frozen, or trained with another rate or decay."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from tests.needs import torch
from tests.rotation import on_its_day
from tests.session.conftest import Bench

MODEL = """\
name: two
feeds:
  x: {shape: [4], dtype: float32}
  y: {shape: [1], dtype: float32}
blocks:
  part:
    args: {input: ~}
    layers:
      a: {type: fc, input: "${input}", size: 5, act: tanh}
      b: {type: fc, input: a, size: 3, act: tanh}
layers:
  encoder: {block: part, input: x}
  head:    {type: fc, input: encoder, size: 1}
  error:   {type: square_error_cost, input: head, label: y}
  loss:    {type: mean, x: error}
fetches: [loss]
"""
CONFIG = """\
model: model.yaml
data: {train: {reader: npz, file: data.npz}}
train:
  loss: loss
  steps: 10
  batch_size: 44
  optimizer: {type: Momentum, momentum: 0.9, learning_rate: 0.05, regularization: {type: L2Decay, regularization_coeff: 0.01}}
  groups: GROUPS
fetches: {loss: {every: 1 steps}}
executor: {devices: DEVICES, seed: 3}
output: {dir: runs, checkpoint: {every: 10 steps, keep: 9}}
"""
GROUPS = "[{match: encoder/a, learning_rate: 0.1x}, {match: 'head*', learning_rate: 4x}, {match: '*.b_0', weight_decay: 0.0}]"


def trained(bench: Bench, groups: str, *options: str, devices: int = 1, where: str = "runs", code: int = 0) -> Path | str:
    (bench.base / "model.yaml").write_text(MODEL)
    (bench.base / "run.yaml").write_text(CONFIG.replace("GROUPS", groups).replace("DEVICES", str(devices)))
    arguments = [part for option in options for part in ("-o", option)]
    if code:
        assert bench.run("train", bench.base / "run.yaml", "--quiet", *arguments) == code, bench.err
        return bench.err
    return bench.train(where, *arguments)


def start(bench: Bench) -> dict[str, np.ndarray]:
    """Write first values and return them."""
    rng = np.random.default_rng(2)
    sizes = {"encoder/a": (4, 5), "encoder/b": (5, 3), "head": (3, 1)}
    shapes = {f"{layer}.w_0": size for layer, size in sizes.items()} | {f"{layer}.b_0": size[1:] for layer, size in sizes.items()}
    values = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    np.savez(bench.base / "start.npz", **values)
    return values


@on_its_day(0, of=2)
@pytest.mark.parametrize("devices", [1, 2])
def test_rates_and_decays_are_those_of_pytorch(bench: Bench, devices: int) -> None:
    values = start(bench)
    folder = trained(bench, GROUPS, "train.init={from: start.npz}", devices=devices)
    ours = checkpoint.load(folder)[0]

    theirs = {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}
    rate = {"encoder/a": 0.005, "encoder/b": 0.05, "head": 0.2}
    groups = [
        {"params": [t], "lr": rate[name.partition(".")[0]], "weight_decay": 0.0 if name.endswith("b_0") else 0.01}
        for name, t in theirs.items()
    ]
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    with np.load(bench.base / "data.npz") as data:
        x, y = torch.tensor(data["x"]), torch.tensor(data["y"])
    for _ in range(10):
        h = torch.tanh(x @ theirs["encoder/a.w_0"] + theirs["encoder/a.b_0"])
        h = torch.tanh(h @ theirs["encoder/b.w_0"] + theirs["encoder/b.b_0"])
        loss = ((h @ theirs["head.w_0"] + theirs["head.b_0"] - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value.detach().numpy(), rtol=2e-5, atol=1e-6, err_msg=name)


def test_what_is_frozen_stays_and_costs_nothing(bench: Bench) -> None:
    values = start(bench)
    folder = trained(bench, "[{match: encoder/*, freeze: true}]", "train.init={from: start.npz}")
    after = checkpoint.load(folder)[0]
    for name, value in values.items():
        assert np.array_equal(after[name], value) == name.startswith("encoder"), name
    assert not [name for name in after if name.startswith("encoder") and "velocity" in name]
    assert bench.run("graph", bench.base / "run.yaml", "--stage", "program", "-o", "train.init={from: start.npz}") == 0
    backward = [line for line in bench.out.splitlines() if line.startswith("  backward")]
    assert backward
    assert not [line for line in backward if "encoder" in line.partition("->")[2] or "tanh" in line]


def test_a_group_is_listed_in_the_summary(bench: Bench) -> None:
    start(bench)
    trained(bench, GROUPS, "train.init={from: start.npz}")
    assert bench.run("summary", bench.base / "run.yaml", "--json") == 0
    listed = {m["parameter"]: m for m in json.loads(bench.out)["groups"]}
    assert listed["head.w_0"] == {"parameter": "head.w_0", "group": "head*", "frozen": False, "rate": 4.0, "decay": None}
    assert listed["head.b_0"] == {"parameter": "head.b_0", "group": "*.b_0", "frozen": False, "rate": 4.0, "decay": 0.0}
    assert listed["encoder/b.w_0"]["group"] == ""


def test_frozen_and_random_is_an_error(bench: Bench) -> None:
    said = trained(bench, "[{match: encoder/*, freeze: true}]", code=ExitCode.DATA)
    assert "frozen, and with random values: encoder/a.w_0, encoder/b.w_0" in said
    assert "run.yaml:8:" in said


def test_running_statistics_stay(bench: Bench) -> None:
    first = bench.train("first")
    options = ["--init", first, "-o", "train.groups=[{match: normal, freeze: true, running_statistics: true}]"]
    old, new = checkpoint.load(first)[0], checkpoint.load(bench.train("second", *options))[0]
    for name in ("normal.w_0", "normal.b_0", "normal.w_1", "normal.w_2"):
        np.testing.assert_array_equal(new[name], old[name])
    assert not np.array_equal(new["hidden.w_0"], old["hidden.w_0"])


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        pytest.param("[{match: encodr/*, freeze: true}]", "is called 'encodr/*'", id="no name"),
        pytest.param("[{match: head, learning_rate: 10}]", "must be a factor of the optimizer's rate", id="a number"),
        pytest.param("[{match: head, running_statistics: true}]", "none of these layers has running statistics", id="no statistics"),
        pytest.param("[{freeze: true}]", "needs match", id="no pattern"),
        pytest.param("[{match: head, weight_decay: -1}]", "must be at least 0", id="a negative decay"),
        pytest.param("[{match: head}]", "train.groups.0 must say what its parameters have of their own", id="nothing said"),
        pytest.param("[{match: [], freeze: true}]", "must be a pattern", id="no pattern in a list"),
    ],
)
def test_mistakes_have_a_place(bench: Bench, groups: str, said: str) -> None:
    found = trained(bench, groups, code=ExitCode.USAGE)
    assert said in found
    assert "run.yaml:8:" in found
