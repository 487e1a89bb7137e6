"""Which launches of a step wait for which: by the bytes that they read and write."""

from __future__ import annotations

import itertools
import random

import pytest

from pe_cli.devices.cuda_driver_protocol import Extent
from pe_cli.devices.cuda_launch_dependencies import waits_of
from pe_cli.devices.cuda_launches import Filled, Launch
from pe_cli.kernels.cuda.language import build, cuda_kernel
from pe_cli.kernels.language import Int, Ptr


@cuda_kernel
def moved(x: Ptr, out: Ptr, n: Int):
    for i in range(n):
        out[i] = x[i]


def launch(reads: tuple[int, int], writes: tuple[int, int], *, movable: bool = True) -> Launch:
    args = [Extent(begin, end - begin) for begin, end in (reads, writes)]
    return Launch(0, build(moved, "float32", "float32"), (1,), (1,), args, frozenset({1}), movable)


@pytest.mark.parametrize(
    ("launches", "waits"),
    [
        pytest.param([launch((0, 8), (8, 16)), launch((8, 16), (16, 24))], [[], [0]], id="a value is read when it is there"),
        pytest.param([launch((0, 8), (8, 16)), launch((0, 8), (16, 24))], [[], []], id="two may read one value"),
        pytest.param([launch((0, 8), (8, 16)), launch((16, 24), (0, 8))], [[], [0]], id="a value is kept for those who read it"),
        pytest.param([launch((0, 8), (8, 16)), launch((24, 32), (12, 20))], [[], [0]], id="parts of a value count"),
        pytest.param(
            [launch((0, 8), (8, 16)), launch((8, 16), (16, 24)), launch((8, 24), (24, 32))], [[], [0], [1]], id="nothing is named twice"
        ),
        pytest.param(
            [launch((0, 8), (8, 16)), launch((32, 40), (40, 48), movable=False), launch((64, 72), (72, 80))], [[], [0], [1]],
            id="one that must stay where it is",
        ),
    ],
)  # fmt: skip
def test_waits(launches: list[Launch], waits: list[list[int]]):
    assert waits_of(launches) == waits


def test_what_stands_for_several_touches_what_they_do():
    table = Filled(96, 8, ((0, Extent(0, 8)), (8, Extent(8, 8))), frozenset({8}))
    many = Launch(0, build(moved, "float32", "float32"), (2,), (1,), [table], frozenset(), True)
    assert waits_of([many, launch((8, 16), (16, 24)), launch((0, 8), (24, 32)), launch((32, 40), (0, 8))]) == [[], [0], [], [0, 2]]


def test_whatever_runs_early_leaves_what_a_run_in_order_leaves():
    rng = random.Random(1)
    for _ in range(40):
        steps = [tuple(rng.randrange(6) for _ in range(2)) for _ in range(12)]
        waits = waits_of([launch((8 * a, 8 * a + 8), (8 * b, 8 * b + 8)) for a, b in steps if a != b])
        steps = [(a, b) for a, b in steps if a != b]

        def result(order: list[int], steps: list[tuple[int, int]] = steps) -> list[int]:
            cells = list(range(6))
            for i in order:
                a, b = steps[i]
                cells[b] = hash((cells[a], i))
            return cells

        order: list[int] = []
        while len(order) < len(steps):
            order.append(rng.choice([i for i in range(len(steps)) if i not in order and set(waits[i]) <= set(order)]))
        assert result(order) == result(list(range(len(steps))))
        assert all(i < j for j, before in enumerate(waits) for i in before)
        assert not any(set(waits[i]) & set(before) for before in waits for i in before), list(itertools.chain(*waits))
