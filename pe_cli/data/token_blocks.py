"""Blocks of tokens: a long text as one stream of ids, cut into samples of equal length, for language models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.data.dataset import Array
from pe_cli.data.fields import Rows
from pe_cli.data.notation import Notations
from pe_cli.data.raw_cells import Cells, ListCells, Strings
from pe_cli.data.reader_context import Origin

if TYPE_CHECKING:
    from pe_cli.data.machine_processes import MachineProcesses
    from pe_cli.data.tokens.base import Tokenizer

#: Pieces that are cut into tokens together; no token goes over the end of such a stretch.
STRETCH = 128


class BlockField:
    """Blocks of a stream of ids.

    Args:
        ids: int32 [total].
        starts: int64 [blocks], the first id of each.
        length: ids of a block.
    """

    sequences = False

    def __init__(self, ids: NDArray[np.int32], starts: NDArray[np.int64], length: int) -> None:
        self.ids, self.starts = ids, starts
        self.type = TensorType((length,), "int64")
        self._within = np.arange(length, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: Rows) -> tuple[Array, NDArray[np.int64] | None]:
        """Return copies of some blocks; see `pe_cli.data.fields.Field.take`."""
        # Widened for a batch alone: a text's ids take half the memory in 32 bits.
        return self.ids[self.starts[rows][:, None] + self._within].astype(np.int64), None


class BlockTable:
    """A table whose rows are blocks; see `pe_cli.data.raw_cells.Table`.

    Args:
        name: of the column of texts.
        ids: int32 [total], the stream.
        starts: int64 [blocks].
        length: ids of a block.
        tokens: the tokenizer that made the ids.
        origin: gives errors their place.
    """

    def __init__(
        self, name: str, ids: NDArray[np.int32], starts: NDArray[np.int64], length: int, tokens: Tokenizer, origin: Origin
    ) -> None:
        self.implied: Mapping[str, Mapping[str, Any]] = {}
        self.names: tuple[str, ...] = (name,)
        self._ids, self._starts, self._length = ids, starts, length
        self._tokens, self._origin = tokens, origin

    def __len__(self) -> int:
        return len(self._starts)

    def blocks(self, shift: int) -> BlockField:
        """Return the blocks, or those that begin so many ids later."""
        return BlockField(self._ids, self._starts + shift, self._length)

    def cells(self, name: str) -> Cells:
        """Return the text of every block."""
        parts = (self._ids[start : start + self._length].tolist() for start in self._starts.tolist())
        return ListCells(name, [self._tokens.decode(ids) for ids in parts], missing=())

    def prepare(self, numbers: Notations, codes: Sequence[str], together: MachineProcesses | None = None) -> None:
        """Do nothing: all is read."""

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a block."""
        return self._origin.error(f"block {row + 1}, column '{name}': {message}", hint)


def cut_blocks(
    name: str, strings: Strings, breaks: NDArray[np.int64], rows: Rows | None, tokens: Tokenizer, length: int, stride: int, origin: Origin
) -> BlockTable:
    """Cut pieces of a text into blocks. A block never goes over a gap between pieces.

    Args:
        name: of the column.
        strings: the pieces.
        breaks: int64, sorted, pieces that begin a file: no token goes over them, but a block may.
        rows: int64, sorted, the pieces that are meant; all when None.
        tokens: makes ids of them.
        length: ids of a block.
        stride: ids from the start of a block to that of the next one.
        origin: gives errors their place.

    Raises:
        PeError: DATA; there are too few tokens for a block.
    """
    rows = np.arange(len(strings), dtype=np.int64) if rows is None else rows
    jumps = np.flatnonzero(np.diff(rows) != 1) + 1
    # Runs of pieces that stand next to each other in the text are one text.
    firsts, lasts = rows[np.append(0, jumps)], rows[np.append(jumps - 1, len(rows) - 1)] + 1
    every = np.arange(0, len(strings) + 1, STRETCH, dtype=np.int64)
    bounds = np.unique(np.concatenate([every, breaks, firsts, lasts, [0, len(strings)]]))
    # Stretches that no wanted piece lies in are not encoded.
    inside = np.searchsorted(firsts, bounds[:-1], side="right") - 1
    meant = np.flatnonzero((inside >= 0) & (bounds[:-1] < lasts[np.maximum(inside, 0)]))
    found = tokens.encode_many(Strings(strings.bytes, strings.offsets[bounds]), meant)
    # the ids of a run of pieces are those of its stretches
    begins = found.offsets[np.searchsorted(bounds[meant], firsts)]
    ends = np.append(begins[1:], len(found.ids))
    starts = [np.arange(begin, end - length, stride, dtype=np.int64) for begin, end in zip(begins, ends, strict=True)]
    joined = np.concatenate(starts)
    if not len(joined):
        raise origin.error(
            f"blocks: {length} needs {length + 1} tokens side by side, and a part of the text has {int((ends - begins).max())}",
            "smaller blocks, a larger share of the split, or more text",
        )
    return BlockTable(name, found.ids, joined, length, tokens, origin)
