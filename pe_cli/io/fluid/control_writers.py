"""Loops and branches as the original has them: `while` and `conditional_block` with blocks of their own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pe_cli.io.fluid.block_writer import enter, number_of, same_kind, takes_arrays, write_region
from pe_cli.io.fluid.operator_writer import NotWritten, Written, writes
from pe_cli.io.fluid.program_desc import STEP_SCOPES
from pe_cli.program.ir import Operator
from pe_cli.program.region import Region


@takes_arrays("while")
@writes("while")
def _while(made: Written, op: Operator) -> None:
    body, test = op.attrs["body"], op.attrs["condition"]
    inits, finals = op.inputs.get("Init", []), op.outputs.get("Final", [])
    states = [carried(made, init, final) for init, final in zip(inits, finals, strict=True)]
    outer = [*states, *(made.name(n) for n in op.inputs.get("Captured", []))]
    count = op.outputs["Count"][0]
    rows = op.outputs.get("Out", [])
    counted = bool(rows) or made.is_read(count)
    if counted:
        made.emit("fill_constant", {}, {"Out": [count]}, {"shape": [1], "dtype": "int64", "value": 0.0})
    else:
        made.vars.pop(made.name(count), None)
    for name in rows:
        made.declare(made.block.var(name), array=True)
    flag = _flag(made, test, states, outer)
    inner = enter(made, body, dict(zip(body.args, outer, strict=True)))
    write_region(inner, body, _targets(inner, body, states))
    for name, result in zip(rows, body.results[len(states) :], strict=True):
        inner.emit("write_to_array", {"X": [result], "I": [count]}, {"Out": [made.name(name)]})
    if counted:
        inner.emit("increment", {"X": [count]}, {"Out": [count]}, {"step": 1.0})
    if flag not in states:
        _ask(inner, test, outer, flag)
    scopes = made.beside(f"{flag}.scopes", kind=STEP_SCOPES)
    attrs = {"sub_block": number_of(made, inner), "is_test": made.whole.is_test, "skip_eager_deletion_vars": []}
    read = [n for n in inner.reads() if n != flag]
    made.emit("while", {"X": read, "Condition": [flag]}, {"Out": inner.writes(), "StepScopes": [scopes]}, attrs)


def carried(made: Written, init: str, final: str) -> str:
    """Let the variable of the last state of a loop begin as the first one; return its name in the file.

    Raises:
        NotWritten: it is an array that goes on under another name.
    """
    if init in made.arrays:
        # An array is written in place: all its names are one variable.
        made.names[final] = made.name(init)
        made.arrays.add(final)
    elif made.name(init) != made.name(final):
        made.emit("assign", {"X": [init]}, {"Out": [final]})
    return made.name(final)


def _targets(inner: Written, region: Region, states: Sequence[str]) -> list[tuple[str, str, str | None]]:
    """Return results of a region that states become, without arrays, which are written in place."""
    found = zip(region.results, states, region.args, strict=False)
    return [(result, name, arg) for result, name, arg in found if arg not in inner.arrays]


def _flag(made: Written, test: Region, states: Sequence[str], outer: Sequence[str]) -> str:
    """Return the name in the file of the condition before the first round: a state, or what is computed here."""
    ops = test.block.ops
    if len(ops) == 1 and ops[0].type == "assign" and ops[0].inputs["X"][0] in test.args[: len(states)]:
        return states[test.args.index(ops[0].inputs["X"][0])]
    flag = made.beside("while.condition", "bool", (1,))
    _ask(made, test, outer, flag)
    return flag


def _ask(made: Written, test: Region, outer: Sequence[str], flag: str) -> None:
    """Append what computes a condition."""
    asked = enter(made, test, dict(zip(test.args, outer, strict=True)), same_block=True)
    write_region(asked, test, [(test.results[0], flag, None)])


# --- branches -------------------------------------------------------------------------------------------------------


@takes_arrays("cond")
@writes("cond")
def _cond(made: Written, op: Operator) -> None:
    outs, captured = op.outputs["Out"], op.inputs.get("Captured", [])
    condition = op.inputs["Condition"][0]
    if condition in outs:
        # The first branch may overwrite the condition, which the second one is asked by, too.
        copy = made.beside(f"{condition}.before", "bool", (1,))
        made.emit("assign", {"X": [condition]}, {"Out": [copy]})
        condition = copy
    kept = {name for name in outs if name in captured}
    sides: list[list[str]] = []
    for word in ("yes", "no"):
        if word == "no" and _does(op, op.attrs["no"], kept):
            negated = made.beside(f"{op.output_names()[0]}.otherwise", "bool", (1,))
            made.emit("logical_not", {"X": [condition]}, {"Out": [negated]})
            sides.append(_branch(made, op, op.attrs["no"], negated, kept, "no"))
        elif word == "yes":
            sides.append(_branch(made, op, op.attrs["yes"], condition, kept, "yes"))
    fresh = [name for name in outs if name not in kept and name not in made.arrays]
    if not fresh:
        return
    mask = made.beside(f"{fresh[0]}.mask", "int32", (1,))
    made.emit("cast", {"X": [condition]}, {"Out": [mask]}, {"in_dtype": "bool", "out_dtype": "int32"})
    for name, yes, no in zip(fresh, sides[0], sides[1], strict=True):
        made.emit("select_input", {"X": [no, yes], "Mask": [mask]}, {"Out": [name]})


def _does(op: Operator, region: Region, kept: Collection[str]) -> bool:
    """Return whether a branch gives a result, or changes a variable from outside."""
    return any(name not in kept or not _hands_through(op, region, i) for i, name in enumerate(op.outputs["Out"]))


def _hands_through(op: Operator, region: Region, index: int) -> bool:
    """Return whether a result of a branch is the variable from outside that it is called like, as it was."""
    outer = dict(zip(region.args, op.inputs.get("Captured", []), strict=True))
    maker = next((o for o in region.block.ops if region.results[index] in o.output_names()), None)
    copies = maker is not None and maker.type in {"assign", "list_copy"}
    return copies and outer.get(next(iter(maker.input_names()), "")) == op.outputs["Out"][index]  # type: ignore[union-attr]


def _branch(made: Written, op: Operator, region: Region, condition: str, kept: Collection[str], word: str) -> list[str]:
    """Append one branch, and return the names of what it gives anew."""
    captured = [made.name(n) for n in op.inputs.get("Captured", [])]
    inner = enter(made, region, dict(zip(region.args, captured, strict=True)))
    arg_of = dict(zip(op.inputs.get("Captured", []), region.args, strict=True))
    for arg, name in zip(region.args, op.inputs.get("Captured", []), strict=True):
        if name in made.arrays:
            inner.arrays.add(arg)
    targets: list[tuple[str, str, str | None]] = []
    sides: list[str] = []
    for i, name in enumerate(op.outputs["Out"]):
        if name in made.arrays:
            _same_array(made, op, inner, region, i)
        elif name not in kept:
            sides.append(same_kind(made, f"{name}.{word}", made.block.var(name)))
            targets.append((region.results[i], sides[-1], None))
        elif not _hands_through(op, region, i):
            targets.append((region.results[i], made.name(name), arg_of[name]))
    dropped = {region.results[i] for i, name in enumerate(op.outputs["Out"]) if name in kept and _hands_through(op, region, i)}
    write_region(inner, region, targets)
    # What is handed through is the variable outside itself.
    inner.ops[:] = [o for o in inner.ops if o.type != "assign" or not {inner.name(n) for n in dropped} & set(o.outputs["Out"])]
    for name in dropped:
        inner.vars.pop(inner.name(name), None)
    if inner.ops:
        scope = made.beside(f"{op.output_names()[0]}.scope", kind=STEP_SCOPES)
        attrs = {"sub_block": number_of(made, inner), "is_scalar_condition": True, "skip_eager_deletion_vars": []}
        made.emit("conditional_block", {"Cond": [condition], "Input": inner.reads()}, {"Out": inner.writes(), "Scope": [scope]}, attrs)
    else:
        made.whole.blocks.remove(inner)
    return sides


def _same_array(made: Written, op: Operator, inner: Written, region: Region, index: int) -> None:
    """Let an array that a branch gives be the one from outside that it was made of.

    Raises:
        NotWritten: it begins in the branch.
    """
    found = region.results[index]
    while found not in region.args:
        maker = next((o for o in region.block.ops if found in o.output_names()), None)
        given = maker.inputs.get("Array") or maker.inputs.get("X") if maker is not None else None
        if not given:
            raise NotWritten("an array of tensors that begins in a branch")
        found = given[0]
    made.names[op.outputs["Out"][index]] = inner.name(found)
