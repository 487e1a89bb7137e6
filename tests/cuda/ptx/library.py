"""CUDA's driver library as far as `pe_cli.devices.cuda_driver` asks for it, with kernels that run on this CPU, and with failures.

It refuses what the driver refuses (`rules`): calls in a thread that has set no context, or the one of another device than the stream's;
launches that ask too much of a card; what must not be done while launches are captured. Memory that is not pinned may be read and written
until the stream is waited for, which must be the next thing to be done. Once a kernel has failed, every call fails.

A device's kernels touch its own memory and that of devices that are open to it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from pe_cli.devices.cuda_driver import CudaDriver
from pe_cli.kernels.cuda.compiler import Capability, cubin, entry_of, ptx
from pe_cli.kernels.cuda.language import Built
from tests.cuda.ptx.device import PtxDriver
from tests.cuda.ptx.machine import Piece, Program
from tests.cuda.ptx.rules import ENABLED, INVALID_CONTEXT, NAMES, OUT_OF_MEMORY, Refused, refused
from tests.cuda.ptx.streams import CONTEXT, Streams

#: Microseconds of a launch, and kernels that take a tenth.
COST, SMALL = 10.0, ("turn_filters", "add_parts")
#: Need no context, and what gives back, which may be done at any time.
WITHOUT = ("cuInit", "cuDriver", "cuGetError", "cuDevice", "cuCtxSetCurrent")
GIVES_BACK = ("cuMemFree_v2", "cuMemFreeHost", "cuGraphDestroy", "cuGraphExecDestroy")


class Library(Streams):
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
        fault: result of every call from now on but for those without a context; 0 as long as no kernel has failed.
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
        super().__init__(devices, seed)
        self._one = threading.RLock()
        self._device = PtxDriver()
        self._capability, self._version = capability, version
        self._kernels = {entry_of(k, capability): k for k in kernels}
        self._memory = memory
        self._free = [memory] * devices
        self._sizes: dict[int, tuple[int, int]] = {}  # address -> bytes, device
        self._images: list[tuple[bytes, int]] = []
        self._functions: list[tuple[Built, Program, int]] = []
        self._programs: dict[Built, Program] = {}
        self._open: set[tuple[int, int]] = set()
        self.held: dict[int, Any] = {}
        self.fault = 0
        self.failing: dict[str, int | Callable[[int], int]] = {}
        self.calls: dict[str, int] = {}
        self.closed: set[tuple[int, int]] = set()
        self.garbled: set[tuple[int, int]] = set()
        self.launched: list[int] = []

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, name)
        if not name.startswith("cu") or name == "current":
            return own

        def call(*args: Any) -> int:
            self.calls[name] = self.calls.get(name, 0) + 1
            result = self.failing.get(name, 0)
            result = result(self.calls[name]) if callable(result) else result
            if not name.startswith(WITHOUT):
                result = result or self.fault or (INVALID_CONTEXT if self.current is None else 0)
                owed, self._mine.owed = getattr(self._mine, "owed", None), None
                if name in GIVES_BACK:
                    self._mine.owed = owed
                else:
                    assert owed is None or name == "cuStreamSynchronize", "memory that is not pinned is not waited for"
            try:
                with self._one:  # memory may be given back by any thread
                    return result or own(*args)
            except Refused as error:
                return error.result

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

    def cuMemGetInfo_v2(self, free: Any, whole: Any) -> int:
        free._obj.value, whole._obj.value = self._free[self._here], self._memory
        return 0

    def cuGetErrorName(self, result: int, name: Any) -> int:
        name._obj.value = f"CUDA_ERROR_{NAMES[result]}".encode() if result in NAMES else None
        return 0 if result in NAMES else 1

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
            return OUT_OF_MEMORY
        address._obj.value = self._device.allocate(nbytes)
        self._sizes[address._obj.value] = nbytes, self._here
        self._free[self._here] -= nbytes
        return 0

    def cuMemFree_v2(self, address: int) -> int:
        self._finish(*range(len(self._streams)))
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

    def cuMemsetD8Async(self, address: int, value: int, nbytes: int, stream: Any) -> int:
        assert self._reaches(address, nbytes)
        return self._do(stream, lambda: ctypes.memset(address, value, nbytes))

    def cuMemcpyDtoDAsync_v2(self, address: int, source: int, nbytes: int, stream: Any) -> int:
        assert self._reaches(address, nbytes)
        assert self._reaches(source, nbytes)
        way = tuple(self._sizes[a][1] if a in self._sizes else self._here for a in (source, address))

        def run() -> None:
            ctypes.memmove(address, source, nbytes)
            if way in self.garbled:
                ctypes.memset(address + nbytes // 2, 0xFF, 8)

        return self._do(stream, run)

    def _look_at_host(self, host: int, stream: Any) -> None:
        """Remember whether memory of the host is not pinned: the stream must be waited for before anything else."""
        if not any(begin <= host < begin + len(room) for begin, room in self.held.items()):
            assert self._capture is None or self._number(stream) not in self._capture.last, "a graph copies memory that is not pinned"
            self._mine.owed = stream.value

    def cuMemcpyHtoDAsync_v2(self, address: int, host: int, nbytes: int, stream: Any) -> int:
        assert self._reaches(address, nbytes)
        self._look_at_host(host, stream)
        return self._do(stream, lambda: ctypes.memmove(address, host, nbytes))

    def cuMemcpyDtoHAsync_v2(self, host: int, address: int, nbytes: int, stream: Any) -> int:
        assert self._reaches(address, nbytes)
        self._look_at_host(host, stream)
        return self._do(stream, lambda: ctypes.memmove(host, address, nbytes))

    def cuMemAllocHost_v2(self, place: Any, nbytes: int) -> int:
        room = ctypes.create_string_buffer(b"\xff" * nbytes, nbytes)
        place._obj.value = ctypes.addressof(room)
        self.held[place._obj.value] = room
        return 0

    def cuMemFreeHost(self, place: Any) -> int:
        del self.held[place.value]
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
        grid, block = (gx, gy, gz), (bx, by, bz)
        if (said := refused(cubin(built, self._capability), program.text, grid, block, len(built.kernel.params)))[0]:
            raise Refused(said[0])
        count, kernel = len(built.kernel.params), built.kernel
        bytewise = kernel.name.endswith("[]") or "uint8" in built.elements or bool(built.halves)
        shift = 0 if bytewise else 2  # neighbouring bytes may have writers of their own
        places = (ctypes.c_uint64 * count).from_address(params)
        words = np.array([ctypes.c_uint64.from_address(place).value for place in places], np.uint64)

        def run() -> None:
            pieces = [Piece(address, nbytes, shift) for address, nbytes in self._pieces(device)]
            program.launch(words, pieces, grid, block)
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
