"""The sources of a run's data: each is opened once, and divided into the rows of its parts."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pe_cli.config.nodes import to_data
from pe_cli.config.spec import DataSpec, Preparation
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.array_dataset import DatasetTable, is_table
from pe_cli.data.dataset import Dataset
from pe_cli.data.fields import Rows
from pe_cli.data.fitted_columns import Fitted
from pe_cli.data.machine_processes import MachineProcesses
from pe_cli.data.raw_cells import Table
from pe_cli.data.reader_context import Look, Origin
from pe_cli.data.registry import open_reader
from pe_cli.data.remote.file_cache import MOST, RemoteFiles
from pe_cli.data.row_split import describe, split_rows
from pe_cli.data.tables.stream import StreamTable


class Sources:
    """The sources of a run's data.

    Args:
        data: what is read, by use.
        wishes: how one source is divided into parts, and how much of files elsewhere is kept on the disk.
        base: folder that relative paths start from.
        fitted: says how the source was divided in training, and learns it.

    Attributes:
        read: files and folders that readers have read.
        look: how far packed files are looked into; None, and whoever computes with what they hold leaves it so, for all.
        together: processes that prepare the same data at this moment, and share the work; None for this one alone.
    """

    def __init__(self, data: Mapping[str, DataSpec], wishes: Preparation, base: Path, fitted: Fitted) -> None:
        self.data, self.base = data, base
        self._split, self._fitted = wishes.split, fitted
        self._remote = RemoteFiles(wishes.cache.bytes if wishes.cache else MOST)
        self.read: list[Path] = []
        self.look: Look | None = None
        self.together: MachineProcesses | None = None
        self._opened: dict[str, Dataset | Table] = {}
        self._parts: dict[str, Rows] | None = None

    def alone(self) -> Sources:
        """Return the same sources for this process alone."""
        # What the processes of a machine do together must not begin in a thread of one of them.
        found = copy.copy(self)
        found.together = None
        return found

    def opened(self, use: str) -> Dataset | Table:
        """Return what the reader of a use gave; parts of one source share it.

        Raises:
            PeError: USAGE; rows of a stream are to be shuffled without a window.
        """
        spec = self.data[use]
        # All uses of a divided source read one file, which is opened once.
        key = "source" if spec.split else use
        if key not in self._opened:
            if spec.section.shuffle is True and to_data(spec.options).get("stream") is True:
                raise PeError(
                    f"data.{use}: shuffle: true takes rows from anywhere, and a stream is read a stretch at a time",
                    at=spec.section.at_of("shuffle"),
                    hint="set shuffle: {window: 10000}",
                )
            self._opened[key] = open_reader(
                spec.reader, to_data(spec.options), self.base, spec.reader_at, self.read, self.look, self.together, self._remote
            )
        return self._opened[key]

    def as_table(self, opened: Dataset, use: str) -> DatasetTable:
        """Return arrays of a use as a table, with their fields as columns."""
        return DatasetTable(opened, Origin(self.base, self.data[use].reader_at))

    def table(self, use: str) -> Table:
        """Return the source of a use as a table; a data set of arrays has its fields as columns."""
        opened = self.opened(use)
        if is_table(opened):
            return opened
        key = "source table" if self.data[use].split else f"{use} table"
        if key not in self._opened:
            self._opened[key] = self.as_table(opened, use)
        table = self._opened[key]
        assert is_table(table)
        return table

    def rows(self, use: str) -> Rows | None:
        """Return the rows of a use; None for all of them."""
        return self.parts()[use] if self.data[use].split and self._split else None

    def parts(self) -> Mapping[str, Rows]:
        """Return the rows of every part of the source.

        Raises:
            PeError: DATA; the source is not the one that the run was trained on.
        """
        if self._parts is None:
            assert self._split is not None or not any(spec.split for spec in self.data.values() if spec.name != "train")
            self._parts = {}
            if self._split is not None:
                use = next(name for name, spec in self.data.items() if spec.split)
                table = self.table(use)
                if isinstance(table, StreamTable):
                    raise PeError(
                        "data.split divides rows, and a stream is never seen as a whole",
                        at=self.data[use].reader_at,
                        hint="name files of their own for data.train and data.eval",
                    )
                # Columns that decide the split are read ahead, in one pass over the file.
                table.prepare([], [name for name in (self._split.group, self._split.stratify) if name in table.names], self.together)
                self._parts = split_rows(table, np.arange(len(table), dtype=np.int64), self._split)
                self._check_split(describe(self._parts, len(table)), use)
        return self._parts

    def _check_split(self, found: dict[str, object], use: str) -> None:
        before = self._fitted.split
        # Compared with what training saw, because a row that moved from one part to another would be evaluated after it was learned.
        if before is not None and before != found:
            raise PeError(
                f"data.source has {found['rows']:,} rows, divided otherwise than in training, where it had {before.get('rows')}",
                at=self.data[use].reader_at,
                hint="rows that were trained on could be evaluated: bring the file back, or evaluate a file of its own: "
                "-o 'data={eval: {reader: ..., files: ...}}'",
                code=ExitCode.DATA,
            )
        self._fitted.split = found
