"""mnist: readers of digits, float32 [784] from -1 to 1 with a label."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pe_cli.paddle.dataset.common import reader
from pe_cli.paddle.vision.datasets import MNIST


def _scaled(mode: str) -> Callable[[], Iterator[Any]]:
    samples = reader(lambda: MNIST(mode=mode))
    return lambda: ((picture.reshape(-1) / 127.5 - 1.0, int(label[0])) for picture, label in samples())


def train() -> Callable[[], Iterator[Any]]:
    """Return the reader of the training samples."""
    return _scaled("train")


def test() -> Callable[[], Iterator[Any]]:
    """Return the reader of the test samples."""
    return _scaled("test")


__all__ = ["test", "train"]
