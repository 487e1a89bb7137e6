"""image_resize, which has every way to resample, and image_resize_short; rows and cubics are made of other layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import Number, Sizes, known_images
from pe_cli.layers.nn.resize import append_resized, wanted_sizes
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


def layout_of(helper: LayerHelper, x: Variable, resample: str, data_format: str) -> str:
    """Return the layout of rows, images or volumes, as resample calls it.

    Raises:
        PeError: another way or layout, or as many axes as do not fit.
    """
    kind = resample.upper()
    if kind not in LAYOUTS:
        raise helper.error(f"{helper.layer_type}: resample is {resample!r}", hint=" or ".join(LAYOUTS))
    first, last = LAYOUTS[kind]
    if data_format not in {first, last, *LAYOUTS["BILINEAR"], "NCL", "NLC"} or len(x.shape) != len(first):
        raise helper.error(f"{helper.layer_type}: data_format is {data_format!r} for {kind} and {x}", hint=f"{first} or {last}")
    return first if data_format.startswith("NC") else last


@layer
def image_resize(
    input: Variable,
    out_shape: int | Sizes | None = None,
    scale: Number | None = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Change the size of images, of volumes by TRILINEAR, or of rows by LINEAR.

    Args:
        input: [batch, channels, height, width]; with a depth for TRILINEAR, [batch, channels, width] for LINEAR.
        out_shape: sizes of the result, one number for all or one each.
        scale: a factor on all sizes, above 0, where there is no out_shape.
        name: prefix of the output's name.
        resample: BILINEAR, NEAREST, BICUBIC, TRILINEAR or LINEAR.
        align_corners: the corners' centres stay in place; else the corners of the image.
        align_mode: without align_corners: 0, by the pixels' centres; 1, by their first corners.
        data_format: channels first or last. The layouts of images count for volumes and rows, too.

    Returns:
        Images, volumes or rows of that size.

    Raises:
        PeError: another way or layout, no size, or sizes that do not fit.

    Source:
        fluid.layers.image_resize; for BICUBIC Keys 1981, eq. 4, with a = -0.75.
    """
    helper = LayerHelper("image_resize", name)
    layout = layout_of(helper, input, resample, data_format)
    first = 2 if layout.startswith("NC") else 1
    have = list(input.shape[first : first + len(layout) - 2])
    sizes, fed = wanted_sizes(helper, have, [out_shape] * len(have) if isinstance(out_shape, int) else out_shape, scale)
    if fed is not None and resample.upper() == "BICUBIC":
        raise helper.error("image_resize: BICUBIC needs sizes that are known before a step", hint="give numbers as out_shape")
    if fed is None and sizes is None:
        sizes = _scaled(helper, input, have, scale)
    # Where a variable says the sizes, numbers beside it are not looked at.
    sizes = None if fed is not None else sizes
    return append_image_resize(helper, input, sizes, fed, resample, layout, align_corners=align_corners, align_mode=align_mode)


layer(name="interpolate")(image_resize)


def _scaled(helper: LayerHelper, x: Variable, have: list[int], scale: Number | None) -> list[int]:
    """Return sizes times a number.

    Raises:
        PeError: there is none, or it is not above 0, or sizes are not known.
    """
    if scale is None or isinstance(scale, Variable):
        raise helper.error("image_resize: out_shape or scale is needed")
    if scale <= 0 or min(have) < 1:
        raise helper.error(f"image_resize: scale {scale:g} must be above 0, and needs images of known size, got {x}")
    return [int(s * scale) for s in have]


def append_image_resize(
    helper: LayerHelper,
    x: Variable,
    sizes: list[int] | None,
    fed: Variable | None,
    resample: str,
    layout: str,
    *,
    align_corners: bool,
    align_mode: int,
) -> Variable:
    """Append the ops of `image_resize`.

    Args:
        helper: of the layer.
        x: rows, images or volumes.
        sizes: wanted.
        fed: integers that only a step knows, instead of sizes; not for BICUBIC.
        resample: a way.
        layout: of x, one of `LAYOUTS`.
        align_corners: see `image_resize`.
        align_mode: see `image_resize`.

    Raises:
        PeError: sizes that do not fit.
    """
    kind = resample.upper()
    how: dict[str, Any] = {"align_corners": align_corners} | ({} if kind == "NEAREST" else {"align_mode": align_mode})
    if kind == "LINEAR":
        return _rows(helper, x, sizes, fed, layout, how)
    if kind == "BICUBIC":
        return _cubic(helper, x, sizes, layout, align_corners=align_corners)
    return append_resized(helper, f"{kind.lower()}_interp", x, sizes, None, layout, fed, **how)


