"""Several processes, played by threads: each has some of the devices, and all together give the closed form."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute import plans
from pe_cli.execute.executor import Executor
from pe_cli.execute.merge import merge
from pe_cli.execute.plan import Plan
from pe_cli.graph.replicate import replicate
from pe_cli.graph.text import describe
from tests.execute.test_executor import batch, classifier, reference, values
from tests.execute.test_sparse_gradients import executor_of, named

SIZES = (13, 8, 3, 2, 20, 1)


class Thread:
    """A process that is a thread; sums take the arrays in the order of ranks."""

    doing = advice = ""

    def __init__(self, rank: int, size: int, board: list, barrier: threading.Barrier) -> None:
        self.rank, self.size, self._board, self._barrier = rank, size, board, barrier

    def gather(self, message):
        self._board[self.rank] = message
        self._barrier.wait()
        found = list(self._board)
        self._barrier.wait()
        return found

    def summer(self, elements, dtype):
        def run(array):
            assert array.shape == (elements,)
            assert array.dtype == dtype
            parts = self.gather(array.copy())
            array[:] = parts[0]
            for part in parts[1:]:
                array += part

        return run

    def busy(self):
        return contextlib.nullcontext()


def train(processes: int, devices: int, run_sizes: tuple[int, ...] = SIZES, **build: object):
    board, barrier = [None] * processes, threading.Barrier(processes, timeout=60)

    def process(rank: int):
        peers = Thread(rank, processes, board, barrier)
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
            found = peers.gather(([v["loss"] for v in ran.values], ran.shares["loss"]))
            parts, weights = ([x for each in found for x in each[i]] for i in (0, 1))
            losses.append(float(np.asarray(merge(parts, weights, "mean")).item()))
        return losses, [{name: scope.get(name, d) for name in ("w0", "w1")} for d in range(devices)]

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(process, range(processes)))


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
    monkeypatch.setattr(plans, "MAX_PLANS", 2)
    monkeypatch.setattr(Plan, "fit", lambda self, request: fitted.append(fit(self, request)) or fitted[-1])
    sizes = (30, 29, *np.random.default_rng(0).integers(processes * devices, 30, 12).tolist())
    expected, parameters = reference(sizes)
    for losses, kept in train(processes, devices, sizes):
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
        for scope in kept:
            for name, value in parameters.items():
                np.testing.assert_allclose(scope[name], value, rtol=1e-4, atol=1e-6)
    assert sum(fitted) > processes * 5


def test_the_sum_over_processes_is_a_node_behind_that_over_devices():
    text = describe(replicate(classifier(), [Place("cpu", 0), Place("cpu", 1)], BuildStrategy(), processes=2))
    lines = [line.split(maxsplit=3)[-1] for line in text.splitlines() if "all_reduce" in line]
    assert [line.partition("(")[0] for line in lines] == ["fused_all_reduce", "all_reduce_processes"]
    assert "@0." in lines[1].partition(" -> ")[0]
    assert "@1." not in lines[1].partition(" -> ")[0], "the first device's sums are enough"
    assert "@1." in lines[1].partition(" -> ")[2], "every device gets the result"
    alone = describe(replicate(classifier(), [Place("cpu", 0)], BuildStrategy(), processes=2))
    assert alone.count("all_reduce_processes(") == 1
    assert "fused_all_reduce(" not in alone
    assert "scale_loss_grad(" in alone


@pytest.mark.parametrize(
    "wish", [{"reduce_strategy": "Reduce"}, {"sync_batch_norm": True}], ids=lambda w: next(iter(w))
)
def test_what_processes_cannot_do_yet_is_refused(wish):
    with pytest.raises(PeError, match="not with several processes yet"):
        replicate(classifier(), [Place("cpu", 0)], BuildStrategy(**wish), processes=2)


def test_row_sparse_gradients_are_refused():
    program = executor_of(named("SGD")).program
    with pytest.raises(PeError, match="row-sparse gradients: not with several processes yet") as caught:
        replicate(program, [Place("cpu", 0)], BuildStrategy(), processes=2)
    assert caught.value.hint == "set is_sparse: false, or processes: 1"
