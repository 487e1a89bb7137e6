"""Variables, parameters and operators with the original's accessors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pe_cli.core.errors import did_you_mean
from pe_cli.core.types import DTYPES
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.ops.define.registry import grad_name
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid.naming import PREFIX, Naming, appended
from pe_cli.paddle.fluid.variable_methods import Methods
from pe_cli.paddle.fluid.variable_operators import Arithmetic
from pe_cli.program import defaults, ir
from pe_cli.program.text import print_op


def as_dtype(given: Any) -> str:
    """Return the core's name of an element type: a text, a NumPy type, or a member of `core.VarDesc.VarType`."""
    if isinstance(given, str) and given in DTYPES:
        return str(given)
    try:
        return str(np.dtype(given).name)
    except TypeError:
        return str(given)


def as_sizes(shape: Any) -> tuple[int, ...]:
    """Return sizes; None is -1."""
    return tuple(-1 if s is None else int(s) for s in shape)


class Slots(list[str]):
    """Names of an operator's slots, as the original has them; called, the variables in all of them, as the core asks for them."""

    def __init__(self, slots: Mapping[str, list[str]], variables: list[str]) -> None:
        super().__init__(slots)
        self._variables = variables

    def __call__(self) -> list[str]:
        """Return every variable, in slot order."""
        return self._variables


@dataclass(eq=False)
class Variable(Arithmetic, ir.Variable, Methods):
    """A variable with operators.

    Attributes:
        undefined: made without a shape; takes its type from the first op that writes it.
        any_sizes: fed with other sizes, or another number of axes, than it declares; see `refitting`.
    """

    undefined: bool = False
    any_sizes: bool = False

    @property
    def stop(self) -> bool:
        """Whether gradients stop here."""
        return self.stop_gradient

    @property
    def op(self) -> ir.Operator | None:
        """The operator that made it; None for what is fed or kept."""
        # The first writer made it: ops behind it that write the name, such as an optimizer's, update it in place.
        return next((op for op in self.block.ops if self.name in op.output_names()), None)

    @property
    def grad_name(self) -> str:
        """What its gradient is called, whether or not there is one."""
        return grad_name(self.name)

    @raised_as(FluidValueError)
    def astype(self, dtype: Any) -> ir.Variable:
        """Append a cast to another element type."""
        # Into the variable's own program: while the script goes on, another one may be the default.
        with defaults.program_guard(self.block.program):
            attrs = {"in_dtype": self.dtype, "out_dtype": as_dtype(dtype)}
            made: ir.Variable = appended(lambda: LayerHelper("cast").one("cast", {"X": self}, attrs), Naming("tmp", (PREFIX,)))
        return made

    def _set_error_clip(self, error_clip: Any) -> None:
        """Cut the gradient of this variable on the way back, before what made the variable sees it.

        Raises:
            FluidTypeError: error_clip is no ErrorClipByValue; a TypeError.
        """
        bounds = getattr(error_clip, "bounds", None)
        if error_clip is not None and bounds is None:
            raise FluidTypeError(f"_set_error_clip takes an ErrorClipByValue, got {type(error_clip).__name__}")
        self.error_clip = bounds

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """Return the variable as text."""
        return str(self)

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"

    __repr__ = __str__


@dataclass(eq=False, repr=False)
class Parameter(Variable, ir.Parameter):
    """A parameter with operators.

    Attributes:
        is_distributed: whether parameter servers hold parts of it; they are told by their own arguments here.
    """

    is_distributed: ClassVar[bool] = False

    @property
    def optimize_attr(self) -> dict[str, float]:
        """The factor on the optimizer's learning rate."""
        return {"learning_rate": self.learning_rate}


class Operator(ir.Operator):
    """An operator with the original's accessors."""

    @property
    def input_names(self) -> Slots:
        """Names of the input slots; called, every variable read."""
        return Slots(self.inputs, super().input_names())

    @property
    def output_names(self) -> Slots:
        """Names of the output slots; called, every variable written."""
        return Slots(self.outputs, super().output_names())

    @property
    def input_arg_names(self) -> list[str]:
        """Every variable read."""
        return self.input_names()

    @property
    def output_arg_names(self) -> list[str]:
        """Every variable written."""
        return self.output_names()

    def input(self, name: str) -> list[str]:
        """Return the variables of an input slot."""
        return list(self.inputs.get(name, []))

    def output(self, name: str) -> list[str]:
        """Return the variables of an output slot."""
        return list(self.outputs.get(name, []))

    def attr(self, name: str) -> Any:
        """Return an attribute; `op_role` and `op_role_var` too.

        Raises:
            FluidValueError: there is no such attribute.
        """
        facts = self.all_attrs()
        if name not in facts:
            raise FluidValueError(f"op '{self.type}' has no attribute '{name}'", hint=did_you_mean(name, facts))
        return facts[name]

    def has_attr(self, name: str) -> bool:
        """Return whether there is such an attribute."""
        return name in self.all_attrs()

    @property
    def attr_names(self) -> list[str]:
        """Names of all attributes."""
        return list(self.all_attrs())

    def all_attrs(self) -> dict[str, Any]:
        """Return all attributes with `op_role` and `op_role_var`."""
        # The original keeps these three among the attributes; here they are fields of the operator.
        facts = {"op_role": self.role.value, "op_role_var": list(self.role_vars), "op_namescope": f"/{self.scope}"}
        return {**self.attrs, **facts}

    def attr_type(self, name: str) -> str:
        """Return the name of an attribute's type, such as int.

        Raises:
            FluidValueError: there is no such attribute.
        """
        return type(self.attr(name)).__name__

    @property
    def desc(self) -> Operator:
        """The operator itself, which has the accessors that scripts ask a description for."""
        return self

    def to_string(self, throw_on_error: bool = False) -> str:
        """Return the operator as text."""
        return str(self)

    def __str__(self) -> str:
        return print_op(self)
