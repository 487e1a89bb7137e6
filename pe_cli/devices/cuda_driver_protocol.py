"""The interface of a CUDA driver, which the real driver, a group of devices, the dry run and the tests' simulator implement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, Self

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.kernels.cuda.compiler import Capability
from pe_cli.kernels.cuda.language import Built
from pe_cli.kernels.cuda.library_calls import SumKernel

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Extent:
    """Memory of a device that a kernel is given.

    Args:
        address: of its first byte.
        nbytes: that the kernel may touch.
    """

    address: int
    nbytes: int


@dataclass(frozen=True)
class Handles:
    """What libraries of NVIDIA's are given of a device.

    Args:
        library: the driver's.
        stream: that they enqueue on.
        enter: lets this thread use the device.
        card: name of the device, with its capability and the driver's version.
    """

    library: Any
    stream: Any
    enter: Callable[[], None]
    card: str


class Mark(Protocol):
    """A place among the launches of a device; the newest that was noted counts."""

    def note(self) -> None:
        """Note the place behind all that was launched so far."""

    def wait(self) -> None:
        """Return when all before the place is done; at once where none was noted."""


class Driver(Protocol):
    """What a device's memory and steps ask for; the stream is the only one, and everything on it is done in order.

    Attributes:
        capability: of the device.
    """

    capability: Capability

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory."""

    def free(self, address: int) -> None:
        """Give memory back."""

    def zero(self, address: int, nbytes: int) -> None:
        """Write zeros, when all that was launched is done; they are there when this returns."""

    def write(self, address: int, value: Array) -> None:
        """Copy a contiguous array to the device, when all that was launched is done; it may change as soon as this returns."""

    def read(self, address: int, value: Array) -> None:
        """Copy from the device into a contiguous array, when all that was launched is done."""

    def send(self, address: int, value: Array) -> None:
        """Copy an array of `pinned` to the device in the order of launches: it is read when its turn comes."""

    def fetch(self, address: int, value: Array) -> None:
        """Copy from the device into an array of `pinned` in the order of launches."""

    def pinned(self, words: int) -> Array:
        """Return host memory that the device can copy from and to while the host goes on: [words] int64, zero."""

    def ahead(self, address: int, room: int, value: Array) -> None:
        """Copy an array of `pinned` beside what was launched before to a room, and from there, in the order of launches, to its place.

        Args:
            address: its place, where launches read it.
            room: memory as large, which only such copies touch.
            value: the array.
        """

    def ask(self, entry: Any, record: Array) -> None:
        """Enqueue a host call of a C function `void f(int64 *record)` in the order of launches; function and record outlive the steps."""

    def mark(self) -> Mark:
        """Return what notes how far launches have come."""

    def captured(self, launches: Sequence[Callable[[], None]], waits: Sequence[Collection[int]]) -> Callable[[], None]:
        """Return what does all of these at once: launches, and copies by `send` and `fetch` of `pinned` arrays.

        Args:
            launches: each a kernel or a copy.
            waits: for each, numbers of the earlier ones that must be done before; what is not ordered so may run side by side.
        """

    def at(self, home: int) -> Driver:
        """Return the driver of one of several devices, by its number among them; one alone is its own."""

    def alone(self) -> Driver:
        """Return the driver of a device, as `turned` needs it, without regard to others beside it."""

    def turned(self, run: Callable[[], None]) -> Callable[[], None]:
        """Return what does something that enqueues on the device's stream, when its turn comes among several devices."""

    def handles(self) -> Handles | None:
        """Return what libraries of NVIDIA's are given; None where there is no device for them."""

    def summing(self, kernel: SumKernel, places: Sequence[Extent], dtype: str) -> Callable[[], None]:
        """Return what sums over several devices by NCCL; see `Group.summing`. A single device has nothing to sum."""

    def has(self, built: Built) -> bool:
        """Return whether a kernel is loaded."""

    def launcher(self, built: Built, grid: Shape, block: Shape, args: Sequence[Extent | int | float]) -> Callable[[], None]:
        """Load a kernel and return what launches it with these arguments."""

    def is_done(self) -> bool:
        """Return whether all that was launched is done."""

    def wait(self) -> None:
        """Return when all that was launched is done."""

    def give_up(self) -> None:
        """Ask nothing of the device any more: what was launched is never done, and to give memory back would wait for it."""


def packed(built: Built, args: Sequence[Extent | int | float]) -> Array:
    """Return the words of arguments: [arguments] uint64, each with the bits of its type at its beginning."""
    words = np.zeros(max(1, len(args)), np.uint64)
    for i, (kind, arg) in enumerate(zip(built.kernel.params, args, strict=True)):
        if isinstance(arg, Extent):
            words[i] = arg.address
        else:
            # The driver reads as many bytes as the parameter has, from the beginning of its word.
            words[i : i + 1].view(built.number(kind))[0] = arg
    return words


class OneDevice:
    """What a driver of one device is to steps that may be of several."""

    def at(self, home: int) -> Self:
        """Return itself: there is no other."""
        del home
        return self

    def alone(self) -> Self:
        """Return itself."""
        return self

    def turned(self, run: Callable[[], None]) -> Callable[[], None]:
        """Return what is given: it is always this device's turn."""
        return run

    def give_up(self) -> None:
        """Do nothing: what is launched on a device that is none of CUDA's is done."""

    def summing(self, kernel: SumKernel, places: Sequence[Extent], dtype: str) -> Callable[[], None]:
        """Fail: a graph of one device has no sums.

        Raises:
            AssertionError: always.
        """
        raise AssertionError(f"{kernel} of one device")
