"""Functions on pictures: arrays [height, width, channels] or [height, width], and pictures of Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.vision.transforms import arrays, pillow

MODES = ("constant", "edge", "reflect", "symmetric")


def _kind(picture: Any) -> Any:
    """Return the module that changes such a picture.

    Raises:
        FluidTypeError: it is neither an array of two or three axes nor a picture of Pillow; a TypeError.
    """
    if pillow.is_pillow(picture):
        return pillow
    if isinstance(picture, np.ndarray) and picture.ndim in (2, 3):
        return arrays
    what = f"an array of shape {list(picture.shape)}" if isinstance(picture, np.ndarray) else type(picture).__name__
    raise FluidTypeError(f"a picture is an array [height, width, channels] or one of Pillow, got {what}")


def sizes_of(picture: Any) -> tuple[int, int]:
    """Return height and width."""
    if _kind(picture) is pillow:
        width, height = picture.size
        return height, width
    return picture.shape[0], picture.shape[1]


def pair(name: str, size: Any) -> tuple[int, int]:
    """Return height and width of a size: one number for both, or two.

    Raises:
        FluidValueError: they are no sizes.
    """
    both = (size, size) if isinstance(size, (int, np.integer)) else tuple(size)
    if len(both) != 2 or any(int(s) != s or s < 1 for s in both):
        raise FluidValueError(f"{name}: size is {size!r}", hint="a whole number of at least 1, or (height, width)")
    return int(both[0]), int(both[1])


def resize(img: Any, size: Any, interpolation: str = "bilinear") -> Any:
    """Resize a picture.

    Args:
        img: picture.
        size: (height, width); one number is that of the shorter side, and the other keeps the picture's shape.
        interpolation: nearest, bilinear, bicubic, lanczos; area for arrays; box and hamming for Pillow's pictures.

    Raises:
        FluidValueError: no such size or interpolation; a ValueError.
    """
    kind = _kind(img)
    height, width = sizes_of(img)
    if isinstance(size, (int, np.integer)):
        size = pair("resize", size)[0]
        if min(height, width) == size:
            return img
        # Cut off and not rounded, as in the original.
        wanted = (size, int(size * width / height)) if height <= width else (int(size * height / width), size)
    else:
        wanted = pair("resize", size)
    return kind.resize(img, *wanted, interpolation)


def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Any:
    """Put a border around a picture.

    Args:
        img: picture.
        padding: pixels of all sides; (left and right, top and bottom); or (left, top, right, bottom).
        fill: value of a constant border, or one for each channel.
        padding_mode: constant, edge, reflect or symmetric.

    Raises:
        FluidValueError: no such padding or mode; a ValueError.
    """
    kind = _kind(img)
    sides = (padding,) * 4 if isinstance(padding, (int, np.integer)) else tuple(padding)
    sides = sides * 2 if len(sides) == 2 else sides
    if len(sides) != 4 or any(side < 0 for side in sides):
        raise FluidValueError(f"pad: padding is {padding!r}", hint="one number, two or four, each at least 0")
    if padding_mode not in MODES:
        raise FluidValueError(f"pad: padding_mode is {padding_mode!r}", hint=f"one of {', '.join(MODES)}")
    return kind.pad(img, tuple(int(side) for side in sides), fill, padding_mode)


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """Cut a box out; what lies outside the picture is left out of an array, and black in one of Pillow's."""
    if _kind(img) is pillow:
        return img.crop((left, top, left + width, top + height))
    return img[max(top, 0) : top + height, max(left, 0) : left + width]


def center_crop(img: Any, output_size: Any) -> Any:
    """Cut the middle out."""
    tall, wide = pair("center_crop", output_size)
    height, width = sizes_of(img)
    # Halves are rounded to even, as in the original.
    return crop(img, round((height - tall) / 2.0), round((width - wide) / 2.0), tall, wide)


def hflip(img: Any) -> Any:
    """Mirror a picture, left and right."""
    if _kind(img) is pillow:
        from PIL import ImageOps

        return ImageOps.mirror(img)
    return np.ascontiguousarray(img[:, ::-1])


def vflip(img: Any) -> Any:
    """Turn a picture upside down."""
    if _kind(img) is pillow:
        from PIL import ImageOps

        return ImageOps.flip(img)
    return np.ascontiguousarray(img[::-1])


