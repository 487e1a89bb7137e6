"""Reachability of tasks: which are always done before which, whatever order threads take.

To keep every pair would take a bit for each, a gigabyte for a network of 20,000 layers. So tasks are kept on *lines*: paths of tasks of
which each waits for the one before it. A task is before another where it, or one that waits for it, stands on a line no later than the
other's last predecessor on that line. What is found so is always true. What no line shows is taken for unordered: with the longest lines
kept, these are pairs of short branches.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass

#: Lines that are kept, the longest ones.
MOST_LINES = 32
#: Where a task has no successor on a line.
NEVER = np.iinfo(np.int32).max

Places = NDArray[np.int32]


@dataclass(frozen=True)
class Reachability:
    """Order of tasks.

    Args:
        behind: int32 [lines, tasks], place on each line of the last task that is done before a task; -1 for none.
        ahead: int32 [lines, tasks], place on each line of the first task that is the task itself or waits for it; `NEVER` for none.
    """

    behind: Places
    ahead: Places

    @classmethod
    def of(cls, waits: Sequence[Collection[int]]) -> Reachability:
        """Return the order that follows from what every task waits for: numbers of earlier tasks."""
        line, place, count = _lines(waits)
        # -1 and NEVER stand for no task at all, so that the comparisons in the planner need no case for them.
        behind = np.full((len(waits), count), -1, np.int32)
        ahead = np.full((len(waits), count), NEVER, np.int32)
        for task, before in enumerate(waits):
            row = behind[task]
            for other in before:
                # What precedes a predecessor precedes the task: one maximum per line instead of a set per task.
                np.maximum(row, behind[other], out=row)
                if line[other] >= 0:
                    row[line[other]] = max(row[line[other]], place[other])
        # Backwards, so that a task has heard from all that come behind it when it is handed on.
        for task in range(len(waits) - 1, -1, -1):
            row = ahead[task]
            if line[task] >= 0:
                row[line[task]] = min(row[line[task]], place[task])
            for other in waits[task]:
                np.minimum(ahead[other], row, out=ahead[other])
        # A row for each line instead of each task: the planner compares all tasks on one line at a time.
        return cls(np.ascontiguousarray(behind.T), np.ascontiguousarray(ahead.T))

    def pick(self, index: Sequence[int]) -> Reachability:
        """Return the order of some of the tasks, by their numbers."""
        chosen = np.asarray(index, np.int64)
        return Reachability(self.behind[:, chosen], self.ahead[:, chosen])


def _lines(waits: Sequence[Collection[int]]) -> tuple[list[int], list[int], int]:
    """Return of every task its line, -1 for none that is kept, and its place there; and the number of lines.

    A line goes on with the task behind which most is still to come.
    """
    height = [1] * len(waits)
    for task in range(len(waits) - 1, -1, -1):
        for other in waits[task]:
            height[other] = max(height[other], height[task] + 1)
    heir = [-1] * len(waits)
    for task, before in enumerate(waits):
        for other in before:
            # A task has one heir, or two lines would share it; the one with most behind it makes the longest lines.
            if heir[other] < 0 or height[task] > height[heir[other]]:
                heir[other] = task
    line, place, lengths = [-1] * len(waits), [0] * len(waits), list[int]()
    for task, before in enumerate(waits):
        # Several may have this task as their heir: the longest of their lines goes on.
        from_ = max((other for other in before if heir[other] == task), key=lambda other: place[other], default=-1)
        if from_ >= 0:
            line[task], place[task] = line[from_], place[from_] + 1
            lengths[line[task]] += 1
        else:
            line[task] = len(lengths)
            lengths.append(1)
    longest = sorted((i for i, n in enumerate(lengths) if n > 1), key=lambda i: -lengths[i])[:MOST_LINES]
    number = {old: new for new, old in enumerate(longest)}
    return [number.get(of, -1) for of in line], place, len(longest)
