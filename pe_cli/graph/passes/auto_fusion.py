"""enable_auto_fusion: pointwise ops that feed one another become fusion_group ops, one pass over memory each.

Groups grow along dataflow, in the program's order, as long as all their ops may move to one place. An intermediate value that nobody else
reads vanishes; a gradient that was typed after it is then typed after, and named by, a value of the group that stays.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.graph.rewrite import Rewriter, joined
from pe_cli.ops.define.traits import Pointwise
from pe_cli.ops.fused.fusion_group import NAME, Member, group_of
from pe_cli.ops.fused.fusion_kernel import FULL, is_long
from pe_cli.program.ir import EMPTY, Operator, Program, Role

PASS = "enable_auto_fusion"
#: Limits of a group: its kernel's code and registers. More ops make several groups.
MOST_OPS, MOST_READS, MOST_WRITES, MOST_LONG = 16, 12, 6, 1


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with groups of pointwise ops, and a sentence on what was done."""
    walk = _Walk(program, fetches)
    walk.grow()
    groups = [g for g in walk.groups.values() if len(g) > 1]
    made = [g for g in groups if walk.replace(g)]
    alone = sum(len(g) == 1 for g in walk.groups.values())
    if alone:
        walk.r.reasons["pointwise ops have no other next to them"] += alone
    why = "; ".join(f"{count} {text}" for text, count in sorted(walk.r.reasons.items()))
    if not made:
        return program, f"{PASS}: nothing fused: {why or 'the program has no pointwise ops'}"
    said = f"{PASS}: {sum(map(len, made))} ops became {len(made)}{f'; {why}' if why else ''}"
    return walk.r.finish(), said


@dataclass(frozen=True)
class _Joined:
    """Ops as one: names of what is read and written, and the ops with numbers of values.

    Args:
        reads: variables.
        members: see `fusion_group`.
        writes: variable -> number of its value, of those that others need.
        gone: variables that vanish.
    """

    reads: tuple[str, ...]
    members: tuple[Member, ...]
    writes: dict[str, int]
    gone: tuple[str, ...]


