"""Parses columns of dates and times, by which rows are ordered."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.columns.date import parse
from pe_cli.data.raw_cells import Table


def moments_of(table: Table, name: str, what: str) -> NDArray[np.float64]:
    """Return a column of numbers, or of dates in ISO 8601 as seconds since 1970, float64 [rows].

    Args:
        table: has the column.
        name: of it.
        what: says what it is for in an error.

    Raises:
        PeError: DATA; a cell is missing, or is neither.
    """
    cells = table.cells(name)
    numbers = cells.numbers()
    if not numbers.bad_count and not np.isnan(numbers.values).any():
        return numbers.values
    codes = cells.codes()
    if (codes.codes < 0).any():
        raise table.error(int(np.flatnonzero(codes.codes < 0)[0]), name, "the time is missing", f"fill it: {what}")
    if numbers.bad_count * 2 <= int((codes.codes >= 0).sum()):  # numbers, but for some cells
        row = int(numbers.bad[0])
        raise table.error(row, name, f"'{cells.text(row)}' is neither a number nor a date of ISO 8601, and {what}")
    found = []
    for i, word in enumerate(codes.words):
        try:
            found.append((parse(word, None) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
        except ValueError:
            row = int(np.flatnonzero(codes.codes == i)[0])
            raise table.error(row, name, f"'{word}' is neither a number nor a date of ISO 8601, and {what}") from None
    moments: NDArray[np.float64] = np.array(found)[codes.codes]
    return moments
