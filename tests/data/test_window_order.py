"""The order of a stream: every sample once, near its neighbours, the same from any place on, and each process with its own."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.data.window_order import WindowOrder


def starts(*lengths: int) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@pytest.mark.parametrize("batch", [1, 7, 12, 64, 1000])
@pytest.mark.parametrize(
    "stretches",
    [
        pytest.param(starts(100, 100, 100), id="equal stretches"),
        pytest.param(starts(1, 500, 3, 250, 17), id="stretches of all lengths"),
        pytest.param(starts(5), id="fewer samples than a batch"),
    ],
)
def test_an_epoch_has_every_sample_once(batch: int, stretches: np.ndarray) -> None:
    total = int(stretches[-1])
    order = WindowOrder(stretches, batch, 50, seed=1, epoch=0)
    assert len(order) == total
    assert sorted(order[:].tolist()) == list(range(total))


def test_any_batch_can_be_had_without_those_before_it() -> None:
    whole = WindowOrder(starts(300, 40, 77), 32, 64, seed=3, epoch=2)[:]
    order = WindowOrder(starts(300, 40, 77), 32, 64, seed=3, epoch=2)
    for first in range(0, 417, 32):
        assert order[first : first + 32].tolist() == whole[first : first + 32].tolist()
    places = np.array([400, 3, 3, 96])
    assert order[places].tolist() == whole[places].tolist()


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    found = {tuple(WindowOrder(starts(*[50] * 8), 8, 40, seed, epoch)[:].tolist()) for seed in (1, 2) for epoch in (0, 1)}
    assert len(found) == 4


@pytest.mark.parametrize("processes", [2, 4, 8])
def test_a_process_reads_the_stretches_of_its_part_of_batches_alone(processes: int) -> None:
    stretches, batch = starts(*[100] * 64), 32
    order = WindowOrder(stretches, batch, 320, seed=1, epoch=0)[:].reshape(-1, processes, batch // processes)
    read = [len(np.unique(order[:, process] // 100)) for process in range(processes)]
    assert max(read) <= 64 / processes + 1, "its own, and one that is cut where its neighbour's begin"


def test_samples_of_a_window_lie_near_each_other_in_the_data() -> None:
    order = WindowOrder(starts(*[1000] * 32), 32, 3200, seed=1, epoch=0)[:].reshape(-1, 32)
    for first in range(0, 900, 100):
        lane = order[first : first + 100, 0]
        assert np.ptp(lane) < 2000
        assert (np.diff(lane) != 1).any(), "and are not in the order of the data"
