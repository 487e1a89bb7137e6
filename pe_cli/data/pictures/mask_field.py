"""The field of a mask column: masks are read when samples are taken, and moved as the pictures under them are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.types import TensorType
from pe_cli.data.dataset import Array
from pe_cli.data.fields import Rows
from pe_cli.data.pictures import decode_threads
from pe_cli.data.pictures.cache import PICTURES
from pe_cli.data.pictures.decode import Recipe, resized, stamp
from pe_cli.data.pictures.mask_values import Palette, read_values
from pe_cli.data.pictures.moved import moved_mask
from pe_cli.data.pictures.picture_checks import Broken, Unreadable, pillow
from pe_cli.data.pictures.sources import Files
from pe_cli.data.pictures.transform_programs import Program, Shape, middle

#: Class of pixels that do not count.
IGNORED = 255


class Maps:
    """Masks as classes.

    Args:
        files: of the masks.
        known: value of a pixel -> class; others are `IGNORED`.
        palette, threshold: how values are read.
        recipe: size that they are made, and how.
    """

    def __init__(self, files: Files, known: Mapping[int, int], palette: Palette, threshold: int | None, recipe: Recipe) -> None:
        self._files, self._palette, self._threshold, self._recipe = files, palette, threshold, recipe
        self._values = np.array(sorted(known), np.int32)
        self._classes = np.array([known[value] for value in sorted(known)], np.uint8)

    def __len__(self) -> int:
        return len(self._files)

    def load(self, row: int) -> NDArray[np.uint8]:
        """Return the classes of a row's mask, [height, width], not to be changed.

        Raises:
            PeError: DATA; it cannot be read; with its place.
        """
        code = int(self._files.codes[row])
        try:
            if code < 0:
                raise Unreadable(Broken("has no path", "fill the cell"))
            path = self._files.path(code)
            key = (path, stamp(path), self._recipe, self._palette, self._threshold, self._values.tobytes(), self._classes.tobytes())
            found = PICTURES.get(key)
            if found is None:
                found = self._made(read_values(path, self._palette, self._threshold))
                PICTURES.put(key, found, self._files)
        except Unreadable as error:
            raise self._files.error(row, error.broken) from None
        return found

    def _made(self, values: NDArray[np.int32]) -> Array:
        at = np.searchsorted(self._values, values).clip(0, len(self._values) - 1)
        classes = np.where(self._values[at] == values, self._classes[at], np.uint8(IGNORED))
        assert self._recipe.size is not None
        image = resized(pillow().Image.fromarray(classes), self._recipe.size, self._recipe.resize, nearest=True, border=IGNORED)
        return np.array(image, np.uint8)


class MaskField:
    """Samples made of masks; see `pe_cli.data.fields.MovedField`.

    Args:
        maps: the masks, all of the sizes `stored`.
        over: column of the pictures that they lie over.
        stored: sizes of one.
        shown: sizes of a sample; the middle of a mask, where nothing else is asked for.
    """

    sequences = False

    def __init__(self, maps: Maps, over: str, stored: Shape, shown: Shape) -> None:
        self.maps, self.over, self.stored, self.shown = maps, over, stored, shown
        self.type = TensorType((shown.height, shown.width, 1), "int64")

    def __len__(self) -> int:
        return len(self.maps)

    def take(self, rows: Rows) -> tuple[Array, None]:
        """Return some samples; see `Field.take`."""
        if self.stored == self.shown:
            return self.take_moved(rows, Program((), (self.stored,))), None
        return self.take_moved(rows, Program((middle(self.stored, self.shown, len(rows)),), (self.stored, self.shown))), None

    def take_moved(self, rows: Rows, program: Program) -> Array:
        """Return some samples, moved; see `MovedField.take_moved`."""
        out = np.empty((len(rows), *self.type.shape), np.int64)

        def work(start: int, end: int) -> None:
            for i in range(start, end):
                out[i] = moved_mask(self.maps.load(int(rows[i])), program, i, IGNORED)[:, :, None]

        decode_threads.in_parts(work, len(rows))
        return out
