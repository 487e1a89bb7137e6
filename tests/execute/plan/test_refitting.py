"""Batches of ever new shapes: plans are refitted instead of made, and give the bits of plans made for each."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices import cpu
from pe_cli.devices.scope import Scope
from pe_cli.execute.diagnostics.hang_report import hang_report
from pe_cli.execute.diagnostics.profile import rows, run_profile
from pe_cli.execute.executor import Executor
from pe_cli.execute.lowering import lowered_nodes, types
from pe_cli.execute.lowering.tasks import Task
from pe_cli.execute.memory.usage import usage
from pe_cli.execute.plan import plan as plan_module
from pe_cli.execute.plan import plan_cache as plans_module
from pe_cli.execute.plan.plan import LEND_BYTES, Plan
from pe_cli.execute.plan.plan_cache import MAX_PLANS
from pe_cli.execute.plan.refitting import fits
from pe_cli.ops.define.lowering import Buffer
from pe_cli.paddle.fluid import framework, layers
from pe_cli.program.ir import Program
from tests.devices.test_zero_copy_feeds import executor as loaning
from tests.execute.support import latest
from tests.execute.test_executor import batch as dense_batch
from tests.execute.test_executor import make
from tests.execute.test_sequences import trainer
from tests.rotation import of_today

BATCHES = 3 * MAX_PLANS


@pytest.fixture
def counted(monkeypatch) -> dict[object, int]:
    """How many plans were made, refitted (True), and tried in vain (False)."""
    found: dict[object, int] = {"made": 0, True: 0, False: 0}
    make_, fit_ = Plan.__init__, Plan.fit

    def made(self, *args, **given):
        found["made"] += 1
        make_(self, *args, **given)

    def fit(self, request):
        fits = fit_(self, request)
        found[fits] += 1
        return fits

    monkeypatch.setattr(Plan, "__init__", made)
    monkeypatch.setattr(Plan, "fit", fit)
    return found


def texts(seed: int, kind: str, sequences: int = 9) -> dict[str, np.ndarray]:
    """A batch of sequences of 1 to 39 words."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 40, sequences))])
    labels = rng.integers(0, 4, (sequences if kind == "texts" else offsets[-1], 1))
    feed = {"words": rng.integers(0, 20, (offsets[-1], 1)), "words@LOD0": offsets, "label": labels}
    return feed if kind == "texts" else {**feed, "label@LOD0": offsets}


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize(
    ("kind", "devices", "threads"),
    of_today([(kind, *on) for kind in ("texts", "words") for on in ((1, 1), (1, 2), (2, 2), (2, 5), (3, 1))], 3),
)
def test_training_on_ever_new_lengths_has_the_bits_of_plans_of_their_own(kind, is_sparse, devices, threads, counted):
    refitted, loss = trainer(kind, devices, threads, is_sparse=is_sparse)
    alone, _ = trainer(kind, devices, threads, is_sparse=is_sparse)
    for step in range(BATCHES):
        feed = texts(step, kind)
        counted["made"] = 0
        one = refitted.run(feed, [loss], step)
        made = counted["made"]
        alone.drop()
        other = alone.run(feed, [loss], step)
        assert counted["made"] == made + 1
        assert one.sizes == other.sizes
        assert one.shares[loss] == other.shares[loss]
        for mine, theirs in zip(one.values, other.values, strict=True):
            np.testing.assert_array_equal(mine[loss], theirs[loss])
    found, expected = refitted.scope, alone.scope
    for name in found:
        for d in range(devices):
            np.testing.assert_array_equal(found.get(name, d), expected.get(name, d), err_msg=name)
    assert counted[True] >= BATCHES // 2
    assert len(refitted.plans._used) <= len(refitted.plans) <= MAX_PLANS


