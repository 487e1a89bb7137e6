"""The weights by which ONNX's Resize makes each place of an axis out of those that it has, as a matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.session.importing.onnx.values import Array, Unimportable


@dataclass(frozen=True)
class Way:
    """How a Resize goes about it; the names are ONNX's.

    Args:
        mode: nearest, linear or cubic.
        where: coordinate_transformation_mode.
        rounding: nearest_mode.
        slope: cubic_coeff_a.
        exclude: exclude_outside.
        antialias: spread weights where it becomes smaller.
    """

    mode: str
    where: str
    rounding: str = "round_prefer_floor"
    slope: float = -0.75
    exclude: bool = False
    antialias: bool = False


def place_of(  # noqa: PLR0911 - one for each way
    way: Way, i: int, size: int, out: int, scale: float, roi: tuple[float, float]
) -> float:
    """Return the place of the input that a place of the output comes from.

    Raises:
        Unimportable: the way is not known.
    """
    width = scale * size
    if way.where == "align_corners":
        return 0.0 if out == 1 else i * (size - 1) / (width - 1)
    if way.where == "asymmetric":
        return i / scale
    if way.where == "tf_crop_and_resize":
        if out == 1:
            return (roi[0] + roi[1]) * (size - 1) / 2
        return roi[0] * (size - 1) + i * (roi[1] - roi[0]) * (size - 1) / (width - 1)
    if way.where == "pytorch_half_pixel" and out == 1:
        return -0.5
    if way.where in ("half_pixel", "pytorch_half_pixel"):
        return (i + 0.5) / scale - 0.5
    if way.where == "half_pixel_symmetric":
        return size / 2 * (1 - out / width) + (i + 0.5) / scale - 0.5
    raise Unimportable(f"coordinate_transformation_mode {way.where} is not known")


def nearest(way: Way, place: float) -> int:
    """Return the place that is taken for one between two.

    Raises:
        Unimportable: the rounding is not known.
    """
    ways: Mapping[str, Any] = {
        "round_prefer_floor": lambda: math.ceil(place - 0.5), "round_prefer_ceil": lambda: math.floor(place + 0.5),
        "floor": lambda: math.floor(place), "ceil": lambda: math.ceil(place),
    }  # fmt: skip
    if way.rounding not in ways:
        raise Unimportable(f"nearest_mode {way.rounding} is not known")
    return int(ways[way.rounding]())


def _cubic(distance: Array, a: float) -> Array:
    """Return the weights of pixels at distances; Keys 1981."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0.0)))


def _taps(way: Way, ratio: float, scale: float) -> tuple[int, Array]:
    """Return the first pixel, counted from the one before the place, and the weights from there on."""
    # Where an image gets smaller, antialiasing widens the filter by the inverse of the scale, so that no pixel is skipped.
    narrow = min(scale, 1.0) if way.antialias else 1.0
    reach = 1 if way.mode == "linear" else 2
    start = math.floor(-reach / narrow) + 1
    distances = (np.arange(start, 2 - start) - ratio) * narrow
    weights = np.clip(1 - np.abs(distances), 0, 1) if way.mode == "linear" else _cubic(distances, way.slope)
    return start, np.asarray(weights / weights.sum() if way.antialias else weights)


def weights(way: Way, size: int, out: int, scale: float, roi: tuple[float, float]) -> tuple[Array, Array]:
    """Return the matrix [out, size] of one axis, and which places lie outside and have the value of extrapolation instead.

    Raises:
        Unimportable: the way is not known.
    """
    made, outside = np.zeros((out, size)), np.zeros(out, bool)
    for i in range(out):
        place = place_of(way, i, size, out, scale, roi)
        if way.where == "tf_crop_and_resize" and not 0 <= place <= size - 1:
            outside[i] = True
            continue
        if way.mode == "nearest":
            made[i, min(max(nearest(way, place), 0), size - 1)] = 1
            continue
        base = math.ceil(place) - 1
        start, parts = _taps(way, place - base, scale)
        pixels = base + start + np.arange(len(parts))
        # Pixels beyond the border are left out and the others weighted up, or, without exclude_outside, the border's pixel stands for them:
        # np.add.at adds up weights that fall on the same pixel, which plain indexing would overwrite.
        if way.exclude:
            parts = np.where((pixels < 0) | (pixels >= size), 0.0, parts)
            parts = parts / parts.sum()
        np.add.at(made[i], np.clip(pixels, 0, size - 1), parts)
    return made, outside
