"""Sizes and borders of images and rows by 2.x's arguments; a row is an image of height 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.layers.nn.image_resize import LAYOUTS
from pe_cli.layers.tensor.slicing import END
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.constant_sizes import sizes_of
from pe_cli.paddle.fluid.layers import dynamic_sizes, resizing
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.nn.functional.common import channels_first
from pe_cli.paddle.nn.functional.pooling import adaptive_avg
from pe_cli.paddle.nn.functional.sizes import two


def interpolate(
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    align_mode: int = 0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """Change the size of images by nearest, bilinear, bicubic or area, of volumes by trilinear, or of rows by linear.

    Args:
        x: images, volumes or rows.
        size: wanted sizes, numbers or variables.
        scale_factor: a factor, or one for each size, instead.
        mode: nearest, bilinear, bicubic, area, trilinear or linear.
        align_corners: the corners' centres stay in place; else the corners of the image.
        align_mode: without align_corners: 0, by the pixels' centres; 1, by their first corners.
        data_format: where the channels are.
        name: prefix of the output's name.

    Raises:
        FluidValueError: another mode, or sizes that do not fit.
    """
    if mode == "area":
        return adaptive_avg(2, x, _wanted(x, size, scale_factor, data_format), data_format)
    if mode.upper() not in LAYOUTS:
        raise FluidValueError(f"interpolate: mode is {mode!r}", hint="nearest, bilinear, bicubic, area, trilinear or linear")
    wanted = size if scale_factor is None and not isinstance(size, int) else _wanted(x, size, scale_factor, data_format)
    return resizing.image_resize(x, wanted, None, name, mode.upper(), None, align_corners, align_mode, data_format)


def _wanted(x: Any, size: Any, scale_factor: Any, data_format: str) -> Any:
    """Return the wanted sizes.

    Raises:
        FluidValueError: neither or both of size and factor are given, or a factor on images of unknown size.
    """
    count = len(x.shape) - 2
    if (size is None) == (scale_factor is None):
        raise FluidValueError("interpolate: size or scale_factor is needed, one of them")
    if size is not None:
        return [size] * count if isinstance(size, int) else size
    sides = x.shape[2:] if data_format.startswith("NC") else x.shape[1:-1]
    if min(sides) < 1:
        raise FluidValueError(f"interpolate: scale_factor needs images of known size, got {x}")
    factors = scale_factor if isinstance(scale_factor, (list, tuple)) else [scale_factor] * count
    return [int(s * f) for s, f in zip(sides, factors, strict=True)]


def upsample(
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    align_mode: int = 0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """Change the size of images: `interpolate` by another name."""
    return interpolate(x, size, scale_factor, mode, align_corners, align_mode, data_format, name)


def pad(
    x: Any, pad: Any, mode: str = "constant", value: float = 0.0, data_format: str = "NCHW", name: str | None = None
) -> Any:
    """Continue a tensor beyond its edges.

    Args:
        x: any shape; [batch, channels, length], images or volumes unless pad is for every axis.
        pad: elements before and after: of every axis in a row, or of the last spatial axis first.
        mode: constant, reflect, replicate or circular.
        value: the constant.
        data_format: where the channels are.
        name: prefix of the output's name.

    Raises:
        FluidValueError: another mode, or numbers that fit no axes.
    """
    rank = len(x.shape)
    numbers = [pad] * (2 * (rank - 2)) if isinstance(pad, int) else [int(v) for v in pad]
    if mode == "constant" and len(numbers) == 2 * rank:
        return call("pad", x, numbers, float(value), name)
    first = 2 if channels_first("pad", data_format) else 1
    if mode not in ("constant", "reflect", "replicate", "circular") or len(numbers) != 2 * (rank - 2):
        raise FluidValueError(f"pad: mode {mode!r} with {len(numbers)} numbers on {x}", hint="two numbers per axis")
    # Pairs come from the last axis back, as in PyTorch.
    pairs = [(numbers[i], numbers[i + 1]) for i in range(0, len(numbers), 2)][::-1]
    if mode == "constant":
        around = [v for pair in pairs for v in pair]
        return call("pad", x, [0] * (2 * first) + around + [0] * (2 * (2 - first)), float(value), name)
    if mode == "circular":
        for axis, (before, after) in enumerate(pairs, first):
            x = _around(x, axis, before, after)
        return x
    return _continued(x, pairs, "edge" if mode == "replicate" else "reflect", first)


def _around(x: Any, axis: int, before: int, after: int) -> Any:
    # Counted from the end, as the size of an axis may be known only when a batch is there.
    parts = [call("slice", x, [axis], [-before], [END])] if before else []
    parts += [x, *([call("slice", x, [axis], [0], [after])] if after else [])]
    return call("concat", parts, axis) if len(parts) > 1 else x


def _continued(x: Any, pairs: list[tuple[int, int]], mode: str, first: int) -> Any:
    # pad2d takes images only; volumes are continued axis by axis, which gives the same corners for both modes.
    if len(x.shape) > 4:
        for axis, (before, after) in enumerate(pairs, first):
            x = _beyond(x, axis, before, after, mode)
        return x
    # The op pads images with their channels first; rows are images of height 1 there.
    if first == 1:
        last = len(x.shape) - 1
        made = _continued(call("transpose", x, [0, last, *range(1, last)]), pairs, mode, 2)
        return call("transpose", made, [0, *range(2, last + 1), 1])
    if len(x.shape) == 3:
        return call("squeeze", _continued(call("unsqueeze", x, [2]), [(0, 0), *pairs], mode, 2), [2])
    return call("pad2d", x, [v for pair in pairs for v in pair], mode)


def _beyond(x: Any, axis: int, before: int, after: int, mode: str) -> Any:
    """Continue one axis by its mirror image, or by its first and last elements."""
    if mode == "reflect":
        begin = [call("reverse", call("slice", x, [axis], [1], [before + 1]), [axis])] if before else []
        end = [call("reverse", call("slice", x, [axis], [-1 - after], [-1]), [axis])] if after else []
    else:
        begin = [call("slice", x, [axis], [0], [1])] * before
        end = [call("slice", x, [axis], [-1], [END])] * after
    return call("concat", [*begin, x, *end], axis) if begin or end else x


def pixel_shuffle(x: Any, upscale_factor: int, data_format: str = "NCHW", name: str | None = None) -> Any:
    """Turn channels into pixels: [N, C r r, H, W] becomes [N, C, H r, W r]."""
    if channels_first("pixel_shuffle", data_format):
        return call("pixel_shuffle", x, upscale_factor)
    return call("transpose", call("pixel_shuffle", call("transpose", x, [0, 3, 1, 2]), upscale_factor), [0, 2, 3, 1])


def affine_grid(theta: Any, out_shape: Any, align_corners: bool = True, name: str | None = None) -> Any:
    """Return where the pixels of out_shape come from under theta [batch, 2, 3]: [batch, height, width, 2], from -1 to 1.

    Without align_corners -1 and 1 are the edges of the image, else the centres of its first and last pixels.
    """
    if not align_corners:
        # Places reach to the edges of the outermost pixels instead of to their centres: they move inwards by half a pixel, which is a
        # factor of (size - 1) / size.
        high, wide = sizes_of("affine_grid", "out_shape", out_shape)[2:]
        inward = layers.assign(np.array([(wide - 1) / wide, (high - 1) / high, 1.0], theta.dtype))
        theta = call("elementwise_mul", theta, inward)
    return dynamic_sizes.affine_grid(theta, out_shape, name)


def grid_sample(
    x: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = True,
    name: str | None = None,
) -> Any:
    """Look at images at given places.

    Args:
        x: [batch, channels, height, width].
        grid: [batch, rows, columns, 2]: x and y of each place.
        mode: bilinear, or nearest: the value of the nearest pixel, with no gradient of grid.
        padding_mode: what is outside: zeros; border: the nearest pixel of the image; reflection: its mirror image.
        align_corners: -1 and 1 are the centres of the first and last pixels, else the edges of the image.
        name: prefix of the output's name.

    Returns:
        [batch, channels, rows, columns].

    Raises:
        FluidValueError: another mode or padding_mode, or an image with one row or column where sizes count.
    """
    if mode not in ("bilinear", "nearest") or padding_mode not in ("zeros", "border", "reflection"):
        hint = "bilinear or nearest; zeros, border or reflection"
        raise FluidValueError(f"grid_sample: mode={mode!r}, padding_mode={padding_mode!r}", hint=hint)
    if (mode, padding_mode, align_corners) != ("bilinear", "zeros", True):
        # A single pixel has no distance between centres to count in: `_moved` would divide by zero.
        if min(x.shape[2:]) < 2:
            raise FluidValueError(f"grid_sample needs images of at least 2 rows and columns, got {x}")
        # The op grid_sampler knows one way. The others are the same places, moved: nearest ones are rounded, places outside are clipped or
        # mirrored, and those between edges are counted between centres.
        parts = zip(call("split", grid, 2, 3), (x.shape[3], x.shape[2]), strict=True)
        grid = call("concat", [_moved(part, size, mode, padding_mode, align_corners) for part, size in parts], 3)
    return call("grid_sampler", x, grid, name)


def _moved(place: Any, size: int, mode: str, outside: str, corners: bool) -> Any:
    """Return places along an axis as those of the bilinear form with zeros outside and aligned corners."""
    half = (size - 1) / 2
    at = call("scale", place, half, half) if corners else call("scale", place, size / 2, half)  # in pixels
    if outside == "reflection":
        # A mirror at either end: the places run to and fro with a period of two spans, and the distance from the middle of a period is the
        # place.
        low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
        turns = call("floor", call("scale", at, 0.5 / span, -0.5 * low / span))
        along = call("elementwise_sub", call("scale", at, 1.0, -low), call("scale", turns, 2 * span))
        at = call("scale", call("abs", call("scale", along, 1.0, -span)), -1.0, span + low)
    if outside != "zeros":
        at = call("clip", at, 0.0, size - 1.0)
    return call("scale", at if mode == "bilinear" else call("round", at), 1 / half, -1.0)


def unfold(
    x: Any, kernel_sizes: Any, strides: Any = 1, paddings: Any = 0, dilations: Any = 1, name: str | None = None
) -> Any:
    """Cut images into windows, a column each: [batch, channels * window, windows]; see `fluid.layers.unfold`."""
    around = list(paddings) if isinstance(paddings, tuple) else paddings
    return call("unfold", x, two(kernel_sizes), two(strides), around, two(dilations), name)


__all__ = ["affine_grid", "grid_sample", "interpolate", "pad", "pixel_shuffle", "unfold", "upsample"]