@pytest.mark.parametrize("kept", [20_000, 40, 1])
@pytest.mark.parametrize(("kind", "devices", "threads"), [("texts", 1, 1), ("words", 1, 2), ("words", 2, 2)])
def test_lengths_that_come_again_have_the_bits_of_plans_of_their_own(kind, devices, threads, kept, monkeypatch, counted):
    monkeypatch.setattr(plans_module, "MAX_PLANS", 2)
    for module, name in ((lowered_nodes, "MOST"), (cpu, "MOST"), (plan_module, "MOST"), (types, "MOST")):
        monkeypatch.setattr(module, name, kept)
    refitted, loss = trainer(kind, devices, threads, is_sparse=True)
    alone, _ = trainer(kind, devices, threads, is_sparse=True)
    rng = np.random.default_rng(0)
    for step in range(40):
        feed = texts(int(rng.integers(6)), kind)
        found = refitted.run(feed, [loss], step).values
        alone.drop()
        expected = alone.run(feed, [loss], step).values
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine[loss], theirs[loss])
    for name in refitted.scope:
        for d in range(devices):
            np.testing.assert_array_equal(refitted.scope.get(name, d), alone.scope.get(name, d), err_msg=name)
    assert counted[True] > 15


def test_a_length_that_comes_again_is_lowered_once(monkeypatch, counted):
    monkeypatch.setattr(plans_module, "MAX_PLANS", 2)
    executor, loss = trainer("words", 1, 1)
    lowered = []
    keep = lowered_nodes.LoweredNodes.keep

    def kept(self, node, *args, **more):
        lowered.append(node)
        keep(self, node, *args, **more)

    monkeypatch.setattr(lowered_nodes.LoweredNodes, "keep", kept)
    for seed in (9, *3 * (1, 2, 3, 4)):
        executor.run(texts(seed, "words"), [loss])
    assert counted[True] > 4
    assert lowered
    seen = len(lowered)
    for seed in (2, 3, 1, 4, 3):
        executor.run(texts(seed, "words"), [loss])
    assert len(lowered) == seen


@pytest.mark.parametrize("build", [{"memory_optimize": False}, {"enable_inplace": False}, {"reduce_strategy": "Reduce"}])
def test_strategies_of_memory_change_no_bit(build, counted):
    losses = []
    for given in ({}, build):
        executor, loss = trainer("texts", 2, 2, **given)
        found = [executor.run(texts(step, "texts"), [loss], step).values for step in range(3 * MAX_PLANS)]
        losses.append([[float(v[loss][0]) for v in values] for values in found])
    assert losses[0] == losses[1]
    assert counted[True]


def test_dense_batches_of_many_sizes_are_refitted_and_shortcuts_keep_to_their_shapes(counted):
    executor = make(2)
    sizes = [*range(2, 3 * MAX_PLANS), 5, 20, 5, 20, *range(2, 3 * MAX_PLANS)]
    for step, samples in enumerate(sizes):
        feed = dense_batch(samples, step)
        for _ in range(2):  # the second takes a shortcut
            ran = executor.run(feed, ["loss", "p"], step)
            found, weights = ran.values, ran.sizes
        assert sum(weights) == samples
        assert sum(len(values["p"]) for values in found) == samples
    assert counted[True] > MAX_PLANS
    assert len(executor.plans) == MAX_PLANS


@pytest.mark.parametrize("devices", [1, 2])
def test_dense_results_are_those_of_plans_of_their_own(devices, counted):
    refitted, alone = make(devices), make(devices)
    for step, samples in enumerate(np.random.default_rng(0).permutation(4 * MAX_PLANS) + devices):
        feed = dense_batch(int(samples), step)
        found = refitted.run(feed, ["loss", "p"], step).values
        alone.drop()
        expected = alone.run(feed, ["loss", "p"], step).values
        for one, other in zip(found, expected, strict=True):
            for name in one:
                np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    assert counted[True] > MAX_PLANS


@pytest.mark.parametrize("devices", [1, 2])
def test_a_lent_feed_is_given_back_before_another_shape_comes_also_where_that_takes_other_calls(devices, monkeypatch, counted):
    monkeypatch.setattr(plans_module, "MAX_PLANS", 2)
    made = Program("narrow")
    block = made.global_block()
    block.create_var("x", TensorType((-1, 8)), is_data=True, stop_gradient=True)
    block.append_op("square", {"X": "x"}, {"Out": "y"}, {})
    block.append_op("reduce_sum", {"X": "x"}, {"Out": "s"}, {"dim": [0]})
    refitted = loaning(made, devices)
    rng = np.random.default_rng(0)
    calls = set()
    for samples in (3000, 2900, *rng.integers(devices, 3000, 60).tolist()):
        x = rng.standard_normal((samples, 8)).astype("float32")
        found = refitted.run({"x": x}, ["y", "s"]).values
        expected = loaning(made, devices).run({"x": x}, ["y", "s"]).values
        for one, other in zip(found, expected, strict=True):
            for name in one:
                np.testing.assert_array_equal(one[name], other[name], err_msg=f"{name} of {samples}")
        calls.add(tuple(len(t.calls) for t in latest(refitted).tasks))
    assert counted[True] > 40
    assert len(calls) > 1
    assert 100 * 8 * 4 < LEND_BYTES < 1000 * 8 * 4  # some are lent, some are copied


