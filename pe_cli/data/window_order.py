"""The order of an epoch that is shuffled in a window: rows that lie together are read together, and each process reads its own.

The stretches of a data set are put in a random order, one behind the other, and that row of samples is cut into lanes of equal length. A
batch takes as many samples of each lane, lane by lane, so that the processes that take the first, the second, ... part of every batch
read from lanes of their own. Within a lane, the samples of a window change places at random. All of it is a function of the seed, the
epoch, the batch size and the window: any batch can be had without those before it, by any number of processes.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.counter_random import permutation, stream_key

#: Lanes at most; there are as many as divide a batch.
LANES = 32
#: Windows whose order is kept.
KEPT = 256

Rows = NDArray[np.int64]


class StoredOrder:
    """The order in which samples are stored: sample i comes at place i.

    Args:
        samples: number of them.
    """

    def __init__(self, samples: int) -> None:
        self._places = samples

    def __len__(self) -> int:
        return self._places

    def __getitem__(self, places: slice | Rows) -> Rows:
        """Return the samples at some places, int64."""
        return np.arange(*places.indices(self._places), dtype=np.int64) if isinstance(places, slice) else places


class WindowOrder:
    """The order of an epoch's samples; sample i is the one that comes at place i.

    Args:
        starts: int64 [stretches + 1], the first sample of each stretch, and the number of all.
        batch_size: samples.
        window: samples that change places, in all lanes together.
        seed: another seed gives another order.
        epoch: likewise.
        samples: places, without those of a last batch that is left out; all samples when None.
    """

    def __init__(
        self, starts: Rows, batch_size: int, window: int, seed: int, epoch: int, samples: int | None = None
    ) -> None:
        stretches = permutation(stream_key("stretches", seed, epoch), len(starts) - 1)
        self._firsts = starts[:-1][stretches]
        self._begins = np.concatenate([[0], np.cumsum(np.diff(starts)[stretches])])
        self._batch, self._total = batch_size, int(starts[-1])
        self._places = self._total if samples is None else samples
        self._lanes = lanes_of(batch_size)
        # Every lane gives as many samples to each batch, so that processes read from lanes of their own.
        self._each = batch_size // self._lanes
        self._cuts = np.arange(self._lanes + 1, dtype=np.int64) * self._total // self._lanes
        self._window = max(1, window // self._lanes)
        # A key for each window: any of them can be had without those before.
        self._key = ("window", seed, epoch)
        self._permuted = functools.lru_cache(KEPT)(self._permutation)

    def __len__(self) -> int:
        return self._places

    def __getitem__(self, places: slice | Rows) -> Rows:
        """Return the samples at some places, int64."""
        if isinstance(places, slice):
            places = np.arange(*places.indices(self._places), dtype=np.int64)
        lane, within = self._in_lanes(places)
        window, inside = within // self._window, within % self._window
        moved = np.empty(len(places), np.int64)
        for key in np.unique(lane * (self._total + 1) + window).tolist():
            one, of = divmod(key, self._total + 1)
            here = (lane == one) & (window == of)
            moved[here] = self._cuts[one] + of * self._window + self._permuted(one, of)[inside[here]]
        stretch = np.searchsorted(self._begins, moved, "right") - 1
        found: Rows = self._firsts[stretch] + moved - self._begins[stretch]
        return found

    def _in_lanes(self, places: Rows) -> tuple[Rows, Rows]:
        """Return the lane of each place, and its place in that."""
        batch, within = places // self._batch, places % self._batch
        lane, inner = within // self._each, within % self._each
        done = self._total // self._batch * self._each  # samples of each lane in full batches
        last = batch >= self._total // self._batch
        # The last batch takes what is left in each lane, lane by lane.
        if last.any():
            ends = np.cumsum(np.diff(self._cuts) - done)
            lane = np.where(last, np.searchsorted(ends, within, "right"), lane)
            inner = np.where(last, within - np.concatenate([[0], ends])[lane], inner)
        return lane, np.where(last, done, batch * self._each) + inner

    def _permutation(self, lane: int, window: int) -> Rows:
        """Return the order of a window's samples, int64 [samples of it]."""
        length = int(self._cuts[lane + 1] - self._cuts[lane])
        size = min(self._window, length - window * self._window)
        return permutation(stream_key(*self._key, lane, window), size)


def lanes_of(batch_size: int) -> int:
    """Return the number of lanes: the greatest divisor of a batch up to `LANES`.

    >>> lanes_of(64), lanes_of(30), lanes_of(31), lanes_of(100)
    (32, 30, 31, 25)
    """
    return max(lanes for lanes in range(1, min(LANES, batch_size) + 1) if batch_size % lanes == 0)
