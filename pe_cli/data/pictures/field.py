"""The field of a picture column: pictures are decoded when samples are taken."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.types import TensorType
from pe_cli.data.dataset import Array
from pe_cli.data.fields import Rows
from pe_cli.data.pictures import decode_threads
from pe_cli.data.pictures.sources import Pictures
from pe_cli.data.pictures.transform_programs import Program, Shape, middle, render


class ImageField:
    """Samples made of pictures; see `pe_cli.data.fields.PictureField`.

    Args:
        source: the pictures, all of the sizes `stored`.
        stored: sizes of one.
        shown: sizes of a sample; the middle of a picture, where nothing else is asked for.
        table: float32 [channels, 256], the number that a byte becomes; None leaves bytes.
        last: whether channels are the last axis of a sample, or the first.
        usable: bool [rows], which rows have a picture; None for all.
        threads: that work on a batch; one for each core of the process when None.
    """

    sequences = False

    def __init__(
        self,
        source: Pictures,
        stored: Shape,
        shown: Shape,
        table: Array | None,
        last: bool,
        usable: NDArray[np.bool_] | None = None,
        threads: int | None = None,
    ) -> None:
        self.source, self.stored, self.shown, self.usable = source, stored, shown, usable
        self.threads = threads
        self._table = None if table is None else np.ascontiguousarray(table, np.float32)
        self.last = last
        height, width, channels = shown.height, shown.width, shown.channels
        shape = (height, width, channels) if last else (channels, height, width)
        self.type = TensorType(shape, "uint8" if table is None else "float32")

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: Rows) -> tuple[Array, None]:
        """Return some samples; see `Field.take`."""
        if self.stored == self.shown:
            return self.take_augmented(rows, Program((), (self.stored,))), None
        step = middle(self.stored, self.shown, len(rows))
        return self.take_augmented(rows, Program((step,), (self.stored, self.shown))), None

    def take_augmented(self, rows: Rows, program: Program) -> Array:
        """Return some samples, changed; see `PictureField.take_augmented`."""
        assert program.shapes[0] == self.stored
        assert program.shape == self.shown
        out = np.empty((len(rows), *self.type.shape), self.type.numpy)

        def work(start: int, end: int) -> None:
            pictures = [self.source.load(row) for row in rows[start:end].tolist()]
            render(pictures, program, start, self._table, out, self.last)

        decode_threads.in_parts(work, len(rows), self.threads)
        return out

    def pictures(self, rows: Rows) -> Sequence[Array]:
        """Return pictures as they are stored, uint8 [height, width, channels], for people to look at."""
        return [self.source.load(row) for row in rows.tolist()]


def byte_table(mean: Sequence[float], deviation: Sequence[float]) -> Array:
    """Return the number of every byte, float32 [channels, 256]: (byte / 255 - mean) / deviation, rounded once."""
    unit = np.arange(256) / 255
    table: Array = ((unit - np.asarray(mean)[:, None]) / np.asarray(deviation)[:, None]).astype(np.float32)
    return table
