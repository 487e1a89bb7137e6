"""prune: the part of a program that some variables need; what prediction runs."""

from __future__ import annotations

from collections.abc import Collection

from pe_cli.program.ir import Program


def prune(program: Program, targets: Collection[str]) -> Program:
    """Return a copy with only the operators that targets depend on.

    Args:
        program: not changed.
        targets: names of variables.

    Raises:
        PeError: there is no such variable.
    """
    made = program.clone()
    block = made.global_block()
    for name in targets:
        block.var(name)
    needed = set(targets)
    kept = []
    for op in reversed(block.ops):
        if needed & set(op.output_names()):
            kept.append(op)
            needed |= set(op.input_names())
    block.ops = kept[::-1]
    used = {n for op in block.ops for n in (*op.input_names(), *op.output_names())} | set(targets)
    block.vars = {name: v for name, v in block.vars.items() if name in used}
    return made
