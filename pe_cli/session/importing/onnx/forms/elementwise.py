"""Functions of one number."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.core.types import FLOATS, NUMBERS
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Unimportable, Value

#: The largest number of float32.
_LARGEST = float(np.finfo(np.float32).max)
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
        # log(x + sqrt(x² - 1)).
        total = node.mid("elementwise_add", "total", x=x, y=root, dims=x.dims)
        return kept(node, x, "log", x=total)
    # sign(x) * log(|x| + sqrt(x² + 1)): without the absolute value, the two terms of a negative x cancel, and the logarithm has few digits
    # or is that of 0.
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
    args: dict[str, Any] = {ours: float(node.attr(theirs, default)) for theirs, (ours, default) in names.items()}
    return kept(node, x, type, x=x, **args)


@form("Gelu")
def gelu(node: Node) -> Value:
    x = floats(node)
    return kept(node, x, "gelu", x=x, approximate=node.attr("approximate", "none") == "tanh")


@form("Celu")
def celu(node: Node) -> Value:
    x, alpha = floats(node), float(node.attr("alpha", 1.0))
    # CELU is alpha * ELU(x / alpha) with ELU's own factor at 1: ELU with alpha would have a kink at 0.
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
    low, high = node.attr("detect_negative", 1), node.attr("detect_positive", 1)
    if low and high:
        return kept(node, x, "isinf", x=x)
    zero, infinite = node.number_like(0.0, x, "zero"), node.mid("isinf", "infinite", x=x, dims=x.dims)
    side = node.mid("greater_than" if high else "less_than", "side", x=x, y=zero, dims=x.dims)
    # An operator that looks for neither infinity is legal, and finds none: xor of a truth value with itself is false.
    if not low and not high:
        side = node.mid("logical_xor", "never", x=infinite, y=infinite, dims=x.dims)
    return kept(node, x, "logical_and", x=infinite, y=side)


def _between(node: Node, x: Value) -> Value:
    """Clip by limits that are computed: the smaller of the larger one."""
    for type, index in (("elementwise_max", 1), ("elementwise_min", 2)):
        if node.has(index):
            x = node.mid(type, ("low", "high")[index - 1], x=x, y=node.var(index), dims=x.dims)
    return x


@form("Clip")
def clip(node: Node) -> Value:
    x = node.var()
    if any(node.has(index) and node.value(index).constant is None for index in (1, 2)) and x.dtype in NUMBERS:
        return _between(node, x)
    whole = x.dtype not in FLOATS
    # of numbers of 64 bits, 1024 in front of the end is as far as a float says exactly
    least, most = {"int32": (-(2.0**31), 2.0**31 - 1), "int64": (-(2.0**63), 2.0**63 - 1024)}.get(x.dtype, (-_LARGEST, _LARGEST))
    low, high = max(node.number("min", 1, least), least), min(node.number("max", 2, most), most)
    if whole and any(abs(limit) >= 2**53 for limit in {low, high} - {least, most}):
        raise Unimportable(f"limits {low} and {high} are more than a float says exactly")
    return kept(node, x, "clip", x=x, min=min(low, high), max=high)


@form("Cast", "CastLike")
def cast(node: Node) -> Value:
    from pe_cli.session.importing.onnx.file import element_type

    if node.op == "CastLike" and node.value().constant is not None:
        held = node.value()
        with np.errstate(all="ignore"):
            array = node.const(0).astype(node.value(1).dtype)
            return Value(array.dtype.name, constant=array, initializer=held.initializer, trained=held.trained)
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


@form("BitCast")
def bitcast(node: Node) -> Value:
    from pe_cli.session.importing.onnx.file import element_type

    x = node.var()
    said, ours = element_type(int(node.attr("to", 1)))
    if said not in (ours, {"float32": "float", "float64": "double"}.get(ours)) or node.value().said not in ("", x.dtype, "float", "double"):
        raise Unimportable(f"it takes the bits of {node.value().said or x.dtype} for {said}, and variables have others")
    return kept(node, x, "bitcast", x=x, dtype=ours)


@form("OptionalHasElement")
def has_element(node: Node) -> Value:
    return Value("bool", constant=np.asarray(node.has(0)))


@form("Optional", "OptionalGetElement")
def element(node: Node) -> Value:
    """Return what is always there here.

    Raises:
        Unimportable: it makes what is nothing.
    """
    return node.value(0)


@form("ArrayFeatureExtractor", domain="ai.onnx.ml")
def features(node: Node) -> Value:
    index = node.const(1, "the places").reshape(-1).astype(np.int64)
    x = node.value(0)
    return node.by("Gather", [x, Value("int64", constant=index)], "columns", 13, axis=x.rank - 1)


@form("Binarizer", domain="ai.onnx.ml")
def binarizer(node: Node) -> Value:
    x = node.var()
    limit = node.number_like(float(node.attr("threshold", 0.0)), x, "threshold")
    above = node.mid("greater_than", "above", x=x, y=limit, dims=x.dims)
    return kept(node, x, "cast", x=above, dtype=x.dtype)


@form("Identity")
def identity(node: Node) -> Value:
    return node.value(0)


@form("Dropout")
def dropout(node: Node) -> list[Value | None]:
    """Return a layer that drops values in training, and passes them on in evaluation, as the file does.

    Raises:
        Unimportable: the file drops them in evaluation, too, and users have not asked for the form of training.
    """
    held = node.value(0)
    ratio = node.number("ratio", 1, 0.5)
    drops = node.has(2) and bool(node.const(2, "training_mode").any()) and ratio != 0
    if drops:
        node.emitter.check_training("it drops values in evaluation, too")
    if not 0 <= ratio <= 1:
        raise Unimportable(f"its ratio {ratio} is not within 0 and 1")
    x = held
    if ratio and held.constant is None and held.sizes is None and held.dtype in FLOATS:
        x = kept(node, held, "dropout", x=held, dropout_prob=float(f"{ratio:.7g}"), dropout_implementation="upscale_in_train")
    if x is not held and not drops:
        node.emitter.note("Dropout drops values in training; in evaluation it passes them on, as in the file")
    if not node.wants(1):
        return [x, None]
    x = node.var(0) if x is held else x
    same, other = (node.mid(type, f"mask_{type}", x=x, y=x, dims=x.dims) for type in ("equal", "not_equal"))
    return [x, node.mid("logical_or", "mask", x=same, y=other, dims=x.dims)]
