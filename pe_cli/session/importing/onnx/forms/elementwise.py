"""Functions of one number, and of two."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pe_cli.core.types import FLOATS, NUMBERS
from pe_cli.session.importing.onnx.broadcasting import pair, spread, together
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Unimportable, Value, known

#: Node -> layer, without attributes.
_ONE = {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Abs": "abs", "Floor": "floor",
    "Ceil": "ceil", "Erf": "erf", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Sinh": "sinh", "Cosh": "cosh", "Asin": "asin", "Acos": "acos",
    "Atan": "atan", "Softplus": "softplus", "Softsign": "softsign", "Reciprocal": "reciprocal", "Sign": "sign", "Mish": "mish",
    "IsNaN": "isnan",
}  # fmt: skip
#: Those that take whole numbers in ONNX, too.
_WHOLE = frozenset({"Relu", "Abs", "Sign"})


def floats(node: Node, index: int = 0) -> Value:
    """Return an input as floats.

    Raises:
        Unimportable: it has another type.
    """
    x = node.var(index)
    if x.dtype not in FLOATS:
        raise Unimportable(f"it is given {x.dtype}, and its layer takes float32 or float64", "cast it before")
    return x


def kept(node: Node, like: Value, type: str, /, **args: Any) -> Value:
    """Append the layer of an output that has the shape of a variable."""
    return node.out(type, scalar=like.scalar, dims=like.dims, **args)


@form(*_ONE)
def one(node: Node) -> Value:
    x = node.var()
    if x.dtype not in FLOATS and node.op in _WHOLE and x.dtype in NUMBERS:
        as_float = node.mid("cast", "float", x=x, dtype="float64", dims=x.dims)
        made = node.mid(_ONE[node.op], "of_float", x=as_float, dims=x.dims)
        return kept(node, x, "cast", x=made, dtype=x.dtype)
    return kept(node, x, _ONE[node.op], x=floats(node))


@form("Neg")
def negative(node: Node) -> Value:
    x = node.var()
    return kept(node, x, "scale", x=x, scale=-1.0)


@form("Round")
def rounded(node: Node) -> Value:
    x = floats(node)
    return kept(node, x, "round", x=x)


@form("Asinh", "Acosh", "Atanh")
def inverse_hyperbolic(node: Node) -> Value:
    x = floats(node)
    if node.op == "Atanh":
        above = node.mid("scale", "above", x=x, scale=1.0, bias=1.0, dims=x.dims)
        below = node.mid("scale", "below", x=x, scale=-1.0, bias=1.0, dims=x.dims)
        ratio = node.mid("elementwise_div", "ratio", x=above, y=below, dims=x.dims)
        logarithm = node.mid("log", "log", x=ratio, dims=x.dims)
        return kept(node, x, "scale", x=logarithm, scale=0.5)
    square = node.mid("square", "square", x=x, dims=x.dims)
    inside = node.mid("scale", "inside", x=square, scale=1.0, bias=1.0 if node.op == "Asinh" else -1.0, dims=x.dims)
    root = node.mid("sqrt", "root", x=inside, dims=x.dims)
    if node.op == "Acosh":
        total = node.mid("elementwise_add", "total", x=x, y=root, dims=x.dims)
        return kept(node, x, "log", x=total)
    size = node.mid("abs", "size", x=x, dims=x.dims)
    total = node.mid("elementwise_add", "total", x=size, y=root, dims=x.dims)
    logarithm = node.mid("log", "log", x=total, dims=x.dims)
    sign = node.mid("sign", "sign", x=x, dims=x.dims)
    return kept(node, x, "elementwise_mul", x=logarithm, y=sign)


#: Node -> layer, its attributes in ONNX with their defaults, and what the layer calls them.
_WITH = {
    "LeakyRelu": ("leaky_relu", {"alpha": ("alpha", 0.01)}),
    "Elu": ("elu", {"alpha": ("alpha", 1.0)}),
    "Selu": ("selu", {"alpha": ("alpha", 1.67326319217681884765625), "gamma": ("scale", 1.05070102214813232421875)}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": ("slope", 0.2), "beta": ("offset", 0.5)}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": ("threshold", 1.0)}),
    "HardSwish": ("hard_swish", {}),
    "Swish": ("swish", {"alpha": ("beta", 1.0)}),
}


@form(*_WITH)
def with_numbers(node: Node) -> Value:
    x = floats(node)
    type, names = _WITH[node.op]
    args = {ours: float(node.attr(theirs, default)) for theirs, (ours, default) in names.items()}
    return kept(node, x, type, x=x, **args)


@form("Gelu")
def gelu(node: Node) -> Value:
    x = floats(node)
    return kept(node, x, "gelu", x=x, approximate=node.attr("approximate", "none") == "tanh")


@form("Celu")
def celu(node: Node) -> Value:
    x, alpha = floats(node), float(node.attr("alpha", 1.0))
    if alpha == 1.0:
        return kept(node, x, "elu", x=x, alpha=1.0)
    smaller = node.mid("scale", "smaller", x=x, scale=1.0 / alpha, dims=x.dims)
    bent = node.mid("elu", "bent", x=smaller, alpha=1.0, dims=x.dims)
    return kept(node, x, "scale", x=bent, scale=alpha)


@form("Shrink")
def shrink(node: Node) -> Value:
    x, lambd, bias = floats(node), float(node.attr("lambd", 0.5)), float(node.attr("bias", 0.0))
    if bias == lambd:
        return kept(node, x, "softshrink", x=x, alpha=lambd)
    if bias == 0:
        return kept(node, x, "hard_shrink", x=x, threshold=lambd)
    raise Unimportable(f"lambd {lambd} and bias {bias} differ, and the layers softshrink and hard_shrink have one number")


@form("IsInf")
def is_infinite(node: Node) -> Value:
    x = floats(node)
    if not (node.attr("detect_negative", 1) and node.attr("detect_positive", 1)):
        raise Unimportable("the layer isinf tells both signs")
    return kept(node, x, "isinf", x=x)


@form("Clip")
def clip(node: Node) -> Value:
    x = node.var()
    whole = x.dtype not in FLOATS
    least = float(np.iinfo("int32").min if whole else -3.4028234663852886e38)
    low, high = node.number("min", 1, least), node.number("max", 2, -least - whole)
    low, high = max(low, least), min(high, -least - whole)
    return kept(node, x, "clip", x=x, min=min(low, high), max=high)


# --- two ----------------------------------------------------------------------------------------------------------------

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
    array = value.constant
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
    if node.op == "Pow" and y.dtype != x.dtype:
        y = node.mid("cast", "factor", x=y, dtype=x.dtype, dims=y.dims)
    return combined(node, _TWO[node.op], x, y)


def combined(node: Node, type: str, x: Value, y: Value, hint: str | None = None) -> Value:
    """Append a layer of two variables, which are broadcast; it computes the node's output where there is no hint."""
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
        array = held.constant
        if layer is None or array is None or layer["type"] != "fc" or layer["bias_attr"] is not False or layer.get("act"):
            continue
        size = layer["size"]
        if node.uses[node.inputs[index]] != 1 or array.size != size or array.shape[-1:] != (size,) or array.ndim > x.rank:
            continue
        made, name = node.parameter(other, "bias", lambda a: a.reshape(-1))
        layer["bias_attr"] = {"name": name}
        assert made.dtype.name == x.dtype, "a graph adds what has one type"
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
    if node.attr("fmod", 0):
        raise Unimportable("fmod has the sign of the first number, and the layer elementwise_mod that of the second")
    return combined(node, "elementwise_mod", x, y)


