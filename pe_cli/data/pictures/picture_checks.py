"""Opens pictures without decoding them, after checking format and size against limits on memory and time."""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from PIL.Image import Image

#: Pixels of a picture, at most: Pillow's MAX_IMAGE_PIXELS, 256 MiB of 3 bytes. Pictures that are decoded at the same time share them.
MOST_PIXELS = 1024 * 1024 * 1024 // 4 // 3
#: Pixels of a side, at most, those of a JPEG: to resize a picture of a longer one takes memory for each pixel of the side.
MOST_SIDE = 65535
#: Limits on pixels: per byte of the file, and a number that every file may have.
PIXELS_PER_BYTE, SMALL = 1000, 1 << 24
#: Scans of a JPEG, at most: each is a pass over all pixels, and a byte of the file is enough for thousands of them.
MOST_SCANS = 100
#: Formats that data are read from, and those that scripts read with the original's names.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP")
SCRIPT_FORMATS = (*FORMATS, "PPM", "TIFF")
_MAGIC = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"P1", "PPM"),
    (b"P2", "PPM"),
    (b"P3", "PPM"),
    (b"P4", "PPM"),
    (b"P5", "PPM"),
    (b"P6", "PPM"),
)
_OTHER = (
    (b"GIF8", "a GIF"),
    (b"II*\0", "a TIFF"),
    (b"MM\0*", "a TIFF"),
    (b"\0\0\0\x0cJXL ", "a JPEG XL"),
    (b"\0\0\0\x0cjP  ", "a JPEG 2000"),
    (b"8BPS", "a Photoshop document"),
    (b"%PDF", "a PDF"),
    (b"%!PS", "a PostScript program"),
    (b"<svg", "an SVG drawing"),
    (b"PK\x03\x04", "a zip archive"),
)
#: In what a scan of a JPEG has coded, 0xff stands before 0 and before marks of restarts; everything else is a new segment.
_NEXT_SEGMENT = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
_SCAN, _END, _ALONE = 0xDA, 0xD9, 0x01


@dataclass(frozen=True)
class Broken:
    """A file that is no picture that can be read.

    Args:
        why: ends a sentence that begins with the file.
        hint: what to do.
    """

    why: str
    hint: str


class Unreadable(Exception):
    """A file that is no picture that can be read; `args[0]` is a `Broken`."""

    @property
    def broken(self) -> Broken:
        """What is wrong with the picture."""
        found = self.args[0]
        assert isinstance(found, Broken)
        return found


class TooLarge(Unreadable):
    """A picture that could be made to exhaust memory or time."""


COPY = "copy or download it again, or set broken: skip"
_SKIP = "remove the file, or set broken: skip"
SMALLER = "make it smaller with another program if you trust it, or set broken: skip"


@functools.cache
def pillow() -> Any:
    """Return Pillow's package with what is needed of it.

    Raises:
        PeError: it is not installed.
    """
    try:
        import PIL
        from PIL import BmpImagePlugin, Image, ImageOps, JpegImagePlugin, PngImagePlugin, WebPImagePlugin
    except ImportError:
        raise PeError(
            "pictures are read by Pillow, which is not installed", hint="pip install 'pe-cli[images]'", code=ExitCode.USAGE
        ) from None
    # Imported and held: Pillow finds plugins by their names otherwise, which may load others.
    assert all((BmpImagePlugin, Image, ImageOps, JpegImagePlugin, PngImagePlugin, WebPImagePlugin))
    return PIL


def open_picture(file: IO[bytes], formats: tuple[str, ...] = FORMATS) -> Image:
    """Return a picture whose header has been read and found good; no pixel is decoded.

    The plugins are called by the file's first bytes and not by `Image.open`, which tries all of them (one of them runs Ghostscript),
    and warns of large pictures where an error is due.

    Args:
        file: at its first byte.
        formats: of those that are read, of `SCRIPT_FORMATS`.

    Raises:
        Unreadable: it has none of the formats, or claims too large a size.
        MemoryError, OSError: see `decoding`.
    """
    head = file.read(32)
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    # By the first bytes and never by the name of the file.
    kind = "WEBP" if head.startswith(b"RIFF") and head[8:12] == b"WEBP" else next((k for m, k in _MAGIC if head.startswith(m)), "")
    if kind not in formats:
        raise Unreadable(_no_picture(head[:16], formats))
    if kind == "WEBP":  # its plugin makes room for all pixels at once
        _check_size(*_webp_size(head), size)
    # From the header alone, before its decoder takes memory.
    plugin = _plugins()[kind]
    with decoding("has a broken header"):
        image: Image = plugin(file)
    _check_size(*image.size, size)
    return image


