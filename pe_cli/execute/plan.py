"""A plan: one step of a graph for one batch shape, as tapes over planned memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.devices.protocol import Progress, Spot, Work, device
from pe_cli.devices.scope import Scope
from pe_cli.execute.lower import GraphLowering, Task, concrete_types
from pe_cli.execute.memory import MemoryPlan, plan_memory
from pe_cli.execute.order import Range, dependencies
from pe_cli.graph.ssa import Graph
from pe_cli.kernels.calls import Buffer
from pe_cli.ops.status import failure


@dataclass(frozen=True)
class Request:
    """What a plan is for; equal requests share a plan.

    Args:
        feeds: per device: name -> type of its part of the batch.
        sizes: samples of each device.
        fetches: names of variables to read after the step.
    """

    feeds: tuple[tuple[tuple[str, TensorType], ...], ...]
    sizes: tuple[int, ...]
    fetches: tuple[str, ...]


class Plan:
    """A step, ready to run.

    Attributes:
        memory: of every device.
        tasks: in order, for pictures.
        step: what runs.
    """

    def __init__(
        self,
        graph: Graph,
        request: Request,
        scope: Scope,
        *,
        seed: int,
        threads: int,
        share: bool = True,
        progress: Progress | None = None,
    ) -> None:
        self.graph = graph
        self.request = request
        self._scope = scope
        types = [concrete_types(graph.program, dict(feeds)) for feeds in request.feeds]
        self._lowering = GraphLowering(graph, types, request.sizes, seed, len(graph.places))
        self.tasks = self._lowering.run()
        self._place(share)
        self._build(threads, progress)

    # --- memory -------------------------------------------------------------------------------------------------------

    def _place(self, share: bool) -> None:
        self.memory = plan_devices(self.graph, self.request, self._lowering, self.tasks, share)
        self._spots: dict[Buffer, Spot] = {}
        for d, found in enumerate(self.memory):
            place = self.graph.places[d]
            memory = device(place.kind).allocate(place.index, found.plan.nbytes)
            for b, offset in found.plan.offsets.items():
                self._spots[b] = Spot(memory, offset, d)
            for b in found.placed:
                self._spots[b] = self._scope.spot(b.name, d)
            for b, other in found.same.items():
                self._spots[b] = self._scope.spot(other.name, d)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _build(self, threads: int, progress: Progress | None) -> None:
        waits: list[set[int]] = [set() for _ in self.tasks]
        if threads > 1:
            waits = dependencies(self.tasks, self._ranges, threads <= len(self.graph.places))
        works = [Work(t.home, t.calls, frozenset(w)) for t, w in zip(self.tasks, waits, strict=True)]
        self.step = device(self.graph.places[0].kind).compile(works, self._spots.__getitem__, threads, progress)

    def _ranges(self, task: Task) -> tuple[list[Range], list[Range]]:
        def of(b: Buffer) -> Range:
            spot = self._spots[b]
            low, high = (0, b.size) if task.part is None else task.part
            size = b.type.numpy.itemsize
            return spot.space, spot.offset + low * size, spot.offset + max(low * size + 1, high * size)

        return [of(b) for b in task.reads], [of(b) for b in (*task.writes, *task.scratch)]

    # --- running ------------------------------------------------------------------------------------------------------

    def run(
        self, feeds: Sequence[Mapping[str, np.ndarray[Any, Any]]], step: int
    ) -> list[dict[str, np.ndarray[Any, Any]]]:
        """Feed, run the calls, and copy out what is fetched.

        Args:
            feeds: per device: arrays of the request's types.
            step: number of the step; random ops depend on it.

        Returns:
            Per active device: name -> value.

        Raises:
            PeError: a kernel reported an error; it names the layer and the value.
        """
        for d, given in enumerate(feeds):
            for name, value in given.items():
                b = self._lowering.buffers[(name, d)]
                spot = self._spots[b]
                spot.memory.write(spot.offset, b.type, value)
        failed = self.step.run(step)
        if failed is not None:
            work, report = failed
            node = self.graph.nodes[self.tasks[work].node]
            report[1] += sum(self.request.sizes[: node.device])  # the row in the whole batch
            raise failure(report, node.op, step)
        return [{name: self._read(name, d) for name in self.request.fetches} for d in self.graph.active]

    def _read(self, name: str, d: int) -> np.ndarray[Any, Any]:
        b = self._lowering.buffers[(name, d)]
        spot = self._spots[b]
        value: np.ndarray[Any, Any] = spot.memory.read(spot.offset, b.type)
        return value

    def where(self, b: Buffer) -> str:
        """Return `scope` or a buffer's byte offset in its device's arena."""
        spot = self._spots[b]
        return "scope" if spot.space < 0 else str(spot.offset)

    @property
    def nbytes(self) -> int:
        """Bytes of all arenas."""
        return sum(found.plan.nbytes for found in self.memory)


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
    graph: Graph, request: Request, low: GraphLowering, tasks: Sequence[Task], share: bool
) -> list[DeviceMemory]:
    """Plan the memory of every device; allocates nothing.

    Raises:
        PeError: a fetched variable that no op writes.
    """
    block = graph.program.global_block()
    reduced = [n for node in graph.nodes if node.kind.endswith("all_reduce") for n in node.op.inputs["X"]]
    out = []
    for d in range(len(graph.places)):
        feeds = dict(request.feeds[d])
        for name in request.fetches:
            block.var(name)
            if name not in low.types[d]:
                raise PeError(
                    f"variable '{name}' gets no value in this program", hint="fetch a variable that an op writes"
                )
        for name in (*feeds, *request.fetches):
            low.buffer(name, d)
        mine = {b: n for (n, where), b in low.buffers.items() if where == d}
        placed = [b for b, n in mine.items() if block.var(n).persistable]
        kept = [b for b, n in mine.items() if (n in feeds or n in request.fetches) and b not in set(placed)]
        pinned = [low.buffer(n, d) for n in reduced]
        own = [_only(t, mine) for t in tasks if t.home == d or any(b in mine for b in (*t.reads, *t.writes))]
        plan, same = plan_memory(own, placed, kept, pinned, share=share)
        out.append(DeviceMemory(plan, tuple(placed), same))
    return out


def _only(task: Task, mine: Mapping[Buffer, str]) -> Task:
    """Return the part of a task that touches one device's buffers."""
    shared = task.shares if all(b in mine for b in task.shares) else {}
    over = task.takes_over if all(b in mine for b in task.takes_over) else {}
    reads = [b for b in task.reads if b in mine]
    writes = [b for b in task.writes if b in mine]
    return Task(task.node, task.home, task.calls, reads, writes, task.scratch, over, shared)
