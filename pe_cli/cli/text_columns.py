"""Text in columns."""

from __future__ import annotations

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[object]], right: Sequence[int] = (), indent: str = "") -> str:
    """Return rows as text in columns.

    Args:
        rows: cells; the first row may be a header.
        right: numbers of columns that are aligned at the right.
        indent: before every line.

    >>> print(columns([("a", 1), ("bcd", 20)], right=[1]))
    a     1
    bcd  20
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        parts = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append((indent + "  ".join(parts)).rstrip())
    return "\n".join(lines)
