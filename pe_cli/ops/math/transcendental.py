"""tan, sinh, cosh, erf, log1p, log2 and log10, pointwise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pe_cli.kernels.language import T
from pe_cli.kernels.math.vector_math import erf, exp, log1p
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.onnx import Writer, in_onnx, same_in_onnx
from pe_cli.ops.math.pointwise import pointwise, shapes

LN_2, LN_10 = math.log(2), math.log(10)
TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)


def _away_from_poles(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.uniform(-1.2, 1.2, shape)


def _above_minus_one(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.uniform(-0.7, 3.0, shape)


def _positive(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.uniform(0.3, 3.0, shape)


@pointwise("tan", uses="Out", samples=shapes(_away_from_poles), faces=[Face()])
def tan(x):
    """Tangent.

    Out = tan X, X in radians.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        paddle.tan.
    """
    return math.tan(x)


@tan.back
def tan_back(g, out):
    return g * (T(1) + out * out)


@pointwise("sinh", faces=[Face()])
def sinh(x):
    """Hyperbolic sine.

    Out = (e^X - e^-X) / 2

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        paddle.sinh.
    """
    return math.sinh(x)


@sinh.back
def sinh_back(g, x):
    return g * math.cosh(x)


@pointwise("cosh", faces=[Face()])
def cosh(x):
    """Hyperbolic cosine.

    Out = (e^X + e^-X) / 2

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X, at least 1.

    Source:
        paddle.cosh.
    """
    return math.cosh(x)


@cosh.back
def cosh_back(g, x):
    return g * math.sinh(x)


@pointwise("erf", faces=[Face()])
def erf_op(x):
    """Error function.

    Out = 2 / sqrt(pi) times the integral of e^(-t^2) for t from 0 to X

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X, from -1 to 1.

    Source:
        fluid.layers.erf.
    """
    return erf(x)


@erf_op.back
def erf_back(g, x):
    return g * T(TWO_OVER_SQRT_PI) * exp(-(x * x))


@pointwise("log1p", samples=shapes(_above_minus_one), faces=[Face()])
def log1p_op(x):
    """Natural logarithm of a number and 1, exact for small numbers.

    Out = ln(1 + X); NaN below -1, minus infinity at -1.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        paddle.log1p.
    """
    return log1p(x)


@log1p_op.back
def log1p_back(g, x):
    return g / (T(1) + x)


@pointwise("log2", samples=shapes(_positive), faces=[Face()])
def log2(x):
    """Logarithm to base 2.

    Out = ln X / ln 2; NaN below 0, minus infinity at 0.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        paddle.log2.
    """
    return math.log2(x)


@log2.back
def log2_back(g, x):
    return g / (x * T(LN_2))


@pointwise("log10", samples=shapes(_positive), faces=[Face()])
def log10(x):
    """Logarithm to base 10.

    Out = ln X / ln 10; NaN below 0, minus infinity at 0.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        paddle.log10.
    """
    return math.log10(x)


@log10.back
def log10_back(g, x):
    return g / (x * T(LN_10))


# --- ONNX -------------------------------------------------------------------------------------------------------------


same_in_onnx({"cosh": "Cosh", "erf": "Erf", "sinh": "Sinh", "tan": "Tan"})


@in_onnx("log1p")
def log1p_onnx(o: Writer) -> None:
    """The logarithm of X + 1."""
    o.node("Log", [o.node("Add", [o.x(), o.const(1.0, "X")])], to="Out")


@in_onnx("log2")
def log2_onnx(o: Writer) -> None:
    """ln X / ln 2."""
    o.node("Div", [o.node("Log", [o.x()]), o.const(LN_2, "X")], to="Out")


@in_onnx("log10")
def log10_onnx(o: Writer) -> None:
    """ln X / ln 10."""
    o.node("Div", [o.node("Log", [o.x()]), o.const(LN_10, "X")], to="Out")
