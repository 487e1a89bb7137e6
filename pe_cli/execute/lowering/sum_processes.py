"""Lowers sums and gathers over processes: one host call starts each collective, a later one waits for it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.collectives.protocol import Parts, Pending, Summing
from pe_cli.devices.aligned_memory import aligned
from pe_cli.execute.lowering.context import GraphLowering
from pe_cli.execute.lowering.tasks import Task
from pe_cli.graph.sharded_updates import Rows, rows_by_rank
from pe_cli.graph.ssa import Gather, GatherProcesses, Graph, Start, StartGather, StartScatter, StartSum, Wait
from pe_cli.kernels.calls import STATUS, Buffer, Call
from pe_cli.kernels.cpu.python_calls import HostKernel
from pe_cli.ops.define.traits import OwnRows

Array = np.ndarray[Any, Any]
#: A function of copies of inputs, and of outputs; see `HostKernel`.
Run = Callable[[Sequence[Array], Sequence[Array]], None]


def start_sum(lowering: GraphLowering, node: StartSum) -> Task:
    """Return the task that begins a sum over processes, in the memory of the first device.

    Args:
        lowering: of the graph; keeps what is under way.
        node: gradients of one element type, which lie one after the other.
    """
    buffers = bucket(lowering, node)
    return Task(node.index, 0, [_call(begin_sum(lowering, node), node.kind, buffers)], buffers if node.inputs else [], buffers)


def start_scatter(lowering: GraphLowering, node: StartScatter) -> Task:
    """Return the task that begins a sum of which each process gets its own rows; arguments as for `start_sum`."""
    buffers = bucket(lowering, node)
    run = Shared(lowering, node).begin_scatter(node)
    return Task(node.index, 0, [_call(run, node.kind, buffers)], buffers if node.inputs else [], buffers)


def start_gather(lowering: GraphLowering, node: StartGather) -> Task:
    """Return the task that begins to give all processes the rows of each; arguments as for `start_sum`."""
    shared = Shared(lowering, node)
    return Task(node.index, 0, [_call(shared.begin_gather(), node.kind, shared.buffers)], shared.buffers, shared.buffers)


def bucket(lowering: GraphLowering, node: StartSum | StartScatter) -> list[Buffer]:
    """Return the gradients of the first device; all devices lay a bucket out alike."""
    for name in node.names:
        for d in range(len(lowering.graph.places)):
            lowering.buffer(name, d)
    return [lowering.buffer(n, 0) for n in node.names]


def bucket_bytes(buffers: Sequence[Buffer]) -> int:
    """Return the bytes from the first of a bucket to the end of the last."""
    return sum(aligned(b.type.nbytes) for b in buffers[:-1]) + buffers[-1].type.nbytes


def begin_sum(lowering: GraphLowering, node: StartSum) -> Run:
    """Return what begins a sum, given the arrays of a bucket, or all of it as one."""
    buffers = [lowering.buffer(n, 0) for n in node.names]
    size, stretch = buffers[0].type.numpy.itemsize, bucket_bytes(buffers)
    most = -(-stretch // size // node.pieces) or 1
    peers = lowering.whole.peers
    if peers is not None:
        # Reserved before the first step, because all processes agree on the size of a piece when they connect.
        peers.reserve((most + 1) * size)
    pending = lowering.pending

    def run(_: Sequence[Array], arrays: Sequence[Array]) -> None:
        assert peers is not None, "a graph that is only looked at does not run"
        # Gradients of a bucket lie one after the other: one array is summed, with the gaps between them.
        values = _stretch(arrays, stretch)
        if not node.inputs:
            values.fill(-0.0)  # what it is added to stays as it is, to the last bit
        pending[node.names[0]] = peers.begin(values, most, node.halved)

    return run


class Shared:
    """Variables whose rows are sharded over processes, and the buffers for their exchange.

    Args:
        lowering: of the graph; keeps what is under way.
        node: that exchanges them.

    Attributes:
        buffers: of the first device.
        cuts: of each variable the elements of every process, from and to.
    """

    def __init__(self, lowering: GraphLowering, node: StartScatter | StartGather | Wait) -> None:
        self._pending, self._first = lowering.pending, node.names[0]
        self._peers = lowering.whole.peers
        self.buffers = [lowering.buffer(n, 0) for n in node.names]
        # Cuts are in rows, arrays are flat: a row's elements make one out of the other.
        known, sizes = _rows_of(lowering.graph), [b.size // max(1, b.shape[0]) for b in self.buffers]  # elements of a row
        self.cuts = [[(low * size, high * size) for low, high in known[n]] for n, size in zip(node.names, sizes, strict=True)]
        if self._peers is not None and not isinstance(node, Wait):
            # All processes reserve the same, whatever their own part is: a message has one size for all.
            lengths = [sum(high - low for low, high in of) for of in zip(*self.cuts, strict=True)]
            from pe_cli.collectives.reduce_scatter import room_for

            self._most = room_for(lengths, node.pieces)
            self._peers.reserve_parts(self._most * self.buffers[0].type.numpy.itemsize)

    def begin_scatter(self, node: StartScatter) -> Run:
        """Return what begins a sum of which each process gets its own elements, given the arrays of gradients."""

        def begin(peers: Summing, mine: Parts) -> Pending:
            for array in () if node.inputs else (a for part in mine for a in part):
                array.fill(-0.0)
            return peers.begin_scatter(mine, self._most, node.halved)

        return self._run(begin)

    def begin_gather(self) -> Run:
        """Return what begins to give all processes the elements of each, given the arrays of parameters."""
        return self._run(lambda peers, mine: peers.begin_gather(mine, self._most))

    def _run(self, begin: Callable[[Summing, Parts], Pending]) -> Run:
        """Return the function of a call that begins an exchange of the elements of each process."""

        def run(_: Sequence[Array], arrays: Sequence[Array]) -> None:
            peers = self._peers
            assert peers is not None, "a graph that is only looked at does not run"
            flat = [array.reshape(-1) for array in arrays]
            mine = [[a[slice(*cut[rank])] for a, cut in zip(flat, self.cuts, strict=True)] for rank in range(peers.size)]
            self._pending[self._first] = begin(peers, mine)

        return run


def _rows_of(graph: Graph) -> dict[str, Rows]:
    """Return, for every sharded variable, which process has which rows."""
    found = {}
    for op in graph.program.top_ops:
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
    wait = end(lowering, node)

    def run(ins: Sequence[Array], arrays: Sequence[Array]) -> None:
        wait(ins, arrays)
        sums, targets = arrays[: len(first)], arrays[len(first) :]
        for i, array in enumerate(targets):
            array[...] = sums[i % len(first)]

    return Task(node.index, 0, [_call(run, node.kind, [*first, *others])], first, [*first, *others])


def end(lowering: GraphLowering, node: Wait) -> Run:
    """Return what waits for an exchange."""
    pending = lowering.pending
    return lambda _, arrays: pending[node.names[0]].wait()


def gather_rows(lowering: GraphLowering, node: GatherProcesses) -> Task:
    """Return the task that gives every process what the devices of all have written: a row for each, zeros where there is none."""
    ins, out = [lowering.buffer(*p) for p in node.ins["X"]], lowering.buffer(*node.outs["Out"][0])
    devices = [d for _, d in node.ins["X"]]
    # What is gathered has a fixed place for each device, so that the sum over rows is done in the same order everywhere.
    peers, places = lowering.whole.peers, len(lowering.graph.places)

    def run(_: Sequence[Array], arrays: Sequence[Array]) -> None:
        assert peers is not None, "a graph that is only looked at does not run"
        whole = arrays[-1]
        mine = np.zeros((places, whole.shape[1]), whole.dtype)
        for d, array in zip(devices, arrays, strict=False):
            # Devices without samples have written nothing: their rows stay 0.
            mine[d] = array.reshape(-1)
        whole[...] = np.frombuffer(b"".join(peers.gather(mine.tobytes())), whole.dtype).reshape(whole.shape)

    return Task(node.index, 0, [_call(run, node.kind, [*ins, out])], ins, [out])


class Told:
    """Rows of a row-sparse gradient that all processes tell each other.

    Args:
        lowering: of the graph.
        node: that merges them.

    Attributes:
        ids, values: of every device of all processes, in order; for several lookups, those of the first on all devices come first.
        order: all of these, those of a process one after the other, in the order in which it tells them.
        ranks: of each the process.
        scratch: those of other processes.
    """

    def __init__(self, lowering: GraphLowering, node: Gather) -> None:
        whole, places = lowering.whole, len(lowering.graph.places)
        self._peers, mine = whole.peers, range(whole.first, whole.first + places)
        # Devices without samples have no rows, and all processes know which these are.
        active = [d for d, samples in enumerate(whole.sizes) if samples]
        rows = {s: [[_row(lowering, n, d, d in mine) for d in active] for n in node.op.inputs[s]] for s in ("Ids", "X")}
        self.ids, self.values = ([b for row in rows[s] for b in row] for s in ("Ids", "X"))
        of_rank: list[list[Buffer]] = [[] for _ in range(len(whole.sizes) // places)]
        for row in (row for found in rows.values() for row in found):
            for d, b in zip(active, row, strict=True):
                of_rank[d // places].append(b)
        self.order = [b for of in of_rank for b in of]
        self.ranks = [rank for rank, of in enumerate(of_rank) for _ in of]
        self.scratch = [b for b, rank in zip(self.order, self.ranks, strict=True) if rank != whole.first // places]

    def run(self, _: Sequence[Array], arrays: Sequence[Array]) -> None:
        """Fill the rows of other processes, given the arrays of all in order."""
        peers = self._peers
        assert peers is not None, "a graph that is only looked at does not run"
        parts: list[list[Array]] = [[] for _ in range(peers.size)]
        for array, rank in zip(arrays, self.ranks, strict=True):
            parts[rank].append(array)
        # One message holds the rows of all tables: a round trip for each would take longer than the rows.
        message = b"".join(array.tobytes() for array in parts[peers.rank])
        for rank, told in enumerate(peers.gather(message)):
            at = 0
            for array in parts[rank] if rank != peers.rank else ():
                array[...] = np.frombuffer(told, array.dtype, array.size, at).reshape(array.shape)
                at += array.nbytes

    @property
    def call(self) -> Call:
        """The call that does it."""
        return _call(self.run, "all_gather_rows", self.order)


def _row(lowering: GraphLowering, name: str, device: int, mine: bool) -> Buffer:
    """Return a variable's buffer on a device of this process, or room for that of another's."""
    whole = lowering.whole
    return lowering.buffer(name, device - whole.first) if mine else Buffer("scratch", whole.type_of(name, device))


def _call(run: Callable[[Sequence[Array], Sequence[Array]], None], kind: str, touched: Sequence[Buffer]) -> Call:
    kernel = HostKernel(run, f"host:{kind}", (), tuple(b.type for b in touched))
    return Call(kernel, (STATUS, *touched), "float32", "float32")


def _stretch(arrays: Sequence[Array], nbytes: int) -> Array:
    """Return the memory from the first array to the end of the last, which lie one after the other, as one."""
    begin = arrays[0].ctypes.data
    # Checked, because the view below reaches over the gaps between arrays and would otherwise be memory of others.
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
