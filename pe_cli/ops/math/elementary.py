"""Elementary functions of one number: exp, log, roots, powers, sine and cosine, absolute value and sign."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pe_cli.kernels.language import T
from pe_cli.kernels.math.vector_math import exp, log, rsqrt, square_root
from pe_cli.ops.define.faces import ACTIVATION, Face
from pe_cli.ops.define.onnx import Writer, in_onnx, same_in_onnx
from pe_cli.ops.define.registry import Attr, Sample
from pe_cli.ops.define.traits import Folds
from pe_cli.ops.math.pointwise import away_from, pointwise, shapes


def _positive(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.uniform(0.3, 3.0, shape)


def _away_from_zero(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.uniform(0.3, 3.0, shape) * rng.choice([-1.0, 1.0], shape)


@pointwise("exp", uses="Out", faces=[ACTIVATION])
def exp_op(x):
    """Raise e to a power.

    Out = e^X

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.exp.
    """
    return exp(x)


@exp_op.back
def exp_back(g, out):
    return g * out


@pointwise("log", samples=shapes(_positive), faces=[ACTIVATION])
def log_op(x):
    """Natural logarithm.

    Out = ln X; NaN below 0, minus infinity at 0.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.log.
    """
    return log(x)


@log_op.back
def log_back(g, x):
    return g / x


@pointwise("sqrt", uses="Out", samples=shapes(_positive), traits=[Folds(lambda numbers, attrs: np.sqrt(numbers[0]))], faces=[ACTIVATION])
def sqrt_op(x):
    """Square root.

    Out = X^(1/2); NaN below 0.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.sqrt.
    """
    return square_root(x)


@sqrt_op.back
def sqrt_back(g, out):
    return T(0.5) * g / out


@pointwise("rsqrt", uses="Out", samples=shapes(_positive), faces=[ACTIVATION])
def rsqrt_op(x):
    """One over the square root.

    Out = X^(-1/2); NaN below 0.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.rsqrt.
    """
    return rsqrt(x)


@rsqrt_op.back
def rsqrt_back(g, out):
    return T(-0.5) * g * out * out * out


@pointwise("square", integers=True, traits=[Folds(lambda numbers, attrs: numbers[0] * numbers[0])], faces=[ACTIVATION])
def square(x):
    """Multiply by itself.

    Out = X^2

    Args:
        X: any shape, float32, float64, int32 or int64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.square.
    """
    return x * x


@square.back
def square_back(g, x):
    return T(2) * g * x


@pointwise("abs", kinks=away_from(0.0), integers=True, faces=[ACTIVATION])
def abs_op(x):
    """Drop the sign.

    Out = |X|; the gradient at 0 is 0.

    Args:
        X: any shape, float32, float64, int32 or int64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.abs.
    """
    return abs(x)


@abs_op.back
def abs_back(g, x):
    # The slope at 0 is taken as 0, the middle of what both sides say.
    return g if x > T(0) else (-g if x < T(0) else T(0))


@pointwise("sign", kinks=away_from(0.0), integers=True, faces=[ACTIVATION])
def sign(x):
    """Keep the sign only.

    Out = 1 above 0, -1 below, 0 at 0; the gradient is 0.

    Args:
        X: any shape, float32, float64, int32 or int64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.sign.
    """
    # x itself where it is neither above nor below 0: 0 stays 0, and a NaN shows.
    return T(1) if x > T(0) else (T(-1) if x < T(0) else x)


@sign.back
def sign_back(g, x):
    return T(0)


@pointwise("reciprocal", uses="Out", samples=shapes(_away_from_zero), faces=[ACTIVATION])
def reciprocal(x):
    """Divide one by a number.

    Out = 1 / X

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.reciprocal.
    """
    return T(1) / x


@reciprocal.back
def reciprocal_back(g, out):
    return -g * out * out


@pointwise("sin", faces=[ACTIVATION])
def sin(x):
    """Sine.

    Out = sin X, X in radians.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.sin.
    """
    return math.sin(x)


@sin.back
def sin_back(g, x):
    return g * math.cos(x)


@pointwise("cos", faces=[ACTIVATION])
def cos(x):
    """Cosine.

    Out = cos X, X in radians.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.cos.
    """
    return math.cos(x)


@cos.back
def cos_back(g, x):
    return -g * math.sin(x)


@pointwise(
    "pow",
    attrs={"factor": Attr(1.0, "the exponent, no unit")},
    faces=[Face(act=True, layer=False)],  # its layer takes a variable, too
    instead=lambda attrs: (square.kernel, square.back_kernel, ()) if attrs["factor"] == 2 else None,
    samples=(
        *shapes(_positive, factor=2.5),
        Sample({"X": (3, 5)}, {"factor": 3.0}, "a cube"),
        Sample({"X": (3, 5)}, {"factor": 2.0}, "a square"),
    ),
)
def pow_op(x, factor):
    """Raise to a power.

    Out = X^factor; NaN where X is below 0 and factor is no integer.

    Args:
        X: any shape, float32 or float64.
        factor: the exponent.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.pow.
    """
    return x**factor


@pow_op.back
def pow_back(g, x, factor):
    # x^-1 at 0 would be infinite, and 0 times infinite is NaN.
    return g * factor * x ** (factor - T(1)) if factor != T(0) else T(0)


# --- ONNX -------------------------------------------------------------------------------------------------------------


same_in_onnx(
    {
        "abs": "Abs",
        "cos": "Cos",
        "exp": "Exp",
        "log": "Log",
        "reciprocal": "Reciprocal",
        "sign": "Sign",
        "sin": "Sin",
        "sqrt": "Sqrt",
    },
)


@in_onnx("rsqrt")
def rsqrt_onnx(o: Writer) -> None:
    """1 / sqrt(X)."""
    o.node("Reciprocal", [o.node("Sqrt", [o.x()])], to="Out")


@in_onnx("square")
def square_onnx(o: Writer) -> None:
    """X times X."""
    o.node("Mul", [o.x(), o.x()], to="Out")


@in_onnx("pow")
def power_onnx(o: Writer) -> None:
    """X to a constant."""
    o.node("Pow", [o.x(), o.const(o.attrs["factor"], "X")], to="Out")
