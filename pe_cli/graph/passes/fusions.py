"""Fusions: the engine that puts a fused op in the place of the ops that it declares to join, see `ops.define.fusion`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence

from pe_cli.core.types import TensorType
from pe_cli.graph.rewrite import Rewriter, joined, sentence, told
from pe_cli.ops.define.fusion import Becomes, Fuses, Part, Pattern
from pe_cli.ops.define.registry import discover
from pe_cli.program.ir import Operator, Program


@functools.cache
def fusions() -> dict[str, Fuses]:
    """Return all fusions by the switch that asks for them."""
    return {found.switch: found for op in discover().values() if (found := op.get(Fuses)) is not None}


@functools.cache
def fusion_pass(switch: str) -> Callable[[Program, Collection[str]], tuple[Program, str]]:
    """Return the pass that applies the fusion of a switch."""
    return functools.partial(_run, switch)


def _run(switch: str, program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with the fused ops of a switch, and a sentence on what was done."""
    fusion = fusions()[switch]
    r = Rewriter(program, fetches)
    found = r.places_of(fusion.forward.parts[0].may_be)
    forward = backward = 0
    # A pattern is looked for at its first forward part, and its gradients follow from that.
    for place, _ in found:
        made = _apply(r, fusion, place)
        forward, backward = forward + made[0], backward + made[1]
    if not fusion.did:
        said = sentence(switch, forward, backward, r.reasons, fusion.nothing)
    else:
        said = told(switch, f"{forward} of {len(found)} {fusion.did}" if forward else "", r.reasons, fusion.nothing)
    return (r.finish() if forward or backward else program), said


class _Refused(Exception):
    """A pattern does not apply, and why."""


class Found:
    """The ops of the parts of a pattern; see `ops.define.fusion.Match`."""

    def __init__(self, r: Rewriter, parts: dict[str, Operator]) -> None:
        self._r = r
        self._parts = parts

    def __getitem__(self, part: str) -> Operator:
        return self._parts[part]

    def __contains__(self, part: str) -> bool:
        return part in self._parts

    def type(self, variable: str) -> TensorType:
        """Return the type of a variable."""
        return self._r.block.var(variable).type

    def readers(self, variable: str) -> Sequence[Operator]:
        """Return the ops that read a variable, in order."""
        return [self._r.op(p) for p in self._r.readers(variable)]

    def unchanged(self, variable: str, first: Operator, last: Operator) -> bool:
        """Whether no op between two ops writes a variable."""
        return self._r.unchanged(variable, self._r.place_of(first), self._r.place_of(last))

    def only_for(self, variable: str, readers: Sequence[Operator], *, stays: bool = False) -> str:
        """Return why a variable cannot vanish when only these ops read it, empty where it can; see `Rewriter.only_for`."""
        return self._r.only_for(variable, self._places(readers), stays=stays)

    def needed(self, variable: str, readers: Sequence[Operator]) -> str:
        """Return why a variable is needed, were it not for these ops, empty where nobody else reads it; see `Rewriter.needed`."""
        why = self._r.needed(variable, self._places(readers))
        # Nobody reading it at all is no obstacle here: the value vanishes with the ops.
        return "" if why == self._r.END else why

    def same_role(self, *ops: Operator) -> bool:
        """Whether ops belong to the same part of a training step."""
        return len({op.role for op in ops}) == 1

    def can_meet(self, *ops: Operator) -> bool:
        """Whether ops may all move to the place of one of them."""
        return self._r.meeting_point(self._places(ops)) is not None

    def create(self, name: str, type: TensorType) -> str:
        """Add a variable of a name that begins so, and return its name."""
        return self._r.block.create_var(self._r.program.unique(name), type, stop_gradient=True).name

    def _places(self, ops: Sequence[Operator]) -> list[int]:
        return [self._r.place_of(op) for op in ops]

    def with_parts(self, pattern: Pattern, first: Operator) -> Found:
        """Return the match with all parts of a pattern that begins with an op.

        Raises:
            _Refused: a part is not there.
        """
        made = Found(self._r, {**self._parts, pattern.parts[0].name: first})
        for part in pattern.parts[1:]:
            op = made._linked(part)
            if op is not None:
                made._parts[part.name] = op
        return made

    def _linked(self, part: Part) -> Operator | None:
        """Return the op of a part, None where an optional one is not there."""
        found, why = self._writer(part, *part.writes) if part.writes else self._reader(part)
        if found is None and not part.optional:
            raise _Refused(part.lacking or why)
        return found

    # Adding a term may have two makers; the later one can take the other's result as an operand.
    def _writer(self, part: Part, reader: str, slots: str) -> tuple[Operator | None, str]:
        """Return the last op that may be a part among those that write what another one reads, or None and why there is none."""
        of = self[reader]
        places = [self._r.writer(of.inputs[slot][0]) for slot in slots.split() if of.inputs.get(slot)]
        ops = [self._r.op(p) for p in sorted({p for p in places if p is not None})]
        found = [op for op in ops if self._may_be(part, op)]
        there = " and ".join(sorted({op.type for op in ops})) or "no op or several"
        return (found[-1] if found else None), f"the input of {of.type} is made by {there}"

    def _reader(self, part: Part) -> tuple[Operator | None, str]:
        """Return the op that alone reads a variable, or None and why there is none."""
        name = self._read(part)
        readers = self.readers(name) if name else []
        found = [op for op in readers if self._may_be(part, op)]
        # Others may read it as well only where the pattern says that the value stays.
        if len(found) == 1 and (part.others or len(readers) == 1):
            return found[0], ""
        there = " and ".join(sorted({op.type for op in readers if op not in found})) or "no op or several"
        writer = self._r.writer(name)
        return None, f"{_called(self._r.op(writer)) if writer is not None else name} is read by {there}"

    def _read(self, part: Part) -> str:
        """Return the variable that a part reads, empty where the op that should have it does without."""
        if not isinstance(part.reads, tuple):
            assert part.reads is not None
            return part.reads(self)
        of, slot = part.reads
        return (self[of].outputs.get(slot) or [""])[0] if of in self else ""

    def _may_be(self, part: Part, op: Operator) -> bool:
        """Whether an op may be a part; of one that reads, whether it does so through the slot that is asked for."""
        if not part.may_be(op.definition) or not (part.fits is None or part.fits(self, op)):
            return False
        return not part.into or op.inputs.get(part.into) == [self._read(part)]

    def gradients(self, pattern: Pattern) -> Iterator[Operator]:
        """Yield the ops with which a pattern of a gradient begins."""
        first = pattern.parts[0]
        name = self._read(first)
        for op in self.readers(name) if name else ():
            if self._may_be(first, op):
                yield op

    def check_unless(self, pattern: Pattern) -> None:
        """Check the condition of a pattern whose parts are there.

        Raises:
            _Refused: with the reason.
        """
        if pattern.unless and (why := pattern.unless(self)):
            raise _Refused(why)

    def check_vanish(self, pattern: Pattern, together: Sequence[Found] | None = None) -> None:
        """Check that the values that a pattern does without may vanish.

        Args:
            pattern: whose parts are there.
            together: matches of gradients that are joined with it, whose ops may read what vanishes; None where they are for themselves.

        Raises:
            _Refused: with the reason.
        """
        if callable(pattern.vanish):
            if why := pattern.vanish(self):
                raise _Refused(why)
            return
        ops = [op for found in (self, *(together or ())) for op in found._parts.values()]
        for part, slot in pattern.vanish:
            if why := self.only_for(self[part].outputs[slot][0], ops, stays=together is not None):
                raise _Refused(f"{_called(self[part])} {why}")


