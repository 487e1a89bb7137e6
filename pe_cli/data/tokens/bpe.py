"""Byte-pair encoding over bytes: pairs of neighbouring symbols that were frequent in training are one token; nothing is unknown.

Texts are cut into pieces first, as GPT-2's pattern does: contractions, and runs of letters, of numbers or of other symbols with a
blank before them. No token goes over the end of a piece. Bytes have the ids from 1 on in GPT-2's order, then come the merges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.tables import csv_kernels
from pe_cli.data.tokens.base import Encoder, Ids, Kind, State, Tokenizer, Wanted, damaged
from pe_cli.data.tokens.piece_counts import Counts, count
from pe_cli.data.tokens.text_chunks import Chunk, Texts, call
from pe_cli.data.tokens.unicode_tables import classes
from pe_cli.data.tokens.words import table_of
from pe_cli.kernels.text import byte_pair_learning as learning
from pe_cli.kernels.text import byte_pair_merging
from pe_cli.kernels.text.distinct_texts import COUNT, LENGTH, START
from pe_cli.kernels.text.tokens import BYTES_OF_PAIRS, PADDING

#: Bytes of a piece that is learned from, at most: a merge goes through all pieces that have it.
LONGEST = 1024
#: Pieces, and bytes of them, whose tokens a thread remembers.
REMEMBERED, REMEMBERED_BYTES = 1 << 17, 1 << 21
#: Ids before those of bytes: padding.
SPECIAL = 1


def _printed() -> tuple[list[int], list[str]]:
    """Return the bytes in GPT-2's order, and a printable character for each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    order = shown + [b for b in range(256) if b not in shown]
    characters = [""] * 256
    for i, b in enumerate(order):
        characters[b] = chr(b) if i < len(shown) else chr(256 + i - len(shown))
    return order, characters


ORDER, SHOWN = _printed()
_BYTE = {character: b for b, character in enumerate(SHOWN)}


def shown(token: bytes) -> str:
    """Return a token in printable characters, one for each byte: `Ġ` is a blank.

    >>> shown(b" the")
    'Ġthe'
    """
    return "".join(SHOWN[b] for b in token)


def learn(wanted: Wanted, texts: Texts, threads: int | None) -> State:
    """Return merges: each is the pair that was most frequent after the merges before it; of equal ones, that of the smallest ids."""
    found = count(texts, BYTES_OF_PAIRS, LONGEST, threads)
    size = 8192 if wanted.size is None else wanted.size
    merges, table = _Learning(found, size, wanted.min_count).run()
    starts = table.entries[: int(table.table[COUNT]), START]
    ends = starts + table.entries[: len(starts), LENGTH]
    names = [shown(table.bytes[start:end].tobytes()) for start, end in zip(starts, ends, strict=True)]
    return {
        "lower": wanted.lower,
        "merges": [f"{names[a - SPECIAL]} {names[b - SPECIAL]}" for a, b, _ in merges.tolist()],
        "seen": found.total,
        "unknown": 0,
    }


