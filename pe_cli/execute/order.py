"""Which tasks wait for which, and chains: runs of tasks with one way through."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pe_cli.devices.tape import Chain
from pe_cli.execute.lower import Task

#: A byte range: (space, begin, end). Ranges of different spaces never overlap.
Range = tuple[int, int, int]


def dependencies(
    tasks: Sequence[Task],
    ranges: Callable[[Task], tuple[list[Range], list[Range]]],
    chained: bool,
) -> list[set[int]]:
    """Return for every task the tasks that must be done before it.

    A task waits for the last writers of what it reads, and for the readers and writers of what it overwrites; by bytes, so that reuse of
    memory is safe. With chained, all compute tasks of a device also run in program order: right when every device has one thread.
    """
    space: dict[int, list[tuple[int, int, int, bool]]] = {}  # begin, end, task, writes
    waits: list[set[int]] = []
    previous: dict[int, int] = {}
    for i, task in enumerate(tasks):
        found: set[int] = set()
        reads, writes = ranges(task)
        for where, begin, end in reads:
            found |= {t for low, high, t, w in space.get(where, ()) if w and low < end and begin < high}
        for where, begin, end in writes:
            entries = space.get(where, [])
            found |= {t for low, high, t, _ in entries if low < end and begin < high}
            space[where] = [e for e in entries if not (begin <= e[0] and e[1] <= end)]
        for where, begin, end in reads:
            space.setdefault(where, []).append((begin, end, i, False))
        for where, begin, end in writes:
            space.setdefault(where, []).append((begin, end, i, True))
        if chained and not _collective(task):
            if task.home in previous:
                found.add(previous[task.home])
            previous[task.home] = i
        found.discard(i)
        waits.append(found)
    return waits


def _collective(task: Task) -> bool:
    return bool(task.calls) and task.calls[0].kernel.name.startswith("pe_cli.collectives")


def chains(tasks: Sequence[Task], waits: Sequence[set[int]], begins: Sequence[int], ends: Sequence[int]) -> list[Chain]:
    """Join consecutive tasks of one home where the later waits for the earlier only, and the earlier releases the later only.

    Args:
        tasks: in order.
        waits: from `dependencies`.
        begins, ends: instructions of each task on the tape.
    """
    followers: list[set[int]] = [set() for _ in tasks]
    for i, found in enumerate(waits):
        for before in found:
            followers[before].add(i)
    _reduce(waits, followers)
    of: list[int] = []
    made: list[list[int]] = []
    for i, task in enumerate(tasks):
        only = next(iter(waits[i])) if len(waits[i]) == 1 else -1
        joins = only == i - 1 and len(followers[only]) == 1 and tasks[only].home == task.home if only >= 0 else False
        if joins:
            made[-1].append(i)
        else:
            made.append([i])
        of.append(len(made) - 1)
    out = []
    for c, members in enumerate(made):
        after = sorted({of[f] for f in followers[members[-1]]} - {c})
        out.append(Chain(begins[members[0]], ends[members[-1]], tasks[members[0]].home, tuple(after)))
    return out


def _reduce(waits: Sequence[set[int]], followers: Sequence[set[int]]) -> None:
    """Drop edges that a path through a direct predecessor implies: fewer counters to touch, longer chains."""
    for i, found in enumerate(waits):
        for before in list(found):
            if any(other != before and before in waits[other] for other in found):
                found.discard(before)
                followers[before].discard(i)
