"""Vocabularies: numbers for words, the most frequent first."""

from __future__ import annotations

from collections import Counter
from typing import Any

UNKNOWN = "<unk>"


def numbered(counts: Counter[Any], more_than: int) -> dict[Any, int]:
    """Return the number of every word that occurs more often than so, and of unknown ones the last.

    Words that are as frequent stand in their order as bytes.
    """

    def place(word: Any) -> tuple[int, bytes]:
        return -counts[word], word if isinstance(word, bytes) else word.encode()

    words = sorted((word for word, count in counts.items() if count > more_than), key=place)
    return {word: i for i, word in enumerate([*words, UNKNOWN])}
