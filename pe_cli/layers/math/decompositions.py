"""Inverses and triangular roots of matrices, and counts of numbers by range."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer
def inverse(x: Variable, name: str | None = None) -> Variable:
    """Invert square matrices.

    x Out = I; infinite or NaN where a matrix is singular.

    Args:
        x: [.., n, n] float32 or float64.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of x.

    Raises:
        PeError: x has fewer than two axes, or the last two differ.

    Source:
        paddle.inverse.
    """
    return LayerHelper("inverse", name).one("inverse", {"Input": x}, {}, "Output")


@layer
def cholesky(x: Variable, upper: bool = False, name: str | None = None) -> Variable:
    """Write symmetric positive definite matrices as the product of a triangle and its transpose.

    x = L L^T; NaN where a matrix is not positive definite. Of an x that is not symmetric, (x + x^T) / 2 is taken.

    Args:
        x: [.., n, n] float32 or float64.
        upper: give the upper triangle L^T.
        name: prefix of the output's name.

    Returns:
        L, or L^T: shape and dtype of x.

    Raises:
        PeError: x has fewer than two axes, or the last two differ.

    Source:
        paddle.cholesky.
    """
    return LayerHelper("cholesky", name).one("cholesky", {"X": x}, {"upper": upper})


@layer
def histogram(input: Variable, bins: int = 100, min: float = 0.0, max: float = 0.0) -> Variable:
    """Count how many numbers fall into each of several ranges of one width.

    Args:
        input: any shape; float32, float64, int32 or int64.
        bins: how many ranges.
        min: lower end of the first range, in the unit of input.
        max: upper end of the last range, which belongs to it; input's own ends where both are 0.

    Returns:
        [bins] int64; gradients stop there.

    Raises:
        PeError: input has no numbers, bins is below 1, or max is below min.

    Source:
        paddle.histogram.
    """
    return LayerHelper("histogram").one("histogram", {"X": input}, {"bins": bins, "min": float(min), "max": float(max)})
