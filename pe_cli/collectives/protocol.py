"""The interface between processes that train one model, whatever transports its messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from pe_cli.core.errors import ExitCode, PeError, is_local
from pe_cli.core.lazy_dataclass import dataclass

Array = np.ndarray[Any, Any]
#: Puts two arrays of one shape together, in any grouping with the same result.
Join = Callable[[Array, Array], Array]
#: Of every process, arrays of one axis without gaps that belong to it.
Parts = Sequence[Sequence[Array]]


@dataclass(frozen=True)
class Failure:
    """Why a process ends, as it tells the others.

    Args:
        message: of its error.
        code: with which that error ends a process that trains alone.
        met: whether the process has met the error itself; else it has heard of another's.
        local: see `is_local`.
    """

    message: str
    code: ExitCode
    met: bool = True
    local: bool = False

    @classmethod
    def of(cls, error: PeError) -> Failure:
        """Return an error in the form in which processes report it to each other."""
        if isinstance(error, PeerError) and error.told is not None:
            return replace(error.told, met=False)
        return cls(error.message, error.code, local=is_local(error))

    @property
    def alone(self) -> ExitCode:
        """The code with which it ends all processes where not all have met it."""
        return ExitCode.PEER_LOST if self.local else self.code


def ends_all(failures: Mapping[int, Failure], size: int) -> ExitCode:
    """Return the exit code of all processes: that of the error, or PEER_LOST where it is local and not all have met it.

    Args:
        failures: by process; those that have told nothing are missing.
        size: processes.
    """
    met = [failures[rank] for rank in sorted(failures) if failures[rank].met]
    first = next((f for f in met if not f.local), met[0])
    return first.code if len(met) == size and len({f.code for f in met}) == 1 else first.alone


def speaks(rank: int, failures: Mapping[int, Failure]) -> bool:
    """Return whether a process says why all end: who has met the error does, of several that have met the same the first one."""
    mine = failures[rank]
    return mine.met and not any(f.met and f.code == mine.code and (not f.local or f == mine) for r, f in failures.items() if r < rank)


class PeerError(PeError):
    """Another process is gone, or has ended with an error of its own; it leaves a step as it is.

    Args:
        message, hint, code: as of `PeError`; PEER_LOST where a process does not answer, else the code with which it ends all.
        told: what the process has said that has ended; None where nobody has said anything.
        by: number of the process that has said it.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: ExitCode = ExitCode.PEER_LOST,
        told: Failure | None = None,
        by: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.told, self.by = told, by

    @classmethod
    def ended(cls, rank: int, failure: Failure) -> PeerError:
        """Return the error of those that hear that a process ends."""
        return cls(f"process {rank} has ended: {failure.message}", code=failure.alone, told=failure, by=rank)


def left(rank: int) -> PeError:
    """Return the error of a process of which another has ended its loop while this one goes on."""
    return PeError(f"process {rank} has ended, and this one goes on", hint="all processes take the same number of steps")


class Pending(Protocol):
    """A sum that is under way on the communication thread."""

    @property
    def spans(self) -> Sequence[tuple[int, int]]:
        """(begin, end) of each piece that is done, in ns of `time.perf_counter_ns`."""

    def wait(self) -> None:
        """Return when the sum is there.

        Raises:
            PeerError: another process is lost, or has ended.
        """


class Communicator(Protocol):
    """This process among its peers. All of them make the same calls in the same order; none waits for ever.

    Attributes:
        rank: number of this process, from 0.
        size: processes.
        doing: what they are at, for the message of a lost process.
        advice: hint of that message.
    """

    rank: int
    size: int
    doing: str
    advice: str

    def gather(self, message: bytes) -> list[bytes]:
        """Give every process a message of this one.

        Returns:
            The messages of all, in the order of their ranks.

        Raises:
            PeerError: another process is lost, or has ended.
        """

    def total(self, values: Array) -> Array:
        """Return the sum of a small array over all processes, in the order of the tree; raises PeerError as `gather` does."""

    def fail(self, failure: Failure) -> None:
        """Tell the others why this process ends; takes at most a second or two."""

    def take_leave(self) -> bool:
        """Tell the launcher that this process needs the others no more; whether those go on when it ends with an error then."""

    def abort(self, code: int) -> None:
        """End all processes that the launcher has started, and the launcher itself with this exit code, where it can be told."""

    def failures(self) -> Mapping[int, Failure]:
        """Return why the others end, as soon as all have said so, or when it has waited for the rest for as long as they may be silent.

        Where one process has decided which error ends all, this one is among them.
        """

    def close(self) -> None:
        """End together: wait for all, then let go of them.

        Raises:
            PeerError: another process is lost, or has ended.
        """


class Summing(Communicator, Protocol):
    """Processes that sum gradients among themselves, on a thread of their own and in the order in which sums are begun."""

    def scan(self, values: Array, join: Join) -> tuple[Array, Array]:
        """Return what small arrays of the processes before this one give together, zeros for none, and those of all.

        Args:
            values: int64, as many on all processes, none below 0.
            join: puts two together.

        Raises:
            PeError: a process has ended its loop instead, is lost, or has ended.
        """

    def reserve(self, nbytes: int) -> None:
        """Have room for sums whose pieces have at most so many bytes: half of that, once for all sums."""

    def begin(self, values: Array, most: int, halved: bool = False) -> Pending:
        """Begin to sum an array over all processes, in place and in the order of the tree; all get the same bits.

        Args:
            values: one axis, no gaps; nobody else touches it before the sum is there.
            most: elements of a piece; room for it was reserved.
            halved: float32 goes as float16.
        """

    def reserve_parts(self, nbytes: int) -> None:
        """Have room for exchanges of parts whose messages have at most so many bytes: twice that, once for all of them."""

    def begin_scatter(self, parts: Parts, most: int, halved: bool = False) -> Pending:
        """Begin to sum parts over all processes, in the order of the tree; each has the sums of its own part then, in place.

        Args:
            parts: of one element type; nobody else touches them before the sums are there.
            most: elements of a message; room for it was reserved.
            halved: float32 goes as float16.
        """

    def begin_gather(self, parts: Parts, most: int) -> Pending:
        """Begin to give all processes the parts of each, in place; arguments as for `begin_scatter`."""
