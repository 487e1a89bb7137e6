"""Data sets of the fields that feeds take: columns of a table, or fields of arrays, joined where a feed takes several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.data.column_usage import ColumnUsage
from pe_cli.data.dataset import Batch, Dataset, sequence_fields
from pe_cli.data.fields import Field, FieldDataset, Rows
from pe_cli.data.fitted_columns import Fitted
from pe_cli.data.raw_cells import Table


class Encoder(Protocol):
    """Says what the columns of tables mean: what `Prepared` is to a data set."""

    def columns(self, table: Table) -> tuple[str, ...]:
        """Return the names that feeds may take."""
        ...

    def fit(self) -> Fitted:
        """Return what columns have learned."""
        ...

    def encoded(self, table: Table, wanted: Sequence[ColumnUsage], use: str) -> dict[str, Field]:
        """Return fields of a table, joined where a feed takes several."""
        ...

    def classes(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return the names of the classes of columns, for those that have any."""
        ...

    def note_all(self, use: str, notes: Iterable[str]) -> None:
        """Tell what users should know of the data of a use."""
        ...


class TableDataset:
    """The rows of a table as samples; columns are encoded when they are first asked for.

    Args:
        prepared: says what the columns mean.
        table: the rows.
        rows: int64, those that are samples; all when None.
        use: for messages.
    """

    def __init__(self, prepared: Encoder, table: Table, rows: Rows | None, use: str) -> None:
        self.prepared, self.table, self.rows, self.use = prepared, table, rows, use
        self._all: FieldDataset | None = None
        self._made: tuple[Table, Rows | None] | None = None

    def __len__(self) -> int:
        table, rows = self._samples()
        return len(table) if rows is None else len(rows)

    def _samples(self) -> tuple[Table, Rows | None]:
        """Return the table whose rows are samples, and which: a table may make its samples of rows once its columns are fitted."""
        if self._made is None:
            # Tables whose samples are made of several rows make them when columns have learned, because a tokenizer may decide where they
            # begin.
            regroup = getattr(self.table, "regroup", None)
            self._made = (self.table, self.rows) if regroup is None else regroup(self.rows, self.prepared.fit())
            self.prepared.note_all(self.use, getattr(self.table, "notes", ()))
        return self._made

    def only(self, wanted: Sequence[ColumnUsage]) -> FieldDataset:
        """Return the samples with some fields.

        Raises:
            PeError: DATA; see `Prepared.encoded`.
        """
        table, rows = self._samples()
        fields = self.prepared.encoded(table, wanted, self.use)
        return FieldDataset(fields, rows, self.prepared.classes(fields))

    def _whole(self) -> FieldDataset:
        if self._all is None:
            # What nobody asks for by name is read as well, as whoever looks at all fields expects.
            known = self.prepared.columns(self.table)
            names = [name for name in self.prepared.fit().columns if name in known] or list(known)
            self._all = self.only([ColumnUsage((name,)) for name in names])
        return self._all

    @property
    def fields(self) -> dict[str, Any]:
        """Type of every column's field; see `Dataset.fields`."""
        return self._whole().fields

    @property
    def sequences(self) -> frozenset[str]:
        """Columns whose samples are sequences."""
        return self._whole().sequences

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """Names of the classes of columns, for those that have any."""
        return self.prepared.classes(self.prepared.fit().columns)

    def take(self, indices: Rows) -> Batch:
        """Return copies of some samples, with all columns; see `Dataset.take`."""
        return self._whole().take(indices)


class Joined:
    """A data set with fields that join others along their last axis.

    Args:
        dataset: has the fields that are joined.
        groups: new field -> those that make it.

    Raises:
        PeError: a field cannot be joined, or the fields differ in shape (exit code 3).
    """

    def __init__(self, dataset: Dataset, groups: Mapping[str, ColumnUsage]) -> None:
        self._dataset, self._groups = dataset, groups
        self.classes: dict[str, tuple[str, ...]] = getattr(dataset, "classes", {})
        self.sequences = sequence_fields(dataset)
        self.fields = dict(dataset.fields)
        for name, want in groups.items():
            for part in want.names:
                if part not in self.fields or part in self.sequences:
                    said = "holds sequences" if part in self.sequences else "is not there"
                    hint = did_you_mean(part, self.fields) or f"there are {', '.join(self.fields)}"
                    raise PeError(f"field '{part}' {said}, and cannot be joined", at=want.at, hint=hint, code=ExitCode.DATA)
            # Joined once with a single row of zeros: a wrong shape is found before any batch.
            sample = {part: np.zeros((1, *self.fields[part].shape), self.fields[part].numpy) for part in want.names}
            try:
                found = self._join(sample, want)
            except ValueError:
                shapes = ", ".join(f"{part} is {self.fields[part]}" for part in want.names)
                raise PeError(f"fields that differ cannot be joined: {shapes}", at=want.at, code=ExitCode.DATA) from None
            self.fields[name] = replace(self.fields[want.names[0]], shape=found.shape[1:], dtype=found.dtype.name)

    @staticmethod
    def _join(batch: Mapping[str, Any], want: ColumnUsage) -> Any:
        return np.concatenate([batch[name] for name in want.names], axis=-1)

    def __len__(self) -> int:
        return len(self._dataset)

    def take(self, indices: Rows) -> Batch:
        """Return copies of some samples; see `Dataset.take`."""
        batch = self._dataset.take(indices)
        return batch | {name: self._join(batch, want) for name, want in self._groups.items()}


def select(dataset: Dataset, wanted: Sequence[ColumnUsage]) -> Dataset:
    """Return a data set with the fields that feeds take.

    Raises:
        PeError: DATA; a column is not there, or cannot be encoded.
    """
    if isinstance(dataset, TableDataset):
        return dataset.only(wanted)
    groups = {want.field: want for want in wanted if len(want.names) > 1}
    return Joined(dataset, groups) if groups else dataset
