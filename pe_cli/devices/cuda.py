"""The CUDA device: its memory, and plans as launches that are captured into one CUDA graph."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.devices import cuda_driver
from pe_cli.devices.cuda_device_group import joined
from pe_cli.devices.cuda_driver_protocol import Driver, Extent
from pe_cli.devices.cuda_feeds import TURNS, CudaFeed, carried
from pe_cli.devices.cuda_kernel_launches import built_of, calls_of
from pe_cli.devices.cuda_launch_batching import merged
from pe_cli.devices.cuda_launch_builder import REPORT, LaunchBuilder
from pe_cli.devices.cuda_launch_dependencies import waits_of
from pe_cli.devices.cuda_launch_integers import WORD, words_of
from pe_cli.devices.cuda_launches import Launch
from pe_cli.devices.cuda_libraries.measured_choice import Chosen, settled
from pe_cli.devices.cuda_memory import CudaMemory
from pe_cli.devices.protocol import Carried, Progress, Spot, Stalled, Timeline, Work
from pe_cli.kernels.calls import STATUS, Buffer, Call, buffers_of
from pe_cli.kernels.cuda.compiler import Capability, is_kept
from pe_cli.kernels.cuda.language import Built
from pe_cli.kernels.cuda.worker_processes import compile_ahead

#: What `run` returns, and copies of values.
Late = tuple[tuple[int, list[int]] | None, list[np.ndarray[Any, Any]]]
#: Seconds between two looks at a step that is watched.
WATCH_EVERY = 2e-5


def cuda_count() -> tuple[int, str]:
    """Return the number of visible CUDA devices, and why there is none when it is 0."""
    count = cuda_driver.device_count()
    return count, "" if count else cuda_driver.why_none()


class CudaDevice:
    """The CUDA devices of this process."""

    lowers = "cuda"
    is_host = False
    shares_memory = False
    refits = False
    native_threads = False
    makes_calls = False
    caches_blocks = False
    line = 256

    def allocate(self, index: int, nbytes: int) -> CudaMemory:
        """Return zeroed memory on a device.

        Raises:
            PeError: there is no such device, or too little memory (exit code 5).
        """
        return CudaMemory(cuda_driver.driver_of(index), nbytes)

    def carried(self, calls: Sequence[Call], feeds: Sequence[TensorType], fetches: Sequence[TensorType]) -> Carried:
        """Return pinned memory for feeds, fetches, error reports and the step's number, and rooms for large feeds."""
        brought = [carried(kind.nbytes) for kind in feeds]
        taken = TURNS * (1 + sum(words_of(kind.nbytes) for kind in fetches))
        reports = _report_words(sum(STATUS in call.args for call in calls))
        return Carried(sum(one.pinned for one in brought) + WORD * (taken + reports), sum(one.rooms for one in brought))

    def compile(
        self, works: Sequence[Work], spot: Callable[[Buffer], Spot], threads: int, progress: Progress | None, indexes: Sequence[int] = (0,)
    ) -> CudaStep:
        """Return the calls as launches; there is one thread, which launches on all devices."""
        del threads
        return CudaStep(joined(indexes), works, spot, progress)


