"""What is wrong with data though it can be trained on: one function per warning, each a sentence on what it means and what to do.

They get plain figures, so that they cost next to nothing; `pe_cli.session.data.diagnostics` collects those for a run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: Names that a warning lists.
LISTED = 5
#: Share of the training rows that have to differ: tables with fewer different rows repeat them by nature.
DIFFERENT = 0.5
#: Training rows from which a category may be an id, and the share of them with a class of their own.
ID_ROWS, ID_SHARE = 20, 0.95


def duplicates(train: NDArray[np.uint64], other: NDArray[np.uint64], part: str) -> str | None:
    """Warn of rows that are trained on and measured with.

    Args:
        train: keys of the training rows; equal rows have equal keys.
        other: keys of the rows of another part.
        part: its name.
    """
    # Sorted once, so that each asked key is found by halving.
    known, asked = np.sort(train), np.sort(other)
    if 1 + int((known[1:] != known[:-1]).sum()) < DIFFERENT * len(known):
        return None
    count = int((known[np.minimum(np.searchsorted(known, asked), len(known) - 1)] == asked).sum())
    if not count:
        return None
    many = count > 1
    return (
        f"{count:,} of {len(other):,} rows of {part} ({100 * count / len(other):.3g}%) {'are' if many else 'is a'} training "
        f"row{'s' * many}, too, equal in every column that the model reads: what was learned by heart counts as right there. "
        f"Remove repeated rows, or keep what belongs together in one part with data.split.group"
    )


def absent_classes(
    target: str, names: Sequence[str], train: NDArray[np.int64], other: NDArray[np.int64], part: str
) -> str | None:
    """Warn of classes that training rows have and a part that is measured with has not.

    Args:
        target: its name.
        names: of the classes.
        train: int64 [classes], training rows of each.
        other: int64 [classes], rows of the part.
        part: its name.
    """
    absent = [str(name) for name, a, b in zip(names, train.tolist(), other.tolist(), strict=True) if a and not b]
    # Only classes that training rows have can be absent here.
    if not absent:
        return None
    return (
        f"{part} has no row of {_listed(absent, 'class', 'classes')} of '{target}', which training rows have: its figures say nothing of "
        f"{'it' if len(absent) == 1 else 'them'}. Set data.split.stratify: {target}, or take more rows"
    )


def unseen_classes(
    target: str, names: Sequence[str], train: NDArray[np.int64], other: NDArray[np.int64], part: str
) -> str | None:
    """Warn of classes that a part has and no training row; see `absent_classes`."""
    unseen = [str(name) for name, a, b in zip(names, train.tolist(), other.tolist(), strict=True) if b and not a]
    if not unseen:
        return None
    return (
        f"no training row has {_listed(unseen, 'class', 'classes')} of '{target}', which {part} has: a model cannot learn "
        f"{'it' if len(unseen) == 1 else 'them'}, and is wrong there. Set data.split.stratify: {target}, or take more rows"
    )


def sorted_cut(columns: Sequence[str], how: str, target: str | None = None) -> str | None:
    """Warn of rows that are cut by position though they are sorted.

    Args:
        columns: that the rows are sorted by.
        how: what cuts them, as the config says it.
        target: name of the target, for the way out.
    """
    if not columns:
        return None
    by = f"data.split with stratify: {target}" if target else "data.split"
    return (
        f"the rows are sorted by {_listed(list(columns), 'column', 'columns')} and cut by their position ({how}): evaluation has other "
        f"values than training, so its figures mislead. Let {by} draw the parts, or say by data.split.time that the order is meant"
    )


def is_sorted(values: NDArray[np.float64]) -> bool:
    """Return whether numbers go one way only and are not all the same."""
    # A constant column is no order.
    steps = np.diff(values)
    return bool(len(steps)) and bool((steps >= 0).all() or (steps <= 0).all()) and bool((steps != 0).any())


def in_runs(codes: NDArray[np.int64]) -> bool:
    """Return whether equal values stand together, each in one stretch, and there are at least two."""
    if len(codes) < 3:
        return False
    stretches = 1 + int((codes[1:] != codes[:-1]).sum())
    # Every class in one stretch: a file that is sorted by its classes.
    return 2 <= stretches < len(codes) and stretches == len(np.unique(codes))


def not_finite(feed: str, infinite: bool, where: str) -> str:
    """Warn of a number that is none.

    Args:
        feed: that gets it.
        infinite: whether it is an infinity.
        where: the row.
    """
    return f"feed '{feed}' has {'infinity' if infinite else 'NaN'} in {where}: what is computed of it is no number. Mend the data"


def constant_target(target: str, value: str | None) -> str | None:
    """Warn of a target that is the same in every training row.

    Args:
        target: its name.
        value: that every row has; None where they differ.
    """
    if value is None:
        return None
    return (
        f"the target '{target}' is {value} in every training row: there is nothing to learn. Take another column as the label, or rows "
        f"with other values"
    )


def id_like(column: str, classes: int, rare: int, rows: int) -> str | None:
    """Warn of a category that is an id.

    Args:
        column: its name.
        classes: that training rows have.
        rare: training rows whose class was too rare to be kept.
        rows: training rows with a value.
    """
    if rows < ID_ROWS or (classes < ID_SHARE * rows and rare < ID_SHARE * rows):
        return None
    every = "every" if classes == rows else "almost every"
    return (
        f"column '{column}' has another value in {every} row, {max(classes, rare):,} in {rows:,} training rows: is it an id? Nothing that "
        f"helps with new rows can be learned from one. Take it out of feeds"
    )


def _listed(names: list[str], one: str, many: str) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:LISTED])
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return f"{one if len(names) == 1 else many} {shown}{more}"
