"""What processes exchange in a step, sums of gradients and rows of parameters: one call of Python begins it, another waits for it."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pe_cli.collectives.protocol import Parts, Pending, Summing
from pe_cli.devices.memory import aligned
from pe_cli.execute.lowering import GraphLowering
from pe_cli.execute.tasks import Task
from pe_cli.graph.owners import Rows, rows_by_rank
from pe_cli.graph.ssa import Gather, GatherProcesses, Graph, Start, StartGather, StartScatter, StartSum, Wait
from pe_cli.kernels.calls import STATUS, Buffer, Call
from pe_cli.kernels.host import HostKernel
from pe_cli.ops.define.traits import OwnRows

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


def start_scatter(lowering: GraphLowering, node: StartScatter) -> Task:
    """Return the task that begins a sum of which each process gets its own rows; arguments as for `start_sum`."""
    buffers = [lowering.buffer(n, 0) for n in node.names]
    for name in node.names:  # all devices lay a bucket out alike
        for d in range(len(lowering.graph.places)):
            lowering.buffer(name, d)
    shared = _Shared(lowering, node, buffers)
    empty = not node.inputs

    def begin(mine: Parts, arrays: Sequence[Array]) -> Pending:
        for array in arrays if empty else ():
            array.fill(-0.0)
        return shared.peers.begin_scatter(mine, shared.most, node.halved)

    return Task(node.index, 0, [_call(shared.run(begin), node.kind, buffers)], [] if empty else buffers, buffers)


def start_gather(lowering: GraphLowering, node: StartGather) -> Task:
    """Return the task that begins to give all processes the rows of each; arguments as for `start_sum`."""
    buffers = [lowering.buffer(n, 0) for n in node.names]
    shared = _Shared(lowering, node, buffers)

    def begin(mine: Parts, arrays: Sequence[Array]) -> Pending:
        del arrays
        return shared.peers.begin_gather(mine, shared.most)

    return Task(node.index, 0, [_call(shared.run(begin), node.kind, buffers)], buffers, buffers)


class _Shared:
    """Variables of which each process has its own rows, and the room for what crosses.

    Args:
        lowering: of the graph; keeps what is under way.
        node: that begins an exchange.
        buffers: of its variables.
    """

    def __init__(self, lowering: GraphLowering, node: StartScatter | StartGather, buffers: Sequence[Buffer]) -> None:
        self._pending, self._first = lowering.pending, node.names[0]
        self._peers = lowering.whole.peers
        known = _rows_of(lowering.graph)
        self._rows = [known[n] for n in node.names]
        self._sizes = [b.size // max(1, b.shape[0]) for b in buffers]  # elements of a row
        if self._peers is not None:
            sizes = [sum(self._length(i, rank) for i in range(len(buffers))) for rank in range(self._peers.size)]
            from pe_cli.collectives.parts import room_for

            self.most = room_for(sizes, node.pieces)
            self._peers.reserve_parts(self.most * buffers[0].type.numpy.itemsize)

    @property
    def peers(self) -> Summing:
        """The processes."""
        assert self._peers is not None, "a graph that is only looked at does not run"
        return self._peers

    def _length(self, i: int, rank: int) -> int:
        begin, end = self._rows[i][rank]
        return (end - begin) * self._sizes[i]

    def run(self, begin: Callable[[Parts, Sequence[Array]], Pending]) -> Callable[[Sequence[Array], Sequence[Array]], None]:
        """Return the function of a call that begins an exchange of the rows of each process."""

        def run(_: Sequence[Array], arrays: Sequence[Array]) -> None:
            flat = [array.reshape(-1) for array in arrays]
            cuts = [[(low * size, high * size) for low, high in rows] for rows, size in zip(self._rows, self._sizes, strict=True)]
            mine = [[a[slice(*cut[rank])] for a, cut in zip(flat, cuts, strict=True)] for rank in range(self.peers.size)]
            self._pending[self._first] = begin(mine, arrays)

        return run


def _rows_of(graph: Graph) -> dict[str, Rows]:
    """Return who has which rows, of every variable of which processes have rows of their own."""
    found = {}
    for op in graph.program.global_block().ops:
        own = op.definition.get(OwnRows)
        if own is not None:
            found[(op.outputs if own.gives else op.inputs)[own.slot][0]] = rows_by_rank(op)
    return found


def wait_sum(lowering: GraphLowering, node: Wait) -> Task:
    """Return the task that waits for an exchange with other processes, and gives what came to every device that asks for it."""
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


def gather_rows(lowering: GraphLowering, node: GatherProcesses) -> Task:
    """Return the task that gives every process what the devices of all have written: a row for each, zeros where there is none."""
    ins, out = [lowering.buffer(*p) for p in node.ins["X"]], lowering.buffer(*node.outs["Out"][0])
    devices = [d for _, d in node.ins["X"]]
    peers, places = lowering.whole.peers, len(lowering.graph.places)

    def run(_: Sequence[Array], arrays: Sequence[Array]) -> None:
        assert peers is not None, "a graph that is only looked at does not run"
        whole = arrays[-1]
        mine = np.zeros((places, whole.shape[1]), whole.dtype)
        for d, array in zip(devices, arrays, strict=False):
            mine[d] = array.reshape(-1)
        whole[...] = np.frombuffer(b"".join(peers.gather(mine.tobytes())), whole.dtype).reshape(whole.shape)

    return Task(node.index, 0, [_call(run, node.kind, [*ins, out])], ins, [out])


@dataclass(frozen=True)
class Told:
    """Rows of a row-sparse gradient that all processes have told each other.

    Args:
        call: fills the rows of other processes.
        ids, values: of every device of all processes, in order; for several lookups, those of the first on all devices come first.
        scratch: those of them that are of other processes.
    """

    call: Call
    ids: list[Buffer]
    values: list[Buffer]
    scratch: list[Buffer]


def tell_rows(lowering: GraphLowering, node: Gather) -> Told:
    """Return the rows of all devices of all processes, and the call by which processes tell each other theirs."""
    whole, places = lowering.whole, len(lowering.graph.places)
    peers, mine = whole.peers, range(whole.first, whole.first + places)
    active = [d for d, samples in enumerate(whole.sizes) if samples]
    rows = {s: [[_row(lowering, n, d, d in mine) for d in active] for n in node.op.inputs[s]] for s in ("Ids", "X")}
    flat = {s: [b for row in found for b in row] for s, found in rows.items()}
    of_rank: list[list[Buffer]] = [[] for _ in range(len(whole.sizes) // places)]
    for found in rows.values():
        for row in found:
            for d, b in zip(active, row, strict=True):
                of_rank[d // places].append(b)
    order = [b for of in of_rank for b in of]
    scratch = [b for rank, of in enumerate(of_rank) if rank != whole.first // places for b in of]
    counts = [len(of) for of in of_rank]

    def run(_: Sequence[Array], arrays: Sequence[Array]) -> None:
        assert peers is not None, "a graph that is only looked at does not run"
        ends = [0, *itertools.accumulate(counts)]
        parts = [arrays[begin:end] for begin, end in itertools.pairwise(ends)]
        message = b"".join(array.tobytes() for array in parts[peers.rank])
        for rank, told in enumerate(peers.gather(message)):
            at = 0
            for array in parts[rank] if rank != peers.rank else ():
                array[...] = np.frombuffer(told, array.dtype, array.size, at).reshape(array.shape)
                at += array.nbytes

    return Told(_call(run, "all_gather_rows", order), flat["Ids"], flat["X"], scratch)


def _row(lowering: GraphLowering, name: str, device: int, mine: bool) -> Buffer:
    """Return a variable's buffer on a device of this process, or room for that of another's."""
    whole = lowering.whole
    return lowering.buffer(name, device - whole.first) if mine else Buffer("scratch", whole.types[device][name])


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
    """Return (task that began it, begin, end) of every piece that the communication thread exchanged in the step before, in ns."""
    found = []
    for i, task in enumerate(tasks):
        node = graph.nodes[task.node]
        if isinstance(node, Start) and node.names[0] in pending:
            found += [(i, begin, end) for begin, end in pending[node.names[0]].spans]
    return tuple(found)
