"""Nodes of a graph become kernel calls on buffers of known type."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from pe_cli.collectives.local import all_reduce_shards
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.devices.memory import aligned
from pe_cli.devices.protocol import Takers
from pe_cli.execute.processes import Whole, sum_over_processes
from pe_cli.execute.tasks import Task, by_output
from pe_cli.execute.updates import Updates
from pe_cli.graph.processes import SUM_PROCESSES
from pe_cli.graph.ssa import COLLECTIVES, Graph, OpNode, Slots
from pe_cli.kernels.calls import STATUS
from pe_cli.kernels.finite import check_finite
from pe_cli.ops.areas import HELP_PARTS
from pe_cli.ops.lowering import Buffer, Call, Lowering
from pe_cli.ops.registry import OpDef, find
from pe_cli.ops.selected_rows import merge_shard
from pe_cli.program.ir import EMPTY, Operator, Role

#: Ids of a shard of a gather or of an update: fewer are not worth waking a thread for.
MIN_ROWS = 512


def op_seed(seed: int, output: str) -> int:
    """Mix a program's seed with the name of an op's output into 63 bits: the same on every device, at every step, after any pass."""
    mixed = hashlib.blake2b(f"{seed}:{output}".encode(), digest_size=8).digest()
    return int.from_bytes(mixed, "little") >> 1


class GraphLowering:
    """Lowers a graph, keeping one buffer a variable and device.

    Args:
        graph: over devices.
        types: of every variable, by device.
        sizes: samples of each device.
        seed: of random ops.
        checked: variables in which NaN and infinities are errors.
        updates: what is done once for all devices; default: nothing.
        whole: devices of all processes; None where this is the only one.
        threads: of each device.
        like: what lowered the same graph for other sizes: what it found out of the graph alone is taken from it, and the tasks of
            nodes whose variables have the same types.

    Attributes:
        late: nodes that threads of other devices help with.
        cuts: whether ops are cut for the threads of a device.
        tasks: of every node, by its index, once lowered.
    """

    def __init__(  # noqa: PLR0913 - each decides something else
        self,
        graph: Graph,
        types: Sequence[Mapping[str, TensorType]],
        sizes: Sequence[int],
        seed: int,
        checked: Collection[str] = (),
        updates: Updates | None = None,
        whole: Whole | None = None,
        threads: int = 1,
        *,
        like: GraphLowering | None = None,
    ) -> None:
        self.graph = graph
        self.late: Collection[int] = ()
        self.cuts = True
        self.threads = threads
        self._spread = len(graph.places) * threads
        self.types = types
        self.whole = whole or Whole(types, sizes)
        self.seed = seed
        self.shards = len(graph.places)
        self.checked = checked
        self.buffers: dict[tuple[str, int], Buffer] = {}
        self.tasks: list[list[Task]] = []
        self._offsets: dict[int, int] = {}
        self._shares: dict[str, Sequence[int]] = {}
        self._like = like
        self._kept: frozenset[Buffer] = frozenset()
        if like is not None:
            self._resume(like)
            return
        block = graph.program.global_block()
        sums = (*COLLECTIVES, SUM_PROCESSES)
        self._reduced = {n for node in graph.nodes if node.kind in sums for n in node.op.inputs["X"]}
        self._nodes = Counter(id(node.op) for node in graph.nodes)
        self._writes = Counter(n for op in block.ops for n in op.output_names())
        self._updates = updates or Updates(graph, (), (), False)
        self._batched: dict[int, str | None] = {}

    def _resume(self, like: GraphLowering) -> None:
        self._reduced, self._nodes, self._writes = like._reduced, like._nodes, like._writes
        self._updates, self._batched = like._updates, like._batched
        before = like.types
        self._changed = {(n, d) for d, of in enumerate(self.types) for n, kind in of.items() if before[d].get(n) != kind}
        self.buffers = {at: b for at, b in like.buffers.items() if at not in self._changed}
        self._kept = frozenset(self.buffers.values())

    def buffer(self, name: str, device: int) -> Buffer:
        """Return the buffer of a variable on a device; devices may share one."""
        key = (name, self._updates.home(name, device))
        if key not in self.buffers:
            self.buffers[key] = Buffer(name, self.types[device][name])
        return self.buffers[key]

    def value(self, name: str, device: int) -> Buffer:
        """Return the buffer that holds a variable's value of a device after the step."""
        return self.buffer(name, self._updates.last(name, device))

    def run(self) -> list[Task]:
        """Return the tasks of all nodes in order; a collective gives one a shard."""
        self.tasks = [self._again(node) or self._node(node) for node in self.graph.nodes]
        self._like = None
        return [task for of_node in self.tasks for task in of_node]

    def _node(self, node: OpNode) -> list[Task]:
        if node.kind in ("all_reduce", "fused_all_reduce"):
            return self._all_reduce(node)
        if node.kind == "reduce":
            return [self._reduce(node)]
        if node.kind == "gather":
            return self._gather(node)
        if node.kind == SUM_PROCESSES:
            return [sum_over_processes(self, node)]
        if self._updates.once(node):
            return self._update(node)
        parts = self._parts(node)
        return [task for k in range(parts) for task in self._compute(node, (k, parts))]

    def _again(self, node: OpNode) -> list[Task]:
        """Return the tasks that a node had for other sizes, where they would be the same again; none where they may differ."""
        like = self._like
        if like is None or self.cuts != like.cuts or (node.index in self.late) != (node.index in like.late):
            return []
        if node.kind == "scale_loss_grad" and self.shares(name := node.op.input_names()[0]) != like.shares(name):
            return []
        if any(at in self._changed for slots in (node.ins, node.outs) for pairs in slots.values() for at in pairs):
            return []
        tasks = like.tasks[node.index]
        if not self._kept.issuperset(b for t in tasks for b in (*t.reads, *t.writes)):
            return []
        if node.index in like._offsets:
            offset = self.rows_before(node.op, node.device)
            if offset != like._offsets[node.index]:
                return []
            self._offsets[node.index] = offset
        return tasks

    def rows_before(self, op: Operator, device: int) -> int:
        """Return the rows of the whole batch that lie before a device's part of what an op works on.

        These are samples, or for sequences the rows of those of the devices before it.
        """
        if id(op) not in self._batched:
            block = self.graph.program.global_block()
            names = (n for n in (*op.input_names(), *op.output_names()) if block.var(n).shape[:1] == (-1,))
            self._batched[id(op)] = next(names, None)
        name = self._batched[id(op)]
        before = self.whole.first + device
        return sum(self.whole.sizes[:before] if name is None else (t[name].shape[0] for t in self.whole.types[:before]))

    def shares(self, number: str) -> Sequence[int]:
        """Return how much the value of a number counts on each device of all processes: the rows that it is taken over.

        The program shows them: the mean over sequences of a loss counts by sequences, that over all their rows by rows; and
        by samples where it is taken over nothing with a batch axis, or over several things that devices share differently.
        """
        if number not in self._shares:
            self._shares[number] = self._find_shares(number)
        return self._shares[number]

    def _find_shares(self, number: str) -> Sequence[int]:
        found = {tuple(kinds[n].shape[0] for kinds in self.whole.types) for n in self._averaged(number)}
        ratios = {tuple(Fraction(r, sum(rows)) for r in rows) for rows in found if sum(rows)}
        return min(found) if len(ratios) == 1 and all(map(sum, found)) else self.whole.sizes

    def _averaged(self, number: str) -> set[str]:
        """Return the variables with a batch axis that a number without one is made of."""
        block = self.graph.program.global_block()
        writers = {n: op for op in block.ops if op.role in (Role.FORWARD, Role.LOSS) for n in op.output_names()}
        found, seen, waiting = set(), {number}, [number]
        while waiting:
            op = writers.get(waiting.pop())
            names = op.input_names() if op else []
            batched = {n for n in names if block.var(n).shape[:1] == (-1,) and not block.var(n).persistable}
            found |= batched
            more = [n for n in names if n not in seen and n not in batched] if not batched else []
            seen.update(more)
            waiting += more
        return found

    def _slots(self, slots: Slots) -> dict[str, list[Buffer | None]]:
        return {s: [self.buffer(*p) if p[0] != EMPTY else None for p in pairs] for s, pairs in slots.items()}

    def _parts(self, node: OpNode) -> int:
        """Return by how many threads an update is shared: one that is done once for all devices, row by row and in place."""
        op = node.op
        once = self._nodes[id(op)] == 1 or self._updates.once(node)
        in_place = set(op.output_names()) <= set(op.input_names())
        if not (op.definition.by_rows and op.inputs.get("Rows") and once and in_place):
            return 1
        return self._shards_of(self.buffer(*node.ins["Rows"][0]))

    def _shards_of(self, rows: Buffer) -> int:
        return max(1, min(self.shards, rows.size // MIN_ROWS))

    def _update(self, node: OpNode) -> list[Task]:
        """Return what a device does of an update that is done once for all: the first what several share, else one of them all.

        It reads and writes what lies on the first device.
        """
        parts = self._parts(node)
        spreads = self._spreads(node)
        turn = 0 if spreads or parts > 1 else self._updates.turn(node.op)
        if node.device != turn:
            return []
        ins = {s: [(n, 0) for n, _ in pairs] for s, pairs in node.ins.items()}
        outs = {s: [(n, 0) for n, _ in pairs] for s, pairs in node.outs.items()}
        node = replace(node, ins=ins, outs=outs)
        return [task for k in range(parts) for task in self._compute(node, (k, parts))]

    def _spreads(self, node: OpNode) -> bool:
        return node.op.definition.spreads and self.graph.places[node.device].kind == "cpu" and self._spread > 1

    def _compute(self, node: OpNode, share: tuple[int, int] = (0, 1)) -> list[Task]:
        op, d = node.op, node.device
        definition = op.definition
        ins, outs = self._slots(node.ins), self._slots(node.outs)
        offset = self._offsets[node.index] = self.rows_before(op, d)
        key = next(iter(op.output_names()), op.type)
        low = Lowering(definition, op.attrs, ins, outs, op_seed(self.seed, key), offset, share)  # type: ignore[arg-type]
        low.helped = node.index in self.late
        shared = self.cuts and self.graph.places[d].kind == "cpu"
        low.threads = HELP_PARTS if low.helped else self.threads if shared else 1
        if self._spreads(node):
            low.shares = self._spread
            low.more = self._addends(op, ins)
        shares = _pairs(definition.alias, ins, outs)
        if shares and not all(self._fixed(out) and self._fixed(source) for out, source in shares.items()):
            definition = find("assign")  # the bytes will change under one of the names: copy them
            low = Lowering(definition, {}, {"X": list(shares.values())}, {"Out": list(shares)})
            shares = {}
        if node.kind == "scale_loss_grad":
            counts = self.shares(op.input_names()[0])
            low.attrs = {
                **op.attrs,
                "value": float(op.attrs["value"]) * counts[self.whole.first + d] / max(1, sum(counts)),
            }
        if not shares:
            self._lower(definition, low, op, self.graph.places[d].kind)
            self._check(low, op, outs)
        reads = [b for row in (*ins.values(), *low.more) for b in row if b is not None]
        writes = [b for row in outs.values() for b in row if b is not None]
        over = _pairs(definition.takes_over([slot for slot, row in ins.items() if row]), ins, outs)
        home = d if share == (0, 1) else share[0]
        made = Task(node.index, home, low.calls, reads, writes, low.scratch_buffers, over, shares, beside=share[0] > 0)
        if low.shares > 1:
            made.takers = Takers.ALL
        elif low.helped:
            made.takers = Takers.IDLE
        side_by_side = self.threads > 1 and not self.cuts and made.takers is Takers.DEVICE
        return by_output(made, outs) if side_by_side else [made]

    def _addends(self, op: Operator, ins: dict[str, list[Buffer | None]]) -> list[list[Buffer]]:
        """Put the first active device's gradients in place where an update adds them up itself; return those of the others."""
        names = op.inputs["Grad"]
        if not self._updates.adds(names):
            return []
        rows = [[self.buffer(n, d) for n in names] for d in self.graph.active]
        ins["Grad"][:] = rows[0]
        return rows[1:]

    def _check(self, low: Lowering, op: Operator, outs: Mapping[str, Sequence[Buffer | None]]) -> None:
        """Look at the results that somebody reads, in the order in which the op names them."""
        made = {b.name: b for row in outs.values() for b in row if b is not None}
        for i, name in enumerate(op.output_names()):
            found = made[name]
            if name in self.checked and found.dtype in FLOATS and found.size:
                low.calls.append(Call(check_finite, (found, found.size, i, STATUS), found.dtype, "float32"))

    def _lower(self, definition: OpDef, low: Lowering, op: Operator, kind: str) -> None:
        late = [slot for slot in definition.late if op.inputs.get(slot)]
        if definition.on_host or late:
            raise PeError(
                f"op '{op.type}' has sizes that only a step knows", at=op.at, hint="run it with fluid.Executor"
            )
        if kind not in definition.lowerings:
            raise PeError(
                f"op '{op.type}' cannot run on {kind} yet", at=op.at, code=ExitCode.DEVICE, hint="use place: cpu"
            )
        try:
            definition.lowerings[kind](low)
        except PeError as error:
            error.at = error.at or op.at
            raise

    def _fixed(self, b: Buffer) -> bool:
        """Whether a variable keeps its bytes once it is written: temporary, written at most once, and not all-reduced."""
        if b.name in self._reduced:
            return False
        return self._writes[b.name] <= 1 and not self.graph.program.global_block().var(b.name).persistable

    def _all_reduce(self, node: OpNode) -> list[Task]:
        """Return one task a shard. The gradients of a bucket lie one after the other, so the first stands for all."""
        names = list(dict.fromkeys(node.op.inputs["X"]))
        running, devices = self.graph.active, range(len(self.graph.places))
        sources = [self.buffer(names[0], d) for d in running]
        targets = [self.buffer(names[0], d) for d in (devices[:1] if self._updates.reads_alone(names) else devices)]
        for name in names[1:]:
            for d in devices:
                self.buffer(name, d)
        if self._updates.adds(names):
            return []
        size = sources[0].type.numpy.itemsize
        elements = (
            sum(aligned(self.buffer(n, 0).type.nbytes) for n in names[:-1]) // size + self.buffer(names[-1], 0).size
        )
        calls = all_reduce_shards(sources, targets, elements, self.shards)
        return [
            Task(node.index, home, [call], list(sources), list(targets), part=(call.args[4], call.args[5]))
            for home, call in enumerate(calls)
        ]

    def _reduce(self, node: OpNode) -> Task:
        sources = [self.buffer(*p) for p in node.ins["X"]]
        targets = [self.buffer(*p) for p in node.outs["Out"]]
        (call,) = all_reduce_shards(sources, targets, sources[0].size, 1)
        # the sum passes through the first source
        return Task(node.index, node.device, [call], sources, [*targets, sources[0]], part=(0, sources[0].size))

    def _gather(self, node: OpNode) -> list[Task]:
        """Return one task a shard: each merges some of the rows of all devices."""
        op, slots = node.op, self._slots(node.ins)
        ids, values = ([b for b in slots[s] if b is not None] for s in ("Ids", "X"))
        rows, out = (self.buffer(*node.outs[s][0]) for s in ("Rows", "Out"))
        paddings = [p for p in op.attrs["padding_idx"] for _ in self.graph.active]
        shards = self._shards_of(rows)
        made = []
        for shard in range(shards):
            low = Lowering(op.definition, op.attrs, {}, {})
            merge_shard(low, ids, values, paddings, op.attrs["height"], rows, out, shard, shards)
            touched = [*ids, *values]
            made.append(Task(node.index, shard, low.calls, touched, [rows, out], low.scratch_buffers, beside=shard > 0))
        return made


def _pairs(
    names: Mapping[str, str], ins: Mapping[str, Sequence[Buffer | None]], outs: Mapping[str, Sequence[Buffer | None]]
) -> dict[Buffer, Buffer]:
    found = {}
    for out_slot, in_slot in names.items():
        out, source = outs.get(out_slot, ()), ins.get(in_slot, ())
        if out and source and out[0] is not None and source[0] is not None and out[0] is not source[0]:
            found[out[0]] = source[0]
    return found
