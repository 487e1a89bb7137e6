"""Lowers nodes of a graph to tasks, which are kernel calls on buffers; one function per kind of node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pe_cli.collectives.shared_memory import all_reduce_shards
from pe_cli.core.errors import PeError
from pe_cli.core.types import BFLOAT16
from pe_cli.devices.aligned_memory import aligned
from pe_cli.devices.protocol import Takers, device
from pe_cli.execute.lowering.context import GraphLowering, op_seed
from pe_cli.execute.lowering.lowered_nodes import Key
from pe_cli.execute.lowering.sum_processes import Told, gather_rows, start_gather, start_scatter, start_sum, wait_sum
from pe_cli.execute.lowering.tasks import Task, by_output
from pe_cli.execute.regions.calls import lower_regions, refused
from pe_cli.graph.sharded_updates import WHOLE
from pe_cli.graph.ssa import (
    ADDENDS,
    AllReduce,
    Check,
    Compute,
    Copy,
    Gather,
    GatherProcesses,
    Node,
    Reduce,
    ScaleLossGrad,
    StartGather,
    StartScatter,
    StartSum,
    Sync,
    Update,
    WaitGather,
    WaitScatter,
    WaitSum,
)
from pe_cli.kernels.calls import STATUS
from pe_cli.kernels.cpu.finite_check import check_finite
from pe_cli.kernels.math.tree_sum import Order, order_of
from pe_cli.ops.define.bfloat16_storage import lower_rounded
from pe_cli.ops.define.lowering import Buffer, Call, Lowering
from pe_cli.ops.define.registry import OpDef, find
from pe_cli.ops.define.traits import ByRows, FedSizes, HasRegions, OnHost, Remote, Spreads, View
from pe_cli.ops.define.work_parts import HELP_PARTS
from pe_cli.ops.update.selected_rows import merge_shard
from pe_cli.program.ir import EMPTY, Operator

#: Ids of a shard of a gather or of an update: fewer are not worth waking a thread for.
MIN_ROWS = 512


def lower(g: GraphLowering) -> list[Task]:
    """Return the tasks of all nodes, in order; a collective gives one per shard. Nodes whose variables had these types before keep theirs.

    Args:
        g: of the graph; keeps the tasks.
    """
    how = LOWERINGS if device(g.graph.places[0].kind).is_host else LOWERINGS | on_cards()
    g.fill()
    g.tasks = [_tasks(g, node, how[type(node)]) for node in g.graph.nodes]
    return [task for of_node in g.tasks for task in of_node]


def _tasks(g: GraphLowering, node: Node, how: Callable[[GraphLowering, Any], list[Task]]) -> list[Task]:
    """Return the tasks of a node: those that it had for these types before, where they would be the same again."""
    key = _key(g, node)
    found = g.known.find(node.index, key)
    # Variables beside its slots may have other types by now.
    if found is not None and all(g.buffer(*g.known.variables[b]) is b for b in found.beside):
        return found.tasks
    tasks = how(g, node)
    if node.index in g.offsets and node.index not in g.known.by_offset:
        g.known.by_offset.add(node.index)
        key = _key(g, node)
    # Others may have more rows, though this process has as many: those are told anew.
    if not (isinstance(node, Gather) and g.whole.peers is not None):
        # Tasks hold what is under way between processes, which belongs to one lowering.
        g.known.keep(node.index, key, tasks, again=isinstance(node, Compute))
    return tasks


def _key(g: GraphLowering, node: Node) -> Key:
    """Return all that a node's tasks depend on and that other sizes may change; they hold sizes, offsets and shares as numbers."""
    slots = g.known.slots(node)
    try:
        key: list[Any] = [slots.of(g.buffers), g.cuts]
    except KeyError:  # some have no buffer yet
        key = [tuple(g.buffer(*at) for at in slots.names), g.cuts]
    if isinstance(node, Compute):
        key.append(node.helped)
    if isinstance(node, ScaleLossGrad):
        counts = g.shares(node.op.input_names()[0])
        key.append((*counts.own, counts.total))
    if node.index in g.known.by_offset and isinstance(node, Compute):
        # Random numbers follow from the number of the sample: the offset of the device is in the calls.
        g.offsets[node.index] = offset = g.rows_before(node.op, node.device)
        key.append(offset)
    return tuple(key)


# --- operators --------------------------------------------------------------------------------------------------------


def _compute(g: GraphLowering, node: Compute) -> list[Task]:
    """Return the tasks of an operator; those of an update by rows are as many as threads share it."""
    if node.op.definition.has(HasRegions):
        _refuse_rounded(g, node)
        # Each part is a task, so that any thread may take it.
        return lower_regions(g, node, lower)
    parts = _parts(g, node)
    return [task for k in range(parts) for task in _part(g, node, (k, parts))]


