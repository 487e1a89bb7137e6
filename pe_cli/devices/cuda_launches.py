"""Launches of a step: a kernel with its arguments, which may lie in memory as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.devices.cuda_driver_protocol import Extent
from pe_cli.kernels.cuda.language import Built


@dataclass(frozen=True)
class Filled(Extent):
    """Memory that holds addresses.

    Args:
        held: byte at which one stands, and what it leads to.
        written: those of the bytes whose memory may be written.
    """

    held: tuple[tuple[int, Extent], ...] = ()
    written: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments.

    Args:
        work: number of what it belongs to.
        built: the kernel.
        grid: blocks along each axis.
        block: threads of a block along each.
        args: memory and numbers.
        writes: numbers of the arguments that it may write through.
        movable: whether it may change places and be merged: it reports nothing.
        home: number of the device, where a step has several.
        instead: enqueues a library's call in the place of the kernel; None for the kernel.
    """

    work: int
    built: Built
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: Sequence[Extent | int | float]
    writes: frozenset[int]
    movable: bool
    home: int = 0
    instead: Callable[[], None] | None = None


def touched(launch: Launch) -> list[tuple[Extent, bool]]:
    """Return what a launch touches, and whether it writes there; of several in one, what each does."""
    found = [(a, i in launch.writes) for i, a in enumerate(launch.args) if isinstance(a, Extent)]
    held = [(a, at in filled.written) for filled, _ in found if isinstance(filled, Filled) for at, a in filled.held]
    return found + held
