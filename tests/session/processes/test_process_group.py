"""What processes tell each other of a step: as few messages as the tree has levels, and the means that one process takes."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from pe_cli.collectives.tree_reduce import small_sum
from pe_cli.config.load import load_run
from pe_cli.core.strategy import ExecutionStrategy
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.batch_split import split_sizes
from pe_cli.execute.executor import Executor
from pe_cli.ops.define.registry import discover
from pe_cli.session.processes.group_choice import open_group
from pe_cli.session.processes.peer_group import PeerGroup
from tests.collectives.simulated import Network
from tests.execute.test_executor import batch, classifier, values

discover()  # not by several threads at once


def executor_on(devices: int, peers=None) -> Executor:
    scope = Scope([Place("cpu", d) for d in range(devices)])
    made = Executor(classifier(), scope, execution=ExecutionStrategy(num_threads=1), peers=peers)
    for name, value in values().items():
        scope.set(name, value)
    return made


@pytest.mark.parametrize("samples", [40, 13, 5])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_numbers_cost_a_message_a_level_and_are_those_of_as_many_devices(size: int, samples: int) -> None:
    network = Network(size)

    def process(peers):
        group = PeerGroup(peers, peers)
        group.watch_time(lambda: peers.rank == 0)
        ran = executor_on(1, peers).run(batch(samples, 0), ["loss"])
        peers.gather(b"")
        before = network.messages[peers.rank]
        means = group.joined(ran, ["loss"])
        return network.messages[peers.rank] - before, means.number("loss"), means.sizes, means.values, group.save_due(), group.save_due()

    found = network.run(process)
    alone = executor_on(size).run(batch(samples, 0), ["loss"])
    for messages, loss, sizes, values_, late, again in found:
        assert messages == math.log2(size)
        assert loss == (alone.number("loss")[0], samples)
        assert sizes == [n for n in split_sizes(samples, size) if n]
        assert values_ == []
        assert (late, again) == (True, False)


class Many:
    """The first of so many processes, to which the others are silent: what it does costs its own time alone."""

    rank, doing, advice, spans = 0, "", "", ()

    def __init__(self, size: int) -> None:
        self.size, self.messages = size, 0

    def swap(self, peer, out, into) -> None:
        self.messages += 1

    def total(self, values):
        return small_sum(self, values)

    def reserve(self, nbytes: int) -> None:
        pass

    def begin(self, values, most: int, halved: bool = False):
        return self

    def wait(self) -> None:
        pass


def test_a_step_of_one_of_1024_processes_takes_ten_messages_and_little_of_its_time() -> None:
    peers, size, samples = Many(1024), 1024, 4
    group, executor = PeerGroup(peers, peers), executor_on(1, peers)
    mine = batch(samples, 0)

    def step(number: int) -> float:
        begin = time.process_time()
        group.begin_step(number)
        group.stepped(executor.run(mine, ["loss"], number, samples=samples * size), ["loss"])
        return time.process_time() - begin

    step(0)
    before = peers.messages
    assert min(step(i) for i in range(1, 6)) < 0.005, "0.05 ms, with computing"
    assert peers.messages - before == 5 * 10


def test_arrays_are_told_to_all_in_the_order_of_devices() -> None:
    def process(peers):
        ran = executor_on(2, peers).run(batch(7, 0), ["loss", "p"])
        return PeerGroup(peers, peers).joined(ran, ["loss"]).merged("p", "concat")

    alone = executor_on(4).run(batch(7, 0), ["p"]).merged("p", "concat")
    for found in Network(2).run(process):
        np.testing.assert_array_equal(found, alone)


def test_samples_of_all_are_one_array() -> None:
    found = Network(3).run(lambda peers: PeerGroup(peers, peers).whole({"y": np.full((peers.rank, 2), peers.rank)}))
    for arrays in found:
        assert arrays["y"].tolist() == [[1, 1], [2, 2], [2, 2]]


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"PMI_SIZE": "4", "PMI_RANK": "1"}, ["each of the 4 processes of MPICH's mpiexec", "executor.processes=auto"]),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, []),  # the script of a job of four
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "2", "SLURM_STEP_ID": "0"}, ["each of the 4 processes of srun"]),
        ({"PMI_SIZE": "1", "PMI_RANK": "0"}, []),
    ],
)
def test_processes_that_train_apart_say_so(environment, said, monkeypatch):
    for name in ("PMI_SIZE", "PMIX_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "SLURM_STEP_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run = load_run("configs/digits.yaml")
    text = open_group(run).resources(run).text
    assert all(part in text for part in said)
    assert ("alone" in text) is bool(said)
