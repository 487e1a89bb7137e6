"""Updates that CPU devices share: one copy of the parameters, whose elements are divided among the threads."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.merge import merge
from pe_cli.graph.passes import fuse_optimizer
from pe_cli.graph.ssa import Update
from pe_cli.layers.define.registry import find
from pe_cli.ops.fused.fused_optimizer import LINE, MIN_SHARE, shares_of
from pe_cli.optim.optimizers import OPTIMIZERS
from pe_cli.optim.regularizer import L2Decay
from pe_cli.optim.schedule import SCHEDULES
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program, Role
from tests.execute.support import latest
from tests.rotation import on_its_day

SETTINGS = {
    "SGD": {"regularization": L2Decay(0.01)},
    "Momentum": {"momentum": 0.9, "use_nesterov": True, "regularization": L2Decay(0.01)},
    "Adam": {},
    "AdamW": {"weight_decay": 0.1},
    "SGDW": {"weight_decay": 0.1},
    "MomentumW": {"momentum": 0.9, "use_nesterov": True},
    "Lion": {"weight_decay": 0.1},
    "RAdam": {"weight_decay": 0.1},
    "Adagrad": {},
    "LarsMomentum": {"momentum": 0.9},
}


def call(layer: str, *args, **given):
    return find(layer).fn(*args, **given)


def network(optimizer: str) -> tuple[Program, Program, str, Program]:
    """Three layers whose parameters take several shares, with a learning rate that decays; the last is without the updates."""
    main, startup = Program("main"), Program("startup")
    main.random_seed = startup.random_seed = 4
    with program_guard(main, startup):
        x = call("data", "x", [90])
        label = call("data", "label", [1], dtype="int64")
        hidden = call("fc", call("fc", x, 131, act="relu"), 77, act="tanh")
        loss = call("mean", call("softmax_with_cross_entropy", call("fc", hidden, 10), label))
        test = main.clone(for_test=True)
        rate = SCHEDULES["exponential_decay"](0.2, 1, 0.9)
        OPTIMIZERS[optimizer](learning_rate=rate, **SETTINGS[optimizer]).minimize(loss)
    return main, startup, loss.name, test


def batch(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    return {"x": rng.standard_normal((14, 90)).astype("float32"), "label": rng.integers(0, 10, (14, 1))}


def train(
    optimizer: str, devices: int, fetch: tuple[str, ...] = (), threads: int = 0, **build: object
) -> tuple[list[float], dict[str, np.ndarray], list[list[dict[str, np.ndarray]]]]:
    main, startup, loss, _ = network(optimizer)
    first = Scope([Place("cpu", 0)])
    Executor(startup, first, seed=4).run({})
    scope = Scope([Place("cpu", d) for d in range(devices)])
    scope.allocate({name: first.type(name) for name in first})
    for name in first:
        scope.set(name, first.get(name))
    execution = ExecutionStrategy(num_threads=threads)
    executor = Executor(main, scope, seed=4, build=BuildStrategy(**build), execution=execution)  # type: ignore[arg-type]
    losses, fetched = [], []
    for step in range(4):
        ran = executor.run(batch(step), [loss, *fetch], step)
        out, weights = ran.values, ran.sizes
        losses.append(float(merge([v[loss] for v in out], weights, "mean")[0]))
        fetched.append(out)
    return losses, {name: scope.get(name) for name in scope}, fetched


@pytest.mark.parametrize("optimizer", SETTINGS)
@pytest.mark.parametrize("devices", [2, 3])
def test_as_on_one_device(optimizer, devices):
    losses, values, _ = train(optimizer, 1)
    others, found, _ = train(optimizer, devices)
    np.testing.assert_allclose(others, losses, rtol=1e-5)
    loose = 5e-4 if optimizer in ("Adam", "AdamW", "Adagrad") else 2e-6  # a quotient of gradients near 0 has few digits
    for name, value in values.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=loose, err_msg=name)


@on_its_day(0, of=3)
@pytest.mark.parametrize("optimizer", SETTINGS)
@pytest.mark.parametrize(
    "build",
    [
        {"fuse_all_reduce_ops": False},
        {"fuse_all_optimizer_ops": False},
        {"fuse_all_optimizer_ops": False, "enable_auto_fusion": False},
        {"fuse_all_reduce_bytes": 1},
        {"enable_backward_optimizer_op_deps": True},
        {"memory_optimize": False, "enable_inplace": False},
    ],
    ids=str,
)
def test_however_the_work_is_divided_the_bits_are_the_same(optimizer, build):
    losses, values, _ = train(optimizer, 3)
    others, found, _ = train(optimizer, 3, **build)
    assert others == losses
    for name, value in values.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("optimizer", SETTINGS)
@pytest.mark.parametrize("build", [{"fuse_all_optimizer_ops": True}, {"enable_auto_fusion": True}], ids=str)
def test_on_one_device_joined_updates_give_the_bits_of_single_ones(optimizer, build):
    off: dict[str, object] = {"fuse_all_optimizer_ops": False, "enable_auto_fusion": False}
    losses, values, _ = train(optimizer, 1, **off)
    others, found, _ = train(optimizer, 1, **off | build)
    assert others == losses
    for name, value in values.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize(
    ("optimizer", "joined"),
    [
        pytest.param("AdamW", ["fused_adamw", "fused_adamw"], id="a decay apart from the gradient"),
        pytest.param("SGD", ["fused_sgd", "fused_sgd"], id="a decay of the gradient"),
    ],
)
def test_updates_with_different_decays_are_joined_apart(optimizer, joined):
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup):
        loss = call("mean", call("fc", call("fc", call("data", "x", [9]), 5), 3))
        for parameter in main.global_block().parameters():
            if parameter.name.endswith(".b_0"):
                parameter.weight_decay = 0.0
        OPTIMIZERS[optimizer](learning_rate=0.1, **SETTINGS[optimizer]).minimize(loss)
    made, said = fuse_optimizer.run(main, [])
    assert [op.type for op in made.global_block().ops if op.role is Role.OPTIMIZE] == joined
    assert said.startswith("fuse_all_optimizer_ops: 4 updates became 2")


@pytest.mark.parametrize("optimizer", ["Momentum", "Adam", "AdamW"])
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_change_no_bit(optimizer, threads):
    losses, values, _ = train(optimizer, 3, threads=3)
    others, found, _ = train(optimizer, 3, threads=threads)
    assert others == losses
    for name, value in values.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_what_is_fetched_is_the_same_on_every_device():
    """A fetched gradient is the sum on every device, so the update leaves adding it up to the all-reduce."""
    weight = "fc_0.w_0"
    losses, values, fetched = train("Momentum", 2, (f"{weight}@GRAD", weight, "learning_rate_0"))
    plain, others, _ = train("Momentum", 2)
    assert losses == plain
    for step, (one, two) in enumerate(fetched):
        for name in (f"{weight}@GRAD", weight, "learning_rate_0"):
            np.testing.assert_array_equal(one[name], two[name], err_msg=f"{name} at step {step}")
    np.testing.assert_array_equal(fetched[-1][1][weight], values[weight])
    np.testing.assert_allclose([out[0]["learning_rate_0"][0] for out in fetched], 0.2 * 0.9 ** np.arange(4), rtol=1e-6)
    for name, value in others.items():
        np.testing.assert_array_equal(values[name], value, err_msg=name)


def test_devices_hold_one_copy():
    main, *_ = network("Momentum")
    one, two = (Scope([Place("cpu", d) for d in range(n)]) for n in (1, 2))
    for scope in (one, two):
        Executor(main, scope)
    assert two.nbytes == one.nbytes


def test_a_plan_that_was_made_before_the_devices_shared_reads_the_shared_copy():
    """A program that only reads a variable comes first, with a copy on every device; then another updates it, and all share it."""
    kinds = {"rate": TensorType((1,))}
    reads, writes = Program("reads"), Program("writes")
    for program in (reads, writes):
        program.global_block().create_var("rate", kinds["rate"], persistable=True, stop_gradient=True)
    reads.global_block().append_op("square", {"X": "rate"}, {"Out": "seen"})
    with writes.role(Role.LR_SCHED):
        writes.global_block().append_op("scale", {"X": "rate"}, {"Out": "rate"}, {"scale": 3.0})
    scope = Scope([Place("cpu", d) for d in range(2)])
    reader = Executor(reads, scope)
    scope.set("rate", np.array([2.0], "float32"))
    before = reader.run([{}, {}], ["seen"], 0).values
    assert [v["seen"].item() for v in before] == [4.0, 4.0]
    writer = Executor(writes, scope)
    assert scope.moves == 1, "the second device has no copy of its own any more"
    writer.run([{}, {}], [], 0)
    after = reader.run([{}, {}], ["seen"], 1).values
    assert [v["seen"].item() for v in after] == [36.0, 36.0]


@pytest.mark.parametrize("sizes", [(1,), (16, 16), (5000, 3, 9000, 1), (100_000,), (7,) * 50, (0, 70_000, 0)])
@pytest.mark.parametrize("shares", [1, 2, 3, 64])
def test_shares_cover_every_element_once(sizes, shares):
    found = shares_of(sizes, shares)
    covered = [[] for _ in sizes]
    for spans in found:
        for k, low, n in spans:
            assert low % LINE == 0
            covered[k] += range(low, low + n)
    assert covered == [list(range(n)) for n in sizes]
    assert len(found) <= shares
    if len(found) > 1:
        amounts = [sum(n for _, _, n in spans) for spans in found]
        assert min(amounts) >= MIN_SHARE - LINE * len(sizes)
        assert max(amounts) - min(amounts) <= LINE * (len(sizes) + 1)


def test_the_graph_shows_every_devices_update_and_one_does_it():
    main, _, loss, _ = network("SGD")
    executor = Executor(main, Scope([Place("cpu", d) for d in range(2)]))
    executor.run(batch(0), [loss], 0)
    asked, done = (of(None).nodes for of in (executor.stages([loss]).graph, executor.stages([loss]).executed))
    assert [n.device for n in asked if n.title == "fused_sgd"] == [0, 1]
    assert [type(n) for n in done if n.title == "fused_sgd"] == [Update]
    assert sum(done[t.node].title == "fused_sgd" for t in latest(executor).tasks) == 1