class _Learning:
    """Memory of `learn_merges`, which grows.

    Args:
        found: pieces and how often each was seen.
        size: ids at most, padding included.
        least: count of a pair that is merged, at least.
    """

    def __init__(self, found: Counts, size: int, least: int) -> None:
        starts, ends = found.bounds()
        times = found.counts[: len(found)]
        # one order of the pieces, whatever thread saw them first, is not needed: no result depends on it
        sizes = ends - starts
        first = np.append(0, np.cumsum(sizes)).astype(np.int64)
        alphabet = byte_ids()
        within = np.arange(first[-1]) - np.repeat(first[:-1], sizes)
        symbols = alphabet[found.words.bytes[np.repeat(starts, sizes) + within]]
        total = int(first[-1])
        self.table = table_of([bytes([b]) for b in ORDER])
        self.arrays: dict[int, NDArray[Any]] = {
            learning.SYMBOLS: symbols,
            learning.FIRST: first[:-1].copy(),
            learning.SIZE: sizes.astype(np.int32),
            learning.TIMES: times.copy(),
            # a pair is noted once for every place, and twice for every merge, each of which leaves a place less
            learning.NODE_PIECE: np.empty(3 * total + 1, np.int32),
            learning.NODE_NEXT: np.empty(3 * total + 1, np.int32),
            learning.MERGES: np.zeros((2 * size + 1, 3), np.int32),
            learning.PAIR_SLOTS: np.zeros(1 << 12, np.int32),
            learning.HEAP_COUNT: np.zeros(0, np.int64),
            learning.HEAP_PAIR: np.zeros(0, np.int32),
        }
        self.arrays |= {key: np.zeros(0, kind) for key, kind in _PER_PAIR.items()}
        self.frame = np.zeros(learning.LEARNING, np.int64)
        self.frame[learning.PIECES] = len(times)
        self.frame[learning.FREE] = -1
        self.frame[learning.MOST_MERGES] = 2 * size
        self.frame[learning.WANTED], self.frame[learning.LEAST] = size, max(1, least)
        self._grow_pairs(1 << 11)
        self._grow_heap(1 << 12)

    def _grow_pairs(self, most: int) -> None:
        for key in _PER_PAIR:
            old = self.arrays[key]
            self.arrays[key] = np.append(old, np.zeros(most - len(old), old.dtype))
        slots = np.zeros(1 << (2 * most - 1).bit_length(), np.int32)
        call("spread_pairs", self.arrays[learning.PAIR_KEY], int(self.frame[learning.PAIRS]), slots, len(slots) - 1)
        self.arrays[learning.PAIR_SLOTS] = slots
        self.frame[learning.PAIR_MASK], self.frame[learning.MOST_PAIRS] = len(slots) - 1, most

    def _grow_heap(self, most: int) -> None:
        for key in (learning.HEAP_COUNT, learning.HEAP_PAIR):
            old = self.arrays[key]
            self.arrays[key] = np.append(old, np.zeros(most - len(old), old.dtype))
        self.frame[learning.MOST_HEAP] = most

    def _grow_symbols(self) -> None:
        self.table.ensure(max(1 << 16, 4 * LONGEST, len(self.table.bytes)))

    def run(self) -> tuple[NDArray[np.int32], csv_kernels.Words]:
        """Return the merges, int32 [merges, 3]: left, right and new symbol; and the table of the symbols' bytes."""
        for name in ("count_pairs", "learn_merges"):
            # Kernels cannot make room: they say what is full, and are called again where they stopped.
            while True:
                for key, array in self.arrays.items():
                    # Addresses are put down again, as arrays may have grown.
                    self.frame[key] = array.ctypes.data
                self.frame[learning.SYMBOL_TABLE] = self.table.table.ctypes.data
                self.frame[learning.SYMBOL_ROOM] = len(self.table.bytes)
                call(name, self.frame)
                why = int(self.frame[learning.WHY])
                if why == learning.DONE:
                    break
                if why == learning.PAIRS_FULL:
                    self._grow_pairs(2 * int(self.frame[learning.MOST_PAIRS]))
                elif why == learning.HEAP_FULL:
                    self._grow_heap(2 * int(self.frame[learning.MOST_HEAP]))
                else:
                    self._grow_symbols()
        return self.arrays[learning.MERGES][: int(self.frame[learning.MERGED])], self.table


#: Arrays of pairs, and their element types.
_PER_PAIR = {
    learning.PAIR_KEY: "int64",
    learning.PAIR_COUNT: "int64",
    learning.PAIR_HEAD: "int32",
    learning.PAIR_TOUCHED: "int32",
    learning.TOUCHED: "int32",
}


def byte_ids() -> NDArray[np.int32]:
    """Return the id of every byte."""
    ids = np.empty(256, np.int32)
    ids[ORDER] = np.arange(SPECIAL, SPECIAL + 256)
    return ids


