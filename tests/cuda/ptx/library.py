"""CUDA's driver library as far as `pe_cli.devices.cuda_driver` asks for it, with kernels that run on this CPU, and with failures.

What streams are given is done when somebody waits for it, in an order that nothing but streams, events and edges of graphs decides: of what
may be done any may come next, drawn by a seed. A device's kernels touch its own memory and that of devices that are open to it.
"""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pe_cli.devices.cuda_driver import CudaDriver
from pe_cli.kernels.cuda import Built
from pe_cli.kernels.cuda_compiler import Capability, cubin, entry_of, ptx
from tests.cuda.ptx.device import PtxDriver, backwards
from tests.cuda.ptx.machine import Piece, Program

#: Microseconds of a launch, and kernels that take a tenth.
COST, SMALL = 10.0, ("turn_filters", "add_parts")
#: The first context, stream, node and event; others follow by the number of the device, or count up.
CONTEXT, STREAM, NODE, EVENT = 0x1000, 0x2000, 0x3000, 0x8000
#: What the driver says of a way that is open already, and of a capture that is not joined.
ENABLED, UNJOINED = 704, 904
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
    """

    origin: int
    nodes: list[Node] = field(default_factory=list)
    last: dict[int, list[int]] = field(default_factory=dict)

    def before(self, node: int) -> set[int]:
        """Return a node and all that come before it."""
        return {node}.union(*(self.before(i) for i in self.nodes[node][1]))


class Library:
    """The functions of libcuda.so.1 that are asked for, with C's meaning: results are numbers, places are written through pointers.

    Args:
        kernels: what may be loaded.
        memory: bytes of each device.
        capability: of the devices.
        version: of CUDA, in the driver's counting.
        devices: how many there are.
        seed: draws what is done next.

    Attributes:
        failing: function -> result that it gives from now on, or what is called with how often it was called and gives one.
        calls: function -> how often it was called.
        busy: looks at the stream that find it busy.
        held: addresses of host memory that it has given.
        closed: pairs of devices of which the first cannot be opened to the second.
        garbled: pairs of devices between which copies arrive as something else.
        launched: number of the device of every kernel, in the order in which they were done.
        microseconds: what all launches are said to have taken, `COST` each, a tenth for those of `SMALL`, and what libraries add.
    """

    def __init__(
        self,
        kernels: list[Built],
        memory: int = 1 << 20,
        capability: Capability = (9, 0),
        version: int = 13000,
        devices: int = 1,
        seed: int = 0,
    ) -> None:
        self._one = threading.RLock()
        self._device = PtxDriver()
        self._capability, self._version, self._count = capability, version, devices
        self._kernels = {entry_of(k, capability): k for k in kernels}
        self._memory = memory
        self._free = [memory] * devices
        self._sizes: dict[int, tuple[int, int]] = {}  # address -> bytes, device
        self._images: list[tuple[bytes, int]] = []
        self._functions: list[tuple[Built, Program, int]] = []
        self._programs: dict[Built, Program] = {}
        self._streams: list[list[Entry]] = [[] for _ in range(devices)]
        self._events: list[Entry | tuple[Capture, list[int]] | None] = []
        self._open: set[tuple[int, int]] = set()
        self._draw = random.Random(seed)
        self._capture: Capture | None = None
        self._graphs: dict[int, list[Node]] = {}
        self.held: dict[int, Any] = {}
        self.current: int | None = None
        self.failing: dict[str, int | Callable[[int], int]] = {}
        self.calls: dict[str, int] = {}
        self.busy = 0
        self.closed: set[tuple[int, int]] = set()
        self.garbled: set[tuple[int, int]] = set()
        self.launched: list[int] = []
        self.microseconds = 0.0

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, name)
        if not name.startswith("cu") or name == "current":
            return own

        def call(*args: Any) -> int:
            self.calls[name] = self.calls.get(name, 0) + 1
            result = self.failing.get(name, 0)
            result = result(self.calls[name]) if callable(result) else result
            with self._one:  # memory may be given back by any thread
                return result or own(*args)

        return call

    @property
    def allocated(self) -> int:
        """Bytes of all devices that are given."""
        return self._memory * self._count - sum(self._free)

    def learn(self, built: Built) -> None:
        """Let a kernel be loaded."""
        self._kernels[entry_of(built, self._capability)] = built

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = self._version
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self._count
        return 0

    @property
    def _here(self) -> int:
        """The number of the device whose context is current."""
        assert self.current is not None
        return self.current - CONTEXT

    def cuMemGetInfo_v2(self, free: Any, whole: Any) -> int:
        free._obj.value, whole._obj.value = self._free[self._here], self._memory
        return 0

    def cuGetErrorName(self, result: int, name: Any) -> int:
        names = {2: b"CUDA_ERROR_OUT_OF_MEMORY", 46: b"CUDA_ERROR_DEVICE_UNAVAILABLE", 719: b"CUDA_ERROR_LAUNCH_FAILED"}
        name._obj.value = names.get(result)
        return 0 if result in names else 1

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = ordinal
        return 0 if ordinal < self._count else 101

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:
        name.value = b"a card of the tests"
        return 0

    def cuDeviceGetAttribute(self, value: Any, which: int, device: Any) -> int:
        value._obj.value = {75: self._capability[0], 76: self._capability[1]}[which]
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:
        context._obj.value = CONTEXT + device.value
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:
        self.current = context.value
        return 0

    def cuStreamCreate(self, stream: Any, flags: int) -> int:
        beside = self._count + self._here  # of copies that launches need not be done for
        if flags:
            self._streams += [[] for _ in range(1 + beside - len(self._streams))]
        stream._obj.value = STREAM + (beside if flags else self._here)
        return 0

    def cuDeviceCanAccessPeer(self, able: Any, device: int, other: int) -> int:
        able._obj.value = (device, other) not in self.closed
        return 0

    def cuCtxEnablePeerAccess(self, context: Any, flags: int) -> int:
        way = self._here, context.value - CONTEXT
        assert way not in self.closed
        if way in self._open:
            return ENABLED
        self._open.add(way)
        return 0

    def cuMemAlloc_v2(self, address: Any, nbytes: int) -> int:
        if nbytes > self._free[self._here]:
            return 2
        address._obj.value = self._device.allocate(nbytes)
        self._sizes[address._obj.value] = nbytes, self._here
        self._free[self._here] -= nbytes
        return 0

    def cuMemFree_v2(self, address: int) -> int:
        self._finish(*range(self._count))
        self._device.free(address)
        nbytes, device = self._sizes.pop(address)
        self._free[device] += nbytes
        return 0

    def _reaches(self, address: int, nbytes: int) -> bool:
        """Return whether the current device may touch some memory."""
        return any(begin <= address and address + nbytes <= begin + size for begin, size in self._pieces(self._here))

    def _pieces(self, device: int) -> list[tuple[int, int]]:
        """Return the memory that a device may touch: address and bytes of each piece."""
        return [(a, size) for a, (size, d) in self._sizes.items() if d == device or (device, d) in self._open]

    def cuMemsetD8_v2(self, address: int, value: int, nbytes: int) -> int:
        assert self._reaches(address, nbytes)
        self._finish(self._here)
        ctypes.memset(address, value, nbytes)
        return 0

    def cuMemcpyHtoD_v2(self, address: int, host: int, nbytes: int) -> int:
        assert self._reaches(address, nbytes)
        self._finish(self._here)
        ctypes.memmove(address, host, nbytes)
        return 0

    def cuMemcpyDtoH_v2(self, host: int, address: int, nbytes: int) -> int:
        assert self._reaches(address, nbytes)
        self._finish(self._here)
        ctypes.memmove(host, address, nbytes)
        return 0

    def cuMemcpyDtoDAsync_v2(self, address: int, source: int, nbytes: int, stream: Any) -> int:
        assert self._reaches(address, nbytes)
        assert self._reaches(source, nbytes)
        way = tuple(self._sizes[a][1] if a in self._sizes else self._here for a in (source, address))

        def run() -> None:
            ctypes.memmove(address, source, nbytes)
            if way in self.garbled:
                ctypes.memset(address + nbytes // 2, 0xFF, 8)

        return self._do(stream, run)

    def cuMemcpyHtoDAsync_v2(self, address: int, host: int, nbytes: int, stream: Any) -> int:
        assert self._reaches(address, nbytes)
        pinned = any(begin <= host < begin + len(room) for begin, room in self.held.items())
        given = None if pinned else ctypes.string_at(host, nbytes)  # other memory is read at once
        return self._do(stream, lambda: ctypes.memmove(address, host if given is None else given, nbytes))

    def cuMemcpyDtoHAsync_v2(self, host: int, address: int, nbytes: int, stream: Any) -> int:
        assert self._reaches(address, nbytes)
        return self._do(stream, lambda: ctypes.memmove(host, address, nbytes))

    # --- streams ------------------------------------------------------------------------------------------------------

    def _number(self, stream: Any) -> int:
        number = int(stream.value) - STREAM
        assert 0 <= number < len(self._streams)
        return number

    def _do(self, stream: Any, what: Callable[[], Any]) -> int:
        """Give a stream something to do, or remember it while a graph is made."""
        number = self._number(stream)
        if self._capture is None:
            self._streams[number].append(Entry(what))
            return 0
        assert number in self._capture.last, "the stream does not take part in the capture"
        self._capture.nodes.append((what, self._capture.last[number]))
        self._capture.last[number] = [len(self._capture.nodes) - 1]
        return 0

    def _finish(self, *numbers: int) -> None:
        """Do what may be done, drawn by chance, until these streams have nothing left."""
        while any(self._streams[n] for n in numbers):
            self._go_on()

    def _go_on(self) -> None:
        """Do one thing that may be done."""
        ready = [n for n, row in enumerate(self._streams) if row and (row[0].after is None or row[0].after.done)]
        row = self._streams[self._draw.choice(ready)]
        entry = row.pop(0)
        if entry.what is not None:
            entry.what()
        entry.done, entry.time = True, self.microseconds

    def cuEventCreate(self, event: Any, flags: int) -> int:
        assert getattr(flags, "value", flags) in (0, 2)
        self._events.append(None)
        event._obj.value = EVENT + len(self._events) - 1
        return 0

    def cuEventRecord(self, event: Any, stream: Any) -> int:
        number = self._number(stream)
        if self._capture is not None and number in self._capture.last:
            self._events[event.value - EVENT] = self._capture, list(self._capture.last[number])
            return 0
        row = self._streams[number]
        row.append(Entry(None))
        self._events[event.value - EVENT] = row[-1]
        return 0

    def cuEventSynchronize(self, event: Any) -> int:
        marked = self._events[event.value - EVENT]
        assert isinstance(marked, Entry)
        while not marked.done:
            self._go_on()
        return 0

    def cuEventElapsedTime_v2(self, found: Any, begin: Any, end: Any) -> int:
        first, last = (self._events[event.value - EVENT] for event in (begin, end))
        assert isinstance(first, Entry)
        assert isinstance(last, Entry)
        found._obj.value = (last.time - first.time) / 1e3
        return 0

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> int:
        assert flags == 0
        marked, number = self._events[event.value - EVENT], self._number(stream)
        if isinstance(marked, tuple):
            capture, nodes = marked
            assert capture is self._capture
            capture.last[number] = [*capture.last.get(number, ()), *nodes]
        else:
            assert self._capture is None or number not in self._capture.last
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

    def cuMemAllocHost_v2(self, place: Any, nbytes: int) -> int:
        room = ctypes.create_string_buffer(b"\xff" * nbytes, nbytes)
        place._obj.value = ctypes.addressof(room)
        self.held[place._obj.value] = room
        return 0

    def cuMemFreeHost(self, place: Any) -> int:
        del self.held[place.value]
        return 0

    def cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> int:
        assert self._capture is None
        number = self._number(stream)
        self._capture = Capture(number, last={number: []})
        return 0

    def cuStreamUpdateCaptureDependencies_v2(self, stream: Any, nodes: Any, data: Any, count: int, flags: int) -> int:
        assert (data, flags, len(nodes)) == (None, 1, count)
        assert self._capture is not None
        assert self._number(stream) in self._capture.last
        self._capture.last[self._number(stream)] = [node - NODE for node in nodes]
        return 0

    def cuStreamGetCaptureInfo_v3(self, stream: Any, state: Any, number: Any, graph: Any, nodes: Any, data: Any, count: Any) -> int:
        assert (number, graph) == (None, None)
        assert data is not None
        assert self._capture is not None
        last = self._capture.last[self._number(stream)]
        self._shown = (ctypes.c_void_p * max(1, len(last)))(*(NODE + i for i in last))
        nodes._obj.contents = ctypes.c_void_p.from_buffer(self._shown)
        state._obj.value, count._obj.value = 1, len(last)
        return 0

    def cuStreamEndCapture(self, stream: Any, graph: Any) -> int:
        capture, self._capture = self._capture, None
        assert capture is not None
        assert capture.origin == self._number(stream)
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

    def cuStreamQuery(self, stream: Any) -> int:
        self.busy -= 1
        return 600 if self.busy >= 0 else 0

    def cuStreamSynchronize(self, stream: Any) -> int:
        assert self._capture is None
        self._finish(self._number(stream))
        return 0

    def cuModuleLoadData(self, module: Any, image: Any) -> int:
        self._images.append((image.raw, self._here))
        module._obj.value = len(self._images)
        return 0

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        built = self._kernels[name.decode()]
        image, device = self._images[module.value - 1]
        assert (image, device) == (cubin(built, self._capability).image, self._here)
        if built not in self._programs:
            self._programs[built] = Program(ptx(built, self._capability))
        self._functions.append((built, self._programs[built], device))
        function._obj.value = len(self._functions)
        return 0

    def cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        gx, gy, gz, bx, by, bz, shared, stream, params, extra = rest
        built, program, device = self._functions[function.value - 1]
        assert (shared, extra, self._number(stream)) == (0, None, device)
        count, kernel = len(built.kernel.params), built.kernel
        bytewise = kernel.name.endswith("[]") or "uint8" in built.elements or bool(built.halves)
        shift = 0 if bytewise else 2  # neighbouring bytes may have writers of their own
        places = (ctypes.c_uint64 * count).from_address(params)
        words = np.array([ctypes.c_uint64.from_address(place).value for place in places], np.uint64)

        def run() -> None:
            pieces = [Piece(address, nbytes, shift) for address, nbytes in self._pieces(device)]
            program.launch(words, pieces, (gx, gy, gz), (bx, by, bz))
            self.launched.append(device)

        return self.enqueue(run, COST / 10 if built.kernel.name.endswith(SMALL) else COST)


class LearningDriver(CudaDriver):
    """The driver over such a library, which learns of every kernel that is loaded.

    Args:
        library: an instance.
        index: number of the device.
    """

    _compiling = threading.RLock()

    def _function(self, built: Built) -> Any:
        with self._compiling:  # tests have processes that are threads
            self._library.learn(built)
            return super()._function(built)