@contextmanager
def decoding(wrong: str = "is cut off or damaged") -> Iterator[None]:
    """Let a decoder work inside: what it raises says that the picture is wrong.

    Args:
        wrong: what that is, in a sentence that begins with the file.

    Raises:
        Unreadable: the decoder does not take the picture.
        MemoryError, OSError: there is no memory, or the system does not give the file, of which the picture may be right.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # what a decoder raises of foreign bytes is not listed anywhere
        # Only errors of the system have a number; Pillow's own OSErrors have a text alone.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise Unreadable(Broken(f"{wrong}: {said(error)}", COPY)) from None


@functools.cache
def _plugins() -> Mapping[str, Any]:
    pil = pillow()
    from PIL import PpmImagePlugin, TiffImagePlugin

    return {
        "JPEG": pil.JpegImagePlugin.JpegImageFile,
        "PNG": pil.PngImagePlugin.PngImageFile,
        "WEBP": pil.WebPImagePlugin.WebPImageFile,
        "BMP": pil.BmpImagePlugin.BmpImageFile,
        "PPM": PpmImagePlugin.PpmImageFile,
        "TIFF": TiffImagePlugin.TiffImageFile,
    }


def _check_size(width: int, height: int, size: int) -> None:
    """Refuse a size that no picture has, or no file of so many bytes.

    Raises:
        TooLarge: it is one of these.
        Unreadable: it has no pixels.
    """
    claim, pixels = f"claims {width} x {height} pixels", width * height
    if pixels > MOST_PIXELS:
        raise TooLarge(Broken(f"{claim}, more than {MOST_PIXELS:,}: it could be made to exhaust the memory", SMALLER))
    if max(width, height) > MOST_SIDE:
        raise TooLarge(Broken(f"{claim}, more than {MOST_SIDE:,} along one side", SMALLER))
    if pixels > max(SMALL, PIXELS_PER_BYTE * size):
        # A few bytes that claim many pixels are a picture that was made to exhaust memory.
        many = f"{claim} in {size:,} bytes, more than {PIXELS_PER_BYTE:,} for each: it could be made to exhaust the memory"
        raise TooLarge(Broken(many, SMALLER))
    if min(width, height) < 1:
        raise Unreadable(Broken(f"has no pixels: {width} x {height}", _SKIP))


def _webp_size(head: bytes) -> tuple[int, int]:
    """Return width and height that the first chunk of a WebP claims.

    Source:
        Zern, Massimino and Alakuijala 2024, "WebP image format", RFC 9649, sections 2.5 to 2.7.
    """
    chunk = head[12:16]
    if chunk == b"VP8X" and len(head) >= 30:
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if chunk == b"VP8L" and len(head) >= 25:
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if chunk == b"VP8 " and len(head) >= 30:
        return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
    raise Unreadable(Broken("has a broken header: its first chunk is none of a WebP", COPY))


def _no_picture(head: bytes, formats: tuple[str, ...]) -> Broken:
    if not head:
        return Broken("is empty", COPY)
    known = next((what for magic, what in _OTHER if head.startswith(magic)), None)
    if head[4:8] == b"ftyp":
        known = "an AVIF or HEIC"
    if known:
        return Broken(f"is {known}, which is not read", f"convert it to {', '.join(formats[:-1])} or {formats[-1]}")
    if all(byte in b"\t\n\r" or byte >= 32 for byte in head):
        return Broken(f"is no picture but text: it starts with '{head.decode('utf-8', 'replace')}'", _SKIP)
    return Broken(f"is no picture: it starts with {head[:8].hex(' ')}", _SKIP)


def check_scans(file: IO[bytes]) -> None:
    """Refuse a JPEG whose pixels are gone over again and again.

    Args:
        file: is left at its first byte.

    Raises:
        TooLarge: it has too many scans.
    """
    file.seek(0)
    data, at, scans = file.read(), 2, 0
    file.seek(0)
    # Segments are counted without decoding them.
    while (found := _NEXT_SEGMENT.search(data, at)) is not None and data[found.end() - 1] != _END:
        kind, at = data[found.end() - 1], found.end()
        scans += kind == _SCAN
        at += int.from_bytes(data[at : at + 2], "big") if kind != _ALONE else 0
    if scans > MOST_SCANS:
        raise TooLarge(Broken(f"has {scans:,} scans, more than {MOST_SCANS}: it could be made to take very long", SMALLER))


class _Budget:
    """Pixels that all threads together have in work at a time: those of one picture of the largest size, or of several smaller ones."""

    def __init__(self, most: int) -> None:
        self._left, self._changed = most, threading.Condition()

    @contextmanager
    def take(self, pixels: int) -> Iterator[None]:
        """Wait until there is room for a picture of so many pixels, at most all, and hold it."""
        with self._changed:
            self._changed.wait_for(lambda: self._left >= pixels)
            self._left -= pixels
        try:
            yield
        finally:
            with self._changed:
                self._left += pixels
                self._changed.notify_all()


BUDGET = _Budget(MOST_PIXELS)


def said(error: BaseException) -> str:
    """Return what an error says, in a few words."""
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return text.partition("\n")[0].strip().rstrip(".").lower()[:120] or type(error).__name__
