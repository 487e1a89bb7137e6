"""Streams, events, captures and graphs of the test library.

What streams are given is done when somebody waits for it, in an order that nothing but streams, events and edges of graphs decides: of what
may be done any may come next, drawn by a seed. Every stream is one that has nothing to do with what is given to no stream.
"""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.cuda.ptx.device import backwards
from tests.cuda.ptx.rules import (
    CAPTURED_EVENT,
    INVALID_CONTEXT,
    INVALID_HANDLE,
    INVALIDATED,
    ISOLATION,
    NOT_READY,
    UNJOINED,
    UNSUPPORTED,
    Refused,
)

#: The first context, stream, node and event; others follow by the number of the device, or count up.
CONTEXT, STREAM, NODE, EVENT = 0x1000, 0x2000, 0x3000, 0x8000
#: Flag of a stream that has nothing to do with what is given to no stream.
NON_BLOCKING = 1
Node = tuple[Callable[[], None], list[int]]


@dataclass
class Entry:
    """What a stream has been given.

    Args:
        what: to be done; None where something else has to come first and nothing is done.
        after: the entry of another stream that comes first.
        done: whether it is done.
        time: when it was, in microseconds.
    """

    what: Callable[[], Any] | None
    after: Entry | None = None
    done: bool = False
    time: float = 0.0


@dataclass
class Capture:
    """Launches that become a graph.

    Args:
        origin: number of the stream that began it.
        nodes: each with the numbers of those before it.
        last: stream -> nodes that its next one waits for.
        broken: whether something was asked that must not be.
    """

    origin: int
    nodes: list[Node] = field(default_factory=list)
    last: dict[int, list[int]] = field(default_factory=dict)
    broken: bool = False

    def before(self, node: int) -> set[int]:
        """Return a node and all that come before it."""
        return {node}.union(*(self.before(i) for i in self.nodes[node][1]))

    def refuse(self, result: int) -> Refused:
        """Break the capture off, and return what is said."""
        self.broken = True
        return Refused(result)


