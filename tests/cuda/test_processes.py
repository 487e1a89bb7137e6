"""Several processes with cards, played by threads: what they exchange gives the bits that as many cards of one process have."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pe_cli.collectives.protocol import PeerError
from pe_cli.config.load import load_run
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices import cuda_driver
from pe_cli.devices.cuda_libraries import loaded_libraries
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.memory.usage import usage
from pe_cli.execute.startup import run_startup
from pe_cli.graph.sharded_parameters import sharded_parameters
from pe_cli.graph.sharded_updates import own_rows, own_startup
from pe_cli.graph.ssa import StartSum
from pe_cli.kernels.cpu.python_calls import MirroredKernel
from pe_cli.ops.define.registry import discover
from pe_cli.optim.clip import GradientClipByGlobalNorm
from pe_cli.optim.optimizers import OPTIMIZERS
from pe_cli.program.initializer import NumpyArray
from pe_cli.program.ir import Program, Role
from pe_cli.session.processes.peer_group import PeerGroup
from tests.collectives.simulated import Network, Simulated
from tests.cuda.libraries.collectives import NcclAcross
from tests.cuda.ptx.device import needs_compiler
from tests.cuda.ptx.library import LearningDriver, Library
from tests.execute import test_sparse_gradients
from tests.execute.lowering import sharded_network
from tests.execute.test_executor import batch, classifier, values
from tests.rotation import of_today

discover()  # not by several threads at once
SIZES = (8, 8, 1)
MAKING = threading.Lock()  # variables are named by one counter
NCCL = frozenset({"nccl"})
Kept = dict[str, Any]
Trained = list[tuple[Kept, float]]
Made = tuple[Program, Program, Callable[[int, int], Mapping[str, Any]]]


class Cards:
    """Processes with cards of their own.

    Attributes:
        nccl: what they have of NCCL.
        calls: function of the driver -> how often the last process called it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._local, self._patch = threading.local(), monkeypatch
        self.calls: dict[str, int] = {}
        monkeypatch.setattr("pe_cli.devices.cuda.compile_ahead", lambda *_: None)  # threads do not fork
        monkeypatch.setattr(cuda_driver, "only_driver", lambda: self._local.drivers[0])
        monkeypatch.setattr(cuda_driver, "_other_driver", lambda i: self._local.drivers[i])

    def run(self, processes: int, devices: int, process: Callable[[Simulated], Any]) -> list[Any]:
        """Return what a function returns for each process."""
        self.nccl = NcclAcross(processes)
        self._patch.setattr(loaded_libraries, "installed", lambda: {"nccl": loaded_libraries.Installed("2.32.3", self.nccl)})

        def one(peers: Simulated) -> Any:
            self.nccl.local.library = library = Library([], memory=1 << 22, devices=devices, seed=peers.rank)
            self._local.drivers = [LearningDriver(library, i) for i in range(devices)]
            try:
                found = process(peers)
            except BaseException:
                self.nccl.give_up()
                raise
            self.calls = library.calls
            return found

        return Network(processes).run(one)

    def train(
        self, processes: int, devices: int, make: Callable[[], Made], build: Mapping[str, Any] | None = None, *,
        libraries: frozenset[str] = frozenset(), place: str = "cuda", sizes: tuple[int, ...] = SIZES,
    ) -> Trained:  # fmt: skip
        """Return for each process all values, those of which it has rows as (rows, value), and the bytes of the optimizer's state."""

        def process(peers: Simulated) -> tuple[Kept, float]:
            with MAKING:
                main, startup, feed = make()
            strategy = BuildStrategy(**(build or {}))
            several = peers if processes > 1 else None
            rows = {}
            if several and strategy.reduce_strategy != "AllReduce":
                owned = own_rows(main, peers.rank, processes)
                rows = {**owned.state, **(sharded_parameters(owned.program, owned.rows) if strategy.reduce_strategy == "Shard" else {})}
            scope = Scope([Place(place, d) for d in range(devices)])
            run_startup(own_startup(startup, rows, peers.rank), scope, 1)
            one = ExecutionStrategy(num_threads=1)
            executor = Executor(main, scope, build=strategy, execution=one, peers=several, libraries=libraries)
            for step, samples in enumerate(sizes):
                plan = executor.run(feed(samples, step), ["loss"], step).plan
            kept = {n: (rows[n][peers.rank] if n in rows else None, scope.get(n, devices - 1)) for n in scope}
            return kept, usage(executor, plan)[0].kept["optimizer state"]

        return self.run(processes, devices, process)


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Cards:
    needs_compiler()
    return Cards(monkeypatch)


