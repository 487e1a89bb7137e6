"""Fields: columns as the model will see them, and the data set that is made of some of them.

Nothing here is random. What augmentation does to the samples of an epoch is drawn before (`pe_cli.data.augment`), by the table's rows:
fields of pictures take it along as a program, which is run on each picture before its bytes become numbers; arrays of other fields are
changed after they were taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.data.dataset import Array, Batch
from pe_cli.ops.define.lod import offsets_name

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from pe_cli.data.pictures.transform_programs import Program, Shape

Rows = NDArray[np.int64]


class Field(Protocol):
    """A column, encoded.

    Attributes:
        type: of one sample; of a field of sequences, of a row of it.
        sequences: whether a sample is a sequence of any length.
    """

    type: TensorType
    sequences: bool

    def __len__(self) -> int:
        """Number of rows of the table."""

    def take(self, rows: Rows) -> tuple[Array, NDArray[np.int64] | None]:
        """Return copies of some samples, from any thread.

        Args:
            rows: int64 [batch], of the table.

        Returns:
            A C-contiguous array [batch, *type.shape] of the field's type and None; or, of sequences, the rows of all samples and
            their offsets, int64 [batch + 1].
        """


class PictureField(Field, Protocol):
    """A field whose samples are made of pictures, so that augmentation may change them first.

    Attributes:
        stored: sizes of a picture that a program begins with.
        shown: sizes of one that it has to end with.
        usable: bool [rows], which rows have a picture; None for all of them. Others are no samples.
        last: whether channels are the last axis of a sample, or the first.
    """

    stored: Shape
    shown: Shape
    last: bool
    usable: NDArray[np.bool_] | None

    def take_augmented(self, rows: Rows, program: Program) -> Array:
        """Return some samples, changed.

        Args:
            rows: int64 [batch], of the table.
            program: for a batch of so many, from `stored` to `shown`.

        Returns:
            As `take`: a C-contiguous array [batch, *type.shape].
        """


class MovedField(Field, Protocol):
    """A field of what lies over pictures, such as masks and boxes, which moves as augmentation moves those.

    Attributes:
        over: column of the pictures.
    """

    over: str

    def take_moved(self, rows: Rows, program: Program) -> Array:
        """Return some samples, moved.

        Args:
            rows: int64 [batch], of the table.
            program: what is done with the pictures of a batch of so many.

        Returns:
            As `take`: a C-contiguous array [batch, *type.shape].
        """


def is_moved(field: Field) -> TypeIs[MovedField]:
    """Return whether a field's samples move with pictures."""
    return hasattr(field, "take_moved")


def is_picture(field: Field) -> TypeIs[PictureField]:
    """Return whether a field's samples are made of pictures."""
    return hasattr(field, "take_augmented")


class ArrayField:
    """A field of equal samples.

    Args:
        values: [rows, *shape] of any type that `dtype` holds; in memory or mapped.
        dtype: element type of the field.
        parts: column of numbers -> its elements of the last axis, where several columns were joined.
    """

    sequences = False

    def __init__(self, values: Array, dtype: str, parts: Mapping[str, slice] | None = None) -> None:
        self.values, self.parts = values, dict(parts or {})
        self.type = TensorType(tuple(int(n) for n in values.shape[1:]), dtype)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Rows) -> tuple[Array, NDArray[np.int64] | None]:
        """Return copies of some samples; see `Field.take`."""
        return np.ascontiguousarray(self.values[rows], dtype=self.type.numpy), None


