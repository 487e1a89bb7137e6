"""recompute: what is inside a segment of the forward pass is not kept for the backward pass, but computed again there.

`Operator.segment` says which operators are in one, and the last segment is left alone. What a later segment reads stays, and so does what
cannot be had again: the results of random ops (all but those that their masks give once more), of regions and of Python functions, and
whatever depends on a parameter that has been updated by then. The second computation waits for the gradient that the segment's backward
pass begins with, so that its values never live beside those of another segment. It runs after the fusions: the operators that are repeated
are those that ran, and no bit changes.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from pe_cli.ops.define.traits import BatchStatistics, HasRegions, OnHost, Random, ReadsAllDevices, Replayed
from pe_cli.program.ir import EMPTY, Block, Operator, Program, Role

NAME = "recompute"
GATE = "after"
_FORWARD = (Role.FORWARD, Role.LOSS)


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with repeated forward operators, and a sentence on what was done."""
    made = program.clone()
    block = made.main_block
    segments = _segments(block)
    uses = _Uses(block)
    # All segments are decided on the unchanged program: what one inserts is no reason for another.
    again = [_Segment(block, uses, begin, end, set(fetches)) for begin, end in segments]
    inserted: dict[int, list[Operator]] = {}
    for segment in again:
        if segment.repeated:
            inserted.setdefault(segment.place, []).extend(segment.copies())
    if not inserted:
        return program, f"{NAME}: the backward pass reads nothing that could be computed again"
    block.ops = [op for place, own in enumerate(block.ops) for op in (*inserted.get(place, ()), own)]
    ops = sum(len(s.repeated) for s in again)
    return made, f"{NAME}: {ops} ops of {sum(1 for s in again if s.repeated)} segments are done again in the backward pass"


def _segments(block: Block) -> list[tuple[int, int]]:
    """Return from which to which operator each segment goes, the last one left out.

    Operators that passes have added belong to the segment before them.
    """
    begins: dict[int, int] = {}
    newest = 0
    for place, op in enumerate(block.ops):
        if op.role is Role.FORWARD:
            newest = max(newest, op.segment)
            begins.setdefault(newest, place)
    return list(pairwise(begins.values()))


class _Uses:
    """Which operators read and write each variable, by their places."""

    def __init__(self, block: Block) -> None:
        self.reads: dict[str, list[int]] = {}
        self.writes: dict[str, list[int]] = {}
        for place, op in enumerate(block.ops):
            for name in dict.fromkeys(op.input_names()):
                self.reads.setdefault(name, []).append(place)
            for name in dict.fromkeys(op.output_names()):
                self.writes.setdefault(name, []).append(place)


