"""Files of pictures: what their headers say, and their pixels."""

from __future__ import annotations

import functools
import io
import os
import stat
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.dataset import Array
from pe_cli.data.pictures.archive_members import archive_of, opened
from pe_cli.data.pictures.picture_checks import (
    BUDGET,
    COPY,
    SMALLER,
    Broken,
    TooLarge,
    Unreadable,
    check_scans,
    decoding,
    open_picture,
    pillow,
    said,
)

if TYPE_CHECKING:
    from PIL.Image import Image

Mode = Literal["rgb", "gray", "rgba"]
Resize = Literal["stretch", "cover", "contain"]
CHANNELS: dict[str, int] = {"rgb": 3, "gray": 1, "rgba": 4}
_MODES = {"rgb": "RGB", "gray": "L", "rgba": "RGBA"}
#: Endings of files that are pictures.
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
#: Bytes that a pixel takes while it is decoded, turned, converted and resized; and each pixel of a JPEG in several scans besides.
DECODING, SCANNING = 12, 6
#: What a PNG ends with; decoders do not miss it where all pixels are there.
PNG_END = b"IEND\xaeB`\x82"
#: Headers that are remembered.
REMEMBERED = 1 << 17
#: What pictures are that are converted, for the log.
SIXTEEN = "have 16 bits per channel, of which the upper 8 are kept"
CMYK = "are CMYK, converted without a colour profile"
ALPHA = "have an alpha channel, which is left out (mode: rgba keeps it)"
COLORS = "have colours, of which the brightness is kept (mode: gray)"
FRAMES = "are animated, of which the first frame is taken"


@dataclass(frozen=True)
class Recipe:
    """How a file becomes pixels.

    Args:
        size: height and width; None leaves it as it is.
        mode: channels.
        resize: how another shape becomes that size.
    """

    size: tuple[int, int] | None
    mode: Mode = "rgb"
    resize: Resize = "stretch"


@dataclass(frozen=True)
class Header:
    """What the first bytes of a picture say.

    Args:
        height, width: in pixels, upright.
        notes: what happens to its pixels, of the sentences above.
    """

    height: int
    width: int
    notes: tuple[str, ...] = ()


def stamp(path: str) -> tuple[int, int]:
    """Return size and time of change (ns) of a file; together with its path they stand for its content.

    Raises:
        Unreadable: it is not there, or is no file.
    """
    try:
        found = os.stat(archive_of(path))  # noqa: PTH116 - many times faster, and called for every picture
    except FileNotFoundError:
        raise Unreadable(Broken("is not there", "correct the path: it starts at the folder of the table")) from None
    except (OSError, ValueError) as error:
        raise Unreadable(Broken(f"cannot be read: {said(error)}", "check the path and its permissions")) from None
    if not stat.S_ISREG(found.st_mode):
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise Unreadable(Broken(f"is {what}", "name a picture"))
    return found.st_size, found.st_mtime_ns


@functools.lru_cache(maxsize=REMEMBERED)
def header(path: str, mode: Mode, stamp: tuple[int, int]) -> Header | Broken:
    """Return what a file's header says; no pixel is decoded.

    Args:
        path: of the file.
        mode: that it will be converted to.
        stamp: of the file; another one reads again.
    """
    try:
        with opened(path) as file:
            image = open_picture(file)
            return _header(image, mode)
    except Unreadable as error:
        return error.broken
    except OSError as error:
        return Broken(f"cannot be read: {said(error)}", "check its permissions")


def read(path: str, recipe: Recipe) -> Array:
    """Decode a picture.

    Returns:
        uint8 [height, width, channels].

    Raises:
        Unreadable: it is no picture, is cut off or damaged, or has too many pixels.
    """
    try:
        with opened(path) as file:
            image = open_picture(file)
            if image.format == "JPEG":
                check_scans(file)
            return decode(image, recipe)
    except OSError as error:
        raise Unreadable(Broken(f"cannot be read: {said(error)}", "check its permissions")) from None


def of_bytes(content: bytes, recipe: Recipe, memory: int) -> tuple[Array, tuple[str, ...]]:
    """Decode a picture that a stranger has sent.

    Args:
        content: of the file.
        recipe: how it becomes pixels.
        memory: bytes that decoding may take.

    Returns:
        The pixels, uint8 [height, width, channels], and what happened to them, of the sentences above.

    Raises:
        Unreadable: it is no picture, or is cut off or damaged.
        TooLarge: its header says that it takes more memory, or very long; no pixel was decoded.
    """
    file = io.BytesIO(content)
    image = open_picture(file)
    if image.format == "PNG" and PNG_END not in content:
        raise Unreadable(Broken("is cut off: its end is missing", COPY))
    if image.format == "JPEG":
        check_scans(file)
    notes = _header(image, recipe.mode).notes
    width, height = image.size
    progressive = "progressive" in image.info or "progression" in image.info
    _draft(image, recipe)
    needs = DECODING * image.size[0] * image.size[1] + (SCANNING * width * height if progressive else 0)
    if needs > memory:
        why = f"has {width:,} x {height:,} pixels, and to decode it takes {needs >> 20:,} MiB of {memory >> 20:,}"
        raise TooLarge(Broken(why, SMALLER))
    return decode(image, recipe), notes


