"""Changes of pictures that are arrays: [height, width] or [height, width, channels], bytes or floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.paddle.errors import FluidValueError

Picture = NDArray[Any]
Weights = NDArray[np.float64]
#: What a colour adds to brightness: ITU-R BT.601.
LUMA = np.array([0.299, 0.587, 0.114])


def _linear(x: Weights) -> Weights:
    found: Weights = np.maximum(0.0, 1 - np.abs(x))
    return found


def _cubic(x: Weights) -> Weights:
    """Keys 1981, with the slope -0.75."""
    # OpenCV's slope, as the original resizes arrays by OpenCV; Pillow takes -0.5.
    x, a = np.abs(x), -0.75
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    found: Weights = np.where(x <= 1, near, np.where(x < 2, far, 0.0))
    return found


def _lanczos(x: Weights) -> Weights:
    # OpenCV's window of four pixels to either side; Pillow's has three.
    found: Weights = np.where(np.abs(x) < 4, np.sinc(x) * np.sinc(x / 4), 0.0)
    return found


#: Interpolation -> its filter, and the pixels that it looks at to either side.
FILTERS: dict[str, tuple[Callable[[Weights], Weights], int]] = {"bilinear": (_linear, 1), "bicubic": (_cubic, 2), "lanczos": (_lanczos, 4)}
INTERPOLATIONS = ("nearest", "area", *FILTERS)


def weights(size: int, wanted: int, interpolation: str) -> Weights:
    """Return how much of every pixel of an axis there is in every pixel of the resized one, [wanted, size].

    Centres of pixels lie half a pixel from their edges; beyond the picture its last pixel goes on.
    """
    found = np.zeros((wanted, size))
    rows, step = np.arange(wanted), size / wanted
    if interpolation == "nearest":
        # The pixel whose share begins there, as in the original: not the one in the middle.
        found[rows, np.minimum((rows * step).astype(np.int64), size - 1)] = 1.0
        return found
    if interpolation == "area" and step > 1:
        # By area, a pixel of the result is the mean of those that it covers, in parts at its edges.
        edges = np.arange(size)
        low, high = (rows * step)[:, None], ((rows + 1) * step)[:, None]
        shares: Weights = np.clip(np.minimum(high, edges + 1) - np.maximum(low, edges), 0, None) / step
        return shares
    curve, reach = FILTERS.get(interpolation, FILTERS["bilinear"])
    centre = (rows + 0.5) * step - 0.5
    first = np.floor(centre).astype(np.int64)
    # Beyond the border the outermost pixel counts, as in the original.
    for k in range(1 - reach, reach + 1):
        # Several taps beyond the border fall on the same pixel: add.at adds all of them, plain indexing would keep one.
        np.add.at(found, (rows, np.clip(first + k, 0, size - 1)), curve(centre - (first + k)))
    # Weights that were rounded have to add up to 1, or the brightness would change.
    found /= found.sum(axis=1, keepdims=True)
    return found


def as_kind(values: NDArray[Any], kind: np.dtype[Any]) -> Picture:
    """Return values of a picture's element type: integers are rounded and stay within their range."""
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        values = np.clip(np.rint(values), limits.min, limits.max)
    return values.astype(kind)


def resize(picture: Picture, height: int, width: int, interpolation: str) -> Picture:
    """Return a picture of other sizes.

    Raises:
        FluidValueError: there is no such interpolation for arrays.
    """
    if interpolation not in INTERPOLATIONS:
        hint = f"one of {', '.join(INTERPOLATIONS)}; a picture of Pillow knows box and hamming too"
        raise FluidValueError(f"resize: interpolation is {interpolation!r}", hint=hint)
    down = weights(picture.shape[0], height, interpolation)
    across = weights(picture.shape[1], width, interpolation)
    # Axis by axis: two products instead of one over all pairs of pixels.
    made = np.tensordot(down, picture.astype(np.float64), axes=(1, 0))
    return as_kind(np.moveaxis(np.tensordot(across, made, axes=(1, 1)), 0, 1), picture.dtype)


