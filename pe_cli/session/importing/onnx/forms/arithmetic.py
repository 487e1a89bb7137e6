"""Functions of two numbers or more, and choices among them."""

from __future__ import annotations

import math
from typing import Any

from pe_cli.config.substitute import escaped
from pe_cli.core.types import FLOATS, NUMBERS
from pe_cli.session.importing.onnx.broadcasting import pair, spread, together
from pe_cli.session.importing.onnx.forms.elementwise import floats, kept
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Size, Unimportable, Value, known

_TWO = {
    "Add": "elementwise_add", "Sub": "elementwise_sub", "Mul": "elementwise_mul", "Div": "elementwise_div", "Pow": "elementwise_pow",
    "Max": "elementwise_max", "Min": "elementwise_min",
}  # fmt: skip
_COMPARE = {
    "Equal": "equal", "Less": "less_than", "Greater": "greater_than", "LessOrEqual": "less_equal", "GreaterOrEqual": "greater_equal",
}  # fmt: skip
_LOGIC = {"And": "logical_and", "Or": "logical_or", "Xor": "logical_xor"}


def _number(value: Value, beside: Value) -> float | None:
    """Return the number that a constant is, where it changes no shape."""
    array = value.settled
    if array is None or array.size != 1 or array.ndim > beside.rank or (value.initializer is not None and array.ndim and beside.rank == 0):
        return None
    number = float(array.reshape(-1)[0])
    return number if math.isfinite(number) and (array.dtype.kind == "f" or abs(number) < 2**31) else None


def _with_number(node: Node) -> Value | None:
    """Append a layer for one variable and one number, or return None where there is none."""
    for index, other in ((0, 1), (1, 0)):
        value, beside = node.value(other), node.value(index)
        number = _number(value, beside) if beside.constant is None else None
        if number is None:
            continue
        x = node.var(index)
        if x.dtype not in FLOATS and (node.op not in ("Add", "Sub", "Mul") or x.dtype not in NUMBERS):
            continue
        # A number beside a variable becomes an attribute of one layer: a constant variable and a broadcast would cost a step memory and a
        # pass, and the step would read worse.
        args: dict[str, Any] | None = None
        if node.op == "Add":
            args = {"bias": number}
        elif node.op == "Mul":
            args = {"scale": number}
        elif node.op == "Sub":
            args = {"bias": -number} if index == 0 else {"scale": -1.0, "bias": number}
        elif node.op == "Div" and index == 0 and number:
            args = {"scale": 1.0 / number}
        elif node.op == "Pow" and index == 0:
            type = {2.0: "square", 0.5: "sqrt"}.get(number)
            return kept(node, x, type, x=x) if type else kept(node, x, "pow", x=x, factor=number)
        if args is not None:
            return kept(node, x, "scale", x=x, **args)
    return None


@form("Add", "Sub", "Mul", "Div", "Pow")
def two(node: Node) -> Value:
    merged = _bias(node) if node.op == "Add" else None
    found = merged or _with_number(node)
    if found is not None:
        return found
    x, y = node.var(0), node.var(1)
    # The layer elementwise_pow takes floats of one type; ONNX lets base and exponent differ in theirs.
    if node.op == "Pow" and (y.dtype != x.dtype or x.dtype not in FLOATS):
        return _power(node, x, y)
    if node.op == "Div" and x.dtype not in FLOATS:
        return _whole_quotient(node, x, y)
    return combined(node, _TWO[node.op], x, y)


def _power(node: Node, x: Value, y: Value) -> Value:
    """Raise numbers of one type to powers of another; whole ones by way of float64."""
    wide = "float32" if x.dtype == "float32" else "float64"
    x_wide, y_wide = (v if v.dtype == wide else node.mid("cast", n, x=v, dtype=wide, dims=v.dims) for n, v in (("base", x), ("factor", y)))
    if wide == x.dtype:
        return combined(node, "elementwise_pow", x_wide, y_wide)
    made = combined(node, "elementwise_pow", x_wide, y_wide, "power")
    return node.out("cast", x=made, dtype=x.dtype, dims=made.dims, scalar=x.scalar and y.scalar)


