"""fuse_grad_update: a step of sgd is taken by the operator that makes the gradient, which is then never written.

Where there is one device, nothing is between the gradient of a parameter and its update. An operator that can (`descends` of an op)
subtracts rate times gradient from the parameter block by block, while a block is in registers: neither a variable for the gradient nor
a pass over both is left. Product and rounding are those of sgd, so no bit changes. Schedules of learning rates go to the program's
front: fluid puts them behind the gradients.
"""

from __future__ import annotations

from collections.abc import Collection

from pe_cli.graph.rewrite import Rewriter, take_each, told
from pe_cli.ops.registry import added_slot, rate_slot
from pe_cli.program.ir import Operator, Program, Role

NAME = "fuse_grad_update"


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with gradients that are subtracted where they are made, and a sentence on what was done."""
    r = Rewriter(_rates_first(program), fetches)
    updates = [(place, op) for place, op in r.places("sgd") if op.role is Role.OPTIMIZE and not op.inputs.get("Rows")]
    done = take_each(r, updates, _take)
    did = f"{done} of {len(updates)} updates are done by gradients" if done else ""
    return (r.finish() if done else program), told(NAME, did, r.reasons, "no parameter is updated by sgd")


def _rates_first(program: Program) -> Program:
    """Return the program with what computes learning rates in front, where that depends on nothing else; it may be the same."""
    ops = program.global_block().ops
    places = {place for place, op in enumerate(ops) if op.role is Role.LR_SCHED}
    if not places:
        return program
    rates = [ops[place] for place in sorted(places)]
    reads, writes = ({n for op in rates for n in names(op)} for names in (Operator.input_names, Operator.output_names))
    for place, op in enumerate(ops[: max(places)]):
        if place not in places and (reads & set(op.output_names()) or writes & {*op.input_names(), *op.output_names()}):
            return program
    made = program.clone()
    block = made.global_block()
    moved = [block.ops[place] for place in sorted(places)]
    block.ops = moved + [op for place, op in enumerate(block.ops) if place not in places]
    return made


def _take(r: Rewriter, place: int, update: Operator) -> str:
    """Let the maker of a gradient do the update that reads it; return why it does not, empty where it does."""
    (param,), (gradient,), (rate,) = (update.inputs[slot] for slot in ("Param", "Grad", "LearningRate"))
    at = r.writer(gradient)
    if at is None:
        return "a gradient is fed or made by several operators"
    maker = r.op(at)
    slot = next((s for s in maker.definition.descends if maker.outputs.get(s) == [gradient]), None)
    if slot is None or maker.inputs.get(added_slot(slot)):
        return f"a gradient is made by {maker.type}, which updates nothing"
    if why := r.only_for(gradient, [place]):
        return f"a gradient {why}"
    if update.outputs["ParamOut"] != [param]:
        return "an update writes another variable than it reads"
    inputs = {**maker.inputs, added_slot(slot): [param], rate_slot(slot): [rate]}
    outputs = {**maker.outputs, slot: [param]}
    made = Operator(maker.type, inputs, outputs, maker.attrs, maker.role, [], maker.at, maker.scope)
    return "" if r.replace_first([at, place], made) else "a parameter or a rate is used between gradient and update"
