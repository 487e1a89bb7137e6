"""CUDA devices: memory, and plans as launches on one stream, which become one graph."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.devices import cuda_driver
from pe_cli.devices.cuda_batches import Launch, merged
from pe_cli.devices.cuda_driver import Driver, Extent
from pe_cli.devices.cuda_waits import waits_of
from pe_cli.devices.protocol import Progress, Spot, Stalled, Timeline, Work
from pe_cli.kernels.calls import STATUS, STEP, Buffer, Call, Numbers, Offset, Table, buffers_of
from pe_cli.kernels.cuda import MOST_ITERATIONS, Built, CudaKernel, build, calls_on_cuda
from pe_cli.kernels.cuda_compiler import is_kept
from pe_cli.kernels.cuda_table import written
from pe_cli.kernels.cuda_workers import compile_ahead

#: Threads of a block, and most blocks of a grid, where the kernel does not say.
BLOCK, GRID = 256, 2048
#: Most blocks along x, y and z.
AXIS_BLOCKS = (2**31 - 1, 65535, 65535)
MORE_THAN_ONE = "more than one CUDA device is not supported yet"
#: int64 words of an error report, and bytes of a word.
REPORT, WORD = 8, 8
#: Seconds between two looks at a step that is watched.
WATCH_EVERY = 2e-5


def cuda_count() -> tuple[int, str]:
    """Return the number of visible CUDA devices, and why there is none when it is 0."""
    count = cuda_driver.device_count()
    return count, "" if count else cuda_driver.why_none()


class CudaMemory:
    """One zeroed allocation on a device.

    Args:
        driver: of the device.
        nbytes: its size.

    Raises:
        PeError: the device has not that much memory (exit code 5).
    """

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self.nbytes = nbytes
        self._driver = driver
        self.address = driver.allocate(max(1, nbytes))
        weakref.finalize(self, _free, driver, self.address)
        driver.zero(self.address, max(1, nbytes))

    def read(self, offset: int, kind: TensorType) -> np.ndarray[Any, Any]:
        """Return a copy of the value at a byte offset."""
        found = np.zeros(kind.shape, kind.numpy)
        if kind.size:
            self._driver.read(self.address + offset, found)
        return found

    def write(self, offset: int, kind: TensorType, value: np.ndarray[Any, Any]) -> None:
        """Write a value of that shape at a byte offset."""
        if kind.size:
            self._driver.send(self.address + offset, np.ascontiguousarray(np.broadcast_to(value, kind.shape), kind.numpy))


def _free(driver: Driver, address: int) -> None:
    with contextlib.suppress(PeError):  # a device that has failed gives nothing back
        driver.free(address)


class CudaDevice:
    """The CUDA device of this process."""

    is_host = False
    shares_memory = False
    refits = False
    native_threads = False
    caches_blocks = False
    stores_bfloat16 = False  # products would need copies in float32, which take more launches than the step has without

    def allocate(self, index: int, nbytes: int) -> CudaMemory:
        """Return zeroed memory on the device.

        Raises:
            PeError: another device than the first (exit code 5), or too little memory.
        """
        _only_first(index)
        return CudaMemory(cuda_driver.only_driver(), nbytes)

    def compile(
        self, works: Sequence[Work], spot: Callable[[Buffer], Spot], threads: int, progress: Progress | None
    ) -> CudaStep:
        """Return the calls as launches on one stream; there is one thread, which launches."""
        del threads
        for work in works:
            _only_first(work.home)
        return CudaStep(cuda_driver.only_driver(), works, spot, progress)


def _only_first(index: int) -> None:
    if index:
        raise PeError(f"cuda:{index}: {MORE_THAN_ONE}", hint="set executor.devices: 1", code=ExitCode.DEVICE)


def built_of(call: Call) -> Built:
    """Return the kernel of a call for its element types; of `forms`."""
    return build(call.kernel, call.dtype, call.second)


def calls_of(calls: Sequence[Call]) -> list[Call]:
    """Return the launches that calls become: those that have something to do."""
    found = [made for call in calls for made in calls_on_cuda(call)]
    return [call for call in found if 0 not in shape_of(call)[0]]


def shape_of(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return blocks and threads of a block; no blocks where nothing is to do.

    Raises:
        PeError: more is to do than a kernel counts (exit code 5).
    """
    built = built_of(call)
    wanted = built.wanted(call.args)
    if wanted is None:
        return (GRID,), built.block or (BLOCK,)
    if max(wanted) > MOST_ITERATIONS:
        raise PeError(f"{call.kernel}: {max(wanted):,} elements are too many for a CUDA device", code=ExitCode.DEVICE)
    if built.block:
        blocks = [-(-n // b) for n, b in zip(wanted, built.block, strict=True)]
        return tuple(min(n, limit) for n, limit in zip(blocks, AXIS_BLOCKS, strict=False)), built.block
    return (min(GRID, -(-wanted[0] // BLOCK)),), (min(BLOCK, max(wanted[0], 1)),)


class CudaStep:
    """Works as launches on one stream: in order the first time, then as one graph, where each waits for what it must.

    Attributes:
        launches: what each calls; everything they need is there before the first step.
    """

    def __init__(
        self, driver: Driver, works: Sequence[Work], spot: Callable[[Buffer], Spot], progress: Progress | None
    ) -> None:
        self._driver = driver
        self._spot = spot
        self._host_step = driver.pinned(1)
        self._kept: list[CudaMemory] = []
        self._step = self._sent(self._host_step)
        self._empty: Extent | None = None
        calls = [(i, call) for i, work in enumerate(works) for call in calls_of(work.calls)]
        self._reporters = [i for i, c in calls if STATUS in c.args]
        self._host_reports = driver.pinned(max(1, len(self._reporters)) * REPORT)
        self._reports = self._sent(self._host_reports)
        self._counts = any(STEP in c.args for _, c in calls)
        self._watch: tuple[float, Callable[[Stalled], PeError]] | None = None
        self.launches = self._prepare(works, calls, progress)
        self._runs = 0
        self._replay: Callable[[], None] | None = None

    def _sent(self, value: np.ndarray[Any, Any]) -> Extent:
        """Return a copy of an array on the device, which is kept as long as the step."""
        self._kept.append(memory := CudaMemory(self._driver, value.nbytes))
        self._driver.write(memory.address, value)
        return Extent(memory.address, value.nbytes)

    def _prepare(self, works: Sequence[Work], calls: Sequence[tuple[int, Call]], progress: Progress | None) -> list[Callable[[], None]]:
        launches = merged(list(self._launches(works, calls)), self._sent)
        self._works = [launch.work for launch in launches]
        self._waits = waits_of(launches)
        wanted = dict.fromkeys(launch.built for launch in launches)
        missing = [b for b in wanted if not self._driver.has(b) and not is_kept(b, self._driver.capability)]
        compile_ahead(missing, self._driver.capability, progress)
        made = []
        for launch in launches:
            made.append(self._driver.launcher(launch.built, launch.grid, launch.block, launch.args))
        if missing and progress:
            progress(len(missing), len(missing), "")
        return made

    def _launches(self, works: Sequence[Work], calls: Sequence[tuple[int, Call]]) -> Iterator[Launch]:
        report = 0
        for work, call in calls:
            args = [self._argument(call, kind, arg, report) for kind, arg in zip(call.kernel.params, call.args, strict=True)]
            report += STATUS in call.args
            places = [a.address for a in args if isinstance(a, Extent)]
            if isinstance(call.kernel, CudaKernel) and call.kernel.copies and places[0] == places[1]:
                continue
            own = {b for arg in call.args for b in buffers_of(arg)} & works[work].written
            writes = frozenset(i for i in written(call.kernel) if not own.isdisjoint(buffers_of(call.args[i])))
            yield Launch(work, built_of(call), *shape_of(call), args, writes, STATUS not in call.args and not works[work].buckets)

    def run(self, step: int) -> tuple[int, list[int]] | None:
        """Launch everything, wait, and return None or the first work that reported an error with its report.

        The second run makes one graph of all launches and of the copies around them, which it and every later run launches.
        """
        self._host_step[0] = step
        if self._replay is None and self._runs:
            self._replay = self._driver.captured(self._sequence(), self._order())
        self._runs += 1
        for launch in self._sequence() if self._replay is None else [self._replay]:
            launch()
        self._wait()
        return self._failure() if self._reporters else None

    def _sequence(self) -> list[Callable[[], None]]:
        """Return the launches, after the copy of the step's number and before that of the reports."""
        count = [partial(self._driver.send, self._step.address, self._host_step)] if self._counts else []
        reports = [partial(self._driver.fetch, self._reports.address, self._host_reports)] if self._reporters else []
        return [*count, *self.launches, *reports]

    def _order(self) -> list[Sequence[int]]:
        """Return for each of the sequence what it waits for: the first launches for the step's number, the reports for all launches."""
        first, count = int(self._counts), len(self.launches)
        launches: list[Sequence[int]] = [[first + j for j in waits] or range(first) for waits in self._waits]
        return [*[()] * first, *launches, *[range(first, first + count)] * bool(self._reporters)]

    def refill(self, works: Mapping[int, Work], spot: Callable[[Buffer], Spot]) -> bool:
        """Return False: arguments are fixed in the launches."""
        del works, spot
        return False

    def loan(self, spot: Spot) -> None:
        """Return None: the device has memory of its own."""
        del spot

    def run_timed(self, step: int) -> tuple[tuple[int, list[int]] | None, Timeline]:
        """Run like `run`, but wait for each launch, so that the host's clock sees how long it takes."""
        self._host_step[0] = step
        if self._counts:
            self._driver.send(self._step.address, self._host_step)
        times = np.zeros((2, len(self.launches)), np.int64)
        start = time.perf_counter_ns()
        for i, launch in enumerate(self.launches):
            times[0, i] = time.perf_counter_ns()
            launch()
            self._wait()
            times[1, i] = time.perf_counter_ns()
        if self._reporters:
            self._driver.fetch(self._reports.address, self._host_reports)
            self._wait()
        stop = time.perf_counter_ns()
        works = np.array(self._works, np.int64)
        timeline = Timeline(times[0], times[1], np.zeros(len(works), np.int64), works, start, stop, 1)
        return (self._failure() if self._reporters else None), timeline

    def watch(self, seconds: float, tell: Callable[[Stalled], PeError]) -> None:
        """End every later step whose launches are not done after so long, with the error that `tell` makes."""
        self._watch = seconds, tell

    def _wait(self) -> None:
        if self._watch is None:
            self._driver.wait()
            return
        seconds, tell = self._watch
        end = time.monotonic() + seconds
        while not self._driver.is_done():
            if time.monotonic() > end:
                raise tell(Stalled(seconds, (), (), 0))
            time.sleep(WATCH_EVERY)

    def _failure(self) -> tuple[int, list[int]] | None:
        reports = self._host_reports.reshape(-1, REPORT)
        if not reports[:, 0].any():
            return None
        for work, report in zip(self._reporters, reports, strict=True):
            if report[0]:
                self._driver.zero(self._reports.address, reports.nbytes)
                return work, [int(v) for v in report]
        return None

    def _argument(self, call: Call, kind: str, arg: Any, report: int) -> Extent | int | float:
        if arg is STATUS:
            return Extent(self._reports.address + report * REPORT * WORD, REPORT * WORD)
        if arg is STEP:
            return self._step
        if isinstance(arg, Table):
            raise PeError(
                f"{call.kernel} takes a list of buffers, which CUDA has not",
                hint="use place: cpu",
                code=ExitCode.DEVICE,
            )
        if kind == "Real":
            return float(arg)
        if kind == "Int":
            return int(arg)
        if isinstance(arg, Numbers):
            return self._sent(np.array([*arg.values, 0], np.int64))
        return self._extent(arg)

    def _extent(self, arg: Buffer | Offset) -> Extent:
        buffer, elements = (arg.buffer, arg.elements) if isinstance(arg, Offset) else (arg, 0)
        left = buffer.size - elements
        if buffer.size > MOST_ITERATIONS:
            raise PeError(f"{buffer.name} has {buffer.size:,} elements, too many for a CUDA device", code=ExitCode.DEVICE)
        if left < 1:  # a kernel may be given nothing to read, memory may not be empty
            self._empty = self._empty or self._sent(np.zeros(1, np.int64))
            return self._empty
        spot = self._spot(buffer)
        size = buffer.type.numpy.itemsize
        return Extent(spot.memory.address + spot.offset + elements * size, left * size)


DEVICE = CudaDevice()