def _apart(node: Node, rest: Value, x: Value, y: Value) -> Value:
    """Tell where two numbers have different signs, and a division leaves a rest."""
    zero = node.number_like(0.0, x, "zero")
    some = node.mid("not_equal", "some", x=rest, y=zero, dims=rest.dims)
    x_below, y_below = (combined(node, "less_than", v, zero, f"{n}_below") for n, v in (("x", x), ("y", y)))
    # The layer rounds down and its rest has the sign of the divisor, as in Python; ONNX cuts towards 0, as in C. The two differ by 1
    # exactly where there is a rest and the signs differ.
    opposite = combined(node, "logical_xor", x_below, y_below, "opposite")
    return combined(node, "logical_and", some, opposite, "apart")


def _whole_quotient(node: Node, x: Value, y: Value) -> Value:
    """Divide whole numbers and cut the fraction off: the layer rounds down."""
    own = x.dtype
    # Layers compute with int32 and int64. Bytes are widened, and cast back at the end.
    if own not in NUMBERS:
        x, y = (node.mid("cast", f"{n}_wide", x=v, dtype="int32", dims=v.dims) for n, v in (("x", x), ("y", y)))
    x, y, dims = pair(node, x, y)
    down = node.mid("elementwise_floordiv", "down", x=x, y=y, dims=dims)
    rest = node.mid("elementwise_mod", "rest", x=x, y=y, dims=dims)
    more = node.mid("cast", "more", x=_apart(node, rest, x, y), dtype=x.dtype, dims=dims)
    if own != x.dtype:
        wide = node.mid("elementwise_add", "wide", x=down, y=more, dims=dims)
        return node.out("cast", x=wide, dtype=own, dims=dims, scalar=x.scalar and y.scalar)
    return node.out("elementwise_add", x=down, y=more, dims=dims, scalar=x.scalar and y.scalar)


def combined(node: Node, type: str, x: Value, y: Value, hint: str | None = None) -> Value:
    """Append a layer of two variables, which are broadcast; it computes the node's output where there is no hint.

    Raises:
        Unimportable: truth values are computed with.
    """
    scalar = x.scalar and y.scalar
    if x.dtype not in NUMBERS and type.startswith("elementwise") and x.dtype == y.dtype:
        if x.dtype == "bool":
            raise Unimportable("it computes with truth values")
        wide_x, wide_y = (node.mid("cast", f"{n}_wide", x=v, dtype="int32", dims=v.dims) for n, v in (("x", x), ("y", y)))
        made = combined(node, type, wide_x, wide_y, "wide")
        return node.out("cast", x=made, dtype=x.dtype, scalar=scalar, dims=made.dims)
    x, y, dims = pair(node, x, y)
    if hint is not None:
        return node.mid(type, hint, x=x, y=y, dims=dims)
    return node.out(type, x=x, y=y, dims=dims, scalar=scalar)


@form("Max", "Min", "Sum", "Mean")
def several(node: Node) -> Value:
    values = [node.var(i) for i in range(len(node.values))]
    type = _TWO["Add" if node.op in ("Sum", "Mean") else node.op]
    if len(values) == 1:
        return values[0]
    total = values[0]
    for i, value in enumerate(values[1:-1]):
        total = combined(node, type, total, value, f"of_{i + 2}")
    if node.op == "Mean":
        whole = combined(node, type, total, values[-1], "sum")
        return node.out("scale", x=whole, scale=1.0 / len(values), dims=whole.dims)
    return combined(node, type, total, values[-1])


def _bias(node: Node) -> Value | None:
    """Make a constant that is added to the output of a fully connected layer its bias; None where it is not so."""
    for index, other in ((0, 1), (1, 0)):
        x, held = node.value(index), node.value(other)
        layer = node.emitter.layers.get(str(x.variable))
        array = held.constant if held.later is None else None
        if layer is None or array is None or layer["type"] != "fc" or layer["bias_attr"] is not False or layer.get("act"):
            continue
        size = layer["size"]
        # Only where nothing else reads the product may the bias move into the layer that makes it: another reader wants the product without
        # the bias.
        if node.uses[node.inputs[index]] != 1 or array.size != size or array.shape[-1:] != (size,) or array.ndim > x.rank:
            continue
        if array.dtype.name != x.dtype:
            raise Unimportable(f"it adds {array.dtype} to {x.dtype}")
        _, name = node.parameter(other, "bias", lambda a: a.reshape(-1))
        layer["bias_attr"] = node.emitter.attr({"name": escaped(name)})
        return node.emitter.rename(x, node.keys[node.outputs[0]])
    return None


