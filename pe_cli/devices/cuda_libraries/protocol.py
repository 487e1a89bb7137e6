"""The interface of a library to a device: algorithms for a call, and a prepared call that can be launched."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.devices.cuda_driver_protocol import Extent


class NotTaken(Exception):
    """A library does not do what it was asked for; says why."""


class LibraryFailed(PeError):
    """A library's call failed that it had agreed to."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__(
            f"the CUDA device failed: {name}: status {status}", hint="executor.libraries: none does without libraries", code=ExitCode.DEVICE
        )


@dataclass(frozen=True)
class Ready:
    """A call of a library.

    Args:
        run: enqueues it on the device's stream; may be captured.
        workspace: bytes of the workspace that it uses.
    """

    run: Callable[[], None]
    workspace: int


def written(number: int) -> str:
    """Return the number of a version as people write it.

    >>> written(23203)
    '2.32.3'
    """
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def version(function: Any) -> tuple[int, str]:
    """Return the version that a library's function tells, as a number and as it is written."""
    function.restype = ctypes.c_size_t
    number = function()
    return number, written(number)


def declare(library: Any, functions: Mapping[str, Sequence[Any]]) -> None:
    """Declare the arguments of a library's functions.

    Raises:
        NotTaken: the library does not have one of them.
    """
    for name, kinds in functions.items():
        if not hasattr(library, name):
            raise NotTaken(f"no {name}")
        getattr(library, name).argtypes = kinds


class Library(Protocol):
    """A library on one device, which enqueues on the device's stream.

    Attributes:
        name: of the library.
        version: that algorithms belong to.
    """

    name: str
    version: str

    def algorithms(self, what: Any, places: Sequence[Extent]) -> list[bytes]:
        """Return algorithms, the one that the library thinks fastest first: of the same bits in every run where `what` says so.

        Args:
            what: of `kernels.cuda.library_calls`.
            places: of its arguments, the workspace last.
        """

    def ready(self, what: Any, algorithm: bytes, places: Sequence[Extent]) -> Ready:
        """Return a call by an algorithm of this version on such a device.

        Raises:
            NotTaken: the library says no.
        """


@dataclass(frozen=True)
class Libraries:
    """The libraries of a device.

    Args:
        card: names the device and its driver, for what is kept of measurements.
        each: by their names.
        seconds: runs something that enqueues, and returns how long the device took for it.
    """

    card: str
    each: dict[str, Library]
    seconds: Callable[[Callable[[], None]], float]
