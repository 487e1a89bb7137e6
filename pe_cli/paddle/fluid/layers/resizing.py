"""Other sizes of rows, images and volumes by the original's arguments; sizes may be variables, also those that only a step knows."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.nn.resize import append_resized
from pe_cli.paddle.errors import FluidValueError, NotThereYet, raised_as
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.constants import sizes_of
from pe_cli.paddle.fluid.layers.fed_sizes import known_or_fed
from pe_cli.paddle.fluid.layers.tensor import assign
from pe_cli.program.ir import Variable

#: A way to resample -> layouts, channels first and last.
LAYOUTS = {
    "LINEAR": ("NCW", "NWC"),
    "BILINEAR": ("NCHW", "NHWC"),
    "NEAREST": ("NCHW", "NHWC"),
    "BICUBIC": ("NCHW", "NHWC"),
    "TRILINEAR": ("NCDHW", "NDHWC"),
}
#: The parameter of the cubic between pixels, as the original's and PyTorch's.
CUBIC = -0.75


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
    kind = resample.upper()
    if kind not in LAYOUTS:
        raise FluidValueError(f"image_resize: resample is {resample!r}", hint=" or ".join(LAYOUTS))
    first, last = LAYOUTS[kind]
    if data_format not in {*LAYOUTS[kind], *LAYOUTS["BILINEAR"], "NCL", "NLC"} or len(input.shape) != len(first):
        raise FluidValueError(f"image_resize: data_format is {data_format!r} for {kind} and {input}", hint=f"{first} or {last}")
    layout = first if data_format.startswith("NC") else last
    sizes, fed = _wanted(input, out_shape, scale, actual_shape, 2 if layout == first else 1)
    with raised_as(FluidValueError):
        helper = LayerHelper("image_resize", name)
        if kind == "LINEAR":
            return _rows(helper, input, sizes, fed, layout, align_corners=align_corners, align_mode=align_mode)
        if kind == "BICUBIC":
            return _cubic(input, sizes, layout, align_corners=align_corners)
        how = {"align_corners": align_corners} | ({} if kind == "NEAREST" else {"align_mode": align_mode})
        return append_resized(helper, f"{kind.lower()}_interp", input, sizes, None, layout, fed, **how)


def _wanted(x: Variable, out_shape: Any, scale: Any, actual_shape: Any, first: int) -> tuple[list[int] | None, Variable | None]:
    """Return sizes, or the variable that a step reads them from.

    Raises:
        FluidValueError: no size at all, or a factor that is not above 0 or on unknown sizes.
    """
    count = len(x.shape) - 2
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
    return [int(s * factor) for s in have], None


def _rows(
    helper: LayerHelper, x: Variable, sizes: list[int] | None, fed: Variable | None, layout: str, **how: Any
) -> Any:
    """Resize rows as images of height 1."""
    axis = 2 if layout == "NCW" else 1
    if fed is not None:
        fed = call("concat", [call("fill_constant", [1], fed.dtype, 1.0), fed], 0)
    high = [1, *sizes] if sizes is not None else None
    made = append_resized(
        helper, "bilinear_interp", call("unsqueeze", x, [axis]), high, None, "NCHW" if axis == 2 else "NHWC", fed, **how
    )
    return call("squeeze", made, [axis])


def _cubic(x: Variable, sizes: list[int] | None, layout: str, *, align_corners: bool) -> Any:
    """Resize images by products with matrices of cubic weights.

    Raises:
        NotThereYet: sizes that only a step knows.
    """
    if layout == "NHWC":
        made = _cubic(call("transpose", x, [0, 3, 1, 2]), sizes, "NCHW", align_corners=align_corners)
        return call("transpose", made, [0, 2, 3, 1])
    if sizes is None or min(x.shape[1:]) < 1 or len(sizes) != 2 or min(sizes) < 1:
        raise NotThereYet(f"image_resize: BICUBIC of {x} to {sizes} is not there yet", hint="images and an out_shape of known sizes")
    _, channels, high, wide = x.shape
    rows, columns = (
        assign(cubic_weights(have, wanted, align_corners=align_corners).astype(x.dtype))
        for have, wanted in zip((high, wide), sizes, strict=True)
    )
    for table in (rows, columns):
        table.stop_gradient = True
    flat = call("reshape", x, [-1, high, wide])
    made = call("matmul", rows, call("matmul", flat, columns, False, True))
    return call("reshape", made, [-1, channels, *sizes])


def cubic_weights(have: int, wanted: int, *, align_corners: bool) -> np.ndarray[Any, Any]:
    """Return [wanted, have]: how much each pixel of a line counts in each of the wanted line; beyond the edges its last pixel goes on.

    Source:
        Keys 1981, "Cubic Convolution Interpolation", eq. 4, with a = -0.75.
    """
    i = np.arange(wanted)
    if align_corners:
        at = i * ((have - 1) / (wanted - 1) if wanted > 1 else 0.0)
    else:
        at = (i + 0.5) * (have / wanted) - 0.5 if wanted > 1 else i - 0.5
    first = np.floor(at).astype(int)
    table = np.zeros((wanted, have))
    for tap in range(-1, 3):
        d = np.abs(at - first - tap)
        near = ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1
        far = ((CUBIC * d - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC
        np.add.at(table, (i, np.clip(first + tap, 0, have - 1)), np.where(d <= 1, near, far))
    return table


def image_resize_short(input: Variable, out_short_len: int, resample: str = "BILINEAR") -> Any:
    """Change the size of images so that the short side gets a length; the other one keeps its proportion.

    Raises:
        FluidValueError: the size of the images is not known.
    """
    sides = input.shape[2:4]
    if min(sides) < 1:
        raise FluidValueError(f"image_resize_short needs images of known size, got {input}")
    short = sides.index(min(sides))
    wanted = [out_short_len] * 2
    wanted[1 - short] = int(sides[1 - short] * out_short_len / sides[short] + 0.5)
    return image_resize(input, wanted, resample=resample)


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

__all__ = ["image_resize", "image_resize_short", "interpolate", "resize_bilinear", "resize_nearest", "resize_trilinear"]
