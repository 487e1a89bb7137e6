"""Which tasks wait for which."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from pe_cli.execute.tasks import Task
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
    joins: Container[int] = (),
) -> list[set[int]]:
    """Return for every task the tasks that must be done before it.

    A task waits for the last writers of what it reads, and for the readers and writers of what it overwrites; by bytes, so that reuse of
    memory is safe. The rules add to that.

    Args:
        tasks, roles: in the program's order.
        ranges: what a task reads and what it writes.
        rules: of the strategy.
        joins: nodes that join rows of gradients which are there, or take the step of a table with them: no other update waits for them.
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
            if task.node not in joins:
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


@dataclass(slots=True)
class _Piece:
    """A range of bytes whose history is one: its last writers (several only where they are kin), and who has read it since."""

    writers: tuple[int, ...] = ()
    readers: tuple[int, ...] = ()


class _Bytes:
    """Who last wrote which bytes, and who has read them since: each space is cut into pieces wherever an access began or ended."""

    def __init__(self) -> None:
        self._spaces: dict[int, tuple[list[int], list[_Piece]]] = {}  # where pieces begin, in order, and they

    def access(self, task: int, reads: list[Range], writes: list[Range], kin: Container[int] = ()) -> set[int]:
        """Note a task's accesses and return the earlier tasks that they conflict with, its kin apart."""
        for where, begin, end in (*reads, *writes):
            self._cut(where, begin)
            self._cut(where, end)
        found: set[int] = set()
        for read in reads:
            for piece in self._pieces(*read)[2]:
                found.update(piece.writers)
                piece.readers += (task,)
        for write in writes:
            first, last, pieces = self._pieces(*write)
            for piece in pieces:
                found.update(piece.writers, piece.readers)
                piece.writers = (*(t for t in piece.writers if t in kin), task)
                piece.readers = tuple(t for t in piece.readers if t in kin)
            if pieces and not kin:
                begins, held = self._spaces[write[0]]
                del begins[first + 1 : last], held[first + 1 : last]
        found.discard(task)
        return {t for t in found if t not in kin} if kin else found

    def _cut(self, where: int, at: int) -> None:
        """Let a piece begin at a place."""
        begins, held = self._spaces.setdefault(where, ([0], [_Piece()]))
        place = bisect_left(begins, at)
        if place == len(begins) or begins[place] != at:
            before = held[place - 1]
            begins.insert(place, at)
            held.insert(place, _Piece(before.writers, before.readers))

    def _pieces(self, where: int, begin: int, end: int) -> tuple[int, int, list[_Piece]]:
        """Return from which to which piece a range goes, and these; both its ends have been cut."""
        begins, held = self._spaces[where]
        first, last = bisect_left(begins, begin), bisect_left(begins, end)
        return first, last, held[first:last]
