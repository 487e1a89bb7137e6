"""Merges independent launches of one kernel into a single launch over a table of their arguments.

Launches may change places as long as neither waits for the other. So the updates of all parameters, the sums of all biases' gradients
and the like, each a few microseconds of waiting for a card that has nothing else to do, come together, whatever ops they are of. What is
left of small launches, one behind the other, is done by one block. Then those of different kernels come together, such as both gradients
of a convolution, where blocks of one kernel are right for the others. No launch comes later by that than the longest way through a step
allows: see `Order`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.devices.cuda_driver_protocol import Extent, packed
from pe_cli.devices.cuda_launch_dependencies import waits_of
from pe_cli.devices.cuda_launch_order import Order
from pe_cli.devices.cuda_launches import Filled, Launch
from pe_cli.kernels.cuda.batched_launches import Row, asks_elsewhere, of_table, words_of
from pe_cli.kernels.cuda.chained_launches import THREADS, fits, of_chain
from pe_cli.kernels.cuda.mixed_launches import can_mix, mixed, shared_bytes, told

#: Blocks of a launch whose loops are dealt that one block does as well, and launches of a step from which on that is worth a kernel.
SMALL, SEVERAL = 2, 8
#: Blocks from which on a kernel that works by blocks fills a card several times over.
FILLS = 512
#: Most blocks of a launch of several kernels, most bytes of their shared memory, and how many times another's threads one may have.
MIXED, ROOM, RATIO = 2048, 48 << 10, 2
#: Threads of a block of kernels whose loops are dealt, and most of one that is mixed.
DEALT = 256
Send = Callable[[np.ndarray[Any, Any], int], Extent]


class _Group:
    """Launches that become one.

    Attributes:
        launches: none of which waits for another.
        kinds: their kernels.
        apart: whether they stay alone: they must not be moved, or ask for their place in the grid in a way of their own.
    """

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.launches = list(launches)
        self.kinds = tuple(dict.fromkeys(each.built for each in launches))
        self.apart = any(not each.movable or each.instead is not None or asks_elsewhere(each.built) for each in launches)
        self.home = launches[0].home

    @property
    def blocks(self) -> int:
        """How many blocks its launches have."""
        return sum(math.prod(each.grid) for each in self.launches)

    @property
    def is_small(self) -> bool:
        """Whether it is a launch that one block does as well."""
        launch = self.launches[0]
        few = self.blocks == 1 if launch.built.block else self.blocks <= SMALL
        return len(self.launches) == 1 and few and not self.apart and len(launch.args) > 0 and fits(launch.built)


def merged(launches: Sequence[Launch], send: Send) -> list[Launch]:
    """Return launches with the same effect, in order, fewer where some of one device can be merged.

    Args:
        launches: in order.
        send: keeps an array on the device of a number.
    """
    groups = {i: _Group([launch]) for i, launch in enumerate(launches)}
    order = Order(waits_of(launches))
    _join(groups, order, _alike)
    # Few launches are not worth kernels of their own, which have to be compiled.
    if len(groups) >= SEVERAL:
        _chain_neighbours(groups, order, send)
        _join(groups, order, _mixable)
    return [_launch(groups[i], send) for i in order.sorted()]


def _join(groups: dict[int, _Group], order: Order, may: Callable[[_Group, _Group], bool]) -> None:
    """Let each group join the one of those before it that it may and that leaves most room, if there is one."""
    for i in list(groups):
        if groups[i].apart:
            continue
        found = None
        for j in groups:
            if j == i:
                break
            other = groups[j]
            if other.apart or other.home != groups[i].home or not may(other, groups[i]):
                continue
            length = order.length_with(i, j)
            # The shortest longest way through the graph is what a step takes at least: joining may not make it longer than it must.
            if length is not None and (found is None or length < found[0]):
                found = length, j
        if found:
            order.join(found[1], i)
            groups[found[1]] = _Group([*groups[found[1]].launches, *groups.pop(i).launches])


def _chain_neighbours(groups: dict[int, _Group], order: Order, send: Send) -> None:
    """Let neighbours that are small be one launch of one block."""
    chains: list[list[int]] = []
    last: int | None = None
    for i in order.sorted():
        if last is not None and groups[i].is_small and _follows(groups[i], groups[last]) and order.can_follow(last, i):
            chains[-1].append(i)
            order.join(last, i)
            order.measure()
        elif groups[i].is_small:
            chains.append([last := i])
        else:
            last = None
    for first, *others in chains:
        if others:
            groups[first] = _Group([_chain([groups[i].launches[0] for i in (first, *others)], send)])
        for i in others:
            del groups[i]


def _follows(group: _Group, before: _Group) -> bool:
    """Return whether small launches may be a chain with those before."""
    return (group.kinds[0].dtype, group.home) == (before.kinds[0].dtype, before.home)


def _fills(launch: Launch) -> bool:
    return bool(launch.built.block) and math.prod(launch.grid) > FILLS


def _alike(group: _Group, other: _Group) -> bool:
    """Return whether launches of both, which are of one kernel each, are worth one launch."""
    return group.kinds == other.kinds and not any(_fills(each) for each in (*group.launches, *other.launches))


def _mixable(group: _Group, other: _Group) -> bool:
    """Return whether launches of both, of different kernels, are worth one launch."""
    kinds = {*group.kinds, *other.kinds}
    if len({built.dtype for built in kinds}) > 1 or not all(map(can_mix, kinds)) or group.blocks + other.blocks > MIXED:
        return False
    sizes = [math.prod(built.block) for built in kinds if built.block]
    fit = not sizes or max(sizes) <= min(RATIO * min(sizes), DEALT)
    return fit and sum(map(shared_bytes, kinds)) <= ROOM


def _launch(group: _Group, send: Send) -> Launch:
    parts = [_tabled([each for each in group.launches if each.built is built], send) for built in group.kinds]
    return parts[0] if len(parts) == 1 else _mix(sorted(parts, key=lambda each: (each.built.kernel.name, sorted(each.built.halves))))


def _tabled(launches: Sequence[Launch], send: Send) -> Launch:
    """Return one launch of all that are of one kernel."""
    first, *others = launches
    if not others:
        return first
    rows = [Row(each.grid, packed(each.built, each.args)) for each in launches]
    words, begins = words_of(rows)
    table = _filled(launches, begins, words, send)
    block = max(each.block for each in launches)
    built = of_table(first.built)
    return replace(first, built=built, grid=(sum(row.blocks for row in rows),), block=block, args=[table], writes=frozenset())


def _mix(launches: Sequence[Launch]) -> Launch:
    """Return one launch of several kernels."""
    threads = max((math.prod(each.built.block) for each in launches if each.built.block), default=DEALT)
    parts = [_with_blocks(each, threads) for each in launches]
    args: list[Extent | int | float] = []
    writes: set[int] = set()
    for each, place in zip(parts, told([each.grid for each in parts]), strict=True):
        writes |= {len(args) + i for i in each.writes}
        args += [*each.args, *place]
    built = mixed(tuple(each.built for each in parts), threads)
    grid = (sum(math.prod(each.grid) for each in parts),)
    return replace(parts[0], built=built, grid=grid, block=(threads,), args=args, writes=frozenset(writes))


def _with_blocks(launch: Launch, threads: int) -> Launch:
    """Return a launch with as many threads as it had in blocks of so many, where any number of them does."""
    if launch.built.block or any(isinstance(arg, Filled) for arg in launch.args):  # the grid of several calls stands in their table
        return launch
    return replace(launch, grid=(max(1, math.prod(launch.grid) * math.prod(launch.block) // threads),), block=(threads,))


def _chain(launches: Sequence[Launch], send: Send) -> Launch:
    """Return the launch of one block whose threads do launches one behind the other."""
    rows = [packed(each.built, each.args) for each in launches]
    begins = list(itertools.accumulate(map(len, rows), initial=0))
    table = _filled(launches, begins, np.concatenate(rows).view(np.int64), send)
    built = of_chain(tuple(each.built for each in launches))
    return replace(launches[0], built=built, grid=(1,), block=(THREADS,), args=[table], writes=frozenset())


def _filled(launches: Sequence[Launch], begins: Sequence[int], words: np.ndarray[Any, Any], send: Send) -> Filled:
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
