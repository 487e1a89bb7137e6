"""fuse_grad_update: a step is taken where the gradient is made, which is then never written.

Where there is one device, nothing is between the gradient of a parameter and its update. An operator that can (`descends` of an op)
subtracts rate times gradient from the parameter block by block, while a block is in registers: neither a variable for the gradient nor
a pass over both is left. The gradient of a table is 0 in most rows: what takes rows of it and an update become one operator
(`UpdatesTable`), which writes no zeros to read them again. Products, sums and rounding are those of the optimizer, so no bit changes.
Schedules of learning rates go to the program's front: fluid puts them behind the gradients.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pe_cli.graph.rewrite import Rewriter, take_each, told
from pe_cli.ops.define.registry import OpDef, added_slot, discover, find, grad_name, rate_slot
from pe_cli.ops.define.traits import AddsUp, Descends, Table, UpdatesTable
from pe_cli.program.ir import Operator, Program, Role

NAME = "fuse_grad_update"


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with gradients that are subtracted where they are made, and a sentence on what was done."""
    r = Rewriter(_rates_first(program), fetches)
    tables = _tables()
    found = r.places_of(lambda definition: definition.has(Descends) or definition.name in tables)
    updates = [(place, op) for place, op in found if op.role is Role.OPTIMIZE and not op.inputs.get("Rows")]
    updates = [(place, op) for place, op in updates if op.definition.has(Descends) or _table_of(r, op)]
    done = take_each(r, updates, lambda r, place, update: _take(r, place, update, tables))
    did = f"{done} of {len(updates)} updates are done by gradients" if done else ""
    return (r.finish() if done else program), told(NAME, did, r.reasons, "no parameter is updated by sgd, and no table by adam")


def _rates_first(program: Program) -> Program:
    """Return the program with what computes learning rates in front, where that depends on nothing else; it may be the same."""
    ops = program.top_ops
    places = {place for place, op in enumerate(ops) if op.role is Role.LR_SCHED}
    if not places:
        return program
    rates = [ops[place] for place in sorted(places)]
    reads, writes = ({n for op in rates for n in names(op)} for names in (Operator.input_names, Operator.output_names))
    # A schedule that reads what the step computes, or writes what it reads, cannot go ahead of it.
    for place, op in enumerate(ops[: max(places)]):
        if place not in places and (reads & set(op.output_names()) or writes & {*op.input_names(), *op.output_names()}):
            return program
    made = program.clone()
    block = made.main_block
    moved = [block.ops[place] for place in sorted(places)]
    block.ops = moved + [op for place, op in enumerate(block.ops) if place not in places]
    return made


def _tables() -> dict[str, OpDef]:
    """Return the ops that take the step of a table together with its gradient, by the update that each does."""
    return {found.update: op for op in discover().values() if (found := op.get(UpdatesTable)) is not None}


def _table_of(r: Rewriter, update: Operator) -> Table | None:
    """Return what takes rows of the table that is updated by its gradient; None where something else makes the gradient."""
    at = r.writer(update.inputs["Grad"][0])
    of = r.op(at).definition.is_grad_of if at is not None else None
    return find(of).get(Table) if of else None


def _take(r: Rewriter, place: int, update: Operator, tables: Mapping[str, OpDef]) -> str:
    """Take an update where its gradient is made; return why that is not done, empty where it is."""
    (gradient,) = update.inputs["Grad"]
    at = r.writer(gradient)
    if at is None:
        return "a gradient is fed or made by several operators"
    # The step is taken once, so there must be one gradient: none that is fed, and no sum of parts.
    maker = r.op(at)
    added = maker.definition.get(AddsUp)
    slot = next((s for s in (added.descends if added else ()) if maker.outputs.get(s) == [gradient]), None)
    table = _table_of(r, update) if update.type in tables else None
    # An operator that already adds to a total cannot subtract from a parameter as well.
    if table is None and (slot is None or maker.inputs.get(added_slot(slot))):
        return f"a gradient is made by {maker.type}, which updates nothing"
    if why := r.only_for(gradient, [place]):
        return f"a gradient {why}"
    made = None
    if slot:
        made = _subtracting(maker, update, slot)
    elif table:
        made = _looking_up(maker, update, table, tables[update.type])
    if made is None:
        return "an update writes another variable than it reads"
    # The parameter must not be read between: its readers of this step want the old value.
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


def _looking_up(lookup: Operator, update: Operator, table: Table, both: OpDef) -> Operator:
    """Return the operator that does the gradient of a lookup and the update."""
    inputs = {**update.inputs, "Grad": lookup.inputs[grad_name(table.out)], "Ids": lookup.inputs[table.ids]}
    attrs = {k: v for k, v in {**lookup.attrs, **update.attrs}.items() if k in both.attrs}
    return Operator(both.name, inputs, update.outputs, attrs, lookup.role, [], lookup.at, lookup.scope)
