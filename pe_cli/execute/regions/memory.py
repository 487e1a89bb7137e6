"""Memory of regions: each region is lowered on one device, like a program of its own.

A region's arguments, and the rows that a loop collects, lie in the buffers of the op's own variables. The region's states and temporaries
lie in memory that the op has while it runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import TensorType
from pe_cli.core.value_class import Value
from pe_cli.devices.aligned_memory import aligned
from pe_cli.execute.lowering.context import GraphLowering
from pe_cli.execute.lowering.tasks import Task
from pe_cli.execute.memory import alias_check
from pe_cli.execute.memory.planner import MemoryPlan, plan_memory
from pe_cli.execute.numeric_settings import Numerics
from pe_cli.graph.final import copy_aliases
from pe_cli.graph.replicate import replicate
from pe_cli.graph.ssa import Compute, Copy, Graph, rebuilt
from pe_cli.kernels.calls import Buffer, Call, Nested, Offset, Place, Table
from pe_cli.kernels.cpu.python_calls import HostKernel
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.registry import find
from pe_cli.ops.define.traits import Sequenced, View
from pe_cli.program.ir import Operator
from pe_cli.program.region import Region

#: Turns the nodes of a graph into tasks, see `lower.lower`.
Lower = Callable[[GraphLowering], list[Task]]


class LoweredRegion(Value):
    """A region as calls over memory.

    Args:
        calls: in order; their arguments are places.
        labels: for each call, the number of its op in error reports.
        places: state or result -> where it lies.
    """

    calls: list[Call]
    labels: list[int]
    places: Mapping[str, Place]


class Part(Value):
    """The samples of a batch that a region runs for. Variables that are declared with a batch axis have them along axis 0.

    Args:
        begin: number of the first sample.
        end: number behind the last sample.
        rows: samples of the batch; 0 where the region runs for all of them.
    """

    begin: int = 0
    end: int = 0
    rows: int = 0

    def of(self, region: Region, name: str, kind: TensorType) -> TensorType:
        """Return the type of a variable for these samples alone."""
        batched = self.rows and region.block.vars[name].shape[:1] == (-1,)
        return kind.with_shape(self.end - self.begin, *kind.shape[1:]) if batched else kind

    def begins(self, region: Region, name: str, kind: TensorType) -> int:
        """Return how many bytes of a variable lie before these samples."""
        batched = self.rows and region.block.vars[name].shape[:1] == (-1,)
        return self.begin * (kind.nbytes // self.rows) if batched else 0


#: All samples.
WHOLE = Part()


class RegionOp(ABC):
    """An op with regions, about to become a task."""

    def __init__(self, g: GraphLowering, node: Compute, lower: Lower) -> None:
        self.g, self.node, self.op, self.lower = g, node, node.op, lower
        self.ins, self.outs = g.slots(node.ins), g.slots(node.outs)
        self.offset = g.offsets[node.index] = g.rows_before(node.op, node.device)
        self.scratch: list[Buffer] = []
        self.nests = g.nests[node.device]

    @abstractmethod
    def calls(self) -> list[Call]:
        """Return the calls of the op."""

    def task(self) -> Task:
        """Return the task."""
        calls = self.calls()
        # Like gives types alone: nobody reads its bytes, and they may be gone.
        reads = [b for slot, row in self.ins.items() if slot != "Like" for b in row if b is not None]
        writes = [b for row in self.outs.values() for b in row if b is not None]
        return Task(self.node.index, self.node.device, calls, reads, writes, self.scratch)

    def room(self, kind: TensorType) -> Buffer:
        """Return memory that the op has while it runs."""
        self.scratch.append(made := Buffer("scratch", kind))
        return made

    def given(self, slot: str) -> list[Buffer]:
        """Return the buffers of an input slot."""
        return [b for b in self.ins.get(slot, ()) if b is not None]

    def region(
        self, region: Region, where: Mapping[str, Place], types: Mapping[str, TensorType], states: Sequence[str], loops: int,
        before: int = 0,
    ) -> LoweredRegion:
        """Lower a region.

        Args:
            region: of the op.
            where: variables that lie in buffers of the op.
            types: of all its variables.
            states: arguments that lie in the region's own memory; after the region has run, state k has the value of result k.
            loops: how many loops are around the region's ops.
            before: samples of the batch before those that the region runs for.

        Raises:
            PeError: an op of the region needs the offsets of sequences, or runs Python.
        """
        graph = _copying(replicate(region.program, [self.g.graph.places[self.node.device]], BuildStrategy()), region)
        alone = Numerics(self.g.numerics.seed, self.g.numerics.precision)  # calls of a library cannot be nested
        inner = GraphLowering(graph, [types], [1], alone, cuts=False)
        # Labels are shared with outer regions, so that a report names one op of the whole program.
        inner.labels, inner.loops, inner.before = self.g.labels, loops, self.offset + before
        for op in region.block.ops:
            _check_sequences(op)
        tasks = self.lower(inner)
        # Also what no op of the region touches has a place: results that are arguments, and arguments that nobody reads.
        for name in (*where, *states, *region.results):
            inner.buffer(name, 0)
        placed = [inner.buffer(n, 0) for n in where]
        held = [inner.buffer(n, 0) for n in states]
        updates = [inner.buffer(n, 0) for n in region.results[: len(states)]]
        kept = [b for b in dict.fromkeys(updates) if b not in placed]
        plan, same = plan_memory(tasks, placed, (), [], held=held, ends=kept)
        # Sharing went too far: states then keep bytes of their own all the time.
        if _mixed(plan, held, updates):
            plan, same = plan_memory(tasks, placed, held, [], ends=kept)
        arena = self.room(TensorType((max(1, plan.nbytes),), "uint8"))
        spots = {b: Place(arena, offset) for b, offset in plan.offsets.items()}
        spots |= {inner.buffer(n, 0): place for n, place in where.items()}
        # What lies outside comes last and wins: arguments have their place in the op's own buffers.
        spots |= {b: spots[other] for b, other in same.items() if b not in spots}
        alias_check.check(tasks, graph, lambda b: (id(spots[b].buffer), spots[b].nbytes))
        calls, labels = [], []
        for task in tasks:
            op = graph.nodes[task.node].op  # type: ignore[attr-defined]
            if any(isinstance(call.kernel, HostKernel) for call in task.calls):
                hint = "call it before or after the loop or the branch"
                raise PeError(f"{op.type} runs Python, which no loop or branch does in a step", at=op.at, hint=hint)
            calls += [replace(call, args=tuple(_in_place(a, spots) for a in call.args), part=None) for call in task.calls]
            # A label of 0 is no op's: a copy of a state reports no error.
            labels += [inner.labels.setdefault(op, len(inner.labels) + 1)] * len(task.calls) if task.calls else []
        for state, update in zip(held, updates, strict=True):
            # A new state that was not written where the old one lay is copied there, for the next round reads it there.
            if spots[state] != spots[update]:
                calls.append(copied(spots[update], spots[state], state.type))
                labels.append(0)
        return LoweredRegion(calls, labels, {n: spots[b] for (n, _), b in inner.buffers.items() if b in spots})


def _check_sequences(op: Operator) -> None:
    """Refuse an op that needs the offsets of sequences: regions are given tensors alone."""
    forward = find(op.definition.is_grad_of) if op.definition.is_grad_of else op.definition
    rule = forward.get(Sequenced)
    known = op.definition.slot_names(outputs=False)
    if rule is not None and any(s in known and not op.inputs.get(s) for s in rule.host_slots):
        hint = "use it before or after the loop or the branch"
        raise PeError(f"{op.type} works on sequences, and no loop or branch is given their offsets", at=op.at, hint=hint)


def _copying(graph: Graph, region: Region) -> Graph:
    """Return the graph with a copy for every result that would otherwise share the bytes of another variable."""
    results = set(region.results)

    def is_view(node: Any) -> bool:
        return type(node) is Compute and node.op.definition.has(View) and not results.isdisjoint(node.op.output_names())

    if any(map(is_view, graph.nodes)):
        nodes = (
            Copy(op=n.op, device=n.device, ins=n.ins, outs=n.outs) if is_view(n) else n  # type: ignore[attr-defined]
            for n in graph.nodes
        )
        graph = rebuilt(graph, nodes)
    return copy_aliases.run(graph)


def _mixed(plan: MemoryPlan, states: Sequence[Buffer], updates: Sequence[Buffer]) -> bool:
    """Return whether a state's new value lies in the place of another state, which would be overwritten before it is read."""
    spans = [(plan.offsets[s], plan.offsets[s] + aligned(s.type.nbytes)) for s in states]
    for i, update in enumerate(updates):
        # The same offset as its own state is meant, and no clash: the new value takes the old one's place after its last read.
        at = plan.offsets.get(update)
        for k, (begin, end) in enumerate(spans):
            if at is not None and at < end and begin < at + max(1, update.type.nbytes) and (k != i or at != begin):
                return True
    return False


