"""Parses columns of dates and times, by which rows are ordered."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.date_forms import parse
from pe_cli.data.raw_cells import Table


def moments_of(table: Table, name: str, what: str, form: str | None = None) -> NDArray[np.float64]:
    """Return a column of numbers, or of dates as seconds since 1970, float64 [rows].

    Args:
        table: has the column.
        name: of it.
        what: says what it is for in an error.
        form: of dates, as of strptime; None for ISO 8601, or numbers.

    Raises:
        PeError: DATA; a cell is missing, or is neither.
    """
    cells = table.cells(name)
    numbers = cells.numbers()
    if form is None and not numbers.bad_count and not np.isnan(numbers.values).any():
        return numbers.values
    codes = cells.codes()
    if (codes.codes < 0).any():
        raise table.error(int(np.flatnonzero(codes.codes < 0)[0]), name, "the time is missing", f"fill it: {what}")
    if form is None and numbers.bad_count * 2 <= int((codes.codes >= 0).sum()):  # numbers, but for some cells
        row = int(numbers.bad[0])
        raise table.error(row, name, f"'{cells.text(row)}' is neither a number nor a date of ISO 8601, and {what}")
    found = []
    for i, word in enumerate(codes.words):
        try:
            found.append((parse(word, form) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
        except ValueError:
            row = int(np.flatnonzero(codes.codes == i)[0])
            no_date = f"is no date of the form {form}" if form else "is neither a number nor a date of ISO 8601"
            raise table.error(row, name, f"'{word}' {no_date}, and {what}") from None
    moments: NDArray[np.float64] = np.array(found)[codes.codes]
    return moments


def working_days(times: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return times with weekends taken out, in seconds; None where a time is on a weekend, or none is at one end of the week.

    Args:
        times: float64 [rows], seconds since 1970.
    """
    if not len(times) or np.abs(times).max() > 1e11:  # no dates between the years -1200 and 5100
        return None
    days = np.floor(times / 86400).astype(np.int64)
    # 1970-01-05 was a Monday
    weekday = (days - 4) % 7
    if (weekday >= 5).any() or not {0, 4} <= set(np.unique(weekday).tolist()):
        return None
    found: NDArray[np.float64] = times - 2 * 86400.0 * ((days - 4) // 7)
    return found