def _refuse_rounded(g: GraphLowering, node: Compute) -> None:
    """Refuse bfloat16 where an op runs others, which are given variables as they are stored."""
    for name, at in (pair for slots in (node.ins, node.outs) for pairs in slots.values() for pair in pairs):
        if name != EMPTY and g.buffer(name, at).dtype == BFLOAT16:
            raise PeError(f"op '{node.op.type}' takes no {BFLOAT16}, which '{name}' is", at=node.op.at, hint="cast it to float32 before")


def _parts(g: GraphLowering, node: Compute) -> int:
    """Return by how many threads an update is shared: one that is done once for all devices, row by row and in place."""
    op = node.op
    # Written over its inputs, every row is independent; with another output, rows that nobody updates would have to be copied by someone.
    in_place = set(op.output_names()) <= set(op.input_names())
    if not (op.definition.has(ByRows) and op.inputs.get("Rows") and g.once(op) and in_place):
        return 1
    return _shards_of(g, g.buffer(*node.ins["Rows"][0]))


def _shards_of(g: GraphLowering, rows: Buffer) -> int:
    return max(1, min(g.shards, rows.size // MIN_ROWS))


def _part(g: GraphLowering, node: Compute, share: tuple[int, int]) -> list[Task]:
    """Return the tasks of a part of an operator, (number, of how many)."""
    op, d = node.op, node.device
    definition, kind, native = op.definition, g.graph.places[d].kind, g.native[d]
    ins, outs = g.slots(node.ins), g.slots(node.outs)
    more = _addends(ins)
    offset = g.offsets[node.index] = g.rows_before(op, d)
    low = Lowering(definition, _attrs(g, node), ins, outs, _seed(g, op), offset, share)  # type: ignore[arg-type]
    low.helped, low.precision, low.libraries = node.helped, g.numerics.precision, g.numerics.libraries
    low.deterministic = g.numerics.deterministic
    # Helped ops are cut finer than there are threads, so that a late helper still finds a part to do.
    low.threads = HELP_PARTS if low.helped else g.threads if g.cuts and native else 1
    # An update that all threads do reads the gradients of all devices itself: a sum of its own would write them once more.
    if definition.has(Spreads) and native and len(g.graph.places) * g.threads > 1:
        low.update_threads, low.more = len(g.graph.places) * g.threads, more
        low.order = _order(g) if more else Order()
    # Outputs that are the bytes of inputs are there already: no kernel has to run.
    aliases = _views(definition, ins, outs)
    if not aliases:
        _lower(definition, low, op, kind)
    reads = [*_there(ins), *(b for row in more for b in row)]
    writes = _there(outs)
    over = _pairs(definition.takes_over([slot for slot, row in ins.items() if row]), ins, outs)
    # Parts of an update belong to the devices in turn, which spreads them over threads that are awake already.
    home = d if share == (0, 1) else share[0]
    made = Task(node.index, home, low.calls, reads, writes, low.scratch_buffers, over, aliases, beside=share[0] > 0)
    if low.update_threads > 1:
        made.takers = Takers.ALL
    elif low.helped:
        made.takers = Takers.IDLE
    # Uncut ops of several outputs may run side by side: each output waits for no more than it reads.
    side_by_side = g.threads > 1 and not g.cuts and made.takers is Takers.DEVICE
    return by_output(made, outs) if side_by_side else [made]


def _seed(g: GraphLowering, op: Operator) -> int:
    # What is drawn as a whole, of which a process keeps its rows, is what the variable would be.
    return op_seed(g.numerics.seed, next(iter(op.output_names()), op.type).removesuffix(WHOLE))


def _attrs(g: GraphLowering, node: Compute) -> Mapping[str, Any]:
    """Return an operator's attributes; the first gradient is the device's share."""
    if not isinstance(node, ScaleLossGrad):
        return node.op.attrs_on(node.device)
    counts = g.shares(node.op.input_names()[0])
    # Devices may have different numbers of samples: the loss is the mean over all of them, not the mean of their means.
    share = counts.own[node.device] / max(1, counts.total)
    return {**node.op.attrs, "value": float(node.op.attrs["value"]) * share}


def _addends(ins: dict[str, list[Buffer | None]]) -> list[list[Buffer]]:
    """Take the gradients of the other devices out of the slots of an update that adds them up; a list for each device."""
    flat = [b for b in ins.pop(ADDENDS, ()) if b is not None]
    count = len(ins["Grad"]) if flat else 1
    return [flat[i : i + count] for i in range(0, len(flat), count)]


def _lower(definition: OpDef, low: Lowering, op: Operator, kind: str) -> None:
    fed = definition.get(FedSizes)
    if definition.has(OnHost) or any(op.inputs.get(slot) for slot in (fed.attrs if fed else ())):
        hint = "give numbers; a training takes variables outside of loops and branches, fluid.Executor everywhere"
        raise PeError(f"op '{op.type}' has sizes that only a step knows", at=op.at, hint=hint)
    if definition.has(Remote):
        raise PeError(f"op '{op.type}' talks to other processes", at=op.at, hint="run the program with fluid.Executor")
    lowers = device(kind).lowers
    if lowers not in definition.lowerings:
        raise refused(op, kind)
    try:
        low.place = lowers
        lower_rounded(low, definition.lowerings[lowers])
    except PeError as error:
        error.at = error.at or op.at
        raise


def _copy(g: GraphLowering, node: Copy) -> list[Task]:
    """Return the task that copies what has other names for the same bytes."""
    ins, outs = g.slots(node.ins), g.slots(node.outs)
    pairs = _views(node.op.definition, ins, outs)
    assign = find("assign")
    low = Lowering(assign, {}, {"X": list(pairs.values())}, {"Out": list(pairs)})
    g.offsets[node.index] = g.rows_before(node.op, node.device)
    _lower(assign, low, node.op, g.graph.places[node.device].kind)
    over = _pairs(assign.takes_over(list(ins)), ins, outs)
    return [Task(node.index, node.device, low.calls, _there(ins), _there(outs), low.scratch_buffers, over)]


def _check(g: GraphLowering, node: Check) -> list[Task]:
    """Return the task that looks at the results of an operator."""
    found = [g.buffer(*p) for p in node.ins["X"]]
    calls = [Call(check_finite, (b, b.size, i, STATUS), b.dtype, "float32") for i, b in enumerate(found) if b.size]
    return [Task(node.index, node.device, calls, found, found)]


# --- what joins devices -----------------------------------------------------------------------------------------------


def _all_reduce(g: GraphLowering, node: AllReduce) -> list[Task]:
    """Return one task per shard. The gradients of a bucket lie one after the other, so that the first stands for all."""
    names = node.names
    sources = [[g.buffer(n, d) for n in names] for d in dict.fromkeys(d for _, d in node.ins["X"])]
    targets = [[g.buffer(n, d) for n in names] for d in dict.fromkeys(d for _, d in node.outs["Out"])]
    for name in names:  # all devices lay a bucket out alike
        for d in range(len(g.graph.places)):
            g.buffer(name, d)
    first = sources[0][0]
    size = first.type.numpy.itemsize
    begins = [0]
    for b in sources[0][:-1]:
        # In elements and with the padding between buffers: shards cut the bucket as one array.
        begins.append(begins[-1] + aligned(b.type.nbytes) // size)
    elements, order = begins[-1] + sources[0][-1].size, _order(g, in_place=True)
    calls = all_reduce_shards([row[0] for row in sources], [row[0] for row in targets], elements, g.shards, order)
    through = [g.buffer(*p) for p in node.outs.get("Through", ())]
    tasks = []
    for home, (call, room) in enumerate(calls):
        low, high = call.args[-2:]
        spans = {}
        for row in (*sources, *targets):
            for b, begin in zip(row, begins, strict=True):
                # A shard reads only a span of each gradient; without the spans every shard would wait for all of them.
                if begin < high and low < begin + max(1, b.size):
                    spans[b] = (max(0, low - begin), min(max(1, b.size), high - begin))
        reads, writes = ([b for row in rows for b in row if b in spans] for rows in (sources, [*targets, through]))
        buckets = [*sources, *targets]
        tasks.append(Task(node.index, home, [call], reads, writes, room, part=(low, high), spans=spans, buckets=buckets))
    return tasks


def _reduce(g: GraphLowering, node: Reduce) -> list[Task]:
    sources = [g.buffer(*p) for p in node.ins["X"]]
    targets = [g.buffer(*p) for p in node.outs["Out"]]
    through = [g.buffer(*p) for p in node.outs.get("Through", ())]
    ((call, room),) = all_reduce_shards(sources, targets, sources[0].size, 1, _order(g, in_place=True))
    return [Task(node.index, node.device, [call], sources, [*targets, *through], room, part=(0, sources[0].size))]


def _order(g: GraphLowering, *, in_place: bool = False) -> Order:
    """Return the order in which the gradients of the devices with samples are added up."""
    return order_of(len(g.graph.places), g.graph.active, in_place=in_place)


def _gather(g: GraphLowering, node: Gather) -> list[Task]:
    """Return one task per shard: each merges some of the rows of all devices."""
    op, slots = node.op, g.slots(node.ins)
    ids, values = ([b for b in slots[s] if b is not None] for s in ("Ids", "X"))
    rows, out = (g.buffer(*node.outs[s][0]) for s in ("Rows", "Out"))
    told = None if g.whole.peers is None else Told(g, node)
    touched = [*ids, *values]
    if told is not None:
        ids, values = told.ids, told.values
    # An attribute names the padding of each lookup; the devices' ids come in the order of lookups, then devices.
    paddings = [p for p in op.attrs["padding_idx"] for _ in range(len(ids) // len(op.attrs["padding_idx"]))]
    # What other processes tell comes once: one task waits for it.
    shards = _shards_of(g, rows) if told is None else 1
    made = []
    for shard in range(shards):
        low = Lowering(op.definition, op.attrs, {}, {})
        if told is not None:
            low.calls.append(told.call)
            low.scratch_buffers += told.scratch
        merge_shard(low, ids, values, paddings, op.attrs["height"], rows, out, shard, shards)
        made.append(Task(node.index, shard, low.calls, touched, [rows, out], low.scratch_buffers, beside=shard > 0))
    return made


def _views(
    definition: OpDef, ins: Mapping[str, Sequence[Buffer | None]], outs: Mapping[str, Sequence[Buffer | None]]
) -> dict[Buffer, Buffer]:
    """Return the outputs that are an input's bytes, each with that input."""
    view = definition.get(View)
    found = _pairs(view.pairs, ins, outs) if view else {}
    # A cast between types is no view, even where the op is one: its bytes differ.
    return {out: source for out, source in found.items() if out.dtype == source.dtype}


def _there(slots: Mapping[str, Sequence[Buffer | None]]) -> list[Buffer]:
    """Return the buffers of slots, those that are left out apart."""
    return [b for row in slots.values() for b in row if b is not None]


def _pairs(
    names: Mapping[str, str], ins: Mapping[str, Sequence[Buffer | None]], outs: Mapping[str, Sequence[Buffer | None]]
) -> dict[Buffer, Buffer]:
    """Return output buffer -> input buffer for output slot -> input slot, where they are there and not the same."""
    found = {}
    for out_slot, in_slot in names.items():
        out, source = outs.get(out_slot, ()), ins.get(in_slot, ())
        # An op that writes its input by name has nothing to take over: both are one buffer.
        if out and source and out[0] is not None and source[0] is not None and out[0] is not source[0]:
            found[out[0]] = source[0]
    return found


#: How each kind of node becomes tasks.
LOWERINGS: dict[type[Node], Callable[[GraphLowering, Any], list[Task]]] = {
    Compute: _compute,
    ScaleLossGrad: _compute,
    Sync: _compute,
    Update: _compute,
    Copy: _copy,
    Check: _check,
    Gather: _gather,
    AllReduce: _all_reduce,
    Reduce: _reduce,
    GatherProcesses: lambda g, node: [gather_rows(g, node)],
    StartSum: lambda g, node: [start_sum(g, node)],
    WaitSum: lambda g, node: [wait_sum(g, node)],
    StartScatter: lambda g, node: [start_scatter(g, node)],
    WaitScatter: lambda g, node: [wait_sum(g, node)],
    StartGather: lambda g, node: [start_gather(g, node)],
    WaitGather: lambda g, node: [wait_sum(g, node)],
}


def on_cards() -> dict[type[Node], Callable[[GraphLowering, Any], list[Task]]]:
    """Return the lowerings of nodes that join devices whose memory is not the host's."""
    from pe_cli.execute.lowering import sum_cuda_devices, sum_cuda_hosts

    return {
        Gather: sum_cuda_devices.gather,
        AllReduce: sum_cuda_devices.all_reduce,
        Reduce: sum_cuda_devices.reduce,
        GatherProcesses: lambda g, node: [sum_cuda_hosts.gather_rows(g, node)],
        StartSum: lambda g, node: [sum_cuda_hosts.start_sum(g, node)],
        WaitSum: lambda g, node: [sum_cuda_hosts.wait_sum(g, node)],
        StartScatter: lambda g, node: [sum_cuda_hosts.start_scatter(g, node)],
        WaitScatter: lambda g, node: [sum_cuda_hosts.wait_scatter(g, node)],
        StartGather: lambda g, node: [sum_cuda_hosts.start_gather(g, node)],
        WaitGather: lambda g, node: [sum_cuda_hosts.wait_gather(g, node)],
    }
