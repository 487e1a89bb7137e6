"""Launches of one kernel that do not wait for one another become one launch over a table of their arguments.

A launch may change places with its neighbours as long as neither writes what the other touches. So the updates of all parameters, the
sums of all biases' gradients and the like, each a few microseconds of waiting for a card that has nothing else to do, come together,
whatever ops they are of: first each launch goes to an earlier one of its kernel if it can, then to a later one. What is left of small
launches, one behind the other, is done by one block.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pe_cli.devices.cuda_protocol import Extent, packed
from pe_cli.kernels.cuda import Built
from pe_cli.kernels.cuda_chain import THREADS, fits, of_chain
from pe_cli.kernels.cuda_table import Row, of_table, words_of

#: Groups of launches that are looked through for one of the same kernel.
REACH = 64
#: Blocks of a launch whose loops are dealt that one block does as well, and launches of a step from which on that is worth a kernel.
SMALL, SEVERAL = 2, 8
#: Blocks from which on a kernel that works by blocks fills a card several times over.
FILLS = 512


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


class _Group:
    """Launches of one kernel that touch nothing that another of them writes, and the bytes that they touch."""

    def __init__(self, launch: Launch) -> None:
        self.launches = [launch]
        extents = [(i, a) for i, a in enumerate(launch.args) if isinstance(a, Extent)]
        spans = [(a.address, a.address + a.nbytes, i in launch.writes) for i, a in extents]
        self.written = [(begin, end) for begin, end, writes in spans if writes]
        self.touched = [(begin, end) for begin, end, _ in spans]
        self.tabled = of_table(launch.built) if launch.movable and launch.instead is None and not _fills(launch) else None
        self.home = launch.home

    def conflicts(self, other: _Group) -> bool:
        """Return whether one writes what the other touches."""
        return _meet(self.written, other.touched) or _meet(other.written, self.touched)

    def take(self, other: _Group, first: bool) -> None:
        """Let the launches of another be among these, before or after them."""
        self.launches = [*other.launches, *self.launches] if first else [*self.launches, *other.launches]
        self.written += other.written
        self.touched += other.touched


def _fills(launch: Launch) -> bool:
    return bool(launch.built.block) and math.prod(launch.grid) > FILLS


def _meet(spans: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> bool:
    if len(spans) * len(others) > 64:
        a, b = np.array(spans), np.array(others)
        return bool(((a[:, None, 0] < b[:, 1]) & (b[:, 0] < a[:, None, 1])).any())
    return any(begin < e and b < end for begin, end in spans for b, e in others)


def _chained(launches: Sequence[Launch], send: Callable[[np.ndarray[Any, Any], int], Extent]) -> list[Launch]:
    """Let neighbours that are small be one launch of one block, whose threads do one behind the other."""
    out: list[Launch] = []
    if len(launches) < SEVERAL:
        return list(launches)
    for alike, run in itertools.groupby(launches, lambda each: (each.built.dtype, each.home) if _is_small(each) else None):
        few = list(run)
        if alike is None or len(few) == 1:
            out += few
            continue
        rows = [packed(each.built, each.args) for each in few]
        begins = list(itertools.accumulate(map(len, rows), initial=0))
        table = _filled(few, begins, np.concatenate(rows).view(np.int64), send)
        built = of_chain(tuple(each.built for each in few))
        out.append(replace(few[0], built=built, grid=(1,), block=(THREADS,), args=[table], writes=frozenset()))
    return out


def _is_small(launch: Launch) -> bool:
    blocks = math.prod(launch.grid)
    few = blocks == 1 if launch.built.block else blocks <= SMALL
    plain = not any(isinstance(a, Filled) for a in launch.args) and len(launch.args) > 0
    return few and plain and launch.movable and launch.instead is None and fits(launch.built)


def merged(launches: Sequence[Launch], send: Callable[[np.ndarray[Any, Any], int], Extent]) -> list[Launch]:
    """Return launches with the same effect, in order, fewer where some of one device can be merged.

    Args:
        launches: in order.
        send: keeps an array on the device of a number.
    """
    groups = _together([_Group(launch) for launch in launches], backwards=False)
    groups = _together(groups[::-1], backwards=True)[::-1]
    return _chained([_launch(group, send) for group in groups], send)


def _together(groups: Sequence[_Group], *, backwards: bool) -> list[_Group]:
    """Let each group join the first one of the same kernel that it can be moved to: those that wait for it can then follow."""
    out: list[_Group] = []
    for group in groups:
        target = None
        for before in reversed(out[-REACH:]) if group.tabled else ():
            if before.conflicts(group):
                break
            if before.tabled is group.tabled and before.home == group.home:
                target = before
            if not before.launches[0].movable:
                break
        if target is None:
            out.append(group)
        else:
            target.take(group, first=backwards)
    return out


def _launch(group: _Group, send: Callable[[np.ndarray[Any, Any], int], Extent]) -> Launch:
    first, *others = group.launches
    if not others:
        return first
    assert group.tabled
    rows = [Row(each.grid, packed(each.built, each.args)) for each in group.launches]
    words, begins = words_of(rows)
    table = _filled(group.launches, begins, words, send)
    block = max(each.block for each in group.launches)
    return replace(first, built=group.tabled, grid=(sum(row.blocks for row in rows),), block=block, args=[table], writes=frozenset())


def _filled(
    launches: Sequence[Launch],
    begins: Sequence[int],
    words: np.ndarray[Any, Any],
    send: Callable[[np.ndarray[Any, Any], int], Extent],
) -> Filled:
    """Return a table of the arguments of launches on their device; those of each begin at a word."""
    sent = send(words, launches[0].home)
    found = [
        (8 * (begin + i), a, i in each.writes)
        for begin, each in zip(begins, launches, strict=False)
        for i, a in enumerate(each.args)
        if isinstance(a, Extent)
    ]
    held, written = tuple((at, a) for at, a, _ in found), frozenset(at for at, _, writes in found if writes)
    return Filled(sent.address, sent.nbytes, held, written)