class CudaStep:
    """Works as launches: in order the first time, then as one graph, where each waits for what it must.

    Args:
        driver: of the device, or of several as one; the number of each is the home of its works.
        works: in order.
        spot: where each buffer lies.
        progress: told about kernels that must be compiled.

    Attributes:
        launches: what each calls; everything they need is there before the first step.
        chosen: see `Step`.
    """

    def __init__(
        self, driver: Driver, works: Sequence[Work], spot: Callable[[Buffer], Spot], progress: Progress | None
    ) -> None:
        self._driver = driver
        self._maker = LaunchBuilder(driver, spot)
        self._host_step = driver.pinned(TURNS)  # of this step and the next
        works = self._settled(works, progress)
        calls = [(i, call) for i, work in enumerate(works) for call in calls_of(work.calls)]
        self.chosen = dict(call.kernel.record for _, call in calls if isinstance(call.kernel, Chosen))
        launches = self._maker.launches(works, calls)
        self._host_reports = driver.pinned(_report_words(len(self._maker.reporters))).reshape(TURNS, -1, REPORT)
        self._watch: tuple[float, Callable[[Stalled], PeError]] | None = None
        self.launches = self._prepare(launches, progress)
        self._runs = 0
        self._replays: dict[int, Callable[[], None]] = {}
        self._homes = {work.home for work in works}
        self._ends = driver.mark(), driver.mark()
        self._fetched: dict[tuple[int, Spot, TensorType], np.ndarray[Any, Any]] = {}

    def _prepare(self, found: Sequence[Launch], progress: Progress | None) -> list[Callable[[], None]]:
        launches = merged(found, self._maker.sent)
        self._maker.flush()
        self._works = [(launch.work, launch.home) for launch in launches]
        self._waits = waits_of(launches)
        missing = self._compiled([(launch.built, launch.home) for launch in launches if launch.instead is None], progress)
        made = []
        for launch in launches:
            device = self._driver.at(launch.home)
            made.append(launch.instead or device.launcher(launch.built, launch.grid, launch.block, launch.args))
        if missing and progress:
            progress(missing, missing, "")
        return made

    def _compiled(self, kernels: Sequence[tuple[Built, int]], progress: Progress | None) -> int:
        """Compile kernels, each for the device of a number, on all cores, and return how many were neither loaded nor kept."""
        missing: dict[Capability, dict[Built, None]] = {}
        for built, home in dict.fromkeys(kernels):
            driver = self._driver.at(home)
            if not driver.has(built) and not is_kept(built, driver.capability):
                missing.setdefault(driver.capability, {})[built] = None
        for capability, found in missing.items():
            compile_ahead(list(found), capability, progress)
        return sum(map(len, missing.values()))

    def _settled(self, works: Sequence[Work], progress: Progress | None) -> list[Work]:
        """Return works in whose calls a library's or our own stand for each that a library may do, by what each device measures alone."""
        found = list(works)
        for home in dict.fromkeys(work.home for work in works):
            mine = [i for i, work in enumerate(works) if work.home == home]
            device = self._driver.at(home).alone()
            for i, work in zip(mine, settled(device, [works[i] for i in mine], _Trials(self._maker, device, progress)), strict=True):
                found[i] = work
        return found

    def run(self, step: int) -> tuple[int, list[int]] | None:
        """Launch everything, wait, and return None or the first work that reported an error with its report.

        The first run launches one by one. Later ones launch one graph of all launches and of the copies around them. There are two graphs,
        which take turns: they copy from and to other places on the host.
        """
        half = self._launch(step)
        self._wait()
        return self._failure(half)

    def start(self, step: int, wanted: Sequence[tuple[Spot, TensorType]]) -> Callable[[], Late] | None:
        """Launch everything, and return what waits for it and returns what `run` does with copies of what lies at some spots.

        At most one step before may not have been waited for. None where steps are waited for at once: watched ones, and those of several
        devices.
        """
        # Their ends are not one mark in one stream.
        if self._watch is not None or len(self._homes) > 1:
            return None
        half = self._launch(step)
        copies = []
        for spot, kind in wanted:
            if (half, spot, kind) not in self._fetched:
                words = self._driver.pinned(words_of(kind.nbytes))
                self._fetched[half, spot, kind] = words.view(np.uint8)[: kind.nbytes].view(kind.numpy).reshape(kind.shape)
            copies.append(self._fetched[half, spot, kind])
            if kind.size:
                self._driver.fetch(spot.memory.address + spot.offset, copies[-1])
        self._ends[half].note()

        def finish() -> Late:
            self._ends[half].wait()
            # Copied once more: the step after the next fetches to the same pinned memory.
            return self._failure(half), [copy.copy() for copy in copies]

        return finish

    def _launch(self, step: int) -> int:
        """Launch everything, and return which of the places on the host are this step's."""
        half = self._runs % TURNS
        self._ends[half].wait()
        # The step that used these places last is over by now: nobody reads them any more.
        self._host_step[half] = step
        # Only from the second run on: the first one shows that every launch is right by itself, and loads what is loaded on first use.
        if self._runs and half not in self._replays:
            self._replays[half] = self._driver.captured(self._sequence(half), self._order())
        self._runs += 1
        for launch in [self._replays[half]] if half in self._replays else self._sequence(half):
            launch()
        return half

    def _sequence(self, half: int) -> list[Callable[[], None]]:
        """Return the launches, after the copy of the step's number and before that of the reports."""
        return [*self._counting(half), *self.launches, *self._reporting(half)]

    def _counting(self, half: int) -> list[Callable[[], None]]:
        """Return the copies of the step's number, one for each device that asks for it."""
        number = self._host_step[half : half + 1]
        return [partial(self._driver.at(home).send, place.address, number) for home, place in self._maker.counters.items()]

    def _reporting(self, half: int) -> list[Callable[[], None]]:
        """Return the copies of the error reports of every device."""
        reports = self._host_reports[half]
        return [partial(self._driver.at(home).fetch, place.address, reports[own]) for home, (place, own) in self._maker.reports.items()]

    def _order(self) -> list[Sequence[int]]:
        """Return for each of the sequence what it waits for: the first launches for the step's number, the reports for the last ones."""
        first, count = len(self._maker.counters), len(self.launches)
        # A launch that waits for no other waits for the step's number, and through it all that follow do.
        launches: list[Sequence[int]] = [[first + j for j in waits] or range(first) for waits in self._waits]
        # Launches that no other waits for: when these are done, all are.
        last = sorted({*range(count)} - {j for waits in self._waits for j in waits})
        return [*[()] * first, *launches, *[[first + j for j in last]] * len(self._maker.reports)]

    def refill(self, works: Mapping[int, Work], spot: Callable[[Buffer], Spot]) -> bool:
        """Return False: arguments are fixed in the launches."""
        del works, spot
        return False

    def loan(self, spot: Spot) -> CudaFeed:
        """Return what brings arrays to a spot while the step before runs."""
        return CudaFeed(spot.memory, spot.offset)

    def run_timed(self, step: int) -> tuple[tuple[int, list[int]] | None, Timeline]:
        """Run like `run`, but wait for each launch, so that the host's clock sees how long it takes."""
        self._host_step[0] = step
        for copy in self._counting(0):
            copy()
        times = np.zeros((2, len(self.launches)), np.int64)
        start = time.perf_counter_ns()
        for i, launch in enumerate(self.launches):
            times[0, i] = time.perf_counter_ns()
            launch()
            self._wait()
            times[1, i] = time.perf_counter_ns()
        for copy in self._reporting(0):
            copy()
        self._wait()
        stop = time.perf_counter_ns()
        works, homes = np.array(self._works, np.int64).reshape(-1, 2).T
        timeline = Timeline(times[0], times[1], homes, works, start, stop, 1 + int(homes.max(initial=0)))
        return self._failure(0), timeline

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
                self._driver.give_up()
                raise tell(Stalled(seconds, (), (), 0))
            # A wait of the driver cannot be left: a watched step is asked whether it is done, again and again.
            time.sleep(WATCH_EVERY)

    def _failure(self, half: int) -> tuple[int, list[int]] | None:
        """Return the first work that reported an error with its report, and take the reports back when all that was launched is done."""
        reports = self._host_reports[half]
        if not self._maker.reporters or not reports[:, 0].any():
            return None
        # Launches run side by side: the earliest work is told, whichever has reported first.
        work, found = min((work, k) for k, work in enumerate(self._maker.reporters) if reports[k, 0])
        failure = work, [int(v) for v in reports[found]]
        for home, (place, _) in self._maker.reports.items():
            self._driver.at(home).zero(place.address, place.nbytes)
        self._maker.exchanges.forget()
        return failure