class Streams:
    """The streams of some devices.

    Args:
        devices: how many there are.
        seed: draws what is done next.

    Attributes:
        busy: looks at the stream that find it busy.
        hung: whether nothing that is launched is ever done.
        microseconds: what all launches are said to have taken.
    """

    def __init__(self, devices: int, seed: int) -> None:
        self._count = devices
        self._mine = threading.local()  # a context is current in a thread
        self._streams: list[list[Entry]] = [[] for _ in range(2 * devices)]  # of each device, and those beside them
        self._made = [0] * devices
        self._events: list[tuple[int, Entry | tuple[Capture, list[int]] | None]] = []
        self._draw = random.Random(seed)
        self._capture: Capture | None = None
        self._graphs: dict[int, list[Node]] = {}
        self.busy = 0
        self.hung = False
        self.microseconds = 0.0

    @property
    def current(self) -> int | None:
        """The context that is current in this thread."""
        found: int | None = getattr(self._mine, "context", None)
        return found

    def cuCtxSetCurrent(self, context: Any) -> int:
        self._mine.context = context.value
        return 0

    @property
    def _here(self) -> int:
        """The number of the device whose context is current in this thread."""
        if self.current is None:
            raise Refused(INVALID_CONTEXT)
        return self.current - CONTEXT

    def _number(self, stream: Any) -> int:
        """Return the number of a stream, which must be of the current device."""
        number = int(stream.value) - STREAM
        if number % self._count != self._here:
            raise Refused(INVALID_HANDLE)
        return number

    def _event(self, event: Any) -> int:
        """Return the number of an event."""
        assert EVENT <= event.value < EVENT + len(self._events)
        return int(event.value - EVENT)

    def cuStreamCreate(self, stream: Any, flags: int) -> int:
        assert flags == NON_BLOCKING
        here = self._here
        assert self._made[here] < 2, "each device has two streams"
        stream._obj.value = STREAM + here + self._count * self._made[here]
        self._made[here] += 1
        return 0

    def _do(self, stream: Any, what: Callable[[], Any]) -> int:
        """Give a stream something to do, or remember it while a graph is made."""
        number = self._number(stream)
        if self._capture is None or number not in self._capture.last:
            self._streams[number].append(Entry(what))
            return 0
        self._capture.nodes.append((what, self._capture.last[number]))
        self._capture.last[number] = [len(self._capture.nodes) - 1]
        return 0

    def _finish(self, *numbers: int) -> None:
        """Do what may be done, drawn by chance, until these streams have nothing left."""
        assert not self.hung, "waits for ever"
        while any(self._streams[n] for n in numbers):
            self._go_on()

    def _go_on(self) -> None:
        """Do one thing that may be done."""
        assert not self.hung, "waits for ever"
        ready = [n for n, row in enumerate(self._streams) if row and (row[0].after is None or row[0].after.done)]
        row = self._streams[self._draw.choice(ready)]
        entry = row.pop(0)
        if entry.what is not None:
            entry.what()
        entry.done, entry.time = True, self.microseconds

    def cuEventCreate(self, event: Any, flags: int) -> int:
        assert getattr(flags, "value", flags) in (0, 2)
        self._events.append((self._here, None))
        event._obj.value = EVENT + len(self._events) - 1
        return 0

    def cuEventRecord(self, event: Any, stream: Any) -> int:
        number, at = self._number(stream), self._event(event)
        home, _ = self._events[at]
        if home != self._here:
            raise Refused(INVALID_HANDLE)
        if self._capture is not None and number in self._capture.last:
            self._events[at] = home, (self._capture, list(self._capture.last[number]))
            return 0
        row = self._streams[number]
        row.append(Entry(None))
        self._events[at] = home, row[-1]
        return 0

    def _marked(self, event: Any) -> Entry:
        _, marked = self._events[self._event(event)]
        if isinstance(marked, tuple):
            raise Refused(CAPTURED_EVENT)
        assert marked is not None
        return marked

    def cuEventSynchronize(self, event: Any) -> int:
        marked = self._marked(event)
        while not marked.done:
            self._go_on()
        return 0

    def cuEventElapsedTime_v2(self, found: Any, begin: Any, end: Any) -> int:
        first, last = map(self._marked, (begin, end))
        found._obj.value = (last.time - first.time) / 1e3
        return 0

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> int:
        assert flags == 0
        (_, marked), number = self._events[self._event(event)], self._number(stream)
        if isinstance(marked, tuple):
            capture, nodes = marked
            assert capture is self._capture
            capture.last[number] = [*capture.last.get(number, ()), *nodes]
        elif self._capture is not None and number in self._capture.last:
            raise self._capture.refuse(ISOLATION)
        else:
            self._streams[number].append(Entry(None, marked))
        return 0

    def enqueue(self, what: Callable[[], Any], cost: float) -> int:
        """Do what is asked of the current device's stream, which takes so many microseconds; a library's calls do."""

        def act() -> None:
            what()
            self.microseconds += cost

        return self._do(ctypes.c_void_p(STREAM + self._here), act)

    def meet(self, devices: list[int], what: Callable[[], Any]) -> None:
        """Do something once the streams of devices have come to it, which go on when it is done; a collective call does."""
        if self._capture is not None:
            before = sorted({node for d in devices for node in self._capture.last[d]})
            self._capture.nodes.append((what, before))
            self._capture.last.update({d: [len(self._capture.nodes) - 1] for d in devices})
            return
        first, *others = devices
        for other in others:
            self._streams[other].append(Entry(None))
            self._streams[first].append(Entry(None, self._streams[other][-1]))
        self._streams[first].append(Entry(what))
        for other in others:
            self._streams[other].append(Entry(None, self._streams[first][-1]))

    def cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> int:
        assert mode == 2, "memory is given back meanwhile"
        assert self._capture is None
        number = self._number(stream)
        self._capture = Capture(number, last={number: []})
        return 0

    def _capturing(self, stream: Any) -> Capture:
        """Return the capture that a stream takes part in."""
        assert self._capture is not None
        assert self._number(stream) in self._capture.last
        return self._capture

    def cuStreamUpdateCaptureDependencies_v2(self, stream: Any, nodes: Any, data: Any, count: int, flags: int) -> int:
        assert (data, flags, len(nodes)) == (None, 1, count)
        self._capturing(stream).last[self._number(stream)] = [node - NODE for node in nodes]
        return 0

    def cuStreamGetCaptureInfo_v3(self, stream: Any, state: Any, number: Any, graph: Any, nodes: Any, data: Any, count: Any) -> int:
        assert (number, graph) == (None, None)
        assert data is not None
        last = self._capturing(stream).last[self._number(stream)]
        self._shown = (ctypes.c_void_p * max(1, len(last)))(*(NODE + i for i in last))
        nodes._obj.contents = ctypes.c_void_p.from_buffer(self._shown)
        state._obj.value, count._obj.value = 1, len(last)
        return 0

    def cuStreamEndCapture(self, stream: Any, graph: Any) -> int:
        capture, self._capture = self._capture, None
        assert capture is not None
        assert capture.origin == self._number(stream)
        if capture.broken:
            return INVALIDATED
        joined = {i for node in capture.last[capture.origin] for i in capture.before(node)}
        if any(not joined.issuperset(last) for number, last in capture.last.items() if number != capture.origin):
            return UNJOINED
        graph._obj.value = 1 + max(self._graphs, default=0)
        self._graphs[graph._obj.value] = capture.nodes
        return 0

    def cuGraphInstantiateWithFlags(self, made: Any, graph: Any, flags: int) -> int:
        made._obj.value = 1 + max(self._graphs)
        self._graphs[made._obj.value] = self._graphs[graph.value]
        return 0

    def cuGraphDestroy(self, graph: Any) -> int:
        del self._graphs[graph.value]
        return 0

    cuGraphExecDestroy = cuGraphDestroy

    def cuGraphLaunch(self, made: Any, stream: Any) -> int:
        steps = self._graphs[made.value]

        def run() -> None:
            for i in backwards([after for _, after in steps]):
                steps[i][0]()

        return self._do(stream, run)

    def cuLaunchHostFunc(self, stream: Any, entry: Any, data: int) -> int:
        return self._do(stream, lambda: entry(data))

    def _asked_after(self, stream: Any) -> int:
        """Return the number of a stream that somebody waits for."""
        number = self._number(stream)
        if self._capture is not None and number in self._capture.last:
            raise self._capture.refuse(UNSUPPORTED)
        return number

    def cuStreamQuery(self, stream: Any) -> int:
        self._asked_after(stream)
        self.busy -= 1
        return NOT_READY if self.busy >= 0 or self.hung else 0

    def cuStreamSynchronize(self, stream: Any) -> int:
        self._finish(self._asked_after(stream))
        return 0
