"""conll05: a reader of sentences with the roles of their words; see `paddle.text.Conll05st`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pe_cli.paddle.text.conll05 import archive, beside, labels, numbers, sample, sentences


def get_dict() -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Return the numbers of words, verbs and labels."""
    return numbers(beside(None, "wordDict.txt")), numbers(beside(None, "verbDict.txt")), labels(beside(None, "targetDict.txt"))


def get_embedding() -> str:
    """Return the path of trained vectors of words."""
    return str(beside(None, "emb"))


def test() -> Callable[[], Iterator[Any]]:
    """Return the reader of the test samples, nine lists of numbers each; those for training are not free."""
    known = get_dict()
    return lambda: (sample(told, *known) for told in sentences(archive()))


__all__ = ["get_dict", "get_embedding", "test"]
