"""CUDA's driver library as far as `pe_cli.devices.cuda_driver` asks for it, with kernels that run on this CPU, and with failures."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from pe_cli.devices.cuda_driver import CudaDriver
from pe_cli.kernels.cuda import Built
from pe_cli.kernels.cuda_compiler import Capability, cubin, entry_of, ptx
from tests.cuda.ptx.device import PtxDriver, backwards
from tests.cuda.ptx.machine import Piece, Program

#: Microseconds of a launch, and kernels that take a tenth.
COST, SMALL = 10.0, ("turn_filters", "add_parts")
CONTEXT, STREAM, DEVICE, NODE = 0x1000, 0x2000, 0, 0x3000


class Library:
    """The functions of libcuda.so.1 that are asked for, with C's meaning: results are numbers, places are written through pointers.

    Args:
        kernels: what may be loaded.
        memory: bytes of the device.
        capability: of the device.
        version: of CUDA, in the driver's counting.

    Attributes:
        failing: function -> result that it gives from now on, or what is called with how often it was called and gives one.
        calls: function -> how often it was called.
        busy: looks at the stream that find it busy.
        held: addresses of host memory that it has given.
        microseconds: what all launches are said to have taken, `COST` each, a tenth for those of `SMALL`, and what libraries add.
    """

    def __init__(
        self, kernels: list[Built], memory: int = 1 << 20, capability: Capability = (9, 0), version: int = 13000
    ) -> None:
        self._device = PtxDriver()
        self._capability, self._version = capability, version
        self._kernels = {entry_of(k, capability): k for k in kernels}
        self._memory = memory
        self._free = memory
        self._sizes: dict[int, int] = {}
        self._images: list[bytes] = []
        self._functions: list[tuple[Built, Program]] = []
        self._recorded: list[tuple[Callable[[], None], list[int]]] | None = None
        self._after: list[int] = []
        self._graphs: dict[int, list[tuple[Callable[[], None], list[int]]]] = {}
        self.held: dict[int, Any] = {}
        self.current: int | None = None
        self.failing: dict[str, int | Callable[[int], int]] = {}
        self.calls: dict[str, int] = {}
        self.busy = 0
        self.microseconds = 0.0
        self._events: list[float] = []

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, name)
        if not name.startswith("cu") or name == "current":
            return own

        def call(*args: Any) -> int:
            self.calls[name] = self.calls.get(name, 0) + 1
            result = self.failing.get(name, 0)
            result = result(self.calls[name]) if callable(result) else result
            return result or own(*args)

        return call

    def learn(self, built: Built) -> None:
        """Let a kernel be loaded."""
        self._kernels[entry_of(built, self._capability)] = built

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = self._version
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def cuMemGetInfo_v2(self, free: Any, whole: Any) -> int:
        free._obj.value, whole._obj.value = self._free, self._memory
        return 0

    def cuGetErrorName(self, result: int, name: Any) -> int:
        names = {2: b"CUDA_ERROR_OUT_OF_MEMORY", 46: b"CUDA_ERROR_DEVICE_UNAVAILABLE", 719: b"CUDA_ERROR_LAUNCH_FAILED"}
        name._obj.value = names.get(result)
        return 0 if result in names else 1

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = ordinal
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:
        name.value = b"a card of the tests"
        return 0

    def cuDeviceGetAttribute(self, value: Any, which: int, device: Any) -> int:
        value._obj.value = {75: self._capability[0], 76: self._capability[1]}[which]
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:
        context._obj.value = CONTEXT
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:
        self.current = context.value
        return 0

    def cuStreamCreate(self, stream: Any, flags: int) -> int:
        stream._obj.value = STREAM
        return 0

    def cuMemAlloc_v2(self, address: Any, nbytes: int) -> int:
        assert self.current == CONTEXT
        if nbytes > self._free:
            return 2
        address._obj.value = self._device.allocate(nbytes)
        self._sizes[address._obj.value] = nbytes
        self._free -= nbytes
        return 0

    def cuMemFree_v2(self, address: int) -> int:
        self._device.free(address)
        self._free += self._sizes.pop(address)
        return 0

    def cuMemsetD8_v2(self, address: int, value: int, nbytes: int) -> int:
        ctypes.memset(address, value, nbytes)
        return 0

    def cuMemcpyHtoD_v2(self, address: int, host: int, nbytes: int) -> int:
        ctypes.memmove(address, host, nbytes)
        return 0

    def cuMemcpyDtoH_v2(self, host: int, address: int, nbytes: int) -> int:
        ctypes.memmove(host, address, nbytes)
        return 0

    def cuMemcpyHtoDAsync_v2(self, address: int, host: int, nbytes: int, stream: Any) -> int:
        assert stream.value == STREAM
        return self._do(lambda: self.cuMemcpyHtoD_v2(address, host, nbytes))

    def cuMemcpyDtoHAsync_v2(self, host: int, address: int, nbytes: int, stream: Any) -> int:
        assert stream.value == STREAM
        return self._do(lambda: self.cuMemcpyDtoH_v2(host, address, nbytes))

    def _do(self, what: Callable[[], Any]) -> int:
        """Do what is asked of the stream, or remember it while a graph is made."""
        if self._recorded is None:
            what()
        else:
            self._recorded.append((what, self._after))
            self._after = [len(self._recorded) - 1]
        return 0

    def enqueue(self, what: Callable[[], Any], cost: float) -> int:
        """Do what is asked of the stream, which takes so many microseconds; a library's calls do."""

        def act() -> None:
            what()
            self.microseconds += cost

        return self._do(act)

    def cuMemAllocHost_v2(self, place: Any, nbytes: int) -> int:
        room = ctypes.create_string_buffer(b"\xff" * nbytes, nbytes)
        place._obj.value = ctypes.addressof(room)
        self.held[place._obj.value] = room
        return 0

    def cuMemFreeHost(self, place: Any) -> int:
        del self.held[place.value]
        return 0

    def cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> int:
        assert (stream.value, self._recorded) == (STREAM, None)
        self._recorded, self._after = [], []
        return 0

    def cuStreamUpdateCaptureDependencies_v2(self, stream: Any, nodes: Any, data: Any, count: int, flags: int) -> int:
        assert (stream.value, data, flags, len(nodes)) == (STREAM, None, 1, count)
        self._after = [node - NODE for node in nodes]
        return 0

    def cuStreamGetCaptureInfo_v3(self, stream: Any, state: Any, number: Any, graph: Any, nodes: Any, data: Any, count: Any) -> int:
        assert (stream.value, number, graph) == (STREAM, None, None)
        assert data is not None
        self._shown = (ctypes.c_void_p * len(self._after))(*(NODE + i for i in self._after))
        nodes._obj.contents = ctypes.c_void_p.from_buffer(self._shown)
        state._obj.value, count._obj.value = 1, len(self._after)
        return 0

    def cuStreamEndCapture(self, stream: Any, graph: Any) -> int:
        assert stream.value == STREAM
        assert self._recorded is not None
        graph._obj.value = 1 + max(self._graphs, default=0)
        self._graphs[graph._obj.value], self._recorded = self._recorded, None
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
        assert stream.value == STREAM
        steps = self._graphs[made.value]
        for i in backwards([after for _, after in steps]):
            self._do(steps[i][0])
        return 0

    def cuStreamQuery(self, stream: Any) -> int:
        self.busy -= 1
        return 600 if self.busy >= 0 else 0

    def cuStreamSynchronize(self, stream: Any) -> int:
        assert (stream.value, self._recorded) == (STREAM, None)
        return 0

    def cuModuleLoadData(self, module: Any, image: Any) -> int:
        self._images.append(image.raw)
        module._obj.value = len(self._images)
        return 0

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        built = self._kernels[name.decode()]
        assert self._images[module.value - 1] == cubin(built, self._capability).image
        self._functions.append((built, Program(ptx(built, self._capability))))
        function._obj.value = len(self._functions)
        return 0

    def cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        gx, gy, gz, bx, by, bz, shared, stream, params, extra = rest
        assert (shared, stream.value, extra) == (0, STREAM, None)
        built, program = self._functions[function.value - 1]
        count = len(built.kernel.params)
        places = (ctypes.c_uint64 * count).from_address(params)
        words = np.array([ctypes.c_uint64.from_address(place).value for place in places], np.uint64)
        pieces = [Piece(address, nbytes) for address, nbytes in self._sizes.items()]
        cost = COST / 10 if built.kernel.name.endswith(SMALL) else COST
        return self.enqueue(lambda: program.launch(words, pieces, (gx, gy, gz), (bx, by, bz)), cost)

    def cuEventCreate(self, event: Any, flags: Any) -> int:
        self._events.append(0.0)
        event._obj.value = len(self._events)
        return 0

    def cuEventRecord(self, event: Any, stream: Any) -> int:
        assert (stream.value, self._recorded) == (STREAM, None)
        self._events[event.value - 1] = self.microseconds
        return 0

    def cuEventSynchronize(self, event: Any) -> int:
        return 0

    def cuEventElapsedTime_v2(self, found: Any, begin: Any, end: Any) -> int:
        found._obj.value = (self._events[end.value - 1] - self._events[begin.value - 1]) / 1e3
        return 0


class LearningDriver(CudaDriver):
    """The driver over such a library, which learns of every kernel that is loaded.

    Args:
        library: an instance.
    """

    def _function(self, built: Built) -> Any:
        self._library.learn(built)
        return super()._function(built)
