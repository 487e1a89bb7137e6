"""Prunes a program to the part that given variables need, or that no training needs, for prediction."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pe_cli.program.ir import Block, Operator, Program, Role


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


#: Roles of what only a step of training has.
_TRAINING = (Role.LOSS, Role.BACKWARD, Role.OPTIMIZE)


def of_training(ops: Sequence[Operator]) -> list[Operator]:
    """Return the ops of backward and of updates, but those of gradients that a later op of the forward part reads."""
    gone: list[Operator] = []
    read: set[str] = set()
    for op in reversed(ops):
        if op.role in _TRAINING and (op.role is Role.OPTIMIZE or read.isdisjoint(op.output_names())):
            gone.append(op)
        else:
            read.update(op.input_names())
    return gone


def drop_training(program: Program) -> None:
    """Take backward and updates from a program for evaluation, and what only they made; see `of_training`."""
    # Without a loss the gradients are results of their own, as those of `gradients`.
    if not any(op.role in (Role.LOSS, Role.OPTIMIZE) for block in program.blocks for op in block.ops):
        return
    for block in program.blocks:
        gone = of_training(block.ops)
        without = {id(op) for op in gone}
        block.ops = [op for op in block.ops if id(op) not in without]
        used = {n for op in block.ops for n in (*op.input_names(), *op.output_names())}
        for name in {n for op in gone for n in op.output_names()} - used:
            # Persistable variables stay, as the original's clone keeps them: their values are shared through the scope.
            if not block.vars[name].persistable:
                del block.vars[name]