def pad(picture: Picture, sides: tuple[int, int, int, int], fill: Any, mode: str) -> Picture:
    """Return a picture with a border; sides are left, top, right and bottom."""
    left, top, right, bottom = sides
    widths = [(top, bottom), (left, right)] + [(0, 0)] * (picture.ndim - 2)
    if mode != "constant":
        found: Picture = np.pad(picture, widths, mode=mode)  # type: ignore[call-overload]
        return found
    shape = (picture.shape[0] + top + bottom, picture.shape[1] + left + right, *picture.shape[2:])
    made = np.empty(shape, picture.dtype)
    made[...] = _fill(picture, fill)
    made[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    return made


def _fill(picture: Picture, fill: Any) -> Any:
    """Return what is written where nothing was.

    Raises:
        FluidValueError: a colour of another number of channels.
    """
    colour = np.asarray(fill)
    if colour.ndim and (picture.ndim < 3 or len(colour) != picture.shape[2]):
        channels = 1 if picture.ndim < 3 else picture.shape[2]
        raise FluidValueError(f"fill has {len(colour)} numbers, and the picture {channels} channels", hint="one number, or one per channel")
    return colour


def rotate(picture: Picture, angle: float, interpolation: str, expand: bool, center: Sequence[float] | None, fill: Any) -> Picture:
    """Return a picture that is turned anticlockwise, by degrees, about its middle or a point (x, y).

    Raises:
        FluidValueError: another interpolation than nearest and bilinear.
    """
    if interpolation not in ("nearest", "bilinear"):
        raise FluidValueError(f"rotate: interpolation is {interpolation!r}", hint="nearest or bilinear")
    height, width = picture.shape[:2]
    turn = math.radians(angle % 360)
    # a quarter turn has to hit the pixels, so rounding noise is cut off
    cos, sin = round(math.cos(turn), 15), round(math.sin(turn), 15)
    # Centres of pixels lie at halves, so the middle of width pixels is at (width - 1) / 2 of their indices.
    x, y = ((width - 1) / 2, (height - 1) / 2) if center is None else (center[0] - 0.5, center[1] - 0.5)
    tall, wide, shift_x, shift_y = height, width, 0.0, 0.0
    if expand:
        tall = math.ceil(round(abs(width * sin) + abs(height * cos), 9))
        wide = math.ceil(round(abs(width * cos) + abs(height * sin), 9))
        # the middle of the picture goes to the middle of the result, wherever the point is that it is turned about
        from_x, from_y = (width - 1) / 2 - x, (height - 1) / 2 - y
        shift_x = x + cos * from_x + sin * from_y - (wide - 1) / 2
        shift_y = y - sin * from_x + cos * from_y - (tall - 1) / 2
    # Backwards, from every pixel of the result to its source, so that no pixel is left out.
    columns, rows = np.meshgrid(np.arange(wide) + shift_x - x, np.arange(tall) + shift_y - y)
    return _sampled(picture, y + sin * columns + cos * rows, x + cos * columns - sin * rows, interpolation, fill)


def warp(picture: Picture, matrix: Weights, sizes: tuple[int, int], interpolation: str, fill: Any) -> Picture:
    """Return a picture of height and width whose pixels come from where a matrix [3, 3] sends their centres.

    Raises:
        FluidValueError: another interpolation than nearest and bilinear.
    """
    if interpolation not in ("nearest", "bilinear"):
        raise FluidValueError(f"interpolation is {interpolation!r}", hint="nearest or bilinear")
    columns, rows = np.meshgrid(np.arange(sizes[1]) + 0.5, np.arange(sizes[0]) + 0.5)
    x, y, depth = np.tensordot(matrix, np.stack([columns, rows, np.ones_like(rows)]), 1)
    return _sampled(picture, y / depth - 0.5, x / depth - 0.5, interpolation, fill)


def _sampled(picture: Picture, rows: Weights, columns: Weights, interpolation: str, fill: Any) -> Picture:
    """Return the picture's values at places, [height, width, ...]; outside is what fill says."""
    height, width = picture.shape[:2]
    inside = (rows >= -0.5) & (rows < height - 0.5) & (columns >= -0.5) & (columns < width - 0.5)
    made = np.empty((*rows.shape, *picture.shape[2:]), picture.dtype)
    made[...] = _fill(picture, fill)
    rows, columns = rows[inside], columns[inside]
    if interpolation == "nearest":
        made[inside] = picture[np.floor(rows + 0.5).astype(np.int64), np.floor(columns + 0.5).astype(np.int64)]
        return made
    top, left = np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
    total: Any = 0.0
    for i in (0, 1):
        for j in (0, 1):
            share = (1 - np.abs(rows - (top + i))) * (1 - np.abs(columns - (left + j)))
            part = picture[np.clip(top + i, 0, height - 1), np.clip(left + j, 0, width - 1)]
            total = total + part * share.reshape(-1, *[1] * (part.ndim - 1))
    made[inside] = as_kind(total, picture.dtype)
    return made


def _most(picture: Picture) -> float:
    """Return white: 255 for bytes, 1 for floats."""
    return float(np.iinfo(picture.dtype).max) if picture.dtype.kind in "iu" else 1.0


def blend(picture: Picture, other: Any, factor: float) -> Picture:
    """Return factor times the picture and 1 - factor times something else, within black and white."""
    mixed = picture.astype(np.float64) * factor + np.asarray(other) * (1 - factor)
    # Bytes are cut off and not rounded, as Pillow does when it blends.
    if picture.dtype == np.uint8:
        return np.clip(mixed, 0, 255).astype(np.uint8)
    return as_kind(np.clip(mixed, 0, _most(picture)), picture.dtype)


def gray(picture: Picture) -> NDArray[np.float64]:
    """Return the brightness of every pixel, [height, width].

    Raises:
        FluidValueError: neither one channel nor three.
    """
    if picture.ndim == 2:
        return picture.astype(np.float64)
    if picture.shape[2] == 1:
        return picture[..., 0].astype(np.float64)
    if picture.shape[2] != 3:
        raise FluidValueError(f"a picture has {picture.shape[2]} channels", hint="1 or 3")
    found: NDArray[np.float64] = picture.astype(np.float64) @ LUMA
    return found


def brightness(picture: Picture, factor: float) -> Picture:
    """Return a picture whose values are multiplied."""
    return blend(picture, 0.0, factor)


def contrast(picture: Picture, factor: float) -> Picture:
    """Return a picture whose distances to its mean brightness are multiplied."""
    level = float(gray(picture).mean())
    # Pillow rounds the mean brightness of bytes in this way, too.
    return blend(picture, math.floor(level + 0.5) if picture.dtype.kind in "iu" else level, factor)


def saturation(picture: Picture, factor: float) -> Picture:
    """Return a picture whose distances to the brightness of each pixel are multiplied."""
    level = as_kind(gray(picture), picture.dtype)
    return blend(picture, level if picture.ndim == 2 else level[..., None], factor)


def hue(picture: Picture, turn: float) -> Picture:
    """Return a picture whose colours are turned on the colour circle, by a share of it.

    Raises:
        FluidValueError: it has no colours.

    Source:
        Smith 1978, "Color gamut transform pairs": hexcone.
    """
    if picture.ndim < 3 or picture.shape[2] != 3:
        raise FluidValueError("adjust_hue needs a picture of three channels", hint="leave gray pictures out")
    most = _most(picture)
    values = picture.astype(np.float64) / most
    high, low = values.max(axis=2), values.min(axis=2)
    span = high - low
    safe = np.where(span == 0, 1.0, span)
    red, green, blue = np.moveaxis(values, 2, 0)
    angle = np.where(high == red, (green - blue) / safe % 6, np.where(high == green, (blue - red) / safe + 2, (red - green) / safe + 4))
    angle = (angle / 6 + turn) % 1.0
    # From hue, span and high to colours without cases: each colour falls from high by span over a third of the circle, and these thirds are
    # 120 degrees apart.
    rounds = (np.array([5.0, 3.0, 1.0]) + 6 * angle[..., None]) % 6
    made = high[..., None] - span[..., None] * np.clip(np.minimum(rounds, 4 - rounds), 0, 1)
    return as_kind(made * most, picture.dtype)


def grayscale(picture: Picture, channels: int) -> Picture:
    """Return the brightness, [height, width, channels]."""
    level = as_kind(gray(picture), picture.dtype)[..., None]
    return np.repeat(level, channels, axis=2)