def _orientation(image: Image) -> int:
    """Return how a camera was held, 1 to 8, as its EXIF data says."""
    if "exif" not in image.info:
        return 1
    try:
        with decoding():
            found = image.getexif().get(0x0112, 1)
    except Unreadable:  # damaged EXIF data says nothing
        return 1
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def _is_wide(image: Image) -> bool:
    """Return whether a picture has 16 bits per channel."""
    tiles = getattr(image, "tile", None)
    raw = tiles[0][3] if tiles else ""
    name = raw[0] if isinstance(raw, tuple) else raw
    return image.mode.startswith("I") or (isinstance(name, str) and ";16" in name)


def _header(image: Image, mode: Mode) -> Header:
    notes = []
    if _is_wide(image):
        notes.append(SIXTEEN)
    elif image.mode == "CMYK":
        notes.append(CMYK)
    elif image.mode not in ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "YCbCr"):
        raise Unreadable(Broken(f"has pixels of the kind {image.mode}, which are not converted", "save it as RGB"))
    if mode != "rgba" and (image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info):
        notes.append(ALPHA)
    if mode == "gray" and image.mode not in ("1", "L", "LA") and not image.mode.startswith("I"):
        notes.append(COLORS)
    if getattr(image, "is_animated", False):
        notes.append(FRAMES)
    width, height = image.size
    return Header(*((width, height) if _orientation(image) >= 5 else (height, width)), tuple(notes))


def decode(image: Image, recipe: Recipe) -> Array:
    """Return the pixels of an open picture, uint8 [height, width, channels].

    Raises:
        Unreadable: it is cut off or damaged.
    """
    turned = _orientation(image)
    _draft(image, recipe)
    with BUDGET.take(image.width * image.height):
        return _decoded(image, recipe, turned)


def _decoded(image: Image, recipe: Recipe, turned: int) -> Array:
    pil = pillow()
    with decoding():
        image.load()
        if turned != 1:
            image = pil.ImageOps.exif_transpose(image)
    image = _converted(image, recipe.mode)
    if recipe.size is not None:
        image = resized(image, recipe.size, recipe.resize)
    pixels: NDArray[np.uint8] = np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], -1)


def _draft(image: Image, recipe: Recipe) -> None:
    """Have a JPEG decoded at half, a quarter or an eighth of its size where that is enough; a second time changes nothing."""
    if recipe.size is not None and image.format == "JPEG" and hasattr(image, "draft"):
        image.draft(image.mode, _draft_size(image, recipe, _orientation(image) >= 5))


def _draft_size(image: Image, recipe: Recipe, turned: bool) -> tuple[int, int]:
    """Return the smallest width and height that a decoder may make of a picture."""
    assert recipe.size is not None
    height, width = recipe.size[::-1] if turned else recipe.size
    if recipe.resize == "contain":
        scale = min(width / image.width, height / image.height)
        return max(1, round(image.width * scale)), max(1, round(image.height * scale))
    return width, height


def _converted(image: Image, mode: Mode) -> Image:
    pil = pillow()
    if image.mode.startswith("I"):  # Pillow's own conversion cuts off above 255
        wide = np.asarray(image)
        image = pil.Image.fromarray((np.clip(wide, 0, 65535).astype(np.uint32) >> 8).astype(np.uint8))
    if mode != "rgba":
        image.info.pop("transparency", None)
    return image if image.mode == _MODES[mode] else image.convert(_MODES[mode])


def resized(image: Image, size: tuple[int, int], how: Resize, *, nearest: bool = False, border: int = 0) -> Image:
    """Return a picture of another size, with Pillow's bilinear filter, which looks at all pixels (antialias).

    Args:
        image: of mode L, RGB or RGBA.
        size: height and width.
        how: stretch it; cover the size and cut the middle; or contain the whole of it between borders.
        nearest: take the nearest pixel and mix none.
        border: byte of the borders.
    """
    pil = pillow()
    height, width = size
    method = pil.Image.Resampling.NEAREST if nearest else pil.Image.Resampling.BILINEAR
    if image.size == (width, height):
        return image
    if how == "stretch":
        return image.resize((width, height), method)
    if how == "cover":
        made: Image = pil.ImageOps.fit(image, (width, height), method)
    else:
        made = pil.ImageOps.pad(image, (width, height), method, border or None)
    return made


def of_array(pixels: Array, recipe: Recipe) -> Array:
    """Return pixels, uint8 [height, width, 1, 3 or 4], in the mode and size of a recipe."""
    channels = CHANNELS[recipe.mode]
    if pixels.shape[2] == channels and recipe.size in (None, pixels.shape[:2]):
        return np.ascontiguousarray(pixels)
    image = pillow().Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))
    image = _converted(image, recipe.mode)
    if recipe.size is not None:
        image = resized(image, recipe.size, recipe.resize)
    made: NDArray[np.uint8] = np.asarray(image)
    return made.reshape(*made.shape[:2], -1)
