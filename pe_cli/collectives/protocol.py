"""What several processes that train one model ask of each other, whatever carries it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from pe_cli.core.errors import ExitCode, PeError

Array = np.ndarray[Any, Any]
#: Of every process, arrays of one axis without gaps that belong to it.
Parts = Sequence[Sequence[Array]]


class PeerError(PeError):
    """Another process is gone, or has ended with an error of its own; it leaves a step as it is.

    Args:
        message, hint, code: as of `PeError`; PEER_LOST where a process does not answer, else the code that it ended with.
    """

    def __init__(self, message: str, *, hint: str | None = None, code: ExitCode = ExitCode.PEER_LOST) -> None:
        super().__init__(message, hint=hint, code=code)


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

    def fail(self, error: PeError) -> None:
        """Tell the others why this process ends; takes at most a second or two."""

    def take_leave(self) -> bool:
        """Tell the launcher that this process needs the others no more; whether those go on when it ends with an error then."""

    def abort(self, code: int) -> None:
        """End all processes that the launcher has started, and the launcher itself with this exit code, where it can be told."""

    def failure_of(self, rank: int, seconds: float) -> tuple[str, int] | None:
        """Return the message and exit code that a process has ended with, None where it says nothing for so long."""

    def close(self) -> None:
        """End together: wait for all, then let go of them.

        Raises:
            PeerError: another process is lost, or has ended.
        """


class Summing(Communicator, Protocol):
    """Processes that sum gradients among themselves, on a thread of their own and in the order in which sums are begun."""

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
