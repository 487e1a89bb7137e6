"""Pattern matching and rewriting in a block: who reads and writes what, and how a group of operators becomes one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property

from pe_cli.ops.define.registry import OpDef, forward_name, grad_name
from pe_cli.program.ir import Block, Operator, Program


class Rewriter:
    """A copy of a program whose operators are found by place and replaced in groups.

    Places are indices into the block as it was; they stay valid while operators are replaced.

    Attributes:
        reasons: why something that looked like the pattern was left alone -> how often.
    """

    #: Why a variable stays that nobody reads: what computes it would be left without a result.
    END = "is read by nobody"

    def __init__(self, program: Program, fetches: Collection[str]) -> None:
        self._before = program
        self.reasons: Counter[str] = Counter()
        self._fetches = set(fetches)
        self._readers: dict[str, set[int]] = {}
        self._writers: dict[str, set[int]] = {}
        self._like: dict[str, str] = {}
        self._gradients: dict[str, list[str]] | None = None
        # By identity, because operators are equal when they say the same.
        self._places: dict[int, int] = {}

    @cached_property
    def program(self) -> Program:
        """The copy, made when it is first asked for."""
        made = self._before.clone()
        for place, op in enumerate(made.top_ops):
            self._enter(place, op)
        return made

    @cached_property
    def block(self) -> Block:
        """The block of the copy."""
        return self.program.main_block

    @cached_property
    def ops(self) -> list[Operator | None]:
        """The operators of the copy by place; None where one was taken away."""
        return list(self.block.ops)

    def _enter(self, place: int, op: Operator) -> None:
        self._places[id(op)] = place
        for name in op.input_names():
            self._readers.setdefault(name, set()).add(place)
        for name in op.output_names():
            self._writers.setdefault(name, set()).add(place)

    def places_of(self, wanted: Callable[[OpDef], bool]) -> list[tuple[int, Operator]]:
        """Return the operators whose definition is wanted with their places, in order."""
        # Cloning is the larger part of what a pass costs, and most passes find nothing in most programs.
        if "ops" not in self.__dict__ and not any(wanted(op.definition) for op in self._before.top_ops):
            return []  # a program without any need not be copied
        return [(place, op) for place, op in enumerate(self.ops) if op is not None and wanted(op.definition)]

    def place_of(self, op: Operator) -> int:
        """Return the place of an operator that has one."""
        return self._places[id(op)]

    def op(self, place: int) -> Operator:
        """Return the operator of a place that has one."""
        found = self.ops[place]
        assert found is not None
        return found

    def readers(self, name: str) -> list[int]:
        """Return the places of the operators that read a variable."""
        return sorted(self._readers.get(name, ()))

    def writer(self, name: str) -> int | None:
        """Return the place of the only operator that writes a variable; None for none and for several."""
        found = self._writers.get(name, set())
        return next(iter(found)) if len(found) == 1 else None

    def only_for(self, name: str, places: Collection[int], *, stays: bool = False) -> str:
        """Return why a variable cannot vanish, were it not for readers at these places; empty where it can.

        Args:
            name: of the variable.
            places: readers that do not count.
            stays: it remains as another output, so that what is typed after it may remain too.
        """
        v = self.block.var(name)
        if name in self._fetches:
            return "is fetched"
        if v.persistable or v.is_data or len(self._writers.get(name, ())) != 1:
            return "is kept or written twice"
        others = sorted({self.op(p).type for p in self.readers(name) if p not in places})
        # Who reads it outside of the group would find nothing, and types of readers tell the user which layer is in the way.
        if others:
            return f"is also read by {' and '.join(others)}"
        # A gradient variable is typed after its forward variable, even where no op names that as an input.
        if not stays and any(self._writers.get(n) for n in self._typed_after(name)):
            return "has a gradient that is not fused"
        return ""

    def needed(self, name: str, places: Collection[int]) -> str:
        """Return why a variable cannot vanish when only operators at these places read it; empty where it can, with `vanish`."""
        v = self.block.var(name)
        if name in self._fetches:
            return "is fetched"
        if v.persistable or v.is_data or self.writer(name) is None:
            return "is kept or written twice"
        if any(n in self._fetches or self.block.var(n).persistable for n in self._typed_after(name)):
            return "has a gradient that is fetched"
        others = sorted({self.op(p).type for p in self.readers(name) if p not in places})
        if others:
            return f"is also read by {' and '.join(others)}"
        return "" if self.readers(name) else self.END

    def _typed_after(self, name: str) -> list[str]:
        if self._gradients is None:
            self._gradients = {}
            for n in self.block.vars:
                if forward_name(n) != n:
                    self._gradients.setdefault(forward_name(n), []).append(n)
        return self._gradients.get(name, [])

    def vanish(self, names: Iterable[str], like: str) -> None:
        """Note that variables are gone, so that gradients typed after them are typed after another one, which stays."""
        self._like |= dict.fromkeys(names, like)

    def unchanged(self, name: str, first: int, last: int) -> bool:
        """Whether no operator between two places writes a variable."""
        return not any(first < p < last for p in self._writers.get(name, ()))

    def meeting_point(self, group: Sequence[int]) -> int | None:
        """Return the place, the last or the first of a group, that all its operators may move to; None where there is none."""
        # The last first: an op that moves down may wait for all inputs, one that moves up may not.
        ends = (max(group), min(group))
        return next((p for p in ends if all(self._moves(q, p, group) for q in group)), None)

    def replace(self, group: Sequence[int], made: Operator) -> bool:
        """Put one operator in the place of a group: of its last if dataflow allows, else of its first; False where neither does.

        Args:
            group: places, in order.
            made: reads what the group reads from outside, and writes what others read of it.
        """
        group = sorted(group)
        target = self.meeting_point(group)
        return target is not None and self._put(group, target, made)

    def replace_first(self, group: Sequence[int], made: Operator) -> bool:
        """Put one operator in the place of the first of a group; False, and nothing done, where dataflow forbids it."""
        target = min(group)
        return all(self._moves(q, target, group) for q in group) and self._put(group, target, made)

    def _put(self, group: Sequence[int], target: int, made: Operator) -> bool:
        for place in group:
            self.remove(place)
        self.ops[target] = made
        self._enter(target, made)
        return True

    def remove(self, place: int) -> None:
        """Take an operator away."""
        self._leave(place)
        self.ops[place] = None

    def _leave(self, place: int) -> None:
        op = self.op(place)
        for table, names in ((self._readers, op.input_names()), (self._writers, op.output_names())):
            for name in names:
                table.get(name, set()).discard(place)

    def _moves(self, source: int, target: int, group: Collection[int]) -> bool:
        """Whether an operator may move past all that stand between, those of its group apart."""
        op = self.op(source)
        # Ops of the group itself are no obstacle: they become one.
        between = set(range(min(source, target) + 1, max(source, target))) - set(group)
        writes = any(self._writers.get(n, set()) & between for n in (*op.input_names(), *op.output_names()))
        return not writes and not any(self._readers.get(n, set()) & between for n in op.output_names())

    def finish(self) -> Program:
        """Return the rewritten program, without the variables that nobody uses any more."""
        before = {n for op in self.block.ops for n in (*op.input_names(), *op.output_names())}
        self.block.ops = [op for op in self.ops if op is not None]
        after = {n for op in self.block.ops for n in (*op.input_names(), *op.output_names())}
        # Variables that something read before and nobody reads now; those of other blocks stay untouched.
        for name in before - after:
            v = self.block.vars[name]
            if not (v.persistable or v.is_data):
                del self.block.vars[name]
        renamed: dict[str, str] = {}
        for name, like in self._like.items():
            for gradient in self._typed_after(name) if name not in self.block.vars else ():
                if gradient in self.block.vars:
                    # `@` ends a gradient's name for who types it, so the old name becomes a suffix without it.
                    renamed[gradient] = self.program.unique(f"{grad_name(like)}@{gradient.replace('@', '.')}")
        self.block.rename_vars(renamed)
        return self.program


def joined(
    ops: Sequence[Operator],
    type: str,
    inputs: dict[str, list[str]],
    outputs: dict[str, list[str]],
    attrs: dict[str, object],
) -> Operator:
    """Return the operator that stands for several: place in the file and scope of the first, role variables of all."""
    # The first op's line is where a user looks for the layer; errors of the fused op point there.
    first = ops[0]
    role_vars = [n for op in ops for n in op.role_vars]
    made = Operator(type, inputs, outputs, {}, first.role, role_vars, first.at, first.scope, first.segment)
    made.attrs = made.definition.check_attrs(attrs)
    return made


def sentence(name: str, forward: int, backward: int, reasons: Counter[str], nothing: str) -> str:
    """Return what a fusing pass did.

    Args:
        name: of the pass.
        forward: places fused before the loss.
        backward: gradients fused.
        reasons: why other places were not, with counts.
        nothing: why, where nothing even looked like the pattern.
    """
    did = f"{forward} places fused, {backward} gradients" if forward or backward else ""
    return told(name, did, reasons, nothing)


def told(name: str, did: str, reasons: Counter[str], nothing: str) -> str:
    """Return what a pass did, empty for nothing, with the reasons for what it left alone; see `sentence`."""
    why = "; ".join(f"{count} x {text}" for text, count in sorted(reasons.items()))
    if not did:
        return f"{name}: nothing fused: {why or nothing}"
    return f"{name}: {did}" + (f"; not {why}" if why else "")


def take_each(r: Rewriter, found: Sequence[tuple[int, Operator]], take: Callable[[Rewriter, int, Operator], str]) -> int:
    """Let `take` fuse every one of some operators, which returns why it does not; return how many it did, and count the reasons."""
    whys = [take(r, place, op) for place, op in found]
    r.reasons.update(why for why in whys if why)
    return whys.count("")
