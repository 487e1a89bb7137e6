"""Characters: every code point of a text is a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from pe_cli.data.tokens.base import Encoder, Ids, Kind, State, Tokenizer, Wanted, damaged, most_frequent
from pe_cli.data.tokens.text_chunks import Chunk, Locals, Texts, call, in_order
from pe_cli.data.tokens.words import SPECIAL, exported
from pe_cli.kernels.text.tokens import UNKNOWN

#: Code points of Unicode.
POINTS = 0x110000


def learn(wanted: Wanted, texts: Texts, threads: int | None) -> State:
    """Return the most frequent characters, the most frequent first."""
    # A count for each code point and thread: a table is faster than any dictionary, and takes 9 MB.
    local = Locals(lambda: np.zeros(POINTS, np.int64))

    def work(i: int) -> None:
        chunk = texts.chunk(i)
        call("count_points", chunk.buffer, chunk.size, local.get())

    for _ in in_order(work, texts.chunks, threads):
        pass
    counts = np.sum(local.all, axis=0)
    keep = None if wanted.size is None else max(0, wanted.size - SPECIAL)
    order = most_frequent(counts, keep, wanted.min_count, lambda i: i)
    total = int(counts.sum())
    return {
        "lower": wanted.lower,
        "characters": [chr(i) for i in order],
        "seen": total,
        "unknown": total - int(counts[order].sum()),
    }


class Characters(Tokenizer):
    """Characters of a vocabulary: id 0 is padding, 1 an unknown character, and the characters have the ids from 2 on.

    Raises:
        PeError: a character is listed twice (exit code 3).
    """

    kind: ClassVar[Kind] = "characters"

    def __init__(self, state: State) -> None:
        self.lower, self.characters = bool(state["lower"]), list(state["characters"])
        self.size = len(self.characters) + SPECIAL
        self._ids = np.full(POINTS, UNKNOWN, np.int32)
        self._ids[[ord(c) for c in self.characters]] = np.arange(SPECIAL, self.size)
        if len(set(self.characters)) != len(self.characters):
            raise damaged("a character is listed twice")

    def worker(self) -> Encoder:
        """Return an encoder of chunks for one thread."""

        def encode(chunk: Chunk, filled: int, most: int) -> Ids:
            out = np.empty(chunk.size + filled * len(chunk), np.int32)
            ends, unknown = np.empty(len(chunk) + 1, np.int64), np.zeros(1, np.int64)
            call("encode_points", chunk.buffer, chunk.ends, len(chunk), self._ids, filled, most, out, ends, unknown)
            return out[: ends[-1]], ends, int(unknown[0])

        return encode

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """Return the bytes of every character; U+FFFD of unknown ones."""
        return [b"" if i == self.padding else self._character(i).encode() for i in ids]

    def _character(self, i: int) -> str:
        return self.characters[i - SPECIAL] if SPECIAL <= i < self.size else "\ufffd"

    def exported(self) -> dict[str, Any]:
        """Return the tokens in the form of a `tokenizer.json`."""
        pattern = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False}
        return exported(self, pattern, self.characters)
