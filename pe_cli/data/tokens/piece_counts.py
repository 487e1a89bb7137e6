"""Counts of the distinct pieces of texts, by several threads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.tables.csv_kernels import Words
from pe_cli.data.tokens.text_chunks import Locals, Texts, call, in_order
from pe_cli.data.tokens.unicode_tables import classes
from pe_cli.kernels.text.distinct_texts import COUNT, LENGTH, START
from pe_cli.kernels.text.tokens import COUNTING, NEEDS, TOO_LONG, TOTAL


class Counts:
    """Distinct pieces and how often each was seen."""

    def __init__(self) -> None:
        self.words = Words()
        self.counts = np.zeros(len(self.words.entries), np.int64)
        self.total = self.too_long = 0

    @property
    def room(self) -> int:
        """Bytes of pieces that the table has room for; same_bytes reads 8 more."""
        return max(0, len(self.words.bytes) - 8)

    def __len__(self) -> int:
        return int(self.words.table[COUNT])

    def grow(self, size: int) -> None:
        """Make room for a piece of so many bytes."""
        self.words.ensure(max(size, 1 << 16))
        if len(self.counts) < len(self.words.entries):
            self.counts = np.append(self.counts, np.zeros(len(self.words.entries) - len(self.counts), np.int64))

    def add_texts(self, texts: Texts, index: int, rule: int, longest: int) -> None:
        """Count the pieces of a chunk."""
        chunk = texts.chunk(index)
        state = np.zeros(COUNTING, np.int64)
        while True:
            call(
                "count_pieces", chunk.buffer, chunk.ends, len(chunk), rule, longest, classes(), self.words.table, self.room,
                self.counts, state,
            )  # fmt: skip
            # Counting stops where the table is full and goes on after it has grown.
            if not state[NEEDS]:
                break
            self.grow(int(state[NEEDS]))
        self.total += int(state[TOTAL])
        self.too_long += int(state[TOO_LONG])

    def add(self, other: Counts) -> None:
        """Add the counts of another."""
        state = np.zeros(COUNTING, np.int64)
        while True:
            call("add_words", other.words.table, other.counts, self.words.table, self.room, self.counts, state)
            if not state[NEEDS]:
                break
            self.grow(int(state[NEEDS]))
        self.total += other.total
        self.too_long += other.too_long

    def bounds(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the bytes of every piece begin and end in `words.bytes`."""
        entries = self.words.entries[: len(self)]
        return entries[:, START], entries[:, START] + entries[:, LENGTH]


def count(texts: Texts, rule: int, longest: int, threads: int | None = None) -> Counts:
    """Count the pieces of texts.

    Args:
        texts: what is counted.
        rule: how a text is cut, of `pe_cli.kernels.text.tokens`.
        longest: bytes of a piece that is counted, at most.
        threads: number of threads; one per core when None.

    Returns:
        Counts that are the same for any number of threads; the order of the pieces is not.
    """
    local = Locals(Counts)
    for _ in in_order(lambda i: local.get().add_texts(texts, i, rule, longest), texts.chunks, threads):
        pass
    # Into the largest, so that as little as possible is added.
    largest, *others = sorted(local.all, key=len, reverse=True)
    for other in others:
        largest.add(other)
    found: Counts = largest
    return found
