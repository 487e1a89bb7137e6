"""Outlines ops at the end of a block into a region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from pe_cli.core.types import TensorType
from pe_cli.program.ir import EMPTY, Block, Mark, Operator, Program, Variable
from pe_cli.program.region import Region

Made = TypeVar("Made")


class Outline:
    """Collects what is appended to a block from now on, until `cut` takes it out again.

    Args:
        block: that ops are appended to.

    Attributes:
        captured: once cut, variables of the block that the ops read and that are not given, in order.
        written: once cut, variables of the block that the ops write, in order.
        begin: operators before the first that is collected.
        varied: variables of the block that are written with other sizes; None where none may be.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.varied: set[str] | None = None
        self.captured: list[str] = []
        self.written: list[str] = []
        # By number and not by operator: ops may be inserted before.
        self.begin = len(block.ops)
        self._before = set(block.vars)
        self._given: list[str] = []
        self._now: dict[str, str] = {}
        self._program = Program(f"{block.program.name}/region")
        self._program.mark = Mark(at=block.program.mark.at)

    def outside(self, made: Callable[[], Made]) -> Made:
        """Return what a function makes with ops that belong before all that is collected."""
        ops, names = len(self.block.ops), set(self.block.vars)
        found = made()
        moved = self.block.ops[ops:]
        del self.block.ops[ops:]
        self.block.ops[self.begin : self.begin] = moved
        self.moved_on(len(moved), set(self.block.vars) - names)
        return found

    def moved_on(self, ops: int, names: set[str]) -> None:
        """Take note of operators that were put before the collected ones, with their variables."""
        self.begin += ops
        self._before |= names

    def give(self, like: str, kind: TensorType, *, stop_gradient: bool = False) -> Variable:
        """Return a variable that stands for what the region is given."""
        # Rows or states that the loop hands in, declared outside only until the region is cut.
        made = self.block.create_var(self.block.program.unique(f"{like}@EACH"), kind, stop_gradient=stop_gradient)
        self._given.append(made.name)
        return made

    def cut(self) -> None:
        """Take the ops out of the block, with the variables that only they use; every variable is written once from now on."""
        block = self.block
        ops = block.ops[self.begin :]
        del block.ops[self.begin :]
        for name in self._given:
            self._enter(name, name, given=True)
        for op in ops:
            ins = {s: [self._read(n) for n in names] for s, names in op.inputs.items()}
            outs = {s: [self._write(n) for n in names] for s, names in op.outputs.items()}
            self._inner.ops.append(replace(op, inputs=ins, outputs=outs, role_vars=[]))
        mine = {*self._given, *(n for op in ops for n in op.output_names())}
        # A variable that only the region uses would be allocated outside for nothing.
        for name in mine:
            if not self._outside(name):
                block.vars.pop(name, None)

    @property
    def ops(self) -> list[Operator]:
        """Once cut, what was collected."""
        return self._inner.ops

    def passes(self, name: str) -> bool:
        """Once cut, whether the region would give a variable of the block that its ops neither read nor write."""
        return name not in self._now

    @property
    def _inner(self) -> Block:
        return self._program.main_block

    def _outside(self, name: str) -> bool:
        return name in self._before or (name in self.block.vars and self.block.vars[name].persistable)

    def _read(self, name: str) -> str:
        if name != EMPTY and name not in self._now:
            self.captured.append(name)
            self._enter(name, name, given=True)
        return name if name == EMPTY else self._now[name]

    def _write(self, name: str) -> str:
        if name == EMPTY:
            return name
        if self._outside(name) and name not in self.written:
            self.written.append(name)
        # Each write gets a name of its own, so that a region's variables are written once.
        fresh = f"{name}@{len(self._inner.vars)}" if self._outside(name) or name in self._now else name
        self._enter(name, fresh, given=False)
        return fresh

    def _enter(self, name: str, fresh: str, *, given: bool) -> None:
        self._now[name] = fresh
        self._declare(name, fresh, given=given)

    def _declare(self, name: str, fresh: str, *, given: bool) -> None:
        v = self.block.var(name)
        self._inner.create_var(fresh, v.type, is_data=given, stop_gradient=v.stop_gradient, at=v.at)

    def region(self, args: Sequence[str], results: Sequence[str], states: int = 0) -> Region:
        """Return the region.

        Args:
            args: all that it reads, by the block's names; what it does not read may be there, too.
            results: by the block's names; what the ops do not write is copied.
            states: as many of the results may be the same as a later one; the others are copied where they are given twice.
        """
        block, found = self._inner, list[str]()
        for name in args:
            if name not in block.vars:
                self._declare(name, name, given=True)
        written = {n for op in block.ops for n in op.output_names()}
        for i, name in enumerate(results):
            inner = self._now.get(name, name)
            # Two results must not be one variable, because each has its own memory outside.
            twice = i >= states and inner in found[states:]
            found.append(copied(block, inner) if twice or inner not in written else inner)
        return Region(self._program, tuple(args), tuple(found))


def copied(block: Block, name: str) -> str:
    """Append a copy of a variable and return its name."""
    made = block.program.unique(f"{name}@COPY")
    block.append_op("assign", {"X": name}, {"Out": made})
    block.vars[made].stop_gradient = block.vars[name].stop_gradient
    return made


def undo(block: Block, ops: Sequence[Operator], names: set[str]) -> None:
    """Leave only these ops and variables in a block; parameters stay, as they are initialised elsewhere."""
    block.ops[:] = ops
    block.vars = {n: v for n, v in block.vars.items() if n in names or v.persistable}