def dense(rule: str, **settings: Any) -> Callable[[], Made]:
    """Return what makes a network of some layers, and its batches."""
    return lambda: (*sharded_network.network(rule, **settings), sharded_network.batch)


def sparse(rule: str) -> Callable[[], Made]:
    """Return what makes two lookups of a table with row-sparse gradients, and their batches."""

    def make() -> Made:
        main, startup = test_sparse_gradients.network(True, 2)
        OPTIMIZERS[rule](learning_rate=0.1).minimize(main.global_block().var("loss"), startup)
        return main, startup, lambda samples, step: test_sparse_gradients.batch(samples, 2, step)

    return make


def normalized() -> Made:
    """Return what has statistics of all processes between two products, and its batches."""
    main, startup = Program("main"), Program("startup")
    block = main.global_block()
    block.create_var("x", TensorType((-1, 4)), is_data=True, stop_gradient=True)
    first = {"w": np.arange(12).reshape(4, 3) / 8 - 0.5, "scale": np.ones(3), "shift": np.arange(3)}
    for name, value in first.items():
        NumpyArray(value.astype("float32"))(block.create_parameter(name, TensorType(value.shape)), startup.global_block())
    for name in ("mean", "variance"):
        kept = block.create_var(name, TensorType((3,)), persistable=True, stop_gradient=True)
        NumpyArray(np.zeros(3, "float32"))(kept, startup.global_block())
    block.append_op("mul", {"X": "x", "Y": "w"}, {"Out": "h"})
    ins = {"X": "h", "Scale": "scale", "Bias": "shift", "Mean": "mean", "Variance": "variance"}
    block.append_op("batch_norm", ins, {"Y": "n", "MeanOut": "mean", "VarianceOut": "variance", "SavedMean": "m", "SavedVariance": "v"})
    block.append_op("tanh", {"X": "n"}, {"Out": "t"})
    block.append_op("mean", {"X": "t"}, {"Out": "loss"})
    OPTIMIZERS["SGD"](learning_rate=0.5).minimize(block.var("loss"), startup)
    return main, startup, lambda samples, step: {"x": np.random.default_rng(step).standard_normal((samples, 4)).astype("float32")}


def assert_same(found: Trained, expected: Kept) -> None:
    """Check that all processes have the bits that are expected, rows of their own together."""
    for name, (_, value) in expected.items():
        parts = [kept[name] for kept, _ in found]
        if parts[0][0] is None:
            assert {part.tobytes() for _, part in parts} == {value.tobytes()}, name
        else:
            rows = np.concatenate([part for _, part in sorted(parts, key=lambda part: part[0])])
            np.testing.assert_array_equal(rows, value, err_msg=name)


def on_cpus(devices: int) -> dict[str, Any]:
    scope = Scope([Place("cpu", d) for d in range(devices)])
    executor = Executor(classifier(), scope)
    for name, value in values().items():
        scope.set(name, value)
    for step, samples in enumerate(SIZES):
        executor.run(batch(samples, step), ["loss"], step)
    return {name: scope.get(name) for name in values()}