@form("Cast", "CastLike")
def cast(node: Node) -> Value:
    from pe_cli.session.importing.onnx.file import element_type

    x = node.var()
    if node.op == "CastLike":
        said = ours = node.value(1).dtype
    else:
        said, ours = element_type(int(node.attr("to", 1)))
    if not ours:
        raise Unimportable(f"it casts to {said}, which no variable holds")
    if said not in (ours, {"float32": "float", "float64": "double"}.get(ours)):
        node.emitter.note(f"what is cast to {said} is {ours} here: it is neither rounded nor cut to its range")
    return x if ours == x.dtype else kept(node, x, "cast", x=x, dtype=ours)


@form("Identity", "Dropout")
def identity(node: Node) -> list[Value | None]:
    if node.op == "Dropout":
        node.emitter.note("Dropout passes its input on, as in evaluation; a layer of type dropout brings it back")
        if node.wants(1):
            raise Unimportable("its mask is read")
    return [node.value(0), None]


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
    if condition.dims != target:
        as_number = node.mid("cast", "number", x=condition, dtype="int32", dims=condition.dims)
        whole = spread(node, as_number, target, [x, y], "condition")
        condition = node.mid("cast", "condition", x=whole, dtype="bool", dims=target)
    return node.out("select", condition=condition, x=x, y=y, dims=target, scalar=condition.scalar and x.scalar and y.scalar)
