"""How cores share a step: by what it computes, and the same on every machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pe_cli.build.build import load_and_build
from pe_cli.core.strategy import ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.lowering.flop_count import operations
from pe_cli.execute.plan.cost import BARRIER, OPERATIONS, UNEVEN, Cost, costs, on_threads, wide
from pe_cli.execute.plan.thread_layout import Layout, best_layout, step_costs
from pe_cli.layers.define.registry import find
from pe_cli.optim.optimizers import OPTIMIZERS
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program

CONFIGS = Path(__file__).parents[3] / "configs" / "bench"


def network(width: int, train: bool = True, batched: bool = True) -> Program:
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup):
        x = find("data").fn("x", [width]) if batched else find("data").fn("x", [32, width], append_batch_size=False)
        loss = find("mean").fn(find("fc").fn(x, width))
        if train:
            OPTIMIZERS["SGD"](learning_rate=0.1).minimize(loss)
    return main


def test_products_count_two_operations_an_element_and_gradients_as_many_for_each_operand():
    program = network(40)
    types = {v.name: v.type.with_shape(*(10 if n == -1 else n for n in v.shape)) for v in program.list_vars()}
    found = {op.type: operations(op, types.__getitem__) for op in program.global_block().ops}
    assert found["mul"] == 2 * 10 * 40 * 40
    assert found["mul_grad"] == found["mul"]  # the feed needs no gradient
    assert found["mean"] is None


def test_a_recurrence_counts_its_products():
    program = Program("lstm")
    block = program.global_block()
    shapes = {"Input": (5, 7, 3), "WeightIh": (3, 16), "WeightHh": (4, 16)}
    for name, shape in shapes.items():
        block.create_var(name, TensorType(shape))
    outs = ["Out", "LastH", "LastC", "Gates", "Cells", "States"]
    op = block.append_op("padded_lstm", {s: s for s in shapes}, {s: s for s in outs}, {})
    assert operations(op, lambda name: block.var(name).type) == 2 * 5 * 7 * (3 * 16 + 4 * 16)


def layers(width: int, towers: int = 1, depth: int = 1) -> Program:
    """Towers of fc layers on one feed, trained by SGD."""
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup):
        x = find("data").fn("x", [width])
        ends = []
        for _ in range(towers):
            h = x
            for _ in range(depth):
                h = find("fc").fn(h, width, act="relu")
            ends.append(h)
        OPTIMIZERS["SGD"](learning_rate=0.1).minimize(find("mean").fn(find("sum").fn(ends)))
    return main


def test_long_steps_are_worth_all_cores_and_short_ones_one():
    assert best_layout(network(8), 16, 64) == Layout(1, 1)
    assert best_layout(layers(1000), 4096, 4) == Layout(4, 4)
    many = best_layout(layers(700), 4096, 64)
    assert 4 <= many.threads < 64


def test_small_batches_of_large_layers_are_shared_by_threads_and_large_ones_by_devices():
    program = layers(512, depth=3)
    assert best_layout(program, 64, 2) == Layout(1, 2)
    assert best_layout(program, 8192, 2) == Layout(2, 2)


def test_towers_are_shared_by_threads_even_where_a_batch_cannot_be_cut():
    assert best_layout(layers(256, towers=8, depth=4), 1, 2) == Layout(1, 2)
    assert best_layout(layers(256, towers=1, depth=4), 1, 2) == Layout(1, 1)


@pytest.mark.parametrize(("columns", "samples", "chosen"), [
    pytest.param(512, 4096, Layout(2, 2), id="the table takes most of the time"),
    pytest.param(16, 64, Layout(1, 2), id="the layers do"),
])  # fmt: skip
def test_a_large_table_is_left_to_devices(columns, samples, chosen):
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup):
        ids = find("data").fn("ids", [8, 1], dtype="int64")
        h = find("flatten").fn(find("embedding").fn(ids, [5000, columns], is_sparse=True))
        h = find("fc").fn(find("fc").fn(h, 16 if columns > 16 else 512), 16 if columns > 16 else 512)
        OPTIMIZERS["SGD"](learning_rate=0.1).minimize(find("mean").fn(h))
    assert best_layout(main, samples, 2) == chosen


@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_what_is_chosen_takes_less_than_one_core(most):
    for width in (20, 200, 500):
        ops = step_costs(layers(width), 64)
        chosen = best_layout(layers(width), 64, most)
        assert 1 <= chosen.devices <= chosen.threads <= most
        if chosen.devices == 1 < chosen.threads:
            assert on_threads(ops, chosen.threads) < on_threads(ops, 1)


def test_threads_take_no_less_than_their_share_and_the_longest_way():
    ops = [Cost(30.0, 0, 1, (), ("a",)), Cost(30.0, 0, 1, (), ("b",)), Cost(10.0, 0, 1, ("a", "b"), ("c",))]
    assert on_threads(ops, 1) == 70
    assert on_threads(ops, 2) == 40  # one of the first two beside the other
    assert on_threads([Cost(100.0, 0, 4, (), ("a",))], 2) == (1 + UNEVEN) * 50 + BARRIER
    assert on_threads([Cost(100.0, 0, 4, (), ("a",))], 4) == pytest.approx((1 + 3 * UNEVEN) * 25 + BARRIER)


def test_ops_are_left_whole_where_threads_have_enough_side_by_side():
    def parts(towers: int, threads: int) -> set[int | None]:
        program = layers(256, towers=towers, depth=2)
        scope = Scope([Place("cpu", 0)])
        executor = Executor(program, scope, execution=ExecutionStrategy(num_threads=threads))
        kinds = {v.name: v.type for v in program.list_vars() if v.is_data}
        plan = executor.plan([{n: k.with_shape(128, *k.shape[1:]) for n, k in kinds.items()}], [128], [])
        return {c.part for t in plan.tasks for c in t.calls if "matrix_product" in c.kernel.name or "fused_epilogue" in c.kernel.name}

    assert parts(towers=1, threads=2) >= {0, 1}
    assert parts(towers=8, threads=2) == {None}
    assert parts(towers=8, threads=8) >= {0, 1}, "each would have a tower, and all would wait for the slowest"
    tower = [Cost(50.0, 0, 4, (f"{i}",), (f"{i}",)) for i in range(4)]
    assert wide(tower, 2)
    assert not wide(tower, 3)
    assert on_threads(tower, 2) == (1 + UNEVEN) * 100


def test_a_recurrence_has_as_many_parts_as_groups_of_samples():
    def of(batch: int, time_major: bool) -> set[int]:
        block = Program("lstm").global_block()
        shapes = {"Input": (7, batch, 300) if time_major else (batch, 7, 300), "WeightIh": (300, 2048), "WeightHh": (512, 2048)}
        for name, shape in shapes.items():
            block.create_var(name, TensorType(shape))
        outs = ["Out", "LastH", "LastC", "Gates", "Cells", "States"]
        op = block.append_op("padded_lstm", {s: s for s in shapes}, {s: s for s in outs}, {"time_major": time_major})
        return {c.parts for c in costs([op], block, lambda name: block.var(name).type)}

    assert [of(batch, time_major) for batch in (8, 16, 32, 200) for time_major in (False, True)] == [{1}, {1}, {1}, {1}, {2}, {2}, {4}, {4}]


@pytest.mark.parametrize(("name", "batch", "two", "four"), [
    pytest.param("lstm", 32, Layout(1, 2), Layout(4, 4), id="a recurrence of two groups of samples"),
    pytest.param("mlp", 64, Layout(1, 2), Layout(1, 4), id="few rows, many weights"),
    pytest.param("branches", 128, Layout(1, 2), Layout(1, 4), id="towers"),
    pytest.param("mobilenet_v1", 16, Layout(2, 2), Layout(4, 4), id="images"),
    pytest.param("resnet50", 8, Layout(2, 2), Layout(1, 4), id="images, too few for the statistics of four devices"),
    pytest.param("resnet50", 6, Layout(1, 2), Layout(1, 4), id="images, too few for those of two"),
])  # fmt: skip
def test_workloads_are_shared_as_was_fastest_on_machines_with_two_and_four_cores(name, batch, two, four):
    _, built = load_and_build(CONFIGS / f"{name}.yaml", ())
    assert [best_layout(built.train, batch, cores) for cores in (2, 4)] == [two, four]


def test_a_step_counts_its_products_and_bytes():
    program = network(500)
    time = on_threads(step_costs(program, 128), 1)
    assert time > 2 * 2 * 128 * 500 * 500 / OPERATIONS
    assert time < on_threads(step_costs(program, 129), 1)


def test_devices_that_would_all_do_the_same_are_worth_nothing():
    assert best_layout(network(2000, train=False, batched=False), 256, 8).devices == 1


def test_sizes_that_only_data_shows_speak_for_no_fewer():
    program = Program("unknown")
    block = program.global_block()
    block.create_var("x", TensorType((-1, -1)), is_data=True, stop_gradient=True)
    block.append_op("relu", {"X": "x"}, {"Out": "y"}, {})
    assert best_layout(program, 16, 6) == Layout(6, 6)
