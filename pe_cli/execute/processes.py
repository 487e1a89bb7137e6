"""A plan of one process among several: where its part of the batch lies in the whole, and how gradients are summed over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pe_cli.collectives.protocol import Communicator
from pe_cli.core.types import TensorType
from pe_cli.graph.ssa import Graph

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Whole:
    """The devices of all processes, of which this one has some in a row.

    Args:
        types: of every variable, by device.
        sizes: samples of each device.
        first: this process's first device.
        peers: the processes; None where nothing runs.
    """

    types: Sequence[Mapping[str, TensorType]]
    sizes: Sequence[int]
    first: int = 0
    peers: Communicator | None = None


def whole_of(
    graph: Graph,
    batch: tuple[Sequence[tuple[tuple[str, TensorType], ...]], Sequence[int]],
    types: Sequence[Mapping[str, TensorType]],
    peers: Communicator,
) -> Whole:
    """Return the devices of all processes for a batch.

    Args:
        graph: of this process.
        batch: types of the feeds and samples of every device of all processes.
        types: of every variable, by device of this process.
        peers: the processes, each with as many devices.
    """
    from pe_cli.execute.types import concrete_types

    feeds, sizes = batch
    first = peers.rank * len(graph.places)
    known = {feeds[first + d]: found for d, found in enumerate(types)}
    for given in feeds:
        if given not in known:
            known[given] = concrete_types(graph.program, dict(given))
    return Whole([known[given] for given in feeds], sizes, first, peers)
