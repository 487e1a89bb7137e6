"""Threads of a pool keep off each other's cores."""

from __future__ import annotations

import os

import pytest

from pe_cli.devices import thread_pool as module
from pe_cli.devices.tape import Chain, Instruction, Tape
from pe_cli.devices.thread_pool import moves
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.compiler.loader import addresses
from pe_cli.kernels.cpu.no_op import nothing


@pytest.mark.parametrize(
    ("cores", "usable", "found"),
    [
        pytest.param([0, 1], [0, 1], {}, id="nobody shares"),
        pytest.param([1, 1], [0, 1], {1: 0}, id="the worker goes"),
        pytest.param([3, 5, 3, 5], [1, 2, 3, 4, 5], {2: 1, 3: 2}, id="the first on each core stay"),
        pytest.param([0, 0, 0], [0, 7], {1: 7}, id="too few cores"),
        pytest.param([2, 2], [2], {}, id="one core"),
    ],
)
def test_moves(cores: list[int], usable: list[int], found: dict[int, int]) -> None:
    assert moves(cores, usable) == found


def test_a_thread_that_shares_a_core_is_moved_and_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = module.pool(2)  # one that stays: its thread does, too
    asked = []
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda pid: {4, 6})
    monkeypatch.setattr(module.os, "sched_setaffinity", lambda thread, cores: asked.append((thread, set(cores))))
    pool._cores[1] = 6
    monkeypatch.setattr(pool, "_core", lambda: 4)
    pool._part()
    assert asked == []
    monkeypatch.setattr(pool, "_core", lambda: 6)
    pool._part()
    (worker,) = pool._threads[1:]
    assert worker > 0
    assert asked == [(worker, {4}), (worker, {4, 6})]


def test_a_worker_says_which_core_it_was_on() -> None:
    instance = Instance(nothing)
    chains = [Chain(((t, t + 1),), t, ()) for t in range(2)]
    tape = Tape([Instruction(instance, (), t, None) for t in range(2)], addresses([instance]), chains, 2)
    pool = module.pool(2)
    (worker,) = pool._threads[1:]
    usable = os.sched_getaffinity(0)
    try:
        for core in sorted(usable):
            os.sched_setaffinity(worker, {core})
            pool._cores[1] = -1
            pool.run(tape._head_at)
            assert pool._cores[1] == core
    finally:
        os.sched_setaffinity(worker, usable)
