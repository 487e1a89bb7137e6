"""Predicts the rows of a split, and tells by the columns of the data where the model errs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.feed_samples import TableDataset
from pe_cli.data.fitted_columns import FittedColumn
from pe_cli.data.raw_cells import Table
from pe_cli.metrics.error_shares import ErrorShares, ranges, shared
from pe_cli.session.evaluation.evaluator import Evaluator
from pe_cli.session.evaluation.output_meaning import Answer, answers

if TYPE_CHECKING:
    from pe_cli.session.job import Job

Array = NDArray[Any]
#: Types of columns whose rows are divided by what is in their cells.
_DIVIDED = ("number", "bool", "category")


def errors_of(job: Job, split: str) -> tuple[ErrorShares, ...]:
    """Return where a model errs, for each target that is a class or a number per row of a table; none for other models.

    Args:
        job: with values, and with what its columns have learned.
        split: of the run file's data.

    Raises:
        PeError: DATA; a row cannot be read.
    """
    told = [one for one in answers(job) if _is_told(one)] if job.data.fitted.columns else []
    # A window has many rows, whose cells put it into no one group.
    if not told or any(column.type == "window" for column in job.data.fitted.columns.values()):
        return ()
    dataset = job.data.dataset(split)
    if not isinstance(dataset, TableDataset):
        return ()
    names = list(dict.fromkeys([name for one in told for name in (one.variable, one.label)]))
    parts: dict[str, list[Array]] = {name: [] for name in names}
    for batch in Evaluator(job).predict(split, names):
        for name in names:
            parts[name].append(batch[name])
    values = {name: np.concatenate(found) for name, found in parts.items()}
    rows = job.data.sample_rows(split)
    read = [column for column in job.data.fitted.columns.values() if not column.target and column.type in _DIVIDED]
    found = []
    for one in told:
        errors = _errors(one, values[one.variable], values[one.label])
        if errors is not None and (rows is None or len(rows) == len(errors)):
            groups = {column.name: _groups(column, dataset.table, rows) for column in read}
            found.append(shared(one.name, errors, groups, classes=bool(one.classes)))
    return tuple(found)


def _is_told(one: Answer) -> bool:
    return bool(one.label and one.column) and not (one.boxes or one.several or one.spelled or one.lengths or one.suffix or one.censored)


def _errors(one: Answer, scores: Array, labels: Array) -> Array | None:
    """Return the error of each row; None where there are several numbers per row."""
    if scores.dtype == object or labels.dtype == object:
        return None
    if one.classes:
        truth = labels.reshape(len(labels), -1)
        return None if truth.shape[1] != 1 else np.asarray(one.indices(scores) != truth[:, 0], np.float64)
    assert one.column is not None
    told, truth = (np.asarray(one.column.decode(values), np.float64).reshape(len(values), -1) for values in (scores, labels))
    if told.shape[1] != 1 or not np.isfinite(told).all():
        return None
    return np.asarray(np.abs(told - truth)[:, 0])


def _groups(column: FittedColumn, table: Table, rows: Array | None) -> tuple[Array, Sequence[str]]:
    """Return the group that each row belongs to by a column, and the names of the groups."""
    cells = table.cells(column.sources[0])
    if column.type == "number":
        if cells.array() is not None:
            return np.zeros(len(table) if rows is None else len(rows), np.int64), ["all"]
        values = cells.numbers(column.kind.notation(column.checked)).values
        return ranges(values if rows is None else values[rows])
    codes = cells.codes()
    which = (codes.codes if rows is None else codes.codes[rows]).astype(np.int64)
    used, groups = np.unique(which, return_inverse=True)
    return groups.reshape(-1), ["missing" if code < 0 else codes.words[code] for code in used.tolist()]
