"""Sizes and borders of images and rows by 2.x's arguments; a row is an image of height 1."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.nn.image_resize import LAYOUTS
from pe_cli.paddle.errors import FluidValueError, NotThereYet
from pe_cli.paddle.fluid.layers import fed_sizes, resizing
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.nn.functional.common import channels_first
from pe_cli.paddle.nn.functional.pooling import adaptive_avg_pool2d
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
        return adaptive_avg_pool2d(x, _wanted(x, size, scale_factor, data_format), data_format)
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
        NotThereYet: reflect or replicate of volumes.
    """
    rank = len(x.shape)
    numbers = [pad] * (2 * (rank - 2)) if isinstance(pad, int) else [int(v) for v in pad]
    if mode == "constant" and len(numbers) == 2 * rank:
        return call("pad", x, numbers, float(value), name)
    first = 2 if channels_first("pad", data_format) else 1
    if mode not in ("constant", "reflect", "replicate", "circular") or len(numbers) != 2 * (rank - 2):
        raise FluidValueError(f"pad: mode {mode!r} with {len(numbers)} numbers on {x}", hint="two numbers per axis")
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
    size = x.shape[axis]
    parts = [call("slice", x, [axis], [size - before], [size])] if before else []
    parts += [x, *([call("slice", x, [axis], [0], [after])] if after else [])]
    return call("concat", parts, axis) if len(parts) > 1 else x


def _continued(x: Any, pairs: list[tuple[int, int]], mode: str, first: int) -> Any:
    if len(x.shape) > 4:
        raise NotThereYet(f"pad: {mode} of volumes is not there yet", hint="constant or circular")
    if first == 1:
        last = len(x.shape) - 1
        made = _continued(call("transpose", x, [0, last, *range(1, last)]), pairs, mode, 2)
        return call("transpose", made, [0, *range(2, last + 1), 1])
    if len(x.shape) == 3:
        return call("squeeze", _continued(call("unsqueeze", x, [2]), [(0, 0), *pairs], mode, 2), [2])
    return call("pad2d", x, [v for pair in pairs for v in pair], mode)


def pixel_shuffle(x: Any, upscale_factor: int, data_format: str = "NCHW", name: str | None = None) -> Any:
    """Turn channels into pixels: [N, C r r, H, W] becomes [N, C, H r, W r]."""
    if channels_first("pixel_shuffle", data_format):
        return call("pixel_shuffle", x, upscale_factor)
    return call("transpose", call("pixel_shuffle", call("transpose", x, [0, 3, 1, 2]), upscale_factor), [0, 2, 3, 1])


def affine_grid(theta: Any, out_shape: Any, align_corners: bool = True, name: str | None = None) -> Any:
    """Return where the pixels of out_shape come from under theta [batch, 2, 3]: [batch, height, width, 2], from -1 to 1.

    Raises:
        NotThereYet: align_corners is False.
    """
    if not align_corners:
        raise NotThereYet("affine_grid: align_corners=False is not there yet", hint="leave it out")
    return fed_sizes.affine_grid(theta, out_shape, name)


def grid_sample(
    x: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = True,
    name: str | None = None,
) -> Any:
    """Look at images at given places; between pixels they are linear, outside they are 0.

    Raises:
        NotThereYet: another mode or padding_mode, or align_corners is False.
    """
    if (mode, padding_mode, align_corners) != ("bilinear", "zeros", True):
        what = f"mode={mode!r}, padding_mode={padding_mode!r}, align_corners={align_corners}"
        raise NotThereYet(f"grid_sample: {what} is not there yet", hint="bilinear, zeros and True")
    return call("grid_sampler", x, grid, name)


def unfold(
    x: Any, kernel_sizes: Any, strides: Any = 1, paddings: Any = 0, dilations: Any = 1, name: str | None = None
) -> Any:
    """Cut images into windows, a column each: [batch, channels * window, windows]; see `fluid.layers.unfold`."""
    around = list(paddings) if isinstance(paddings, tuple) else paddings
    return call("unfold", x, two(kernel_sizes), two(strides), around, two(dilations), name)


__all__ = ["affine_grid", "grid_sample", "interpolate", "pad", "pixel_shuffle", "unfold", "upsample"]
