"""What tokenizers have in common: they are made from a state, encode columns of texts, and decode ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.fields import Rows
from pe_cli.data.raw_cells import Strings, join_strings
from pe_cli.data.spill_storage import room
from pe_cli.data.tokens.text_chunks import Chunk, Locals, Texts, in_order
from pe_cli.kernels.text.tokens import PADDING, UNKNOWN

Kind = Literal["words", "characters", "bpe", "file"]
State = dict[str, Any]
#: Ids of a chunk, where each text begins and the last one ends in them, and how many are unknown.
Ids = tuple[NDArray[np.int32], NDArray[np.int64], int]
#: (chunk, ids that a text has at least, ids at most) -> ids.
Encoder = Callable[[Chunk, int, int], Ids]
#: More ids than any text has.
ALL = 1 << 62


@dataclass(frozen=True)
class Encoded:
    """Ids of texts.

    Args:
        ids: int32 [total], those of all texts.
        offsets: int64 [texts + 1]; those of text i are ids[offsets[i]:offsets[i + 1]].
        unknown: number of ids that stand for unknown tokens.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    unknown: int


class Tokenizer:
    """Cuts texts into tokens.

    Args:
        state: what `learn` gave; JSON values.

    Class attributes:
        kind: of it.

    Attributes:
        size: number of ids.
        padding: id that stands where no token is.
        unknown: id of tokens that training never saw; None where there are none.
        lower: whether texts are made lower case before.
    """

    kind: ClassVar[Kind]
    size: int
    padding: int = PADDING
    unknown: int | None = UNKNOWN
    lower: bool = False

    def encode_many(
        self,
        strings: Strings,
        rows: Rows | None = None,
        most: int | None = None,
        filled: int = 0,
        threads: int | None = None,
    ) -> Encoded:
        """Return the ids of many texts; the same for any number of threads.

        Args:
            strings: a column of texts.
            rows: int64, those that are meant; all when None.
            most: ids of a text that are kept, the first of them; all when None.
            filled: ids that every text has at least; the padding id is added to shorter ones.
            threads: number of threads; one per core when None.

        Raises:
            BadTextError: a text has a NUL byte, or is no UTF-8.
        """
        texts = Texts(strings, rows, self.lower)
        worker = Locals(self.worker)

        def work(i: int) -> Ids:
            chunk = texts.chunk(i)
            encode: Encoder = worker.get()
            return encode(chunk, filled, ALL if most is None else most)

        # Lower case may make a text longer: two letters for one, or more bytes.
        bound = texts.size + texts.size // 2 if self.lower else texts.size
        bound = max(1, self.bound(bound, len(texts)) + filled * len(texts))
        if most is not None:
            bound = min(bound, max(most, filled) * len(texts) + 1)
        ids, offsets = room((bound,), "int32", "the tokens of texts"), np.zeros(len(texts) + 1, np.int64)
        at = done = unknown = 0
        # Results come in the order of texts, whatever thread made them, so that ids can be written one behind the other.
        for found, ends, missed in in_order(work, texts.chunks, threads):
            ids[at : at + len(found)] = found
            offsets[done : done + len(ends)] = ends + at
            at, done, unknown = at + len(found), done + len(ends) - 1, unknown + missed
        return Encoded(ids[:at], offsets, unknown)

    def bound(self, size: int, texts: int) -> int:
        """Return an upper bound on the number of ids for texts of a given size in bytes."""
        return size

    def worker(self) -> Encoder:
        """Return an encoder of chunks for one thread."""
        raise NotImplementedError

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text."""
        return [int(i) for i in self.encode_many(join_strings([text.encode("utf-8", "replace")]), threads=1).ids]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; padding has none."""
        return b"".join(self.pieces(ids)).decode("utf-8", "replace")

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """Return the UTF-8 bytes of every id, which together are the text; a character may be cut in two."""
        raise NotImplementedError

    def exported(self) -> dict[str, Any]:
        """Return it in the form of a `tokenizer.json`, which other programs read; its ids are the same."""
        raise NotImplementedError


@dataclass(frozen=True)
class Wanted:
    """What is to be learned.

    Args:
        kind: of tokenizer; `file` needs none.
        size: ids at most, padding and unknown included; as many as there are when None.
        min_count: how often a token, or a pair that is merged, occurs in the training texts at least.
        lower: make texts lower case before.
    """

    kind: Literal["words", "characters", "bpe"]
    size: int | None = None
    min_count: int = 1
    lower: bool = False


def damaged(why: str) -> PeError:
    """Return the error of a state that is none."""
    return PeError(
        f"these are not the tokens of a run: {why}", hint="take another checkpoint of the run", code=ExitCode.DATA
    )


def most_frequent(found: NDArray[np.int64], keep: int | None, least: int, key: Callable[[int], Any]) -> list[int]:
    """Return the indices of the largest counts: the most frequent first, equal ones in the order of their keys.

    Args:
        found: int64, counts.
        keep: number of them at most; all when None.
        least: count that is kept at least.
        key: index -> what equal counts are sorted by; different for all.
    """
    there = np.flatnonzero(found >= max(1, least))
    if keep is not None and len(there) > keep:
        # Of equally frequent ones the order of the key decides, so that a vocabulary is the same on every machine.
        limit = np.partition(found[there], len(there) - keep)[len(there) - keep] if keep else ALL
        there = there[found[there] >= limit]
    order = sorted(there.tolist(), key=lambda i: (-int(found[i]), key(i)))
    return order if keep is None else order[:keep]
