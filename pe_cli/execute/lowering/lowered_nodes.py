"""What the nodes of a graph were lowered to for sizes that came before: sizes come again, and to look tasks up takes far less time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from pe_cli.core.types import TensorType
from pe_cli.execute.lowering.tasks import Task
from pe_cli.graph.ssa import Node
from pe_cli.kernels.calls import Buffer
from pe_cli.program.ir import EMPTY

#: Tasks that are kept; beyond, all are forgotten. They take about 8 KB each, with what a tape keeps of them.
MOST = 4096
Key = tuple[Any, ...]


class Lowered(NamedTuple):
    """The tasks of a node.

    Args:
        tasks: in order.
        beside: buffers that they touch beside those of the node's slots.
    """

    tasks: list[Task]
    beside: tuple[Buffer, ...]


class Slots(NamedTuple):
    """The slots of a node.

    Args:
        names: (variable, device) pairs, in order.
        of: returns their buffers as a tuple, out of those of all.
    """

    names: tuple[tuple[str, int], ...]
    of: Callable[[Mapping[tuple[str, int], Buffer]], tuple[Buffer, ...]]


class LoweredNodes:
    """The tasks of a graph's nodes by what they were lowered from, and one buffer for every type that a variable has had.

    Args:
        buffers: those that stand for the types that their variables have, by (variable, device).

    Attributes:
        variables: buffer -> (variable, device) that it is for.
        by_offset: indexes of the nodes that depend on the rows of the whole batch before the device's part.
        touched: (variable, device) pairs of the slots of all nodes that have been asked for.
    """

    def __init__(self, buffers: Mapping[tuple[str, int], Buffer]) -> None:
        self.variables = {b: at for at, b in buffers.items()}
        self.by_offset: set[int] = set()
        self.touched: dict[tuple[str, int], None] = {}
        self._buffers = {(*at, b.type.shape, b.type.dtype): b for at, b in buffers.items()}
        self._tasks: dict[tuple[int, Key], Lowered] = {}
        self._newest: dict[int, tuple[Key, Lowered]] = {}
        self._slots: dict[int, Slots] = {}

    @property
    def full(self) -> bool:
        """Whether so many are kept that one should begin anew."""
        return len(self._tasks) > MOST

    def buffer(self, name: str, device: int, kind: TensorType) -> Buffer:
        """Return the buffer of a variable on a device while it has a type."""
        key = name, device, kind.shape, kind.dtype
        found = self._buffers.get(key)
        if found is None:
            found = self._buffers[key] = Buffer(name, kind)
            self.variables[found] = name, device
        return found

    def slots(self, node: Node) -> Slots:
        """Return the (variable, device) pairs of a node's slots, in order."""
        found = self._slots.get(node.index)
        if found is None:
            rows = [pairs for slots in (node.ins, node.outs) for pairs in slots.values()]
            names = tuple(at for pairs in rows for at in pairs if at[0] != EMPTY)
            of = itemgetter(*names) if len(names) > 1 else lambda buffers: tuple(buffers[at] for at in names)
            found = self._slots[node.index] = Slots(names, of)
            self.touched |= dict.fromkeys(names)
        return found

    def find(self, node: int, key: Key) -> Lowered | None:
        """Return what a node, by its index, was lowered to under a key; None where it has not had it."""
        newest = self._newest.get(node)
        return newest[1] if newest is not None and newest[0] == key else self._tasks.get((node, key))

    def keep(self, node: int, key: Key, tasks: list[Task], *, again: bool) -> None:
        """Keep what a node was lowered to. Tasks that touch more than variables are not kept: that memory may be another next time.

        Args:
            node: its index.
            key: all that its tasks depend on; the buffers of its slots come first, as a tuple.
            tasks: of it.
            again: whether they may come back after others; where not, they are kept until the next ones.
        """
        self._newest.pop(node, None)
        touched = {b for task in tasks for b in (*task.reads, *task.writes)}
        if not all(b in self.variables for b in touched):
            return
        found = Lowered(tasks, tuple(touched.difference(key[0])))
        if again:
            self._tasks[node, key] = found
        else:
            self._newest[node] = key, found
