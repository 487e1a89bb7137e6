"""Words: runs of letters, marks and digits; and runs of other symbols. Blanks are between words, and are no tokens.

A letter is what Unicode calls so (L), and so are marks (M), connectors such as `_` (Pc), decimal digits (Nd), letter-like numbers
(Nl) and joiners (U+200C and U+200D) parts of words; blanks have the property White_Space; all else is a symbol. `don't stop!?` is
`don`, `'`, `t`, `stop`, `!?`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from pe_cli.data.tables import csv_kernels
from pe_cli.data.tokens.base import Encoder, Ids, Kind, State, Tokenizer, Wanted, damaged, most_frequent
from pe_cli.data.tokens.piece_counts import count
from pe_cli.data.tokens.text_chunks import Chunk, Texts, call
from pe_cli.data.tokens.unicode_tables import BLANKS, classes
from pe_cli.kernels.text import tokens as kernels
from pe_cli.kernels.text.characters import SLACK
from pe_cli.kernels.text.distinct_texts import COUNT, ENTRY

#: Bytes of a word at most; longer ones are unknown.
LONGEST = 256
#: Ids before those of words: padding and unknown.
SPECIAL = 2


def learn(wanted: Wanted, texts: Texts, threads: int | None) -> State:
    """Return the most frequent words, the most frequent first."""
    found = count(texts, kernels.WORDS, LONGEST, threads)
    starts, ends = found.bounds()
    data = found.words.bytes
    counts = found.counts[: len(found)]
    keep = None if wanted.size is None else max(0, wanted.size - SPECIAL)
    order = most_frequent(counts, keep, wanted.min_count, lambda i: data[starts[i] : ends[i]].tobytes())
    return {
        "lower": wanted.lower,
        "words": [data[starts[i] : ends[i]].tobytes().decode() for i in order],
        "seen": found.total,
        "unknown": found.total - int(counts[order].sum()),
    }


class Words(Tokenizer):
    """Words of a vocabulary: id 0 is padding, 1 an unknown word, and the words have the ids from 2 on."""

    kind: ClassVar[Kind] = "words"

    def __init__(self, state: State) -> None:
        self.lower, self.words = bool(state["lower"]), list(state["words"])
        self.size = len(self.words) + SPECIAL
        self._table = table_of([word.encode() for word in self.words])

    def worker(self) -> Encoder:
        """Return an encoder of chunks for one thread."""

        def encode(chunk: Chunk, filled: int, most: int) -> Ids:
            out = np.empty(chunk.size + filled * len(chunk), np.int32)
            ends, unknown = np.empty(len(chunk) + 1, np.int64), np.zeros(1, np.int64)
            call(
                "encode_words", chunk.buffer, chunk.ends, len(chunk), classes(), self._table.table, SPECIAL, filled, most,
                out, ends, unknown,
            )  # fmt: skip
            return out[: ends[-1]], ends, int(unknown[0])

        return encode

    def decode(self, ids: Sequence[int]) -> str:
        """Return the words with a blank between them: what was between them is not known."""
        return b"".join(self.pieces(ids)).decode().removeprefix(" ")

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """Return a blank and a word for every id."""
        return [b"" if i == self.padding else b" " + self._word(i).encode() for i in ids]

    def _word(self, i: int) -> str:
        return self.words[i - SPECIAL] if SPECIAL <= i < self.size else "<unknown>"

    def exported(self) -> dict[str, Any]:
        """Return the tokens in the form of a `tokenizer.json`."""
        # Written out, because engines differ in what they call a blank.
        blank = "".join(f"\\x{{{c:x}}}" for c in BLANKS)
        inner = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}"
        pattern = {
            "type": "Split",
            "pattern": {"Regex": f"[{inner}]+|[^{inner}{blank}]+"},
            "behavior": "Removed",
            "invert": True,
        }
        return exported(self, pattern, self.words)


def table_of(words: Sequence[bytes]) -> csv_kernels.Words:
    """Return a table of different words, in which each has its index as its code.

    Raises:
        PeError: DATA; a word is there twice.
    """
    made = csv_kernels.Words()
    made.entries = np.zeros((len(words) + 1, ENTRY), np.int64)
    made.slots = np.zeros(1 << (2 * len(words) + 1).bit_length(), np.int32)
    ends = np.append(0, np.cumsum([len(word) for word in words])).astype(np.int64)
    made.ensure(int(ends[-1]))
    call("list_words", np.frombuffer(b"".join(words) + bytes(SLACK), np.uint8), ends, len(words), made.table)
    # Two words with one id could not be told apart when they are decoded.
    if int(made.table[COUNT]) != len(words):
        raise damaged("a token is listed twice")
    return made


def exported(tokens: Tokenizer, pattern: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Return a vocabulary of whole tokens in the form of a `tokenizer.json`."""
    vocabulary = {"<pad>": kernels.PADDING, "<unknown>": kernels.UNKNOWN} | {
        word: SPECIAL + i for i, word in enumerate(words)
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"} if tokens.lower else None,
        "pre_tokenizer": pattern,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unknown>"},
    }
