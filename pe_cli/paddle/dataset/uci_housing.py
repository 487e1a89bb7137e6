"""uci_housing: readers of houses, 13 features and a price."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pe_cli.paddle.dataset.common import reader
from pe_cli.paddle.text.housing import UCIHousing

feature_names = ["CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT"]


def train() -> Callable[[], Iterator[Any]]:
    """Return the reader of the training samples."""
    return reader(lambda: UCIHousing(mode="train"))


def test() -> Callable[[], Iterator[Any]]:
    """Return the reader of the test samples."""
    return reader(lambda: UCIHousing(mode="test"))


__all__ = ["feature_names", "test", "train"]
