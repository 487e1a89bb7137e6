"""Processes that share the updates, played by threads: the bits of AllReduce, and a part of its memory."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.diagnostics.profile import run_profile
from pe_cli.execute.diagnostics.trace import trace
from pe_cli.execute.executor import Executor
from pe_cli.execute.memory.usage import usage
from pe_cli.execute.startup import run_startup
from pe_cli.graph.sharded_parameters import sharded_parameters
from pe_cli.graph.sharded_updates import own_rows, own_startup
from pe_cli.ops.define.registry import discover
from pe_cli.optim.clip import GradientClipByGlobalNorm
from pe_cli.optim.regularizer import L2Decay
from tests.collectives.simulated import Network, Simulated
from tests.execute.lowering.sharded_network import batch, network

SIZES = (13, 3, 20, 1)
PIECES: dict[str, object] = {"fuse_all_reduce_bytes": 100}
APART: dict[str, object] = {**PIECES, "fuse_all_optimizer_ops": False}
MAKING = threading.Lock()  # variables are named by one counter

discover()  # not by several threads at once


def executor_of(peers: Simulated | None, devices: int, rule: str, build: dict[str, object], **settings: object):
    """Return an executor with first values, and who has which rows."""
    with MAKING:
        main, startup = network(rule, **settings)
    strategy, rows = build.get("reduce_strategy", "AllReduce"), {}
    if peers and strategy != "AllReduce":
        owned = own_rows(main, peers.rank, peers.size)
        rows = {**owned.state, **(sharded_parameters(owned.program, owned.rows) if strategy == "Shard" else {})}
    scope = Scope([Place("cpu", d) for d in range(devices)])
    run_startup(own_startup(startup, rows, peers.rank if peers else 0), scope, 1)
    execution = ExecutionStrategy(num_threads=1)  # so that a step runs on the thread that asks for it
    return Executor(main, scope, build=BuildStrategy(**build), execution=execution, peers=peers), rows


def trained(processes: int, devices: int, rule: str, build: dict[str, object], **settings: object):
    """Return what each process has then: values, with the rows of those that are divided, and the bytes of the optimizer's state."""

    def process(peers: Simulated):
        executor, rows = executor_of(peers, devices, rule, build, **settings)
        for step, samples in enumerate(SIZES):
            plan = executor.run(batch(samples, step), ["loss"], step).plan
        scope = executor.scope
        values = {n: (rows[n][peers.rank] if n in rows else None, scope.get(n, devices - 1)) for n in scope}
        return values, usage(executor, plan)[0].kept["optimizer state"]

    return Network(processes).run(process)


@pytest.mark.parametrize(
    ("processes", "devices", "rule", "settings", "build"),
    [
        pytest.param(4, 1, "Adam", {}, {}, id="four processes"),
        pytest.param(2, 2, "Adam", {"regularization": L2Decay(0.01)}, {}, id="with decay, on two devices each"),
        pytest.param(3, 1, "Adam", {"grad_clip": GradientClipByGlobalNorm(0.5)}, APART, id="a common length, in pieces"),
        pytest.param(3, 1, "Lamb", {}, PIECES, id="whole parameters, in pieces"),
    ],
)
@pytest.mark.parametrize("strategy", ["Reduce", "Shard"])
def test_all_have_the_bits_of_all_reduce_and_each_has_its_rows(processes, devices, rule, settings, build, strategy) -> None:
    """Also batches that leave processes without samples."""
    (whole, nbytes), *_ = trained(processes, devices, rule, build, **settings)
    found = trained(processes, devices, rule, {**build, "reduce_strategy": strategy}, **settings)
    assert ({"w0", "b0", "w1", "b1"} <= {name for name, (rows, _) in found[0][0].items() if rows}) == (strategy == "Shard")
    for name, (_, value) in whole.items():
        parts = [values[name] for values, _ in found]
        if parts[0][0] is None:
            assert {part.tobytes() for _, part in parts} == {value.tobytes()}, name
        else:
            rows = np.concatenate([part for _, part in sorted(parts, key=lambda part: part[0])])
            np.testing.assert_array_equal(rows, value, err_msg=name)
    if processes == 4:
        assert max(mine for _, mine in found) <= 0.5 * nbytes, "small parameters: each variable begins at a multiple of 64 bytes"


def test_adam_keeps_a_quarter_of_its_state_with_four_processes() -> None:
    """Bytes of what the plan of a step reads and writes, as `pe profile` reports them."""

    def process(peers: Simulated):
        kept = []
        for strategy in ("AllReduce", "Reduce"):
            executor, _ = executor_of(peers, 1, "Adam", {"reduce_strategy": strategy}, widths=(12, 200, 60, 5))
            kept.append(usage(executor, executor.run(batch(8, 0), []).plan)[0].kept["optimizer state"])
        return kept[1] / kept[0]

    assert max(Network(4).run(process)) <= 0.27


def test_a_timeline_names_what_the_communication_thread_does() -> None:
    def process(peers: Simulated):
        executor, _ = executor_of(peers, 1, "SGD", {"reduce_strategy": "Reduce"})
        found = run_profile(executor, batch(8, 0), ["loss"], 1)
        return {e["name"] for e in trace(found, "name", 0)["traceEvents"]}

    for names in Network(2).run(process):
        assert {"reduce_scatter_processes", "all_gather_processes"} <= names
