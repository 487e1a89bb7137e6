"""Whole models: a training step on CUDA is the CPU's, to rounding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.build.build import load_and_build
from pe_cli.cli.main import run as command
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.cuda import DEVICE
from pe_cli.devices.scope import Scope
from pe_cli.execute.diagnostics.hang_report import hang_report
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.io.checkpoint import load
from tests.rotation import of_today, on_its_day

MLP = """
name: mlp
feeds:
  image: {shape: [9], dtype: float32}
  label: {shape: [1], dtype: int64}
layers:
  hidden: {type: fc, input: image, size: 8, act: tanh}
  kept:   {type: dropout, dropout_prob: 0.25, dropout_implementation: upscale_in_train}
  logits: {type: fc, size: 3}
  xent:   {type: softmax_with_cross_entropy, logits: logits, label: label}
  loss:   {type: mean, x: xent}
  prob:   {type: softmax, input: logits}
  acc:    {type: accuracy, input: prob, label: label}
fetches: [loss, acc]
"""
LENET = """
name: lenet
feeds:
  image: {shape: [1, 8, 8], dtype: float32}
  label: {shape: [1], dtype: int64}
layers:
  conv1:  {type: conv2d, input: image, num_filters: 3, filter_size: 3, act: relu}
  pool1:  {type: pool2d, pool_size: 2, pool_stride: 2}
  conv2:  {type: conv2d, num_filters: 4, filter_size: 2, act: relu}
  pool2:  {type: pool2d, pool_size: 2, pool_stride: 1, pool_type: avg}
  hidden: {type: fc, size: 5, act: relu}
  logits: {type: fc, size: 3}
  xent:   {type: softmax_with_cross_entropy, logits: logits, label: label}
  loss:   {type: mean, x: xent}
fetches: [loss]
"""
RESIDUAL = """
name: residual
feeds:
  image: {shape: [2, 5, 5], dtype: float32}
  label: {shape: [1], dtype: int64}
layers:
  stem:   {type: conv2d, input: image, num_filters: 3, filter_size: 3, padding: 1, bias_attr: false}
  first:  {type: batch_norm, act: relu}
  a:      {type: conv2d, num_filters: 3, filter_size: 3, padding: 1, bias_attr: false}
  norm:   {type: batch_norm, input: a}
  sum:    {type: elementwise_add, x: norm, y: first, act: relu}
  logits: {type: fc, size: 3, act: tanh}
  xent:   {type: softmax_with_cross_entropy, logits: logits, label: label}
  loss:   {type: mean, x: xent}
fetches: [loss]
"""
WORDS = """
name: words
feeds:
  image: {shape: [5], dtype: float32}
  label: {shape: [1], dtype: int64}
layers:
  above:  {type: relu, x: image}
  ids:    {type: cast, x: above, dtype: int64}
  column: {type: unsqueeze, input: ids, axes: [2]}
  word:   {type: embedding, input: column, size: [9, 4], is_sparse: true}
  seen:   {type: multi_head_attention, input: word, num_heads: 2, causal: true, qkv_bias_attr: false}
  read:   {type: lstm, input: seen, hidden_size: 3}
  last:   {type: reduce_mean, input: read.0, dim: [1]}
  logits: {type: fc, input: last, size: 3}
  xent:   {type: softmax_with_cross_entropy, logits: logits, label: label}
  loss:   {type: mean, x: xent}