class _Cache:
    """Tokens of pieces that one thread has met."""

    def __init__(self) -> None:
        self.table = table_of([])
        self.table.entries = np.zeros((REMEMBERED, self.table.entries.shape[1]), np.int64)
        self.table.slots = np.zeros(2 * REMEMBERED, np.int32)
        self.table.ensure(REMEMBERED_BYTES)
        self.first, self.size = np.empty(REMEMBERED, np.int64), np.empty(REMEMBERED, np.int32)
        self.tokens = np.empty(REMEMBERED_BYTES, np.int32)
        self.words = np.zeros(byte_pair_merging.CACHE, np.int64)
        # Addresses of arrays that this object keeps alive.
        self.words[byte_pair_merging.CACHE_TABLE] = self.table.table.ctypes.data
        self.words[byte_pair_merging.CACHE_ROOM] = self.words[byte_pair_merging.CACHE_MOST] = REMEMBERED_BYTES
        self.words[byte_pair_merging.CACHE_FIRST] = self.first.ctypes.data
        self.words[byte_pair_merging.CACHE_SIZE] = self.size.ctypes.data
        self.words[byte_pair_merging.CACHE_TOKENS] = self.tokens.ctypes.data


class Pairs(Tokenizer):
    """Bytes, and what merges make of them: id 0 is padding, the bytes have ids 1 to 256, and merges those from 257 on.

    Raises:
        PeError: a merge is listed twice, or joins what no merge before it made (exit code 3).
    """

    kind: ClassVar[Kind] = "bpe"

    def __init__(self, state: State) -> None:
        self.lower, self.merges = bool(state["lower"]), list(state["merges"])
        self.unknown = None
        names = {SHOWN[b]: SPECIAL + i for i, b in enumerate(ORDER)}
        keys, news = np.zeros(len(self.merges) + 1, np.int64), np.zeros(len(self.merges) + 1, np.int32)
        for rank, merge in enumerate(self.merges):
            left, _, right = merge.partition(" ")
            if left not in names or right not in names:
                raise damaged(f"merge {rank + 1}, '{merge}', is not of two tokens before it")
            keys[rank] = names[left] << 32 | names[right]
            news[rank] = names.setdefault(left + right, len(names) + SPECIAL)
        # A pair has one rank, or the order of merges would not be defined.
        if len(np.unique(keys[:-1])) != len(self.merges):
            raise damaged("a merge is listed twice")
        self.vocabulary = names
        self.size = len(names) + SPECIAL
        self._keys, self._news = keys, news
        self._slots = np.zeros(1 << (4 * len(keys)).bit_length(), np.int32)
        call("spread_pairs", keys, len(self.merges), self._slots, len(self._slots) - 1)
        self._bytes = [b"", *(bytes(_BYTE[c] for c in name) for name in names)]

    def worker(self) -> Encoder:
        """Return what one thread encodes chunks with; it remembers the tokens of pieces."""
        cache, alphabet = _Cache(), byte_ids()

        def encode(chunk: Chunk, filled: int, most: int) -> Ids:
            out = np.empty(chunk.size + filled * len(chunk), np.int32)
            ends = np.empty(len(chunk) + 1, np.int64)
            scratch = np.empty(40 * (chunk.size + 1), np.uint8)
            call(
                "encode_pairs", chunk.buffer, chunk.ends, len(chunk), classes(), alphabet, self._keys, self._slots,
                len(self._slots) - 1, self._news, cache.words, scratch, chunk.size + 1, filled, most, out, ends,
            )  # fmt: skip
            return out[: ends[-1]], ends, 0

        return encode

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """Return the bytes of every id."""
        return [self._bytes[i] if 0 <= i < self.size else b"" for i in ids]

    def exported(self) -> dict[str, Any]:
        """Return the tokens in the form of a `tokenizer.json`."""
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": {"type": "Lowercase"} if self.lower else None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {
                "type": "BPE",
                "vocab": {"<pad>": PADDING, **self.vocabulary},
                "merges": [merge.split(" ") for merge in self.merges],
            },
        }
