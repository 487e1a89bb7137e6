"""Several CUDA devices behind one driver interface: operations keep their order, and captured work waits by memory ranges.

Each device has a stream of its own. Where the one that is asked is another than the one before, its stream first waits for the other's; so
a step that is not captured yet runs as if there were one stream. Captured, launches of all devices become one graph, in which each waits
for the launches, of whatever device, that it must: a sum over devices runs beside what the backward pass still computes, and a step of all
devices is begun by one call. Kernels read and write the memory of other devices by their addresses; whether they can is tried before, by
copies.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import DTYPES
from pe_cli.devices.cuda_driver import CudaDriver, driver_of
from pe_cli.devices.cuda_driver_protocol import Driver, Extent, Handles, Shape
from pe_cli.devices.cuda_libraries import loaded_libraries
from pe_cli.devices.cuda_libraries.nccl import Sums
from pe_cli.kernels.cuda.language import Built
from pe_cli.kernels.cuda.library_calls import NCCL, SumKernel

Array = np.ndarray[Any, Any]
#: Words of a copy by which a way between two devices is tried.
TRIED = 1 << 13


class Member:
    """A device of a group; see `Driver`.

    Args:
        group: the group.
        home: its number there.
        driver: its own driver.
    """

    def __init__(self, group: Group, home: int, driver: CudaDriver) -> None:
        self._group, self._home, self._driver = group, home, driver
        self.capability = driver.capability
        self.allocate, self.free, self.pinned, self.has = driver.allocate, driver.free, driver.pinned, driver.has
        self.ahead, self.mark = driver.ahead, driver.mark  # of the device alone: feeds

    def at(self, home: int) -> Member:
        """Return the device with a number."""
        return self._group.at(home)

    def zero(self, address: int, nbytes: int) -> None:
        """Write zeros."""
        self._group.turn(self._home)
        self._driver.zero(address, nbytes)

    def write(self, address: int, value: Array) -> None:
        """Copy to the device, when all that was launched is done."""
        self._group.turn(self._home)
        self._driver.write(address, value)

    def read(self, address: int, value: Array) -> None:
        """Copy from the device, when all that was launched is done."""
        self._group.turn(self._home)
        self._driver.read(address, value)

    def send(self, address: int, value: Array) -> None:
        """Copy to the device in the order of launches."""
        self._group.do(self._home, functools.partial(self._driver.send, address, value))

    def fetch(self, address: int, value: Array) -> None:
        """Copy from the device in the order of launches."""
        self._group.do(self._home, functools.partial(self._driver.fetch, address, value))

    def ask(self, entry: Any, record: Array) -> None:
        """Let the host call a C function in the order of launches."""
        self._group.do(self._home, functools.partial(self._driver.ask, entry, record))

    def captured(self, launches: Sequence[Callable[[], None]], waits: Sequence[Collection[int]]) -> Callable[[], None]:
        """Return what does all of these; see `Group.captured`."""
        return self._group.captured(launches, waits)

    def launcher(self, built: Built, grid: Shape, block: Shape, args: Sequence[Extent | int | float]) -> Callable[[], None]:
        """Load a kernel and return what launches it with these arguments."""
        return self.turned(self._driver.launcher(built, grid, block, args))

    def turned(self, run: Callable[[], None]) -> Callable[[], None]:
        """Return what does something that enqueues on the device's stream, in its turn."""
        return lambda: self._group.do(self._home, run)

    def alone(self) -> CudaDriver:
        """Return the device's own driver."""
        return self._driver

    def handles(self) -> Handles:
        """Return what libraries of NVIDIA's are given."""
        return self._driver.handles()

    def summing(self, kernel: SumKernel, places: Sequence[Extent], dtype: str) -> Callable[[], None]:
        """Return what sums over all devices; see `Group.summing`."""
        return self._group.summing(kernel, places, dtype)

    def is_done(self) -> bool:
        """Return whether all that was launched is done, on all devices."""
        return self._group.is_done()

    def wait(self) -> None:
        """Return when all that was launched is done, on all devices."""
        self._group.wait()

    def give_up(self) -> None:
        """Ask nothing of any device any more."""
        self._group.give_up()


