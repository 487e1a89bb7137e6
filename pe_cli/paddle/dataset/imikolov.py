"""imikolov: readers of the Penn Treebank, as numbers of words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pe_cli.paddle.text.imikolov import archive, samples, words


class DataType:
    """What a sample is: a window of words, or a sentence with the same one word later."""

    NGRAM = 1
    SEQ = 2


def _reader(part: str, word_idx: dict[Any, int], n: int, data_type: int) -> Callable[[], Iterator[Any]]:
    return lambda: samples(archive(), part, word_idx, n, data_type == DataType.NGRAM)


def build_dict(min_word_freq: int = 50) -> dict[Any, int]:
    """Return the number of every word, as bytes, that occurs more often than so, and of `<s>`, `<e>` and `<unk>`."""
    return words(archive(), min_word_freq)


def train(word_idx: dict[Any, int], n: int, data_type: int = DataType.NGRAM) -> Callable[[], Iterator[Any]]:
    """Return the reader of the training samples: windows of n words, or sentences of at most n."""
    return _reader("train", word_idx, n, data_type)


def test(word_idx: dict[Any, int], n: int, data_type: int = DataType.NGRAM) -> Callable[[], Iterator[Any]]:  # noqa: PT028
    """Return the reader of the validation samples, which the original has here."""
    return _reader("valid", word_idx, n, data_type)


__all__ = ["build_dict", "test", "train"]
