"""cifar: readers of pictures, float32 [3072] from 0 to 1, channels first, with a label."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

from pe_cli.paddle.dataset.common import reader
from pe_cli.paddle.vision.datasets import Cifar10, Cifar100


def _scaled(kind: type[Cifar10], mode: str, cycle: bool = False) -> Callable[[], Iterator[Any]]:
    samples = reader(lambda: kind(mode=mode))

    def once() -> Iterator[Any]:
        return ((picture.transpose(2, 0, 1).reshape(-1) / 255.0, int(label[0])) for picture, label in samples())

    return (lambda: chain.from_iterable(once() for _ in repeat(None))) if cycle else once


def train10(cycle: bool = False) -> Callable[[], Iterator[Any]]:
    """Return the reader of the training samples of ten classes; cycle begins again at the end."""
    return _scaled(Cifar10, "train", cycle)


def test10(cycle: bool = False) -> Callable[[], Iterator[Any]]:  # noqa: PT028 - the original's name, no test
    """Return the reader of the test samples of ten classes; cycle begins again at the end."""
    return _scaled(Cifar10, "test", cycle)


def train100() -> Callable[[], Iterator[Any]]:
    """Return the reader of the training samples of 100 classes."""
    return _scaled(Cifar100, "train")


def test100() -> Callable[[], Iterator[Any]]:
    """Return the reader of the test samples of 100 classes."""
    return _scaled(Cifar100, "test")


__all__ = ["test10", "test100", "train10", "train100"]