def rotate(
    img: Any, angle: float, interpolation: str = "nearest", expand: bool = False, center: Sequence[float] | None = None, fill: Any = 0
) -> Any:
    """Turn a picture anticlockwise.

    Args:
        img: picture.
        angle: degrees.
        interpolation: nearest or bilinear; bicubic for Pillow's pictures.
        expand: make the result so large that nothing is cut off.
        center: (x, y) from the upper left corner, in pixels; default: the middle.
        fill: value where nothing was, or one for each channel.

    Raises:
        FluidValueError: no such interpolation; a ValueError.
    """
    return _kind(img).rotate(img, angle, interpolation, expand, center, fill)


def _factor(name: str, factor: float) -> float:
    if factor < 0:
        raise FluidValueError(f"{name}: the factor is {factor}", hint="at least 0; 1 changes nothing")
    return float(factor)


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """Multiply all values: 0 is black, 1 changes nothing.

    Raises:
        FluidValueError: the factor is below 0; a ValueError.
    """
    kind, factor = _kind(img), _factor("adjust_brightness", brightness_factor)
    return kind.enhance("Brightness", img, factor) if kind is pillow else kind.brightness(img, factor)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """Multiply the distances to the mean brightness: 0 is gray, 1 changes nothing.

    Raises:
        FluidValueError: the factor is below 0; a ValueError.
    """
    kind, factor = _kind(img), _factor("adjust_contrast", contrast_factor)
    return kind.enhance("Contrast", img, factor) if kind is pillow else kind.contrast(img, factor)


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """Multiply the distances to each pixel's brightness: 0 has no colours, 1 changes nothing.

    Raises:
        FluidValueError: the factor is below 0; a ValueError.
    """
    kind, factor = _kind(img), _factor("adjust_saturation", saturation_factor)
    return kind.enhance("Color", img, factor) if kind is pillow else kind.saturation(img, factor)


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Turn the colours on the colour circle; 0.5 and -0.5 are half of it.

    Raises:
        FluidValueError: hue_factor is not within [-0.5, 0.5]; a ValueError.
    """
    if not -0.5 <= hue_factor <= 0.5:
        raise FluidValueError(f"adjust_hue: hue_factor is {hue_factor}", hint="within [-0.5, 0.5]")
    return _kind(img).hue(img, float(hue_factor))


def to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """Return the brightness, in one channel or in three alike ones.

    Raises:
        FluidValueError: another number of channels; a ValueError.
    """
    if num_output_channels not in (1, 3):
        raise FluidValueError(f"to_grayscale: num_output_channels is {num_output_channels}", hint="1 or 3")
    return _kind(img).grayscale(img, num_output_channels)


def to_tensor(pic: Any, data_format: str = "CHW") -> Any:
    """Return a picture as an array that can be fed: bytes become float32 from 0 to 1, floats stay.

    Args:
        pic: picture.
        data_format: CHW or HWC.

    Raises:
        FluidValueError: another format; a ValueError.
    """
    _format("to_tensor", data_format)
    kind = _kind(pic)
    values = np.asarray(pic.convert("L") if kind is pillow and pic.mode == "1" else pic)
    values = values[..., None] if values.ndim == 2 else values
    if values.dtype.kind in "iu" and (values.dtype == np.uint8 or kind is arrays):
        values = values.astype(np.float32) / np.float32(255)
    elif values.dtype.kind in "iub":
        values = values.astype(np.float32)
    return np.ascontiguousarray(values.transpose(2, 0, 1) if data_format == "CHW" else values)


def _format(name: str, data_format: str) -> None:
    if data_format not in ("CHW", "HWC"):
        raise FluidValueError(f"{name}: data_format is {data_format!r}", hint="CHW or HWC")


def normalize(img: Any, mean: Any, std: Any, data_format: str = "CHW", to_rgb: bool = False) -> Any:
    """Subtract a mean and divide by a deviation, channel by channel.

    Args:
        img: array or picture of Pillow, of three axes.
        mean: number for each channel.
        std: number for each channel, not 0.
        data_format: CHW or HWC; where the channels are.
        to_rgb: turn the order of the channels round first.

    Returns:
        float32 of the same shape.

    Raises:
        FluidValueError: another format; a ValueError.
    """
    _format("normalize", data_format)
    values = np.asarray(img).astype(np.float32)
    first = data_format == "CHW"
    if to_rgb:
        values = values[::-1] if first else values[..., ::-1]
    shape = (-1, 1, 1) if first else (1, 1, -1)
    average, deviation = (np.asarray(v, np.float32).reshape(shape) for v in (mean, std))
    return np.ascontiguousarray((values - average) / deviation)


__all__ = [
    "adjust_brightness", "adjust_contrast", "adjust_hue", "adjust_saturation", "center_crop", "crop", "hflip", "normalize", "pad",
    "resize", "rotate", "to_grayscale", "to_tensor", "vflip",
]  # fmt: skip
