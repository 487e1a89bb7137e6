"""Lowers sums over processes with CUDA devices, on the first device of each: by NCCL, or through the host like CPU processes.

By the host, what crosses is copied to its memory and back, in the step's graph; the sums are those of the tree, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pe_cli.collectives.cuda_sums import copy_call, fill_with
from pe_cli.core.types import TensorType
from pe_cli.execute.lowering.context import GraphLowering
from pe_cli.execute.lowering.sum_processes import Array, Run, Shared, Told, begin_sum, bucket, bucket_bytes, end
from pe_cli.execute.lowering.tasks import Task
from pe_cli.graph.ssa import Gather, GatherProcesses, Node, Start, StartGather, StartScatter, StartSum, Wait
from pe_cli.kernels.calls import STATUS, Buffer, Call, Stretch
from pe_cli.kernels.cpu.python_calls import MirroredKernel
from pe_cli.kernels.cuda.library_calls import NCCL, AcrossKernel

#: (argument, elements from, to)
Part = tuple[int, int, int]


def start_sum(g: GraphLowering, node: StartSum) -> Task:
    """Return the task that sums the first devices' gradients over all processes, beside what comes after."""
    row = bucket(g, node)
    whole = _stretch(row)
    if _by_nccl(g, node):
        # NCCL sums in place and knows no absent process: one without samples contributes zeros that keep every bit.
        calls = [*_cleared(node, whole), _across(g, "all_reduce", [whole], [(0, 0, whole.count, None)])]
    else:
        takes = [(0, 0, whole.count)] if node.inputs else []
        calls = [_mirrored(begin_sum(g, node), node.kind, [whole], takes=takes)]
    return Task(node.index, 0, calls, row if node.inputs else [], row)


def start_scatter(g: GraphLowering, node: StartScatter) -> Task:
    """Return the task that sums gradients, of which each process gets its own rows."""
    row, shared = bucket(g, node), Shared(g, node)
    if _by_nccl(g, node):
        parts = [(i, low, high, rank) for i, of in enumerate(shared.cuts) for rank, (low, high) in enumerate(of)]
        calls = [*_cleared(node, _stretch(row)), _across(g, "reduce", _whole(row), parts)]
    else:
        takes = [(i, 0, b.size) for i, b in enumerate(row)] if node.inputs else []
        calls = [_mirrored(shared.begin_scatter(node), node.kind, _whole(row), takes=takes)]
    return Task(node.index, 0, calls, row if node.inputs else [], row)


def start_gather(g: GraphLowering, node: StartGather) -> Task:
    """Return the task that gives all processes the rows of each."""
    shared = Shared(g, node)
    if _by_nccl(g, node):
        parts = [(i, low, high, rank) for i, of in enumerate(shared.cuts) for rank, (low, high) in enumerate(of)]
        call = _across(g, "broadcast", _whole(shared.buffers), parts)
    else:
        call = _mirrored(shared.begin_gather(), node.kind, _whole(shared.buffers), takes=_own(g, shared))
    return Task(node.index, 0, [call], shared.buffers, shared.buffers)


def wait_sum(g: GraphLowering, node: Wait) -> Task:
    """Return the task that gives the sums to all devices that ask for them."""
    row = [g.buffer(n, 0) for n in node.names]
    whole = _stretch(row)
    return _wait(g, node, [whole], [(0, 0, whole.count)], [whole])


def wait_scatter(g: GraphLowering, node: Wait) -> Task:
    """Return the task that gives this process's rows of sums to all devices that ask for them."""
    shared = Shared(g, node)
    return _wait(g, node, _whole(shared.buffers), _own(g, shared), [_stretch(shared.buffers)])


def wait_gather(g: GraphLowering, node: Wait) -> Task:
    """Return the task that gives the rows of all processes to all devices that ask for them."""
    shared = Shared(g, node)
    whole = _whole(shared.buffers)
    # A process's own rows are on the card already; only those of others have to be copied there.
    return _wait(g, node, whole, [part for part in _parts(shared) if part not in _own(g, shared)], whole)


def gather_rows(g: GraphLowering, node: GatherProcesses) -> Task:
    """Return the task that gives every process what the devices of all have written: a row for each, zeros where there is none."""
    out, places = g.buffer(*node.outs["Out"][0]), len(g.graph.places)
    width, first, peers = out.shape[1], g.whole.first, g.whole.peers
    whole, mine = Stretch(out, 0, out.size), Stretch(out, first * width, places * width)
    calls = [Call(fill_with, (mine, mine.count, 0.0), out.dtype, out.dtype)]
    for name, d in node.ins["X"]:
        calls.append(copy_call(Stretch(g.buffer(name, d), 0, width), [Stretch(out, (first + d) * width, width)], out.dtype))

    def run(_: Sequence[Array], arrays: Sequence[Array]) -> None:
        assert peers is not None, "a graph that is only looked at does not run"
        (rows,) = arrays
        rows[...] = np.frombuffer(b"".join(peers.gather(rows[mine.elements : mine.elements + mine.count].tobytes())), rows.dtype)

    if _by_nccl(g, node):
        calls.append(_across(g, "all_gather", [whole], [(0, 0, out.size, None)]))
    else:
        # Only its own rows leave the card, and only the others' come back.
        low, high = mine.elements, mine.elements + mine.count
        calls.append(_mirrored(run, node.kind, [whole], takes=[(0, low, high)], gives=[(0, 0, low), (0, high, out.size)]))
    return Task(node.index, 0, calls, [g.buffer(*at) for at in node.ins["X"]], [out])