def _in_place(arg: Any, spots: Mapping[Buffer, Place]) -> Any:
    """Return an argument of a nested call with places instead of buffers."""
    if isinstance(arg, Buffer):
        return spots[arg]
    if isinstance(arg, Offset):
        at = spots[arg.buffer]
        return replace(at, nbytes=at.nbytes + arg.elements * arg.buffer.type.numpy.itemsize)
    if isinstance(arg, Place):
        at = spots[arg.buffer]
        longest = max(len(at.strides), len(arg.strides))
        ours, theirs = ((*p.strides, *[0] * (longest - len(p.strides))) for p in (at, arg))
        return Place(at.buffer, at.nbytes + arg.nbytes, tuple(a + b for a, b in zip(ours, theirs, strict=True)))
    if isinstance(arg, Table):
        return Table(tuple(_in_place(b, spots) for b in arg.buffers))
    if isinstance(arg, Nested):
        calls = tuple(replace(c, args=tuple(_in_place(a, spots) for a in c.args)) for c in arg.calls)
        return replace(arg, calls=calls)
    return arg


def copied(source: Buffer | Place, target: Buffer | Place, kind: TensorType) -> Call:
    """Return a call that copies a value."""
    return Call(copy, (source, target, kind.size), kind.dtype, "float32")
