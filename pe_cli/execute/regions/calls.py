"""Lowers an op with regions to nested calls: repeated for a loop, one of two for a branch.

What a loop goes through and collects moves on by a row with every round. On devices whose kernels make calls the op is one call, with
the calls of its regions as nested tapes; on others they are written out (`execute/regions/unrolled.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.execute.lowering.context import GraphLowering
from pe_cli.execute.lowering.tasks import Task
from pe_cli.execute.regions.memory import WHOLE, Lower, LoweredRegion, Part, RegionOp, copied
from pe_cli.execute.regions.rowwise import is_rowwise
from pe_cli.execute.regions.unrolled import UnrolledRegion, reporters
from pe_cli.graph.ssa import Compute
from pe_cli.kernels.calls import STATUS, STEP, Buffer, Call, Nested, Place
from pe_cli.kernels.cpu.loop_calls import MOST_ROUNDS, run_branch, run_rounds, run_while
from pe_cli.kernels.cuda.unrolled_regions import flag_next, flag_rounds, refuse_more
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.traits import HasRegions, Runs
from pe_cli.ops.define.work_parts import pairs
from pe_cli.program.ir import Operator
from pe_cli.program.region import Region

#: Samples of a part of a loop at least: products of fewer rows are done otherwise.
MIN_SAMPLES = 8


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
    runs: Callable[[GraphLowering, Compute, Lower], RegionOp] = {Runs.ROUNDS: _Rounds, Runs.WHILE: _While, Runs.BRANCH: _Branch}[found.runs]
    return [runs(g, node, lower).task()]


class _Loop(RegionOp):
    """A loop: rows of what it goes through and collects, states, and what does not change."""

    def prepare(self, rounds: int, part: Part = WHOLE) -> tuple[Region, dict[str, TensorType], dict[str, Place]]:
        """Return the body, the types of its variables, and where those are that lie outside; states apart.

        Args:
            rounds: of the loop.
            part: of the samples that it is about.
        """
        region: Region = self.op.attrs["body"]
        xs, inits, captured = (self.given(slot) for slot in ("X", "Init", "Captured"))
        kinds = [*(b.type.with_shape(*b.shape[1:]) for b in xs), *(b.type for b in (*inits, *captured))]
        # Arguments come in a fixed order: what the loop goes through, states, what does not change.
        self.states = region.args[len(xs) : len(xs) + len(inits)]
        args = [part.of(region, n, kind) for n, kind in zip(region.args, kinds, strict=True)]
        types = region.types(args, self._like(region, part))
        outs = [(n, b) for n, b in zip(region.results[len(inits) :], self.outs.get("Out", ()), strict=False) if b is not None]
        # One stride for each loop around: rows move with the rounds of this loop alone.
        ahead = (0,) * self.g.loops
        where = {}
        for n, b in [*zip(region.args, xs, strict=False), *outs]:
            # What a loop goes through or collects has a row for every round along axis 0.
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

    def around(self, body: LoweredRegion, calls: Sequence[Call], region: Region, part: Part = WHOLE) -> list[Call]:
        """Return calls with the states copied in before and out after them."""
        # States of the loop live in its own memory: a state that were the op's input would be changed by the first round.
        inits, finals = self.given("Init"), self.outs.get("Final", ())
        first = [self._moved(b, n, body, region, part, into=True) for n, b in zip(self.states, inits, strict=True)]
        last = [self._moved(b, n, body, region, part) for n, b in zip(self.states, finals, strict=False) if b is not None]
        return [*first, *calls, *last]

    def held(self, body: LoweredRegion, types: Mapping[str, TensorType]) -> list[tuple[Place, TensorType]]:
        """Return where the states lie, and what they are."""
        return [(body.places[n], types[n]) for n in self.states]

    # Places that hold several names are counted once, or a round's zeros would be written twice.
    def rows(self, region: Region, where: Mapping[str, Place], types: Mapping[str, TensorType]) -> list[tuple[Place, TensorType]]:
        """Return where what a round collects lies, and what it is."""
        return [(where[n], types[n]) for n in dict.fromkeys(region.results[len(self.states) :]) if n in where]

    def _moved(self, b: Buffer, state: str, body: LoweredRegion, region: Region, part: Part, *, into: bool = False) -> Call:
        kind = part.of(region, state, b.type)
        outside, inside = Place(b, part.begins(region, state, b.type)), body.places[state]
        return copied(outside, inside, kind) if into else copied(inside, outside, kind)


class _Rounds(_Loop):
    """A known number of rounds."""

    def calls(self) -> list[Call]:
        xs, count = self.given("X"), self.given("Count")
        rounds = xs[0].shape[0] if xs else int(self.op.attrs["steps"])
        blank = [b for b in self.outs.get("Out", ()) if b is not None and count]
        # A step that ends early leaves rows that no round wrote: they are 0, as in fluid.
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
        out = UnrolledRegion(rounds * reporters(nested), self.room, self.room(TensorType((rounds,), "bool")) if count else None)
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
        # Fewer samples are other products with other roundings: results would depend on the number of threads.
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
        # The condition writes its flag where the loop looks for it, and reads states where the body leaves them.
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
        # The condition is asked once more than there are rounds.
        most = (bound + 1) * reporters(test) + bound * reporters(body)
        out = UnrolledRegion(most, self.room, self.room(TensorType((bound + 1,), "bool")))
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


class _Branch(RegionOp):
    """One of two regions."""

    def calls(self) -> list[Call]:
        captured, outs = self.given("Captured"), self.outs["Out"]
        # Without nested calls both branches run, so one needs memory of its own until it is known which counts.
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
        out = UnrolledRegion(reporters(*heads), self.room, flag)
        for wanted, nested in zip((1, 0), heads, strict=True):
            out.add(nested, flag=0, wanted=wanted)
        out.put_back([(Place(b), b.type) for b in others], list(others.values()), 0)
        out.hand_on()
        return out.calls
