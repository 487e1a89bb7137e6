"""fuse_grad_update: a step is taken where the gradient is made, which is then never written.

Where there is one device, nothing is between the gradient of a parameter and its update. An operator that can (`descends` of an op)
subtracts rate times gradient from the parameter block by block, while a block is in registers: neither a variable for the gradient nor
a pass over both is left. The gradient of a table is 0 in most rows: what takes rows of it and sgd or adam become one operator
(`TABLES`), which writes no zeros to read them again. Products, sums and rounding are those of the optimizer, so no bit changes.
Schedules of learning rates go to the program's front: fluid puts them behind the gradients.
"""

from __future__ import annotations

from collections.abc import Collection

from pe_cli.graph.rewrite import Rewriter, take_each, told
from pe_cli.ops.define.registry import added_slot, find, rate_slot
from pe_cli.ops.define.traits import AddsUp
from pe_cli.program.ir import Operator, Program, Role

NAME = "fuse_grad_update"
#: Update -> the operator that does it and the gradient of a table's lookup.
TABLES = {"sgd": "lookup_sgd", "adam": "lookup_adam"}
LOOKUPS = ("lookup_table_grad", "lookup_table_v2_grad")


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with gradients that are subtracted where they are made, and a sentence on what was done."""
    r = Rewriter(_rates_first(program), fetches)
    updates = [(place, op) for place, op in r.places(*TABLES) if op.role is Role.OPTIMIZE and not op.inputs.get("Rows")]
    updates = [(place, op) for place, op in updates if op.type == "sgd" or _of_table(r, op)]
    done = take_each(r, updates, _take)
    did = f"{done} of {len(updates)} updates are done by gradients" if done else ""
    return (r.finish() if done else program), told(NAME, did, r.reasons, "no parameter is updated by sgd, and no table by adam")


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


def _of_table(r: Rewriter, update: Operator) -> bool:
    """Whether an update is by the gradient of a lookup."""
    at = r.writer(update.inputs["Grad"][0])
    return at is not None and r.op(at).type in LOOKUPS


def _take(r: Rewriter, place: int, update: Operator) -> str:
    """Take an update where its gradient is made; return why that is not done, empty where it is."""
    (gradient,) = update.inputs["Grad"]
    at = r.writer(gradient)
    if at is None:
        return "a gradient is fed or made by several operators"
    maker = r.op(at)
    added = maker.definition.get(AddsUp)
    slot = next((s for s in (added.descends if added else ()) if maker.outputs.get(s) == [gradient]), None)
    if not _of_table(r, update) and (slot is None or maker.inputs.get(added_slot(slot))):
        return f"a gradient is made by {maker.type}, which updates nothing"
    if why := r.only_for(gradient, [place]):
        return f"a gradient {why}"
    made = _subtracting(maker, update, slot) if slot else _looking_up(maker, update)
    if made is None:
        return "an update writes another variable than it reads"
    if not r.replace_first([at, place], made):
        return "a parameter or a rate is used between gradient and update"
    return ""


def _subtracting(maker: Operator, update: Operator, slot: str) -> Operator | None:
    """Return the maker of a gradient that subtracts it from the parameter; None where the update's result is another variable."""
    (param,), rate = update.inputs["Param"], update.inputs["LearningRate"]
    if update.outputs["ParamOut"] != [param]:
        return None
    inputs = {**maker.inputs, added_slot(slot): [param], rate_slot(slot): rate}
    outputs = {**maker.outputs, slot: [param]}
    return Operator(maker.type, inputs, outputs, maker.attrs, maker.role, [], maker.at, maker.scope)


def _looking_up(lookup: Operator, update: Operator) -> Operator:
    """Return the operator that does the gradient of a lookup and the update."""
    type = TABLES[update.type]
    inputs = {**update.inputs, "Grad": lookup.inputs["Out@GRAD"], "Ids": lookup.inputs["Ids"]}
    attrs = {k: v for k, v in {**lookup.attrs, **update.attrs}.items() if k in find(type).attrs}
    return Operator(type, inputs, update.outputs, attrs, lookup.role, [], lookup.at, lookup.scope)
