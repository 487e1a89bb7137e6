"""Which tasks wait for which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pe_cli.execute.lower import Task
from pe_cli.graph.ssa import Graph
from pe_cli.program.ir import Role

#: A byte range: (space, begin, end). Ranges of different spaces never overlap.
Range = tuple[int, int, int]
UPDATES = (Role.OPTIMIZE, Role.LR_SCHED)


@dataclass(frozen=True)
class Rules:
    """Order beyond what the data asks for.

    Args:
        chained: compute tasks of a device run in program order; right when every device has one thread.
        sequential: collectives do so too.
        updates_last: no update before all gradients are there.
        collectives_last: sums over devices wait for all forward and backward work.
    """

    chained: bool = False
    sequential: bool = False
    updates_last: bool = False
    collectives_last: bool = False


def dependencies(
    tasks: Sequence[Task],
    roles: Sequence[Role],
    ranges: Callable[[Task], tuple[list[Range], list[Range]]],
    rules: Rules,
) -> list[set[int]]:
    """Return for every task the tasks that must be done before it.

    A task waits for the last writers of what it reads, and for the readers and writers of what it overwrites; by bytes, so that reuse of
    memory is safe. The rules add to that.
    """
    bytes_ = _Bytes()
    waits: list[set[int]] = []
    previous: dict[int, int] = {}
    open_work: set[int] = set()  # forward, backward and collective tasks that no other such task waits for yet
    computing: set[int] = set()  # the same of forward and backward tasks alone
    for i, (task, role) in enumerate(zip(tasks, roles, strict=True)):
        kin = _before(tasks, i) if task.beside else ()
        found = bytes_.access(i, *ranges(task), kin)
        if kin:
            found |= waits[kin[0]]
        collective = task.part is not None
        update = role in UPDATES
        if update and rules.updates_last:
            found |= open_work
        if collective and rules.collectives_last:
            found |= computing
        if _in_line(rules, collective, update):
            found |= {previous[task.home]} if task.home in previous else set()
            previous[task.home] = i
        found.discard(i)
        if not update:
            open_work -= found
            open_work.add(i)
            if not collective:
                computing -= found
                computing.add(i)
        waits.append(found)
    return waits


def _before(tasks: Sequence[Task], i: int) -> range:
    """Return the earlier tasks of a task's node."""
    first = i
    while first and tasks[first - 1].node == tasks[i].node:
        first -= 1
    return range(first, i)


def delayed(tasks: Sequence[Task], graph: Graph) -> list[Task]:
    """Return the tasks with every sum over devices behind the forward and backward work that does not need it."""
    out: list[Task] = []
    held: list[Task] = []
    names: set[str] = set()
    for task in tasks:
        op = graph.nodes[task.node].op
        if task.part is not None:
            held.append(task)
            names.update(op.inputs["X"])
            continue
        if op.role in UPDATES or any(b.name in names for b in (*task.reads, *task.writes)):
            out += held
            held, names = [], set()
        out.append(task)
    return out + held


def _in_line(rules: Rules, collective: bool, update: bool) -> bool:
    """Whether a task takes its place in its device's program order."""
    if rules.sequential:
        return True
    return rules.chained and not collective and (rules.updates_last or not update)


class _Bytes:
    """Who last read and wrote which bytes."""

    def __init__(self) -> None:
        self._space: dict[int, list[tuple[int, int, int, bool]]] = {}  # begin, end, task, writes

    def access(self, task: int, reads: list[Range], writes: list[Range], kin: Sequence[int] = ()) -> set[int]:
        """Note a task's accesses and return the earlier tasks that they conflict with, its kin apart."""
        space = self._space
        found: set[int] = set()
        for where, begin, end in reads:
            found |= {t for low, high, t, w in space.get(where, ()) if w and low < end and begin < high}
        for where, begin, end in writes:
            entries = space.get(where, [])
            found |= {t for low, high, t, _ in entries if low < end and begin < high}
            space[where] = [e for e in entries if e[2] in kin or not (begin <= e[0] and e[1] <= end)]
        for where, begin, end in reads:
            space.setdefault(where, []).append((begin, end, task, False))
        for where, begin, end in writes:
            space.setdefault(where, []).append((begin, end, task, True))
        return found.difference(kin)
