"""Lowers sums over the CUDA devices of one process: all-reduce, reduce to an owner, and merging of row-sparse gradients."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.collectives.cuda_sums import parts_of, sum_call
from pe_cli.devices.aligned_memory import aligned
from pe_cli.execute.lowering.context import GraphLowering
from pe_cli.execute.lowering.sum_cuda_hosts import tell_rows
from pe_cli.execute.lowering.tasks import Task
from pe_cli.graph.ssa import AllReduce, Gather, Reduce
from pe_cli.kernels.calls import Buffer, Call, Stretch
from pe_cli.kernels.cuda.library_calls import NCCL, SumKernel
from pe_cli.ops.define.lowering import Lowering
from pe_cli.program.ir import EMPTY


def all_reduce(g: GraphLowering, node: AllReduce) -> list[Task]:
    """Return the tasks of a sum that every device gets, each of a part of the bucket, whose gradients lie one after the other."""
    names, devices = node.names, range(len(g.graph.places))
    rows = {d: [g.buffer(n, d) for n in names] for d in devices}  # all devices lay a bucket out alike
    sources = list(dict.fromkeys(d for _, d in node.ins["X"]))
    targets = list(dict.fromkeys(d for _, d in node.outs["Out"]))
    begins = _begins(rows[0])
    elements = begins[-1] + rows[0][-1].size
    parts = parts_of(elements, len(devices))
    if NCCL in g.numerics.libraries and len(parts) > 1 and len(sources) == len(targets) == len(devices):
        return [_by_nccl(g, node, [Stretch(rows[d][0], 0, elements) for d in devices], [b for d in devices for b in rows[d]])]
    tasks = []
    for home, (low, high) in enumerate(parts):
        inside = [i for i, begin in enumerate(begins) if begin < high and low < begin + max(1, rows[0][i].size)]
        if not inside:
            continue

        def stretch(d: int, first: int = inside[0], low: int = low, high: int = high) -> Stretch:
            low = max(low, begins[first])
            return Stretch(rows[d][first], low - begins[first], high - low)

        call = sum_call(len(devices), sources, [stretch(d) for d in sources], [stretch(d) for d in targets], rows[0][0].dtype)
        spans = {
            rows[d][i]: (max(0, low - begins[i]), min(max(1, rows[d][i].size), high - begins[i]))
            for d in dict.fromkeys((*sources, *targets))
            for i in inside
        }
        reads, writes = ([rows[d][i] for d in of for i in inside] for of in (sources, targets))
        tasks.append(Task(node.index, home, [call], reads, [*writes, *_through(g, node)], part=(low, high), spans=spans))
    return tasks


def reduce(g: GraphLowering, node: Reduce) -> list[Task]:
    """Return the task of a sum that its owner gets."""
    sources, targets = ([g.buffer(*at) for at in slots] for slots in (node.ins["X"], node.outs["Out"]))
    size = sources[0].size
    rows, outs = ([Stretch(b, 0, size) for b in of] for of in (sources, targets))
    if NCCL in g.numerics.libraries and len(parts_of(size, len(g.graph.places))) > 1 and len(sources) == len(g.graph.places):
        return [_by_nccl(g, node, rows, sources, node.device)]
    call = sum_call(len(g.graph.places), [d for _, d in node.ins["X"]], rows, outs, sources[0].dtype)
    return [Task(node.index, node.device, [call], sources, [*targets, *_through(g, node)], part=(0, size))]


def gather(g: GraphLowering, node: Gather) -> list[Task]:
    """Return the task that merges the rows of all devices: what merges those of one, given those of all in the order of devices."""
    op = node.op
    ids, values = ([g.buffer(*at) for at in node.ins[s] if at[0] != EMPTY] for s in ("Ids", "X"))
    touched = [*ids, *values]
    calls: list[Call] = []
    scratch: list[Buffer] = []
    if g.whole.peers is not None:
        ids, values, calls, scratch = tell_rows(g, node)
    rows, out = (g.buffer(*node.outs[s][0]) for s in ("Rows", "Out"))
    attrs = dict(op.attrs)
    attrs["padding_idx"] = [p for p in attrs["padding_idx"] for _ in range(len(ids) // len(attrs["padding_idx"]))]
    low = Lowering(op.definition, attrs, {"Ids": [*ids], "X": [*values]}, {"Rows": [rows], "Out": [out]})
    low.place = g.graph.places[node.device].kind
    op.definition.lowerings[low.place](low)
    return [Task(node.index, node.device, [*calls, *low.calls], touched, [rows, out], [*scratch, *low.scratch_buffers])]


def _by_nccl(
    g: GraphLowering, node: AllReduce | Reduce, rows: Sequence[Stretch], touched: Sequence[Buffer], root: int | None = None
) -> Task:
    """Return the task of a sum by NCCL, in place on all devices, all of which have rows."""
    dtype, devices = rows[0].buffer.dtype, range(len(rows))
    own = sum_call(len(rows), devices, rows, rows, dtype)
    call = Call(SumKernel(("Ptr",) * len(rows), root, own), tuple(rows), dtype, dtype)
    return Task(node.index, 0 if root is None else root, [call], [*touched], [*touched], part=(0, rows[0].count))


def _begins(row: Sequence[Buffer]) -> list[int]:
    """Return the elements at which the buffers of a bucket begin."""
    size, begins = row[0].type.numpy.itemsize, [0]
    for b in row[:-1]:
        begins.append(begins[-1] + aligned(b.type.nbytes) // size)
    return begins


def _through(g: GraphLowering, node: AllReduce | Reduce) -> list[Buffer]:
    """Return the gradients that the graph says the sum passes through; on a card it does not, as it is made in registers."""
    return [g.buffer(*at) for at in node.outs.get("Through", ())]
