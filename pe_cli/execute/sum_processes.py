"""How gradients are summed over processes: one call of Python begins a sum, another waits for it; in between the step goes on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.collectives.protocol import Pending
from pe_cli.devices.memory import aligned
from pe_cli.execute.lowering import GraphLowering
from pe_cli.execute.tasks import Task
from pe_cli.graph.ssa import Graph, StartSum, WaitSum
from pe_cli.kernels.calls import STATUS, Buffer, Call
from pe_cli.kernels.host import HostKernel

Array = np.ndarray[Any, Any]


def start_sum(lowering: GraphLowering, node: StartSum) -> Task:
    """Return the task that begins a sum over processes, in the memory of the first device.

    Args:
        lowering: of the graph; keeps what is under way.
        node: gradients of one element type, which lie one after the other.
    """
    buffers = [lowering.buffer(n, 0) for n in node.names]
    for name in node.names:  # all devices lay a bucket out alike
        for d in range(len(lowering.graph.places)):
            lowering.buffer(name, d)
    size = buffers[0].type.numpy.itemsize
    stretch = sum(aligned(b.type.nbytes) for b in buffers[:-1]) + buffers[-1].type.nbytes
    most = -(-stretch // size // node.pieces) or 1
    peers = lowering.whole.peers
    if peers is not None:
        peers.reserve((most + 1) * size)
    pending = lowering.pending
    empty = not node.inputs

    def run(_: Sequence[Array], arrays: Sequence[Array]) -> None:
        assert peers is not None, "a graph that is only looked at does not run"
        values = _stretch(arrays, stretch)
        if empty:
            values.fill(-0.0)  # what it is added to stays as it is, to the last bit
        pending[node.names[0]] = peers.begin(values, most, node.halved)

    return Task(node.index, 0, [_call(run, node.kind, buffers)], [] if empty else buffers, buffers)


def wait_sum(lowering: GraphLowering, node: WaitSum) -> Task:
    """Return the task that waits for a sum over processes, and gives it to every device that asks for it."""
    devices = list(dict.fromkeys(d for _, d in node.outs["Out"]))
    rows = [[lowering.buffer(n, d) for n in node.names] for d in devices]
    first = [lowering.buffer(n, 0) for n in node.names]
    others = [b for row in rows for b in row if b not in first]
    pending = lowering.pending

    def run(_: Sequence[Array], arrays: Sequence[Array]) -> None:
        pending[node.names[0]].wait()
        sums, targets = arrays[: len(first)], arrays[len(first) :]
        for i, array in enumerate(targets):
            array[...] = sums[i % len(first)]

    return Task(node.index, 0, [_call(run, node.kind, [*first, *others])], first, [*first, *others])


def _call(run: Callable[[Sequence[Array], Sequence[Array]], None], kind: str, touched: Sequence[Buffer]) -> Call:
    kernel = HostKernel(run, f"host:{kind}", (), tuple(b.type for b in touched))
    return Call(kernel, (STATUS, *touched), "float32", "float32")


def _stretch(arrays: Sequence[Array], nbytes: int) -> Array:
    """Return the memory from the first array to the end of the last, which lie one after the other, as one."""
    begin = arrays[0].ctypes.data
    assert arrays[-1].ctypes.data + arrays[-1].nbytes == begin + nbytes, "a bucket is one stretch of memory"
    whole: Array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(begin))
    return whole.view(arrays[0].dtype)



def under_way(graph: Graph, tasks: Sequence[Task], pending: Mapping[str, Pending]) -> tuple[tuple[int, int, int], ...]:
    """Return (task that began it, begin, end) of every piece that the communication thread summed in the step before, in ns."""
    found = []
    for i, task in enumerate(tasks):
        node = graph.nodes[task.node]
        if isinstance(node, StartSum) and node.names[0] in pending:
            found += [(i, begin, end) for begin, end in pending[node.names[0]].spans]
    return tuple(found)