@pytest.mark.parametrize(("devices", "threads"), [(1, 2), (1, 3), (2, 4), (2, 2)])
def test_ops_whose_parts_for_threads_come_and_go_are_refitted(devices, threads, monkeypatch, counted):
    monkeypatch.setattr(plans_module, "MAX_PLANS", 2)
    made = Program("lookups")
    block = made.global_block()
    block.create_var("ids", TensorType((-1, 1), "int64"), is_data=True, stop_gradient=True)
    block.create_parameter("table", TensorType((50, 256)))
    block.append_op("lookup_table", {"W": "table", "Ids": "ids"}, {"Out": "x"}, {})
    block.append_op("lookup_table_grad", {"Ids": "ids", "Out@GRAD": "x"}, {"W@GRAD": "table@GRAD"}, {})
    one, other = (
        Executor(made, Scope([Place("cpu", d) for d in range(devices)]), execution=ExecutionStrategy(num_threads=threads))
        for _ in range(2)
    )
    rng = np.random.default_rng(0)
    for executor in (one, other):
        executor.scope.set("table", np.arange(50 * 256, dtype="float32").reshape(50, 256))
    parts = set()
    for samples in (3000, 2900, *rng.integers(devices, 3000, 60).tolist()):
        ids = rng.integers(0, 50, (samples, 1))
        found = one.run({"ids": ids}, ["x", "table@GRAD"]).values
        other.drop()
        expected = other.run({"ids": ids}, ["x", "table@GRAD"]).values
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a["x"], b["x"])
            np.testing.assert_array_equal(a["table@GRAD"], b["table@GRAD"])
        parts.add(tuple(call.part for task in latest(one).tasks for call in task.calls))
    assert len(parts) > 1 or threads == devices
    assert counted[True] > 40


def test_an_op_in_python_takes_a_plan_of_its_own(counted):
    seen = []

    def double(x):
        seen.append(np.array(x).shape)
        return 2 * np.array(x)

    main = framework.Program()
    with framework.program_guard(main, framework.Program()):
        x = layers.data("x", [3])
        out = main.global_block().create_var(name="out", dtype="float32", shape=[-1, 3])
        layers.py_func(double, x, out)
    executor = Executor(main, Scope([Place("cpu", 0)]))
    for samples in range(1, 2 * MAX_PLANS):
        given = np.full((samples, 3), samples, np.float32)
        (values,) = executor.run({"x": given}, ["out"]).values
        np.testing.assert_array_equal(values["out"], 2 * given)
    assert seen == [(n, 3) for n in range(1, 2 * MAX_PLANS)]
    assert counted[True] == 0
    assert counted["made"] == 2 * MAX_PLANS - 1


def refitted(monkeypatch, counted, **given) -> tuple[Executor, str]:
    """Return an executor whose newest plan was refitted."""
    monkeypatch.setattr(plans_module, "MAX_PLANS", 2)
    executor, loss = trainer("texts", 2, 2, **given)
    for step, sequences in enumerate((9, 8, 10, 9, 8, 6)):
        executor.run(texts(step, "texts", sequences), [loss], step)
    assert counted[True]
    return executor, loss


def test_a_refitted_plan_is_profiled_and_described_as_what_it_runs_now(monkeypatch, counted):
    executor, loss = refitted(monkeypatch, counted)
    feed = texts(5, "texts", 6)
    before = dict(counted)
    found = run_profile(executor, feed, [loss], 3)
    assert counted == before
    assert sum(r.calls for r in rows(found)) == sum(len(t.calls) for t in found.plan.tasks)
    fresh, _ = trainer("texts", 2, 2)
    fresh.run(feed, [loss])
    assert {(r.op, r.layer, r.calls) for r in rows(found)} == {
        (r.op, r.layer, r.calls) for r in rows(run_profile(fresh, feed, [loss], 3))
    }
    for d, (one, other) in enumerate(zip(found.plan.memory, latest(fresh).memory, strict=True)):
        assert {(b.name, b.type) for b in one.plan.offsets} == {(b.name, b.type) for b in other.plan.offsets}, d
        assert {b.name for b in one.placed} == {b.name for b in other.placed}
        for b, offset in one.plan.offsets.items():
            assert b.type.nbytes <= one.plan.room[b] <= one.plan.nbytes - offset
    assert [u.at_peak for u in usage(executor, found.plan)] == [u.at_peak for u in usage(fresh, latest(fresh))]


