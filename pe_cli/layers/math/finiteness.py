"""Layers that tell where numbers are NaN, infinite or finite."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


def _size_against_infinity(helper: LayerHelper, x: Variable, comparison: str) -> Variable:
    """Compare |x| with infinity; whole numbers are compared as float64."""
    # NaN is neither equal to infinity nor less.
    numbers = x if x.dtype.startswith("float") else helper.one("cast", {"X": x}, {"out_dtype": "float64"})
    limit = helper.one("fill_constant", {}, {"shape": [1], "dtype": numbers.dtype, "value": float("inf")})
    return helper.one(comparison, {"X": helper.one("abs", {"X": numbers}), "Y": limit})


@layer
def isnan(x: Variable, name: str | None = None) -> Variable:
    """Tell which elements are NaN.

    Args:
        x: any shape and dtype.
        name: prefix of the output's name.

    Returns:
        Shape of x, bool; gradients stop there.

    Source:
        paddle.isnan.
    """
    # NaN alone differs from itself; whole numbers never do.
    return LayerHelper("isnan", name).one("not_equal", {"X": x, "Y": x})


@layer
def isinf(x: Variable, name: str | None = None) -> Variable:
    """Tell which elements are infinite, of either sign.

    Args:
        x: any shape and dtype.
        name: prefix of the output's name.

    Returns:
        Shape of x, bool; gradients stop there.

    Source:
        paddle.isinf.
    """
    return _size_against_infinity(LayerHelper("isinf", name), x, "equal")


@layer
def isfinite(x: Variable, name: str | None = None) -> Variable:
    """Tell which elements are neither NaN nor infinite.

    Args:
        x: any shape and dtype.
        name: prefix of the output's name.

    Returns:
        Shape of x, bool; gradients stop there.

    Source:
        paddle.isfinite.
    """
    return _size_against_infinity(LayerHelper("isfinite", name), x, "less_than")
