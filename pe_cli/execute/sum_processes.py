"""How gradients are summed over processes: one call of Python between the native ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.execute.lowering import GraphLowering
from pe_cli.execute.tasks import Task
from pe_cli.graph.ssa import SumProcesses
from pe_cli.kernels.calls import STATUS, Buffer, Call
from pe_cli.kernels.host import HostKernel

Array = np.ndarray[Any, Any]


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
