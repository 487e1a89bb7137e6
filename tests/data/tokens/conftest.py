"""What the tests of tokenizers share."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tokenizers

from pe_cli.data.raw_cells import join_strings
from pe_cli.data.tokens.base import Wanted
from pe_cli.data.tokens.tokenizer_kinds import learn, open_tokens


class Learned:
    """A tokenizer that was learned from texts.

    Attributes:
        state: as a checkpoint keeps it.
        tokens: made of it, after a way through JSON.
    """

    def __init__(self, kind: str, texts: list[str], threads: int | None, **wanted: object) -> None:
        self.state = learn(Wanted(kind, **wanted), column(texts), threads=threads)
        self.tokens = open_tokens(json.loads(json.dumps(self.state)))

    def encode(self, texts: list[str], **options: object) -> list[list[int]]:
        """Return the ids of every text."""
        found = self.tokens.encode_many(column(texts), **options)
        return [ids.tolist() for ids in np.split(found.ids, found.offsets[1:-1])]

    def theirs(self) -> tokenizers.Tokenizer:
        """Return the same tokenizer as the package `tokenizers` runs it."""
        return tokenizers.Tokenizer.from_str(json.dumps(self.tokens.exported()))


def column(texts: list[str]):
    return join_strings([text.encode() for text in texts])


@pytest.fixture
def learned():
    """Learn a tokenizer: learned("bpe", texts, size=300)."""

    def make(kind: str, texts: list[str], threads: int | None = None, **wanted: object) -> Learned:
        return Learned(kind, texts, threads, **wanted)

    return make


@pytest.fixture(scope="session")
def prose() -> list[str]:
    """Lines with words of very different frequency, numbers, contractions, symbols, runs of blanks and four scripts."""
    rng = np.random.default_rng(7)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyzéßñ"))
    words = ["".join(rng.choice(letters, rng.integers(1, 9))) for _ in range(400)]
    words += ["don't", "we'll", "x_1", "1,024.5", "½", "Ünï", "日本語", "мир", "नमस्ते", "🙂🙂", "!?", "--", "(a)", "e\u0301", "\u200d"]
    rates = 1 / np.arange(1, len(words) + 1)
    lines = []
    for _ in range(600):
        picked = rng.choice(len(words), rng.integers(0, 15), p=rates / rates.sum())
        gaps = rng.choice([" ", "  ", "\t", "\n\n", "\u00a0", ", ", ". "], len(picked), p=[0.8, 0.04, 0.02, 0.04, 0.02, 0.04, 0.04])
        lines.append("".join(words[i].capitalize() if rng.random() < 0.1 else words[i] + gap for i, gap in zip(picked, gaps, strict=True)))
    return lines
