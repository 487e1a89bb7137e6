"""train.adapt: small matrices and networks beside a model that stays as it begins; train.by_depth: rates by level."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli.io import checkpoint
from pe_cli.io.tensors import read_safetensors
from tests.needs import torch
from tests.rotation import on_its_day
from tests.session.conftest import Bench

MODEL = """\
name: adapted
feeds:
  x: {shape: [4], dtype: float32}
  y: {shape: [1], dtype: float32}
blocks:
  part:
    args: {input: ~}
    layers:
      query: {type: fc, input: "${input}", size: 4, act: tanh}
      value: {type: fc, size: 4, act: tanh}
layers:
  first:   {type: fc, input: x, size: 4}
  encoder: {block: part, input: first, repeat: 2}
  head:    {type: fc, input: encoder, size: 1}
  error:   {type: square_error_cost, input: head, label: y}
  loss:    {type: mean, x: error}
fetches: [loss]
"""
CONFIG = """\
model: model.yaml
data: {train: {reader: npz, file: data.npz}, predict: {reader: npz, file: data.npz}}
train:
  loss: loss
  steps: 3
  batch_size: 44
  optimizer: {type: SGD, learning_rate: 0.5}
  init: {from: start.npz, layout: paddle}
  ADAPT
fetches: {loss: {every: 1 steps}}
executor: {devices: 1, seed: 3}
output: {dir: runs, checkpoint: {every: 1 steps, keep: 9}}
"""
LORA = "{type: lora, rank: 2, alpha: 6, targets: ['*.query', head]}"
#: Layers and the sizes of their weights.
SIZES = {
    "first": (4, 4), "encoder/0/query": (4, 4), "encoder/0/value": (4, 4), "encoder/1/query": (4, 4), "encoder/1/value": (4, 4),
    "head": (4, 1),
}  # fmt: skip


def prepare(bench: Bench, adapt: str, model: str = MODEL) -> dict[str, np.ndarray]:
    """Write model, config and first values, and return these."""
    rng = np.random.default_rng(2)
    values = {f"{layer}.w_0": rng.standard_normal(size).astype(np.float32) for layer, size in SIZES.items()}
    values |= {f"{layer}.b_0": rng.standard_normal(size[1:]).astype(np.float32) for layer, size in SIZES.items()}
    np.savez(bench.base / "start.npz", **values)
    (bench.base / "model.yaml").write_text(model)
    (bench.base / "run.yaml").write_text(CONFIG.replace("ADAPT", adapt))
    return values


def theirs(values: dict[str, np.ndarray], first: dict[str, np.ndarray], scale: float, *, dora: bool, steps: int, base: Path) -> dict:
    """Return what PyTorch makes of the same steps with peft's arithmetic: x W + s (x A) B, for DoRA m / ||W + s A B|| times that."""
    with np.load(base / "data.npz") as data:
        x, y = torch.tensor(data["x"]), torch.tensor(data["y"])
    fixed = {name: torch.tensor(value) for name, value in values.items()}
    new = {name: torch.tensor(value, requires_grad=True) for name, value in first.items()}

    def dense(layer: str, x: torch.Tensor) -> torch.Tensor:
        weight, bias = fixed[f"{layer}.w_0"], fixed[f"{layer}.b_0"]
        if f"{layer}.lora_a" not in new:
            return x @ weight + bias
        a, b = new[f"{layer}.lora_a"], new[f"{layer}.lora_b"]
        out = x @ weight + scale * (x @ a @ b)
        if dora:
            lengths = torch.linalg.norm(weight + scale * a @ b, dim=0).detach()
            out = out * (torch.linalg.norm(weight, dim=0) + new[f"{layer}.dora_m"]) / lengths
        return out + bias

    optimizer = torch.optim.SGD(list(new.values()), lr=0.02)
    for _ in range(steps):
        h = dense("first", x)
        for layer in list(SIZES)[1:-1]:
            h = torch.tanh(dense(layer, h))
        optimizer.zero_grad()
        ((dense("head", h) - y) ** 2).mean().backward()
        optimizer.step()
    return {name: value.detach().numpy() for name, value in new.items()}


