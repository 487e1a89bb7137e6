"""The context in which nodes are lowered: typed buffers, the samples of each device, and threads."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

from pe_cli.collectives.protocol import Pending
from pe_cli.core.types import TensorType
from pe_cli.devices.protocol import device
from pe_cli.execute.batch_split import Sizes
from pe_cli.execute.lowering.batch_rows import Counts, Whole, averaged, batched
from pe_cli.execute.lowering.lowered_nodes import LoweredNodes
from pe_cli.execute.lowering.tasks import Task
from pe_cli.execute.numeric_settings import Numerics
from pe_cli.graph.ssa import Compute, Graph, Slots
from pe_cli.ops.define.lowering import Buffer
from pe_cli.program.ir import EMPTY, Operator


def op_seed(seed: int, output: str) -> int:
    """Mix a program's seed with the name of an op's output into 63 bits: the same on every device, at every step, after any pass."""
    # By name, not by place: passes move and remove ops, and the numbers that an op draws stay.
    mixed = hashlib.blake2b(f"{seed}:{output}".encode(), digest_size=8).digest()
    return int.from_bytes(mixed, "little") >> 1


class GraphLowering:
    """One buffer per variable and device, and what else the nodes of a graph have in common; see `lower.lower`.

    Args:
        graph: over devices.
        types: of every variable, by device.
        sizes: samples of each device.
        numerics: how the kernels of its ops compute.
        whole: devices of all processes; None where this is the only one.
        threads: of each device.
        cuts: whether ops are cut for the threads of a device.
        like: what lowered the same graph for other sizes: what it found out of the graph alone is taken from it, and what sizes that come
            again were lowered to.

    Attributes:
        native: of each device, whether its ops may be cut for several threads.
        nests: of each device, whether its kernels may make other calls.
        tasks: of every node, by its index, once lowered.
        known: what nodes were lowered to, also for other sizes.
        loops: that are around the graph, of a region.
        before: of a region's graph, rows of the whole batch before the device's part; None for a program's.
        pending: sums over processes that are under way, by the first gradient of each.
        labels: ops of regions with the numbers that error reports give them, from 1.
        offsets: index of a node -> rows of the whole batch before the device's part, where the node depends on it.
    """

    def __init__(
        self,
        graph: Graph,
        types: Sequence[Mapping[str, TensorType]],
        sizes: Sequence[int],
        numerics: Numerics,
        *,
        whole: Whole | None = None,
        threads: int = 1,
        cuts: bool = True,
        like: GraphLowering | None = None,
    ) -> None:
        self.graph, self.types, self.numerics = graph, types, numerics
        self.threads, self.cuts = threads, cuts
        self.whole = whole or Whole(types, Sizes(sizes))
        self.shards = len(graph.places)
        kinds = [device(place.kind) for place in graph.places]
        self.native, self.nests = [kind.native_threads for kind in kinds], [kind.makes_calls for kind in kinds]
        self.buffers: dict[tuple[str, int], Buffer] = {}
        self.tasks: list[list[Task]] = []
        # Offsets are kept by node, so that a plan that is refitted knows whether a task would draw the same numbers again.
        self.offsets: dict[int, int] = {}
        self.loops = 0
        self.before: int | None = None
        self.labels: dict[Operator, int] = {} if like is None else like.labels
        self.pending: dict[str, Pending] = {} if like is None else like.pending
        self._shares: dict[str, Counts] = {}
        # Where too much is known, whatever plan this is for goes on from the buffers that it has.
        self.known: LoweredNodes = LoweredNodes({}) if like is None else LoweredNodes(like.buffers) if like.known.full else like.known
        if like is None:
            self._nodes = Counter(id(node.op) for node in graph.nodes if isinstance(node, Compute))
            self._batched: dict[int, str | None] = {}
            return
        # Both depend on the program alone, so that a refitted plan shares them.
        self._nodes, self._batched = like._nodes, like._batched

    def buffer(self, name: str, device: int) -> Buffer:
        """Return the buffer of a variable on a device."""
        key = (name, device)
        found = self.buffers.get(key)
        if found is None:
            found = self.buffers[key] = self.known.buffer(name, device, self.types[device][name])
        return found

    def fill(self) -> None:
        """Find the buffers of all variables that nodes have been asked for, at once: that is most of the time in which sizes come again."""
        for at in self.known.touched:
            self.buffers[at] = self.known.buffer(*at, self.types[at[1]][at[0]])

    def value(self, name: str, device: int) -> Buffer:
        """Return the buffer that holds a variable's value of a device after the step."""
        return self.buffer(name, self.graph.homes.get(name, device))

    def slots(self, slots: Slots) -> dict[str, list[Buffer | None]]:
        """Return the buffers of a node's slots."""
        return {s: [self.buffer(*p) if p[0] != EMPTY else None for p in pairs] for s, pairs in slots.items()}

    def once(self, op: Operator) -> bool:
        """Whether one node does an operator, for all devices."""
        return self._nodes[id(op)] == 1

    def rows_before(self, op: Operator, device: int) -> int:
        """Return the rows of the whole batch that lie before a device's part of what an op works on.

        These are samples, or for sequences the rows of those of the devices before it.
        """
        # Inside a region the batch axis may not be there any more: the loop's op says how many rows lie before.
        if self.before is not None:
            return self.before
        if self.whole.first + device == 0:
            return 0
        if id(op) not in self._batched:
            self._batched[id(op)] = batched(self.graph.program, op)
        return self.whole.rows_before(self._batched[id(op)], device)

    def shares(self, number: str) -> Counts:
        """Return how much the value of a number counts in its mean over all devices: the rows that it is taken over.

        The program shows them: the mean over sequences of a loss counts by sequences, that over all their rows by rows; and
        by samples where it is taken over nothing with a batch axis, or over several things that devices share differently.
        """
        if number not in self._shares:
            self._shares[number] = self.whole.counts(number, averaged(self.graph.program, number))
        return self._shares[number]
