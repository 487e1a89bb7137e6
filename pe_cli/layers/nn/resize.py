"""Layers that change the size of images: resize_bilinear, resize_nearest, pad2d, grid_sampler."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


def _sizes(helper: LayerHelper, x: Variable, out_shape: list[int] | None, scale: float | None) -> dict[str, int]:
    """Return the wanted size from two numbers, or from a factor.

    Raises:
        PeError: neither or both, or images of unknown size with a factor.
    """
    kind = helper.layer_type
    if (out_shape is None) == (scale is None):
        raise helper.error(f"{kind}: out_shape or scale is needed, one of them")
    if out_shape is None:
        assert scale is not None
        if -1 in x.shape[2:] or scale <= 0:
            raise helper.error(f"{kind}: scale {scale} needs images of known size and to be above 0, got {x}")
        out_shape = [int(s * scale) for s in x.shape[2:]]
    if len(out_shape) != 2:
        raise helper.error(f"{kind}: out_shape must be [height, width], got {out_shape}")
    return {"out_h": out_shape[0], "out_w": out_shape[1]}


@layer
def resize_bilinear(
    input: Variable,
    out_shape: list[int] | None = None,
    scale: float | None = None,
    name: str | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
) -> Variable:
    """Change the size of images; between pixels they are linear.

    Args:
        input: [batch, channels, height, width].
        out_shape: [height, width] of the result.
        scale: factor on both, instead of out_shape.
        name: prefix of the output's name.
        align_corners: the corners' centres stay in place; else the corners of the image.
        align_mode: without align_corners: 0, by the pixels' centres; 1, by their first corners.

    Returns:
        Images of that size.

    Raises:
        PeError: sizes that do not fit.

    Source:
        fluid.layers.resize_bilinear.
    """
    helper = LayerHelper("resize_bilinear", name)
    attrs = {**_sizes(helper, input, out_shape, scale), "align_corners": align_corners, "align_mode": align_mode}
    return helper.one("bilinear_interp", {"X": input}, attrs)


@layer
def resize_nearest(
    input: Variable,
    out_shape: list[int] | None = None,
    scale: float | None = None,
    name: str | None = None,
    align_corners: bool = True,
) -> Variable:
    """Change the size of images; every pixel is one of the original.

    Args:
        input: [batch, channels, height, width].
        out_shape: [height, width] of the result.
        scale: factor on both, instead of out_shape.
        name: prefix of the output's name.
        align_corners: the corners' centres stay in place; else the corners of the image.

    Returns:
        Images of that size.

    Raises:
        PeError: sizes that do not fit.

    Source:
        fluid.layers.resize_nearest.
    """
    helper = LayerHelper("resize_nearest", name)
    attrs = {**_sizes(helper, input, out_shape, scale), "align_corners": align_corners}
    return helper.one("nearest_interp", {"X": input}, attrs)


@layer
def pad2d(
    input: Variable,
    paddings: list[int] = [0, 0, 0, 0],  # noqa: B006 (never changed)
    mode: str = "constant",
    pad_value: float = 0.0,
    name: str | None = None,
) -> Variable:
    """Continue images beyond their edges.

    Args:
        input: [batch, channels, height, width].
        paddings: rows above and below, columns to the left and right.
        mode: constant, reflect or edge.
        pad_value: the constant.
        name: prefix of the output's name.

    Returns:
        Larger images.

    Raises:
        PeError: sizes that do not fit.

    Source:
        fluid.layers.pad2d.
    """
    attrs = {"paddings": paddings, "mode": mode, "pad_value": float(pad_value)}
    return LayerHelper("pad2d", name).one("pad2d", {"X": input}, attrs)


@layer
def grid_sampler(x: Variable, grid: Variable, name: str | None = None) -> Variable:
    """Look at images at given places; between pixels they are linear, outside they are 0.

    Args:
        x: [batch, channels, height, width].
        grid: [batch, rows, columns, 2]: x and y, from -1, the first pixel's centre, to 1, the last one's.
        name: prefix of the output's name.

    Returns:
        [batch, channels, rows, columns].

    Raises:
        PeError: shapes that do not fit.

    Source:
        fluid.layers.grid_sampler.
    """
    return LayerHelper("grid_sampler", name).one("grid_sampler", {"X": x, "Grid": grid}, None, "Output")
