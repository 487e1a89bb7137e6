"""Sliding windows of images as columns or rows, and masks over strong responses: unfold, im2sequence, similarity_focus."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper, pair
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import known_images
from pe_cli.program.ir import Variable


@layer
def unfold(
    x: Variable,
    kernel_sizes: int | list[int],
    strides: int | list[int] = 1,
    paddings: int | list[int] = 0,
    dilations: int | list[int] = 1,
    name: str | None = None,
) -> Variable:
    """Cut images into windows, a column each.

    Args:
        x: [batch, channels, height, width].
        kernel_sizes: pixels of a window, one number or [height, width].
        strides: pixels between windows.
        paddings: zeros: on every side, for [height, width], or [above, left, below, right].
        dilations: pixels between those of a window.
        name: prefix of the output's name.

    Returns:
        [batch, channels * window, windows].

    Raises:
        PeError: sizes that do not fit.

    Source:
        fluid.layers.unfold.
    """
    # Twice [height, width] is [above, left, below, right]: sides go round, unlike the pairs for each axis of convolutions.
    around = list(paddings) if isinstance(paddings, list) and len(paddings) == 4 else 2 * pair("unfold", "paddings", paddings, 0)
    attrs = {
        "kernel_sizes": pair("unfold", "kernel_sizes", kernel_sizes, 1),
        "strides": pair("unfold", "strides", strides, 1),
        "paddings": around,
        "dilations": pair("unfold", "dilations", dilations, 1),
    }
    return LayerHelper("unfold", name).one("unfold", {"X": x}, attrs, "Y")


@layer
def im2sequence(
    input: Variable,
    filter_size: int | list[int] = 1,
    stride: int | list[int] = 1,
    padding: int | list[int] = 0,
    name: str | None = None,
) -> Variable:
    """Cut images into windows, a row each; the rows of an image follow one another, from left to right and then down.

    Args:
        input: [batch, channels, height, width], sizes known but for the batch.
        filter_size: pixels of a window, one number or [height, width].
        stride: pixels between windows.
        padding: zeros: on every side, for [height, width], or [above, left, below, right].
        name: prefix of the output's name.

    Returns:
        [batch * windows, channels * window].

    Raises:
        PeError: sizes that do not fit.

    Source:
        fluid.layers.im2sequence.
    """
    return rows_of_windows(LayerHelper("im2sequence", name), input, filter_size, stride, padding)[0]


def rows_of_windows(
    helper: LayerHelper, images: Variable, filter_size: int | list[int], stride: int | list[int], padding: int | list[int]
) -> tuple[Variable, int]:
    """Return windows of images as rows, and how many there are of each image; arguments of `im2sequence`.

    Raises:
        PeError: sizes that do not fit.
    """
    known_images(helper, images)
    around = list(padding) if isinstance(padding, list) and len(padding) == 4 else 2 * pair("im2sequence", "padding", padding, 0)
    attrs = {
        "kernel_sizes": pair("im2sequence", "filter_size", filter_size, 1),
        "strides": pair("im2sequence", "stride", stride, 1),
        "paddings": around,
        "dilations": [1, 1],
    }
    columns = helper.one("unfold", {"X": images}, attrs, "Y")
    rows = helper.one("transpose", {"X": columns}, {"axis": [0, 2, 1]})
    return helper.one("reshape", {"X": rows}, {"shape": [-1, columns.shape[1]]}), columns.shape[2]
