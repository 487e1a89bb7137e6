"""fluid.layer_helper: what scripts write layers of their own with."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper as CoreHelper
from pe_cli.layers.define.registry import find
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid.core import VarDesc
from pe_cli.paddle.fluid.framework import (
    as_dtype,
    as_sizes,
    default_main_program,
    default_startup_program,
    ensure_defaults,
)
from pe_cli.program.ir import Variable


class LayerHelper:
    """A layer that is being written: its arguments, and what it appends to the programs.

    Args:
        layer_type: of the layer, which names of parameters begin with.
        kwargs: the layer's arguments; `name`, `input`, `param_attr`, `bias_attr` and `act` have a meaning here.
    """

    def __init__(self, layer_type: str, **kwargs: Any) -> None:
        ensure_defaults()
        self.kwargs = kwargs
        self._core = CoreHelper(layer_type, kwargs.get("name"))

    @property
    def name(self) -> str:
        """What names begin with."""
        return self._core.name

    @property
    def layer_type(self) -> str:
        """Type of the layer."""
        return self._core.layer_type

    @property
    def main_program(self) -> Any:
        """The program that ops are appended to."""
        return default_main_program()

    @property
    def startup_program(self) -> Any:
        """The program that gives parameters their first values."""
        return default_startup_program()

    @property
    def param_attr(self) -> Any:
        """The layer's `param_attr`."""
        return self.kwargs.get("param_attr")

    @property
    def bias_attr(self) -> Any:
        """The layer's `bias_attr`."""
        return self.kwargs.get("bias_attr")

    def multiple_input(self, input_param_name: str = "input") -> list[Any]:
        """Return the variables of an argument, as a list."""
        found = self.kwargs.get(input_param_name, [])
        return list(found) if isinstance(found, (list, tuple)) else [found]

    def input(self, input_param_name: str = "input") -> Any:
        """Return the variable of an argument.

        Raises:
            FluidValueError: there are several; a ValueError.
        """
        found = self.multiple_input(input_param_name)
        if len(found) != 1:
            raise FluidValueError(f"{self.layer_type}: {input_param_name} is {len(found)} variables", hint="give one")
        return found[0]

    def multiple_param_attr(self, length: int) -> list[Any]:
        """Return an attribute for each of some parameters.

        Raises:
            FluidValueError: `param_attr` is a list of another length; a ValueError.
        """
        found = self.param_attr
        if not isinstance(found, (list, tuple)):
            return [found] * length
        if len(found) != length:
            raise FluidValueError(f"{self.layer_type}: {len(found)} param_attr for {length} parameters", hint="give one for each")
        return list(found)

    def iter_inputs_and_params(self, input_param_name: str = "input") -> Any:
        """Go through inputs, each with the attribute of its parameter."""
        inputs = self.multiple_input(input_param_name)
        return zip(inputs, self.multiple_param_attr(len(inputs)), strict=True)

    def input_dtype(self, input_param_name: str = "input") -> str | None:
        """Return the element type that all inputs have.

        Raises:
            FluidValueError: they differ; a ValueError.
        """
        found = {v.dtype for v in self.multiple_input(input_param_name)}
        if len(found) > 1:
            raise FluidValueError(f"{self.layer_type}: {input_param_name} has {', '.join(sorted(found))}", hint="cast them to one type")
        return found.pop() if found else None

    def create_parameter(
        self,
        attr: Any,
        shape: Any,
        dtype: Any = None,
        is_bias: bool = False,
        default_initializer: Any = None,
        stop_gradient: bool = False,
        type: Any = VarDesc.VarType.LOD_TENSOR,
    ) -> Any:
        """Make a parameter, which the startup program fills; None where attr is False. With stop_gradient it is not trained.

        Raises:
            FluidValueError: a type but that of tensors; a ValueError.
        """
        if type != VarDesc.VarType.LOD_TENSOR:
            raise FluidValueError(f"a parameter is a tensor, not {type}", hint="leave type out")
        # A layer with bias_attr=False has no bias; `append_bias_op` then does nothing.
        if attr is False:
            return None
        kind = as_dtype(dtype or self.input_dtype() or "float32")
        with raised_as(FluidValueError):
            made = self._core.parameter(attr, as_sizes(shape), kind, is_bias=is_bias, default=default_initializer)
        made.stop_gradient = made.stop_gradient or stop_gradient
        return made

    def get_parameter(self, name: str) -> Any:
        """Return a parameter of the program.

        Raises:
            FluidValueError: there is none of that name; a ValueError.
        """
        return self.main_program.global_block().var(name)

    def create_variable_for_type_inference(self, dtype: Any = None, stop_gradient: bool = False) -> Any:
        """Make a variable that takes the type of what is written to it."""
        name = self._core.program.unique(f"{self.name}.tmp")
        # float32 without a shape; the first op that writes to it sets the type.
        return self.create_variable(name=name, dtype=as_dtype(dtype or "float32"), stop_gradient=stop_gradient)

    create_tmp_variable = create_variable_for_type_inference

    def create_variable(self, *args: Any, **kwargs: Any) -> Any:
        """Make a variable of the program."""
        return self.main_program.current_block().create_var(*args, **kwargs)

    def create_global_variable(self, persistable: bool = False, *args: Any, **kwargs: Any) -> Any:
        """Make a variable that needs no gradient, and may stay between steps."""
        kwargs.setdefault("name", self._core.program.unique("_generated_var"))
        return self.main_program.global_block().create_var(*args, persistable=persistable, stop_gradient=True, **kwargs)

    def create_or_get_global_variable(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, bool]:
        """Return a global variable, and whether it is new."""
        block = self.main_program.global_block()
        if block.has_var(name):
            return block.var(name), False
        return self.create_global_variable(*args, name=name, **kwargs), True

    def set_variable_initializer(self, var: Any, initializer: Any) -> Any:
        """Have the startup program fill a variable."""
        initializer(var, self.startup_program.global_block())
        return var

    def append_op(self, *args: Any, **kwargs: Any) -> Any:
        """Append an op to the program; see `Block.append_op`."""
        with raised_as(FluidValueError):
            return self.main_program.current_block().append_op(*args, **kwargs)

    def append_bias_op(self, input_var: Variable, dim_start: int = 1, dim_end: int | None = None) -> Any:
        """Add a bias of the sizes of axes dim_start to dim_end; nothing where `bias_attr` is False."""
        with raised_as(FluidValueError):
            return self._core.add_bias(input_var, self.bias_attr, axis=dim_start, end=len(input_var.shape) if dim_end is None else dim_end)

    def append_activation(self, input_var: Variable) -> Any:
        """Apply the layer's `act`, a name or a dictionary with `type` and arguments.

        Raises:
            FluidTypeError: another form; a TypeError.
            FluidValueError: there is no such activation, or it does not take the arguments; a ValueError.
        """
        act = self.kwargs.get("act")
        if act is None:
            return input_var
        if isinstance(act, str):
            with raised_as(FluidValueError):
                return self._core.activate(input_var, act)
        if not isinstance(act, dict) or "type" not in act:
            raise FluidTypeError(f"{self.layer_type}: act is {act!r}", hint="a name, or {'type': name, ...}")
        with raised_as(FluidValueError):
            return find(act["type"]).fn(input_var, **{k: v for k, v in act.items() if k != "type"})

    def is_instance(self, param_name: str, cls: Any) -> None:
        """Check the type of an argument.

        Raises:
            FluidTypeError: it is of another; a TypeError.
        """
        given = self.kwargs.get(param_name)
        if not isinstance(given, cls):
            raise FluidTypeError(f"{self.layer_type}: {param_name} must be a {cls.__name__}, not {type(given).__name__}")


LayerHelperBase = LayerHelper

__all__ = ["LayerHelper", "LayerHelperBase"]
