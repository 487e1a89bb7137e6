"""Loads picture files as objects of Pillow."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

from pe_cli.data.pictures.picture_checks import (
    BUDGET,
    SCRIPT_FORMATS,
    Unreadable,
    check_scans,
    decoding,
    open_picture,
    said,
)
from pe_cli.paddle.errors import FluidValueError


def loaded(file: IO[bytes], name: Any) -> Any:
    """Return the picture of an open file, with its pixels.

    Args:
        file: at its first byte.
        name: of the file, for errors.

    Raises:
        FluidValueError: it is no picture of one of `SCRIPT_FORMATS`, too large, cut off or damaged; a ValueError.
    """
    try:
        image = open_picture(file, SCRIPT_FORMATS)
        if image.format == "JPEG":
            check_scans(file)
        with BUDGET.take(image.width * image.height), decoding():
            image.load()
    except Unreadable as error:
        hint = error.broken.hint.partition(", or set broken")[0]
        raise FluidValueError(f"{name} {error.broken.why}", hint=hint) from None
    return image


def read_picture(path: Any) -> Any:
    """Return a file's picture, by Pillow, in RGB.

    Raises:
        FluidValueError: the file is no picture, or cannot be read; a ValueError.
    """
    try:
        with Path(path).open("rb") as file:
            image = loaded(file, path)
    except OSError as error:
        raise FluidValueError(f"{path} cannot be read: {said(error)}", hint="check the path and its permissions") from None
    try:
        return image.convert("RGB")
    except ValueError as error:
        raise FluidValueError(f"{path} has pixels of the kind {image.mode}: {said(error)}", hint="save it as RGB") from None
