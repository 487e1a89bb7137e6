"""Tasks: what a device does for a node of a graph, as kernel calls on buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.devices.protocol import Takers, Work
from pe_cli.kernels.calls import Buffer, Call, buffers_of


@dataclass
class Task:
    """What one device does for a node: kernel calls in order.

    Attributes:
        node: index in the graph.
        home: device whose thread prefers it.
        reads, writes: buffers touched, scratch apart.
        takes_over: output buffer -> input buffer whose memory it may use.
        views: output buffer -> input buffer whose bytes it is.
        part: the shard of a sum over devices that it is: elements from and to; None for what is no such sum.
        spans: the elements of a buffer that are touched, from and to, where that is not all of them.
        beside: it does its part of the node beside the tasks before it: they touch the same buffers at different places.
        takers: who does the numbered parts of its calls.
        buckets: buffers that lie one after the other, so that the first stands for all.
    """

    node: int
    home: int
    calls: list[Call]
    reads: list[Buffer]
    writes: list[Buffer]
    scratch: list[Buffer] = field(default_factory=list)
    takes_over: dict[Buffer, Buffer] = field(default_factory=dict)
    views: dict[Buffer, Buffer] = field(default_factory=dict)
    part: tuple[int, int] | None = None
    spans: dict[Buffer, tuple[int, int]] = field(default_factory=dict)
    beside: bool = False
    takers: Takers = Takers.DEVICE
    buckets: list[list[Buffer]] = field(default_factory=list)

    def work(self, calls: Sequence[Call], waits: Iterable[int] = (), spare: int = 0) -> Work:
        """Return the task as a device takes it; see `Work`."""
        return Work(self.home, calls, frozenset(waits), self.takers, spare, frozenset((*self.writes, *self.scratch)), self.buckets)


def by_output(task: Task, outs: Mapping[str, Sequence[Buffer | None]]) -> list[Task]:
    """Return a task as one for each output, where every call is for one alone (`Lowering.only`): they wait for no more than they read."""
    slots = dict.fromkeys(call.output for call in task.calls)
    if len(slots) < 2 or None in slots:
        return [task]
    found = []
    for slot in slots:
        calls = [call for call in task.calls if call.output == slot]
        touched = {b for call in calls for arg in call.args for b in buffers_of(arg)}
        reads, scratch = ([b for b in row if b in touched] for row in (task.reads, task.scratch))
        writes = [b for b in outs[slot or ""] if b is not None]
        over = {out: source for out, source in task.takes_over.items() if out in writes}
        found.append(replace(task, calls=calls, reads=reads, writes=writes, scratch=scratch, takes_over=over))
    return found
