"""Where a model errs: the shares of rows and of errors in each class or range of every column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass

Array = NDArray[Any]
#: Groups of a column that are told, the largest; columns that are told, those where errors lie least evenly.
MOST_GROUPS, MOST_COLUMNS = 8, 10
#: Ranges that numbers are divided into, with as many rows each.
RANGES = 4


@dataclass(frozen=True)
class Group:
    """Rows with one class, or with numbers of one range.

    Args:
        name: of the class or range.
        rows: share of all rows.
        errors: share of all errors.
        mean: error of its rows.
    """

    name: str
    rows: float
    errors: float
    mean: float


@dataclass(frozen=True)
class ColumnErrors:
    """The groups of a column.

    Args:
        name: of the column.
        groups: in the order of classes or ranges.
        uneven: share of the errors that would have to lie in other groups, for each to have as many as it has rows.
    """

    name: str
    groups: tuple[Group, ...]
    uneven: float


@dataclass(frozen=True)
class ErrorShares:
    """The errors of a target.

    Args:
        target: column that is predicted.
        rows: rows that were predicted.
        mean: error of a row: the share of wrong classes, or the mean absolute error in the unit of the file.
        classes: whether classes are predicted.
        columns: where errors lie least evenly first.
    """

    target: str
    rows: int
    mean: float
    classes: bool
    columns: tuple[ColumnErrors, ...]


def shared(target: str, errors: Array, columns: Mapping[str, tuple[Array, Sequence[str]]], *, classes: bool) -> ErrorShares:
    """Return how errors are shared out.

    Args:
        target: what is predicted.
        errors: float64 [rows], none negative.
        columns: name -> int64 [rows] groups, and their names.
        classes: whether errors are 0 for a right class and 1 for a wrong one.
    """
    total = float(errors.sum())
    found = [_column(name, errors, *groups, total) for name, groups in columns.items() if len(groups[1]) > 1] if total > 0 else []
    worst = sorted(found, key=lambda one: -one.uneven)[:MOST_COLUMNS]
    return ErrorShares(target, len(errors), total / max(1, len(errors)), classes, tuple(worst))


def _column(name: str, errors: Array, groups: Array, names: Sequence[str], total: float) -> ColumnErrors:
    rows = np.bincount(groups, minlength=len(names))
    sums = np.bincount(groups, weights=errors, minlength=len(names))
    shares = rows / len(errors), sums / total
    # Half the sum of the differences: the share of all errors that would have to move to make groups alike.
    uneven = float(np.abs(shares[0] - shares[1]).sum()) / 2
    # The largest groups, but in the order of classes and ranges, which is how they are read.
    largest = sorted(np.argsort(-rows, kind="stable")[:MOST_GROUPS].tolist())
    told = [Group(names[i], float(shares[0][i]), float(shares[1][i]), float(sums[i] / rows[i])) for i in largest if rows[i]]
    return ColumnErrors(name, tuple(told), uneven)


def ranges(values: Array) -> tuple[Array, list[str]]:
    """Return the quarter of the rows that each number belongs to, and the names of the quarters; missing numbers are one of their own.

    Args:
        values: float64 [rows], NaN where missing.
    """
    there = ~np.isnan(values)
    known = values[there]
    if not len(known):
        return np.zeros(len(values), np.int64), ["missing"]
    # Quarters of a column with few values may have one edge; a range that nothing is in is none.
    edges = np.unique(np.quantile(known, np.linspace(0, 1, RANGES + 1)[1:-1]))
    groups = np.full(len(values), len(edges) + 1, np.int64)
    groups[there] = np.searchsorted(edges, known, side="left")
    names = []
    for i in range(len(edges) + 1):
        mine = known[groups[there] == i]
        names.append(f"{mine.min():.6g} to {mine.max():.6g}" if len(mine) else "none")
    return groups, [*names, *(["missing"] if not there.all() else [])]
