"""CUDA's driver through its C interface, by ctypes: memory, modules and launches, without a compiler."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.devices.cuda_driver_library import (
    NO_DEVICE_TEXT,
    NOT_READY,
    OUT_OF_MEMORY,
    POINTER,
    SUCCESS,
    WORD,
    count_of,
    error_name,
    library,
)
from pe_cli.devices.cuda_driver_protocol import Array, Driver, Extent, Handles, OneDevice, Shape, packed
from pe_cli.devices.protocol import ShortError
from pe_cli.kernels.cuda.compiler import Capability, cubin
from pe_cli.kernels.cuda.language import Built

#: Oldest capability that the compilers of CUDA 13 know.
LEAST_CAPABILITY: Capability = (7, 5)
#: Capture mode: calls that are not captured, such as freeing memory, stay allowed.
_RELAXED = 2
#: What is captured next waits for what is named, and for nothing else.
_INSTEAD = 1
#: An event that keeps no time, and what opening a device says that is open already.
_NO_TIMES, _ENABLED = 2, 704
#: A stream that has nothing to do with what is given to no stream: nothing is, so that no call means more than it says, also while
#: launches are captured, when whatever is given to no stream is refused.
_NO_ORDER = 1
#: Attributes of a device.
_MAJOR, _MINOR = 75, 76


class CudaDriver(OneDevice):
    """A CUDA device through the driver's library.

    Args:
        library: the library, with its functions' argument types.
        index: number of the device.

    Attributes:
        name: what messages call it.

    Raises:
        PeError: the device cannot be used (exit code 5).
    """

    def __init__(self, library: Any, index: int = 0) -> None:
        self._library = library
        device, self._context, self._stream = ctypes.c_int(), POINTER(), POINTER()
        self.index, self.name = index, f"the CUDA device{f' cuda:{index}' if count_of(library) > 1 else ''}"
        self._is_given_up = False
        self._event: POINTER | None = None
        self._beside: POINTER | None = None  # the stream of copies that launches need not be done for
        self._do("cuDeviceGet", ctypes.byref(device), index)
        self._ordinal = device.value
        self.capability = self._attribute(device, _MAJOR), self._attribute(device, _MINOR)
        if self.capability < LEAST_CAPABILITY:
            text = "{} has the compute capability {}.{}, and kernels need {}.{} or later"
            hint = "use place: cpu, or a GPU of 2018 or later"
            raise PeError(text.format(self.name, *self.capability, *LEAST_CAPABILITY), hint=hint, code=ExitCode.DEVICE)
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._enter()
        self._do("cuStreamCreate", ctypes.byref(self._stream), _NO_ORDER)
        self._loaded: dict[Built, tuple[POINTER, Any]] = {}

    def _attribute(self, device: ctypes.c_int, which: int) -> int:
        value = ctypes.c_int()
        self._do("cuDeviceGetAttribute", ctypes.byref(value), which, device)
        return value.value

    def _do(self, name: str, *args: Any) -> None:
        if self._is_given_up:
            raise PeError(f"{self.name} failed: {name}: it has not answered before", code=ExitCode.DEVICE)
        result = getattr(self._library, name)(*args)
        if result != SUCCESS:
            raise PeError(f"{self.name} failed: {name}: {error_name(self._library, result)}", code=ExitCode.DEVICE)

    def _enter(self) -> None:
        """Make the device's context current on this thread."""
        self._do("cuCtxSetCurrent", self._context)

    def _let_go(self, name: str, *args: Any) -> None:
        """Give something back, in whatever thread; a device that has failed takes nothing back."""
        with contextlib.suppress(PeError):
            self._enter()
            self._do(name, *args)

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory.

        Raises:
            PeError: the device has not that much (exit code 5).
        """
        self._enter()
        address = WORD()
        result = self._library.cuMemAlloc_v2(ctypes.byref(address), nbytes)
        if result != SUCCESS:
            free, whole = ctypes.c_size_t(), ctypes.c_size_t()
            told = self._library.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(whole)) == SUCCESS
            has = f", which has {free.value / 2**20:,.0f} of {whole.value / 2**20:,.0f} MiB free" if told else ""
            text = f"cannot allocate {nbytes / 2**20:,.0f} MiB on {self.name}{has}: {error_name(self._library, result)}"
            if result == OUT_OF_MEMORY:
                raise ShortError(text, free.value if told else 0, hint="use a smaller batch_size")
            raise PeError(text, code=ExitCode.DEVICE)
        return address.value

    def free(self, address: int) -> None:
        """Give memory back."""
        self._enter()
        self._do("cuMemFree_v2", address)

    def zero(self, address: int, nbytes: int) -> None:
        """Write zeros; see `Driver`."""
        self._enter()
        self._do("cuMemsetD8Async", address, 0, nbytes, self._stream)
        self.wait()

    def write(self, address: int, value: Array) -> None:
        """Copy a contiguous array to the device; see `Driver`."""
        self.send(address, value)
        self.wait()  # memory that is not `pinned` may be read until then

    def read(self, address: int, value: Array) -> None:
        """Copy from the device into a contiguous array; see `Driver`."""
        self.fetch(address, value)
        self.wait()

    def send(self, address: int, value: Array) -> None:
        """Copy an array of `pinned` in the order of launches; see `Driver`."""
        self._enter()
        self._do("cuMemcpyHtoDAsync_v2", address, value.ctypes.data, value.nbytes, self._stream)

    def fetch(self, address: int, value: Array) -> None:
        """Copy into an array of `pinned` in the order of launches; see `Driver`."""
        self._enter()
        self._do("cuMemcpyDtoHAsync_v2", value.ctypes.data, address, value.nbytes, self._stream)

    def pinned(self, words: int) -> Array:
        """Return host memory for copies; see `Driver`.

        Raises:
            PeError: the host has not that much (exit code 5).
        """
        self._enter()
        place = POINTER()
        result = self._library.cuMemAllocHost_v2(ctypes.byref(place), words * 8)
        if result != SUCCESS:
            text = f"cannot allocate {words / 2**17:,.0f} MiB of the host's memory for copies to and from {self.name}"
            hint = "use a smaller batch_size" if result == OUT_OF_MEMORY else None
            raise PeError(f"{text}: {error_name(self._library, result)}", hint=hint, code=ExitCode.DEVICE)
        assert place.value is not None
        held = (ctypes.c_int64 * words).from_address(place.value)
        found: Array = np.ctypeslib.as_array(held)
        found[:] = 0
        weakref.finalize(held, self._let_go, "cuMemFreeHost", place)
        return found

    def ahead(self, address: int, room: int, value: Array) -> None:
        """Copy an array of `pinned` beside what was launched before; see `Driver`."""
        self._enter()
        if self._beside is None:
            self._beside = POINTER()
            self._do("cuStreamCreate", ctypes.byref(self._beside), _NO_ORDER)
            self._arrived = CudaMark(self, self._beside)
        self._do("cuMemcpyHtoDAsync_v2", room, value.ctypes.data, value.nbytes, self._beside)
        self._arrived.note()
        self._do("cuStreamWaitEvent", self._stream, self._arrived.event, 0)
        self._do("cuMemcpyDtoDAsync_v2", address, room, value.nbytes, self._stream)

    def ask(self, entry: Any, record: Array) -> None:
        """Enqueue a host function: the driver calls it on a thread of its own, in the order of launches; see `Driver`."""
        self._enter()
        self._do("cuLaunchHostFunc", self._stream, entry, record.ctypes.data)

    def mark(self) -> CudaMark:
        """Return what notes how far launches have come."""
        return CudaMark(self, self._stream)

    def captured(self, launches: Sequence[Callable[[], None]], waits: Sequence[Collection[int]]) -> Callable[[], None]:
        """Return what does all of these as one graph of CUDA's; see `Driver`.

        Raises:
            PeError: the device makes no graph of them; of what is returned: the device failed (exit code 5).
        """
        nodes: list[list[int]] = []
        with self.capturing() as made:
            for launch, before in zip(launches, waits, strict=True):
                self.captured_after([node for i in before for node in nodes[i]])
                launch()
                nodes.append(self.captured_last())
        return made()

    @contextlib.contextmanager
    def capturing(self) -> Iterator[Callable[[], Callable[[], None]]]:
        """Capture what is launched meanwhile; afterwards, what this gives makes one graph of it and returns what does that."""
        graph, made = POINTER(), POINTER()

        def run() -> None:
            self._enter()
            self._do("cuGraphLaunch", made, self._stream)

        def finished() -> Callable[[], None]:
            self._enter()
            try:
                self._do("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, 0)
            finally:
                self._let_go("cuGraphDestroy", graph)
            weakref.finalize(run, self._let_go, "cuGraphExecDestroy", made)
            return run

        self._enter()
        self._do("cuStreamBeginCapture_v2", self._stream, _RELAXED)
        try:
            yield finished
        except BaseException:  # says more than the driver does of a capture that it has broken off
            self._let_go("cuStreamEndCapture", self._stream, ctypes.byref(graph))
            raise
        self._enter()
        self._do("cuStreamEndCapture", self._stream, ctypes.byref(graph))

    def captured_last(self) -> list[int]:
        """Return the nodes of the graph that end what was launched last: one of ours, and those that a library leaves."""
        self._enter()
        state, where, kinds, count = ctypes.c_int(), ctypes.POINTER(POINTER)(), POINTER(), ctypes.c_size_t()
        rest = ctypes.byref(where), ctypes.byref(kinds), ctypes.byref(count)  # without kinds of edges an edge of a library's is an error
        self._do("cuStreamGetCaptureInfo_v3", self._stream, ctypes.byref(state), None, None, *rest)
        return [where[i] or 0 for i in range(count.value)]

    def captured_after(self, nodes: Collection[int]) -> None:
        """Set the dependencies of what is captured next on the stream to exactly these nodes of the graph."""
        self._enter()
        wanted = (POINTER * len(nodes))(*nodes)
        self._do("cuStreamUpdateCaptureDependencies_v2", self._stream, wanted, None, len(nodes), _INSTEAD)

    # --- beside other devices ------------------------------------------------------------------------------------------

    def follow(self, other: CudaDriver) -> None:
        """Make later launches wait for everything that another device has been given so far.

        While the other's launches are captured, those of this one are, from now on, too.
        """
        if other._event is None:
            other._enter()
            other._event = POINTER()
            other._do("cuEventCreate", ctypes.byref(other._event), _NO_TIMES)
        other._enter()
        other._do("cuEventRecord", other._event, other._stream)
        self._enter()
        self._do("cuStreamWaitEvent", self._stream, other._event, 0)

    def open_to(self, other: CudaDriver) -> str:
        """Enable peer access to another device's memory; return why that is impossible, or an empty text."""
        able = ctypes.c_int()
        self._do("cuDeviceCanAccessPeer", ctypes.byref(able), self._ordinal, other._ordinal)
        if not able.value:
            return "there is no direct way between them"
        self._enter()
        result = self._library.cuCtxEnablePeerAccess(other._context, 0)
        return "" if result in (SUCCESS, _ENABLED) else f"cuCtxEnablePeerAccess: {error_name(self._library, result)}"

    def copy(self, address: int, source: int, nbytes: int) -> None:
        """Copy between places of devices that are open to one another, in the order of launches."""
        self._enter()
        self._do("cuMemcpyDtoDAsync_v2", address, source, nbytes, self._stream)

    def handles(self) -> Handles:
        """Return what libraries of NVIDIA's are given."""
        device, name, version = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_int()
        self._do("cuDeviceGet", ctypes.byref(device), self.index)
        self._do("cuDeviceGetName", name, len(name), device)
        self._do("cuDriverGetVersion", ctypes.byref(version))
        card = f"{name.value.decode(errors='replace')}, {self.capability}, driver {version.value}"
        return Handles(self._library, self._stream, self._enter, card)

    def has(self, built: Built) -> bool:
        """Return whether a kernel is loaded."""
        return built in self._loaded

    def launcher(self, built: Built, grid: Shape, block: Shape, args: Sequence[Extent | int | float]) -> Callable[[], None]:
        """Load a kernel and return what launches it with these arguments; each is a word, and the driver is given their addresses.

        Raises:
            PeError: the kernel cannot be loaded; of what is returned: it cannot be launched (exit code 5).
        """
        function = self._function(built)
        words = packed(built, args)
        places = np.arange(len(words), dtype=np.uint64) * 8 + words.ctypes.data
        dimensions = [*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3]]
        launch = functools.partial(
            self._library.cuLaunchKernel, function, *dimensions, 0, self._stream, places.ctypes.data, None
        )

        def run(_held: Any = (words, places)) -> None:
            self._enter()
            result = launch()
            if result != SUCCESS:
                said = error_name(self._library, result)
                raise PeError(f"{self.name} failed: {built.kernel}: {said}", code=ExitCode.DEVICE)

        return run

    def _function(self, built: Built) -> POINTER:
        if built not in self._loaded:
            self._enter()
            code = cubin(built, self.capability)
            image = ctypes.create_string_buffer(code.image, len(code.image))
            module, function = POINTER(), POINTER()
            self._do("cuModuleLoadData", ctypes.byref(module), image)
            self._do("cuModuleGetFunction", ctypes.byref(function), module, code.entry.encode())
            self._loaded[built] = function, module
        return self._loaded[built][0]

    def is_done(self) -> bool:
        """Return whether all that was launched is done."""
        self._enter()
        result = self._library.cuStreamQuery(self._stream)
        if result == NOT_READY:
            return False
        self._do("cuStreamQuery", self._stream)
        return True

    def wait(self) -> None:
        """Return when all that was launched is done."""
        self._enter()
        self._do("cuStreamSynchronize", self._stream)

    def give_up(self) -> None:
        """Ask nothing of the device any more; see `Driver`."""
        self._is_given_up = True


