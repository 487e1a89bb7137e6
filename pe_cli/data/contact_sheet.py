"""Contact sheets: pictures of a data set on one page, for reports."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.dataset import Array
from pe_cli.data.pictures.picture_checks import pillow

if TYPE_CHECKING:
    from PIL.Image import Image

#: Pictures on a sheet, at most.
MOST = 64
#: Pixels of a side of a picture on a sheet.
SIDE = 96
#: Pixels between pictures, and of the line of a label.
GAP, LINE = 4, 14
_PAPER, _INK = (255, 255, 255), (40, 40, 40)


def contact_sheet(
    pictures: Array | Sequence[Array],
    labels: Sequence[str] | None = None,
    *,
    last: bool | None = None,
    columns: int = 8,
    side: int = SIDE,
) -> bytes:
    """Return pictures side by side as a PNG.

    Args:
        pictures: [height, width], [height, width, 1, 3 or 4] or [1, 3 or 4, height, width] each; of one size where they are one array.
            Bytes are shown as they are; floats from 0 to 1 as shares of 255; other floats with their least number black and their
            greatest white. Of more than `MOST` the first are shown.
        labels: a text for each, written below it.
        last: whether channels are the last axis; by the sizes when None.
        columns: pictures in a row.
        side: pixels of the longer side of a picture.

    Raises:
        PeError: Pillow is not installed.
    """
    pil = pillow()
    from PIL import ImageDraw, ImageFont

    shown = [_bytes(picture, last) for picture in pictures[:MOST]]
    columns = max(1, min(columns, len(shown)))
    rows = max(1, -(-len(shown) // columns))
    line = LINE if labels else 0
    wide, tall = side + GAP, side + line + GAP
    sheet = pil.Image.new("RGB", (columns * wide + GAP, rows * tall + GAP), _PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for i, pixels in enumerate(shown):
        left, top = GAP + i % columns * wide, GAP + i // columns * tall
        image = _fitted(pixels, side)
        sheet.paste(image, (left + (side - image.width) // 2, top + (side - image.height) // 2))
        if labels:
            draw.text((left, top + side), _short(draw, labels[i], font, side), fill=_INK, font=font)
    out = io.BytesIO()
    sheet.save(out, "PNG", optimize=True)
    return out.getvalue()


def _bytes(picture: Array, last: bool | None) -> NDArray[np.uint8]:
    """Return a picture as uint8 [height, width, 3]; what is transparent is white."""
    pixels = np.asarray(picture)
    if pixels.ndim == 3:
        is_last = pixels.shape[2] in (1, 3, 4) if last is None else last
        pixels = pixels if is_last else pixels.transpose(1, 2, 0)
    else:
        pixels = pixels.reshape(*pixels.shape[-2:], 1)
    if pixels.dtype != np.uint8:
        values = np.nan_to_num(pixels.astype(np.float64))
        low, high = float(values.min()), float(values.max())
        low, high = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
        pixels = np.rint((values - low) * (255 / ((high - low) or 1.0))).astype(np.uint8)
    if pixels.shape[2] == 4:
        alpha = pixels[:, :, 3:].astype(np.uint16)
        pixels = ((pixels[:, :, :3] * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)
    return np.broadcast_to(pixels[:, :, :3], (*pixels.shape[:2], 3)) if pixels.shape[2] in (1, 3) else pixels[:, :, [0, 0, 0]]


def _fitted(pixels: NDArray[np.uint8], side: int) -> Image:
    """Return a picture whose longer side is `side`; small ones grow without being smoothed, so that their pixels can be told apart."""
    pil = pillow()
    image = pil.Image.fromarray(np.ascontiguousarray(pixels))
    scale = side / max(image.size)
    width, height = (max(1, round(length * scale)) for length in image.size)
    kind = pil.Image.Resampling
    made: Image = image.resize((width, height), kind.NEAREST if scale > 1 else kind.BILINEAR)
    return made


def _short(draw: Any, text: str, font: Any, width: int) -> str:
    """Return a label that fits below a picture."""
    text = "".join(c if c.isprintable() else "\ufffd" for c in text[:200])
    whole = text
    while text and draw.textlength(text + ("..." if text != whole else ""), font=font) > width:
        text = text[:-1]
    return text if text == whole else f"{text}..."
