"""Builds the launches of a step from its kernel calls: where the arguments of each lie, and what it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.devices.cuda_driver_protocol import Driver, Extent
from pe_cli.devices.cuda_kernel_launches import NO_KERNELS, built_of, shape_of
from pe_cli.devices.cuda_launch_integers import WORD, LaunchIntegers
from pe_cli.devices.cuda_launches import Launch
from pe_cli.devices.cuda_libraries.measured_choice import Chosen
from pe_cli.devices.cuda_memory import CudaMemory
from pe_cli.devices.cuda_process_sums import Exchanges
from pe_cli.devices.protocol import Spot, Work
from pe_cli.kernels.calls import STATUS, STEP, Buffer, Call, Numbers, Offset, Place, Stretch, Table, Tickets, buffers_of
from pe_cli.kernels.cpu.no_op import nothing
from pe_cli.kernels.cpu.python_calls import MirroredKernel
from pe_cli.kernels.cuda.batched_launches import written
from pe_cli.kernels.cuda.error_guard import guarded
from pe_cli.kernels.cuda.language import MOST_ITERATIONS, CudaKernel
from pe_cli.kernels.cuda.library_calls import AcrossKernel, SumKernel

#: int64 words of an error report.
REPORT = 8
#: The kernel of a launch that a library or the driver enqueues.
NOTHING = built_of(Call(nothing, (), "float32", "float32"))


class LaunchBuilder:
    """Makes launches of the calls of a step, which holds it as long as it holds them: it has the memory of their arguments.

    Args:
        driver: of the device, or of several as one.
        spot: where each buffer lies.

    Attributes:
        reporters: works that may report an error; those of one device lie together.
        reports: number of a device -> where its reports lie, and which of `reporters` they are of.
        exchanges: what the calls that join processes need.
        counters: number of a device -> where the step's number lies that its calls read.
    """

    def __init__(self, driver: Driver, spot: Callable[[Buffer], Spot]) -> None:
        self._driver, self._spot = driver, spot
        self._words: dict[int, LaunchIntegers] = {}
        self._empty: dict[int, Extent] = {}
        self._turn: Extent | None = None
        self.exchanges = Exchanges(driver)
        self.reporters: list[int] = []
        self.reports: dict[int, tuple[Extent, slice]] = {}
        self.counters: dict[int, Extent] = {}

    def launches(self, works: Sequence[Work], calls: Sequence[tuple[int, Call]]) -> list[Launch]:
        """Return the launches of calls in their order, before the first of which `flush` brings their numbers to the devices.

        Args:
            works: of the step.
            calls: number of a work, and a call of it.

        Raises:
            PeError: a call is none for a CUDA device, or a device has not enough memory (exit code 5).
        """
        # a device writes its own reports and reads its own counter
        self.reporters = sorted((i for i, c in calls if STATUS in c.args), key=lambda i: works[i].home)
        counting = sorted({works[i].home for i, c in calls if STEP in c.args})
        self.counters = {home: self.sent(np.zeros(1, np.int64), home) for home in counting}
        for home in dict.fromkeys(works[i].home for i in self.reporters):
            own = [k for k, i in enumerate(self.reporters) if works[i].home == home]
            words = np.zeros(len(own) * REPORT, np.int64)
            self.reports[home] = self.sent(words, home), slice(own[0], own[-1] + 1)
        return list(self._launches(works, calls))

    def flush(self) -> None:
        """Bring to the devices what the launches are given in memory."""
        for words in self._words.values():
            words.flush()

    def _words_of(self, home: int) -> LaunchIntegers:
        """Return what keeps whole numbers on a device as long as the step."""
        if home not in self._words:
            driver = self._driver.at(home)
            self._words[home] = LaunchIntegers(driver, partial(CudaMemory, driver))
        return self._words[home]

    def sent(self, value: np.ndarray[Any, Any], home: int) -> Extent:
        """Return where a copy of whole numbers will be on a device before the first launch."""
        return self._words_of(home).put(value)

    def _launches(self, works: Sequence[Work], calls: Sequence[tuple[int, Call]]) -> Iterator[Launch]:
        """Yield launches; those that write what lasts do nothing once an error has been reported, in this step or before."""
        left = {home: iter(range(own.stop - own.start)) for home, (_, own) in self.reports.items()}
        for work, each in calls:
            home, call = works[work].home, each
            for place, which in self.reports.values() if self._lasts(each, works[work]) else ():
                call = guarded(call, place, which.stop - which.start)
            report = next(left[home]) if STATUS in call.args else 0
            args = [self._argument(call, kind, arg, report, home) for kind, arg in zip(call.kernel.params, call.args, strict=True)]
            places = [a.address for a in args if isinstance(a, Extent)]
            # A copy of a value to where it lies already: the plan has given both the same place.
            if isinstance(call.kernel, CudaKernel) and call.kernel.copies and places[0] == places[1]:
                continue
            movable = not works[work].buckets
            if isinstance(call.kernel, Chosen):
                built = built_of(call.kernel.instead)
                run = self._driver.at(home).turned(call.kernel.run)
                yield Launch(work, built, (), (), args, call.kernel.written, movable, home, run)
                continue
            if isinstance(call.kernel, (SumKernel, AcrossKernel, MirroredKernel)):
                run, writes = self._joining(call, args, home)
                # Devices that met in different orders would wait for each other for ever.
                args.append(self._in_turn())
                yield Launch(work, NOTHING, (), (), args, writes | {len(args) - 1}, movable, home, run)
                continue
            own = {b for arg in call.args for b in buffers_of(arg)} & works[work].written
            given = call.args
            writes = frozenset(i for i in written(call.kernel) if given[i] is STATUS or not own.isdisjoint(buffers_of(given[i])))
            yield Launch(work, built_of(call), *shape_of(call), args, writes, movable, home)

    def _in_turn(self) -> Extent:
        """Return an argument that all calls that join devices write, so that they come in one order on all devices and in all processes."""
        self._turn = self._turn or self.sent(np.zeros(1, np.int64), 0)
        return self._turn

    def _joining(self, call: Call, args: Sequence[Any], home: int) -> tuple[Callable[[], None], frozenset[int]]:
        """Return what does a call that joins devices or processes, and the numbers of the arguments that it writes."""
        kernel = call.kernel
        if isinstance(kernel, SumKernel):
            return self._driver.summing(kernel, args, call.dtype), frozenset(range(len(args)))
        if isinstance(kernel, AcrossKernel):
            return self.exchanges.across(call, args, home), frozenset(range(len(args)))
        run = self.exchanges.mirrored(call, args[0], args[1:], home)
        return run, frozenset({0, *(1 + number for number, *_ in kernel.gives)})

    def _lasts(self, call: Call, work: Work) -> bool:
        """Return whether a call writes what is there after the step."""
        if isinstance(call.kernel, NO_KERNELS):
            return False
        own = {b for i in written(call.kernel) for b in buffers_of(call.args[i])} & work.written
        return any(self._spot(b).space < 0 for b in own)

    def _argument(self, call: Call, kind: str, arg: Any, report: int, home: int) -> Extent | int | float:  # noqa: PLR0911 - one per kind
        if arg is STATUS:
            return Extent(self.reports[home][0].address + report * REPORT * WORD, REPORT * WORD)
        if arg is STEP:
            return self.counters[home]
        if isinstance(arg, Extent):
            return arg
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
            return self._words_of(home).constant(np.array([*arg.values, 0], np.int64))
        if isinstance(arg, Tickets):
            return self.sent(np.zeros(arg.count, np.int64), home)
        return self.extent(arg, home)

    def extent(self, arg: Buffer | Offset | Place | Stretch, home: int = 0) -> Extent:
        """Return where an argument of a device's calls lies.

        Raises:
            PeError: it is too large for a kernel (exit code 5).
        """
        buffer = arg if isinstance(arg, Buffer) else arg.buffer
        size = buffer.type.numpy.itemsize
        begin = arg.nbytes if isinstance(arg, Place) else arg.elements * size if isinstance(arg, (Offset, Stretch)) else 0
        left = arg.count * size if isinstance(arg, Stretch) else buffer.size * size - begin
        if buffer.size > MOST_ITERATIONS:
            raise PeError(f"{buffer.name} has {buffer.size:,} elements, too many for a CUDA device", code=ExitCode.DEVICE)
        if left < 1:  # a kernel may be given nothing to read, memory may not be empty
            if home not in self._empty:
                self._empty[home] = self.sent(np.zeros(1, np.int64), home)
            return self._empty[home]
        spot = self._spot(buffer)
        return Extent(spot.memory.address + spot.offset + begin, left)
