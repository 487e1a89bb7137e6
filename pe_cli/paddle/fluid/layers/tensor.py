"""Tensors that layers of the catalogue do not make: parameters, counters, constants of a pattern."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.core.types import TensorType
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, NotThereYet, raised_as
from pe_cli.paddle.fluid import unique_name
from pe_cli.paddle.fluid.constant_sizes import BRANCHES, OPEN, known_or_fed, sizes_of
from pe_cli.paddle.fluid.framework import (
    as_dtype,
    as_sizes,
    default_main_program,
    default_startup_program,
    ensure_defaults,
)
from pe_cli.paddle.fluid.layers.dynamic_sizes import expand, gaussian_random, length_of
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Role, Variable
from pe_cli.program.param_attr import ParamAttr


def create_tensor(dtype: Any, name: str | None = None, persistable: bool = False) -> Any:
    """Make a variable without a shape: it takes the type of what is first written to it."""
    program = default_main_program()
    name = name or program.unique("create_tensor")
    return program.global_block().create_var(name=name, dtype=as_dtype(dtype), persistable=persistable)


@raised_as(FluidValueError)
def create_parameter(
    shape: Any,
    dtype: Any,
    name: str | None = None,
    attr: Any = None,
    is_bias: bool = False,
    default_initializer: Any = None,
) -> Any:
    """Make a parameter of a shape, shared by its name."""
    ensure_defaults()
    helper = LayerHelper("create_parameter", name)
    attr = attr or ParamAttr(name=name)
    return helper.parameter(attr, as_sizes(shape), as_dtype(dtype), is_bias=is_bias, default=default_initializer)


@raised_as(FluidValueError)
def create_global_var(
    shape: Any, value: float, dtype: Any, persistable: bool = False, force_cpu: bool = False, name: str | None = None
) -> Any:
    """Make a variable that the startup program fills with a number; it keeps its value, and is saved with the others if persistable."""
    program = default_main_program()
    facts = {"persistable": bool(persistable), "stop_gradient": True}
    if name is None:
        # The original uses up a number of this key as well, so later names agree.
        unique_name.generate("global_var")
        name = program.unique("_generated_var")
    made = program.global_block().create_var(name=name, shape=as_sizes(shape), dtype=as_dtype(dtype), **facts)
    Constant(float(value))(made, default_startup_program().global_block())
    # The original has no value for it in a step that does not write it first; here it is the scope's, as a branch may leave it alone.
    made.in_scope = not persistable
    for outline in (*OPEN, *BRANCHES):
        outline.moved_on(0, {name})
    return made


def autoincreased_step_counter(counter_name: str | None = None, begin: int = 1, step: int = 1) -> Any:
    """Return an int64 [1] counter: begin + step - 1 in the first run, as in the original, and step more in each later one."""
    program = default_main_program()
    block = program.global_block()
    name = counter_name or "@STEP_COUNTER@"
    if name not in block.vars:
        made = block.create_var(name, TensorType((1,), "int64"), persistable=True, stop_gradient=True)
        # One step before the first value, as the first run increments before anyone reads.
        Constant(float(begin - 1))(made, default_startup_program().global_block())
        with program.role(Role.LR_SCHED):
            # In front of all other ops: whatever reads the counter in a step sees the number of that step.
            block._prepend_op(type="increment", inputs={"X": made}, outputs={"Out": made}, attrs={"step": float(step)})
    return block.var(name)


def assign(input: Any, output: Any = None) -> Any:
    """Copy a variable, or write an array's values.

    Args:
        input: a variable, or an array of numbers.
        output: a variable to write to; None makes one.

    Raises:
        FluidTypeError: anything else; a TypeError.
    """
    ensure_defaults()
    if isinstance(input, Variable):
        if getattr(input, "undefined", False) and output is not None and input.dtype == output.dtype:
            # Another program has given it its value, and with it a type, which is that of what it is written to.
            input.type = output.type
            setattr(input, "undefined", False)  # noqa: B010 - the front's Variable
        return find("assign").fn(input, output)
    if not isinstance(input, np.ndarray):
        raise FluidTypeError(f"assign takes a variable or an array, got {type(input).__name__}")
    dtype = input.dtype.name if output is None else output.dtype
    attrs = {"shape": list(input.shape), "dtype": dtype, "values": input.ravel().tolist()}
    helper = LayerHelper("assign")
    if output is None:
        return helper.one("assign_value", {}, attrs)
    helper.op("assign_value", {}, attrs, (), {"Out": output})
    return output


def fill_constant(shape: Any, dtype: Any, value: Any, force_cpu: bool = False, out: Any = None) -> Any:
    """Make a tensor of one value; sizes and value may be variables."""
    ensure_defaults()
    kind = as_dtype(dtype or "float32")
    number, fed_number = known_or_fed("fill_constant", "value", value, single=True)
    whole, fed = _filled_sizes(shape)
    if fed is None and fed_number is None:
        return find("fill_constant").fn(whole, kind, float(number), out)
    made = find("fill_constant").fn(whole, kind, float(number or 0.0))
    if fed_number is not None:
        made = find("elementwise_add").fn(made, find("cast").fn(fed_number, kind))
    made = made if fed is None else expand(made, fed)
    made.stop_gradient = True
    return made if out is None else find("assign").fn(made, out)


def _filled_sizes(shape: Any) -> tuple[list[int], Any]:
    """Return sizes as the program alone says them, 1 where only a step does, and how often a step repeats each axis."""
    try:
        return list(sizes_of("fill_constant", "shape", shape)), None
    except NotThereYet:
        if isinstance(shape, Variable):
            return [1] * length_of("fill_constant", shape), shape
    # Sizes that are numbers, 0 among them, are filled at once.
    times = [size if isinstance(size, Variable) else 1 for size in shape]
    return [1 if isinstance(size, Variable) else int(size) for size in shape], times


def full(
    shape: Any,
    fill_value: Any,
    out: Any = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Any:
    """Make a tensor of one value; sizes and value may be variables; device is without effect."""
    made = fill_constant(shape, dtype or (out.dtype if out is not None else "float32"), fill_value, out=out)
    made.stop_gradient = stop_gradient
    return made


def randn(
    shape: Any,
    out: Any = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Any:
    """Draw standard normal numbers at every step; device is without effect."""
    ensure_defaults()
    made = gaussian_random(shape, 0.0, 1.0, 0, dtype or "float32")
    made.stop_gradient = stop_gradient
    return made if out is None else find("assign").fn(made, out)


def randperm(
    n: int,
    out: Variable | None = None,
    dtype: Any = "int64",
    device: str | None = None,
    stop_gradient: bool = True,
    seed: int = 0,
) -> Any:
    """Put the integers from 0 to n - 1 in a random order; device is without effect."""
    ensure_defaults()
    made = find("randperm").fn(n, as_dtype(dtype if out is None else out.dtype), seed)
    made.stop_gradient = stop_gradient
    return made if out is None else assign(made, out)


def _rows(layer: str, shape: Any, output_dim_idx: int) -> list[int]:
    return [-1 if i == output_dim_idx else s for i, s in enumerate(sizes_of(layer, "shape", shape))]


def ones(shape: Any, dtype: Any, force_cpu: bool = False) -> Any:
    """Make a tensor of ones; sizes may be variables."""
    return fill_constant(shape, dtype, 1.0)


def zeros(shape: Any, dtype: Any, force_cpu: bool = False) -> Any:
    """Make a tensor of zeros; sizes may be variables."""
    return fill_constant(shape, dtype, 0.0)


def fill_constant_batch_size_like(
    input: Variable,
    shape: Any,
    dtype: Any,
    value: float,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    force_cpu: bool = False,
) -> Any:
    """Make a tensor of one value whose batch axis is another tensor's."""
    ensure_defaults()
    sizes = _rows("fill_constant_batch_size_like", shape, output_dim_idx)
    if getattr(input, "lod_level", 0) and input_dim_idx == 0:  # a row for every sequence, as in the original
        attrs = {"shape": sizes, "dtype": as_dtype(dtype), "value": float(value), "output_dim_idx": output_dim_idx}
        made = LayerHelper("fill_constant_batch_size_like").one("fill_constant_for_sequences", {"Input": input}, attrs)
        made.stop_gradient = True
        return made
    return find("fill_constant_batch_size_like").fn(input, sizes, as_dtype(dtype), float(value), input_dim_idx, output_dim_idx)


