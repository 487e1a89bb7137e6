"""An op with regions becomes one call, which makes the calls of its regions: again and again, or those of one of two.

A region is lowered like a program of its own on one device. What it is given and what it collects lies where the op's variables do, and
moves on by a row with every round; its states and temporaries lie in memory that the op has while it runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import TensorType
from pe_cli.devices.memory import aligned
from pe_cli.execute import aliases
from pe_cli.execute.lowering import GraphLowering
from pe_cli.execute.memory import MemoryPlan, plan_memory
from pe_cli.execute.rowwise import is_rowwise
from pe_cli.execute.tasks import Task
from pe_cli.execute.written_out import WrittenOut, reporters
from pe_cli.graph.final import copy_aliases
from pe_cli.graph.replicate import replicate
from pe_cli.graph.ssa import Compute, Copy, Graph, rebuilt
from pe_cli.kernels.calls import STATUS, STEP, Buffer, Call, Nested, Offset, Place, Table
from pe_cli.kernels.host import HostKernel
from pe_cli.kernels.rounds import MOST_ROUNDS, run_branch, run_rounds, run_while
from pe_cli.kernels.written_out import flag_next, flag_rounds, refuse_more
from pe_cli.ops.define.areas import pairs
from pe_cli.ops.define.moves import copy, fill
from pe_cli.ops.define.registry import find
from pe_cli.ops.define.traits import HasRegions, Runs, Sequenced, View
from pe_cli.program.ir import Operator
from pe_cli.program.region import Region

#: Samples of a part of a loop at least: products of fewer rows are done otherwise.
MIN_SAMPLES = 8
#: Turns the nodes of a graph into tasks, see `lower.lower`.
Lower = Callable[[GraphLowering], list[Task]]


def refused(op: Operator, kind: str) -> PeError:
    """Return the error of an op that a kind of device cannot run."""
    return PeError(f"op '{op.type}' cannot run on {kind} yet", at=op.at, code=ExitCode.DEVICE, hint="use place: cpu")


def lower_regions(g: GraphLowering, node: Compute, lower: Lower) -> list[Task]:
    """Return the task of an op with regions.

    Args:
        g: of the graph.
        node: of the op.
        lower: for the graphs of its regions.

    Raises:
        PeError: an op of a region cannot be run in one; a loop without a bound, on a device whose kernels make no calls (exit code 5).
    """
    found = node.op.definition.get(HasRegions)
    assert found is not None
    runs: Callable[[GraphLowering, Compute, Lower], _Op] = {Runs.ROUNDS: _Rounds, Runs.WHILE: _While, Runs.BRANCH: _Branch}[found.runs]
    return [runs(g, node, lower).task()]


@dataclass(frozen=True)
class _Lowered:
    """A region in its memory.

    Args:
        calls: in order; their arguments are places.
        labels: of the calls.
        places: variable -> where it lies, of states and results.
    """

    calls: list[Call]
    labels: list[int]
    places: Mapping[str, Place]


@dataclass(frozen=True)
class Part:
    """Samples from begin to end, of so many; all of them where there are none.

    What has a batch axis, by its declaration, has them along axis 0.
    """

    begin: int = 0
    end: int = 0
    rows: int = 0

    def of(self, region: Region, name: str, kind: TensorType) -> TensorType:
        """Return the type of a part of a variable."""
        batched = self.rows and region.block.vars[name].shape[:1] == (-1,)
        return kind.with_shape(self.end - self.begin, *kind.shape[1:]) if batched else kind

    def begins(self, region: Region, name: str, kind: TensorType) -> int:
        """Return the bytes of a variable before its part."""
        batched = self.rows and region.block.vars[name].shape[:1] == (-1,)
        return self.begin * (kind.nbytes // self.rows) if batched else 0


class _Op(ABC):
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
    ) -> _Lowered:
        """Lower a region.

        Args:
            region: of the op.
            where: variables that lie in buffers of the op.
            types: of all its variables.
            states: arguments that lie in memory of the region, each the result of its number after the region has run.
            loops: that are around its ops.
            before: samples before those that it is about.
        """
        graph = _copying(replicate(region.program, [self.g.graph.places[self.node.device]], BuildStrategy()), region)
        inner = GraphLowering(graph, [types], [1], self.g.seed, cuts=False, precision=self.g.precision)
        inner.labels, inner.loops, inner.before = self.g.labels, loops, self.offset + before
        for op in region.block.ops:
            _check_sequences(op)
        tasks = self.lower(inner)
        for name in (*where, *states, *region.results):
            inner.buffer(name, 0)
        placed = [inner.buffer(n, 0) for n in where]
        held = [inner.buffer(n, 0) for n in states]
        updates = [inner.buffer(n, 0) for n in region.results[: len(states)]]
        kept = [b for b in dict.fromkeys(updates) if b not in placed]
        plan, same = plan_memory(tasks, placed, (), [], held=held, ends=kept)
        if _mixed(plan, held, updates):
            plan, same = plan_memory(tasks, placed, held, [], ends=kept)
        arena = self.room(TensorType((max(1, plan.nbytes),), "uint8"))
        spots = {b: Place(arena, offset) for b, offset in plan.offsets.items()}
        spots |= {inner.buffer(n, 0): place for n, place in where.items()}
        spots |= {b: spots[other] for b, other in same.items() if b not in spots}
        aliases.check(tasks, graph, lambda b: (id(spots[b].buffer), spots[b].nbytes))
        calls, labels = [], []
        for task in tasks:
            op = graph.nodes[task.node].op  # type: ignore[attr-defined]
            if any(isinstance(call.kernel, HostKernel) for call in task.calls):
                hint = "call it before or after the loop or the branch"
                raise PeError(f"{op.type} runs Python, which no loop or branch does in a step", at=op.at, hint=hint)
            calls += [replace(call, args=tuple(_in_place(a, spots) for a in call.args), part=None) for call in task.calls]
            labels += [inner.labels.setdefault(op, len(inner.labels) + 1)] * len(task.calls) if task.calls else []
        for state, update in zip(held, updates, strict=True):
            if spots[state] != spots[update]:
                calls.append(_copy(spots[update], spots[state], state.type))
                labels.append(0)
        return _Lowered(calls, labels, {n: spots[b] for (n, _), b in inner.buffers.items() if b in spots})


def _check_sequences(op: Operator) -> None:
    """Refuse an op that needs the offsets of sequences: regions are given tensors alone."""
    forward = find(op.definition.is_grad_of) if op.definition.is_grad_of else op.definition
    rule = forward.get(Sequenced)
    known = op.definition.slot_names(outputs=False)
    if rule is not None and any(s in known and not op.inputs.get(s) for s in rule.host_slots):
        hint = "use it before or after the loop or the branch"
        raise PeError(f"{op.type} works on sequences, and no loop or branch is given their offsets", at=op.at, hint=hint)


def _copying(graph: Graph, region: Region) -> Graph:
    """Return the graph with copies where a result would be the bytes of something else."""
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
    """Whether what becomes of a state lies where another state does, which is written before it is read."""
    spans = [(plan.offsets[s], plan.offsets[s] + aligned(s.type.nbytes)) for s in states]
    for i, update in enumerate(updates):
        at = plan.offsets.get(update)
        for k, (begin, end) in enumerate(spans):
            if at is not None and at < end and begin < at + max(1, update.type.nbytes) and (k != i or at != begin):
                return True
    return False


def _in_place(arg: Any, spots: Mapping[Buffer, Place]) -> Any:
    """Return an argument of a nested call, its buffers as places."""
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


def _copy(source: Buffer | Place, target: Buffer | Place, kind: TensorType) -> Call:
    return Call(copy, (source, target, kind.size), kind.dtype, "float32")


class _Loop(_Op):
    """A loop: rows of what it goes through and collects, states, and what does not change."""

    def prepare(self, rounds: int, part: Part = Part()) -> tuple[Region, dict[str, TensorType], dict[str, Place]]:
        """Return the body, the types of its variables, and where those are that lie outside; states apart.

        Args:
            rounds: of the loop.
            part: of the samples that it is about.
        """
        region: Region = self.op.attrs["body"]
        xs, inits, captured = (self.given(slot) for slot in ("X", "Init", "Captured"))
        kinds = [*(b.type.with_shape(*b.shape[1:]) for b in xs), *(b.type for b in (*inits, *captured))]
        self.states = region.args[len(xs) : len(xs) + len(inits)]
        args = [part.of(region, n, kind) for n, kind in zip(region.args, kinds, strict=True)]
        types = region.types(args, self._like(region, part))
        outs = [(n, b) for n, b in zip(region.results[len(inits) :], self.outs.get("Out", ()), strict=False) if b is not None]
        ahead = (0,) * self.g.loops
        where = {}
        for n, b in [*zip(region.args, xs, strict=False), *outs]:
            row = b.type.nbytes // max(1, rounds)
            where[n] = Place(b, part.begins(region, n, b.type.with_shape(*b.shape[1:])), (*ahead, row))
        for n, b in zip(region.args[len(xs) + len(inits) :], captured, strict=True):
            where[n] = Place(b, part.begins(region, n, b.type))
        return region, types, where

    def _like(self, region: Region, part: Part) -> list[TensorType]:
        """Return the types of what the region that this is the gradient of is given."""
        found, of = [b.type for b in self.given("Like")], region
        begin = 0
        while of.like is not None:
            for i, name in enumerate(of.like.args, begin):
                row = i - begin < of.like_steps
                kind = found[i].with_shape(*found[i].shape[1:]) if row else found[i]
                shared = part.of(of.like, name, kind)
                found[i] = shared.with_shape(found[i].shape[0], *shared.shape) if row else shared
            begin, of = begin + len(of.like.args), of.like
        return found

    def around(self, body: _Lowered, calls: Sequence[Call], region: Region, part: Part = Part()) -> list[Call]:
        """Return calls with the states copied in before and out after them."""
        inits, finals = self.given("Init"), self.outs.get("Final", ())
        first = [self._moved(b, n, body, region, part, into=True) for n, b in zip(self.states, inits, strict=True)]
        last = [self._moved(b, n, body, region, part) for n, b in zip(self.states, finals, strict=False) if b is not None]
        return [*first, *calls, *last]

    def held(self, body: _Lowered, types: Mapping[str, TensorType]) -> list[tuple[Place, TensorType]]:
        """Return where the states lie, and what they are."""
        return [(body.places[n], types[n]) for n in self.states]

    def rows(self, region: Region, where: Mapping[str, Place], types: Mapping[str, TensorType]) -> list[tuple[Place, TensorType]]:
        """Return where what a round collects lies, and what it is."""
        return [(where[n], types[n]) for n in dict.fromkeys(region.results[len(self.states) :]) if n in where]

    def _moved(self, b: Buffer, state: str, body: _Lowered, region: Region, part: Part, *, into: bool = False) -> Call:
        kind = part.of(region, state, b.type)
        outside, inside = Place(b, part.begins(region, state, b.type)), body.places[state]
        return _copy(outside, inside, kind) if into else _copy(inside, outside, kind)


class _Rounds(_Loop):
    """A known number of rounds."""

    def calls(self) -> list[Call]:
        xs, count = self.given("X"), self.given("Count")
        rounds = xs[0].shape[0] if xs else int(self.op.attrs["steps"])
        blank = [b for b in self.outs.get("Out", ()) if b is not None and count]
        found = [Call(fill, (b, b.size, 0.0), b.dtype, "float32") for b in blank]
        parts = self._parts(rounds)
        for number, part in enumerate(parts):
            region, types, where = self.prepare(rounds, part)
            body = self.region(region, where, types, self.states, self.g.loops + 1, part.begin)
            nested = Nested(tuple(body.calls), tuple(body.labels), self.g.loops)
            limit: Any = count[0] if count else 0
            args = (nested, rounds, limit, int(self.op.attrs["backwards"]), STATUS, STEP)
            made = [Call(run_rounds, args, "float32", "float32")]
            if not self.nests:
                made = self._written_out(nested, rounds, count, self.held(body, types), self.rows(region, where, types))
            row = self.around(body, made, region, part)
            found += [replace(call, part=number) for call in row] if len(parts) > 1 else row
        return found

    def _written_out(
        self, nested: Nested, rounds: int, count: Sequence[Buffer], states: Sequence[tuple[Place, TensorType]],
        rows: Sequence[tuple[Place, TensorType]],
    ) -> list[Call]:  # fmt: skip
        """Return the calls of all rounds; with a count, those of rounds that there are not leave the states as they are, and rows of 0."""
        out = WrittenOut(rounds * reporters(nested), self.room, self.room(TensorType((rounds,), "bool")) if count else None)
        if count:
            out.call(flag_rounds, count[0], out.flags, rounds)
        saved = [self.room(kind) for _, kind in states] if count else []
        number = out.counters([nested], rounds)
        for at in range(rounds)[:: -1 if self.op.attrs["backwards"] else 1]:
            out.keep(states if count else (), saved)
            out.add(nested, at, number(at), at if count else -1)
            out.put_back(states if count else (), saved, at)
            out.blank(rows if count else (), self.g.loops, at)
        out.hand_on()
        return out.calls

    def _parts(self, rounds: int) -> list[Part]:
        """Return the parts of the samples that threads take, one where rounds go over all samples alike."""
        threads = self.g.threads if self.g.native[self.node.device] else 1
        region, types, _ = self.prepare(rounds)
        given = [n for n in region.args if region.block.vars[n].shape[:1] == (-1,)]
        rows = types[given[0]].shape[0] if given else 0
        parts = min(threads, rows // MIN_SAMPLES)
        if parts < 2 or not is_rowwise(region, types, given, rows):
            return [Part()]
        return [Part(begin, end, rows) for begin, end in pairs(rows, parts)]


class _While(_Loop):
    """Rounds as long as a condition holds."""

    def calls(self) -> list[Call]:
        bound = int(self.op.attrs["bound"])
        if not bound and not self.nests:
            kind = self.g.graph.places[self.node.device].kind
            hint = "give it a bound, the most rounds that there may be, or use place: cpu"
            raise PeError(f"a loop without a bound cannot run on {kind}", at=self.op.at, code=ExitCode.DEVICE, hint=hint)
        region, types, where = self.prepare(bound)
        body = self.region(region, where, types, self.states, self.g.loops + 1)
        test: Region = self.op.attrs["condition"]
        inits, captured = self.given("Init"), self.given("Captured")
        kinds = test.types([b.type for b in (*inits, *captured)])
        fixed = dict(zip(test.args[len(inits) :], map(Place, captured), strict=True))
        fixed |= {n: body.places[s] for n, s in zip(test.args, self.states, strict=False)}
        flag = self.room(TensorType((1,), "bool"))
        tested = self.region(test, {**fixed, test.results[0]: Place(flag)}, kinds, (), self.g.loops + 1)
        heads = [Nested(tuple(of.calls), tuple(of.labels), self.g.loops) for of in (tested, body)]
        (done,) = self.outs["Count"]
        if not self.nests:
            made = self._written_out(heads, flag, done, bound, self.held(body, types), self.rows(region, where, types))
            return self.around(body, made, region)
        args = (heads[0], flag, heads[1], bound or MOST_ROUNDS, done, STATUS, STEP)
        return self.around(body, [Call(run_while, args, "float32", "float32")], region)


    def _written_out(
        self, heads: Sequence[Nested], flag: Buffer, done: Buffer | None, bound: int, states: Sequence[tuple[Place, TensorType]],
        rows: Sequence[tuple[Place, TensorType]],
    ) -> list[Call]:  # fmt: skip
        """Return the calls of as many rounds as there may be; those after the last one leave the states as they are, and rows of 0."""
        test, body = heads
        most = (bound + 1) * reporters(test) + bound * reporters(body)
        out = WrittenOut(most, self.room, self.room(TensorType((bound + 1,), "bool")))
        saved = [self.room(kind) for _, kind in states]
        number = out.counters(heads, bound + 1)
        for at in range(bound + 1):
            out.add(test, at, number(at), at - 1)
            out.call(flag_next, flag, out.flags, done, at)
            if at < bound:
                out.keep(states, saved)
                out.add(body, at, number(at), at)
                out.put_back(states, saved, at)
                out.blank(rows, self.g.loops, at)
        out.hand_on()
        out.call(refuse_more, out.flags, bound, STATUS)
        return out.calls


class _Branch(_Op):
    """One of two regions."""

    def calls(self) -> list[Call]:
        captured, outs = self.given("Captured"), self.outs["Out"]
        others = {b: b if self.nests else self.room(b.type) for b in outs if b is not None}
        (flag,) = self.given("Condition")
        heads = []
        for attr in ("yes", "no"):
            region: Region = self.op.attrs[attr]
            where = dict(zip(region.args, map(Place, captured), strict=True))
            where |= {n: Place(others[b] if attr == "no" else b) for n, b in zip(region.results, outs, strict=True) if b is not None}
            types = region.types([b.type for b in captured])
            low = self.region(region, where, types, (), self.g.loops)
            heads.append(Nested(tuple(low.calls), tuple(low.labels), self.g.loops))
        if self.nests:
            return [Call(run_branch, (flag, *heads, STATUS, STEP), "float32", "float32")]
        out = WrittenOut(reporters(*heads), self.room, flag)
        for wanted, nested in zip((1, 0), heads, strict=True):
            out.add(nested, flag=0, wanted=wanted)
        out.put_back([(Place(b), b.type) for b in others], list(others.values()), 0)
        out.hand_on()
        return out.calls
