"""Strategies and feeds of a run file, from YAML to trained values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.execute.executor import Executor
from pe_cli.session.job import Job
from pe_cli.session.training.loop import Trainer

MODEL = """\
name: small
feeds:
  x: {shape: [4]}
  y: {shape: [1]}
  rate: {shape: [1], replicate: true}
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
  train: {reader: synthetic, samples: 40, fields: {x: {shape: [4]}, y: {shape: [1]}}}
  eval: {reader: synthetic, samples: 20, fields: {x: {shape: [4]}, y: {shape: [1]}}}
feeds: {x: x, y: y, rate: {value: 0.2}}
train: {loss: loss, epochs: 2, batch_size: 8, optimizer: {type: SGD, learning_rate: rate}}
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
        Trainer(job).train()
        return {name: job.scope.get(name) for name in ("hidden.w_0", "hidden.b_0", "out.w_0")}

    return train


def test_a_fed_learning_rate_is_the_number(trained):
    fed, number = trained(), trained("train.optimizer.learning_rate=0.2")
    assert all(np.array_equal(fed[name], number[name]) for name in fed)
    slower = trained("feeds.rate={value: 0.1}")
    assert not np.array_equal(fed["out.w_0"], slower["out.w_0"])


@pytest.mark.parametrize(
    "options",
    [
        ("build_strategy.reduce_strategy=Reduce",),
        ("build_strategy.fuse_all_optimizer_ops=true",),
        ("build_strategy.enable_sequential_execution=true", "exec_strategy.allow_op_delay=true"),
        ("exec_strategy.num_threads=3",),
    ],
    ids=lambda o: o[0],
)
def test_strategies_on_two_devices_train_to_the_same_values(trained, options):
    expected = trained()
    found = trained("executor.devices=2", *options)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6)


def test_a_customized_gradient_of_one_is_the_usual_step(trained):
    usual = trained()
    fed = trained("build_strategy.gradient_scale_strategy=Customized", "feeds.loss@GRAD={value: 1.0}")
    assert all(np.array_equal(usual[name], fed[name]) for name in usual)


@pytest.mark.parametrize(
    ("override", "part"),
    [
        pytest.param("feeds.rate=x", "feed 'rate' has no batch axis", id="a field for a feed without batch axis"),
        pytest.param("feeds.x={value: 1.0}", "feed 'x' has a batch axis", id="a value for a feed with batch axis"),
        pytest.param("feeds.x={scale: 2.0}", "feed 'x' needs either from or value", id="neither field nor value"),
        pytest.param(
            "build_strategy.gradient_scale_strategy=Customized", "feed 'loss@GRAD' gets no data", id="nothing fed"
        ),
    ],
)
def test_feeds_that_fit_no_source_are_named(trained, override, part):
    with pytest.raises(PeError) as caught:
        trained(override)
    assert part in str(caught.value)


def test_graphs_are_drawn_to_a_folder_of_the_run_that_is_made(trained, tmp_path):
    trained("build_strategy.debug_graphviz_path=pictures/step_")
    (run,) = (tmp_path / "runs").iterdir()
    drawn = sorted(p.name for p in (run / "pictures").iterdir())
    assert drawn == ["step_fused_graph.dot", "step_multi_devices_graph.dot", "step_original_graph.dot"]
    assert "digraph" in (run / "pictures" / drawn[0]).read_text()


@pytest.mark.parametrize(("every", "times"), [(100, 0), (4, 2), (1, 10)])
def test_temporaries_are_dropped_every_so_many_steps(trained, monkeypatch, every, times):
    dropped = []
    monkeypatch.setattr(Executor, "drop_unused", lambda self: dropped.append(self))
    trained(f"exec_strategy.num_iteration_per_drop_scope={every}")  # 2 epochs of 5 steps
    assert len(dropped) == times