class CudaMark:
    """A place on a stream; see `Mark`.

    Args:
        driver: of the device.
        stream: of it.

    Attributes:
        event: the driver's, which is there when a place was noted.
    """

    event: POINTER | None = None

    def __init__(self, driver: CudaDriver, stream: Any) -> None:
        self._driver, self._stream = driver, stream

    def note(self) -> None:
        """Note the place behind all that the stream was given so far."""
        self._driver._enter()
        if self.event is None:
            self.event = POINTER()
            self._driver._do("cuEventCreate", ctypes.byref(self.event), _NO_TIMES)
        self._driver._do("cuEventRecord", self.event, self._stream)

    def wait(self) -> None:
        """Return when all before the place is done; at once where none was noted."""
        if self.event is not None:
            self._driver._enter()
            self._driver._do("cuEventSynchronize", self.event)


def device_count() -> int:
    """Return the number of visible CUDA devices."""
    found, _ = library()
    return count_of(found) if found else 0


def why_none() -> str:
    """Return why no device is visible."""
    return library()[1] or NO_DEVICE_TEXT


@functools.cache
def only_driver() -> Driver:
    """Return the driver of this process's first device."""
    return CudaDriver(library()[0])


def driver_of(index: int) -> Driver:
    """Return the driver of a device."""
    return _other_driver(index) if index else only_driver()


@functools.cache
def _other_driver(index: int) -> Driver:
    return CudaDriver(library()[0], index)
