"""The memory of each device of a graph: variables in the scope, temporaries in an arena."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.strategy import BuildStrategy
from pe_cli.devices.aligned_memory import aligned
from pe_cli.devices.protocol import device
from pe_cli.execute.lowering.context import GraphLowering
from pe_cli.execute.lowering.tasks import Task
from pe_cli.execute.memory.planner import MemoryPlan, plan_memory
from pe_cli.execute.plan.reachability import Reachability
from pe_cli.execute.plan.task_order import graph_edges
from pe_cli.execute.request import Request, fetched_rows
from pe_cli.graph.ssa import AllReduce, Graph, StartScatter, StartSum
from pe_cli.ops.define.lowering import Buffer

#: Bytes of scratch memory that ops of a GPU have to themselves, the smallest pieces of all, so that their launches need not wait.
APART = 16 << 20


@dataclass(frozen=True)
class DeviceMemory:
    """One device's part of a plan's memory.

    Args:
        plan: offsets of temporaries.
        placed: buffers that live in the scope.
        same: buffers that are the same bytes as one in the scope.
    """

    plan: MemoryPlan
    placed: tuple[Buffer, ...]
    same: Mapping[Buffer, Buffer]


def plan_devices(
    graph: Graph,
    request: Request,
    low: GraphLowering,
    tasks: Sequence[Task],
    strategy: BuildStrategy,
    threads: int,
    room: float = 1.0,
    least: Mapping[tuple[str, int], int] = MappingProxyType({}),
) -> list[DeviceMemory]:
    """Plan the memory of every device; allocates nothing.

    Where there are more threads than devices, memory is shared only where the data orders those who use it.

    Args:
        graph: over devices.
        request: what the plan is for.
        low: what the graph was lowered with.
        tasks: that it was lowered to.
        strategy: what may share memory.
        threads: of all devices.
        room: what depends on the batch gets so many times its bytes, where that is not 1,
        least: and no less than these bytes, by (variable, device).

    Raises:
        PeError: a fetched variable that no op writes.
    """
    variables = graph.program.vars

    def reserved(b: Buffer) -> int:
        # A size that does not depend on the batch needs no room to grow.
        varies = b.name not in variables or -1 in variables[b.name].shape
        at = low.known.variables.get(b)
        return max(int(b.type.nbytes * room), least.get(at, 0) if at else 0) if varies else b.type.nbytes

    def in_lines(b: Buffer) -> int:
        return aligned(b.type.nbytes if room == 1.0 else reserved(b), kind.line)

    # With one thread per device tasks run in order and spans of time tell who may share bytes; with more, only what is always ordered does.
    reach = Reachability.of(graph_edges(tasks, graph)) if threads > len(graph.places) else None
    kind = device(graph.places[0].kind)
    # On hosts, what is scattered is an array for each gradient, and need not be one stretch.
    apart = StartScatter if kind.is_host else ()
    reduced = [n for node in graph.nodes if isinstance(node, (AllReduce, StartSum)) and not isinstance(node, apart) for n in node.names]
    fetched = (*request.fetches, *fetched_rows(graph, request).values())
    out = []
    for d in range(len(graph.places)):
        feeds = dict(request.feeds[d])
        for name in fetched:
            graph.program.var(name)
            if name not in low.types[d]:
                raise PeError(
                    f"variable '{name}' gets no value in this program", hint="fetch a variable that an op writes"
                )
        # Buffers of feeds and fetches exist even if no task of this device touches them: they are written or read from outside.
        for name in (*feeds, *fetched):
            low.buffer(name, graph.homes.get(name, d))
        mine = {b: n for (n, where), b in low.buffers.items() if where == d}
        placed = [b for b, n in mine.items() if variables[n].persistable]
        kept = [b for b, n in mine.items() if (n in feeds or n in fetched) and b not in set(placed)]
        # In the order of the buckets: a sum takes a bucket as one array.
        pinned = [low.buffer(n, d) for n in reduced]
        index = [i for i, t in enumerate(tasks) if t.home == d or any(b in mine for b in (*t.reads, *t.writes))]
        own = [_only(tasks[i], mine, d) for i in index]
        plan, same = plan_memory(
            own,
            placed,
            kept,
            pinned,
            share=strategy.memory_optimize,
            inplace=strategy.enable_inplace,
            # Numbers of tasks are those of the device's own list from here on.
            reach=reach and reach.pick(index),
            room=(None if room == 1.0 else reserved) if kind.is_host else in_lines,
            held=[] if kind.is_host else _apart(own),
        )
        out.append(DeviceMemory(plan, tuple(placed), same))
    return out


def _apart(tasks: Sequence[Task]) -> list[Buffer]:
    """Return the smallest pieces of scratch memory of tasks, APART bytes at most."""
    found, left = [], APART
    for b in sorted((b for task in tasks for b in task.scratch), key=lambda b: b.type.nbytes):
        left -= aligned(b.type.nbytes)
        if left < 0:
            break
        found.append(b)
    return found


def moved(found: DeviceMemory, pairs: Mapping[Buffer, Buffer]) -> DeviceMemory:
    """Return the memory of a plan with other buffers in the places of its own; pairs: new buffer -> the one in whose place it comes."""
    plan = found.plan
    offsets = {b: plan.offsets[old] for b, old in pairs.items() if old in plan.offsets}
    room = {b: plan.room[old] for b, old in pairs.items() if old in plan.room}
    placed, now = set(found.placed), {old: b for b, old in pairs.items()}
    same = {b: now[found.same[old]] for b, old in pairs.items() if old in found.same}
    return DeviceMemory(
        replace(plan, offsets=offsets, room=room), tuple(b for b, old in pairs.items() if old in placed), same
    )


def _only(task: Task, mine: Mapping[Buffer, str], device_index: int) -> Task:
    """Return the part of a task that touches one device's buffers."""
    # A view of which one end lies on another device is not the same bytes here.
    shared = task.views if all(b in mine for b in task.views) else {}
    # with Reduce, an update may read what another device holds
    over = {out: source for out, source in task.takes_over.items() if out in mine and source in mine}
    reads = [b for b in task.reads if b in mine]
    writes = [b for b in task.writes if b in mine]
    scratch = task.scratch if task.home == device_index else []
    return Task(task.node, task.home, task.calls, reads, writes, scratch, over, shared)
