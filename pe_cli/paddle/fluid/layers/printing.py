"""Print and Assert: what an executor does with variables after every step: show them, or look whether they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import EnforceNotMet, FluidTypeError
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.naming import apart, rename, temporary
from pe_cli.program.ir import Variable


@dataclass
class Printed:
    """A variable that is shown after a step.

    Args:
        name: of the variable.
        shown: its name for people.
        message: in front.
        first_n: steps that are shown; below 0 for all.
        summarize: elements that are shown; below 0 for all.
        facts: which of name, type, shape are shown.
    """

    name: str
    shown: str
    message: str
    first_n: int
    summarize: int
    facts: tuple[bool, bool, bool]
    count: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The variables that are read."""
        return (self.name,)

    def look(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        """Show the value of a step."""
        print(self.text(values[0]))  # noqa: T201 (asked for)

    def text(self, value: np.ndarray[Any, Any]) -> str:
        """Return the lines of one step."""
        has_name, has_type, has_shape = self.facts
        flat = value.ravel()
        data = flat if self.summarize < 0 else flat[: self.summarize]
        lines = [self.message, f"Variable: {self.shown}" if has_name else ""]
        lines += [f"  shape: {list(value.shape)}" if has_shape else "", f"  dtype: {value.dtype}" if has_type else ""]
        return "\n".join([*(line for line in lines if line), f"  data: {data.tolist()}"])


@dataclass
class Asserted:
    """A condition that has to hold after a step.

    Args:
        names: of the condition, and of what is told where it does not hold.
        summarize: elements of each that are told; below 0 for all.
    """

    names: tuple[str, ...]
    summarize: int
    first_n: int = -1
    count: int = 0

    def look(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        """Look whether the condition holds.

        Raises:
            EnforceNotMet: it does not; a RuntimeError.
        """
        if np.all(values[0]):
            return
        # A condition that does not hold shows the values that the script asked for, shortened.
        flat = [v.ravel() if self.summarize < 0 else v.ravel()[: self.summarize] for v in values[1:]]
        told = "".join(f"; {name} is {v.tolist()}" for name, v in zip(self.names[1:], flat, strict=True))
        raise EnforceNotMet(f"Assert: '{self.names[0]}' does not hold{told}")


def Assert(cond: Variable, data: Sequence[Variable] | None = None, summarize: int = 20, name: str | None = None) -> None:
    """Look after every step of an executor whether a condition holds, and raise `EnforceNotMet` where it does not.

    Args:
        cond: one bool, or several that all have to be true.
        data: variables whose values the error tells.
        summarize: elements of each that it tells; below 0 for all.
        name: without effect.

    Raises:
        FluidTypeError: cond is no bool variable; a TypeError.
    """
    if not isinstance(cond, Variable) or cond.dtype != "bool":
        raise FluidTypeError(f"Assert: cond must be a bool variable, got {cond}", hint="compare two variables")
    names = (cond.name, *(v.name for v in data or ()))
    getattr(cond.block.program, "prints", []).append(Asserted(names, summarize))


def Print(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    input: Variable,
    first_n: int = -1,
    message: str | None = None,
    summarize: int = 20,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "both",
) -> Any:
    """Return a copy of a variable that is shown after every step of an executor.

    Args:
        input: any.
        first_n: steps that are shown; below 0 for all.
        message: in front.
        summarize: elements that are shown; below 0 for all.
        print_tensor_name, print_tensor_type, print_tensor_shape: what else is shown.
        print_tensor_lod: without effect.
        print_phase: forward or both; with backward nothing is shown, as gradients are not.
    """
    # A copy of its own: what is shown is fetched, and fetching the input could keep it from being computed in place.
    name = LayerHelper(f"print_{input.name}").name
    with apart("print"):
        out = call("scale", input) if input.dtype in ("float32", "float64") else call("assign", input)
    rename(out.block, out, temporary(name))
    facts = print_tensor_name, print_tensor_type, print_tensor_shape
    shown = Printed(out.name, input.name, message or "", first_n, summarize, facts)
    # The gradient's phase has no place here: what runs backward is appended later.
    if print_phase != "backward":
        getattr(out.block.program, "prints", []).append(shown)
    return out


__all__ = ["Assert", "Print"]