def test_a_refitted_plan_reports_the_row_and_is_watched(monkeypatch, counted):
    executor, loss = refitted(monkeypatch, counted)
    executor.watchdog = 30.0
    latest(executor).watch(30.0, hang_report)
    feed = texts(11, "texts", 5)
    good = feed["words"].copy()
    row = len(good) - 1
    feed["words"][row] = 99
    tried = dict(counted)
    for _ in range(2):
        with pytest.raises(PeError) as caught:
            executor.run(feed, [loss], 0)
        assert f"row {row}" in caught.value.render()
        assert "99" in caught.value.render()
    assert counted["made"] == tried["made"]
    feed["words"] = good
    (first, *_) = executor.run(feed, [loss], 0).values
    assert np.isfinite(first[loss]).all()


def test_a_batch_that_needs_more_memory_than_any_plan_has_gets_a_plan_with_room(monkeypatch, counted):
    executor, loss = refitted(monkeypatch, counted)
    made = counted["made"]
    executor.run(texts(1, "texts", 40), [loss])
    assert counted["made"] == made + 1
    executor.run(texts(2, "texts", 40), [loss])
    executor.run(texts(3, "texts", 39), [loss])
    executor.run(texts(4, "texts", 38), [loss])
    made = counted["made"]
    fits = counted[True]
    for step in range(8):
        executor.run(texts(step, "texts", 37), [loss])
    assert counted["made"] == made
    assert counted[True] > fits


def test_a_plan_that_goes_frees_its_memory_at_once(monkeypatch, counted):
    executor, _ = refitted(monkeypatch, counted)
    gc.collect()
    gc.disable()
    try:
        arenas = [weakref.ref(spot.memory) for plan in executor.plans.values() for spot in plan._places._spots.values() if spot.space >= 0]
        executor.drop()
        assert arenas
        assert not any(arena() for arena in arenas)
    finally:
        gc.enable()


def task_over(read: int, written: int) -> Task:
    """A task whose result may lie where its input does, of so many elements each."""
    source, out = Buffer("x", TensorType((read,))), Buffer("y", TensorType((written,)))
    return Task(0, 0, [], [source], [out], takes_over={out: source})


@pytest.mark.parametrize(
    ("before", "after", "there"),
    [
        ((4, 4), (8, 8), True),
        ((4, 6), (8, 9), True),
        ((4, 4), (8, 6), False),
        ((4, 6), (8, 8), False),
    ],
    ids=["as large as before", "never as large", "no longer as large", "as large only now"],
)
def test_a_result_in_its_input_s_place_fits_where_both_are_as_large_as_they_were(before, after, there):
    old, new = task_over(*before), task_over(*after)
    variables = {b: (b.name, 0) for task in (old, new) for b in (*task.reads, *task.writes)}
    assert fits(old, new, variables) is there


def test_a_plan_is_refitted_where_no_task_reads_a_feed(counted):
    program = framework.Program()
    with framework.program_guard(program, framework.Program()):
        words = layers.data("words", [1], lod_level=1)
        tags = layers.data("tags", [1], lod_level=1)  # its offsets are fed, and nothing reads them
        out = layers.sequence_pool(layers.elementwise_add(words, tags), "sum").name
    executor = Executor(program, Scope([Place("cpu", 0)]))
    for step in range(BATCHES):
        offsets = np.arange(step + 2) * 2
        rows = np.ones((offsets[-1], 1), np.float32)
        feed = {"words": rows, "words@LOD0": offsets, "tags": rows, "tags@LOD0": offsets}
        (pooled,) = executor.run([feed], [out], step).values[0].values()
        np.testing.assert_array_equal(pooled, np.full((step + 1, 1), 4))
    assert counted[True] > 0
