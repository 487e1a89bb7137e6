"""Parts of works: which pieces wait for which, and the same bits for any number of threads."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.native_loops import ANYONE
from pe_cli.devices.parallel_parts import in_order, pieces, settle
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.plan.text import describe_plan
from pe_cli.kernels.calls import Call
from pe_cli.kernels.cpu.gemm import NARROW
from pe_cli.layers.define.registry import find
from pe_cli.ops.define.work_parts import HELP, HIGH, WIDE, areas, pairs, quarters
from pe_cli.optim.optimizers import OPTIMIZERS
from pe_cli.program.backward import gradients
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program
from tests.execute.support import latest


def calls(*parts):
    return [Call(None, (i,), "float32", "float32", part) for i, part in enumerate(parts)]


def shown(found):
    return [(p.begin, p.end, sorted(p.waits)) for p in found]


def test_parts_wait_for_what_is_before_and_what_is_behind_waits_for_all_of_them():
    rows = [calls(None), calls(None, None, 0, 0, 1, None), calls(0, 1), calls(None)]
    found = pieces([0, 0, 0, 0], rows, [frozenset(), frozenset({0}), frozenset({1}), frozenset({2, 0})])
    assert shown(found) == [
        (0, 1, []), (1, 3, [0]), (3, 5, [1]), (5, 6, [1]), (6, 7, [2, 3]), (7, 8, [4]), (8, 9, [4]), (9, 10, [0, 5, 6])
    ]  # fmt: skip


def test_a_work_without_calls_hands_its_waits_on():
    found = pieces([0, 1, 0], [calls(0, 1), calls(), calls(None)], [frozenset(), frozenset({0}), frozenset({1})])
    assert shown(found) == [(0, 1, []), (1, 2, []), (2, 2, [0, 1]), (2, 3, [2])]


def test_what_is_no_part_is_anyones_where_threads_share_a_home():
    rows, waits = [calls(None), calls(0, 1), calls()], [frozenset(), frozenset({0}), frozenset({1})]
    assert [p.home for p in pieces([0, 0, 0], rows, waits, [1, 1, 1], 2)] == [ANYONE, 0, 1, ANYONE]
    assert [p.home for p in pieces([0, 0, 1], rows, waits, [2, 2, 2], 4)] == [0, 0, 2, 1]


def test_calls_of_a_part_come_together_and_pass_no_other_call():
    assert [c.args[0] for c in in_order(calls(None, 1, 0, 1, None, 0))] == [0, 2, 1, 3, 4, 5]


def settled(places, *parts):
    found = settle(places, in_order(calls(*parts)))
    return None if found is None else [call and call.args[0] for call in found]


def test_calls_of_another_batch_come_to_the_places_of_parts_or_one_after_the_other():
    assert settled([None, None, None], None, None) == [0, 1, None]
    assert settled([0, 0, 1], 0, 1) == [0, None, 1]
    assert settled([0, 0, 1], None, None) == [0, 1, None]
    assert settled([0, 1, None], None, None) == [0, None, 1]
    assert settled([0, 1], None, None) is None
    assert settled([None, 0, 1, 2], 0, 1) == [None, 0, 1, None]
    assert settled([None, None], 0, 1) is None
    assert settled([None, 0, 1, None, None], None, 0, 1, None) == [0, 1, 2, 3, None]
    assert settled([0, 0, 1, None, 0, 1], 4, 4, None, 2, 3) == [0, 1, None, 2, 3, 4]


def parallel(places):
    """Pairs of places whose calls may run at the same time."""
    groups = [list(group) for _, group in itertools.groupby(range(len(places)), key=lambda i: places[i] is not None)]
    pairs_ = (pair for group in groups for pair in itertools.combinations(group, 2))
    return {(a, b) for a, b in pairs_ if places[a] != places[b]}


@pytest.mark.parametrize("seed", range(20))
def test_settled_calls_keep_their_order_and_run_beside_those_alone_that_they_ran_beside(seed):
    rng = np.random.default_rng(seed)
    kept = 0
    for _ in range(200):
        old, new = (
            in_order(calls(*(None if rng.random() < 0.4 else int(rng.integers(0, 3)) for _ in range(rng.integers(1, 9)))))
            for _ in range(2)
        )
        places = [call.part for call in old]
        found = settle(places, new)
        if found is None:
            continue
        kept += 1
        at = {call.args[0]: i for i, call in enumerate(found) if call is not None}
        assert sorted(at) == sorted(call.args[0] for call in new)
        beside, allowed = parallel(places), parallel([call.part for call in new])
        for a, b in itertools.combinations(range(len(new)), 2):
            one, other = at[new[a].args[0]], at[new[b].args[0]]
            assert (a, b) in allowed or (one < other and (one, other) not in beside)
    assert kept > 20


#: Ops that threads share, with the shapes of their inputs and attributes.
SHARED = [
    pytest.param("padded_lstm", {"Input": (40, 6, 24), "WeightIh": (24, 96), "WeightHh": (24, 96)}, {}, id="lstm"),
    pytest.param("attention", {"Q": (16, 70, 96)}, {}, id="attention"),
    pytest.param("mul", {"X": (256, 192), "Y": (192, 256)}, {}, id="mul"),
    pytest.param("matmul", {"X": (9, 64, 128), "Y": (9, 128, 192)}, {}, id="matmul"),
    pytest.param("conv2d", {"Input": (11, 16, 20, 20), "Filter": (24, 16, 3, 3)}, {}, id="conv2d"),
    pytest.param("conv2d", {"Input": (11, 48, 20, 20), "Filter": (72, 48, 1, 1)}, {}, id="1x1"),
    pytest.param(
        "conv2d", {"Input": (11, 48, 40, 39), "Filter": (72, 48, 1, 1)}, {"strides": [2, 3]}, id="1x1, strides"
    ),
    pytest.param("conv2d", {"Input": (9, 700, 1, 1), "Filter": (900, 700, 1, 1)}, {}, id="1x1, single pixels"),
    pytest.param(
        "conv2d_fusion", {"Input": (11, 16, 20, 20), "Filter": (24, 16, 3, 3), "Bias": (24,)}, {}, id="conv2d_fusion"
    ),
    pytest.param(
        "conv2d_fusion",
        {"Input": (11, 48, 20, 20), "Filter": (72, 48, 1, 1), "Bias": (72,)},
        {"activation": "relu"},
        id="1x1 and relu",
    ),
    pytest.param(
        "depthwise_conv2d", {"Input": (23, 64, 20, 20), "Filter": (64, 1, 5, 5)}, {"groups": 64}, id="depthwise"
    ),
]
#: Outputs other than Out.
OUTPUTS = {"padded_lstm": "Out LastH LastC Gates Cells States", "attention": "Out Level"}


def _run(name, arrays, attrs, threads, steps):
    program = Program(name)
    block = program.global_block()
    for slot, a in arrays.items():
        block.create_var(slot, TensorType(a.shape, str(a.dtype)), persistable=True)
    outs = OUTPUTS.get(name, "Output" if "conv" in name else "Out").split()
    block.append_op(name, {s: [s] for s in arrays}, {s: [s] for s in outs}, attrs)
    found = gradients([block.var(outs[0])], [block.var(s) for s in arrays]) if name != "conv2d_fusion" else []
    scope = Scope([Place("cpu", 0)])
    executor = Executor(program, scope, seed=1, execution=ExecutionStrategy(num_threads=threads))
    for slot, a in arrays.items():
        scope.set(slot, a)
    assert executor.threads == threads
    names = [outs[0], *(g.name for g in found)]
    made = [executor.run({}, names, i).values[0] for i in range(steps)]
    assert threads == 1 or any(c.part for t in latest(executor).tasks for c in t.calls)
    return made


#: Rows, columns and inner size of products: cut into rows, into columns, at sizes that no vector fits, and not at all.
PRODUCTS = [(513, 96, 70), (37, 517, 301), (40, 66, 700), (2, 1000, 900), (1000, 2, 900), (200, 3, 3000), (7, 7, 7)]


def _train(rows, width, inner, optimizer, threads, **build):
    main, startup = Program("main"), Program("startup")
    main.random_seed = startup.random_seed = 3
    with program_guard(main, startup):
        x = find("data").fn("x", [inner])
        hidden = find("fc").fn(x, width, act="relu")
        loss = find("mean").fn(find("square").fn(find("fc").fn(hidden, 65)))
        OPTIMIZERS[optimizer](learning_rate=0.1, **({"momentum": 0.9} if optimizer == "Momentum" else {})).minimize(
            loss
        )
    scope = Scope([Place("cpu", 0)])
    Executor(startup, scope, seed=3).run({})
    execution = ExecutionStrategy(num_threads=threads)
    executor = Executor(main, scope, seed=3, execution=execution, build=BuildStrategy(**build))
    for step in range(3):
        batch = np.random.default_rng(step).standard_normal((rows, inner)).astype("float32")
        executor.run({"x": batch}, [loss.name], step)
    parts = {c.part for t in latest(executor).tasks for c in t.calls}
    return {name: scope.get(name) for name in scope}, parts


@pytest.mark.parametrize("sizes", PRODUCTS, ids=str)
def test_a_trained_layer_has_the_same_bits_for_any_number_of_threads(sizes):
    expected, _ = _train(*sizes, "SGD", 1)
    for threads, fused in itertools.product((2, 3, 5, 16), (False, True)):
        found, parts = _train(*sizes, "SGD", threads, fuse_grad_update=fused)
        assert fused or (parts == {None}) == (math.prod(sizes) < 1000)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=f"{name} with {threads} threads")


@pytest.mark.parametrize("optimizer", ["Momentum", "Adam"])
def test_threads_of_one_device_share_an_update(optimizer):
    expected, _ = _train(37, 517, 301, optimizer, 1)
    for threads in (2, 7):
        found, _ = _train(37, 517, 301, optimizer, threads)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=f"{name} with {threads} threads")


def _towers(threads):
    main, startup = Program("main"), Program("startup")
    main.random_seed = startup.random_seed = 3
    with program_guard(main, startup):
        x = find("data").fn("x", [96])
        ends = []
        for _ in range(6):
            y = x
            for _ in range(3):
                y = find("fc").fn(y, 96, act="relu")
            ends.append(y)
        loss = find("mean").fn(find("square").fn(find("sum").fn(ends)))
        OPTIMIZERS["SGD"](learning_rate=0.01).minimize(loss)
    scope = Scope([Place("cpu", 0)])
    Executor(startup, scope, seed=3).run({})
    executor = Executor(main, scope, seed=3, execution=ExecutionStrategy(num_threads=threads))
    for step in range(3):
        executor.run({"x": np.random.default_rng(step).standard_normal((64, 96)).astype("float32")}, [loss.name], step)
    return {name: scope.get(name) for name in scope}, latest(executor)


def test_gradients_of_one_op_do_not_wait_for_each_other_where_threads_have_enough_side_by_side():
    expected, _ = _towers(1)
    for threads in (2, 3):
        found, plan = _towers(threads)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=f"{name} with {threads} threads")
    waits = plan.waits(3)
    by_node = {}
    for i, task in enumerate(plan.tasks):
        by_node.setdefault(task.node, []).append(i)
    both = [row for row in by_node.values() if len(row) == 2]
    assert len(both) == 12  # of 18 layers the first of each tower has no gradient of what it reads
    for values, weights in both:
        assert values in waits[weights]  # the weights change in place, after they were read
        readers = [i for i, t in enumerate(plan.tasks) if i > weights and set(t.reads) & set(plan.tasks[values].writes)]
        assert readers
        assert all(weights not in waits[i] for i in readers)
    assert "on any thread" in describe_plan(plan)


@pytest.mark.parametrize(("m", "n", "k"), PRODUCTS)
@pytest.mark.parametrize("by_columns", [None, False, True])
def test_areas_cover_a_product_once(m, n, k, by_columns):
    for threads in (1, 2, 3, 64):
        seen = np.zeros((m, n), int)
        for area in areas(m, n, k, threads, by_columns=by_columns):
            seen[slice(*area.rows), slice(*area.columns)] += 1
            assert min(area.rows[1] - area.rows[0], area.columns[1] - area.columns[0]) >= min(m, n, NARROW + 1)
        assert (seen == 1).all()
        assert len(areas(m, n, k, threads)) <= threads


@pytest.mark.parametrize(
    "sizes", [(512, 256, 784), (429, 400, 2048), (2048, 429, 400), (5000, 130, 99), (9, 9, 9), (300, 7, 60000)]
)
def test_quarters_cover_a_product_once_and_none_is_small(sizes):
    m, n, k = sizes
    seen = np.zeros((m, n), int)
    found = quarters(m, n, k)
    for area in found:
        seen[slice(*area.rows), slice(*area.columns)] += 1
        (top, bottom), (left, right) = area.rows, area.columns
        assert len(found) == 1 or 2 * (bottom - top) * (right - left) * k >= HELP / 2
    assert (seen == 1).all()
    assert len(found) <= 4
    assert (len(found) > 1) == (2 * m * n * k >= 2 * HELP and (m >= 2 * HIGH or n >= 2 * WIDE))


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64])
def test_pairs_cover_all_and_differ_by_one_at_most(n):
    for parts in (0, 1, 2, 5, 100):
        found = pairs(n, parts)
        assert [i for pair in found for i in range(*pair)] == list(range(n))
        assert len(found) == max(1, min(n, parts))
        lengths = {end - begin for begin, end in found}
        assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize(("name", "shapes", "attrs"), SHARED)
def test_any_number_of_threads_gives_the_same_bits(name, shapes, attrs, rng):
    arrays = {s: rng.standard_normal(shape).astype("float32") for s, shape in shapes.items()}
    (expected,) = _run(name, arrays, attrs, 1, 1)
    for threads in (2, 3, 5):
        for found in _run(name, arrays, attrs, threads, 20):
            for key, value in expected.items():
                assert np.array_equal(found[key], value), f"{key} with {threads} threads"
