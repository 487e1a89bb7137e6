"""Loops over the steps of a tensor as the original has them: `recurrent`."""

from __future__ import annotations

from pe_cli.io.fluid.block_writer import enter, number_of, write_region
from pe_cli.io.fluid.operator_writer import NotWritten, Written, writes
from pe_cli.io.fluid.program_desc import ELEMENT_NUMBERS, STEP_SCOPES, VarDesc
from pe_cli.program.ir import Operator
from pe_cli.program.region import Region

#: An end beyond every axis.
_LAST = 2**31 - 1


@writes("scan")
def _scan(made: Written, op: Operator) -> None:
    if op.inputs.get("Count") or op.inputs.get("Like"):
        raise NotWritten("scan of a gradient")
    body: Region = op.attrs["body"]
    given, inits, captured = (op.inputs.get(slot, []) for slot in ("X", "Init", "Captured"))
    whole = {made.name(n) for n in (*inits, *captured)}
    steps = [_step_name(made, name, whole) for name in given] or [_counting(made, op.attrs["steps"])]
    held = body.args[len(given) : len(given) + len(inits)]
    shared = zip(body.args[len(given) + len(inits) :], map(made.name, captured), strict=True)
    # A step is called inside like the whole outside.
    inner = enter(made, body, {**dict(zip(body.args, steps, strict=False)), **dict(shared)} if given else dict(shared))
    for arg, name in zip(body.args[: len(given)] or [""], steps, strict=True):
        kind = body.block.vars.get(arg)
        inner.vars[name] = VarDesc(name, shape=tuple(kind.shape) or (1,) if kind else (1,), dtype=kind.dtype if kind else "float32")
    for arg in held:
        inner.declare(body.block.vars[arg])
    write_region(inner, body, [])
    states = [_handed(inner, body, result, inner.fresh(f"{result}.next")) for result in body.results[: len(inits)]]
    every = dict(zip(op.outputs.get("Out", []), body.results[len(inits) :], strict=True))
    # What only the gradient reads is left out: the original's loop keeps that by itself.
    kept = [name for name in every if "@ROWS" in name and name not in made.wanted and not made.reads_here(name)]
    collected = {name: result for name, result in every.items() if name not in kept}
    finals = {
        final: result
        for final, result, init in zip(op.outputs.get("Final", []), body.results, inits, strict=False)
        if final == init or made.is_read(final)
    }
    last = {final: _rows(made, final) for final in finals}
    for name, result in collected.items():
        _handed(inner, body, result, made.name(name))
    for final, result in finals.items():
        _handed(inner, body, result, last[final])
    outs = [*collected, *last.values()]
    attrs = {
        "sub_block": number_of(made, inner), "has_states": bool(inits), "ex_states": [inner.name(arg) for arg in held], "states": states,
        "reverse": op.attrs["backwards"], "is_train": True, "skip_eager_deletion_vars": [],
    }  # fmt: skip
    known = {*steps, *map(made.name, inits)}
    ins = {"inputs": steps, "initial_states": inits, "parameters": [n for n in inner.reads() if n not in known]}
    made.emit("recurrent", ins, {"outputs": outs, "step_scopes": [made.beside(f"{outs[0]}.scopes", kind=STEP_SCOPES)]}, attrs)
    # The state after the last step is the last one that was collected, the first one where steps were gone through backwards.
    start, end = (0, 1) if op.attrs["backwards"] else (-1, _LAST)
    for final, rows in last.items():
        cut = {"axes": [0], "starts": [start], "ends": [end], "infer_flags": [1], "decrease_axis": [0]}
        made.emit("slice", {"Input": [rows]}, {"Out": [final]}, cut)


def _step_name(made: Written, name: str, whole: set[str]) -> str:
    """Return a name of what is gone through that nothing else inside has."""
    found = made.name(name)
    if found in whole:
        v = made.block.var(name)
        found = made.beside(f"{found}.steps", v.dtype, tuple(v.shape))
        made.emit("assign", {"X": [name]}, {"Out": [found]})
    whole.add(found)
    return found


def _counting(made: Written, steps: int) -> str:
    """Return the name of a tensor with as many steps, for a loop that goes through none."""
    name = made.beside("steps", "float32", (steps, 1))
    made.emit("fill_constant", {}, {"Out": [name]}, {"shape": [steps, 1], "dtype": "float32", "value": 0.0})
    return name


def _rows(made: Written, final: str) -> str:
    v = made.block.var(final)
    return made.beside(f"{final}.rows", v.dtype, (-1, *(v.shape or (1,))))


def _handed(inner: Written, body: Region, result: str, name: str) -> str:
    """Let a variable of a name of the file be a result of a step; return the name."""
    v = body.block.vars[result]
    inner.vars[name] = VarDesc(name, shape=tuple(v.shape) or (1,), dtype=v.dtype, lod_level=v.lod_level)
    inner.emit("rnn_memory_helper", {"X": [result]}, {"Out": [name]}, {"dtype": ELEMENT_NUMBERS[v.dtype]})
    return name
