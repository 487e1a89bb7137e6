"""The layer of running sums: cumsum."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer
def cumsum(x: Variable, axis: int | None = None, exclusive: bool = False, reverse: bool = False) -> Variable:
    """Sum everything up to each element, along an axis.

    Args:
        x: any shape with axes.
        axis: along which; the last one by default.
        exclusive: leave the element itself out.
        reverse: from the end.

    Returns:
        Shape and dtype of x.

    Raises:
        PeError: there is no such axis.

    Source:
        fluid.layers.cumsum.
    """
    # The original's default is the last axis; NumPy and PyTorch have none, or sum the flattened array.
    attrs = {"axis": -1 if axis is None else axis, "exclusive": exclusive, "reverse": reverse}
    return LayerHelper("cumsum").one("cumsum", {"X": x}, attrs)
