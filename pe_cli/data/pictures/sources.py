"""Where the pictures of a column come from: files, or an array; and what their headers say of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pe_cli.collectives.protocol import Communicator
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.column import Context
from pe_cli.data.dataset import Array
from pe_cli.data.fields import Rows
from pe_cli.data.pictures import decode_threads
from pe_cli.data.pictures.archive_members import archive_of
from pe_cli.data.pictures.cache import PICTURES
from pe_cli.data.pictures.decode import Header, Recipe, header, of_array, read, stamp
from pe_cli.data.pictures.picture_checks import Broken, Unreadable, pillow


class Pictures(Protocol):
    """The pictures of a column."""

    def __len__(self) -> int:
        """Number of rows."""

    def load(self, row: int) -> Array:
        """Return the picture of a row, uint8 [height, width, channels], which is not to be changed.

        Raises:
            PeError: DATA; it cannot be read.
        """


@dataclass
class Survey:
    """What headers say of the pictures of a column.

    Args:
        sizes: int64 [rows, 2], height and width; 0 where a picture is broken.
        notes: sentence -> number of pictures that it is true of.
    """

    sizes: NDArray[np.int64]
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Which rows have a picture that can be read."""
        return self.sizes[:, 0] > 0


class Files:
    """Pictures in files.

    Args:
        context: the column that holds their paths.
        source: name of that column.
        folder: that paths start from and may not leave.
        recipe: how they become pixels.
    """

    def __init__(self, context: Context, source: str, folder: Path, recipe: Recipe) -> None:
        found = context.table.cells(source).codes()
        self._context, self._source, self.recipe = context, source, recipe
        self.codes, self.words = found.codes, found.words
        self.folder = Path(os.path.realpath(folder))
        self._checked: dict[str, Broken | None] = {}
        self._owner = context.table

    def __len__(self) -> int:
        return len(self.codes)

    def path(self, code: int) -> str:
        """Return the path of a distinct picture."""
        return os.path.join(self.folder, self.words[code])  # noqa: PTH118 - many times faster, and called for every picture

    def error(self, row: int, broken: Broken) -> PeError:
        """Return the error of a row's picture."""
        code = int(self.codes[row])
        if code < 0:
            return self._context.error(row, "there is no path", "fill the cell, or set broken: skip", self._source)
        return self._context.error(row, f"{self.path(code)} {broken.why}", broken.hint, self._source)

    def survey(self, rows: Rows | None, broken: Literal["error", "skip"]) -> Survey:
        """Read headers.

        Args:
            rows: those that are looked at; all when None.
            broken: whether a picture that cannot be read is an error.

        Raises:
            PeError: DATA; the first of these, with the number of the others.
        """
        pillow()
        wanted = self.codes if rows is None else self.codes[rows]
        codes = np.unique(wanted[wanted >= 0])
        found: list[Header | Broken | None] = [None] * len(self.words)

        def look(start: int, end: int) -> None:
            for code in codes[start:end].tolist():
                found[code] = self._look(code)

        decode_threads.in_parts(look, len(codes))
        sizes = np.zeros((len(self.words) + 1, 2), np.int64)
        notes: Counter[str] = Counter()
        times = np.bincount(wanted[wanted >= 0], minlength=len(self.words))
        for code in codes.tolist():
            one = found[code]
            if isinstance(one, Header):
                sizes[code] = one.height, one.width
                for note in one.notes:
                    notes[note] += int(times[code])
        made = Survey(np.zeros((len(self.codes), 2), np.int64), notes)
        made.sizes[slice(None) if rows is None else rows] = sizes[wanted]
        bad = np.flatnonzero(sizes[wanted][:, 0] == 0)
        if len(bad) and broken == "error":
            raise self._refused(bad if rows is None else rows[bad], found)
        return made

    def _refused(self, bad: Rows, found: Sequence[Header | Broken | None]) -> PeError:
        row = int(bad[0])
        one = found[int(self.codes[row])] if self.codes[row] >= 0 else None
        assert not isinstance(one, Header)
        error = self.error(row, one or Broken("", ""))
        if len(bad) > 1:
            error.message += f"; {len(bad) - 1:,} more rows have no picture that can be read"
        return error

    def _look(self, code: int) -> Header | Broken:
        path = self.path(code)
        refused = self._leaves(path)
        if refused is not None:
            return refused
        try:
            return header(path, self.recipe.mode, stamp(path))
        except Unreadable as error:
            return error.broken

    def _leaves(self, path: str) -> Broken | None:
        """Return what is wrong with a path that leads out of the folder; symbolic links are followed."""
        path = archive_of(path)
        parent, name = os.path.split(path)
        try:
            if parent not in self._checked:
                self._checked[parent] = self._outside(os.path.realpath(parent))
            # links are rare: only they are followed to their end
            if name in ("", ".", "..") or os.path.islink(path):  # noqa: PTH114 - see path
                return self._outside(os.path.realpath(path))
        except ValueError as error:
            return Broken(f"is no path: {error}", "correct the cell")
        return self._checked[parent]

    def _outside(self, real: str) -> Broken | None:
        if real == str(self.folder) or real.startswith(f"{str(self.folder).rstrip('/')}/"):
            return None
        hint = "copy the pictures into the folder, or name one that holds them all: folder: PATH"
        return Broken(f"leads out of the folder {self.folder}, to {real}", hint)

    def verify(self, survey: Survey, peers: Communicator | None = None, most: int | None = None) -> int:
        """Decode every picture once, and mark those in the survey that are cut off or damaged.

        Args:
            survey: of the pictures.
            peers: processes that do the same at the same time; each decodes its share.
            most: number of pictures that are decoded, from all over the column; all when None.

        Returns:
            The number of rows that were marked.
        """
        good = np.flatnonzero(survey.usable)
        if most is not None and len(good) > most:
            good = good[np.linspace(0, len(good) - 1, most).astype(np.int64)]
        mine, bad = _share(np.arange(len(good)), peers), np.zeros(len(good), np.int64)

        def check(start: int, end: int) -> None:
            for i in mine[start:end].tolist():
                try:
                    self._load(int(good[i]))
                except Unreadable:
                    bad[i] = 1

        decode_threads.in_parts(check, len(mine))
        bad = bad if peers is None else peers.total(bad)
        survey.sizes[good[bad > 0]] = 0
        return int(bad.sum())

    def load(self, row: int) -> Array:
        """Return the picture of a row; see `Pictures.load`.

        Raises:
            PeError: the file is no picture, or cannot be read; with its place.
        """
        try:
            return self._load(row)
        except Unreadable as error:
            raise self.error(row, error.broken) from None

    def _load(self, row: int) -> Array:
        code = int(self.codes[row])
        if code < 0:
            raise Unreadable(Broken("has no path", "fill the cell"))
        path = self.path(code)
        key = (path, stamp(path), self.recipe)
        found = PICTURES.get(key)
        if found is None:
            refused = self._leaves(path)  # a link may have been put there since
            if refused is not None:
                raise Unreadable(refused)
            found = read(path, self.recipe)
            if not found.flags.c_contiguous:
                found = np.ascontiguousarray(found)
            PICTURES.put(key, found, self._owner)
        return found


