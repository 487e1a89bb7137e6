"""Several processes with cards, played by threads: sums over them are NCCL's, and give what as many CPU devices give."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place
from pe_cli.devices import cuda_driver
from pe_cli.devices.cuda_libraries import opened
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.ops.define.registry import discover
from pe_cli.session.peer_team import PeerTeam
from tests.collectives.simulated import Network, Simulated
from tests.cuda.libraries.collectives import NcclAcross
from tests.cuda.ptx.device import needs_compiler
from tests.cuda.ptx.library import LearningDriver, Library
from tests.execute.test_executor import batch, classifier, values

discover()  # not by several threads at once
SIZES = (8, 8, 1)


def on_cpus(devices: int) -> dict[str, Any]:
    scope = Scope([Place("cpu", d) for d in range(devices)])
    executor = Executor(classifier(), scope)
    for name, value in values().items():
        scope.set(name, value)
    for step, samples in enumerate(SIZES):
        executor.run(batch(samples, step), ["loss"], step)
    return {name: scope.get(name) for name in values()}


def test_processes_with_cards_give_what_cpu_devices_give(monkeypatch):
    needs_compiler()
    devices = 2
    nccl = NcclAcross(2)
    monkeypatch.setattr(opened, "installed", lambda: {"nccl": opened.Installed("2.32.3", nccl)})
    monkeypatch.setattr("pe_cli.devices.cuda.compile_ahead", lambda *_: None)  # threads do not fork
    monkeypatch.setattr(cuda_driver, "only_driver", lambda: nccl.local.drivers[0])
    monkeypatch.setattr(cuda_driver, "_other_driver", lambda i: nccl.local.drivers[i])

    def process(peers: Simulated) -> list[dict[str, Any]]:
        nccl.local.library = library = Library([], devices=devices, seed=peers.rank)
        nccl.local.drivers = [LearningDriver(library, i) for i in range(devices)]
        scope = Scope([Place("cuda", d) for d in range(devices)])
        executor = Executor(classifier(), scope, peers=peers, libraries=frozenset({"nccl"}))
        for name, value in values().items():
            scope.set(name, value)
        for step, samples in enumerate(SIZES):
            executor.run(batch(samples, step), ["loss"], step)
        return [{name: scope.get(name, d) for name in values()} for d in range(devices)]

    found = Network(2).run(process)
    expected = on_cpus(2 * devices)
    for each in (each for of in found for each in of):
        for name, value in expected.items():
            assert each[name].tobytes() == found[0][0][name].tobytes(), "all have the same bits"
            np.testing.assert_allclose(each[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    assert {what for _, what, _ in nccl.exchanged} == {"all_reduce"}


@pytest.mark.parametrize(
    ("build", "libraries", "text"),
    [
        pytest.param({}, set(), "several processes on place: cuda sum by NCCL, which is not there", id="no NCCL"),
        pytest.param({"fp16_allreduce": True}, {"nccl"}, "fp16_allreduce is not done on place: cuda", id="sums as float16"),
        pytest.param(
            {"reduce_strategy": "Reduce"}, {"nccl"}, "several processes do not do that on place: cuda", id="rows of each process"
        ),
    ],
)  # fmt: skip
def test_what_processes_with_cards_do_not_do_is_said(monkeypatch, build: Any, libraries: set[str], text: str):
    driver = LearningDriver(Library([]))
    monkeypatch.setattr(cuda_driver, "only_driver", lambda: driver)

    def process(peers: Simulated) -> None:
        scope = Scope([Place("cuda", 0)])
        executor = Executor(classifier(), scope, build=BuildStrategy(**build), peers=peers, libraries=frozenset(libraries))
        executor.run(batch(8, 0), ["loss"], 0)

    with pytest.raises(PeError, match=text) as caught:
        Network(2).run(process)
    assert caught.value.code in (ExitCode.DEVICE, ExitCode.USAGE)


@pytest.mark.parametrize(
    ("cards", "wanted", "found"),
    [
        pytest.param(4, 1, ["cuda:0", "cuda:1", "cuda:2"], id="one for each"),
        pytest.param(7, "auto", ["cuda:0 cuda:1", "cuda:2 cuda:3", "cuda:4 cuda:5"], id="as many as there are for each"),
        pytest.param(2, 1, "1 CUDA devices wanted for each process, and a machine has 0 for each of its processes", id="too few"),
    ],
)
def test_the_cards_of_a_machine_are_divided_among_its_processes(monkeypatch, cards: int, wanted: Any, found: Any):
    monkeypatch.setattr("pe_cli.devices.cuda.cuda_count", lambda: (cards, ""))
    executor: Any = SimpleNamespace(place="cuda", devices=wanted, at_of=lambda _: None)

    def process(peers: Simulated) -> str:
        return " ".join(map(str, PeerTeam(peers, peers)._cards(executor).places))

    if isinstance(found, str):
        with pytest.raises(PeError, match=found):
            Network(3).run(process)
    else:
        assert Network(3).run(process) == found
