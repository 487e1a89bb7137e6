"""The end of a step: threads without work help the others, and no bit shows it."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.strategy import ExecutionStrategy
from pe_cli.core.types import Place
from pe_cli.devices.protocol import Takers
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.lowering.flop_count import operations
from pe_cli.execute.plan.work_stealing import SHARE, WORTH_HELP
from pe_cli.layers.define.registry import find
from pe_cli.optim.optimizers import OPTIMIZERS
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program, Role
from tests.execute.support import latest

WIDTH = 256


def made(threads: int, devices: int = 2, images: bool = False, frozen: int = 0) -> tuple[Executor, str]:
    main, startup = Program("main"), Program("startup")
    main.random_seed = startup.random_seed = 3
    with program_guard(main, startup):
        if images:
            h = find("data").fn("x", [12, 12, 16])
            for _ in range(3):
                h = find("conv2d").fn(h, 24, 3, padding=1, act="relu", data_format="NHWC")
        else:
            h = find("data").fn("x", [WIDTH])
            for _ in range(3):
                h = find("fc").fn(h, WIDTH, act="relu")
        loss = find("mean").fn(find("square").fn(h))
        for parameter in main.global_block().parameters()[:frozen]:
            parameter.trainable = False
        OPTIMIZERS["Momentum"](learning_rate=0.05, momentum=0.9).minimize(loss)
    scope = Scope([Place("cpu", d) for d in range(devices)])
    Executor(startup, scope, seed=3).run({})
    return Executor(main, scope, seed=3, execution=ExecutionStrategy(num_threads=threads)), loss.name


def batch(rows: int, images: bool = False) -> dict[str, np.ndarray]:
    shape = (rows, 12, 12, 16) if images else (rows, WIDTH)
    return {"x": np.random.default_rng(1).standard_normal(shape).astype("float32")}


def helped(executor: Executor) -> list[tuple[int, int]]:
    """Return device and operations of every node that others help with."""
    plan = latest(executor)
    nodes = [plan.graph.nodes[t.node] for t in plan.tasks if t.takers is Takers.IDLE]
    return [(n.device, operations(n.op, lambda name, d=n.device: plan.type_of(name, d)) or 0) for n in nodes]


def test_the_last_gradients_of_every_device_are_cut():
    executor, loss = made(2)
    executor.run(batch(1024), [loss])
    plan = latest(executor)
    product = 2 * 512 * WIDTH * WIDTH
    # the first layer's input needs no gradient: of its 8 products a device offers the last, and the two of the layer behind
    assert sorted(helped(executor)) == [(0, product), (0, 2 * product), (1, product), (1, 2 * product)]
    assert product < SHARE * 8 * product <= 3 * product
    late = [t for t in plan.tasks if t.takers is Takers.IDLE]
    assert all(plan.graph.nodes[t.node].role is Role.BACKWARD for t in late)
    assert all(len({c.part for c in t.calls}) > 1 for t in late)
    assert not any(len({c.part for c in t.calls}) > 1 for t in plan.tasks if t.takers is Takers.DEVICE)


def test_forward_ops_are_left_whole_also_where_a_backward_pass_is_less_than_what_devices_offer():
    executor, loss = made(2, frozen=4)
    executor.run(batch(1024), [loss])
    product = 2 * 512 * WIDTH * WIDTH
    # two of three layers are frozen: three products forward, and one backward, which is less than 30% of four
    assert product < SHARE * 4 * product
    assert sorted(helped(executor)) == [(0, product), (1, product)]


@pytest.mark.parametrize(
    ("threads", "rows"),
    [(1, 1024), (4, 1024), (2, WORTH_HELP // (16 * WIDTH * WIDTH) - 4)],
    ids=["serial", "threads", "short"],
)
def test_nothing_is_cut_where_nobody_could_help(threads, rows):
    executor, loss = made(threads)
    executor.run(batch(rows), [loss])
    assert not helped(executor)


@pytest.mark.parametrize("images", [False, True], ids=["products", "convolutions"])
def test_help_changes_no_bit(images):
    values = []
    for threads in (1, 2):
        executor, loss = made(threads, images=images)
        losses = [executor.run(batch(512, images), [loss], step).values[0][loss] for step in range(10)]
        assert bool(helped(executor)) == (threads == 2)
        values.append([*losses, *(executor.scope.get(name) for name in executor.scope)])
    for expected, found in zip(*values, strict=True):
        np.testing.assert_array_equal(expected, found)


def test_a_thread_that_has_nothing_to_do_takes_parts_of_others():
    executor, loss = made(2)
    feeds = [batch(2048), batch(8)]
    executor.run(feeds, [loss])
    plan = latest(executor)
    (work,) = {
        i
        for i, t in enumerate(plan.tasks)
        if t.takers is Takers.IDLE and plan.graph.nodes[t.node].title == "mul_grad" and t.home == 0
    } - {next(i for i, t in enumerate(plan.tasks) if t.takers is Takers.IDLE and t.home == 0)}
    seen: set[int] = set()
    for step in range(50):
        _, timeline = plan.run_timed([{"x": f["x"]} for f in feeds], step)
        seen |= set(timeline.thread[timeline.work == work].tolist())
        if len(seen) == 2:
            break
    assert seen == {0, 1}