class Stored:
    """Pictures in an array.

    Args:
        values: uint8 [rows, height, width], [rows, height, width, channels] or [rows, channels, height, width].
        last: whether channels are the last axis.
        recipe: what they are made.
    """

    def __init__(self, values: Array, last: bool, recipe: Recipe) -> None:
        self.values, self._last, self.recipe = values, last, recipe

    def __len__(self) -> int:
        return len(self.values)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        shape = self.values.shape[1:]
        return (shape[0], shape[1]) if len(shape) == 2 or self._last else (shape[1], shape[2])

    def load(self, row: int) -> Array:
        """Return the picture of a row; see `Pictures.load`."""
        pixels = self.values[row]
        if pixels.ndim == 2:
            pixels = pixels[:, :, None]
        elif not self._last:
            pixels = pixels.transpose(1, 2, 0)
        return of_array(pixels, self.recipe)


def _share(rows: Rows, peers: Communicator | None) -> Rows:
    """Return what this process looks at of rows that others look at, too."""
    return rows if peers is None else rows[peers.rank :: peers.size]


def moments(
    source: Pictures, rows: Iterable[int], channels: int, peers: Communicator | None = None
) -> tuple[list[float], list[float]]:
    """Return mean and deviation of every channel over all pixels of some pictures, in units of 255.

    They are the same for any number of threads and processes, whose counts are whole numbers.

    Args:
        source: of the pictures.
        rows: that count.
        channels: of a picture.
        peers: processes that ask for the same at the same time; each decodes its share.
    """
    from pe_cli.data.pictures.transform_programs import count_bytes

    chosen = _share(np.fromiter(rows, np.int64), peers)
    parts: list[NDArray[np.int64]] = []

    def count(start: int, end: int) -> None:
        counts = np.zeros((channels, 256), np.int64)
        for row in chosen[start:end].tolist():
            count_bytes(source.load(row), counts)
        parts.append(counts)

    decode_threads.in_parts(count, len(chosen))
    total: NDArray[np.int64] = np.sum([np.zeros((channels, 256), np.int64), *parts], axis=0)
    if peers is not None:
        total = peers.total(total.reshape(-1)).reshape(total.shape)
    values = np.arange(256) / 255
    number = total.sum(axis=1)
    means = (total * values).sum(axis=1) / number
    squares = (total * (values - means[:, None]) ** 2).sum(axis=1) / number
    return means.tolist(), np.sqrt(squares).tolist()
