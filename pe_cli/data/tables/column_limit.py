"""The limit on columns of a table: each takes little in the file and much in memory."""

from __future__ import annotations

from pathlib import Path

#: Columns of a table at most.
MOST_COLUMNS = 100_000


def too_wide(path: Path, columns: int | None = None) -> tuple[str, str]:
    """Return the message and the remedy of a table that has more columns.

    Args:
        path: of its file.
        columns: how many there are; None where counting has ended behind the last one that is allowed.
    """
    there = f"{columns:,} columns" if columns is not None else f"more than {MOST_COLUMNS:,} columns"
    most = f", and a table has {MOST_COLUMNS:,} at most" if columns is not None else ", the most that a table has"
    return (
        f"{path} has {there}{most}",
        "keep the columns that you need, or write long vectors as one array (.npy, .npz), or as lists in one column",
    )