@on_its_day(0, of=2)
@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_steps_are_those_of_pytorch_with_the_arithmetic_of_peft(bench: Bench, kind: str) -> None:
    values = prepare(bench, f"adapt: {LORA}")
    folder = bench.train("runs", "-o", f"train.adapt.type={kind}", "-o", "train.optimizer.learning_rate=0.02")
    start, after = (checkpoint.load(folder / "checkpoints" / f"step-{n}")[0] for n in (0, 3))
    new = {name: value for name, value in start.items() if name not in values and "learning_rate" not in name}
    assert sorted(name.rpartition(".")[2] for name in new) == sorted(["lora_a", "lora_b", *(["dora_m"] if kind == "dora" else [])] * 3)
    expected = theirs(values, new, 3.0, dora=kind == "dora", steps=3, base=bench.base)
    for name, value in expected.items():
        np.testing.assert_allclose(after[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
        assert np.abs(after[name] - start[name]).max() > 1e-4, name
    for name, value in values.items():
        assert np.array_equal(after[name], value), name


def test_a_step_of_lora_is_its_closed_form(bench: Bench) -> None:
    """One layer: L = mean((x (W + s A B) + b - y)^2); after steps A -= r s x^T G B^T, B -= r s (x A)^T G."""
    model = MODEL[: MODEL.index("blocks:")] + "layers:\n" + "".join(
        line + "\n" for line in MODEL.splitlines() if line.strip().startswith(("head:", "error:", "loss:"))
    ).replace("encoder", "x") + "fetches: [loss]\n"  # fmt: skip
    values = prepare(bench, "adapt: {type: lora, rank: 2, alpha: 6, targets: head}", model)
    np.savez(bench.base / "start.npz", **{name: value for name, value in values.items() if name.startswith("head")})
    folder = bench.train("runs", "-o", "train.optimizer.learning_rate=0.01")
    start, after = (checkpoint.load(folder / "checkpoints" / f"step-{n}")[0] for n in (0, 3))
    a, b = (start[f"head.lora_{part}"].astype(np.float64) for part in "ab")
    assert not b.any()
    assert np.abs(a).max() <= 0.5  # uniform within 1 / sqrt(4)
    with np.load(bench.base / "data.npz") as data:
        x, y = data["x"].astype(np.float64), data["y"].astype(np.float64)
    for _ in range(3):
        g = 2 * (x @ (values["head.w_0"] + 3 * a @ b) + values["head.b_0"] - y) / len(x)
        a, b = a - 0.01 * 3 * x.T @ g @ b.T, b - 0.01 * 3 * (x @ a).T @ g
    np.testing.assert_allclose(after["head.lora_a"], a, atol=1e-5)
    np.testing.assert_allclose(after["head.lora_b"], b, atol=1e-5)


#: A tied table, read transposed at the end, and filters: what else may have small matrices.
TIED = """\
name: tied
feeds:
  ids: {shape: [3, 1], dtype: int64}
  picture: {shape: [2, 5, 5], dtype: float32}
  next: {shape: [3, 1], dtype: int64}
layers:
  table:  {type: embedding, input: ids, size: [7, 6], param_attr: {name: table.w_0}}
  shape:  {type: conv2d, input: picture, num_filters: 6, filter_size: 3, stride: 2, act: tanh}
  seen:   {type: reduce_mean, input: shape, dim: [2, 3]}
  more:   {type: unsqueeze, input: seen, axes: [1]}
  both:   {type: elementwise_add, x: table, y: more}
  words:  {type: create_parameter, shape: [7, 6], dtype: float32, attr: {name: table.w_0}}
  logits: {type: matmul, x: both, y: words, transpose_y: true, alpha: 0.5}
  xent:   {type: softmax_with_cross_entropy, logits: logits, label: next}
  loss:   {type: mean, x: xent}
fetches: [loss, logits]
"""


def test_tied_tables_and_filters_are_merged_into_what_is_computed(bench: Bench) -> None:
    rng = np.random.default_rng(4)
    arrays = {"ids": rng.integers(0, 7, (12, 3, 1)), "next": rng.integers(0, 7, (12, 3, 1))}
    np.savez(bench.base / "data.npz", picture=rng.standard_normal((12, 2, 5, 5)).astype(np.float32), **arrays)
    start = {"table.w_0": (7, 6), "shape.w_0": (6, 2, 3, 3), "shape.b_0": (6,)}
    (bench.base / "model.yaml").write_text(TIED)
    adapt = "adapt: {type: lora, rank: 2, alpha: 4, targets: [table, shape]}\n  groups: [{match: '*.lora_b', learning_rate: 2x}]"
    text = CONFIG.replace("ADAPT", adapt)
    (bench.base / "run.yaml").write_text(text.replace("batch_size: 44", "batch_size: 12"))
    np.savez(bench.base / "start.npz", **{name: rng.standard_normal(size).astype(np.float32) for name, size in start.items()})
    folder = bench.train("runs")
    assert bench.run("predict", folder, "--fetch", "logits", "--out", bench.base / "adapted.npz") == 0, bench.err
    assert bench.run("export", folder, "--safetensors", bench.base / "merged.safetensors") == 0, bench.err
    assert read_safetensors(bench.base / "merged.safetensors").keys() == start.keys()
    plain = ["-o", "train.adapt=null", "-o", "train.groups=[]", "--checkpoint", bench.base / "merged.safetensors", "--fetch", "logits"]
    assert bench.run("predict", bench.base / "run.yaml", *plain, "--out", bench.base / "plain.npz") == 0, bench.err
    with np.load(bench.base / "adapted.npz") as ours, np.load(bench.base / "plain.npz") as merged:
        np.testing.assert_allclose(ours["logits"], merged["logits"], atol=2e-6, rtol=1e-5)
    # by hand: the table that both ends read
    last = checkpoint.load(folder)[0]
    with np.load(bench.base / "start.npz") as first:
        wide = first["table.w_0"] + 2 * last["table.lora_a"] @ last["table.lora_b"]
        np.testing.assert_allclose(read_safetensors(bench.base / "merged.safetensors")["table.w_0"], wide, atol=1e-6)
    assert np.abs(2 * last["table.lora_a"] @ last["table.lora_b"]).max() > 1e-3


@pytest.mark.parametrize(
    ("adapt", "trained"),
    [
        pytest.param("{type: bitfit}", ["b_0"], id="bitfit trains the biases"),
        pytest.param("{type: bitfit, targets: 'encoder/*', also: head}", ["encoder/0/query.b_0", "head.w_0"], id="and whole layers beside"),
        pytest.param("{type: adapter, size: 3, targets: '*/value'}", ["encoder/0/value.adapter_up_w"], id="small networks"),
    ],
)
def test_only_what_is_named_is_trained(bench: Bench, adapt: str, trained: list[str]) -> None:
    values = prepare(bench, f"adapt: {adapt}")
    folder = bench.train("runs")
    start, after = (checkpoint.load(folder / "checkpoints" / f"step-{n}")[0] for n in (0, 3))
    moved = {name for name in after if not np.array_equal(after[name], start[name])}
    biases = {name for name in values if name.endswith("b_0")}
    expected = {
        "{type: bitfit}": biases,
        "{type: bitfit, targets: 'encoder/*', also: head}": biases - {"first.b_0"} | {"head.w_0"},
    }.get(adapt, {name for name in after if "adapter" in name})
    assert moved == expected
    assert all(any(name.endswith(part) for name in moved) for part in trained)


def test_a_model_begins_as_it_is_and_networks_stay_beside_it(bench: Bench) -> None:
    """Small networks begin with an end of zeros: the first loss is that of the model alone; a network cannot be merged."""
    prepare(bench, "adapt: {type: adapter, size: 3, act: gelu, targets: '*/value'}")
    folder = bench.train("runs")
    alone = bench.train("alone", "-o", "train.adapt=null")
    records = [map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) for run in (folder, alone)]
    losses = [next(record["loss"] for record in run if "loss" in record) for run in records]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert bench.run("export", folder, "--safetensors", bench.base / "all.safetensors") == 0
    assert any("adapter_down" in name for name in read_safetensors(bench.base / "all.safetensors"))


@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_a_run_goes_on_bit_for_bit(bench: Bench, kind: str) -> None:
    prepare(bench, "adapt: {type: KIND, rank: 2, dropout: 0.25, targets: ['*/query']}".replace("KIND", kind))
    whole = checkpoint.load(bench.train("whole", "-o", "train.steps=4"))[0]
    part = bench.train("part", "-o", "train.steps=2")
    assert bench.run("train", "--resume", part, "--quiet", "-o", "train.steps=4") == 0, bench.err
    resumed = checkpoint.load(part)[0]
    assert {name: value.tobytes() for name, value in whole.items()} == {name: value.tobytes() for name, value in resumed.items()}


@pytest.mark.parametrize(
    ("adapt", "said"),
    [
        pytest.param("{type: lora, targets: ['*.qury']}", "did you mean 'query'?", id="a name that is close is named"),
        pytest.param("{type: lora, targets: ['*.b_0']}", "fits no weight that lora can adapt", id="a bias has no small matrices"),
        pytest.param("{type: lora, targets: [head], size: 3}", "train.adapt.size is for type: adapter", id="a key of another type"),
        pytest.param("{type: lora}", "must say which layers are adapted", id="nothing is named"),
        pytest.param("{type: lora, targets: [head], rank: 0}", "must be at least 1", id="no columns"),
        pytest.param("{type: lora, targets: [head], alpha: 0}", "must be > 0", id="counts nothing"),
        pytest.param("{type: lora, targets: [head], also: [heid]}", "did you mean 'head'?", id="what is trained beside is not there"),
        pytest.param("{type: bitfit, targets: ['*.w_0']}", "fits no bias", id="weights are no biases"),
        pytest.param("{type: adapter, targets: [head], act: rellu}", "did you mean 'relu'?", id="no such activation"),
        pytest.param("{type: adapter, targets: [hed]}", "did you mean 'head'?", id="no such layer"),
    ],
)
def test_what_cannot_be_adapted_is_said(bench: Bench, adapt: str, said: str) -> None:
    prepare(bench, f"adapt: {adapt}")
    assert bench.run("check", bench.base / "run.yaml") == 2
    assert said in bench.err


def test_a_base_of_random_values_is_refused(bench: Bench) -> None:
    prepare(bench, f"adapt: {LORA}")
    assert bench.run("train", bench.base / "run.yaml", "--quiet", "-o", "train.init=null") == 3
    assert "frozen, and with random values: first.w_0" in bench.err


def test_check_states_what_is_trained_and_what_it_costs(bench: Bench) -> None:
    """Per sample: products of 5 layers of 4 x 4 and one of 4 x 1, of which only adapted ones have gradients of new matrices."""
    prepare(bench, "adapt: {type: lora, rank: 2, targets: ['*/query', 'head.b_0', head]}")
    assert bench.run("check", bench.base / "run.yaml") == 2  # head.b_0 alone is no weight
    prepare(bench, "adapt: {type: lora, rank: 2, targets: ['*/query', head]}")
    assert bench.run("check", bench.base / "run.yaml") == 0, bench.err
    line = next(line for line in bench.out.splitlines() if "train.adapt" in line)
    new = 2 * (4 * 2 + 2 * 4) + (4 * 2 + 2 * 1)
    assert f"lora beside 3 weights trains {new} of {5 * 20 + 5 + new} values" in line
    forward = 2 * (5 * 16 + 4)
    whole = 3 * forward - 2 * 16  # the first layer has no gradient of what is fed
    small = 2 * (2 * 16 + 10)  # x A and their product with B
    base_back = 2 * (3 * 16 + 4)  # back to the first adapted layer, whose input needs none
    assert f"{whole:,}" in line.rpartition("without")[2]
    ours = int(line.partition(" FLOPs")[0].rpartition(" ")[2].replace(",", ""))
    assert forward + base_back + 3 * small - 2 * 8 == ours


@pytest.mark.parametrize(
    ("by_depth", "rates"),
    [
        pytest.param("{decay: 0.5}", {"first": 0.125, "encoder/0/query": 0.25, "encoder/1/value": 0.5, "head": 1.0}, id="by repetition"),
        pytest.param("{decay: 0.5, freeze: 2}", {"first": 0, "encoder/0/query": 0, "encoder/1/value": 0.5, "head": 1.0}, id="some stay"),
        pytest.param(
            "{decay: 0.1, levels: [[first, 'encoder/0/*'], 'encoder/1/*', head]}",
            {"first": 0.01, "encoder/0/query": 0.01, "encoder/1/value": 0.1, "head": 1.0},
            id="levels by name",
        ),
    ],
)
def test_rates_fall_towards_the_input(bench: Bench, by_depth: str, rates: dict[str, float]) -> None:
    values = prepare(bench, f"by_depth: {by_depth}")
    assert bench.run("summary", bench.base / "run.yaml", "--json") == 0
    found = {m["parameter"]: 0 if m["frozen"] else m["rate"] for m in json.loads(bench.out)["groups"]}
    for layer, rate in rates.items():
        assert found[f"{layer}.w_0"] == pytest.approx(rate)
        assert found[f"{layer}.b_0"] == pytest.approx(rate)
    after = checkpoint.load(bench.train("runs", "-o", "train.steps=1"))[0]
    alike = checkpoint.load(bench.train("alike", "-o", "train.steps=1", "-o", "train.by_depth=null"))[0]
    for layer, rate in rates.items():  # a step of SGD is its rate times what it is without
        name = f"{layer}.w_0"
        np.testing.assert_allclose(after[name] - values[name], rate * (alike[name] - values[name]), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("by_depth", "said"),
    [
        pytest.param("{freeze: 4}", "the model has 4 levels", id="nothing would be trained"),
        pytest.param("{decay: 0}", "must be > 0", id="no rate at all"),
        pytest.param("{levels: [head]}", "must say what differs by depth", id="nothing differs"),
        pytest.param("{decay: 0.5, levels: [heat]}", "did you mean 'head'?", id="no such layer"),
    ],
)
def test_levels_that_there_are_not_are_said(bench: Bench, by_depth: str, said: str) -> None:
    prepare(bench, f"by_depth: {by_depth}")
    assert bench.run("check", bench.base / "run.yaml") == 2
    assert said in bench.err


def test_a_model_without_repetitions_asks_for_levels(bench: Bench) -> None:
    prepare(bench, "by_depth: {decay: 0.5}", MODEL.replace(", repeat: 2", ""))
    assert bench.run("check", bench.base / "run.yaml") == 2
    assert "no block of the model repeats" in bench.err
