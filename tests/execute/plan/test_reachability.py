"""Which tasks come before which, and memory that is shared by it."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.types import TensorType
from pe_cli.execute.lowering.tasks import Task
from pe_cli.execute.memory import planner
from pe_cli.execute.memory.planner import plan_memory
from pe_cli.execute.plan.reachability import Reachability
from pe_cli.ops.define.lowering import Buffer


def random_waits(rng: np.random.Generator, count: int) -> list[set[int]]:
    """Return tasks that wait for up to three of the eight before them."""
    return [set(rng.integers(max(0, i - 8), i, rng.integers(0, 4)).tolist()) if i else set() for i in range(count)]


def before(waits: list[set[int]]) -> np.ndarray:
    """Return the closure: bool [tasks, tasks], whether the first is always done before the second."""
    found = np.zeros((len(waits), len(waits)), bool)
    for task, others in enumerate(waits):
        for other in others:
            found[:, task] |= found[:, other]
            found[other, task] = True
    return found


def said(reach: Reachability) -> np.ndarray:
    """Return what lines tell of it."""
    return (reach.ahead[:, :, None] <= reach.behind[:, None, :]).any(0)


@pytest.mark.parametrize("seed", range(20))
def test_what_lines_tell_is_true_and_they_tell_nearly_all(seed):
    waits = random_waits(np.random.default_rng(seed), 120)
    exact, told = before(waits), said(Reachability.of(waits))
    assert not (told & ~exact).any()
    assert told.sum() >= 0.95 * exact.sum()


def test_a_line_with_side_branches_is_told_whole():
    # 0 -> 2 -> 4 ..., and a task beside each for which nobody waits
    waits = [set() if i == 0 else {i - 2 if i % 2 == 0 else i - 1} for i in range(200)]
    exact, told = before(waits), said(Reachability.of(waits))
    np.testing.assert_array_equal(told, exact)


def test_some_of_the_tasks_keep_their_order():
    waits = random_waits(np.random.default_rng(3), 60)
    index = list(range(0, 60, 7))
    np.testing.assert_array_equal(said(Reachability.of(waits).pick(index)), said(Reachability.of(waits))[np.ix_(index, index)])


def random_tasks(rng: np.random.Generator, waits: list[set[int]]) -> list[Task]:
    """Return a task that writes a buffer, for every entry, and reads those of the tasks that it waits for."""
    made: list[Task] = []
    for i, others in enumerate(waits):
        out = Buffer(f"b{i}", TensorType((int(rng.choice([16, 64, 300, 1000])),)))
        made.append(Task(i, 0, [], [made[j].writes[0] for j in sorted(others)], [out], [], {}, {}))
    return made


@pytest.mark.parametrize("most", [16_384, 30, 0])
@pytest.mark.parametrize("unordered", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_buffers_that_may_live_together_never_share_bytes(monkeypatch, seed, unordered, most):
    monkeypatch.setattr(planner, "MOST_PLACED", most)
    rng = np.random.default_rng(seed)
    waits = random_waits(rng, 90)
    tasks = random_tasks(rng, waits)
    plan, _ = plan_memory(tasks, (), (), (), reach=Reachability.of(waits) if unordered else None)
    exact = before(waits)
    users: dict[Buffer, list[int]] = {}
    for i, task in enumerate(tasks):
        for b in (*task.reads, *task.writes):
            users.setdefault(b, []).append(i)
    for a in users:
        for b in users:
            meets = plan.offsets[a] < plan.offsets[b] + b.type.nbytes and plan.offsets[b] < plan.offsets[a] + a.type.nbytes
            if a is b or not meets:
                continue
            early, late = sorted((a, b), key=lambda x: users[x][0])
            assert users[early][-1] < users[late][0]
            if unordered:
                assert exact[users[early], users[late][0]].all()
    assert max(plan.offsets[b] + b.type.nbytes for b in users) <= plan.nbytes < plan.unshared
