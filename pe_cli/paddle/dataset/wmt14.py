"""wmt14: readers of sentences in English and French, as numbers of words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pe_cli.paddle.text.translation import archive_14, numbers_14, pairs_14, turned


def _reader(part: str, dict_size: int) -> Callable[[], Iterator[Any]]:
    return lambda: pairs_14(archive_14(), part, *numbers_14(archive_14(), dict_size))


def train(dict_size: int) -> Callable[[], Iterator[Any]]:
    """Return the reader of the training samples, with so many words of each language."""
    return _reader("train", dict_size)


def test(dict_size: int) -> Callable[[], Iterator[Any]]:
    """Return the reader of the test samples."""
    return _reader("test", dict_size)


def gen(dict_size: int) -> Callable[[], Iterator[Any]]:
    """Return the reader of the samples for generating."""
    return _reader("gen", dict_size)


def get_dict(dict_size: int, reverse: bool = True) -> tuple[Any, Any]:
    """Return number -> word of both languages, or word -> number."""
    found = numbers_14(archive_14(), dict_size)
    return (turned(found[0]), turned(found[1])) if reverse else found


__all__ = ["gen", "get_dict", "test", "train"]
