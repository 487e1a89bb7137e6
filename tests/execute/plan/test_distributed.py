"""Several processes, played by threads: each has some of the devices, and all together give the closed form."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.batch_split import split_sizes
from pe_cli.execute.diagnostics.profile import rows, run_profile, use
from pe_cli.execute.diagnostics.trace import together, trace
from pe_cli.execute.executor import Executor
from pe_cli.execute.merge import merge
from pe_cli.execute.plan import plan_cache
from pe_cli.execute.plan.plan import Plan
from pe_cli.graph.replicate import replicate
from pe_cli.graph.text import describe, parse_graph
from pe_cli.ops.define.registry import discover
from pe_cli.program.ir import Role
from tests.collectives.simulated import Network, Simulated
from tests.execute import test_sparse_gradients as sparse
from tests.execute.test_executor import batch, classifier, reference, values

SIZES = (13, 8, 3, 2, 20, 1)


discover()  # not by several threads at once


def train(processes: int, devices: int, run_sizes: tuple[int, ...] = SIZES, **build: object):
    def process(peers: Simulated):
        scope = Scope([Place("cpu", d) for d in range(devices)])
        # with one thread, a step runs on the thread that asks for it
        executor = Executor(
            classifier(), scope, build=BuildStrategy(**build), execution=ExecutionStrategy(num_threads=1), peers=peers
        )
        for name, value in values().items():
            scope.set(name, value)
        losses = []
        for step, samples in enumerate(run_sizes):
            ran = executor.run(batch(samples, step), ["loss"], step)
            assert len(ran.values) == len(ran.sizes) == len(ran.shares["loss"])
            mine = {"loss": [float(v["loss"].item()) for v in ran.values], "shares": list(ran.shares["loss"])}
            found = [json.loads(message) for message in peers.gather(json.dumps(mine).encode())]
            parts, weights = ([x for each in found for x in each[key]] for key in ("loss", "shares"))
            losses.append(float(np.asarray(merge([np.float32(x) for x in parts], weights, "mean")).item()))
        return losses, [{name: scope.get(name, d) for name in ("w0", "w1")} for d in range(devices)]

    return Network(processes).run(process)


@pytest.mark.parametrize("steps", [SIZES, (3, 5, 1)], ids=["plenty", "devices without samples"])
@pytest.mark.parametrize("build", [{}, {"fuse_all_optimizer_ops": False, "fuse_all_reduce_bytes": 100}], ids=str)
def test_four_devices_give_the_same_bits_however_they_are_shared_out(build, steps):
    found = [train(processes, devices, steps, **build)[0] for processes, devices in ((4, 1), (2, 2))]
    scope = Scope([Place("cpu", d) for d in range(4)])
    executor = Executor(classifier(), scope, build=BuildStrategy(**build), execution=ExecutionStrategy(num_threads=1))
    for name, value in values().items():
        scope.set(name, value)
    for step, samples in enumerate(steps):
        executor.run(batch(samples, step), ["loss"], step)
    for _, kept in found:
        for name in ("w0", "w1"):
            np.testing.assert_array_equal(kept[0][name], scope.get(name, 0))


@pytest.mark.parametrize(
    "build",
    [{}, {"fuse_all_reduce_ops": False}, {"fuse_all_optimizer_ops": True}, {"memory_optimize": False}],
    ids=lambda o: ", ".join(o) or "defaults",
)
@pytest.mark.parametrize(("processes", "devices"), [(2, 1), (3, 1), (2, 2)])
def test_all_together_give_the_closed_form_on_every_device(processes, devices, build):
    """Also batches that leave processes without samples."""
    expected, parameters = reference(SIZES)
    found = train(processes, devices, **build)
    for losses, kept in found:
        assert losses == found[0][0]
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
        for scope in kept:
            for name, value in parameters.items():
                np.testing.assert_array_equal(scope[name], found[0][1][0][name])
                np.testing.assert_allclose(scope[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("processes", "devices"), [(2, 1), (2, 2)])
def test_refitted_plans_sum_over_processes_too(processes, devices, monkeypatch):
    fitted = []
    fit = Plan.fit
    monkeypatch.setattr(plan_cache, "MAX_PLANS", 2)
    monkeypatch.setattr(Plan, "fit", lambda self, request: fitted.append(fit(self, request)) or fitted[-1])
    sizes = (30, 29, *np.random.default_rng(0).integers(processes * devices, 30, 12).tolist())
    expected, parameters = reference(sizes)
    for losses, kept in train(processes, devices, sizes):
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
        for scope in kept:
            for name, value in parameters.items():
                np.testing.assert_allclose(scope[name], value, rtol=1e-4, atol=1e-6)
    assert sum(fitted) > processes * 5


def test_a_sum_over_processes_begins_behind_that_over_devices_and_is_waited_for_before_the_update():
    text = describe(replicate(classifier(), [Place("cpu", 0), Place("cpu", 1)], BuildStrategy(), processes=2))
    lines = [line.split(maxsplit=3)[-1] for line in text.splitlines() if "all_reduce" in line]
    assert [line.partition("(")[0] for line in lines] == ["fused_all_reduce", "start_all_reduce_processes", "wait_all_reduce_processes"]
    assert "@1." not in lines[0].partition(" -> ")[2], "the first device's sums are enough"
    assert "@1." not in lines[1]
    assert "@1." in lines[2].partition(" -> ")[2], "every device gets the result"
    alone = describe(replicate(classifier(), [Place("cpu", 0)], BuildStrategy(), processes=2))
    assert alone.count("start_all_reduce_processes(") == alone.count("wait_all_reduce_processes(") == 1
    assert "fused_all_reduce(" not in alone
    assert "scale_loss_grad(" in alone


def test_backward_goes_on_while_a_sum_is_under_way():
    """No message of the first bucket leaves before the second bucket has begun, which the backward pass must reach for that."""

    def process(peers: Simulated):
        reached, begin, swap = threading.Event(), peers.begin, peers.swap
        begun = []

        def gated(*message):
            assert reached.wait(20)
            swap(*message)

        def watched(array, most, halved):
            begun.append(len(array))
            if len(begun) == 2:
                reached.set()
            return begin(array, most, halved)

        peers.swap, peers.begin = gated, watched
        executor = alone(peers, fuse_all_reduce_ops=False)
        executor.run(batch(8, 0), ["loss"])
        return len(begun)

    assert Network(2).run(process) == [2, 2]


def alone(peers: Simulated, **build: object) -> Executor:
    """Return an executor of one device of a process."""
    scope = Scope([Place("cpu", 0)])
    executor = Executor(
        classifier(), scope, build=BuildStrategy(**build), execution=ExecutionStrategy(num_threads=1), peers=peers
    )
    for name, value in values().items():
        scope.set(name, value)
    return executor


def test_profiles_and_timelines_show_the_communication_thread():
    def process(peers: Simulated):
        found = run_profile(alone(peers), batch(8, 0), ["loss"], 2)
        return use(found), [row.op for row in rows(found)], trace(found, "name", found.timelines[0].start - 1000)

    found = Network(2).run(process)
    for times, ops, _ in found:
        assert 0 <= times.process_hidden_ms <= times.process_ms
        assert times.process_ms > 0
        assert times.collective_ms == 0
        assert {"start_all_reduce_processes", "wait_all_reduce_processes"} <= set(ops)
    whole = together([made for _, _, made in found])
    lanes = {(e["pid"], e["args"]["name"]) for e in whole["traceEvents"] if e["ph"] == "M" and "name" in e["args"]}
    assert {(1, "process 0: cpu:0"), (1, "communication"), (3, "process 1: cpu:0"), (3, "communication")} <= lanes
    sums = [e for e in whole["traceEvents"] if e["name"] == "all_reduce_processes"]
    assert {e["pid"] for e in sums} == {1, 3}
    assert len(sums) == 4, "a bucket in each of two steps of each process"
    begun = [e for e in whole["traceEvents"] if e["name"] == "start_all_reduce_processes"]
    for e in sums:
        assert min(b["ts"] for b in begun) <= e["ts"] <= e["ts"] + e["dur"]
        assert e["ts"] >= 1.0, "times are from the origin on"


def test_a_batch_of_which_each_has_its_share_runs_as_the_whole_does():
    """Also a batch with fewer samples than processes."""

    def process(peers: Simulated):
        kept = []
        for shared in (False, True):
            executor = alone(peers)
            for step, samples in enumerate((12, 7, 2)):
                whole, sizes = batch(samples, step), split_sizes(samples, 3)
                begin = sum(sizes[: peers.rank])
                mine = {name: array[begin : begin + sizes[peers.rank]] for name, array in whole.items()}
                for number in range(2):  # the second time by the shortcut
                    executor.run(mine if shared else whole, ["loss"], 2 * step + number, samples if shared else None)
            kept.append([executor.scope.get(name, 0).tobytes() for name in ("w0", "w1")])
        return kept

    for whole, shared in Network(3).run(process):
        assert whole == shared


def test_buckets_begin_one_by_one_and_each_is_waited_for_where_it_is_read():
    build = BuildStrategy(fuse_all_reduce_ops=False, fuse_all_reduce_bytes=70)
    graph = replicate(classifier(), [Place("cpu", 0)], build, processes=2)
    kinds = [node.title for node in graph.nodes]
    first = kinds.index("start_all_reduce_processes")
    assert any(node.role is Role.BACKWARD for node in graph.nodes[first:]), "backward goes on"
    waits = [i for i, kind in enumerate(kinds) if kind == "wait_all_reduce_processes"]
    assert len(waits) == kinds.count("start_all_reduce_processes") > 1
    for i in waits:
        assert graph.nodes[i + 1].role is Role.OPTIMIZE
        assert {v.name for v in graph.nodes[i].outputs} & {v.name for v in graph.nodes[i + 1].inputs}
    text = describe(graph)
    assert " pieces " in text
    assert describe(parse_graph(text, graph.program)) == text
    halved = describe(replicate(classifier(), [Place("cpu", 0)], replace(build, fp16_allreduce=True), processes=2))
    assert halved.count(" halved\n") == len(waits)
    assert describe(parse_graph(halved, graph.program)) == halved


@pytest.mark.parametrize("rule", ["SGD", "Adam"])
@pytest.mark.parametrize(("processes", "devices"), [(2, 1), (3, 1), (2, 2)])
def test_rows_of_tables_are_merged_over_processes_as_over_devices(processes, devices, rule):
    """Also batches that leave processes without samples, and as many rows shared out otherwise."""
    making = threading.Lock()  # variables are named by one counter

    def tables(count, peers=None):
        how = {"lookups": 2, "tables": sparse.TABLES, "threads": 1}
        with making:
            executor = sparse.executor_of(sparse.named(rule), devices=count, peers=peers, **how)
        for step, samples in enumerate((12, 7, 1, 30, 12)):
            whole = sparse.batch(samples, 2, step)
            if peers is None:
                executor.run(whole, [], step)
                continue
            cuts = [0, *np.cumsum(split_sizes(samples, processes * devices)).tolist()]
            begin, end = cuts[peers.rank * devices], cuts[(peers.rank + 1) * devices]
            executor.run({name: array[begin:end] for name, array in whole.items()}, [], step, samples)
        return [executor.scope.get(name).tobytes() for name in sparse.TABLES]

    expected = tables(processes * devices)
    assert Network(processes).run(lambda peers: tables(devices, peers)) == [expected] * processes
