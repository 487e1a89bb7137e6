"""Prunes a program to the part that given variables need, for prediction."""

from __future__ import annotations

from collections.abc import Collection

from pe_cli.program.ir import Block, Operator, Program


def needed(block: Block, targets: Collection[str], given: Collection[str] = ()) -> list[Operator]:
    """Return the operators that targets depend on, in order.

    Args:
        block: that has them.
        targets: names of variables.
        given: variables that are taken as they are, whatever operators write them.

    Raises:
        PeError: there is no such variable.
    """
    for name in targets:
        block.var(name)
    wanted = set(targets)
    kept = []
    # Backwards: an op counts if something that counts reads what it writes.
    for op in reversed(block.ops):
        if wanted & set(op.output_names()):
            kept.append(op)
            wanted |= set(op.input_names()) - set(given)
    return kept[::-1]


def prune(program: Program, targets: Collection[str], given: Collection[str] = ()) -> Program:
    """Return a copy with only the operators that targets depend on; arguments and errors as of `needed`."""
    made = program.clone()
    block = made.main_block
    block.ops = needed(block, targets, given)
    used = {n for op in block.ops for n in (*op.input_names(), *op.output_names())} | set(targets)
    block.vars = {name: v for name, v in block.vars.items() if name in used}
    return made