class Group(Member):
    """Several devices, of which the first stands for all.

    Args:
        drivers: of the devices, which are open to one another.
    """

    def __init__(self, drivers: Sequence[CudaDriver]) -> None:
        super().__init__(self, 0, drivers[0])
        self._drivers = tuple(drivers)
        self._members = [self, *(Member(self, home, driver) for home, driver in enumerate(drivers) if home)]
        self._last: int | None = None  # the device that was asked last; None: each may have been given feeds
        self._capture: _Capture | None = None
        self._sums: Sums | None = None

    def at(self, home: int) -> Member:
        """Return the device with a number."""
        return self._members[home]

    def turn(self, home: int) -> None:
        """Make a device wait for all earlier operations of the group."""
        if home == self._last:
            return
        for other, driver in enumerate(self._drivers):
            # All that came before is behind the device that was asked last; where none is known, behind each.
            if other != home and self._last in (other, None):
                self._drivers[home].follow(driver)
        self._last = home

    def do(self, home: int, what: Callable[[], None]) -> None:
        """Do something on the stream of a device, in the order of asking, or capture it."""
        if self._capture is not None:
            self._capture.add([self._drivers[home]], what)
            return
        self.turn(home)
        what()

    def captured(self, launches: Sequence[Callable[[], None]], waits: Sequence[Collection[int]]) -> Callable[[], None]:
        """Return what does all of these as one graph over all devices; see `Driver`.

        Raises:
            PeError: the devices make no graph of them; of what is returned: a device failed (exit code 5).
        """
        self.turn(0)
        with self._drivers[0].capturing() as graph:
            # A stream joins a capture by waiting for an event of the stream that captures.
            for other in self._drivers[1:]:
                other.follow(self._drivers[0])
            self._capture = capture = _Capture()
            try:
                for launch, before in zip(launches, waits, strict=True):
                    capture.next(before)
                    launch()
            finally:
                self._capture = None
            # Every stream has to come back before the end: the driver refuses a capture with open branches.
            for other in self._drivers[1:]:
                self._drivers[0].follow(other)
        run = graph()

        def all_run() -> None:
            # Feeds may have gone to each device in the meantime: the first waits for all.
            self._last = None
            self.turn(0)
            run()
            # The graph is launched on the first device's stream: the others wait for its end there.
            for other in self._drivers[1:]:
                other.follow(self._drivers[0])

        return all_run

    def summing(self, kernel: SumKernel, places: Sequence[Extent], dtype: str) -> Callable[[], None]:
        """Return what sums over all devices by NCCL, when all are ready.

        Args:
            kernel: the sum.
            places: of its elements on each device.
            dtype: of the elements.

        Raises:
            PeError: NCCL does not start; of what is returned: it failed (exit code 5).
        """
        if self._sums is None:
            library = loaded_libraries.installed()[NCCL].library
            self._sums = Sums(library, [driver.index for driver in self._drivers], [driver.handles() for driver in self._drivers])
        count = places[0].nbytes // DTYPES[dtype]
        run = self._sums.ready([place.address for place in places], count, dtype, kernel.root)
        return lambda: self._together(run)

    def _together(self, run: Callable[[], None]) -> None:
        """Do something on the streams of all devices, in the order of asking, or capture it."""
        if self._capture is not None:
            self._capture.add(self._drivers, run)
            return
        self.turn(0)
        for other in self._drivers[1:]:
            other.follow(self._drivers[0])
        run()
        # Work is on every stream: none is behind all the others.
        self._last = None

    def is_done(self) -> bool:
        """Return whether all that was launched is done, on all devices."""
        done = all(driver.is_done() for driver in self._drivers)
        self._last = None if done else self._last
        return done

    def wait(self) -> None:
        """Return when all that was launched is done, on all devices."""
        for driver in self._drivers:
            driver.wait()
        self._last = None

    def give_up(self) -> None:
        """Ask nothing of any device any more."""
        for driver in self._drivers:
            driver.give_up()


class _Capture:
    """Launches that become nodes of one graph."""

    def __init__(self) -> None:
        self._nodes: list[list[int]] = []
        self._before: list[int] = []

    def next(self, before: Collection[int]) -> None:
        """Say what the next launch waits for, by numbers of earlier ones."""
        self._before = [node for i in before for node in self._nodes[i]]
        self._nodes.append([])

    def add(self, drivers: Sequence[CudaDriver], what: Callable[[], None]) -> None:
        """Make nodes of what a launch does on some devices."""
        for driver in drivers:
            driver.captured_after(self._before)
        what()
        for driver in drivers:
            self._nodes[-1] += driver.captured_last()


def joined(indexes: Sequence[int]) -> Driver:
    """Return the driver of some devices, by their numbers.

    Raises:
        PeError: a device cannot be used, or cannot reach the memory of another (exit code 5).
    """
    if len(indexes) == 1:
        return driver_of(indexes[0])
    drivers: Any = tuple(driver_of(i) for i in indexes)
    return _group(drivers)


@functools.lru_cache(maxsize=4)
def _group(drivers: tuple[CudaDriver, ...]) -> Group:
    said = apart(drivers)
    if said:
        raise PeError(said, hint="set executor.devices: 1", code=ExitCode.DEVICE)
    return Group(drivers)


def apart(drivers: Sequence[CudaDriver]) -> str:
    """Return which of some devices cannot reach the memory of another, and why; nothing where all can."""
    # In both directions: memory may be open one way alone.
    for one, other in itertools.permutations(drivers, 2):
        why = _why_closed(one, other)
        if why:
            return f"cuda:{one.index} cannot reach the memory of cuda:{other.index}: {why}"
    return ""


def together(most: int) -> tuple[int, str]:
    """Return how many devices, from the first on, can be used together, and why no more; nothing where that is as many as may be.

    Raises:
        PeError: the first cannot be used (exit code 5).
    """
    drivers: list[Any] = []
    for index in range(most if most > 1 else 0):
        try:
            drivers.append(driver_of(index))
            # Pairs that were tried with fewer devices come from the cache.
            why = apart(drivers)
        except PeError as error:
            if not index:
                raise
            why = error.message
        if why:
            return index, why
    return most, ""


@functools.lru_cache(maxsize=1024)
def _why_closed(one: CudaDriver, other: CudaDriver) -> str:
    """Return why a device cannot reach the memory of another; nothing where what it copies from there and to there arrives."""
    why = one.open_to(other)
    if why:
        return why
    nbytes = 8 * TRIED
    # Other words for each pair: what an earlier try left in the memory does not pass for a copy.
    words = np.arange(TRIED, dtype=np.int64) * 0x9E3779B97F4A7C1 + one.index * 257 + other.index
    found = np.zeros_like(words)
    here, there = one.allocate(nbytes), other.allocate(nbytes)
    try:
        for driver, source, target, address, sent in ((other, there, one, here, words), (one, here, other, there, ~words)):
            # Zeros first: a copy that does nothing is seen, too.
            for each, place, value in ((target, address, np.zeros_like(words)), (driver, source, sent)):
                each.write(place, value)
            one.copy(address, source, nbytes)
            one.wait()
            target.read(address, found)
            wrong = int(np.count_nonzero(found != sent))
            if wrong:
                return f"of {TRIED:,} words that were copied, {wrong:,} came as others"
    finally:
        one.free(here)
        other.free(there)
    return ""
