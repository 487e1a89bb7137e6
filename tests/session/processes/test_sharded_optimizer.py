"""What processes divide of a run's values: who has what, and what does not go with it."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from pe_cli.build.build import load_and_build
from pe_cli.collectives.servers.trainer_exchange import HubPeers
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.io import checkpoint
from pe_cli.ops.define.registry import discover
from pe_cli.session.job import Job
from pe_cli.session.processes.peer_group import PeerGroup
from pe_cli.session.processes.sharded_optimizer import ShardedOptimizer
from pe_cli.session.training.loop import Trainer
from pe_cli.session.training.resume import Resume, find_run
from pe_cli.session.training.stop import Limits
from tests.collectives.simulated import Network, Simulated
from tests.session.conftest import Bench

ROWS = {"moment": ((3, 5), (0, 3)), "alone": ((0, 0), (0, 4))}


def divided(group) -> ShardedOptimizer:
    scope = Scope([Place("cpu", 0)])
    for name, rows in ROWS.items():
        begin, end = rows[group.rank]
        scope.allocate({name: TensorType((end - begin, 2))})
        scope.set(name, np.full((end - begin, 2), group.rank, np.float32))
    return ShardedOptimizer(ROWS, scope, group)


def test_rows_are_put_together_in_their_order_whoever_has_them() -> None:
    def process(peers):
        found = divided(PeerGroup(peers, peers))
        return found.whole("moment")[:, 0].tolist(), found.whole("alone").shape, found.own("moment", np.arange(10).reshape(5, 2)).tolist()

    first, second = Network(2).run(process)
    assert first[:2] == second[:2] == ([1, 1, 1, 0, 0], (4, 2))
    assert (first[2], second[2]) == ([[6, 7], [8, 9]], [[0, 1], [2, 3], [4, 5]])


def test_a_value_of_another_model_is_refused() -> None:
    def process(peers):
        with pytest.raises(PeError, match=re.escape("'moment' is [7, 2] in the file and [5, 2] in the model")) as caught:
            divided(PeerGroup(peers, peers)).own("moment", np.zeros((7, 2)))
        return caught.value.code

    assert Network(2).run(process) == [ExitCode.DATA] * 2


@pytest.mark.parametrize("strategy", ["Reduce", "Shard"])
def test_what_is_trained_later_is_divided_anew(bench: Bench, strategy: str) -> None:
    """With averages, and with slow weights that begin where the parameters are then; a run is resumed before and after that."""
    late = "train.groups=[{match: hidden, freeze: until 7 steps}, {match: normal, freeze: {until: 2 epochs}}]"
    optimizer = "train.optimizer={type: Lookahead, k: 3, inner: {type: Adam, learning_rate: 0.02}}"
    start = "train.init={from: start.npz, strict: false}"
    options = [late, optimizer, "train.ema.decay=0.9", start, "output.checkpoint={every: 1 steps, keep: 99}"]
    rng = np.random.default_rng(2)
    np.savez(bench.base / "start.npz", **{"hidden.w_0": rng.normal(size=(4, 6)).astype("f4"), "hidden.b_0": np.ones(6, "f4")})
    where = bench.base / "several"
    reduce = [f"build_strategy.reduce_strategy={strategy}", f"output.dir={where}"]
    discover()  # not by several threads at once
    made = [load_and_build(bench.base / "run.yaml", [*options, *reduce]) for _ in range(3)]

    def process(steps: int | None, resume: Resume | None) -> Callable[[Simulated], None]:
        def run(peers: Simulated) -> None:
            spec, built = made[peers.rank]
            job = Job(spec, built=built, group=PeerGroup(peers, peers))
            job.initialise()
            Trainer(job, resume=resume, limits=Limits(steps=steps)).train()

        return run

    for steps in (5, 6, None):
        Network(3).run(process(steps, find_run(next(where.iterdir())) if where.exists() else None))
    one = bench.train("one", *(part for wish in (*options, "executor.devices=3") for part in ("-o", wish)))
    assert bench.seen(next(where.iterdir())) == bench.seen(one)


@pytest.mark.parametrize("strategy", ["Reduce", "Shard"])
def test_two_gradients_in_a_step_are_those_of_devices_bit_for_bit(bench: Bench, strategy: str) -> None:
    """SAM moves all parameters by the length of all gradients, of which each process has its own rows."""
    optimizer, where = "train.optimizer={type: SAM, inner: {type: Adam, learning_rate: 0.02}}", bench.base / "several"
    options = [optimizer, f"build_strategy.reduce_strategy={strategy}", f"output.dir={where}"]
    discover()  # not by several threads at once
    made = [load_and_build(bench.base / "run.yaml", options) for _ in range(2)]

    def process(peers: Simulated) -> int:
        spec, built = made[peers.rank]
        job = Job(spec, built=built, group=PeerGroup(peers, peers))
        job.initialise()
        Trainer(job).train()
        return sum(job.scope.type(name).nbytes for name in job.scope if "moment" in name)

    first, second = Network(2).run(process)
    one = bench.train("one", "-o", optimizer, "-o", "executor.devices=2")
    assert bench.seen(next(where.iterdir())) == bench.seen(one)
    whole = sum(a.nbytes for name, a in checkpoint.load(one / "checkpoints" / "last")[0].items() if "moment" in name)
    assert first + second == whole


def test_trainers_with_servers_have_no_sums_of_their_own() -> None:
    """So nothing can ask them for one: executors take what sums."""
    assert not {"reserve", "begin", "begin_scatter", "begin_gather"} & set(dir(HubPeers))
    assert PeerGroup.sums is None
