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
from pe_cli.ops.registry import added_slot, find, rate_slot
from pe_cli.program.ir import Operator, Program, Role

NAME = "fuse_grad_update"
#: The operator that does an update and the gradient of a table's lookup.
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
    slot = next((s for s in maker.definition.descends if maker.outputs.get(s) == [gradient]), None)
    if not _of_table(r, update) and (slot is None or maker.inputs.get(added_slot(slot))):
        return f"a gradient is made by {maker.type}, which updates nothing"
    if why := r.only_for(gradient, [place]):
        return f"a gradient {why}"
    done = _subtract(r, at, place, slot) if slot else _look_up(r, at, place)
    return "" if done else "a parameter or a rate is used between gradient and update"


def _subtract(r: Rewriter, at: int, place: int, slot: str) -> bool:
    """Let the maker of a gradient subtract it from the parameter; return whether dataflow allows it."""
    maker, update = r.op(at), r.op(place)
    (param,), rate = update.inputs["Param"], update.inputs["LearningRate"]
    if update.outputs["ParamOut"] != [param]:
        return False
    inputs = {**maker.inputs, added_slot(slot): [param], rate_slot(slot): rate}
    outputs = {**maker.outputs, slot: [param]}
    made = Operator(maker.type, inputs, outputs, maker.attrs, maker.role, [], maker.at, maker.scope)
    return r.replace_first([at, place], made)


def _look_up(r: Rewriter, at: int, place: int) -> bool:
    """Let one operator do the gradient of a lookup and the update; return whether dataflow allows it."""
    lookup, update = r.op(at), r.op(place)
    type = TABLES[update.type]
    inputs = {**update.inputs, "Grad": lookup.inputs["Out@GRAD"], "Ids": lookup.inputs["Ids"]}
    attrs = {k: v for k, v in {**lookup.attrs, **update.attrs}.items() if k in find(type).attrs}
    made = Operator(type, inputs, update.outputs, attrs, lookup.role, [], lookup.at, lookup.scope)
    return r.replace_first([at, place], made)