class _Walk:
    """One walk over a program.

    Attributes:
        r: of the program.
        groups: number -> places.
    """

    def __init__(self, program: Program, fetches: Collection[str]) -> None:
        self.r = Rewriter(program, fetches)
        self.groups: dict[int, list[int]] = {}
        self._home: dict[int, int] = {}

    # --- growing ------------------------------------------------------------------------------------------------------

    def grow(self) -> None:
        """Put every pointwise op into the groups that make its inputs, or into one of its own."""
        for place, op in enumerate(self.r.ops):
            # Only ops of one full shape: a kernel of a group is one loop over it.
            if op is None or self._full(op) is None:
                continue
            mine = [place]
            for group in self._makers(place, op):
                # Sorted, because a group runs in the program's order.
                wanted = sorted(self.groups[group] + mine)
                if self._fits(wanted):
                    del self.groups[group]
                    mine = wanted
            for p in mine:
                self._home[p] = place
            self.groups[place] = mine

    def _full(self, op: Operator) -> TensorType | None:
        """Return the type of all outputs of a pointwise op, None for other ops."""
        if not op.definition.has(Pointwise) or EMPTY in {n for row in op.outputs.values() for n in row}:
            return None
        types = {self.r.block.var(n).type for n in op.output_names()}
        full = next(iter(types)) if len(types) == 1 else None
        if full is None or full.dtype not in FLOATS or any(len(row) != 1 for row in op.outputs.values() if row):
            return None
        one = self._joined([op])
        return full if group_of(one.members, self._types(one), full) else None

    def _types(self, one: _Joined) -> list[TensorType]:
        return [self.r.block.var(n).type for n in one.reads]

    def _makers(self, place: int, op: Operator) -> list[int]:
        """Return the groups that make an op's inputs and are of its kind, in order."""
        found: dict[int, None] = {}
        for name in op.input_names():
            source = self.r.writer(name)
            if source is not None and source < place and source in self._home:
                other = self.r.op(source)
                # Updates of different parameters stay apart: buckets and owners are by parameter.
                same_update = op.role_vars == other.role_vars or op.role not in (Role.OPTIMIZE, Role.LR_SCHED)
                if other.role is op.role and same_update and self._full(other) == self._full(op):
                    found[self._home[source]] = None
        return list(found)

    def _fits(self, places: Sequence[int]) -> bool:
        """Whether ops may become one; notes why not."""
        ops = [self.r.op(p) for p in places]
        one = self._joined(ops, places)
        full = self._full(ops[0])
        assert full is not None
        if len(places) > MOST_OPS or len(one.reads) > MOST_READS or len(one.writes) > MOST_WRITES:
            return self._refuse("times a group was full")
        group = group_of(one.members, self._types(one), full)
        if group is None or not self._separate(one, group.kinds):
            # Broadcasts inside of one loop must all be of one form, or each would need its own index arithmetic.
            return self._refuse("times tensors were broadcast in different ways")
        if sum(is_long(s.kernel) for s in group.steps) > MOST_LONG:
            return self._refuse("times a group had its fill of long functions")
        if self.r.meeting_point(places) is None:
            return self._refuse("times other ops stood between")
        return True

    def _refuse(self, why: str) -> bool:
        self.r.reasons[why] += 1
        return False

    # In place is safe element by element, and not where an element is read after its place was written.
    def _separate(self, one: _Joined, kinds: dict[int, str]) -> bool:
        """Whether what is written may overlap what is read: where it is the same variable, each element must depend on the old one."""
        for name, value in one.writes.items():
            if name in one.reads:
                old = one.reads.index(name)
                if kinds[old] != FULL or not _depends(one.members, value, old):
                    return False
        return True

    # --- joining ------------------------------------------------------------------------------------------------------

    def _joined(self, ops: Sequence[Operator], places: Collection[int] = ()) -> _Joined:
        """Number the values of some ops; without places, every output counts as needed."""
        made: set[str] = set()
        reads: dict[str, None] = {}
        for op in ops:
            reads |= dict.fromkeys(n for n in op.input_names() if n not in made)
            made.update(op.output_names())
        value = {n: k for k, n in enumerate(reads)}
        members: list[Member] = []
        count = len(reads)
        for op in ops:
            inputs = {s: [value[n] for n in row] for s, row in op.inputs.items() if row}
            outputs = {}
            for slot, row in op.outputs.items():
                for name in row:
                    outputs[slot], value[name], count = [count], count, count + 1
            defaults = op.definition.attrs
            # Attributes with their default are left out, so that equal groups have equal keys and share a kernel.
            members.append((op.type, inputs, outputs, {k: v for k, v in op.attrs.items() if v != defaults[k].default}))
        needed = {n: value[n] for op in ops for n in op.output_names() if not places or self._needed(n, places)}
        return _Joined(
            tuple(reads), tuple(members), needed, tuple(n for n in dict.fromkeys(_outputs(ops)) if n not in needed)
        )

    def _needed(self, name: str, places: Collection[int]) -> bool:
        """Whether anyone but the ops at some places needs a variable."""
        return bool(self.r.needed(name, places))

    def replace(self, places: Sequence[int]) -> bool:
        """Put a fusion_group in the place of some ops."""
        ops = [self.r.op(p) for p in places]
        full = self._full(ops[0])
        assert full is not None
        one = self._joined(ops, places)
        # The first input is what the op's in-place trait looks at.
        over = self._taken_over(one, places, full)
        if over is not None:
            one = _moved_first(one, over)
        types = self._types(one)
        group = group_of(one.members, types, full)
        if not one.writes or group is None:
            return self._refuse("groups compute what nobody reads")
        # Gradients of vanished values are typed after a full value of the group.
        like = group.like(types, full)
        attrs: dict[str, Any] = {"ops": [list(m) for m in one.members], "outs": list(one.writes.values()), "like": like}
        first, rest = (list(one.reads[:1]), one.reads[1:]) if over is not None else ([], one.reads)
        inputs = {**({"X": first} if first else {}), **({"Rest": list(rest)} if rest else {})}
        made = joined(ops, NAME, inputs, {"Out": list(one.writes)}, attrs)
        if not self.r.replace(places, made):
            return self._refuse("times other ops stood between")
        self.r.vanish(one.gone, next(iter(one.writes)))
        return True

    def _taken_over(self, one: _Joined, places: Collection[int], full: TensorType) -> int | None:
        """Return the value read whose memory the first result may have: nobody else reads it, and the result depends on it."""
        if not one.writes:
            return None
        first = next(iter(one.writes.values()))
        for k, name in enumerate(one.reads):
            v = self.r.block.var(name)
            if v.type == full and not self._needed(name, places) and _depends(one.members, first, k):
                return k
        return None


def _outputs(ops: Sequence[Operator]) -> list[str]:
    return [n for op in ops for n in op.output_names()]


def _depends(members: Sequence[Member], value: int, on: int) -> bool:
    """Whether a value is a function of another one."""
    after = {on}
    for _, inputs, outputs, _ in members:
        if after & {v for row in inputs.values() for v in row}:
            after |= {v for row in outputs.values() for v in row}
    return value in after


def _moved_first(one: _Joined, k: int) -> _Joined:
    """Return the same with value k as number 0."""
    number = {k: 0, **{v: v + 1 for v in range(k)}}

    def numbered(slots: Any) -> Any:
        return {s: [number.get(v, v) for v in row] for s, row in slots.items()}

    reads = (one.reads[k], *one.reads[:k], *one.reads[k + 1 :])
    members = tuple((name, numbered(ins), outs, attrs) for name, ins, outs, attrs in one.members)
    return _Joined(reads, members, one.writes, one.gone)
