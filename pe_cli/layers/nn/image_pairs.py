"""Layers of two images, one of which says how to read the other: correlation, bilateral_slice."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer
def correlation(
    x: Variable,
    y: Variable,
    pad_size: int,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    corr_type_multiply: int = 1,
) -> Variable:
    """Measure for every place of an image how alike it is to the places around it in another image: what moved where.

    Args:
        x: [batch, channels, height, width].
        y: type of x.
        pad_size: rows and columns of zeros around both; max_displacement keeps the sizes of the image.
        kernel_size: rows and columns of a window, odd.
        max_displacement: rows and columns that places are apart at most.
        stride1: rows and columns from one place of x to the next.
        stride2: rows and columns from one shift to the next.
        corr_type_multiply: 1: windows are multiplied; there is nothing else, as in the original.

    Returns:
        [batch, (2 (max_displacement // stride2) + 1)^2, rows, columns], dtype of x; the mean of the products.

    Raises:
        PeError: types or sizes that do not fit, or another corr_type_multiply.

    Source:
        fluid.contrib.layers.correlation of 2.0; Dosovitskiy et al. 2015, 'FlowNet'.
    """
    helper = LayerHelper("correlation")
    if corr_type_multiply != 1:
        raise helper.error(f"correlation: corr_type_multiply is {corr_type_multiply}", hint="1: windows are multiplied")
    attrs = {
        "pad_size": pad_size, "kernel_size": kernel_size, "max_displacement": max_displacement, "stride1": stride1, "stride2": stride2,
    }  # fmt: skip
    return helper.one("correlation", {"Input1": x, "Input2": y}, attrs)
