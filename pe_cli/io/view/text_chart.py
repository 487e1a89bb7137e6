"""A line chart as text: columns of blocks."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.io.view.ticks import drawable

#: A column of this many eighths.
_BLOCKS = " ▁▂▃▄▅▆▇█"


def bars(values: Sequence[float], width: int = 60, height: int = 6) -> str:
    """Return values as columns of blocks; the smallest has one eighth of a line, the largest all lines.

    Args:
        values: at least one, from left to right; what is no number or infinite has no column.
        width: columns at most; of more values, those at even distances, the first and the last among them.
        height: lines.

    >>> bars([0, 1, 2, 7], height=1)
    '▁▂▃█'
    """
    count = min(width, len(values))
    shown = [values[round(i * (len(values) - 1) / max(1, count - 1))] for i in range(count)]
    finite = [v for v in shown if drawable(v)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    most = 8 * height
    levels = [_level(v, low, high, most) for v in shown]
    lines = []
    for line in reversed(range(height)):
        lines.append("".join(_BLOCKS[min(8, max(0, level - 8 * line))] for level in levels).rstrip())
    return "\n".join(lines)


def _level(value: float, low: float, high: float, most: int) -> int:
    if not drawable(value):
        return 0
    return 1 + round((value - low) / (high - low) * (most - 1)) if high > low else most
