"""Results of py_func that are only fetched may have another shape than declared, as in PaddlePaddle."""

from __future__ import annotations

from dataclasses import replace

from pe_cli.program.ir import Program


def freed(program: Program) -> Program | None:
    """Return a copy of a program in which results of Python functions that nothing reads may have any shape; None without such.

    Args:
        program: not changed.
    """
    ops = program.global_block().ops
    # Where another op reads a result, its declared shape is what that op was built for.
    read = {n for o in ops for n in o.input_names()}
    places = [i for i, o in enumerate(ops) if o.type == "py_func" and o.outputs.get("Out") and read.isdisjoint(o.output_names())]
    if not places:
        return None
    made = program.clone()
    block = made.global_block()
    for i in places:
        o = block.ops[i]
        attrs = {name: o.attrs[name] for name in ("forward", "shapes", "dtypes")}
        block.ops[i] = replace(o, type="py_func_free", attrs=attrs)
    return made
