"""Changes of Pillow's pictures, by Pillow itself; it is imported only where a script has such a picture."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidValueError

FILTERS = ("nearest", "bilinear", "bicubic", "box", "lanczos", "hamming")


def is_pillow(picture: Any) -> bool:
    """Return whether something is a picture of Pillow."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(picture, module.Image)


def resampling(name: str, known: Sequence[str] = FILTERS) -> Any:
    """Return Pillow's constant for an interpolation.

    Raises:
        FluidValueError: it knows none of that name.
    """
    from PIL import Image

    if name not in known:
        raise FluidValueError(f"interpolation is {name!r}", hint=f"one of {', '.join(known)}")
    return Image.Resampling[name.upper()]


def resize(picture: Any, height: int, width: int, interpolation: str) -> Any:
    """Return a picture of other sizes."""
    return picture.resize((width, height), resampling(interpolation))


def pad(picture: Any, sides: tuple[int, int, int, int], fill: Any, mode: str) -> Any:
    """Return a picture with a border; sides are left, top, right and bottom."""
    from PIL import Image, ImageOps

    if mode == "constant":
        return ImageOps.expand(picture, sides, tuple(fill) if isinstance(fill, (list, tuple)) else _grey(picture, fill))
    left, top, right, bottom = sides
    values = np.asarray(picture)
    widths = [(top, bottom), (left, right)] + [(0, 0)] * (values.ndim - 2)
    return Image.fromarray(np.pad(values, widths, mode=mode))  # type: ignore[call-overload]


def _grey(picture: Any, fill: Any) -> Any:
    """Return a number as a colour of a picture."""
    bands = len(picture.getbands())
    return fill if bands == 1 else (fill,) * bands


def rotate(picture: Any, angle: float, interpolation: str, expand: bool, center: Sequence[float] | None, fill: Any) -> Any:
    """Return a picture that is turned anticlockwise."""
    chosen = resampling(interpolation, ("nearest", "bilinear", "bicubic"))
    colour = tuple(fill) if isinstance(fill, (list, tuple)) else _grey(picture, fill)
    return picture.rotate(angle, chosen, expand, center, fillcolor=colour)


def warp(picture: Any, matrix: Sequence[float], interpolation: str, fill: Any) -> Any:
    """Return a picture whose pixels come from where eight numbers send them."""
    from PIL import Image

    chosen = resampling(interpolation, ("nearest", "bilinear", "bicubic"))
    colour = tuple(fill) if isinstance(fill, (list, tuple)) else _grey(picture, fill)
    # Without a divisor it is affine, for which Pillow has another way with other rounding.
    how, numbers = (Image.Transform.AFFINE, matrix[:6]) if not any(matrix[6:]) else (Image.Transform.PERSPECTIVE, matrix)
    return picture.transform(picture.size, how, tuple(numbers), chosen, fillcolor=colour)


def enhance(kind: str, picture: Any, factor: float) -> Any:
    """Change Brightness, Contrast or Color."""
    from PIL import ImageEnhance

    return getattr(ImageEnhance, kind)(picture).enhance(factor)


def hue(picture: Any, turn: float) -> Any:
    """Turn the colours on the colour circle, by a share of it; gray pictures stay as they are."""
    from PIL import Image

    if picture.mode in {"L", "1", "I", "F"}:
        return picture
    angle, *others = picture.convert("HSV").split()
    # Pillow's hues are bytes that go once around the circle, so that they wrap.
    turned = (np.asarray(angle).astype(np.int64) + round(turn * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), *others)).convert(picture.mode)


def grayscale(picture: Any, channels: int) -> Any:
    """Return the brightness, in one channel or in three alike ones."""
    from PIL import Image

    level = picture.convert("L")
    return level if channels == 1 else Image.merge("RGB", [level] * 3)
