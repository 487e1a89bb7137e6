"""Identifiers for rows of predictions: columns that the model does not read and that tell rows apart."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.data.feed_samples import TableDataset
from pe_cli.data.raw_cells import Cells, Table
from pe_cli.data.readers.text import FILE
from pe_cli.session.job import Job

#: Gives the ids of some samples: from the first, until before the last.
Ids = Callable[[int, int], list[Any]]


def row_ids(job: Job, use: str, wanted: str | None, *, unnamed: bool = False) -> dict[str, Ids]:
    """Return what rows are known by: names of columns, and what gives them.

    Args:
        job: whose data is predicted.
        use: of the data.
        wanted: column; when None, of series their key and the time of the last row that is known; else the first column that the
            model does not read, or of paths of pictures, that has another value in every row, or the number of the row, from 1.
        unnamed: the data is standard input, whose file has a name that tells nothing.

    Raises:
        PeError: DATA; there is no such column.
    """
    dataset = job.data.dataset(use)
    if not isinstance(dataset, TableDataset):
        if wanted is not None:
            raise PeError(f"--id {wanted}: the data has fields, not columns", hint="leave --id out")
        return {"row": lambda first, last: list(range(first + 1, last + 1))}
    table = dataset.table
    if wanted is not None and wanted not in table.names:
        hint = did_you_mean(wanted, table.names) or f"it has {', '.join(table.names[:20])}"
        raise PeError(f"the data has no column '{wanted}'", hint=hint, code=ExitCode.DATA)
    own: tuple[str, ...] = getattr(table, "sample_names", ())
    told = (name for name in (*_unread(job, use, table, unnamed), *_pictures(job, table)) if _tells_apart(table, name))
    names = (wanted,) if wanted else own or tuple(itertools.islice(told, 1))
    if not names:
        return {"row": lambda first, last: [int(row) + 1 for row in _rows(job, use, first, last)]}
    return {name: _texts(job, use, table.cells(name)) for name in names}


def _texts(job: Job, use: str, cells: Cells) -> Ids:
    return lambda first, last: [cells.text(int(row)) for row in _rows(job, use, first, last)]


def _rows(job: Job, use: str, first: int, last: int) -> np.ndarray[Any, Any]:
    """Return the rows of the table that some samples are; those without a usable picture are none."""
    found = job.data.sample_rows(use)
    indices = np.arange(first, last, dtype=np.int64)
    return indices if found is None else found[indices]


def superfluous(job: Job, use: str, *, unnamed: bool = False) -> list[str]:
    """Return the columns that the model does not read, and is not taught; `unnamed` as for `row_ids`."""
    dataset = job.data.dataset(use)
    return _unread(job, use, dataset.table, unnamed) if isinstance(dataset, TableDataset) and job.data.prepared.given else []


def left_out(job: Job, use: str) -> tuple[str, ...]:
    """Return sentences on rows that the files of some data have and that are no samples."""
    dataset = job.data.dataset(use)
    return tuple(getattr(dataset.table, "left_out", ())) if isinstance(dataset, TableDataset) else ()


def _unread(job: Job, use: str, table: Table, unnamed: bool) -> list[str]:
    fitted = job.data.fitted.columns
    read = {source for column in fitted.values() for source in column.sources} | set(fitted)
    made = {FILE} if unnamed and job.run.data[use].reader == "text" else set()
    return [name for name in table.names if name not in read | made]


def _pictures(job: Job, table: Table) -> list[str]:
    """Return the columns that hold paths of pictures that the model reads."""
    columns = [column for column in job.data.fitted.columns.values() if column.type == "image"]
    names = [source for column in columns for source in column.sources if source in table.names]
    return [name for name in names if table.cells(name).array() is None]


def _tells_apart(table: Table, name: str) -> bool:
    codes = table.cells(name).codes()
    return len(codes.words) == len(table) and not bool((codes.codes < 0).any())
