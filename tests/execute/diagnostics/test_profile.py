"""Profiles, traces, critical paths and memory reports: figures that follow from the clock, from hand-made graphs, or from shapes."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.protocol import Stalled
from pe_cli.devices.scope import Scope
from pe_cli.execute.diagnostics.critical_path import critical_path, parallelism, simulate
from pe_cli.execute.diagnostics.hang_report import hang_report
from pe_cli.execute.diagnostics.profile import Profile, flops, rows, run_profile, use
from pe_cli.execute.diagnostics.trace import trace
from pe_cli.execute.executor import Executor
from pe_cli.execute.memory.usage import usage
from pe_cli.execute.plan.picture import plan_picture
from pe_cli.program.backward import append_backward
from pe_cli.program.ir import Program, Role

BATCH, INPUTS, HIDDEN = 32, 64, 48


def two_layers(update: bool = True) -> Program:
    """Return `x . w1 -> relu -> . w2 -> mean` with sgd."""
    program = Program("two")
    block = program.global_block()
    block.create_var("x", TensorType((-1, INPUTS)), is_data=True)
    block.create_parameter("w1", TensorType((INPUTS, HIDDEN)))
    block.create_parameter("w2", TensorType((HIDDEN, 1)))
    block.create_var("rate", TensorType((1,)), persistable=True, stop_gradient=True)
    with program.name_scope("first"):
        block.append_op("mul", {"X": "x", "Y": "w1"}, {"Out": "a"})
        block.append_op("relu", {"X": "a"}, {"Out": "h"})
    with program.name_scope("second"):
        block.append_op("mul", {"X": "h", "Y": "w2"}, {"Out": "y"})
    block.append_op("mean", {"X": "y"}, {"Out": "loss"})
    if update:
        append_backward(block.var("loss"))
        for name in ("w1", "w2"):
            with program.role(Role.OPTIMIZE, [name, f"{name}@GRAD"]):
                ins = {"Param": name, "Grad": f"{name}@GRAD", "LearningRate": "rate"}
                block.append_op("sgd", ins, {"ParamOut": name})
    return program


def made(devices: int = 1, threads: int = 1, **facts: object) -> Executor:
    scope = Scope([Place("cpu", d) for d in range(devices)])
    return Executor(two_layers(), scope, execution=ExecutionStrategy(num_threads=threads), **facts)


def profiled(devices: int = 1, threads: int = 1, steps: int = 4) -> tuple[Executor, Profile]:
    executor = made(devices, threads)
    return executor, run_profile(executor, {"x": np.ones((BATCH, INPUTS), np.float32)}, ["loss"], steps)


SHAPES = [
    pytest.param(1, 1, id="in order"),
    pytest.param(2, 2, id="two devices"),
    pytest.param(2, 3, id="two devices, three threads"),
    pytest.param(1, 2, id="two threads"),
]


@pytest.mark.parametrize(("devices", "threads"), SHAPES)
def test_busy_and_idle_add_up_to_the_step_on_every_thread(devices, threads):
    _, found = profiled(devices, threads)
    assert found.threads == (threads if devices > 1 else 1)  # one device's ops are a chain here
    figures = use(found)
    assert len(figures.busy_ms) == found.threads
    for busy, idle in zip(figures.busy_ms, figures.idle_ms, strict=True):
        assert busy + idle == pytest.approx(figures.wall_ms)
    assert 0 <= figures.backward_ms <= figures.hidden_ms <= figures.collective_ms <= figures.wall_ms
    # with a thread per device, the update adds the gradients up
    assert (figures.collective_ms > 0) == (threads > devices > 1)


@pytest.mark.parametrize(("devices", "threads"), SHAPES)
def test_rows_share_the_whole_time_and_count_every_call(devices, threads):
    _, found = profiled(devices, threads)
    listed = rows(found)
    assert sum(r.share for r in listed) == pytest.approx(1.0)
    assert sum(r.calls for r in listed) == sum(len(t.calls) for t in found.plan.tasks)
    assert sum(r.ms for r in listed) == pytest.approx(sum(use(found).busy_ms))
    assert [r.ms for r in listed] == sorted((r.ms for r in listed), reverse=True)
    mul = [r for r in listed if r.op == "mul"]
    assert {r.layer for r in mul} == {"first", "second"}
    (joined,) = [r for r in rows(found, "op") if r.op == "mul"]
    assert joined.ms == pytest.approx(sum(r.ms for r in mul))


def test_products_count_two_operations_an_element_and_gradients_as_many_for_each_input():
    _, found = profiled()
    counted = {}
    for node in found.plan.graph.nodes:
        counted[node.title, node.scope] = flops(found.plan, node)
    assert counted["mul", "first/"] == 2 * BATCH * INPUTS * HIDDEN
    assert counted["mul", "second/"] == 2 * BATCH * HIDDEN
    assert counted["mul_grad", "second/"] == 2 * 2 * BATCH * HIDDEN
    assert counted["mul_grad", "first/"] == 2 * BATCH * INPUTS * HIDDEN, "x is fed and needs no gradient"
    (first,) = [r for r in rows(found) if (r.op, r.layer) == ("mul", "first")]
    assert first.gflops == pytest.approx(2 * BATCH * INPUTS * HIDDEN / first.ms / 1e6)
    moved = 4 * (BATCH * INPUTS + INPUTS * HIDDEN + BATCH * HIDDEN)
    assert first.gbytes == pytest.approx(moved / first.ms / 1e6)


@pytest.mark.parametrize(("devices", "threads"), SHAPES)
def test_a_trace_keeps_the_rules_of_its_format(devices, threads):
    _, found = profiled(devices, threads)
    made_ = json.loads(json.dumps(trace(found, "two"), allow_nan=False))
    events = made_["traceEvents"]
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for e in events:
        assert {"name", "ph", "pid", "tid"} <= set(e)
        assert isinstance(e["name"], str)
        assert isinstance(e["pid"], int)
        assert isinstance(e["tid"], int)
        if e["ph"] == "M":
            assert e["name"] in ("process_name", "thread_name", "process_sort_index", "thread_sort_index")
            assert set(e["args"]) <= {"name", "sort_index"}
        else:
            assert e["ph"] == "X"
            assert e["ts"] >= 0
            assert e["dur"] >= 0
            lanes.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for spans in lanes.values():  # complete events of one lane must nest; a thread does one thing at a time
        spans.sort()
        assert all(a[1] <= b[0] + 1e-3 for a, b in pairwise(spans))
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert named == {0: "steps", **{1 + d: f"cpu:{d}" for d in range(devices)}}
    assert {p for p, _ in lanes} == set(named)
    calls = [e for e in events if e["ph"] == "X" and e["pid"]]
    assert len(calls) == 4 * sum(len(t.calls) for t in found.plan.tasks)


def test_the_recorded_step_computes_what_the_ordinary_one_does():
    x = np.linspace(-1, 1, BATCH * INPUTS, dtype=np.float32).reshape(BATCH, INPUTS)
    values = []
    for timed in (False, True):
        executor = made(2, 2)
        for name in ("w1", "w2"):
            executor.scope.set(name, np.full(executor.scope.type(name).shape, 0.01, np.float32))
        executor.scope.set("rate", np.array([0.1], np.float32))
        parts, sizes = executor.split({"x": x})
        types = [{k: TensorType(a.shape, str(a.dtype)) for k, a in p.items()} for p in parts]
        plan = executor.plan(types, sizes, ["loss"])
        for step in range(3):
            out = plan.run_timed(parts, step)[0] if timed else plan.run(parts, step)
        values.append((out[0]["loss"], executor.scope.get("w1"), executor.scope.get("w2", 1)))
    for plain, timed_ in zip(*values, strict=True):
        np.testing.assert_array_equal(plain, timed_)


# --- explain ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "waits", "length", "path"),
    [
        pytest.param([1, 2, 3], [(), (0,), (1,)], 6, [0, 1, 2], id="a chain is its own path"),
        pytest.param([1, 5, 2, 1], [(), (0,), (0,), (1, 2)], 7, [0, 1, 3], id="a diamond takes the slower side"),
        pytest.param([4, 1, 1], [(), (), (1,)], 4, [0], id="a lone task may be the longest"),
        pytest.param([], [], 0, [], id="nothing takes no time"),
    ],
)
def test_the_critical_path(seconds, waits, length, path):
    assert critical_path(seconds, waits) == (length, path)


@pytest.mark.parametrize(
    ("seconds", "waits", "homes", "threads", "expected"),
    [
        pytest.param([1] * 8, [()] * 8, list(range(8)), 2, 4, id="independent work is halved"),
        pytest.param([1] * 4, [(), (0,), (1,), (2,)], [0] * 4, 4, 4, id="a chain gains nothing"),
        pytest.param([3, 1, 1, 1], [()] * 4, [0, 1, 1, 1], 2, 3, id="the long one runs beside the short ones"),
        pytest.param([2, 2, 2], [()] * 3, [0, 0, 0], 2, 4, id="three tasks on two threads take two rounds"),
    ],
)
def test_predicted_time(seconds, waits, homes, threads, expected):
    assert simulate(seconds, waits, homes, threads) == expected


@pytest.mark.parametrize(("devices", "threads"), SHAPES)
def test_bounds_of_parallelism(devices, threads):
    _, found = profiled(devices, threads)
    p = parallelism(found)
    assert p.path_ms <= p.predicted_ms + 1e-9
    assert p.work_ms / threads <= p.predicted_ms + 1e-9
    assert p.predicted_ms <= p.work_ms + 1e-9
    assert sum(s.ms for s in p.path) == pytest.approx(p.path_ms)
    assert p.path[-1].op in ("sgd", "fused_sgd", "mean", "mul_grad", "all_reduce", "fused_all_reduce", "assign")


def test_memory_by_category_follows_from_shapes():
    executor = made(build=BuildStrategy(fuse_grad_update=False))
    found = run_profile(executor, {"x": np.ones((BATCH, INPUTS), np.float32)}, ["loss"], 4)
    (memory,) = usage(executor, found.plan)

    def size(*dims: int) -> int:
        return -(-4 * int(np.prod(dims)) // 64) * 64

    assert memory.kept == {
        "parameters": size(INPUTS, HIDDEN) + size(HIDDEN, 1), "optimizer state": 0, "other state": size(1),
    }  # fmt: skip
    assert memory.whole["gradients"] == size(INPUTS, HIDDEN) + size(HIDDEN, 1)
    assert memory.whole["feeds"] == size(BATCH, INPUTS)
    assert memory.peak <= memory.arena <= sum(memory.whole.values())
    assert sum(memory.at_peak.values()) == memory.peak == sum(a.nbytes for a in memory.alive)


def test_memory_is_not_shared_where_the_strategy_says_so():
    scope = Scope([Place()])
    executor = Executor(two_layers(), scope, build=BuildStrategy(memory_optimize=False))
    found = run_profile(executor, {"x": np.ones((BATCH, INPUTS), np.float32)}, ["loss"], 1)
    (memory,) = usage(executor, found.plan)
    assert memory.peak == memory.arena == sum(memory.whole.values())


def test_parameters_that_devices_share_are_counted_once():
    scope = Scope([Place("cpu", 0), Place("cpu", 1)])
    executor = Executor(two_layers(), scope, build=BuildStrategy(reduce_strategy="Reduce"))
    found = run_profile(executor, {"x": np.ones((BATCH, INPUTS), np.float32)}, ["loss"], 1)
    first, second = usage(executor, found.plan)
    assert first.kept["parameters"] > 0
    assert second.kept["parameters"] == 0


# --- the plan's picture and the watchdog's words ----------------------------------------------------------------------


def test_a_plan_is_drawn_with_kernels_homes_and_what_flows():
    _, found = profiled(2, 2)
    picture = plan_picture(found.plan, "plan")
    mul = next(b for b in picture.boxes if b.title == "mul")
    assert mul.cluster == 0
    assert any(line.endswith("()") for line in mul.lines)
    relu = next(b for b in picture.boxes if b.title == "relu" and b.cluster == 0)
    (flow,) = [a for a in picture.arrows if (a.source, a.target) == (mul.key, relu.key)]
    assert [d.name for d in flow.data] == ["a"]
    assert flow.data[0].type == TensorType((BATCH // 2, HIDDEN))
    readers = {b.key for b in picture.boxes if b.title in ("mul", "mul_grad")}
    fed = {b.key: b.cluster for b in picture.boxes if b.kind == "feed" and b.title == "x"}
    assert sorted(fed.values()) == [0, 1]
    into = [a for a in picture.arrows if a.source in fed]
    assert {a.source for a in into} == set(fed)
    assert {a.target for a in into} <= readers


def test_a_stalled_step_is_told_with_ops_devices_and_reasons():
    _, found = profiled(2, 2)
    plan = found.plan
    index = {(plan.graph.nodes[t.node].title, t.home): i for i, t in reversed(list(enumerate(plan.tasks)))}
    mul, relu = index["mul", 1], index["relu", 1]
    error = hang_report(plan, Stalled(30.04, ((mul, "spin", 1, 30.0),), ((relu, (mul,)),), 3))
    assert error.code == ExitCode.STALLED
    assert error.message == (
        "no progress for 30 s: mul (first) on cpu:1 is in kernel spin since 30 s, on thread 1; 3 ops are done, 1 waits"
    )
    assert "relu (first) on cpu:1 waits for mul (first) on cpu:1" in str(error.hint)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_watched_executor_runs_as_ever(threads):
    x = np.ones((BATCH, INPUTS), np.float32)
    plain, watched = made(2, threads), made(2, threads, watchdog=30.0)
    for step in range(3):
        a, b = (e.run({"x": x}, ["loss"], step).values[0]["loss"] for e in (plain, watched))
        np.testing.assert_array_equal(a, b)


def test_the_watchdog_ends_a_step_that_hangs_and_names_it(monkeypatch):
    executor = made(1, 1, watchdog=0.15)
    x = np.ones((BATCH, INPUTS), np.float32)
    executor.run({"x": x}, ["loss"])
    (plan,) = executor.plans.values()
    tape = plan.step.tape
    monkeypatch.setattr(type(tape), "run", lambda self: time.sleep(0.5))  # no kernel runs
    with pytest.raises(PeError, match=r"no progress for 0.*no kernel runs") as caught:
        executor.run({"x": x}, ["loss"], 1)
    assert caught.value.code == ExitCode.STALLED
    monkeypatch.undo()
    executor.run({"x": x}, ["loss"], 2)
