"""enable_addto: a gradient that would be summed with others is added to them by the operator that makes it, and the sum vanishes.

append_backward sums the parts of a gradient in the order in which they are made. Here the second part's operator adds it to the
first, the third's to that total, and so on, as long as they can (`adds` of an op); what is left is summed as before. Every addition is
the sum's, of the same numbers in the same order, so no bit changes. A part's variable then holds the total up to it.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from pe_cli.graph.rewrite import Rewriter
from pe_cli.ops.define.registry import added_slot
from pe_cli.ops.define.traits import AddsAll, AddsUp
from pe_cli.program.ir import Operator, Program, Role

NAME = "enable_addto"


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with gradients that are added in place, and a sentence on what was done."""
    r = Rewriter(program, fetches)
    sums = [(place, op) for place, op in r.places_of(lambda definition: definition.has(AddsAll)) if op.role is Role.BACKWARD]
    counts = [_chain(r, place, op) for place, op in sums]
    added, gone = sum(counts), sum(r.ops[place] is None for place, _ in sums)
    why = "; ".join(f"{count} x {text}" for text, count in sorted(r.reasons.items()))
    if not added:
        return program, f"{NAME}: nothing added in place: {why or 'no variable has gradients from several places'}"
    done = f"{NAME}: {added} gradients are added where they are made, {gone} of {len(sums)} sums vanished"
    return r.finish(), done + (f"; not {why}" if why else "")


def _chain(r: Rewriter, place: int, op: Operator) -> int:
    """Make the producers of a sum's terms accumulate into one buffer; return how many do."""
    parts = op.inputs["X"]
    # One variable twice is added twice, which in place would double the total instead.
    if len(parts) < 2 or len(set(parts)) < len(parts):
        return 0
    (out,) = op.outputs["Out"]
    done = 0
    # In the order of the sum: floating-point addition is not associative, and no bit may change.
    for before, part in pairwise(parts):
        if why := _refuses(r, place, before, part, out if part == parts[-1] else part):
            r.reasons[why] += 1
            break
        done += 1
    if not done:
        return 0
    whole = done == len(parts) - 1
    for before, part in pairwise(parts[: done + 1]):
        last = whole and part == parts[-1]
        _add(r, before, part, out if last else part, op.role_vars if last else [])
    if whole:
        r.remove(place)
    else:
        # What cannot be added in place stays a sum, of the total so far and the rest.
        rest = Operator("sum", {"X": parts[done:]}, op.outputs, op.attrs, op.role, op.role_vars, op.at, op.scope)
        r.replace([place], rest)
    return done


def _refuses(r: Rewriter, place: int, before: str, part: str, total: str) -> str:
    """Return why a part's maker cannot add it to the parts before; empty where it can.

    Args:
        r: the block.
        place: of the sum.
        before: the last of the parts before.
        part: the part.
        total: the variable that will hold their total.
    """
    first, at = r.writer(before), r.writer(part)
    if first is None or at is None:
        return "a part of the gradient is fed or made by several operators"
    if why := _cannot(r.op(at), part):
        return why
    if why := r.only_for(part, [place]):
        return f"a part of the gradient {why}"
    # A later part's maker must come after all before it, or it would add to a total that is not there yet.
    if not first < at < place:
        return "the parts are not made in their order"
    return "the total is written twice" if total != part and r.writer(total) != place else ""


def _cannot(op: Operator, part: str) -> str:
    slot = _slot(op, part)
    if slot is None or added_slot(slot) in op.inputs:
        return f"{op.type} cannot add"
    added = op.definition.get(AddsUp)
    if why := added.overwrites(op.attrs) if added and added.overwrites else "":
        return f"{op.type} had better not add: {why}"
    # A parameter's own gradient is summed over devices by its name, so it must stay a variable.
    own = op.role is not Role.BACKWARD or part in op.role_vars
    return "a part is a parameter's gradient of its own" if own else ""


def _slot(op: Operator, name: str) -> str | None:
    added = op.definition.get(AddsUp)
    return next((slot for slot in (added.slots if added else ()) if op.outputs.get(slot) == [name]), None)


def _add(r: Rewriter, before: str, part: str, total: str, role_vars: list[str]) -> None:
    """Make a part's operator add it, and write the total."""
    place = r.writer(part)
    assert place is not None
    op = r.op(place)
    slot = _slot(op, part)
    assert slot is not None
    inputs = {**op.inputs, added_slot(slot): [before]}
    outputs = {**op.outputs, slot: [total]}
    made = Operator(op.type, inputs, outputs, op.attrs, op.role, [*op.role_vars, *role_vars], op.at, op.scope)
    r.replace([place], made)