def tell_rows(g: GraphLowering, node: Gather) -> tuple[list[Buffer], list[Buffer], list[Call], list[Buffer]]:
    """Return ids and values of all devices of all processes, the calls that bring them to the first device, and scratch memory."""
    told = Told(g, node)
    mine = g.whole.first // len(g.graph.places)
    here = {b: _beside(g, b) for b, rank in zip(told.order, told.ranks, strict=True) if rank == mine}
    calls = [copy_call(Stretch(b, 0, b.size), [Stretch(at, 0, b.size)], b.dtype) for b, at in here.items() if at is not b and b.size]
    ids, values, order = ([here.get(b, b) for b in row] for row in (told.ids, told.values, told.order))
    parts = [(i, 0, b.size, rank) for i, (b, rank) in enumerate(zip(order, told.ranks, strict=True))]
    if _by_nccl(g, node):
        calls.append(_across(g, "broadcast", _whole(order), parts))
    else:
        # Own rows go to the host to be sent, those of the others come back from there.
        takes, gives = ([part[:3] for part in parts if (part[3] == mine) is own] for own in (True, False))
        calls.append(_mirrored(told.run, "all_gather_rows", _whole(order), takes=takes, gives=gives))
    return ids, values, calls, [*told.scratch, *(at for b, at in here.items() if at is not b)]


def _beside(g: GraphLowering, b: Buffer) -> Buffer:
    """Return a buffer of this process, or room for it on the first device where it is another's."""
    return b if g.buffers.get((b.name, 0)) is b else Buffer("scratch", b.type)


def _wait(g: GraphLowering, node: Wait, args: Sequence[Stretch], gives: Sequence[Part], whole: Sequence[Stretch]) -> Task:
    """Return the task that waits for what the host exchanges, and gives stretches of the first device to the others that ask for them."""
    names = node.names
    row, others = [g.buffer(n, 0) for n in names], [d for d in dict.fromkeys(d for _, d in node.outs["Out"]) if d]
    # The node that began names the same gradients; the last one, because a name may be exchanged more than once in a step.
    begun = next(n for n in reversed(g.graph.nodes[: node.index]) if isinstance(n, Start) and n.names == names)
    calls = [] if _by_nccl(g, begun) else [_mirrored(end(g, node), node.kind, args, gives=gives)]
    for stretch in whole if others else ():
        targets = [Stretch(g.buffer(stretch.buffer.name, d), stretch.elements, stretch.count) for d in others]
        calls.append(copy_call(stretch, targets, stretch.buffer.dtype))
    return Task(node.index, 0, calls, row, [*row, *(g.buffer(n, d) for d in others for n in names)])


def _by_nccl(g: GraphLowering, node: Node) -> bool:
    """Whether NCCL does an exchange that a node begins: it does not round numbers on the way as `fp16_allreduce` says."""
    return NCCL in g.numerics.libraries and not (isinstance(node, StartSum) and node.halved)


def _cleared(node: StartSum | StartScatter, whole: Stretch) -> list[Call]:
    """Return the call that makes a bucket what sums stay as they are by, where no device of this process has samples."""
    return [] if node.inputs else [Call(fill_with, (whole, whole.count, -0.0), whole.buffer.dtype, whole.buffer.dtype)]


def _parts(shared: Shared) -> list[Part]:
    return [(i, low, high) for i, of in enumerate(shared.cuts) for low, high in of]


def _own(g: GraphLowering, shared: Shared) -> list[Part]:
    """Return this process's elements of variables."""
    rank = g.whole.first // len(g.graph.places)
    return [(i, *of[rank]) for i, of in enumerate(shared.cuts)]


def _across(g: GraphLowering, what: str, args: Sequence[Stretch], parts: Sequence[tuple[int, int, int, int | None]]) -> Call:
    """Return a call of NCCL, without the parts that are empty, which are so for all."""
    dtype = args[0].buffer.dtype
    # An exchange of nothing would still take a launch, and every process leaves out the same ones.
    there = tuple(part for part in parts if part[1] < part[2])
    return Call(AcrossKernel(what, g.whole.peers, there, ("Ptr",) * len(args)), tuple(args), dtype, dtype)


def _mirrored(run: Run, kind: str, args: Sequence[Stretch], *, takes: Sequence[Part] = (), gives: Sequence[Part] = ()) -> Call:
    """Return a call of the host's."""
    types = tuple(TensorType((arg.count,), arg.buffer.dtype) for arg in args)
    return Call(MirroredKernel(run, f"host:{kind}", (), types, tuple(takes), tuple(gives)), (STATUS, *args), "float32", "float32")


def _whole(buffers: Sequence[Buffer]) -> list[Stretch]:
    return [Stretch(b, 0, b.size) for b in buffers]


def _stretch(row: Sequence[Buffer]) -> Stretch:
    """Return a bucket whole."""
    return Stretch(row[0], 0, bucket_bytes(row) // row[0].type.numpy.itemsize)
