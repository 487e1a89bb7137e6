"""Inserts operators after an existing one, so that its readers read the inserted result instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.ops.define.registry import find
from pe_cli.program.ir import Operator, Program, Variable


class Insertion:
    """Ops behind another one, with its place in the file and its scope.

    Args:
        program: of forward ops, changed.
        op: of the main block, with one output that layers read; its output gets another name.

    Raises:
        PeError: no gradient flows to the op; with its place.

    Attributes:
        given: what the op gives, under its new name.
    """

    def __init__(self, program: Program, op: Operator) -> None:
        self._block, self._program, self._like = program.main_block, program, op
        self._at = next(i for i, each in enumerate(self._block.ops) if each is op) + 1
        slot = next(slot for slot, names in op.outputs.items() if names)
        found = self._block.vars[op.outputs[slot][0]]
        if found.stop_gradient:
            text = f"nothing is trained behind '{found.name}', for the model says that no gradient flows there"
            raise PeError(text, hint="leave it out of targets, or have the model train it", at=op.at)
        # From here on the op writes another name, and the last op behind it this one: what reads it stays as it is.
        self._name, name = found.name, program.unique(f"{found.name}.base")
        self.given: Variable = self._block.create_var(name, found.type, at=op.at, error_clip=found.error_clip)
        op.outputs[slot] = [name]

    def one(self, type: str, inputs: Mapping[str, Any], attrs: Mapping[str, Any] | None = None, *, last: bool = False) -> Variable:
        """Insert an op.

        Args:
            type, inputs, attrs: see `Block.append_op`.
            last: what it gives is what is read from now on.

        Returns:
            What it gives first.
        """
        name = self._name if last else self._program.unique(f"{self._name}.tmp")
        slots = [slot.name for slot in find(type).outputs]
        outputs = {slots[0]: name, **{slot: self._program.unique(f"{self._name}.tmp") for slot in slots[1:]}}
        with self._program.marked(scope=self._like.scope, role=self._like.role):
            self._block.append_op(type, inputs, outputs, attrs, index=self._at, at=self._like.at)
        self._at += 1
        return self._block.vars[name]

