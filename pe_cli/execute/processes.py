"""A plan of one process among several: where its part of the batch lies in the whole, and how gradients are summed over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pe_cli.collectives.protocol import Communicator
from pe_cli.core.types import TensorType
from pe_cli.execute.tasks import Task
from pe_cli.graph.ssa import Graph, SumProcesses
from pe_cli.kernels.calls import STATUS, Buffer, Call
from pe_cli.kernels.host import HostKernel

if TYPE_CHECKING:
    from pe_cli.execute.lowering import GraphLowering

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


def sum_over_processes(lowering: GraphLowering, node: SumProcesses) -> Task:
    """Return the task of a sum over processes: one call of Python between the native ones.

    Args:
        lowering: of the graph.
        node: gradients of one element type; its sums over the devices of this process are on the first.
    """
    names = node.names
    devices = range(len(lowering.graph.places))
    outs = [[lowering.buffer(n, d) for n in names] for d in devices]
    dtype = outs[0][0].dtype
    sizes = [b.size for b in outs[0]]
    ends = np.cumsum(sizes).tolist()
    room = np.empty(sum(sizes), dtype)
    parts = [room[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    peers = lowering.whole.peers
    add = None if peers is None else peers.summer(room.size, dtype)
    empty = not node.inputs

    def run(_: Sequence[Array], arrays: Sequence[Array]) -> None:
        assert add is not None, "a graph that is only looked at does not run"
        if empty:
            room.fill(0)
        else:
            for part, array in zip(parts, arrays, strict=False):
                part[:] = array.reshape(-1)
        add(room)
        for i, array in enumerate(arrays):
            array.reshape(-1)[:] = parts[i % len(parts)]

    flat: list[Buffer] = [b for row in outs for b in row]
    kernel = HostKernel(run, f"host:{node.kind}", (), tuple(b.type for b in flat))
    call = Call(kernel, (STATUS, *flat), "float32", "float32")
    return Task(node.index, 0, [call], [] if empty else list(outs[0]), flat)
