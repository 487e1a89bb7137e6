"""What several processes that train one model ask of each other, whatever carries it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from pe_cli.core.errors import ExitCode, PeError

Array = np.ndarray[Any, Any]


class PeerError(PeError):
    """Another process is gone, or has ended with an error of its own; it leaves a step as it is.

    Args:
        message, hint, code: as of `PeError`; PEER_LOST where a process does not answer, else the code that it ended with.
    """

    def __init__(self, message: str, *, hint: str | None = None, code: ExitCode = ExitCode.PEER_LOST) -> None:
        super().__init__(message, hint=hint, code=code)


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

    def summer(self, elements: int, dtype: str) -> Callable[[Array], None]:
        """Return a function that sums an array over all processes, in place and in the order of their ranks.

        Every process gets the same bits. The function raises PeerError as `gather` does.

        Args:
            elements: of the array, which has one axis and no gaps.
            dtype: its element type.
        """

    def busy(self) -> AbstractContextManager[None]:
        """Inside, a thread tells the others that this process works on something that they do not see, so that they wait on."""

    def fail(self, error: PeError) -> None:
        """Tell the others why this process ends; takes at most a second or two."""

    def abort(self, code: int) -> None:
        """End all processes that the launcher has started, and the launcher itself with this exit code, where it can be told."""

    def failure_of(self, rank: int, seconds: float) -> tuple[str, int] | None:
        """Return the message and exit code that a process has ended with, None where it says nothing for so long."""

    def close(self) -> None:
        """End together: wait for all, then let go of them.

        Raises:
            PeerError: another process is lost, or has ended.
        """