@form(*_COMPARE)
def compare(node: Node) -> Value:
    x, y = node.var(0), node.var(1)
    if x.dtype in ("bool", "uint8"):
        x, y = (node.mid("cast", f"{n}_number", x=v, dtype="int32", dims=v.dims) for n, v in (("x", x), ("y", y)))
    return combined(node, _COMPARE[node.op], x, y)


@form(*_LOGIC)
def logic(node: Node) -> Value:
    return combined(node, _LOGIC[node.op], node.var(0), node.var(1))


@form("Not")
def negation(node: Node) -> Value:
    x = node.var()
    return kept(node, x, "logical_not", x=x)


@form("Mod")
def modulo(node: Node) -> Value:
    x, y = node.var(0), node.var(1)
    if not node.attr("fmod", 0):
        return combined(node, "elementwise_mod", x, y)
    x, y, dims = pair(node, x, y)
    rest = node.mid("elementwise_mod", "rest", x=x, y=y, dims=dims)
    # With fmod the rest has the sign of the dividend, as in C. Where the signs differ, the layer's rest lies one divisor beside it.
    apart = spread_as(node, _apart(node, rest, x, y), dims)
    less = node.mid("elementwise_sub", "less", x=rest, y=y, dims=dims)
    return node.out("select", condition=apart, x=less, y=rest, dims=dims, scalar=x.scalar and y.scalar)


def spread_as(node: Node, condition: Value, dims: tuple[Size, ...]) -> Value:
    """Return truth values in a shape that they are broadcast to."""
    if condition.dims == dims:
        return condition
    as_number = node.mid("cast", "number", x=condition, dtype="int32", dims=condition.dims)
    whole = spread(node, as_number, dims, [], "condition")
    return node.mid("cast", "condition", x=whole, dtype="bool", dims=dims)


@form("PRelu")
def prelu(node: Node) -> Value:
    x, slope = floats(node), node.const(1, "slope")
    dims = known(x.dims)
    if slope.size == 1:
        mode, shape = "all", [1]
    elif len(dims) > 1 and slope.size == dims[1] and ((slope.ndim == len(dims) - 1 and slope.shape[0] == dims[1]) or len(dims) == 2):
        mode, shape = "channel", [1, slope.size, 1, 1]
    elif slope.shape == dims[1:]:
        mode, shape = "element", [1, *dims[1:]]
    else:
        # max(x, 0) + slope * min(x, 0): the layer prelu has one slope for all, for a channel or for an element, and this one is broadcast
        # in yet another way.
        below = node.mid("elementwise_min", "below", x=x, y=node.number_like(0.0, x, "zero"), dims=x.dims)
        scaled = combined(node, "elementwise_mul", below, node.var(1), "scaled")
        return kept(node, x, "elementwise_add", x=node.mid("relu", "above", x=x, dims=x.dims), y=scaled)
    _, name = node.parameter(1, "slope", lambda a: a.reshape(shape))
    return kept(node, x, "prelu", x=x, mode=mode, param_attr={"name": name})


@form("Where")
def where(node: Node) -> Value:
    condition, x, y = node.var(0), node.var(1), node.var(2)
    target = together([condition.dims, x.dims, y.dims])
    x, y = spread(node, x, target, [y, condition], "x"), spread(node, y, target, [x, condition], "y")
    scalar = condition.scalar and x.scalar and y.scalar
    return node.out("select", condition=spread_as(node, condition, target), x=x, y=y, dims=target, scalar=scalar)


_BITS = {"BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor"}


@form(*_BITS)
def bits(node: Node) -> Value:
    return combined(node, _BITS[node.op], node.var(0), node.var(1))


def _own_bits(node: Node, index: int) -> Value:
    """Return an input whose element type has as many bits here as in the file.

    Raises:
        Unimportable: it has more.
    """
    x, said = node.var(index), node.value(index).said
    if said not in ("", x.dtype):
        raise Unimportable(f"it takes the bits of {said}, which is {x.dtype} here and has others")
    return x


@form("BitShift")
def shift(node: Node) -> Value:
    x, y, way = _own_bits(node, 0), node.var(1), str(node.attr("direction", ""))
    if way not in ("LEFT", "RIGHT"):
        raise Unimportable(f"its direction is '{way}'")
    return combined(node, f"bitwise_{way.lower()}_shift", x, y)


@form("BitwiseNot")
def other_bits(node: Node) -> Value:
    x = _own_bits(node, 0)
    return kept(node, x, "bitwise_not", x=x)
