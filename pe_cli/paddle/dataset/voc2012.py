"""voc2012: readers of photographs and the class of each pixel, both as arrays of bytes with the channels last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pe_cli.paddle.dataset.common import reader
from pe_cli.paddle.vision.archives import VOC2012


def _arrays(mode: str) -> Callable[[], Iterator[Any]]:
    samples = reader(lambda: VOC2012(mode=mode))
    return lambda: ((np.array(picture), np.array(classes)) for picture, classes in samples())


def train() -> Callable[[], Iterator[Any]]:
    """Return the reader of all pictures."""
    return _arrays("train")


def test() -> Callable[[], Iterator[Any]]:
    """Return the reader of those that their authors have for training, as the original does."""
    return _arrays("test")


def val() -> Callable[[], Iterator[Any]]:
    """Return the reader of the others."""
    return _arrays("valid")


__all__ = ["test", "train", "val"]