def _called(op: Operator) -> str:
    """Return what reports call the result of an op."""
    of = op.definition.is_grad_of
    return f"the gradient of {of}" if of else f"the output of {op.type}"


def _apply(r: Rewriter, fusion: Fuses, place: int) -> tuple[int, int]:
    """Join what begins with the op at a place; return how many forward places and how many gradients were joined."""
    done = 0
    try:
        found = Found(r, {}).with_parts(fusion.forward, r.op(place))
        found.check_unless(fusion.forward)
        if fusion.together and fusion.gradient:
            return _apply_together(r, fusion.forward, fusion.gradient, found)
        # Gradients are joined one by one before the forward ops, while what they read is still there.
        for op in list(found.gradients(fusion.gradient)) if fusion.gradient else ():
            done += _apply_gradient(r, fusion.gradient, found, op)
        found.check_vanish(fusion.forward)
        _replace(r, fusion.forward.becomes(found))
    except _Refused as why:
        r.reasons[str(why)] += 1
        # Gradients that were joined stay so: each gives what the ops that it replaces gave.
        return 0, done
    return 1, done


def _apply_gradient(r: Rewriter, pattern: Pattern | None, found: Found, op: Operator) -> int:
    """Join one gradient; return 1, or 0 with the reason noted."""
    assert pattern is not None
    try:
        gradient = found.with_parts(pattern, op)
        gradient.check_vanish(pattern)
        gradient.check_unless(pattern)
        _replace(r, pattern.becomes(gradient))
    except _Refused as why:
        r.reasons[str(why)] += 1
        return 0
    return 1


def _apply_together(r: Rewriter, forward: Pattern, backward: Pattern, found: Found) -> tuple[int, int]:
    """Join forward ops and all their gradients, or nothing."""
    gradients = [found.with_parts(backward, op) for op in found.gradients(backward)]
    found.check_vanish(forward, gradients)
    for gradient in gradients:
        gradient.check_vanish(backward)
        gradient.check_unless(backward)
    made = [one for gradient in gradients for one in backward.becomes(gradient)] + list(forward.becomes(found))
    # All moves are checked before the first replacement, so that nothing is half done.
    for one in made:
        _check_moves(r, one)
    _replace(r, made)
    return 1, len(gradients)


def _check_moves(r: Rewriter, made: Becomes) -> None:
    """Check that an op can take the place of others.

    Raises:
        _Refused: it cannot.
    """
    if len({op.role for op in made.ops}) > 1:
        raise _Refused(f"{made.type} would join operators of different roles")
    if r.meeting_point([r.place_of(op) for op in made.ops]) is None:
        raise _Refused(f"{made.type} would move past operators that use the same variables")


def _replace(r: Rewriter, made: Sequence[Becomes]) -> None:
    """Put ops in the place of others.

    Raises:
        _Refused: the first of them cannot stand there.
    """
    for one in made:
        _check_moves(r, one)
        r.replace([r.place_of(op) for op in one.ops], joined(one.ops, one.type, dict(one.inputs), dict(one.outputs), dict(one.attrs)))
        for name, like in one.gone.items():
            r.vanish([name], like)
