"""Arithmetic on whole tensors: scale, pow, sum, sums."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper, as_list
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import Number, check_single
from pe_cli.program.ir import Variable


@layer
def scale(
    x: Variable,
    scale: Number = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Multiply by `scale`, and add `bias`.

    Out = act(scale x + bias), or act(scale (x + bias)) when bias_after_scale is false

    Args:
        x: any shape.
        scale: factor, no unit.
        bias: in the unit of x.
        bias_after_scale: add after multiplying.
        act: name of an activation, or None.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of x.

    Source:
        fluid.layers.scale.
    """
    helper = LayerHelper("scale", name)
    attrs = {"scale": 1.0 if isinstance(scale, Variable) else scale, "bias": bias, "bias_after_scale": bias_after_scale}
    if not isinstance(scale, Variable):
        return helper.activate(helper.one("scale", {"X": x}, attrs), act)
    factor = _factor(helper, "scale", scale, x)
    # The op scale does what numbers say, so its scale is 1 here: only the bias is left to it.
    first = x if bias_after_scale else helper.one("scale", {"X": x}, attrs)
    made = helper.one("elementwise_mul", {"X": first, "Y": factor})
    return helper.activate(helper.one("scale", {"X": made}, attrs) if bias_after_scale else made, act)


@layer
def pow(x: Variable, factor: Number = 1.0, name: str | None = None) -> Variable:
    """Raise to a power.

    Out = x^factor; NaN where x is below 0 and factor is no integer.

    Args:
        x: any shape, float32 or float64.
        factor: the exponent, no unit; 1.0 by default. Gradients flow to a variable.
        name: prefix of the output's name.

    Returns:
        Type of x.

    Raises:
        PeError: a variable of more elements than one, or x holds no floats.

    Source:
        fluid.layers.pow.
    """
    helper = LayerHelper("pow", name)
    # Gradients of the exponent exist only where it is a variable; a number is known to the op, which then needs no logarithm.
    if not isinstance(factor, Variable):
        return helper.one("pow", {"X": x}, {"factor": factor})
    return helper.one("elementwise_pow", {"X": x, "Y": _factor(helper, "factor", factor, x)})


def _factor(helper: LayerHelper, argument: str, given: Variable, x: Variable) -> Variable:
    """Return a variable of one number as [1] of the element type of x."""
    check_single(helper, argument, given)
    one = given if len(given.shape) == 1 else helper.one("reshape", {"X": given}, {"shape": [1]})
    return one if one.dtype == x.dtype else helper.one("cast", {"X": one}, {"out_dtype": x.dtype})


@layer
def sums(input: list[Variable], out: Variable | None = None) -> Variable:
    """Add tensors of one type.

    Out = input[0] + input[1] + ...

    Args:
        input: tensors of one shape and dtype.
        out: a variable to write to; None makes one.

    Returns:
        Their sum.

    Raises:
        PeError: types differ.

    Source:
        fluid.layers.sums.
    """
    helper = LayerHelper("sums")
    if out is None:
        return helper.one("sum", {"X": as_list(input)})
    helper.op("sum", {"X": as_list(input)}, outputs=(), existing={"Out": out})
    return out


def sum_(x: list[Variable]) -> Variable:
    """Add tensors of one type.

    Out = x[0] + x[1] + ...

    Args:
        x: tensors of one shape and dtype.

    Returns:
        Their sum.

    Raises:
        PeError: types differ.

    Source:
        fluid.layers.sum.
    """
    return LayerHelper("sum").one("sum", {"X": as_list(x)})


layer(name="sum")(sum_)
