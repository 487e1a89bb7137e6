"""train.phases: several losses with optimizers of their own, one after the other in every step."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from tests.session.conftest import Bench

#: A critic that tells real points from made ones; both uses of it share its parameters. The noise is data here, so that others can have it.
MODEL = """\
name: tiny_gan
feeds:
  real:  {shape: [2]}
  noise: {shape: [3]}
blocks:
  judge:
    args: {input: ~}
    layers:
      hidden: {type: fc, input: input, size: 6, act: tanh, param_attr: {name: critic/hidden.w}, bias_attr: {name: critic/hidden.b}}
      score:  {type: fc, size: 1, param_attr: {name: critic/score.w}, bias_attr: {name: critic/score.b}}
    output: score
  generate:
    args: {input: ~}
    layers:
      hidden: {type: fc, input: input, size: 5, act: tanh}
      point:  {type: fc, size: 2}
    output: point
layers:
  generator: {block: generate, input: noise}
  of_real:   {block: judge, input: real}
  of_fake:   {block: judge, input: generator}
  ones:      {type: fill_constant_batch_size_like, input: noise, shape: [-1, 1], dtype: float32, value: 1.0}
  zeros:     {type: fill_constant_batch_size_like, input: noise, shape: [-1, 1], dtype: float32, value: 0.0}
  miss_real: {type: sigmoid_cross_entropy_with_logits, x: of_real, label: ones}
  miss_fake: {type: sigmoid_cross_entropy_with_logits, x: of_fake, label: zeros}
  misses:    {type: elementwise_add, x: miss_real, y: miss_fake}
  d_loss:    {type: mean, x: misses}
  fooled:    {type: sigmoid_cross_entropy_with_logits, x: of_fake, label: ones}
  g_loss:    {type: mean, x: fooled}
fetches: [d_loss, g_loss]
"""
CRITIC = "{name: critic, loss: d_loss, parameters: 'critic/*', optimizer: {type: Adam, learning_rate: 0.02}, repeat: 2}"
GENERATOR = (
    "{name: generator, loss: g_loss, parameters: generator/*,"
    " optimizer: {type: Momentum, momentum: 0.9, learning_rate: {type: exponential_decay, learning_rate: 0.1, decay_steps: 5, decay_rate: 0.7}}}"
)
CONFIG = f"""\
model: model.yaml
data: {{train: {{reader: npz, file: data.npz}}}}
train:
  phases:
    - {CRITIC}
    - {GENERATOR}
  epochs: 2
  batch_size: 12
