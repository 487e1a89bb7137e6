"""Results of py_func whose sizes or sequences the function says, as in PaddlePaddle."""

from __future__ import annotations

from dataclasses import replace

from pe_cli.program.ir import Operator, Program


def freed(program: Program) -> Program | None:
    """Return a copy of a program in which results of Python functions may have the shapes that these return; None without such.

    They may where nothing reads a result, and where the function has no gradient and a size is declared as -1, or rows may have sequences.

    Args:
        program: not changed.
    """
    ops = program.global_block().ops
    # Where another op reads a result, its declared sizes are what that op was built for.
    read = {n for o in ops for n in o.input_names()}
    calls = {i: read.isdisjoint(o.output_names()) for i, o in enumerate(ops) if o.type == "py_func" and o.outputs.get("Out")}
    sequences = any(v.lod_level for v in program.global_block().vars.values())
    places = [i for i, alone in calls.items() if alone or _open(program, ops[i], sequences=sequences)]
    if not places:
        return None
    made = program.clone()
    block = made.global_block()
    for i in places:
        o = block.ops[i]
        attrs = {name: o.attrs[name] for name in ("forward", "shapes", "dtypes")}
        block.ops[i] = replace(o, type="py_func_free", attrs={**attrs, "fits": not calls[i]})
    return made


def _open(program: Program, op: Operator, *, sequences: bool) -> bool:
    """Return whether a function alone says sizes of its results, or may say and be given sequences."""
    if op.attrs["backward"] is not None:
        return False
    rows = any(program.global_block().var(n).shape[:1] == (-1,) for n in op.inputs.get("X", ()))
    return any(-1 in shape for shape in op.attrs["shapes"]) or (sequences and rows)