def uniform_random_batch_size_like(
    input: Variable,
    shape: Any,
    dtype: Any = "float32",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Any:
    """Draw uniform numbers in a shape with another tensor's batch axis."""
    ensure_defaults()
    sizes = _rows("uniform_random_batch_size_like", shape, output_dim_idx)
    layer = find("uniform_random_batch_size_like")
    return layer.fn(input, sizes, as_dtype(dtype), input_dim_idx, output_dim_idx, float(min), float(max), seed)


def gaussian_random_batch_size_like(
    input: Variable,
    shape: Any,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
) -> Any:
    """Draw normal numbers in a shape with another tensor's batch axis."""
    ensure_defaults()
    sizes = _rows("gaussian_random_batch_size_like", shape, output_dim_idx)
    layer = find("gaussian_random_batch_size_like")
    return layer.fn(input, sizes, input_dim_idx, output_dim_idx, float(mean), float(std), seed, as_dtype(dtype))


__all__ = [
    "assign",
    "autoincreased_step_counter",
    "create_global_var",
    "create_parameter",
    "create_tensor",
    "fill_constant",
    "fill_constant_batch_size_like",
    "full",
    "gaussian_random_batch_size_like",
    "ones",
    "randn",
    "randperm",
    "uniform_random_batch_size_like",
    "zeros",
]  # fmt: skip