class _Segment:
    """A part of the forward pass, and what of it the backward pass computes again.

    Args:
        block: of the whole program.
        uses: of its variables.
        begin, end: places of the segment's operators.
        stays: variables that are kept whatever reads them.

    Attributes:
        repeated: places of the operators that are done again, in order.
        place: of the operator before which they are done again.
    """

    def __init__(self, block: Block, uses: _Uses, begin: int, end: int, stays: Collection[str]) -> None:
        self._block, self._ops, self._uses, self._end = block, block.ops, uses, end
        inside = [p for p in range(begin, end) if self._ops[p].role is Role.FORWARD]
        self._made = {n: p for p in inside for n in self._ops[p].output_names()}
        # What the forward pass still needs is kept anyway, and repeating it would save nothing.
        self._kept = {n for n in self._made if n in stays or block.var(n).persistable or len(uses.writes[n]) > 1 or self._forward(n)}
        # First without exact knowledge, as an upper bound; then again with what is really wanted.
        self.place = self._first(self._made)
        for p in inside:
            self._keep(p)
        wanted = {n for n in self._made if n not in self._kept and self._backward(n)}
        self.place = self._first(wanted)
        self.repeated = sorted(self._makers(wanted))

    def _forward(self, name: str) -> bool:
        """Whether the forward pass reads a variable behind the segment."""
        return any(p >= self._end and self._ops[p].role in _FORWARD for p in self._uses.reads.get(name, ()))

    def _backward(self, name: str) -> list[int]:
        """Return the operators that read a variable once the forward pass is over."""
        return [p for p in self._uses.reads.get(name, ()) if self._ops[p].role not in _FORWARD]

    def _first(self, names: Collection[str]) -> int:
        return min((p for n in names for p in self._backward(n)[:1]), default=len(self._ops))

    def _keep(self, p: int) -> None:
        """Add results of an operator that cannot be repeated to those that are kept."""
        op = self._ops[p]
        replayed = op.definition.get(Replayed)
        if replayed is not None:
            self._kept.update(n for slot in replayed.kept for n in op.outputs.get(slot, ()))
        # A second computation after an update would use the new parameter and give other numbers.
        changed = any(p < q < self.place for n in _read(op) for q in self._uses.writes.get(n, ()))
        if changed or not _repeatable(op):
            self._kept.update(op.output_names())

    def _makers(self, wanted: Collection[str]) -> set[int]:
        """Return the operators that give these variables, from what is kept."""
        found: set[int] = set()
        todo = list(wanted)
        while todo:
            place = self._made[todo.pop()]
            if place not in found:
                found.add(place)
                todo += [n for n in _read(self._ops[place]) if n in self._made and n not in self._kept]
        return found

    def copies(self) -> list[Operator]:
        """Return the operators to insert; those of the backward pass read their results from now on."""
        names: dict[str, str] = {}
        repeated = [self._ops[p] for p in self.repeated]
        inner = {n for op in repeated for n in op.output_names() if n not in self._kept}
        for name in dict.fromkeys(n for op in repeated for n in op.output_names()):
            names[name] = self._again(name)
        gates = self._gates(repeated, inner)
        own = {gate.inputs["X"][0]: gate.outputs["Out"][0] for gate in gates}
        made = [self._copy(op, {**own, **{n: names[n] for n in inner}}, names) for op in repeated]
        for p in {p for n in inner for p in self._backward(n)}:
            op = self._ops[p]
            for slot, read in op.inputs.items():
                if not inner.isdisjoint(read):
                    op.inputs[slot] = [names[n] if n in inner else n for n in read]
        return [*gates, *made]

    def _again(self, name: str) -> str:
        program = self._block.program
        return self._block.create_var(program.unique(f"{name}@AGAIN"), self._block.var(name).type, stop_gradient=True).name

    def _gates(self, repeated: list[Operator], inner: Collection[str]) -> list[Operator]:
        """Return operators that hand on what the copies read from outside once the gradient that comes first is there."""
        # Without something to wait for, the scheduler could repeat all segments at the beginning of the backward pass.
        op = self._ops[self.place]
        waited = [n for n in dict.fromkeys(op.input_names()) if any(self._end <= p < self.place for p in self._uses.writes.get(n, ()))]
        read = dict.fromkeys(n for each in repeated for n in _read(each) if n not in inner and not self._block.var(n).persistable)
        if not waited:
            return []
        slots = [({"X": [n], "After": waited}, {"Out": [self._again(n)]}) for n in read]
        return [Operator(GATE, ins, outs, {}, Role.BACKWARD, [], op.at, op.scope) for ins, outs in slots]

    def _copy(self, op: Operator, read: dict[str, str], written: dict[str, str]) -> Operator:
        """Return an operator that does the same again, or what stands for it."""
        ins = {slot: [read.get(n, n) for n in names] for slot, names in op.inputs.items()}
        outs = {slot: [n if n == EMPTY else written[n] for n in names] for slot, names in op.outputs.items()}
        replayed = op.definition.get(Replayed)
        if replayed is None:
            return Operator(op.type, ins, outs, dict(op.attrs), Role.BACKWARD, [], op.at, op.scope)
        # A mask that was kept replaces the draw: the same elements are dropped again.
        ins |= {slot: op.outputs[slot] for slot in replayed.kept}
        outs = {slot: names for slot, names in outs.items() if slot not in replayed.kept}
        return Operator(replayed.by, ins, outs, dict(op.attrs), Role.BACKWARD, [], op.at, op.scope)


def _repeatable(op: Operator) -> bool:
    """Whether an operator gives the same again."""
    definition = op.definition
    if definition.has(Random) and not definition.has(Replayed):
        return False
    whole = any(definition.has(kind) for kind in (HasRegions, OnHost, ReadsAllDevices))
    overwrites = not set(op.output_names()).isdisjoint(op.input_names())
    return not whole and not any(map(callable, op.attrs.values())) and (not overwrites or definition.has(BatchStatistics))


def _read(op: Operator) -> set[str]:
    """Return what decides an operator's results; running statistics that it overwrites do not."""
    return set(op.input_names()) - set(op.output_names())
