"""A fast path for batches of types that were seen before: the plan and the split are reused without checking again."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.execute.batch import Batch
from pe_cli.execute.plan.plan import Plan

Array = np.ndarray[Any, Any]
Key = tuple[Any, ...]


class Shortcut:
    """What a batch leads to.

    Args:
        plan: that runs it.
        sizes: samples of each device.
        batched: feeds that are cut along axis 0; the others go to every device whole.
        mine: the devices of this process among all.
    """

    def __init__(self, plan: Plan, sizes: Sequence[int], batched: Collection[str], mine: slice) -> None:
        self.plan = plan
        self.request = plan.request
        # Slices are made once: a step then makes views alone, and computes no bounds.
        ends = list(itertools.accumulate(sizes, initial=0))
        self._fed: list[tuple[str, Array]] = []
        self._batch: Batch | None = None
        names = [name for name, _ in plan.request.feeds[0]]
        cuts = [
            [(name, slice(begin, end) if name in batched and len(sizes) > 1 else None) for name in names]
            for begin, end in itertools.pairwise(ends)
        ]
        self._cuts, self._samples = cuts[mine], samples_of(plan, sizes[mine])

    def batch(self, feed: Mapping[str, Array]) -> Batch:
        """Return a batch of the same types; views, those of the call before where it is in the same arrays."""
        # A training loop may fill the same arrays again and again: their cuts stay the same views.
        if self._batch is not None:
            for name, array in self._fed:
                if feed[name] is not array:
                    break
            else:
                return self._batch
        parts = []
        for row in self._cuts:
            part = {}
            for name, cut in row:
                part[name] = feed[name] if cut is None else feed[name][cut]
            parts.append(part)
        self._fed = list(feed.items())
        self._batch = Batch(self.plan, self.request, parts, self._samples)
        return self._batch


def samples_of(plan: Plan, sizes: Sequence[int]) -> list[int]:
    """Return the samples of the devices that take part in a step; 0 for one that does so without any."""
    return [n for n in sizes if n] or list(sizes[: len(plan.graph.active)])


class Shortcuts:
    """Shortcuts by the types of feeds and the names of fetches.

    Args:
        limit: at most so many.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: OrderedDict[Key, Shortcut] = OrderedDict()

    @staticmethod
    def _key(feed: Any, fetches: Sequence[str], samples: int | None) -> Key | None:
        # Nothing is looked at here but types: what needs a check or a conversion has no key, and goes the long way.
        if type(feed) is not dict:
            return None
        parts: list[Any] = [samples, *fetches]
        for name, value in feed.items():
            if type(value) is not np.ndarray or not value.ndim:
                return None
            parts += (name, value.shape, value.dtype)
        return tuple(parts)

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()

    def find(self, feed: Any, fetches: Sequence[str], samples: int | None = None) -> Shortcut | None:
        """Return the shortcut for a batch, if there is one; samples: of all processes, where this one has its share alone."""
        key = self._key(feed, fetches, samples)
        return None if key is None else self._known.get(key)

    def keep(
        self, feed: Any, fetches: Sequence[str], found: Shortcut, parts: Sequence[Mapping[str, Array]], samples: int | None = None
    ) -> None:
        """Keep a shortcut where it leads to the same parts: nothing was converted or added; see `find`."""
        key = self._key(feed, fetches, samples)
        # A part with a name that was not fed holds a constant or a made array, which no slicing of the feed gives.
        if key is None or any(not parts[d].keys() <= feed.keys() for d in range(len(parts))):
            return
        # Tried once on the long way: only where both give the same bytes may the short one stand in for it.
        for one, other in zip(found.batch(feed).parts, parts, strict=True):
            if one.keys() != other.keys() or any(not _same(one[n], other[n]) for n in one):
                return
        self._known[key] = found
        while len(self._known) > self._limit:
            self._known.popitem(last=False)


def _same(a: Array, b: Array) -> bool:
    """Whether two arrays are the same bytes."""
    return a.dtype == b.dtype and a.shape == b.shape and a.strides == b.strides and a.ctypes.data == b.ctypes.data
