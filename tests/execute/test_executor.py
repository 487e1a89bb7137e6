"""The executor on one and several CPU devices: the same values whatever devices, threads and batch sizes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.cpu import CpuStep
from pe_cli.devices.scope import Scope
from pe_cli.execute.batch_split import samples_before, split_sizes
from pe_cli.execute.executor import Executor
from pe_cli.execute.merge import merge
from pe_cli.execute.plan.plan_cache import MAX_PLANS
from pe_cli.program.backward import append_backward
from pe_cli.program.ir import Program, Role

WIDTHS = (12, 16, 5)


def classifier() -> Program:
    """Two layers, softmax cross entropy, SGD; the parameters are w0 and w1."""
    program = Program("classifier")
    block = program.global_block()
    block.create_var("x", TensorType((-1, WIDTHS[0])), is_data=True, stop_gradient=True)
    block.create_var("y", TensorType((-1, 1), "int64"), is_data=True, stop_gradient=True)
    block.create_var("lr", TensorType((1,)), persistable=True, stop_gradient=True)
    last = "x"
    for i, (rows, columns) in enumerate(itertools.pairwise(WIDTHS)):
        block.create_parameter(f"w{i}", TensorType((rows, columns)))
        with program.place(Span("model.yaml", 3 + i, 7)):
            block.append_op("mul", {"X": last, "Y": f"w{i}"}, {"Out": f"h{i}"})
        last = f"h{i}"
        if i == 0:
            block.append_op("relu", {"X": last}, {"Out": "r"})
            last = "r"
    with program.place(Span("model.yaml", 9, 3)):
        block.append_op("softmax_with_cross_entropy", {"Logits": last, "Label": "y"}, {"Softmax": "p", "Loss": "xent"})
    block.append_op("mean", {"X": "xent"}, {"Out": "loss"})
    for parameter, gradient in append_backward(block.var("loss")):
        with program.role(Role.OPTIMIZE, [parameter.name, gradient.name]):
            ins = {"Param": parameter, "Grad": gradient, "LearningRate": "lr"}
            block.append_op("sgd", ins, {"ParamOut": parameter})
    return program


def values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    found = {f"w{i}": rng.standard_normal(s).astype("float32") for i, s in enumerate(itertools.pairwise(WIDTHS))}
    return {**found, "lr": np.array([0.1], "float32")}


def batch(samples: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((samples, WIDTHS[0])).astype("float32"),
        "y": rng.integers(0, WIDTHS[-1], (samples, 1)),
    }


def make(devices: int, threads: int = 0, **build: object) -> Executor:
    scope = Scope([Place("cpu", d) for d in range(devices)])
    executor = Executor(
        classifier(),
        scope,
        build=BuildStrategy(**build),
        execution=ExecutionStrategy(num_threads=threads),  # type: ignore[arg-type]
    )
    for name, value in values().items():
        scope.set(name, value)
    return executor


def train(executor: Executor, sizes=(13, 8, 3, 1, 20)) -> tuple[list[float], dict[str, np.ndarray]]:
    losses = []
    for step, samples in enumerate(sizes):
        ran = executor.run(batch(samples, step), ["loss"], step)
        out, weights = ran.values, ran.sizes
        losses.append(float(merge([v["loss"] for v in out], weights, "mean")[0]))
    return losses, {name: executor.scope.get(name) for name in ("w0", "w1")}


def reference(sizes=(13, 8, 3, 1, 20)) -> tuple[list[float], dict[str, np.ndarray]]:
    """The same training in float64 NumPy."""
    found = {k: v.astype("float64") for k, v in values().items()}
    losses = []
    for step, samples in enumerate(sizes):
        feed = batch(samples, step)
        x, y = feed["x"].astype("float64"), feed["y"][:, 0]
        h = x @ found["w0"]
        r = np.maximum(h, 0)
        logits = r @ found["w1"]
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        losses.append(float(-np.log(p[np.arange(samples), y]).mean()))
        d = p.copy()
        d[np.arange(samples), y] -= 1
        d /= samples
        g1, g0 = r.T @ d, x.T @ ((d @ found["w1"].T) * (h > 0))
        found["w0"] -= 0.1 * g0
        found["w1"] -= 0.1 * g1
    return losses, {k: found[k] for k in ("w0", "w1")}


@pytest.mark.parametrize("devices", [1, 2, 3, 5])
@pytest.mark.parametrize("share", [True, False])
def test_training_on_any_number_of_devices_gives_the_closed_form(devices, share):
    losses, found = train(make(devices, memory_optimize=share))
    expected, parameters = reference()
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for name, value in parameters.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_the_number_of_threads_changes_no_bit(devices):
    expected = train(make(devices, threads=1))
    for threads in (2, 3, 6):
        losses, found = train(make(devices, threads=threads))
        assert losses == expected[0]
        assert all(np.array_equal(found[name], expected[1][name]) for name in found)


def test_all_replicas_stay_equal_also_on_devices_without_samples():
    executor = make(3)
    train(executor)
    for name in ("w0", "w1"):
        first = executor.scope.get(name, 0)
        assert np.array_equal(first, executor.scope.get(name, 1))
        assert np.array_equal(first, executor.scope.get(name, 2))


def test_a_fetched_variable_is_not_overwritten_by_memory_reuse():
    plain, sharing = make(1, memory_optimize=False), make(1)
    names = [v.name for v in plain.program.list_vars() if not v.persistable and not v.is_data]
    one = plain.run(batch(6, 1), names).values
    for name in names:
        two = make(1).run(batch(6, 1), [name]).values
        assert np.array_equal(one[0][name], two[0][name]), name
    assert sharing.run(batch(6, 1), ["loss"]).values[0]["loss"] == one[0]["loss"]


def test_sharing_memory_needs_less_than_not_sharing():
    executor = make(1)
    executor.run(batch(64, 0), ["loss"])
    (plan,) = executor.plans.values()
    assert plan.memory[0].plan.nbytes < plan.memory[0].plan.unshared


def test_plans_for_many_batch_sizes_are_bounded():
    executor = make(1)
    for samples in range(1, 3 * MAX_PLANS):
        executor.run(batch(samples, 0), ["loss"])
    assert len(executor.plans) == MAX_PLANS


@pytest.mark.parametrize("devices", [1, 2])
def test_a_label_out_of_range_names_layer_row_and_value_and_training_goes_on(devices):
    executor = make(devices)
    feed = batch(8, 0)
    good = {k: v.copy() for k, v in feed.items()}
    feed["y"][3, 0] = 12
    with pytest.raises(PeError) as caught:
        executor.run(feed, ["loss"])
    assert caught.value.code == ExitCode.DATA
    assert str(caught.value.at) == "model.yaml:9:3"
    assert "12" in caught.value.message
    assert "[0, 5)" in caught.value.message
    executor.run(good, ["loss"])


@pytest.mark.parametrize(
    ("change", "part"),
    [
        pytest.param(
            {"x": np.zeros((8, 7), "float32")}, "feed 'x' should be float32[batch, 12], got [8, 7]", id="wrong shape"
        ),
        pytest.param(
            {"y": np.zeros((8, 1), "float32")}, "feed 'y' should be int64, got float32", id="wrong element type"
        ),
        pytest.param({"z": np.zeros(3)}, "no feed 'z'", id="unknown name"),
        pytest.param({"y": np.zeros((7, 1), "int64")}, "x has 8, y has 7", id="different lengths"),
    ],
)
def test_a_wrong_feed_is_named(change, part):
    with pytest.raises(PeError) as caught:
        make(1).run({**batch(8, 0), **change}, ["loss"])
    assert part in caught.value.message


def test_a_missing_feed_is_named():
    with pytest.raises(PeError, match="feed 'y' is missing"):
        make(1).run({"x": batch(8, 0)["x"]}, ["loss"])


def test_an_unknown_fetch_is_named_with_the_closest():
    with pytest.raises(PeError, match="did you mean 'loss'"):
        make(1).run(batch(8, 0), ["los"])


@pytest.mark.parametrize(
    ("samples", "devices", "sizes"),
    [(10, 2, [5, 5]), (3, 2, [1, 2]), (5, 4, [1, 1, 1, 2]), (2, 3, [1, 1, 0]), (0, 2, [0, 0])],
)
def test_a_batch_is_split_with_the_remainder_to_the_later_devices(samples, devices, sizes):
    assert split_sizes(samples, devices) == sizes
    assert [samples_before(samples, devices, d) for d in range(devices + 1)] == [0, *itertools.accumulate(sizes)]


def test_merging_weighs_by_samples():
    assert merge([np.array([1.0]), np.array([4.0])], [2, 1], "mean").tolist() == [2.0]
    assert merge([np.array([1.0]), np.array([4.0])], [2, 1], "sum").tolist() == [5.0]
    assert merge([np.array([[1.0]]), np.array([[4.0]])], [1, 1], "concat").tolist() == [[1.0], [4.0]]


def test_a_list_feeds_each_device_its_own_batch():
    feed = batch(9, 0)
    parts = [{k: v[:2] for k, v in feed.items()}, {k: v[2:] for k, v in feed.items()}]
    apart, together = make(2), make(1)
    ran = apart.run(parts, ["loss"])
    out, sizes = ran.values, ran.sizes
    assert sizes == [2, 7]
    expected = together.run(feed, ["loss"]).values
    np.testing.assert_allclose(merge([v["loss"] for v in out], sizes, "mean"), expected[0]["loss"], rtol=1e-6)
    np.testing.assert_allclose(apart.scope.get("w0"), together.scope.get("w0"), rtol=1e-5, atol=1e-7)


def test_a_list_of_the_wrong_length_is_an_error():
    with pytest.raises(PeError, match="3 feeds for 2 devices"):
        make(2).run([batch(4, 0)] * 3, ["loss"])


def test_of_steps_that_nobody_looks_at_one_more_is_open_when_another_begins(monkeypatch):
    """A device keeps what is read of the newest two steps: a third that begins would write over the first one's values."""
    running: list[int] = []
    ended: list[int] = []

    def start(self: CpuStep, step: int, wanted: object):
        running.append(step)

        def finish() -> tuple[None, list[np.ndarray]]:
            running.remove(step)
            ended.append(step)
            return None, [np.full((1,), step, "float32")]

        return finish

    monkeypatch.setattr(CpuStep, "start", start)
    executor = make(1)
    kept = [executor.run(batch(8, 0), ["loss"], step, late=True) for step in range(5)]
    assert running == [3, 4]
    assert ended == [0, 1, 2]
    assert [float(one.values[0]["loss"][0]) for one in kept] == [0, 1, 2, 3, 4]
    executor.run(batch(6, 0), ["loss"], 5, late=True)
    executor.run(batch(8, 0), ["loss"], 6, late=True)
    assert running == [6], "steps of another batch size have another plan, which waits for all before"
