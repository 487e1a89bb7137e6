"""Other sizes of rows, images and volumes by the original's arguments; sizes may be variables, also those that only a step knows."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.nn.image_resize import append_image_resize, layout_of
from pe_cli.paddle.errors import FluidValueError, NotThereYet, raised_as
from pe_cli.paddle.fluid.constant_sizes import known_or_fed, sizes_of
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.tensor import assign
from pe_cli.program.ir import Variable


def image_resize(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Any = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Any:
    """Change the size of images, of volumes by TRILINEAR, or of rows by LINEAR.

    Args:
        input: [batch, channels, height, width]; with a depth for TRILINEAR, [batch, channels, width] for LINEAR.
        out_shape: sizes: numbers, integer variables, or one variable of all.
        scale: a factor on all sizes, a number or a variable, where there is no out_shape.
        name: prefix of the output's name.
        resample: BILINEAR, NEAREST, BICUBIC, TRILINEAR or LINEAR.
        actual_shape: an integer variable of all sizes; it goes before out_shape and scale.
        align_corners: the corners' centres stay in place; else the corners of the image.
        align_mode: without align_corners: 0, by the pixels' centres; 1, by their first corners.
        data_format: channels first or last. The layouts of images count for volumes and rows, too.

    Raises:
        NotThereYet: BICUBIC of a size that only a step knows.
        FluidValueError: another way or layout, or no size.
    """
    ensure_defaults()
    with raised_as(FluidValueError):
        helper = LayerHelper("image_resize", name)
        layout = layout_of(helper, input, resample, data_format)
        # Where the axes of the image begin: behind batch and channels, or behind the batch.
        sizes, fed = _wanted(input, out_shape, scale, actual_shape, 2 if layout.startswith("NC") else 1)
        if fed is not None and resample.upper() == "BICUBIC":
            raise NotThereYet("image_resize: BICUBIC to sizes that only a step knows is not there yet", hint="give numbers")
        return append_image_resize(helper, input, sizes, fed, resample, layout, align_corners=align_corners, align_mode=align_mode)


def _wanted(x: Variable, out_shape: Any, scale: Any, actual_shape: Any, first: int) -> tuple[list[int] | None, Variable | None]:
    """Return sizes, or the variable that a step reads them from.

    Raises:
        FluidValueError: no size at all, or a factor that is not above 0 or on unknown sizes.
    """
    count = len(x.shape) - 2
    # actual_shape wins, as the original prefers what a step says.
    for what, given in (("actual_shape", actual_shape), ("out_shape", out_shape)):
        if given is not None:
            sizes, fed = known_or_fed("image_resize", what, [given] * count if isinstance(given, int) else given)
            return None if sizes is None else [int(v) for v in sizes], fed
    if scale is None:
        raise FluidValueError("image_resize: out_shape or scale is needed")
    have = x.shape[first : first + count]
    if min(have) < 1:
        raise FluidValueError(f"image_resize: scale needs images of known size, got {x}", hint="give out_shape")
    try:
        factor = float(sizes_of("image_resize", "scale", scale, single=True))
    except NotThereYet:
        return None, call("cast", call("elementwise_mul", assign(np.array(have, scale.dtype)), scale), "int64")
    if factor <= 0:
        raise FluidValueError(f"image_resize: scale must be above 0, got {factor}")
    # Cut to whole pixels, as the original does.
    return [int(s * factor) for s in have], None


def resize_bilinear(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    actual_shape: Any = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Any:
    """Change the size of images; between pixels they are linear. See `image_resize`."""
    return image_resize(input, out_shape, scale, name, "BILINEAR", actual_shape, align_corners, align_mode, data_format)


def resize_trilinear(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    actual_shape: Any = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCDHW",
) -> Any:
    """Change the size of volumes; between elements they are linear. See `image_resize`."""
    return image_resize(input, out_shape, scale, name, "TRILINEAR", actual_shape, align_corners, align_mode, data_format)


def resize_nearest(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    actual_shape: Any = None,
    align_corners: bool = True,
    data_format: str = "NCHW",
) -> Any:
    """Change the size of images; every pixel is one of the original. See `image_resize`."""
    return image_resize(input, out_shape, scale, name, "NEAREST", actual_shape, align_corners, 1, data_format)


interpolate = image_resize

__all__ = ["image_resize", "interpolate", "resize_bilinear", "resize_nearest", "resize_trilinear"]
