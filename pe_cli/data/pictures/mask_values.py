"""Masks: pictures whose pixels say what is seen at their place, by a number, an index into a palette, or a colour."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.pictures.archive_members import opened
from pe_cli.data.pictures.picture_checks import BUDGET, Broken, Unreadable, check_scans, decoding, open_picture, said

if TYPE_CHECKING:
    from PIL.Image import Image

Palette = Literal["index", "color"]
#: What is added to a colour, 0xRRGGBB, so that it is no number of a gray picture.
COLOR = 1 << 24
#: Values of a file that are counted; a mask has no more classes than a byte has values.
MOST_VALUES = 256
#: Files whose values are remembered.
REMEMBERED = 1 << 17


def value_name(value: int) -> str:
    """Return what people write for a value: a number, or a colour.

    >>> value_name(7), value_name(COLOR + 0xFF8000)
    ('7', '#ff8000')
    """
    return f"#{value - COLOR:06x}" if value >= COLOR else str(value)


def value_of(written: int | str) -> int:
    """Return a value as pixels have it; the reverse of `value_name`."""
    return COLOR + int(written[1:], 16) if isinstance(written, str) else written


def read_values(path: str, palette: Palette, threshold: int | None) -> NDArray[np.int32]:
    """Return the values of a mask's pixels, [height, width].

    Args:
        path: of a PNG, JPEG, WebP or BMP.
        palette: of a picture with a palette, its indices or its colours.
        threshold: brightness from which a pixel has the value 1, and below 0; None takes values as they are.

    Raises:
        Unreadable: it is no picture, is cut off or damaged, or has too many pixels.
    """
    try:
        with opened(path) as file:
            image = open_picture(file)
            if image.format == "JPEG":
                check_scans(file)
            with BUDGET.take(image.width * image.height):
                with decoding():
                    image.load()
                return _values(image, palette, threshold)
    except OSError as error:
        raise Unreadable(Broken(f"cannot be read: {said(error)}", "check its permissions")) from None


def _values(image: Image, palette: Palette, threshold: int | None) -> NDArray[np.int32]:
    if threshold is not None:
        return (np.asarray(image.convert("L")) >= threshold).astype(np.int32)
    if image.mode in ("1", "L") or (image.mode == "P" and palette == "index") or image.mode.startswith("I"):
        return np.asarray(image).astype(np.int32)
    if image.mode == "LA":
        return np.asarray(image)[:, :, 0].astype(np.int32)
    if image.mode not in ("P", "PA", "RGB", "RGBA"):
        raise Unreadable(Broken(f"has pixels of the kind {image.mode}, which are no classes", "save it as a gray PNG"))
    colors = np.asarray(image.convert("RGB")).astype(np.int32)
    return COLOR + (colors[:, :, 0] << 16) + (colors[:, :, 1] << 8) + colors[:, :, 2]


@functools.lru_cache(maxsize=REMEMBERED)
def values_in(path: str, palette: Palette, threshold: int | None, stamp: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Return the values in a mask, each with its number of pixels, at most `MOST_VALUES` and one.

    Args:
        path, palette, threshold: see `read_values`.
        stamp: of the file; another one reads again.

    Raises:
        Unreadable: see `read_values`.
    """
    del stamp
    found, counts = np.unique(read_values(path, palette, threshold), return_counts=True)
    return tuple(zip(found.tolist()[: MOST_VALUES + 1], counts.tolist()[: MOST_VALUES + 1], strict=True))


@functools.lru_cache(maxsize=REMEMBERED)
def palette_of(path: str, stamp: tuple[int, int]) -> dict[int, int]:
    """Return the colours, 0xRRGGBB, of the indices that a picture with a palette has; nothing for another picture.

    Args:
        path: of the picture.
        stamp: of the file; another one reads again.

    Raises:
        Unreadable: see `read_values`.
    """
    try:
        with opened(path) as file:
            image = open_picture(file)
            if image.mode != "P":
                return {}
            with BUDGET.take(image.width * image.height), decoding():
                used = np.unique(np.asarray(image)).tolist()
            flat = image.getpalette("RGB") or []
    except OSError as error:
        raise Unreadable(Broken(f"cannot be read: {said(error)}", "check its permissions")) from None
    return {i: int.from_bytes(bytes(flat[3 * i : 3 * i + 3]), "big") for i in used if 3 * i + 3 <= len(flat)}
