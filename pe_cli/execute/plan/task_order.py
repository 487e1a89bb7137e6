"""Dependencies between tasks: edges of the graph, those added by reuse of memory, and those that a strategy asks for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from pe_cli.execute.lowering.tasks import Task
from pe_cli.graph.ssa import Collective, Compute, Graph
from pe_cli.kernels.calls import Buffer
from pe_cli.ops.define.traits import MergesRows, UpdatesTable
from pe_cli.program.operator import UPDATES

#: A byte range: (space, begin, end). Ranges of different spaces never overlap.
Range = tuple[int, int, int]


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


def graph_edges(tasks: Sequence[Task], graph: Graph) -> list[set[int]]:
    """Return for every task the earlier tasks that the graph puts before it.

    An edge between two nodes is one between those of their tasks that touch the same variable, which one of them at least writes.

    Args:
        tasks: of the graph, those of a node one behind the other; nodes may stand in another order than in the graph.
        graph: its edges count.
    """
    of_node: list[list[int]] = [[] for _ in graph.nodes]
    for i, task in enumerate(tasks):
        of_node[task.node].append(i)
    # Sets are made once for each task: edges between large buckets are compared many times.
    touched = [_Touched(frozenset(t.reads), frozenset(t.writes)) for t in tasks]
    waits: list[set[int]] = [set() for _ in tasks]
    for before, after in graph.edges():
        for i in of_node[after]:
            waits[i].update(j for j in of_node[before] if touched[i].conflicts(touched[j]))
    return waits


@dataclass(frozen=True, slots=True)
class _Touched:
    """What a task reads and writes."""

    reads: frozenset[Buffer]
    writes: frozenset[Buffer]

    def conflicts(self, other: _Touched) -> bool:
        """Whether both touch a variable that one of them writes."""
        mine, theirs = self.writes, other.writes
        return not (mine.isdisjoint(theirs) and mine.isdisjoint(other.reads) and self.reads.isdisjoint(theirs))


def dependencies(
    tasks: Sequence[Task],
    graph: Graph,
    ranges: Callable[[Task], tuple[list[Range], list[Range]]],
    rules: Rules,
) -> list[set[int]]:
    """Return for every task the tasks that must be done before it.

    The graph orders tasks that touch the same variable. Where variables share bytes, a task also waits for the last writers of the bytes
    that it reads, and for the readers and writers of those that it overwrites. The rules add to that.

    Args:
        tasks: in a valid order.
        graph: of the tasks.
        ranges: what bytes a task reads and what it writes.
        rules: of the strategy.

    Raises:
        AssertionError: the graph does not order two tasks that touch the same variable, which one of them writes.
    """
    # Bytes alone would order all tasks, too. Both are computed so that each proves the other: a missing edge of the graph is found
    # here, in every plan, and not as a rare race.
    of_graph = graph_edges(tasks, graph)
    bytes_ = _Bytes()
    waits: list[set[int]] = []
    previous: dict[int, int] = {}
    open_work: set[int] = set()  # forward, backward and collective tasks that no other such task waits for yet
    computing: set[int] = set()  # the same of forward and backward tasks alone
    for i, task in enumerate(tasks):
        node = graph.nodes[task.node]
        # Parts of one node may write side by side, but everything else that touches their bytes waits for all of them.
        kin = _before(tasks, i) if task.beside else ()
        shared = bytes_.access(i, *ranges(task), kin)
        _prove(shared - of_graph[i], i, tasks, graph, of_graph)
        found = of_graph[i] | shared
        # A part that runs beside the first one of its node needs the same things done before, even where its own bytes show less.
        if kin:
            found |= waits[kin[0]]
        collective = isinstance(node, Collective)
        update = node.role in UPDATES
        if update and rules.updates_last:
            found |= open_work
        if collective and rules.collectives_last:
            found |= computing
        if _in_line(rules, collective, update):
            found |= {previous[task.home]} if task.home in previous else set()
            previous[task.home] = i
        # what has a successor in these sets needs no edge of its own: waiting for the successor waits for it, too
        found.discard(i)
        if not update:
            # no other update waits for the join of a table's rows, nor for the op that takes the step of a table with it
            if not (isinstance(node, Compute) and (node.op.definition.has(MergesRows) or node.op.definition.has(UpdatesTable))):
                open_work -= found
                open_work.add(i)
            if not collective:
                computing -= found
                computing.add(i)
        waits.append(found)
    return waits


def _prove(found: set[int], i: int, tasks: Sequence[Task], graph: Graph, of_graph: Sequence[set[int]]) -> None:
    """Check that the graph orders a task behind others that it conflicts with in bytes, where both touch the same variable.

    Args:
        found: earlier tasks without an edge to the task.
        i: the task.
        tasks, graph: all.
        of_graph: edges of the graph.
    """
    task = tasks[i]
    mine: _Touched | None = None
    for j in found:
        if tasks[j].node == task.node:
            continue  # they share memory that is no variable
        mine = mine or _Touched(frozenset(task.reads), frozenset(task.writes))
        if mine.conflicts(_Touched(frozenset(tasks[j].reads), frozenset(tasks[j].writes))):
            assert _behind(i, j, of_graph), (
                f"the graph lacks an edge from node {tasks[j].node}, {graph.nodes[tasks[j].node].title}, to node {task.node},"
                f" {graph.nodes[task.node].title}"
            )


def _behind(i: int, j: int, edges: Sequence[set[int]]) -> bool:
    """Whether a task is behind an earlier one by some edges."""
    seen, waiting = {i}, [i]
    while waiting:
        for k in edges[waiting.pop()]:
            if k == j:
                return True
            # Edges lead to earlier tasks alone: from one before j no way leads back to it.
            # Tasks have smaller numbers than what waits for them, which keeps this search short even in deep networks.
            if k > j and k not in seen:
                seen.add(k)
                waiting.append(k)
    return False


def _before(tasks: Sequence[Task], i: int) -> range:
    """Return the earlier tasks of a task's node."""
    # Tasks of one node stand next to each other, because nodes are lowered one after the other.
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
        node = graph.nodes[task.node]
        if task.part is not None:
            held.append(task)
            names.update(v.name for v in node.inputs)
            continue
        if node.role in UPDATES or any(b.name in names for b in (*task.reads, *task.writes)):
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
            # a write gives its whole range one history again, so that cuts do not pile up over a long step
            if pieces and not kin:
                begins, held = self._spaces[write[0]]
                del begins[first + 1 : last], held[first + 1 : last]
        found.discard(task)
        return {t for t in found if t not in kin} if kin else found

    def _cut(self, where: int, at: int) -> None:
        """Split the history at a byte, so that a piece begins there."""
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