def _report_words(reporters: int) -> int:
    """Return host memory for the error reports of a number of tasks."""
    return TURNS * max(1, reporters) * REPORT


@dataclass(frozen=True)
class _Trials:
    """What a step does where a library's calls are measured beside ours, on one of its devices.

    Args:
        maker: of the step's launches.
        device: that is measured.
        progress: of the step.
    """

    maker: LaunchBuilder
    device: Driver
    progress: Progress | None

    def extent(self, arg: Any) -> Extent:
        """Return where an argument lies."""
        return self.maker.extent(arg)

    def ahead(self, calls: Sequence[Call]) -> None:
        """Compile the kernels of calls, side by side."""
        made = dict.fromkeys(built_of(call) for call in calls_of(calls))
        missing = [b for b in made if not self.device.has(b) and not is_kept(b, self.device.capability)]
        compile_ahead(missing, self.device.capability, self.progress)

    def elsewhere(self, calls: Sequence[Call], spot: Callable[[Buffer], Spot]) -> tuple[Sequence[Callable[[], None]], Any]:
        """Return the launches of calls on buffers that lie elsewhere, and what must be held as long."""
        written = frozenset(b for call in calls for arg in call.args for b in buffers_of(arg))
        made = CudaStep(self.device, [Work(0, calls, frozenset(), written=written)], spot, None)
        return made.launches, made


DEVICE = CudaDevice()
