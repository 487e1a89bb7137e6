"""vision: pictures of data sets, and what is done with them before they are fed."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle.errors import FluidValueError, NotThereYet
from pe_cli.paddle.reference_names import missing
from pe_cli.paddle.vision import datasets, models, ops, transforms
from pe_cli.paddle.vision.image_load import read_picture


def get_image_backend() -> str:
    """Return what pictures of data sets are made by: Pillow."""
    return "pil"


def set_image_backend(backend: str) -> None:
    """Take pictures of data sets as Pillow makes them.

    Raises:
        FluidValueError: another word; a ValueError.
        NotThereYet: cv2 or tensor.
    """
    if backend not in ("pil", "cv2", "tensor"):
        raise FluidValueError(f"set_image_backend: {backend!r}", hint="pil")
    if backend != "pil":
        raise NotThereYet(f"set_image_backend: {backend} is not there", hint="pil, and a transform that makes arrays of pictures")


def image_load(path: Any, backend: str | None = None) -> Any:
    """Read a file as a picture of Pillow.

    Raises:
        FluidValueError: it is no picture, or another backend; a ValueError.
        NotThereYet: backend is cv2 or tensor.
    """
    set_image_backend(backend or "pil")
    return read_picture(path)


globals().update({name: getattr(transforms, name) for name in transforms.__all__})
__all__ = ["get_image_backend", "image_load", "set_image_backend", "datasets", "models", "ops", "transforms", *transforms.__all__]
__getattr__ = missing("paddle.vision", lambda: globals())
