"""Programs of servers: further blocks, whose ops read and write the variables of the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import find
from pe_cli.paddle.fluid.framework import Block, Program
from pe_cli.paddle.fluid.variable import Operator, Variable
from pe_cli.program import ir
from pe_cli.program.ir import Role

#: Of variables that only order ops.
CONTROL = TensorType((), "bool")


class InnerBlock(Block):
    """A block whose variables are the program's.

    Attributes:
        parent_idx: number of the block that it follows.
    """

    parent_idx = 0

    def var(self, name: str) -> Any:
        """Return a variable of this block or of the first; see `Block.var`."""
        return self.vars[name] if name in self.vars else self.program.global_block().var(name)

    def has_var(self, name: str) -> bool:
        """Return whether this block has a variable of that name."""
        return name in self.vars


def inner_block(program: Program, parent: int) -> InnerBlock:
    """Add a block to a program."""
    made = InnerBlock(program, len(program.blocks))
    made.parent_idx = parent
    program.blocks.append(made)
    return made


def declare(block: ir.Block, name: str, kind: TensorType, persistable: bool = False) -> None:
    """Add a variable to a block, unless it has one of that name."""
    if name not in block.vars:
        block.vars[name] = Variable(block, name, kind, persistable=persistable, stop_gradient=True)


def add(
    block: ir.Block,
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
    made = Operator(type, ins, outs, find(type).check_attrs(attrs or {}), role, list(role_vars))
    block.ops.insert(len(block.ops) if index is None else index, made)
    changed(block)
    return made


def changed(block: ir.Block) -> None:
    """Let executors prepare a program again."""
    block.program.version += 1  # type: ignore[attr-defined]


def control(block: ir.Block) -> str:
    """Add a variable that only orders ops, and return its name."""
    number = 0
    while (name := f"__control_var@{number}") in block.vars:
        number += 1
    declare(block, name, CONTROL)
    return name