def test_processes_with_cards_give_what_cpu_devices_give(cards: Cards):
    devices = 2

    def process(peers: Simulated) -> list[dict[str, Any]]:
        scope = Scope([Place("cuda", d) for d in range(devices)])
        executor = Executor(classifier(), scope, peers=peers, libraries=NCCL)
        for name, value in values().items():
            scope.set(name, value)
        for step, samples in enumerate(SIZES):
            executor.run(batch(samples, step), ["loss"], step)
        return [{name: scope.get(name, d) for name in values()} for d in range(devices)]

    found = cards.run(2, devices, process)
    expected = on_cpus(2 * devices)
    for each in (each for of in found for each in of):
        for name, value in expected.items():
            assert each[name].tobytes() == found[0][0][name].tobytes(), "all have the same bits"
            np.testing.assert_allclose(each[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    assert {what for _, what, _ in cards.nccl.exchanged} == {"all_reduce"}


PIECES = {"fuse_all_reduce_bytes": 100}
REDUCE, SHARD = {"reduce_strategy": "Reduce"}, {"reduce_strategy": "Shard"}
SYNC = {"sync_batch_norm": True}


@pytest.mark.parametrize(
    ("processes", "devices", "make", "build"),
    of_today([
        pytest.param(2, 1, dense("Momentum", momentum=0.9), {}, id="sums for all"),
        pytest.param(2, 2, dense("Adam"), REDUCE, id="rows of each, on two cards each"),
        pytest.param(3, 1, dense("Adam", grad_clip=GradientClipByGlobalNorm(0.5)), REDUCE | PIECES, id="rows of each, in pieces"),
        pytest.param(2, 1, sparse("Adam"), {}, id="rows of a table, Adam"),
        pytest.param(2, 2, sparse("SGD"), {}, id="rows of a table, SGD on two cards each"),
        pytest.param(3, 1, sparse("Adagrad"), REDUCE, id="rows of a table, Adagrad with owners"),
        pytest.param(2, 2, normalized, SYNC, id="statistics of all, on two cards each"),
        pytest.param(3, 1, dense("Adam"), SHARD | PIECES, id="parameters in parts"),
        pytest.param(2, 2, dense("Adam"), SHARD, id="parameters in parts, on two cards each"),
    ], 9),
)  # fmt: skip
def test_by_the_host_processes_have_the_bits_of_one_process_with_as_many_cards(cards: Cards, processes, devices, make, build):
    """Also a batch that leaves processes without samples."""
    ((expected, _),) = cards.train(1, processes * devices, make, build if build == SYNC else {})
    found = cards.train(processes, devices, make, build)
    assert_same(found, expected)
    assert cards.calls["cuGraphLaunch"] == 1, "of two batches of a shape the second is one graph, with what the host does in it"
    assert cards.calls["cuLaunchHostFunc"]


@pytest.mark.parametrize(
    ("make", "build", "what"),
    of_today([
        pytest.param(dense("Adam"), REDUCE, {"reduce", "broadcast"}, id="rows of each"),
        pytest.param(sparse("Adam"), {}, {"broadcast"}, id="rows of a table"),
        pytest.param(normalized, SYNC, {"all_gather", "all_reduce"}, id="statistics of all"),
        pytest.param(dense("Adam"), SHARD, {"reduce", "broadcast"}, id="parameters in parts"),
    ], 4),
)  # fmt: skip
def test_by_nccl_two_processes_have_them_too(cards: Cards, make, build, what):
    """Of two numbers there is one sum."""
    ((expected, _),) = cards.train(1, 2, make, build if build == SYNC else {}, sizes=SIZES[:2])
    assert_same(cards.train(2, 1, make, build, libraries=NCCL, sizes=SIZES[:2]), expected)
    assert {each for _, each, _ in cards.nccl.exchanged} == what
    assert "cuLaunchHostFunc" not in cards.calls


def test_adam_keeps_a_quarter_of_its_state_with_four_processes(cards: Cards):
    made, one = dense("Adam", widths=(12, 200, 60, 5)), (8,)
    whole, part = (max(nbytes for _, nbytes in cards.train(4, 1, made, build, sizes=one)) for build in ({}, REDUCE))
    assert part <= 0.27 * whole


@pytest.mark.parametrize("build", [{}, REDUCE], ids=["sums for all", "rows of each"])
@pytest.mark.parametrize("libraries", [frozenset(), NCCL], ids=["none", "NCCL"])
def test_numbers_that_cross_as_float16_are_those_that_cross_so_between_cpus(cards: Cards, build, libraries):
    """Two steps are exact in float32, and not in float16: a card and a CPU have the same bits only where they round the same sums."""
    halved = {**build, "fp16_allreduce": True}
    found, cpus, exact = (
        cards.train(2, 1, line, strategy, libraries=libraries, place=place, sizes=(8, 8))
        for strategy, place in ((halved, "cuda"), (halved, "cpu"), (build, "cpu"))
    )
    for name in ("w", "b"):
        assert found[0][0][name][1].tobytes() == cpus[0][0][name][1].tobytes() == found[1][0][name][1].tobytes(), name
    assert exact[0][0]["w"][1].tobytes() != cpus[0][0]["w"][1].tobytes()


def line() -> Made:
    """Return a linear model whose gradients have more digits than float16, and its batches."""
    main, startup = Program("main"), Program("startup")
    block = main.global_block()
    for name, width in (("x", 4), ("y", 2)):
        block.create_var(name, TensorType((-1, width)), is_data=True, stop_gradient=True)
    for name, shape in (("w", (4, 2)), ("b", (2,))):
        NumpyArray(np.zeros(shape, "float32"))(block.create_parameter(name, TensorType(shape)), startup.global_block())
    block.append_op("mul", {"X": "x", "Y": "w"}, {"Out": "h"})
    block.append_op("elementwise_add", {"X": "h", "Y": "b"}, {"Out": "out"}, {"axis": 1})
    block.append_op("elementwise_sub", {"X": "out", "Y": "y"}, {"Out": "gap"}, {"axis": -1})
    block.append_op("square", {"X": "gap"}, {"Out": "squares"})
    block.append_op("mean", {"X": "squares"}, {"Out": "loss"})
    OPTIMIZERS["SGD"](learning_rate=0.125).minimize(block.var("loss"), startup)

    def feed(samples: int, step: int) -> Mapping[str, Any]:
        rng = np.random.default_rng(step)
        x, y = rng.integers(-1, 2, (samples, 4)), 2 * rng.integers(-1000, 1000, (samples, 2)) + 1
        return {"x": x.astype("float32"), "y": y.astype("float32")}

    return main, startup, feed


def test_what_the_backward_pass_still_computes_does_not_wait_for_a_sum_that_the_host_has_begun(cards: Cards):
    def process(peers: Simulated) -> set[str]:
        with MAKING:
            main, startup = sharded_network.network("SGD")
        scope = Scope([Place("cuda", 0)])
        run_startup(startup, scope, 1)
        executor = Executor(main, scope, build=BuildStrategy(**PIECES), peers=peers)
        plan = executor.run(sharded_network.batch(8, 0), [], 0).plan
        nodes = [plan.graph.nodes[plan.tasks[work].node] for work, _ in plan.step._works]
        begun = next(i for i, node in enumerate(nodes) if isinstance(node, StartSum))
        behind = {begun}
        for i, waits in enumerate(plan.step._waits):
            if not behind.isdisjoint(waits):
                behind.add(i)
        return {node.title for i, node in enumerate(nodes) if i > begun and i not in behind and node.role is Role.BACKWARD}

    for free in cards.run(2, 1, process):
        assert "mul_grad" in free


def test_nothing_is_collected_on_a_thread_of_the_driver():
    """What is would ask the driver for something, which may wait for that thread."""
    seen = []
    kernel = MirroredKernel(lambda *_: seen.append(gc.isenabled()), "host:look", (), ())
    record = np.array([np.zeros(8, np.int64).ctypes.data])
    kernel.entry([])(record.ctypes.data)
    assert (seen, gc.isenabled()) == ([False], True)


def test_an_error_of_what_the_host_does_is_raised_and_nothing_that_lasts_is_written(cards: Cards):
    """Values stay what they were before the step in which another process is lost."""

    def process(peers: Simulated) -> dict[str, Any]:
        scope = Scope([Place("cuda", 0)])
        executor = Executor(classifier(), scope, peers=peers)
        for name, value in values().items():
            scope.set(name, value)

        def lost(*_: Any) -> Any:
            raise PeerError("process 1 is lost")

        begin, peers.begin = peers.begin, lost
        with pytest.raises(PeerError, match="process 1 is lost") as caught:
            executor.run(batch(8, 0), ["loss"], 0)
        assert caught.value.code == ExitCode.PEER_LOST
        kept, peers.begin = {name: scope.get(name) for name in values()}, begin
        executor.run(batch(8, 0), ["loss"], 0)  # it has been told once
        return kept

    for found in cards.run(2, 1, process):
        for name, value in values().items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)


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
        return " ".join(map(str, PeerGroup(peers, peers)._cards(executor).places))

    if isinstance(found, str):
        with pytest.raises(PeError, match=found):
            Network(3).run(process)
    else:
        assert Network(3).run(process) == found


def test_processes_that_would_sum_by_other_libraries_are_told_apart(monkeypatch, tmp_path):
    """One that sums by NCCL would wait for the others for ever."""
    (tmp_path / "model.yaml").write_text("name: m\nfeeds: {x: {shape: [2], dtype: float32}}\nlayers: {loss: {type: mean, x: x}}\n")
    (tmp_path / "run.yaml").write_text("model: model.yaml\nexecutor: {place: cuda, processes: mpi}\n")
    run, local = load_run(str(tmp_path / "run.yaml")), threading.local()
    monkeypatch.setattr(loaded_libraries, "told", lambda _: local.libraries)

    def process(peers: Simulated) -> None:
        local.libraries = f"nccl 2.2{peers.rank}"
        PeerGroup(peers, peers).resources(run)

    with pytest.raises(PeError, match=r"process 1 has another set of CUDA libraries than process 0: nccl 2\.21, not nccl 2\.20") as caught:
        Network(2).run(process)
    assert caught.value.code == ExitCode.USAGE
