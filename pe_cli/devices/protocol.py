"""What a kind of device must offer: memory, and something that runs a plan's kernel calls over it."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.kernels.calls import Buffer, Call

Progress = Callable[[int, int, str], None]


class ShortError(PeError):
    """There is not that much memory on a device.

    Args:
        free: bytes that there are.
    """

    def __init__(self, message: str, free: int, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, code=ExitCode.DEVICE)
        self.free = free


class Memory(Protocol):
    """One allocation on a device."""

    nbytes: int

    def read(self, offset: int, kind: TensorType) -> np.ndarray[Any, Any]:
        """Return a copy of the value at a byte offset."""

    def write(self, offset: int, kind: TensorType, value: np.ndarray[Any, Any]) -> None:
        """Write a value of that shape at a byte offset."""


@dataclass(frozen=True)
class Spot:
    """Where a buffer lies.

    Args:
        memory: the allocation.
        offset: bytes.
        space: numbers allocations, for dependency analysis; -1 - n for the scope's.
    """

    memory: Any
    offset: int
    space: int


@dataclass(frozen=True)
class Carried:
    """Memory beside a step's arena that brings to it what it is fed, and from it what is read.

    Args:
        pinned: bytes of the host that are never moved or swapped: the device copies from and to them.
        rooms: bytes of the device in which feeds arrive while the step before runs.
    """

    pinned: int
    rooms: int


class Takers(enum.Enum):
    """Who does the numbered parts of a work."""

    #: The threads of its own device; where a device has just one, that.
    DEVICE = "device"
    #: All threads from home on, a part each.
    ALL = "all"
    #: Its home, and any thread that has nothing else to do.
    IDLE = "idle"


@dataclass(frozen=True)
class Work:
    """Kernel calls that run one after the other on a device.

    Args:
        home: index of the device.
        calls: in order.
        waits: earlier works that must be done before; empty when order is all that counts.
        takers: who does its numbered parts.
        spare: room for so many more calls, see `Step.refill`.
        written: buffers that its calls may write; all other buffers of its calls are only read.
        buckets: buffers that lie one after the other; a call that names the first may touch all.
    """

    home: int
    calls: Sequence[Call]
    waits: frozenset[int]
    takers: Takers = Takers.DEVICE
    spare: int = 0
    written: frozenset[Buffer] = frozenset()
    buckets: Sequence[Sequence[Buffer]] = ()


@dataclass(frozen=True)
class Timeline:
    """When the instructions of one step ran.

    Args:
        begin: [instructions] ns of `time.perf_counter_ns`; 0 where one did not run.
        end: [instructions] ns.
        thread: [instructions] index of the thread; 0 is the one that called.
        work: [instructions] index of the work that each belongs to.
        start, stop: ns around the whole step.
        threads: how many there are.
        beside: (work that began it, begin, end) of what ran on the communication thread, ns.
    """

    begin: np.ndarray[Any, Any]
    end: np.ndarray[Any, Any]
    thread: np.ndarray[Any, Any]
    work: np.ndarray[Any, Any]
    start: int
    stop: int
    threads: int
    beside: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class Stalled:
    """A step that gets no further.

    Args:
        seconds: since it last got on.
        running: (work, kernel, index of the thread, seconds) of every kernel that has not returned.
        waiting: (work, works that it waits for) of those that have not begun; the second is empty where only the order counts.
        done: works that are done.
    """

    seconds: float
    running: tuple[tuple[int, str, int, float], ...]
    waiting: tuple[tuple[int, tuple[int, ...]], ...]
    done: int


class Step(Protocol):
    """A plan's calls, ready to run again and again.

    Attributes:
        chosen: what libraries compute of it -> the hash of all that decides how.
    """

    chosen: Mapping[str, str]

    def run(self, step: int) -> tuple[int, list[int]] | None:
        """Run once; return None, or the first work that reported an error with its report."""

    def start(
        self, step: int, wanted: Sequence[tuple[Spot, TensorType]]
    ) -> Callable[[], tuple[tuple[int, list[int]] | None, list[np.ndarray[Any, Any]]]] | None:
        """Begin a run; return what waits for its end, and returns what `run` does with copies of what then lay at some spots.

        One more may begin before that is called. None where steps are over when they return: nothing has begun.
        """

    def run_timed(self, step: int) -> tuple[tuple[int, list[int]] | None, Timeline]:
        """Run once; return what `run` returns, and when everything ran. Slower than `run`, which it leaves as it is."""

    def refill(self, works: Mapping[int, Work], spot: Callable[[Buffer], Spot]) -> bool:
        """Replace the calls of some tasks from the next step on; zero-copy feeds end.

        Args:
            works: number -> a work whose calls are on what those so far read and write. Those with numbers of parts have the same
                as before.
            spot: where each buffer lies.

        Returns:
            False where that can't be done; then nothing has changed.
        """

    def loan(self, spot: Spot) -> Loan | None:
        """Return a zero-copy feed for a spot; None where that is impossible and a copy has to be written to the spot.

        Args:
            spot: where a buffer starts that no other shares bytes with, and that no call writes.
        """

    def watch(self, seconds: float, tell: Callable[[Stalled], PeError]) -> None:
        """End every later step that makes no progress for so long, with the error that `tell` makes."""


class Loan(Protocol):
    """A zero-copy feed: a caller's array that a step reads in the place of a spot of its own memory.

    Attributes:
        array: what steps read; None: the spot itself.
    """

    array: np.ndarray[Any, Any] | None

    def lend(self, array: np.ndarray[Any, Any] | None) -> None:
        """Read an array from the next step on; None: the spot itself again.

        Args:
            array: contiguous, of the buffer's type, and unchanged as long as steps read it; it is held until the next loan.
        """


class Device(Protocol):
    """A kind of device; `pe_cli.devices.<kind>` holds one as `DEVICE`.

    Attributes:
        lowers: kind of device whose lowerings of ops it runs: its own, where it has kernels of its own.
        is_host: its memory is that of Python's arrays; what happens once, such as drawing initial values, happens there.
        shares_memory: all devices of the kind may use one copy of what the updates write.
        refits: plans may serve batches of other sizes than those that they were made for.
        native_threads: ops may be cut into parts that several threads of a device share, and other devices' threads help with.
        makes_calls: kernels may make other calls, so that loops and branches run as nested calls (`kernels/cpu/loop_calls.py`).
        caches_blocks: fused ops keep what they hand on in caches, block by block, so that it is never in memory as a whole.
        line: bytes of which the place of every value is a multiple.
    """

    lowers: str
    is_host: bool
    shares_memory: bool
    refits: bool
    native_threads: bool
    makes_calls: bool
    caches_blocks: bool
    line: int

    def allocate(self, index: int, nbytes: int) -> Memory:
        """Return zeroed memory on the device of an index."""

    def carried(self, calls: Sequence[Call], feeds: Sequence[TensorType], fetches: Sequence[TensorType]) -> Carried:
        """Return what feeds, fetches and error reports of a device's part of a step take beside its arena.

        Args:
            calls: of the device.
            feeds: that it is given.
            fetches: that may be read when the next step has begun.
        """

    def compile(
        self, works: Sequence[Work], spot: Callable[[Buffer], Spot], threads: int, progress: Progress | None, indexes: Sequence[int] = (0,)
    ) -> Step:
        """Return works ready to run.

        Args:
            works: in a valid order.
            spot: where each buffer lies.
            threads: native threads (CPU); 1 means in order.
            progress: told about kernels that must be compiled.
            indexes: of the devices of the kind, by home; CPU devices are no more than numbers.
        """


def device(kind: str) -> Device:
    """Return a kind of device: cpu or cuda."""
    found: Device = importlib.import_module(f"pe_cli.devices.{kind}").DEVICE
    return found
