"""What gradients of loops and of branches share: parts of gradients, their sums, and regions with what they need alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pe_cli.core.types import FLOATS
from pe_cli.ops.define.registry import forward_name, grad_name
from pe_cli.program.ir import EMPTY, Block, Operator, Variable
from pe_cli.program.outline import copied


class Walk(Protocol):
    """A reverse walk over a block, see `pe_cli.program.backward`."""

    def reachable(self, ops: list[Operator]) -> set[str]:
        """Return variables that depend on a target and let gradients through."""

    def run(self, losses: list[str], starts: list[str | None] | None) -> dict[str, str]:
        """Append everything; return variable -> name of its gradient."""


#: Makes a walk: (block, targets).
MakeWalk = Callable[[Block, set[str]], Walk]
Grads = Mapping[str, str]


class RegionGradient:
    """The gradient of an op with regions; arguments of `append_region_gradient`."""

    def __init__(self, block: Block, op: Operator, grads: Grads, wanted: Grads, walk: MakeWalk) -> None:
        self.block, self.op, self.grads, self.wanted, self.walk = block, op, grads, wanted, walk
        self._given: dict[str, list[str]] = {}  # input -> variables that are parts of its gradient

    def part(self, name: str) -> str:
        """Return the name of a part of the gradient of an input; EMPTY where nobody wants it."""
        if name not in self.wanted:
            return EMPTY
        parts = self._given.setdefault(name, [])
        # The first part has the gradient's own name; it stays the only one in nearly all programs.
        parts.append(self.block.program.unique(f"{self.wanted[name]}@PART") if parts else self.wanted[name])
        return parts[-1]

    def join(self) -> None:
        """Add up the gradients of inputs that the op reads more than once."""
        for name, parts in self._given.items():
            if len(parts) > 1:
                first = self.block.program.unique(f"{self.wanted[name]}@PART")
                self.block.rename_var(parts[0], first)
                self.block.append_op("sum", {"X": [first, *parts[1:]]}, {"Out": parts[0]}, at=self.op.at)

    def zeros(self, like: str) -> str:
        """Append zeros of a variable's type."""
        made = self.block.program.unique(f"{grad_name(like)}@ZERO")
        self.block.append_op("fill_like", {"X": like}, {"Out": made}, {"value": 0.0}, at=self.op.at)
        return made


def flows(v: Variable) -> bool:
    """Return whether a gradient flows to a variable."""
    return v.type.computed.dtype in FLOATS and not v.stop_gradient


def given_gradient(block: Block, result: str) -> str:
    """Declare the gradient of a result, which is given."""
    name = block.program.unique(f"{grad_name(result)}@GIVEN")
    return block.create_var(name, block.vars[result].type, is_data=True).name


def own_variable(block: Block, name: str | None, like: str, given: Sequence[str]) -> str:
    """Return a gradient as a variable that an op of the block writes: zeros where there is none."""
    if name is None:
        made = block.program.unique(f"{grad_name(like)}@ZERO")
        block.append_op("fill_like", {"X": like}, {"Out": made}, {"value": 0.0})
        return made
    # A result must be written by an op: what is only given is copied.
    return copied(block, name) if name in given else name


def keep_only(block: Block, ops: Sequence[Operator], args: Sequence[str]) -> None:
    """Leave these ops in a block, and the variables that they need."""
    block.ops = list(ops)
    named = {n for op in ops for n in (*op.input_names(), *op.output_names())}
    named |= {forward_name(n) for op in ops if op.definition.is_grad_of for n in op.output_names()}
    block.vars = {n: v for n, v in block.vars.items() if n in named or n in args}
    # What the region was once fed may now be computed inside, and the other way round.
    for name, v in block.vars.items():
        v.is_data = name in args
