"""A plan's place among several processes: its part of the batch, and how gradients are summed over all."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pe_cli.collectives.protocol import Summing
from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.graph.ssa import Graph

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Whole:
    """The devices of all processes; this process has a contiguous range of them.

    Args:
        types: of every variable, by device.
        sizes: samples of each device.
        first: this process's first device.
        peers: the processes; None where nothing runs.
    """

    types: Sequence[Mapping[str, TensorType]]
    sizes: Sequence[int]
    first: int = 0
    peers: Summing | None = None


def whole_of(
    graph: Graph,
    batch: tuple[Sequence[tuple[tuple[str, TensorType], ...]], Sequence[int]],
    types: Sequence[Mapping[str, TensorType]],
    peers: Summing,
) -> Whole:
    """Return the devices of all processes for a batch.

    Args:
        graph: of this process.
        batch: types of the feeds and samples of every device of all processes.
        types: of every variable, by device of this process.
        peers: the processes, each with as many devices.
    """
    from pe_cli.execute.lowering.types import concrete_types

    feeds, sizes = batch
    first = peers.rank * len(graph.places)
    known = {feeds[first + d]: found for d, found in enumerate(types)}
    for given in feeds:
        # Devices of other processes that are fed the same types have the same types inside: most batches need no inference twice.
        if given not in known:
            known[given] = concrete_types(graph.program, dict(given))
    return Whole([known[given] for given in feeds], sizes, first, peers)


class Told:
    """The exchange of batch facts between processes that each see only their share; all make the same calls in the same order.

    Args:
        peers: the processes.

    Raises:
        PeError: by `types` and `sizes`: one of them has ended instead.
    """

    def __init__(self, peers: Summing) -> None:
        self._peers = peers

    def _told(self, message: bytes) -> list[bytes]:
        found = self._peers.gather(message)
        # An empty message is a process that left its loop; to wait on would hang both until the watchdog ends them.
        gone = [rank for rank, said in enumerate(found) if not said]
        if gone:  # what a process says that ends
            raise PeError(f"process {gone[0]} has ended, and this one goes on", hint="all processes take the same number of steps")
        return found

    def longest(self, mine: Sequence[Array]) -> Array:
        """Return the longest of the arrays of all devices, which have one axis of whole numbers."""
        longest = max(mine, key=len)
        # Length alone decides, and the first of equals wins, on every process alike: all have the messages in the order of ranks.
        found = self._peers.gather(longest.astype("<i8").tobytes())
        return np.frombuffer(max(found, key=len), "<i8").astype(longest.dtype)

    def types(self, mine: Sequence[Mapping[str, Array]]) -> list[dict[str, TensorType]]:
        """Return the types of what every device of all processes is fed."""
        text = json.dumps([{name: [list(a.shape), str(a.dtype)] for name, a in part.items()} for part in mine])
        told = [json.loads(message) for message in self._told(text.encode())]
        return [{name: TensorType(tuple(shape), dtype) for name, (shape, dtype) in part.items()} for parts in told for part in parts]

    def sizes(self, mine: Sequence[int]) -> list[int]:
        """Return the samples of every device of all processes."""
        return [size for message in self._told(json.dumps(list(mine)).encode()) for size in json.loads(message)]


def types_of_all(arrays: Mapping[str, Array], sizes: Sequence[int], batched: Collection[str]) -> list[dict[str, TensorType]]:
    """Return the types of what every device of all processes is fed, without sequences.

    Args:
        arrays: of this process.
        sizes: samples of every device.
        batched: feeds whose first axis is the batch.
    """
    known = {name: TensorType(a.shape, str(a.dtype)) for name, a in arrays.items()}
    made = {n: {k: t.with_shape(n, *t.shape[1:]) if k in batched else t for k, t in known.items()} for n in set(sizes)}
    return [made[n] for n in sizes]
