"""Build strategies and execution strategies: whatever is asked for, training gives the closed form."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.merge import merge
from pe_cli.graph.replicate import replicate, shared_variables
from pe_cli.graph.ssa import Reduce
from pe_cli.graph.text import describe
from tests.execute.test_executor import batch, classifier, reference, values
from tests.rotation import of_today, on_its_day

OPTIONS = [
    {},
    {"reduce_strategy": "Reduce"},
    {"fuse_all_reduce_ops": False},
    {"fuse_all_reduce_bytes": 100},
    {"fuse_all_optimizer_ops": True},
    {"enable_addto": False},
    {"enable_inplace": False},
    {"memory_optimize": False},
    {"enable_sequential_execution": True},
    {"enable_backward_optimizer_op_deps": False},
    {"remove_unnecessary_lock": False},
    {"cache_runtime_context": True},
]


def run(build: dict, execution: dict | None = None, devices: int = 2, sizes=(13, 8, 3, 2, 20)):
    scope = Scope([Place("cpu", d) for d in range(devices)])
    executor = Executor(
        classifier(), scope, build=BuildStrategy(**build), execution=ExecutionStrategy(**(execution or {}))
    )
    for name, value in values().items():
        scope.set(name, value)
    losses = []
    for step, samples in enumerate(sizes):
        ran = executor.run(batch(samples, step), ["loss"], step)
        out, weights = ran.values, ran.sizes
        losses.append(float(np.asarray(merge([v["loss"] for v in out], weights, "mean")).item()))
    return losses, {name: scope.get(name) for name in ("w0", "w1")}, executor


@on_its_day(1, of=3)
@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("option", OPTIONS, ids=lambda o: ", ".join(f"{k}={v}" for k, v in o.items()) or "defaults")
def test_every_option_gives_the_closed_form(option, devices, threads):
    losses, found, _ = run(option, {"num_threads": threads}, devices)
    expected, parameters = reference((13, 8, 3, 2, 20))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for name, value in parameters.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("first", "second"), of_today(list(itertools.product(OPTIONS[1:], OPTIONS[1:])), 3), ids=lambda o: next(iter(o))
)
def test_every_pair_of_options_changes_no_bit(first, second):
    expected, parameters, _ = run({})
    losses, found, _ = run({**first, **second})
    assert losses == expected
    assert all(np.array_equal(found[n], parameters[n]) for n in found)


@pytest.mark.parametrize("strategy", ["AllReduce", "Reduce"])
def test_devices_keep_one_copy_of_parameters(strategy):
    _, _, executor = run({"reduce_strategy": strategy}, devices=3)
    scope = executor.scope
    assert scope.spot("w0", 0).memory is scope.spot("w0", 2).memory
    _, _, alone = run({}, devices=1)
    assert scope.nbytes < 1.5 * alone.scope.nbytes  # the rate, which nothing updates, has three


def test_reduce_gives_each_parameter_an_owner_by_load():
    program = classifier()
    places = [Place("cpu", d) for d in range(2)]
    graph = replicate(program, places, BuildStrategy(reduce_strategy="Reduce"))
    homes = {node.names[0]: node.device for node in graph.nodes if isinstance(node, Reduce)}
    assert homes == {"w1@GRAD": 0, "w0@GRAD": 1}  # w1's gradient comes first; then device 1 has less to do
    updates = [(n.op.inputs["Param"][0], n.device) for n in graph.nodes if n.title == "sgd"]
    assert sorted(updates) == [("w0", 1), ("w1", 0)]
    assert shared_variables(program, places, BuildStrategy(reduce_strategy="Reduce")) == {"w0", "w1"}


def test_the_graphs_of_both_reduce_strategies_as_text():
    places = [Place("cpu", d) for d in range(2)]
    text = describe(replicate(classifier(), places, BuildStrategy(fuse_all_reduce_ops=False)))
    assert text.count(" all_reduce(") == 2
    assert text.count(" sgd(") == 4
    text = describe(replicate(classifier(), places, BuildStrategy(reduce_strategy="Reduce")))
    assert text.count(" reduce(") == 2
    assert text.count(" sgd(") == 2


def test_gradient_scale_one_adds_the_devices_up():
    _, found, _ = run({"gradient_scale_strategy": "One"}, sizes=(12,))
    _, plain, _ = run({}, sizes=(12,))
    start = values()
    for name in found:
        np.testing.assert_allclose(found[name] - start[name], 2 * (plain[name] - start[name]), rtol=1e-4, atol=1e-6)


def test_a_customized_gradient_is_fed():
    scope = Scope([Place("cpu", d) for d in range(2)])
    executor = Executor(classifier(), scope, build=BuildStrategy(gradient_scale_strategy="Customized"))
    for name, value in values().items():
        scope.set(name, value)
    executor.run({**batch(12, 0), "loss@GRAD": np.array([0.5], "float32")}, ["loss"])
    _, plain, _ = run({}, sizes=(12,))
    np.testing.assert_allclose(scope.get("w0"), plain["w0"], rtol=1e-5, atol=1e-7)


def test_several_iterations_a_run_are_several_steps():
    _, found, _ = run({}, {"num_iteration_per_run": 3}, sizes=(12,))
    _, once, _ = run({}, sizes=(12,))
    scope = Scope([Place("cpu", 0)])
    by_hand = Executor(classifier(), scope)
    for name, value in values().items():
        scope.set(name, value)
    for _ in range(3):
        by_hand.run(batch(12, 0), ["loss"])
    np.testing.assert_allclose(found["w0"], scope.get("w0"), rtol=1e-5, atol=1e-7)
    assert not np.array_equal(found["w0"], once["w0"])


def test_delayed_collectives_and_a_dry_run():
    losses, found, _ = run({}, {"allow_op_delay": True})
    expected, parameters, _ = run({})
    assert losses == expected
    assert np.array_equal(found["w1"], parameters["w1"])
    _, untouched, _ = run({}, {"dry_run": True})
    assert np.array_equal(untouched["w0"], values()["w0"])


def test_dropping_temporaries_forgets_shapes_out_of_use_unless_their_context_is_cached():
    for cached in (False, True):
        _, _, executor = run({"cache_runtime_context": cached}, sizes=(4, 6, 8))
        executor.drop_unused()
        executor.run(batch(4, 0), ["loss"])
        executor.drop_unused()
        assert len(executor.plans) == (3 if cached else 1)
        executor.drop()
        assert not executor.plans


def test_steps_exclude_each_other_where_locks_are_kept():
    _, _, executor = run({"remove_unnecessary_lock": False}, sizes=(4,))
    threads = [threading.Thread(target=executor.run, args=(batch(4, 0), ["loss"])) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert np.isfinite(executor.scope.get("w0")).all()


def norm_program(momentum: float = 0.9):
    from pe_cli.program.backward import append_backward
    from pe_cli.program.ir import Program, Role

    program = Program("norm")
    block = program.global_block()
    block.create_var("x", TensorType((-1, 3, 4, 4)), is_data=True, stop_gradient=True)
    block.create_var("lr", TensorType((1,)), persistable=True, stop_gradient=True)
    block.create_parameter("k", TensorType((5, 3, 3, 3)))
    for name in ("g", "b"):
        block.create_parameter(name, TensorType((5,)))
    for name in ("mean", "variance"):
        block.create_var(name, TensorType((5,)), persistable=True, stop_gradient=True)
    block.append_op("conv2d", {"Input": "x", "Filter": "k"}, {"Output": "c"}, {"paddings": [1, 1]})
    ins = {"X": "c", "Scale": "g", "Bias": "b", "Mean": "mean", "Variance": "variance"}
    outs = {"Y": "n", "MeanOut": "mean", "VarianceOut": "variance", "SavedMean": "sm", "SavedVariance": "sv"}
    block.append_op("batch_norm", ins, outs, {"momentum": momentum})
    block.append_op("tanh", {"X": "n"}, {"Out": "t"})
    block.append_op("square", {"X": "t"}, {"Out": "s"})
    block.append_op("mean", {"X": "s"}, {"Out": "loss"})
    for parameter, gradient in append_backward(block.var("loss")):
        with program.role(Role.OPTIMIZE, [parameter.name, gradient.name]):
            block.append_op(
                "sgd", {"Param": parameter, "Grad": gradient, "LearningRate": "lr"}, {"ParamOut": parameter}
            )
    return program


def train_norm(devices: int, **build: object):
    scope = Scope([Place("cpu", d) for d in range(devices)])
    executor = Executor(norm_program(), scope, build=BuildStrategy(**build))  # type: ignore[arg-type]
    rng = np.random.default_rng(4)
    start = {"k": rng.standard_normal((5, 3, 3, 3)), "g": rng.uniform(0.5, 1.5, 5), "b": rng.standard_normal(5)}
    for name, value in {**start, "lr": np.array([0.5])}.items():
        scope.set(name, value.astype("float32"))
    for step in range(3):
        x = np.random.default_rng(step).standard_normal((7, 3, 4, 4)).astype("float32") * 3 + 1
        executor.run({"x": x}, ["loss"], step)
    return {name: scope.get(name) for name in ("k", "g", "b", "mean", "variance")}


@pytest.mark.parametrize("data_layout", ["auto", "keep"])
@pytest.mark.parametrize("devices", [2, 3])
def test_synchronised_batch_norm_on_several_devices_is_batch_norm_on_one(devices, data_layout):
    one = train_norm(1)
    several = train_norm(devices, sync_batch_norm=True, data_layout=data_layout)
    for name in one:
        np.testing.assert_allclose(several[name], one[name], rtol=1e-4, atol=1e-5, err_msg=name)
    apart = train_norm(devices)
    assert not np.allclose(apart["g"], one["g"], rtol=1e-4)


def test_running_statistics_follow_also_when_devices_stay_idle():
    scope = Scope([Place("cpu", d) for d in range(3)])
    executor = Executor(norm_program(), scope)
    scope.set("k", np.ones((5, 3, 3, 3), "float32"))
    scope.set("g", np.ones(5, "float32"))
    x = np.random.default_rng(0).standard_normal((1, 3, 4, 4)).astype("float32") + 2
    ran = executor.run({"x": x}, ["c"])
    out, sizes = ran.values, ran.sizes
    assert sizes == [1]
    np.testing.assert_allclose(scope.get("mean"), 0.1 * out[0]["c"].mean((0, 2, 3)), rtol=1e-4)