fetches: [loss]
"""
PASSES = (
    "{fuse_bn_add_act_ops: true, fuse_bn_act_ops: true, fuse_elewise_add_act_ops: true, fuse_all_optimizer_ops: true, enable_addto: true}"
)
ADAM = "{type: Adam, learning_rate: 0.05}"
MOMENTUM = (
    "{type: Momentum, momentum: 0.9, learning_rate: {type: piecewise_decay, boundaries: [2], values: [0.1, 0.02]}, "
    "regularization: {type: L2Decay, regularization_coeff: 1e-3}}"
)


def batch(shape: tuple[int, ...], seed: int, classes: int = 3) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {
        "image": rng.standard_normal((4, *shape)).astype("float32"),
        "label": rng.integers(0, classes, (4, 1)),
    }


def train(folder: Path, model: str, optimizer: str, place: Place, shape: tuple[int, ...], passes: str = "{}") -> tuple[Any, Any]:
    """Return the losses of four steps and the parameters after them."""
    (folder / "model.yaml").write_text(model)
    (folder / "run.yaml").write_text(
        f"model: model.yaml\ntrain: {{loss: loss, epochs: 1, batch_size: 4, optimizer: {optimizer}}}\n"
        f"executor: {{seed: 3}}\nbuild_strategy: {passes}\n"
    )
    run, built = load_and_build(folder / "run.yaml")
    scope = Scope([place])
    run_startup(built.startup, scope, run.executor.seed)
    assert built.train is not None
    executor = Executor(built.train, scope, build=run.build_strategy, seed=run.executor.seed)
    name = built.fetches["loss"]
    losses = [float(executor.run(batch(shape, step), [name], step).values[0][name].item()) for step in range(4)]
    return losses, {name: scope.get(name) for name in scope}


@pytest.mark.parametrize(
    ("model", "optimizer", "shape", "passes"),
    of_today([
        pytest.param(MLP, ADAM, (9,), "{}", id="a perceptron with dropout and Adam"),
        pytest.param(LENET, MOMENTUM, (1, 8, 8), "{}", id="a small LeNet with momentum, decay and a schedule"),
        pytest.param(MLP, ADAM, (9,), PASSES, id="a perceptron whose updates are one op"),
        pytest.param(MLP, "{type: AdamW, learning_rate: 0.05}", (9,), PASSES, id="a perceptron with a decay apart from the gradient"),
        pytest.param(RESIDUAL, MOMENTUM, (2, 5, 5), PASSES, id="a residual block with every pass"),
        pytest.param(RESIDUAL, "{type: Lamb, learning_rate: 0.01}", (2, 5, 5), "{}", id="a residual block with Lamb"),
        pytest.param(WORDS, ADAM, (5,), "{}", id="sparse embeddings, attention and an LSTM with Adam"),
        pytest.param(WORDS, "{type: SGD, learning_rate: 0.1}", (5,), "{}", id="sparse embeddings, attention and an LSTM with SGD"),
    ], 8),
)  # fmt: skip
def test_four_steps_are_those_of_the_cpu(tmp_path, model: str, optimizer: str, shape: tuple[int, ...], passes: str):
    expected, weights = train(tmp_path, model, optimizer, Place("cpu", 0), shape)
    found, moved = train(tmp_path, model, optimizer, Place("cuda", 0), shape, passes)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert set(moved) == set(weights)
    for name, value in weights.items():
        np.testing.assert_allclose(moved[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_label_out_of_range_is_the_same_error_as_on_the_cpu(tmp_path):
    (tmp_path / "model.yaml").write_text(MLP)
    (tmp_path / "run.yaml").write_text(
        f"model: model.yaml\ntrain: {{loss: loss, epochs: 1, batch_size: 4, optimizer: {ADAM}}}\n"
    )
    run, built = load_and_build(tmp_path / "run.yaml")
    messages = []
    for place in (Place("cpu", 0), Place("cuda", 0)):
        scope = Scope([place])
        run_startup(built.startup, scope, 0)
        assert built.train is not None
        executor = Executor(built.train, scope, build=run.build_strategy)
        good, bad = batch((9,), 0), batch((9,), 0)
        bad["label"][2] = 12
        with pytest.raises(PeError) as caught:
            executor.run(bad, [], 7)
        assert caught.value.code == ExitCode.DATA
        messages.append(str(caught.value))
        executor.run(good, [], 8)  # the report does not stay
    assert messages[0] == messages[1]
    assert "12" in messages[1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8", "bool"])
def test_memory_gives_back_what_was_written(dtype: str):
    memory = DEVICE.allocate(0, 256)
    kind = TensorType((3, 4), dtype)
    assert not memory.read(64, kind).any(), "memory starts as zeros"
    value = np.arange(12).reshape(3, 4).astype(dtype)
    memory.write(64, kind, value)
    np.testing.assert_array_equal(memory.read(64, kind), value)
    memory.write(64, kind, value.T.reshape(4, 3).T)  # any order of memory
    np.testing.assert_array_equal(memory.read(64, kind), value.T.reshape(4, 3).T)
    assert memory.read(0, TensorType((0, 4), dtype)).shape == (0, 4)


def test_a_timed_step_gives_the_same_and_says_when_each_kernel_ran(tmp_path):
    (tmp_path / "model.yaml").write_text(MLP)
    (tmp_path / "run.yaml").write_text(
        f"model: model.yaml\ntrain: {{loss: loss, epochs: 1, batch_size: 4, optimizer: {ADAM}}}\n"
    )
    run, built = load_and_build(tmp_path / "run.yaml")
    scope = Scope([Place("cuda", 0)])
    run_startup(built.startup, scope, 0)
    executor = Executor(built.eval, scope, build=run.build_strategy)
    name = built.fetches["loss"]
    feed = batch((9,), 0)
    ran = executor.run(feed, [name])
    (plain,), sizes = ran.values, ran.sizes
    types = [{k: TensorType(a.shape, str(a.dtype)) for k, a in feed.items()}]
    plan = executor.plan(types, sizes, [name])
    plan.watch(60.0, hang_report)  # a watched step that gets on is not ended
    (timed,), when = plan.run_timed([feed], 0)
    np.testing.assert_array_equal(timed[name], plain[name])
    assert len(when.work) > 0
    assert (when.begin[1:] >= when.end[:-1]).all(), "launches follow each other"
    assert when.start <= when.begin[0] <= when.end[-1] <= when.stop


def test_the_command_trains_evaluates_and_saves_on_cuda(tmp_path, capsys):
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "data.npz",
        image=rng.standard_normal((12, 9)).astype("float32"),
        label=rng.integers(0, 3, (12, 1)),
    )
    (tmp_path / "model.yaml").write_text(MLP)
    (tmp_path / "run.yaml").write_text(
        "model: model.yaml\n"
        "data: {train: {reader: npz, file: data.npz}, eval: {reader: npz, file: data.npz}}\n"
        "feeds: {image: image, label: label}\n"
        f"train: {{loss: loss, epochs: 2, batch_size: 4, optimizer: {ADAM}}}\n"
        "executor: {place: cuda, devices: 1, seed: 1}\n"
        f"output: {{dir: {tmp_path / 'runs'}, checkpoint: {{every: 1 epoch}}}}\n"
    )
    code = command(["train", str(tmp_path / "run.yaml")])
    assert code == ExitCode.DONE, capsys.readouterr().err
    (folder,) = (tmp_path / "runs").iterdir()
    assert list((folder / "checkpoints").iterdir())
    losses = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert losses


@on_its_day(1, of=2)
def test_a_stopped_run_goes_on_bit_for_bit_and_a_nan_is_named_on_cuda(tmp_path, capsys):
    rng = np.random.default_rng(0)
    image = rng.standard_normal((10, 9)).astype("float32")
    np.savez(tmp_path / "data.npz", image=image, label=rng.integers(0, 3, (10, 1)))
    (tmp_path / "model.yaml").write_text(MLP)
    (tmp_path / "run.yaml").write_text(
        "model: model.yaml\n"
        "data: {train: {reader: npz, file: data.npz, shuffle: true}}\n"
        "feeds: {image: image, label: label}\n"
        f"train: {{loss: loss, epochs: 2, batch_size: 2, accumulate: 2, ema: {{decay: 0.9}}, optimizer: {ADAM}}}\n"
        "executor: {place: cuda, devices: 1, seed: 1, check_nan_inf: true}\n"
    )

    def trained(into: str, *arguments: str) -> int:
        return command(["train", str(tmp_path / "run.yaml"), "--quiet", "-o", f"output.dir={tmp_path / into}", *arguments])

    assert trained("whole") == ExitCode.DONE, capsys.readouterr().err
    assert trained("pieces", "--max-steps", "2") == ExitCode.STOPPED
    assert trained("pieces", "--resume") == ExitCode.DONE, capsys.readouterr().err
    one, two = (load(next((tmp_path / into).iterdir()))[0] for into in ("whole", "pieces"))
    assert {n: a.tobytes() for n, a in one.items()} == {n: a.tobytes() for n, a in two.items()}
    image[7, 2] = np.inf
    np.savez(tmp_path / "data.npz", image=image, label=rng.integers(0, 3, (10, 1)))
    assert trained("bad") == ExitCode.DIVERGED
    assert "model.yaml:7:12: error: layer 'hidden': its result" in capsys.readouterr().err
