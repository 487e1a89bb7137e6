"""Programs of servers: further blocks, whose ops read and write the variables of the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import find
from pe_cli.ops.define.traits import Remote
from pe_cli.ops.remote.send import CONTROL
from pe_cli.program.ir import Block, Operator, Program, Role


def inner_block(program: Program, parent: int) -> Block:
    """Add a block to a program that follows another one, and uses the variables of the first."""
    made = type(program.main_block)(program, len(program.blocks))
    made.parent_idx = parent
    program.blocks.append(made)
    return made


def does(op: Operator) -> str:
    """Return what an op tells or asks other processes, as its trait says; empty for an op that does not."""
    found = op.definition.get(Remote)
    return found.does if found is not None else ""


def declare(block: Block, name: str, kind: TensorType, persistable: bool = False) -> None:
    """Add a variable to a block, unless it has one of that name."""
    if name not in block.vars:
        block.create_var(name, kind, persistable=persistable, stop_gradient=True, at=None)


def add(
    block: Block,
    type: str,
    inputs: Mapping[str, Sequence[str]],
    outputs: Mapping[str, Sequence[str]],
    attrs: Mapping[str, Any] | None = None,
    *,
    role: Role = Role.DIST,
    role_vars: Sequence[str] = (),
    index: int | None = None,
) -> Operator:
    """Add an op to a block, whose variables are there already."""
    ins, outs = ({s: list(n) for s, n in slots.items() if n} for slots in (inputs, outputs))
    made = block.operators(type, ins, outs, find(type).check_attrs(attrs or {}), role, list(role_vars))
    block.ops.insert(len(block.ops) if index is None else index, made)
    changed(block)
    return made


def changed(block: Block) -> None:
    """Let executors prepare a program again."""
    block.program.version += 1


def control(block: Block) -> str:
    """Add a variable that only orders ops, and return its name."""
    number = 0
    while (name := f"__control_var@{number}") in block.vars:
        number += 1
    declare(block, name, CONTROL)
    return name
