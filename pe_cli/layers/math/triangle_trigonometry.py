"""Triangles of matrices."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer
def tril(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """Keep the lower triangle of every matrix.

    Out[.., i, j] = input[.., i, j] where j - i <= diagonal, else 0

    Args:
        input: [.., rows, columns], any dtype.
        diagonal: the last one kept; 0 is the main one, above 0 lies above it.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: fewer than two axes.

    Source:
        fluid.layers.tril.
    """
    return LayerHelper("tril", name).one("tril_triu", {"X": input}, {"diagonal": diagonal, "lower": True})


@layer
def triu(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """Keep the upper triangle of every matrix.

    Out[.., i, j] = input[.., i, j] where j - i >= diagonal, else 0

    Args:
        input: [.., rows, columns], any dtype.
        diagonal: the first one kept; 0 is the main one, above 0 lies above it.
        name: prefix of the output's name.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: fewer than two axes.

    Source:
        fluid.layers.triu.
    """
    return LayerHelper("triu", name).one("tril_triu", {"X": input}, {"diagonal": diagonal, "lower": False})
