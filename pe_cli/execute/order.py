"""Which tasks wait for which."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
        if chained and task.part is None:
            if task.home in previous:
                found.add(previous[task.home])
            previous[task.home] = i
        found.discard(i)
        waits.append(found)
    return waits