def _rows(
    helper: LayerHelper, x: Variable, sizes: list[int] | None, fed: Variable | None, layout: str, how: dict[str, Any]
) -> Variable:
    """Resize rows as images of height 1."""
    axis = 2 if layout == "NCW" else 1
    if fed is not None:
        # The height of 1 goes in front of what the variable says.
        one = helper.one("fill_constant", {}, {"shape": [1], "dtype": fed.dtype, "value": 1.0})
        fed = helper.one("concat", {"X": [one, fed]}, {"axis": 0})
    high = [1, *sizes] if sizes is not None else None
    images = helper.one("unsqueeze", {"X": x}, {"axes": [axis]})
    made = append_resized(helper, "bilinear_interp", images, high, None, "NCHW" if axis == 2 else "NHWC", fed, **how)
    return helper.one("squeeze", {"X": made}, {"axes": [axis]})


def _cubic(helper: LayerHelper, x: Variable, sizes: list[int] | None, layout: str, *, align_corners: bool) -> Variable:
    """Resize images by products with matrices of cubic weights.

    Raises:
        PeError: sizes that are not known.
    """
    if layout == "NHWC":
        first = helper.one("transpose", {"X": x}, {"axis": [0, 3, 1, 2]})
        made = _cubic(helper, first, sizes, "NCHW", align_corners=align_corners)
        return helper.one("transpose", {"X": made}, {"axis": [0, 2, 3, 1]})
    if sizes is None or min(x.shape[1:]) < 1 or len(sizes) != 2 or min(sizes) < 1:
        text = f"{helper.layer_type}: BICUBIC of {x} to {sizes}"
        raise helper.error(text, hint="give images and an out_shape [height, width] of known sizes")
    _, channels, high, wide = x.shape
    rows, columns = (
        # Cubic weights are constants, so both directions are products with a matrix, whose gradient is there already.
        _table(helper, cubic_weights(have, wanted, align_corners=align_corners), x.dtype)
        for have, wanted in zip((high, wide), sizes, strict=True)
    )
    flat = helper.one("reshape", {"X": x}, {"shape": [-1, high, wide]})
    along = helper.one("matmul", {"X": flat, "Y": columns}, {"transpose_Y": True})
    return helper.one("reshape", {"X": helper.one("matmul", {"X": rows, "Y": along})}, {"shape": [-1, channels, *sizes]})


def _table(helper: LayerHelper, weights: np.ndarray[Any, Any], dtype: str) -> Variable:
    """Write a matrix of weights."""
    attrs = {"shape": list(weights.shape), "dtype": dtype, "values": weights.astype(dtype).ravel().tolist()}
    made = helper.one("assign_value", {}, attrs)
    made.stop_gradient = True
    return made


def cubic_weights(have: int, wanted: int, *, align_corners: bool) -> np.ndarray[Any, Any]:
    """Return [wanted, have]: how much each pixel of a line counts in each of the wanted line; beyond the edges its last pixel goes on.

    Source:
        Keys 1981, "Cubic Convolution Interpolation", eq. 4, with a = -0.75.
    """
    i = np.arange(wanted)
    if align_corners:
        at = i * ((have - 1) / (wanted - 1) if wanted > 1 else 0.0)
    else:
        # By centres of pixels; a single pixel is taken from the first one.
        at = (i + 0.5) * (have / wanted) - 0.5 if wanted > 1 else i - 0.5
    first = np.floor(at).astype(int)
    table = np.zeros((wanted, have))
    for tap in range(-1, 3):
        d = np.abs(at - first - tap)
        near = ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1
        far = ((CUBIC * d - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC
        # Beyond the edge the last pixel counts again, so its weights add up.
        np.add.at(table, (i, np.clip(first + tap, 0, have - 1)), np.where(d <= 1, near, far))
    return table


@layer
def image_resize_short(input: Variable, out_short_len: int, resample: str = "BILINEAR") -> Variable:
    """Change the size of images so that the short side gets a length; the other one keeps its proportion.

    Args:
        input: [batch, channels, height, width], sizes known but for the batch.
        out_short_len: length of the short side in the result, at least 1.
        resample: BILINEAR, NEAREST or BICUBIC.

    Returns:
        Images of that size.

    Raises:
        PeError: no images of known size, another way, or a length below 1.

    Source:
        fluid.layers.image_resize_short.
    """
    helper = LayerHelper("image_resize_short")
    _, *sides = known_images(helper, input)
    if out_short_len < 1:
        raise helper.error(f"image_resize_short: out_short_len must be at least 1, got {out_short_len}")
    layout = layout_of(helper, input, resample, "NCHW")
    short = sides.index(min(sides))
    wanted = [out_short_len] * 2
    # Rounded half up, as the original does.
    wanted[1 - short] = int(sides[1 - short] * out_short_len / sides[short] + 0.5)
    return append_image_resize(helper, input, wanted, None, resample, layout, align_corners=True, align_mode=1)
