"""imdb: readers of opinions on films, as numbers of words with 0 for a positive one and 1 for a negative one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pe_cli.paddle.text.imdb import archive, opinions, words


def _reader(mode: str, word_idx: dict[Any, int]) -> Callable[[], Iterator[Any]]:
    return lambda: opinions(archive(), mode, word_idx)


def build_dict(pattern: Any, cutoff: int) -> dict[Any, int]:
    """Return the number of every word, as bytes, that occurs more than cutoff times in texts whose name fits a pattern."""
    return words(archive(), cutoff, pattern)


def word_dict() -> dict[Any, int]:
    """Return the number of every word, as bytes, that occurs more than 150 times; that of others is of `<unk>`."""
    return words(archive(), 150)


def train(word_idx: dict[Any, int]) -> Callable[[], Iterator[Any]]:
    """Return the reader of the training samples."""
    return _reader("train", word_idx)


def test(word_idx: dict[Any, int]) -> Callable[[], Iterator[Any]]:
    """Return the reader of the test samples."""
    return _reader("test", word_idx)


__all__ = ["build_dict", "test", "train", "word_dict"]