fetches: {{d_loss: {{every: 1 steps}}, g_loss: {{every: 1 steps}}}}
executor: {{devices: 1, seed: 3}}
output: {{dir: runs, checkpoint: {{every: 3 steps, keep: 9}}}}
"""
SIZES = {"critic/hidden": (2, 6), "critic/score": (6, 1), "generator/hidden": (3, 5), "generator/point": (5, 2)}


@pytest.fixture
def gan(bench: Bench) -> Bench:
    """A GAN with first values and 116 samples: four steps of 24 an epoch, and one of 20."""
    rng = np.random.default_rng(4)
    np.savez(bench.base / "data.npz", real=rng.standard_normal((116, 2)).astype(np.float32) + 1, noise=rng.random((116, 3), np.float32))
    values = {}
    for layer, size in SIZES.items():
        ending = "" if layer.startswith("critic") else "_0"
        values[f"{layer}.w{ending}"] = rng.standard_normal(size).astype(np.float32)
        values[f"{layer}.b{ending}"] = rng.standard_normal(size[1]).astype(np.float32)
    np.savez(bench.base / "start.npz", **values)
    (bench.base / "model.yaml").write_text(MODEL)
    (bench.base / "run.yaml").write_text(CONFIG)
    return bench


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def by_pytorch(base: Path, accumulate: int = 1) -> tuple[dict[str, np.ndarray], list[tuple[float, float]]]:
    """Return the parameters after two epochs, and the mean of each loss in every step."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits as bce

    with np.load(base / "start.npz") as start, np.load(base / "data.npz") as data:
        p = {name: torch.tensor(start[name], requires_grad=True) for name in start.files}
        real, noise = torch.tensor(data["real"]), torch.tensor(data["noise"])
    critic, generator = ([t for n, t in p.items() if n.startswith(part)] for part in ("critic", "generator"))
    first, second = torch.optim.Adam(critic, 0.02), torch.optim.SGD(generator, 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(second, lambda step: 0.7 ** (step / 5))

    def judge(x):
        return torch.tanh(x @ p["critic/hidden.w"] + p["critic/hidden.b"]) @ p["critic/score.w"] + p["critic/score.b"]

    def make(z):
        return torch.tanh(z @ p["generator/hidden.w_0"] + p["generator/hidden.b_0"]) @ p["generator/point.w_0"] + p["generator/point.b_0"]

    losses = []
    size = 24 * accumulate
    for _ in range(2):
        for begin in range(0, len(real), size):
            x, z = real[begin : begin + size], noise[begin : begin + size]
            half, found = len(x) // 2, []
            for part in (slice(0, half), slice(half, None)):
                made = judge(make(z[part]).detach())
                d_loss = (
                    bce(judge(x[part]), torch.ones(len(made), 1)) + bce(made, torch.zeros(len(made), 1))
                )
                first.zero_grad()
                d_loss.backward()
                first.step()
                found.append(d_loss.item())
            g_loss = bce(judge(make(z[half:])), torch.ones(len(z) - half, 1))
            second.zero_grad()
            g_loss.backward()
            second.step()
            schedule.step()
            losses.append((sum(found) / 2, g_loss.item()))
    return {name: t.detach().numpy() for name, t in p.items()}, losses


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_ten_steps_are_those_of_pytorch(gan: Bench, devices: int, accumulate: int) -> None:
    pytest.importorskip("torch")
    folder = gan.train("runs", "-o", "train.init={from: start.npz}", "-o", f"executor.devices={devices}", "-o", f"train.accumulate={accumulate}")
    theirs, losses = by_pytorch(gan.base, accumulate)
    assert len(losses) == 10 // accumulate + (accumulate > 1)
    ours = checkpoint.load(folder)[0]
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=2e-5, atol=2e-6, err_msg=name)
    lines = metrics(folder)
    np.testing.assert_allclose([(line["d_loss"], line["g_loss"]) for line in lines], losses, rtol=2e-5)
    assert {"critic/learning_rate", "generator/learning_rate"} <= set(lines[0])


def test_a_phase_computes_no_gradient_for_others_and_no_layer_that_it_does_not_need(gan: Bench) -> None:
    assert gan.run("graph", gan.base / "run.yaml", "--phase", "critic") == 0
    critic = gan.out
    assert gan.run("graph", gan.base / "run.yaml", "--phase", "generator") == 0
    assert "generator/point.w_0@GRAD" in gan.out
    assert "generator/point.w_0@GRAD" not in critic
    assert "critic/score.w@GRAD" in critic
    assert "critic/score.w@GRAD" not in gan.out
    assert "of_real" in critic
    assert "of_real" not in gan.out
    assert "g_loss" not in critic


@pytest.mark.parametrize("devices", [1, 2])
def test_a_resumed_run_has_the_same_bits(gan: Bench, devices: int) -> None:
    options = ("-o", f"executor.devices={devices}", "-o", "data.train.shuffle=true", "-o", "train.ema={decay: 0.9}")
    whole = gan.train("whole", *options)
    part = gan.train("part", *options, "--max-steps", "4")
    assert gan.run("train", "--resume", part, "--quiet") == 0, gan.err
    assert gan.seen(part) == gan.seen(whole)
    names = set(checkpoint.load(whole)[0])
    assert {"critic/critic/score.w_moment1_0", "generator/generator/point.w_0_velocity_0"} <= names
    assert "critic/generator/point.w_0_moment1_0" not in names


def test_what_was_recorded_is_verified_and_replayed(gan: Bench) -> None:
    folder = gan.train("runs")
    assert gan.run("verify", folder) == 0, gan.err
    assert gan.run("replay", folder, "--step", "4", "--json") == 0, gan.err
    assert {"critic/score.w@GRAD", "generator/point.w_0@UPDATE"} <= set(json.dumps(json.loads(gan.out)).replace('"', " ").split())
