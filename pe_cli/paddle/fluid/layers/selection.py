"""Selections between values that are both computed: what branches become where only a step knows the condition."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pe_cli.layers.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.ops import equal, logical_and, logical_not, logical_or
from pe_cli.program.ir import Variable


@dataclass
class Body:
    """Ops that were appended inside a `with`.

    Args:
        begin: index of the first one.
        before: variables that were there before.
        outer: those of them that the ops write, in order.
    """

    begin: int
    before: frozenset[str]
    outer: list[str] = field(default_factory=list)


@contextlib.contextmanager
def body() -> Iterator[Body]:
    """Collect the ops appended inside."""
    block = default_main_program().global_block()
    made = Body(len(block.ops), frozenset(block.vars))
    yield made
    written = (n for op in block.ops[made.begin :] for n in op.output_names())
    made.outer = [n for n in dict.fromkeys(written) if n in made.before]


def _mask(condition: Variable, like: Variable) -> Any:
    """Return a condition in the sizes of another tensor."""
    if condition.shape == like.shape:
        return condition
    zeros = LayerHelper("fill_zeros").one("fill_like", {"X": call("cast", like, "float32")}, {"value": 0.0})
    axis = 0 if len(condition.shape) == len(like.shape) else -1
    return call("cast", call("elementwise_add", zeros, call("cast", condition, "float32"), axis), "bool")


def select(condition: Variable, yes: Variable, no: Variable, out: Variable | None = None) -> Any:
    """Return yes where a condition holds, else no; the condition is one bool, one a row, or one an element."""
    default_main_program()
    helper = LayerHelper("select")
    inputs = {"Condition": _mask(condition, yes), "X": yes, "Y": no}
    if out is None:
        return helper.one("select", inputs)
    helper.op("select", inputs, {}, (), {"Out": out})
    return out


def multiplex(inputs: Sequence[Variable], index: Variable, name: str | None = None) -> Any:
    """Return for every row the row of the input that index names: [batch, 1] int32.

    Raises:
        FluidValueError: there are fewer than two inputs.
    """
    if len(inputs) < 2:
        raise FluidValueError("multiplex needs two inputs or more")
    out = inputs[0]
    for k, x in enumerate(inputs[1:], 1):
        out = select(equal(index, call("fill_constant", [1], index.dtype, float(k))), x, out)
    return out


class Switch:
    """Cases of which the first whose condition holds writes to variables from outside: `with switch.case(condition)`."""

    def __init__(self, name: str | None = None) -> None:
        self._taken: Any = None

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    @contextlib.contextmanager
    def case(self, condition: Variable) -> Iterator[None]:
        """Write inside where a condition holds and none before did."""
        mine = condition if self._taken is None else logical_and(condition, logical_not(self._taken))
        self._taken = condition if self._taken is None else logical_or(self._taken, condition)
        with body() as part:
            yield
        self._write(part, mine)

    @contextlib.contextmanager
    def default(self) -> Iterator[None]:
        """Write inside where no condition held.

        Raises:
            FluidValueError: no case stands before it.
        """
        if self._taken is None:
            raise FluidValueError("Switch: default needs a case before it")
        mine = logical_not(self._taken)
        with body() as part:
            yield
        self._write(part, mine)

    def _write(self, part: Body, condition: Any) -> None:
        """Let the ops write to new variables, and select between those and the ones from outside."""
        block = default_main_program().global_block()
        for name in part.outer:
            outside = block.var(name)
            made = block.create_var(block.program.unique(f"{name}.case"), outside.type)
            written = False
            for op in block.ops[part.begin :]:
                if written:
                    _rename(op.inputs, name, made.name)
                written = written or name in op.output_names()
                _rename(op.outputs, name, made.name)
            select(condition, made, outside, outside)


def _rename(slots: dict[str, list[str]], old: str, new: str) -> None:
    for slot, names in slots.items():
        slots[slot] = [new if n == old else n for n in names]


__all__ = ["Switch", "multiplex", "select"]
