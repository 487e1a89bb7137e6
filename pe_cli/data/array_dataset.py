"""Data sets of arrays as tables, and parts of data sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import PeError
from pe_cli.data.dataset import Array, Batch, Dataset, one_field, sequence_fields
from pe_cli.data.fields import ArrayField, Rows, SequenceField
from pe_cli.data.notation import PLAIN, Notation, Notations
from pe_cli.data.raw_cells import SHOWN, Cells, Codes, Numbers, Strings, Table, join_strings
from pe_cli.data.reader_context import Origin
from pe_cli.ops.define.lod import offsets_name

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from pe_cli.data.machine_processes import MachineProcesses


def is_table(data: Dataset | Table) -> TypeIs[Table]:
    """Return whether a reader gave a table of cells, not a data set of arrays."""
    return hasattr(data, "cells")


class Subset:
    """Some samples of a data set, in the order given.

    Args:
        dataset: the whole.
        rows: int64 [samples], indices into it.
    """

    def __init__(self, dataset: Dataset, rows: Rows) -> None:
        self.fields = dataset.fields
        self.classes: dict[str, tuple[str, ...]] = getattr(dataset, "classes", {})
        self.sequences = sequence_fields(dataset)
        self._dataset, self.rows = dataset, rows

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, indices: Rows) -> Batch:
        """Return copies of some samples; see `Dataset.take`."""
        return self._dataset.take(self.rows[indices])

    def one(self, name: str, indices: Rows) -> Array:
        """Return copies of some samples of one field; see `Dataset.take`."""
        return one_field(self._dataset, name, self.rows[indices])


class Shards:
    """Data sets one behind the other, of the same fields.

    Args:
        shards: at least one.
        names: what each is called in messages.
        origin: gives errors their place.

    Raises:
        PeError: DATA; their fields differ.
    """

    def __init__(self, shards: Sequence[Dataset], names: Sequence[str], origin: Origin) -> None:
        self.fields = shards[0].fields
        for shard, name in zip(shards, names, strict=True):
            # Named with both shards, because which of the two is wrong only the user knows.
            odd = next((field for field, kind in shard.fields.items() if kind != self.fields[field]), None)
            if odd is not None:
                said = f"{name} has field '{odd}' of {shard.fields[odd]}, and {names[0]} of {self.fields[odd]}"
                raise origin.error(said, "shards of one field have samples of one shape and one element type")
        self._shards = list(shards)
        self._starts = np.cumsum([0, *map(len, shards)], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def take(self, indices: Rows) -> Batch:
        """Return copies of some samples; see `Dataset.take`."""
        return {name: self.one(name, indices) for name in self.fields}

    def one(self, name: str, indices: Rows) -> Array:
        """Return copies of some samples of one field; see `Dataset.take`."""
        # Rows of a batch lie in any shard; each shard is asked once.
        found = np.empty((len(indices), *self.fields[name].shape), self.fields[name].numpy)
        shard = np.searchsorted(self._starts, indices, "right") - 1
        for number in np.unique(shard).tolist():
            here = shard == number
            found[here] = one_field(self._shards[number], name, indices[here] - self._starts[number])
        return found


class ArrayCells:
    """A field of a data set as a column.

    Args:
        name: of the field.
        values: [rows, *shape].
    """

    def __init__(self, name: str, values: Array) -> None:
        self.name = name
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def array(self) -> Array:
        """Return the field."""
        return self._values

    def _flat(self) -> Array:
        return self._values.reshape(len(self._values), -1)[:, 0]

    def numbers(self, notation: Notation = PLAIN) -> Numbers:
        """Return the first number of every sample."""
        values = np.asarray(self._flat(), np.float64)
        # The array may be a map of the user's file, which must not be changed.
        if notation.empty:
            values = values.copy()
            notation.drop_empty(values)
        bad = np.flatnonzero(np.isinf(values))
        return Numbers(values, bad[:SHOWN], len(bad))

    @cached_property
    def _codes(self) -> Codes:
        distinct, first, codes = np.unique(self._flat(), return_index=True, return_inverse=True)
        # Classes in the order in which they first appear, as for a table that is read from text.
        order = np.argsort(first, kind="stable")
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        return Codes(place[codes.reshape(-1)], [self._said(distinct[i]) for i in order])

    @staticmethod
    def _said(value: Any) -> str:
        return str(value.item())

    def codes(self) -> Codes:
        """Return the first number of every sample as a code of its text."""
        return self._codes

    def strings(self) -> Strings:
        """Return the first number of every sample as text."""
        return join_strings([self._said(value).encode() for value in self._flat()])

    def text(self, row: int) -> str:
        """Return the first number of a sample as text."""
        return self._said(self._flat()[row])


class DatasetTable:
    """A data set as a table: its fields are the columns.

    Args:
        dataset: the samples.
        origin: gives errors their place.
    """

    def __init__(self, dataset: Dataset, origin: Origin) -> None:
        self.implied: Mapping[str, Mapping[str, Any]] = {}
        self.dataset = dataset
        self._origin = origin
        self._cells: dict[str, ArrayCells] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fields."""
        return tuple(self.dataset.fields)

    def __len__(self) -> int:
        return len(self.dataset)

    def cells(self, name: str) -> Cells:
        """Return a field as a column; see `Table.cells`."""
        if name not in self._cells:
            found = getattr(self.dataset, "arrays", {}).get(name)
            if found is None:
                found = one_field(self.dataset, name, np.arange(len(self.dataset), dtype=np.int64))
            self._cells[name] = ArrayCells(name, found)
        return self._cells[name]

    def field(self, name: str) -> ArrayField | SequenceField:
        """Return a field as it is."""
        kind = self.dataset.fields[name]
        if name in sequence_fields(self.dataset):
            found = self.dataset.take(np.arange(len(self.dataset), dtype=np.int64))
            return SequenceField(found[name], found[offsets_name(name, 0)], kind.dtype)
        values = self.cells(name).array()
        assert values is not None
        return ArrayField(values, kind.dtype)

    def prepare(self, numbers: Notations, codes: Sequence[str], together: MachineProcesses | None = None) -> None:
        """Do nothing: arrays are there."""

    def error(self, row: int, name: str, message: str, hint: str | None = None) -> PeError:
        """Return a data error at a sample."""
        return self._origin.error(f"sample {row} of field '{name}': {message}", hint)


def row_keys(columns: Iterable[NDArray[Any]]) -> NDArray[np.uint64]:
    """Hash rows of several columns, so that equal rows have equal keys.

    Args:
        columns: [rows] each, of 8 bytes or less per element.

    Returns:
        uint64 [rows]; unequal rows have equal keys with a probability of about 2**-64.
    """
    keys: NDArray[np.uint64] | None = None
    for column in columns:
        # Floats by their bits: equal numbers are equal rows, and NaN is equal to itself.
        wide = np.ascontiguousarray(column, np.float64 if column.dtype.kind == "f" else np.int64).view(np.uint64)
        # Constants and shifts of splitmix64's finaliser, which spreads every bit over all.
        mixed = wide * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(0xD6E8FEB86659FD93)
        mixed ^= mixed >> np.uint64(29)
        keys = mixed if keys is None else (keys * np.uint64(0xBF58476D1CE4E5B9)) ^ mixed ^ (keys >> np.uint64(31))
    assert keys is not None
    return keys
