"""Gradients in parts: the same training as with a batch so many times larger."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.session.job import Job
from pe_cli.session.training.loop import Trainer

MODEL = """\
name: small
feeds:
  x: {shape: [4]}
  y: {shape: [1]}
layers:
  hidden: {type: fc, input: x, size: 6, act: tanh}
  out: {type: fc, size: 1}
  cost: {type: square_error_cost, input: out, label: y}
  loss: {type: mean, x: cost}
fetches: [loss]
"""
RUN = """\
model: model.yaml
data:
  train: {reader: synthetic, samples: 46, fields: {x: {shape: [4]}, y: {shape: [1]}}, shuffle: true}
  eval: {reader: synthetic, samples: 20, fields: {x: {shape: [4]}, y: {shape: [1]}}}
feeds: {x: x, y: y}
train: {loss: loss, epochs: 2, batch_size: 12, optimizer: {type: SGD, learning_rate: 0.2}}
fetches: {out: {every: 1 steps, to: out.jsonl}}
executor: {seed: 3, devices: 1}
output: {checkpoint: ~}
"""


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("model.yaml").write_text(MODEL)
    Path("run.yaml").write_text(RUN)

    def train(*overrides: str) -> dict[str, np.ndarray]:
        job = Job.open(Path("run.yaml"), overrides)
        job.initialise()
        result = Trainer(job).train()
        found = {name: job.scope.get(name) for name in ("hidden.w_0", "hidden.b_0", "out.w_0")}
        return {**found, "steps": np.array(result.step), "metrics": np.array(list(result.metrics.values()))} | {
            "fetched": np.array((result.folder / "fetches" / "out.jsonl").read_text().count("\n"))
        }

    return train


CLIPPED = (
    "train.optimizer={type: Momentum, momentum: 0.9, learning_rate: {type: exponential_decay, learning_rate: 0.2,"
    " decay_steps: 2, decay_rate: 0.7}, regularization: {type: L2Decay, regularization_coeff: 0.01},"
    " grad_clip: {type: GradientClipByGlobalNorm, clip_norm: 0.05}}"
)


@pytest.mark.parametrize(
    ("parts", "options"),
    [
        pytest.param(2, [], id="one device"),
        pytest.param(4, [CLIPPED], id="clipping, decay and schedule see whole steps"),
        pytest.param(3, ["executor.devices=3", CLIPPED], id="three devices"),
        pytest.param(3, ["executor.devices=2", "build_strategy.reduce_strategy=Reduce"], id="parameters with owners"),
        pytest.param(4, ["executor.devices=5", "exec_strategy.num_threads=2"], id="parts that not all devices get"),
        pytest.param(2, ["executor.devices=2", "build_strategy.fuse_all_optimizer_ops=true"], id="fused updates"),
    ],
)
def test_parts_train_as_a_batch_so_many_times_larger(trained, parts: int, options: list[str]) -> None:
    """46 samples make a last batch of 10, which no number of parts and devices here shares evenly."""
    expected = trained(*options)
    found = trained(*options, f"train.accumulate={parts}", f"train.batch_size={12 // parts}")
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=2e-6, err_msg=name)


def test_fewer_samples_than_parts(trained) -> None:
    """Batches of 15, 15, 15 and 1 samples, in 5 parts."""
    expected = trained("train.batch_size=15", "executor.devices=2")
    found = trained("train.batch_size=3", "train.accumulate=5", "executor.devices=2")
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-4, atol=2e-6, err_msg=name)


def test_threads_change_no_bit(trained) -> None:
    one, two = (
        trained("train.accumulate=2", "train.batch_size=6", "executor.devices=2", f"exec_strategy.num_threads={threads}")
        for threads in (1, 2)
    )
    assert all(np.array_equal(one[name], two[name]) for name in one)


def test_every_part_of_every_step_draws_numbers_of_its_own(trained) -> None:
    model = Path("model.yaml")
    noise = "  noise: {type: uniform_random_batch_size_like, input: x, shape: [-1, 3]}\n"
    model.write_text(model.read_text().replace("  hidden:", f"{noise}  hidden:"))
    trained("train.accumulate=3", "train.batch_size=4", "fetches={noise: {every: 1 steps, to: out.jsonl}}")
    (written,) = Path("runs").glob("*/fetches/out.jsonl")
    drawn = [str(json.loads(line)["noise"]) for line in written.read_text().splitlines()]
    assert len(drawn) >= 8
    assert len(set(drawn)) == len(drawn)


def test_a_fed_start_of_the_gradient_is_shared_out_too(trained) -> None:
    fed = ("build_strategy.gradient_scale_strategy=Customized", "feeds.loss@GRAD={value: 1.0}")
    expected, found = trained(*fed), trained(*fed, "train.accumulate=3", "train.batch_size=4")
    np.testing.assert_allclose(found["out.w_0"], expected["out.w_0"], rtol=2e-4)


@pytest.mark.parametrize(
    ("policy", "steps"), [pytest.param("drop", 8, id="drop"), pytest.param("weighted", 8, id="weighted")]
)
def test_uneven_batches(trained, policy: str, steps: int) -> None:
    found = trained(f"executor.uneven_batch={policy}", "executor.devices=2", "train.accumulate=2", "train.batch_size=6")
    assert found["steps"] == steps
    # the last batch has 10 samples: 4 for each of 4 shares would be too many, 2 are 8 of them
    assert found["fetched"] == (2 * 44 if policy == "drop" else 2 * 46)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(["executor.uneven_batch=error"], "10 samples cannot be split evenly over 1 devices in 3 parts", id="error"),
        pytest.param(["exec_strategy.num_iteration_per_run=2"], "can't be used together", id="several iterations"),
    ],
)
def test_what_cannot_be_done_in_parts(trained, options: list[str], said: str) -> None:
    with pytest.raises(PeError, match=said):
        trained("train.accumulate=3", "train.batch_size=4", *options)
