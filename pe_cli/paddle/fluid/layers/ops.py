"""Layers that are one op of the core without a layer of the catalogue: comparisons, logic, increments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find
from pe_cli.paddle.fluid.framework import as_dtype, ensure_defaults
from pe_cli.program.ir import Variable


def _into(op: str, inputs: dict[str, Any], attrs: dict[str, Any], out: Variable | None) -> Variable:
    ensure_defaults()
    helper = LayerHelper(op)
    if out is None:
        return helper.one(op, inputs, attrs)
    # Writing into an existing variable is how a While's condition and counters change.
    helper.op(op, inputs, attrs, (), {"Out": out})
    return out


def _comparison(op: str) -> Callable[..., Variable]:
    def made(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
        return _into(op, {"X": x, "Y": y}, {}, cond)

    made.__name__ = made.__qualname__ = op
    made.__doc__ = f"Append `{op}` of two tensors and return its bool result; cond is written where it is given."
    return made


def _logic(op: str) -> Callable[..., Variable]:
    def made(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
        return _into(op, {"X": x, "Y": y}, {}, out)

    made.__name__ = made.__qualname__ = op
    made.__doc__ = f"Append `{op}` of two bool tensors."
    return made


less_equal = _comparison("less_equal")
greater_than, greater_equal = _comparison("greater_than"), _comparison("greater_equal")
equal, not_equal = _comparison("equal"), _comparison("not_equal")
logical_and, logical_or, logical_xor = _logic("logical_and"), _logic("logical_or"), _logic("logical_xor")


def less_than(x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None) -> Variable:
    """Append `less_than` of two tensors and return its bool result; cond is written where it is given, force_cpu is without effect."""
    return _into("less_than", {"X": x, "Y": y}, {}, cond)


def log_softmax(input: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None) -> Variable:
    """Turn logits along an axis, the last where there is none, into logarithms of probabilities, in nats; a dtype casts them first.

    As in the original none is below -64 by more than the logarithm of the number of classes.
    """
    ensure_defaults()
    x = input if dtype is None else find("cast").fn(input, as_dtype(dtype))
    made: Variable = find("log").fn(find("softmax").fn(x, -1 if axis is None else axis), name=name)
    return made


def elementwise_equal(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Tell where two tensors agree."""
    return equal(x, y)


def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Turn true into false and false into true."""
    return _into("logical_not", {"X": x}, {}, out)


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """Add a number to a [1] variable, in place unless asked otherwise."""
    ensure_defaults()
    helper = LayerHelper("increment")
    if not in_place:
        return helper.one("increment", {"X": x}, {"step": float(value)})
    helper.op("increment", {"X": x}, {"step": float(value)}, (), {"Out": x})
    return x


__all__ = [
    "elementwise_equal", "equal", "greater_equal", "greater_than",
    "increment", "less_equal", "less_than", "log_softmax", "logical_and", "logical_not", "logical_or", "logical_xor", "not_equal",
]  # fmt: skip