class SequenceField:
    """A field whose samples are sequences of rows.

    Args:
        values: [total, *shape], the rows of all samples.
        offsets: int64 [rows + 1].
        dtype: element type of the field.
    """

    sequences = True

    def __init__(self, values: Array, offsets: NDArray[np.int64], dtype: str) -> None:
        self.values, self.offsets = values, offsets
        self.type = TensorType(tuple(int(n) for n in values.shape[1:]), dtype)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, rows: Rows) -> tuple[Array, NDArray[np.int64]]:
        """Return the rows of some samples; see `Field.take`."""
        starts, ends = self.offsets[rows], self.offsets[rows + 1]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(ends - starts, out=offsets[1:])
        # Places within each sequence, made for all rows at once: a loop over rows would take longer than the step.
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))
        found = self.values[np.repeat(starts, np.diff(offsets)) + within]
        return np.ascontiguousarray(found, dtype=self.type.numpy), offsets


class FieldDataset:
    """Samples made of fields; see `pe_cli.data.dataset.Dataset`.

    Args:
        fields: by name, all of one table.
        rows: int64 [samples], the table's rows that are samples, in order; all of them when None. Those without a usable picture
            are left out.
        classes: field -> names of its classes.

    Raises:
        PeError: DATA; no row is left. USAGE; what lies over pictures has other sizes.
    """

    def __init__(
        self, fields: Mapping[str, Field], rows: Rows | None = None, classes: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self.columns = dict(fields)
        self.rows = _usable(fields, rows)
        _check_sizes(fields)
        self.fields = {name: field.type for name, field in fields.items()}
        self.sequences = frozenset(name for name, field in fields.items() if field.sequences)
        self.classes = dict(classes or {})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.rows is None else len(self.rows)

    def table_rows(self, indices: Rows) -> Rows:
        """Return which rows of the table some samples are: they stay the same however the table is split."""
        return indices if self.rows is None else self.rows[indices]

    def lengths(self, name: str) -> NDArray[np.int64] | None:
        """Return the rows of every sample of a field of sequences; None where they are not known before it is taken."""
        field = self.columns[name]
        if not isinstance(field, SequenceField):
            return None
        found: NDArray[np.int64] = np.diff(field.offsets)
        return found if self.rows is None else found[self.rows]

    def take(self, indices: Rows, programs: Mapping[str, Program] | None = None) -> Batch:
        """Return copies of some samples; see `Dataset.take`.

        Args:
            indices: int64 [batch].
            programs: field of pictures -> what is done with those of this batch.
        """
        rows = self.table_rows(indices)
        batch: Batch = {}
        for name, field in self.columns.items():
            # Pictures are augmented before their bytes become numbers, where rotating and cutting is cheap.
            if programs and name in programs:
                assert is_picture(field)
                batch[name] = field.take_augmented(rows, programs[name])
                continue
            if programs and is_moved(field) and field.over in programs:
                batch[name] = field.take_moved(rows, programs[field.over])
                continue
            batch[name], offsets = field.take(rows)
            if offsets is not None:
                batch[offsets_name(name, 0)] = offsets
        return batch


def _usable(fields: Mapping[str, Field], rows: Rows | None) -> Rows | None:
    """Return the rows that every field has a sample for."""
    masks = [mask for field in fields.values() if (mask := getattr(field, "usable", None)) is not None]
    if not masks:
        return rows
    mask = np.logical_and.reduce(masks)
    left: Rows = np.flatnonzero(mask) if rows is None else rows[mask[rows]]
    if not len(left):
        raise PeError("no row has a picture that can be read", hint="set broken: error to see why", code=ExitCode.DATA)
    return left


def _check_sizes(fields: Mapping[str, Field]) -> None:
    """Compare the sizes of what lies over pictures, and has sizes, with those of the pictures.

    Raises:
        PeError: USAGE; they differ.
    """
    for name, field in fields.items():
        if not is_moved(field):
            continue
        under, sizes = fields.get(field.over), [getattr(field, "stored", None), getattr(field, "shown", None)]
        if under is None or not is_picture(under) or sizes[0] is None:
            continue
        if list(map(str, sizes)) != list(map(str, (under.stored, under.shown))):
            said = f"column '{name}' has samples of {sizes[1]}, and those of '{field.over}', which it lies over, are {under.shown}"
            raise PeError(said, hint="give both columns the same size, crop_from and resize")
