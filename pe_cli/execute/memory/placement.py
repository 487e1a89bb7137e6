"""Where the buffers of a plan lie: its own, and those of batches of other sizes, which come in their places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pe_cli.devices.protocol import ShortError, Spot, device
from pe_cli.devices.scope import Scope
from pe_cli.execute.lowering.tasks import Task
from pe_cli.execute.memory.arenas import Arenas
from pe_cli.execute.memory.device_memory import DeviceMemory, moved
from pe_cli.graph.ssa import Graph
from pe_cli.kernels.calls import Buffer

#: How many times its bytes a plan for batches of any shape gives what depends on them, so that larger ones fit later.
ROOM = 1.25
#: How much of the free memory a batch that would fit takes.
FITS = 0.95


class Placement:
    """Places of buffers.

    Args:
        graph: of the plan.
        memory: what its devices need, as planned.
        tasks: of the plan, which have scratch memory.
        scope: where parameters lie.
        arenas: that temporaries are put into.
        samples: of its batch.

    Raises:
        ShortError: a device has not that much memory; says how many samples would fit.
    """

    def __init__(
        self, graph: Graph, memory: Sequence[DeviceMemory], tasks: Sequence[Task], scope: Scope, arenas: Arenas, samples: int
    ) -> None:
        self._graph, self._memory = graph, [*memory]
        self._room: dict[Buffer, int] = {b: n for found in memory for b, n in found.plan.room.items()}
        self._spots: dict[Buffer, Spot] = {}
        self._placed: dict[Buffer, Buffer] = {}  # buffer of another batch -> the one in whose place it lies
        self._scratch = [[*task.scratch] for task in tasks]
        for d, found in enumerate(memory):
            try:
                arena = arenas.take(d, graph.places[d], found.plan.nbytes)
            except ShortError as error:
                if fits := int(samples * error.free / found.plan.nbytes * FITS):
                    error.hint = f"use a smaller batch_size: {samples} samples take {found.plan.nbytes / 2**20:,.1f} MiB, {fits} would fit"
                raise
            for b, offset in found.plan.offsets.items():
                self._spots[b] = Spot(arena, offset, d)
            # Parameters lie in the scope, outside of every arena: they outlive plans, and all plans share them.
            for b in found.placed:
                self._spots[b] = scope.spot(b.name, d)
            for b, other in found.same.items():
                self._spots[b] = scope.spot(other.name, d)

    def spot(self, b: Buffer) -> Spot:
        """Return where a buffer lies."""
        return self._spots[self._placed.get(b, b)]

    def room(self, b: Buffer) -> int:
        """Return the bytes that are a buffer's where it lies."""
        first = self._placed.get(b, b)
        return self._room.get(first, first.type.nbytes)

    def is_placed(self, b: Buffer) -> bool:
        """Whether a buffer of another batch has a place."""
        return b in self._placed

    def place(self, pairs: Mapping[Buffer, Buffer]) -> None:
        """Put buffers of another batch in the places of the plan's own, which have the room; see `room`."""
        self._placed.update(pairs)

    def place_scratch(self, i: int, task: Task) -> None:
        """Give the scratch memory of a task, in the place of the plan's task i, its places; where none is large enough, a new one."""
        places = self._scratch[i]
        for k, b in enumerate(task.scratch):
            if k == len(places):
                places.append(b)
            if b.type.nbytes > self._room.get(places[k], 0):
                places[k] = b
                place = self._graph.places[task.home]
                # A single piece beside the arena, which is rare; the arena itself cannot grow while other plans have addresses in it.
                self._room[b] = int(ROOM * b.type.nbytes)
                memory = device(place.kind).allocate(place.index, self._room[b])
                self._spots[b] = Spot(memory, 0, len(self._graph.places) + len(self._spots))
        self._placed.update(zip(task.scratch, places, strict=False))

    def forget(self, kept: Iterable[Buffer]) -> None:
        """Forget the places of all buffers of other batches but some; these go on to have theirs."""
        placed = {b: self._placed[b] for b in kept if b in self._placed}
        self._placed.clear()
        self._placed.update(placed)

    def memory(self, buffers: Iterable[Buffer]) -> list[DeviceMemory]:
        """Return the memory of every device, with the buffers that are there now."""
        if not self._placed:
            return self._memory
        now = {b: self._placed.get(b, b) for b in buffers}
        return [moved(found, now) for found in self._memory]

    @property
    def nbytes(self) -> int:
        """Bytes of all arenas."""
        return sum(found.plan.nbytes for found in self._memory)
