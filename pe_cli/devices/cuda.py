"""CUDA devices through numba-cuda: memory, and plans as launches on one stream. Nothing else imports numba.cuda."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.devices.protocol import Progress, Spot, Stalled, Timeline, Work
from pe_cli.kernels.calls import STATUS, STEP, Buffer, Call, Numbers, Offset, Table
from pe_cli.kernels.cuda import Built, build, forms
from pe_cli.kernels.lang import POINTERS

#: Threads of a block, and most blocks of a grid, where the kernel does not say; the simulator's threads are slow.
BLOCK, GRID = 256, 2048
SIMULATED_BLOCK, SIMULATED_GRID = 2, 2
#: Most blocks along x, y and z.
AXIS_BLOCKS = (2**31 - 1, 65535, 65535)
#: int64 words of an error report.
REPORT = 8
#: Seconds between two looks at a step that is watched.
WATCH_EVERY = 2e-5
#: Bytes zeroed at a time.
CHUNK = 1 << 24


def cuda_count() -> tuple[int, str]:
    """Return the number of visible CUDA devices, and why there is none when it is 0."""
    try:
        from numba import cuda
    except ImportError:
        return 0, "numba-cuda is not installed (pip install 'pe-cli[cuda]')"
    if not cuda.is_available():
        return 0, "no CUDA device is visible"
    return len(cuda.gpus), ""


class CudaMemory:
    """One zeroed allocation on a device.

    Args:
        nbytes: its size.

    Raises:
        PeError: the device has not that much memory (exit code 5).
    """

    def __init__(self, nbytes: int) -> None:
        from numba import cuda

        self.nbytes = nbytes
        try:
            self.array = cuda.device_array(max(1, nbytes), np.uint8)
        except cuda.cudadrv.driver.CudaAPIError as error:
            raise PeError(
                f"cannot allocate {nbytes / 2**20:,.0f} MiB on the CUDA device: {error}",
                hint="use a smaller batch_size",
                code=ExitCode.DEVICE,
            ) from None
        self._views: dict[tuple[int, TensorType], Any] = {}
        zeros = np.zeros(min(CHUNK, max(1, nbytes)), np.uint8)
        for begin in range(0, len(self.array), CHUNK):
            part = self.array[begin : begin + CHUNK]
            part.copy_to_device(zeros[: len(part)])

    def read(self, offset: int, kind: TensorType) -> np.ndarray[Any, Any]:
        """Return a copy of the value at a byte offset."""
        if not kind.size:
            return np.zeros(kind.shape, kind.numpy)
        found: np.ndarray[Any, Any] = self._kept(offset, kind).copy_to_host()
        return found.view(kind.numpy).reshape(kind.shape)

    def write(self, offset: int, kind: TensorType, value: np.ndarray[Any, Any]) -> None:
        """Write a value of that shape at a byte offset."""
        if kind.size:
            flat = np.ascontiguousarray(np.broadcast_to(value, kind.shape), kind.numpy).reshape(-1)
            self._kept(offset, kind).copy_to_device(flat.view(_stored(kind.dtype)))

    def view(self, offset: int, elements: int, dtype: str) -> Any:
        """Return a device array of some elements at a byte offset."""
        stored = np.dtype(_stored(dtype))
        return self.array[offset : offset + elements * stored.itemsize].view(stored)

    def _kept(self, offset: int, kind: TensorType) -> Any:
        key = (offset, kind)
        if key not in self._views:
            self._views[key] = self.view(offset, kind.size, kind.dtype)
        return self._views[key]


def _stored(dtype: str) -> str:
    return "uint8" if dtype == "bool" else dtype


class CudaDevice:
    """The CUDA device of this process."""

    is_host = False
    shares_memory = False
    refits = False
    native_threads = False
    caches_blocks = False

    def allocate(self, index: int, nbytes: int) -> CudaMemory:
        """Return zeroed memory on the device.

        Raises:
            PeError: another device than the first (exit code 5), or too little memory.
        """
        _only_first(index)
        return CudaMemory(nbytes)

    def compile(
        self, works: Sequence[Work], spot: Callable[[Buffer], Spot], threads: int, progress: Progress | None
    ) -> CudaStep:
        """Return the calls as launches on one stream; there is one thread, which launches."""
        del threads
        for work in works:
            _only_first(work.home)
        return CudaStep(works, spot, progress)


def _only_first(index: int) -> None:
    if index:
        raise PeError(
            f"cuda:{index}: more than one CUDA device is not supported yet",
            hint="set executor.devices: 1",
            code=ExitCode.DEVICE,
        )


class Compiler:
    """Kernels of this process, compiled on first need.

    Attributes:
        cuda: the module.
        simulated: whether that is numba's simulator.
    """

    def __init__(self) -> None:
        from numba import cuda
        from numba.core import config

        self.cuda = cuda
        self.simulated = bool(config.ENABLE_CUDASIM)
        self._built: dict[Any, Built] = {}
        self._compiled: dict[Any, Any] = {}

    def built(self, call: Call) -> Built:
        """Return the function of a call's kernel for its element types."""
        key = self._key(call)
        if key not in self._built:
            self._built[key] = build(call.kernel, call.dtype, call.second, self.cuda, self.simulated)
        return self._built[key]

    def ready(self, call: Call) -> bool:
        """Return whether the call's kernel is compiled."""
        return self.simulated or self._key(call) in self._compiled

    def launcher(self, call: Call, args: Sequence[Any], stream: Any) -> Any:
        """Return what launches a call's kernel when it is called with its arguments.

        Raises:
            PeError: numba-cuda cannot compile here (exit code 5).
        """
        fn = self.built(call).fn
        grid, block = self.shape(call)
        if self.simulated:  # there a kernel keeps the shape of its last launch, so that each needs its own
            return self.cuda.jit(fn)[grid, block, stream]
        key = self._key(call)
        if key not in self._compiled:
            try:
                self._compiled[key] = self.cuda.jit(fn).specialize(*args)
            except ImportError as error:  # libnvvm or libnvrtc
                raise PeError(
                    f"place: cuda, but numba-cuda cannot compile: {str(error).strip().splitlines()[0]}",
                    hint="pip install 'numba-cuda[cu12]', or [cu13], whichever the driver has",
                    code=ExitCode.DEVICE,
                ) from None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numba warns of small grids; a small layer has one
            return self._compiled[key][grid, block, stream]

    def shape(self, call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return blocks and threads of a block; no blocks where nothing is to do."""
        built = self.built(call)
        wanted = built.wanted(call.args)
        most, size = (SIMULATED_GRID, SIMULATED_BLOCK) if self.simulated else (GRID, BLOCK)
        if wanted is None:
            return (most,), built.block or (size,)
        if built.block:
            blocks = [-(-n // b) for n, b in zip(wanted, built.block, strict=True)]
            return tuple(min(n, limit) for n, limit in zip(blocks, AXIS_BLOCKS, strict=False)), built.block
        return (min(most, -(-wanted[0] // size)),), (min(size, max(wanted[0], 1)),)

    def _key(self, call: Call) -> Any:
        return call.kernel, call.dtype, call.second


_COMPILER: list[Compiler] = []


def compiler() -> Compiler:
    """Return the process's compiler of CUDA kernels."""
    if not _COMPILER:
        _COMPILER.append(Compiler())
    return _COMPILER[0]


class CudaStep:
    """Works as launches, in order, on one stream.

    Attributes:
        launches: launcher and arguments of each; everything they need is there before the first step.
    """

    def __init__(self, works: Sequence[Work], spot: Callable[[Buffer], Spot], progress: Progress | None) -> None:
        self._compiler = compiler()
        self._cuda = self._compiler.cuda
        self._spot = spot
        self._stream = self._cuda.stream()
        self._host_step = np.zeros(1, np.int64)
        self._step = self._cuda.to_device(self._host_step)
        self._empty: dict[str, Any] = {}
        calls = [(i, replace(c, kernel=k)) for i, w in enumerate(works) for c in w.calls for k in forms(c.kernel)]
        calls = [(i, c) for i, c in calls if 0 not in self._compiler.shape(c)[0]]
        self._reporters = [i for i, c in calls if STATUS in c.args]
        self._reports = self._cuda.to_device(np.zeros(max(1, len(self._reporters)) * REPORT, np.int64))
        self._counts = any(STEP in c.args for _, c in calls)
        self._works = [i for i, _ in calls]
        self._watch: tuple[float, Callable[[Stalled], PeError]] | None = None
        self.launches = self._prepare([c for _, c in calls], progress)

    def _prepare(self, calls: Sequence[Call], progress: Progress | None) -> list[tuple[Any, tuple[Any, ...]]]:
        missing = len({self._compiler._key(c) for c in calls if not self._compiler.ready(c)})
        done = report = 0
        launches = []
        for call in calls:
            args = tuple(
                self._argument(call, kind, arg, report) for kind, arg in zip(call.kernel.params, call.args, strict=True)
            )
            report += STATUS in call.args
            new = not self._compiler.ready(call)
            if new and progress:
                progress(done, missing, call.kernel.name)
            launches.append((self._compiler.launcher(call, args, self._stream), args))
            done += new
        if missing and progress:
            progress(done, missing, "")
        return launches

    def run(self, step: int) -> tuple[int, list[int]] | None:
        """Launch everything, wait, and return None or the first work that reported an error with its report."""
        self._count(step)
        for launch, args in self.launches:
            launch(*args)
        self._wait()
        return self._failure() if self._reporters else None

    def refill(self, works: Mapping[int, Work], spot: Callable[[Buffer], Spot]) -> bool:
        """Return False: arguments are fixed in the launches."""
        del works, spot
        return False

    def loan(self, spot: Spot) -> None:
        """Return None: the device has memory of its own."""
        del spot

    def run_timed(self, step: int) -> tuple[tuple[int, list[int]] | None, Timeline]:
        """Run like `run`, but wait for each launch, so that the host's clock sees how long it takes."""
        self._count(step)
        times = np.zeros((2, len(self.launches)), np.int64)
        start = time.perf_counter_ns()
        for i, (launch, args) in enumerate(self.launches):
            times[0, i] = time.perf_counter_ns()
            launch(*args)
            self._wait()
            times[1, i] = time.perf_counter_ns()
        stop = time.perf_counter_ns()
        works = np.array(self._works, np.int64)
        timeline = Timeline(times[0], times[1], np.zeros(len(works), np.int64), works, start, stop, 1)
        return (self._failure() if self._reporters else None), timeline

    def watch(self, seconds: float, tell: Callable[[Stalled], PeError]) -> None:
        """End every later step whose launches are not done after so long, with the error that `tell` makes."""
        self._watch = seconds, tell

    def _count(self, step: int) -> None:
        if self._counts:
            self._host_step[0] = step
            self._step.copy_to_device(self._host_step, stream=self._stream)

    def _wait(self) -> None:
        if self._watch is None or self._compiler.simulated:  # the simulator is done when a launch returns
            self._stream.synchronize()
            return
        seconds, tell = self._watch
        done = self._cuda.event(timing=False)
        done.record(self._stream)
        end = time.monotonic() + seconds
        while not done.query():
            if time.monotonic() > end:
                raise tell(Stalled(seconds, (), (), 0))
            time.sleep(WATCH_EVERY)

    def _failure(self) -> tuple[int, list[int]] | None:
        reports = self._reports.copy_to_host().reshape(-1, REPORT)
        for work, report in zip(self._reporters, reports, strict=True):
            if report[0]:
                self._reports.copy_to_device(np.zeros(reports.size, np.int64))
                return work, [int(v) for v in report]
        return None

    def _argument(self, call: Call, kind: str, arg: Any, report: int) -> Any:
        if arg is STATUS:
            return self._reports[report * REPORT : (report + 1) * REPORT]
        if arg is STEP:
            return self._step
        if isinstance(arg, Table):
            raise PeError(
                f"{call.kernel} takes a list of buffers, which CUDA has not",
                hint="use place: cpu",
                code=ExitCode.DEVICE,
            )
        if kind == "Real":
            return np.dtype(call.dtype).type(arg) if call.dtype in ("float32", "float64") else float(arg)
        if kind == "Int":
            return int(arg)
        element = POINTERS.get(kind, "T")  # an Addr is the place of a T, too
        dtype = {"T": call.dtype, "U": call.second}.get(element, element)
        if isinstance(arg, Numbers):
            return self._cuda.to_device(np.array([*arg.values, 0], np.int64)).view(_stored(dtype))
        return self._view(arg, dtype)

    def _view(self, arg: Buffer | Offset, dtype: str) -> Any:
        buffer, elements = (arg.buffer, arg.elements) if isinstance(arg, Offset) else (arg, 0)
        left = buffer.size - elements
        if left < 1:  # a kernel may be given nothing to read, a device array may not be empty
            return self._empty.setdefault(dtype, self._cuda.to_device(np.zeros(1, _stored(dtype))))
        spot = self._spot(buffer)
        return spot.memory.view(spot.offset + elements * buffer.type.numpy.itemsize, left, dtype)


DEVICE = CudaDevice()
