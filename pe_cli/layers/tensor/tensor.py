"""Layers that make or convert tensors: parameters, constants, cast, assign."""

from __future__ import annotations

from dataclasses import replace

from pe_cli.layers.define.helper import LayerHelper, as_attr
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import Number, Sizes, check_single, fed_sizes
from pe_cli.program.initializer import Initializer
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


def _into(
    helper: LayerHelper, op: str, inputs: dict[str, Variable], attrs: dict[str, object], out: Variable | None
) -> Variable:
    if out is None:
        return helper.one(op, inputs, attrs)
    helper.op(op, inputs, attrs, (), {"Out": out})
    return out


@layer
def create_parameter(
    shape: list[int],
    dtype: str,
    name: str | None = None,
    attr: ParamAttr | None = None,
    is_bias: bool = False,
    default_initializer: Initializer | None = None,
) -> Variable:
    """Make a parameter that no layer brings along, such as a table of positions.

    Args:
        shape: sizes, all known.
        dtype: element type.
        name: of the parameter, where attr has none.
        attr: its wishes; Xavier by default.
        is_bias: starts at 0 by default.
        default_initializer: where attr has none.

    Returns:
        Of that shape and dtype.

    Raises:
        PeError: a size that is not known, or a name that is taken by something else.

    Source:
        fluid.layers.create_parameter.
    """
    wishes = as_attr(attr)
    # The original lets attr's name win over `name`, which only stands in for it.
    wishes = replace(wishes, name=wishes.name or name)
    helper = LayerHelper("create_parameter")
    return helper.parameter(wishes, shape, dtype, is_bias=is_bias, default=default_initializer)


@layer
def fill_constant(shape: Sizes, dtype: str, value: Number, out: Variable | None = None) -> Variable:
    """Make a tensor whose elements all have one value.

    Args:
        shape: sizes.
        dtype: element type.
        value: of every element.
        out: a variable to write to; None makes one.

    Returns:
        Of that shape and dtype; gradients stop there.

    Raises:
        PeError: a negative size or an unknown dtype.

    Source:
        fluid.layers.fill_constant.
    """
    helper = LayerHelper("fill_constant")
    sizes, fed = fed_sizes(helper, "shape", shape)
    number = 0.0 if isinstance(value, Variable) else float(value)
    attrs: dict[str, object] = {"shape": sizes if fed is None else [1] * len(sizes), "dtype": dtype, "value": number}
    if fed is None and not isinstance(value, Variable):
        return _into(helper, "fill_constant", {}, attrs, out)
    # A size that is fed repeats a tensor of one element, and a value that is fed is added to a 0.
    made = helper.one("fill_constant", {}, attrs)
    if isinstance(value, Variable):
        check_single(helper, "value", value)
        one = helper.one("cast", {"X": helper.one("reshape", {"X": value}, {"shape": [1]})}, {"out_dtype": dtype})
        made = helper.one("elementwise_add", {"X": made, "Y": one})
    made = made if fed is None else helper.one("expand", {"X": made, "ExpandTimes": fed})
    made.stop_gradient = True
    return made if out is None else assign(made, out)


@layer
def zeros(shape: Sizes, dtype: str) -> Variable:
    """Make a tensor of zeros.

    Args:
        shape: sizes.
        dtype: element type.

    Returns:
        Of that shape and dtype; gradients stop there.

    Raises:
        PeError: a negative size or an unknown dtype.

    Source:
        fluid.layers.zeros.
    """
    return fill_constant(shape, dtype, 0.0)


@layer
def ones(shape: Sizes, dtype: str) -> Variable:
    """Make a tensor of ones.

    Args:
        shape: sizes.
        dtype: element type.

    Returns:
        Of that shape and dtype; gradients stop there.

    Raises:
        PeError: a negative size or an unknown dtype.

    Source:
        fluid.layers.ones.
    """
    return fill_constant(shape, dtype, 1.0)


@layer
def zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """Make zeros in the shape of another tensor.

    Args:
        x: any; only its type counts.
        out: a variable to write to; None makes one.

    Returns:
        Shape and dtype of x.

    Source:
        fluid.layers.zeros_like.
    """
    return _into(LayerHelper("zeros_like"), "fill_like", {"X": x}, {"value": 0.0}, out)


@layer
def ones_like(x: Variable, out: Variable | None = None) -> Variable:
    """Make ones in the shape of another tensor.

    Args:
        x: any; only its type counts.
        out: a variable to write to; None makes one.

    Returns:
        Shape and dtype of x.

    Source:
        fluid.layers.ones_like.
    """
    return _into(LayerHelper("ones_like"), "fill_like", {"X": x}, {"value": 1.0}, out)


@layer
def assign(input: Variable, output: Variable | None = None) -> Variable:
    """Copy a tensor.

    Args:
        input: any.
        output: a variable to write to; None makes one.

    Returns:
        Type and values of input.

    Raises:
        PeError: output is of another type.

    Source:
        fluid.layers.assign.
    """
    return _into(LayerHelper("assign"), "assign", {"X": input}, {}, output)


@layer
def cast(x: Variable, dtype: str) -> Variable:
    """Convert elements to another type.

    Args:
        x: any.
        dtype: the new element type.

    Returns:
        Shape of x.

    Raises:
        PeError: an unknown dtype.

    Source:
        fluid.layers.cast.
    """
    return LayerHelper("cast").one("cast", {"X": x}, {"in_dtype": x.dtype, "out_dtype": dtype})
