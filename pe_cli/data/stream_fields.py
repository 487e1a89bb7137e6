"""Fields of a table that is read as a stream: stretches are decoded when samples of them are taken, and those used last are kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.column_usage import ColumnUsage
from pe_cli.data.dataset import Array, Dataset
from pe_cli.data.feed_samples import Encoder
from pe_cli.data.fields import ArrayField, Field, Rows, SequenceField, is_picture
from pe_cli.data.fitted_columns import Fitted
from pe_cli.data.raw_cells import Table
from pe_cli.data.spill_storage import most_of_one
from pe_cli.data.tables.stream import StreamTable
from pe_cli.data.tables.table_files import PartsTable

#: Samples of a stretch of data that is no stream.
STORED = 1024
#: Makes the fields of some rows.
Encode = Callable[[PartsTable], Mapping[str, Field]]


class StreamPieces:
    """The stretches of a table, encoded; those that were used last stay in memory.

    Args:
        table: the rows.
        encode: makes fields of a stretch.
    """

    def __init__(self, table: StreamTable, encode: Encode) -> None:
        self.table, self._encode = table, encode
        self.starts = table.stretches
        self._kept: OrderedDict[int, Mapping[str, Field]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.RLock()

    def check_room(self, stretches: int, say: Callable[[str], None]) -> None:
        """Say so where stretches that are taken from together do not fit into memory, so that each batch decodes them anew."""
        size, most = _bytes(self.of(0)) * min(stretches, len(self.starts) - 1), int(most_of_one())
        if size > most:
            say(
                f"a batch has rows of {stretches} stretches of about {size // stretches:,} bytes, and half of data.memory is {most:,}: "
                "they are decoded again and again; set a larger data.memory, or write smaller row groups"
            )

    # A lock, because the threads that make batches share what is decoded.
    def of(self, stretch: int) -> Mapping[str, Field]:
        """Return the fields of a stretch.

        Raises:
            PeError: DATA; a cell is not what its column takes, or a file is damaged.
        """
        with self._lock:
            found = self._kept.get(stretch)
            if found is None:
                # Decoded under the lock: two threads that need the same stretch wait for one of them instead of decoding twice.
                found = self._kept[stretch] = self._encode(self.table.piece(stretch))
                self._bytes += _bytes(found)
            self._kept.move_to_end(stretch)
            # The last one stays whatever its size, or a batch could never be made.
            while self._bytes > most_of_one() and len(self._kept) > 1:
                self._bytes -= _bytes(self._kept.popitem(last=False)[1])
            return found


def _bytes(fields: Mapping[str, Field]) -> int:
    return sum(field.values.nbytes + getattr(field, "offsets", _NONE).nbytes for field in fields.values() if hasattr(field, "values"))


_NONE = np.zeros(0, np.int64)


class StreamField:
    """A field whose samples are decoded when they are taken; see `Field`.

    Args:
        pieces: the stretches.
        name: of the field in them.

    Raises:
        PeError: DATA; the first stretch cannot be read. USAGE; the field is one of pictures.
    """

    def __init__(self, pieces: StreamPieces, name: str) -> None:
        first = pieces.of(0)[name]
        if is_picture(first):
            raise PeError(f"column '{name}' holds pictures, which no stream of a table has", hint="leave stream out", code=ExitCode.DATA)
        self.pieces, self._name = pieces, name
        self.type, self.sequences = first.type, first.sequences
        self.parts = first.parts if isinstance(first, ArrayField) else {}

    def __len__(self) -> int:
        return len(self.pieces.table)

    def take(self, rows: Rows) -> tuple[Array, NDArray[np.int64] | None]:
        """Return copies of some samples; see `Field.take`."""
        stretch = np.searchsorted(self.pieces.starts, rows, "right") - 1
        # Rows are grouped by stretch, so that each is decoded once for a batch.
        order = np.argsort(stretch, kind="stable")
        taken: list[tuple[Rows, Array, NDArray[np.int64] | None]] = []
        numbers, first = np.unique(stretch[order], return_index=True)
        for one, at in zip(numbers.tolist(), np.split(order, first[1:]) if len(order) else [], strict=True):
            values, offsets = self.pieces.of(one)[self._name].take(rows[at] - self.pieces.starts[one])
            taken.append((at, values, offsets))
        if self.sequences:
            return self._sequences(len(rows), taken)
        found = np.empty((len(rows), *self.type.shape), self.type.numpy)
        for at, values, _ in taken:
            found[at] = values
        return found, None

    def _sequences(self, count: int, taken: list[tuple[Rows, Array, NDArray[np.int64] | None]]) -> tuple[Array, NDArray[np.int64]]:
        """Return sequences of several stretches in the order that was asked for."""
        lengths = np.zeros(count, np.int64)
        for at, _, offsets in taken:
            assert offsets is not None
            lengths[at] = np.diff(offsets)
        # Sequences come in the order of stretches and are put back into the order of the batch.
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[np.concatenate([at for at, _, _ in taken] or [_NONE])])])
        values = np.concatenate([values for _, values, _ in taken]) if taken else np.empty((0, *self.type.shape), self.type.numpy)
        place = np.empty(count, np.int64)
        place[np.concatenate([at for at, _, _ in taken] or [_NONE])] = np.arange(count)
        whole = SequenceField(values, before, self.type.dtype)
        return whole.take(place)


def streamed(
    alone: Callable[[], Encoder], fitted: Fitted, table: StreamTable, wanted: Sequence[ColumnUsage], use: str
) -> dict[str, Field]:
    """Return fields whose samples are read and encoded when they are taken.

    Args:
        alone: makes what encodes a stretch, of which nothing stays.
        fitted: what columns have learned.
        table: the rows.
        wanted: fields that feeds take.
        use: for messages.

    Raises:
        PeError: DATA; a column needs the row before, or the first stretch cannot be read.
    """
    for column in fitted.columns.values():
        if getattr(column.checked, "missing", None) == "previous":
            # Sequential by nature: what fills a gap may lie in a stretch that is not there.
            said = f"column '{column.name}' has missing: previous, and a stream does not know the row before"
            raise PeError(said, hint="leave stream out, or fill gaps otherwise", code=ExitCode.DATA)
    pieces = StreamPieces(table, lambda piece: alone().encoded(piece, wanted, use))
    return {want.field: StreamField(pieces, want.field) for want in wanted}


def learned_from(table: Table, say: Callable[[str], None]) -> Table:
    """Return the rows that columns learn from: of a stream, some of them, which is said."""
    if not isinstance(table, StreamTable):
        return table
    if len(table.sample_rows) < len(table):
        # A sample of a stream stands for all of it, and a user has to know that.
        say(f"columns learn from {len(table.sample_rows):,} of {len(table):,} training rows, spread evenly over the stream")
    return table.sample


def stretches_of(dataset: Dataset) -> NDArray[np.int64]:
    """Return the first sample of each stretch of samples that lie together, and the number of all, int64 [stretches + 1]."""
    pieces = pieces_of(getattr(dataset, "columns", {}))
    if pieces is not None and getattr(dataset, "rows", None) is None:
        return pieces.starts
    return np.append(np.arange(0, len(dataset), STORED, dtype=np.int64), len(dataset))


def pieces_of(fields: Mapping[str, Field]) -> StreamPieces | None:
    """Return the stretches that fields are streamed from; None where they are not."""
    found = next(iter(fields.values()), None)
    return found.pieces if isinstance(found, StreamField) else None
