"""Selections between values by a condition, and cases of which one writes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from pe_cli.layers.control.loops import branch
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.constant_sizes import BRANCHES
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.ops import logical_and, logical_not, logical_or
from pe_cli.paddle.fluid.layers.original_counts import DEFAULT_CASE, FIRST_CASE, NEXT_CASE
from pe_cli.paddle.fluid.naming import apart, use
from pe_cli.program.ir import Variable
from pe_cli.program.outline import Outline


def _mask(condition: Variable, like: Variable) -> Any:
    """Return a condition in the sizes of another tensor."""
    if condition.shape == like.shape:
        return condition
    # Filled, not multiplied by 0: what is infinite or NaN would come through as NaN, and that as true.
    zeros = LayerHelper("fill_zeros").one("fill_like", {"X": call("cast", like, "float32")}, {"value": 0.0})
    # One bool for each row counts for the row's elements, aligned at the first axis; of fewer axes, at the last.
    axis = 0 if len(condition.shape) == len(like.shape) else -1
    return call("cast", call("elementwise_add", zeros, call("cast", condition, "float32"), axis), "bool")


def select(condition: Variable, yes: Variable, no: Variable, out: Variable | None = None) -> Any:
    """Return yes where a condition holds, else no; the condition is one bool, one per row, or one per element."""
    default_main_program()
    helper = LayerHelper("select")
    inputs = {"Condition": _mask(condition, yes), "X": yes, "Y": no}
    if out is None:
        return helper.one("select", inputs)
    helper.op("select", inputs, {}, (), {"Out": out})
    return out


class Switch:
    """Cases of which the first whose condition holds writes to variables from outside: `with switch.case(condition)`."""

    def __init__(self, name: str | None = None) -> None:
        self._taken: Any = None
        use({"switch": 1})

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    @contextlib.contextmanager
    def case(self, condition: Variable) -> Iterator[None]:
        """Write inside where a condition holds and none before did."""
        # Cases come in order: one runs where its own condition holds and no earlier one did.
        use(FIRST_CASE if self._taken is None else NEXT_CASE)
        with apart("switch"):
            mine = condition if self._taken is None else logical_and(condition, logical_not(self._taken))
            self._taken = condition if self._taken is None else logical_or(self._taken, condition)
        with _only_if(mine):
            yield

    @contextlib.contextmanager
    def default(self) -> Iterator[None]:
        """Write inside where no condition held.

        Raises:
            FluidValueError: no case stands before it.
        """
        if self._taken is None:
            raise FluidValueError("Switch: default needs a case before it")
        use(DEFAULT_CASE)
        with apart("switch"):
            none = logical_not(self._taken)
        with _only_if(none):
            yield


@contextlib.contextmanager
def _only_if(condition: Any) -> Iterator[None]:
    """Run what is appended inside where a condition holds."""
    block = default_main_program().global_block()
    yes = Outline(block)
    BRANCHES.append(yes)
    try:
        yield
    finally:
        BRANCHES.pop()
    yes.cut()
    # The other branch appends nothing: variables keep what they hold.
    no = Outline(block)
    no.cut()
    with raised_as(FluidValueError):
        branch(condition, yes, no, ([], []))


__all__ = ["Switch", "select"]
