"""Reduce-scatter and all-gather over processes, by recursive halving and doubling.

The tree is that of `tree_reduce.py`, so that a sum has the bits of `all_reduce`, wherever the cuts between the parts are. A part is a list
of
arrays: rows of several parameters, of which each process has some. What goes to a process in one exchange goes as one message, or as
several where there is no room for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from pe_cli.collectives.protocol import Array, Parts
from pe_cli.collectives.tree_reduce import Links, seat
from pe_cli.core.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Step:
    """An exchange with another process.

    Args:
        peer: number of the process.
        out: processes whose parts are sent.
        into: processes whose parts come.
        adds: what comes is added to what is there, instead of taking its place.
    """

    peer: int
    out: tuple[int, ...]
    into: tuple[int, ...]
    adds: bool = False


def order(size: int) -> list[int]:
    """Return the processes in the order in which their parts are halved: the first half goes to one side, and so on.

    >>> order(4), order(3)
    ([0, 2, 1, 3], [0, 1, 2])
    """
    seats = _seats(size)
    levels = size.bit_length() - 1
    # The nearest partners halve first, and the lowest bit of a place says which half is its own: bits are read backwards.
    turned = sorted(range(len(seats)), key=lambda number: int(f"{number:0{levels}b}"[::-1], 2))
    return [rank for number in turned for rank in seats[number]]


def scatter_steps(rank: int, size: int) -> list[Step]:
    """Return the exchanges after which a process has the sums of its part."""
    at, ranks = seat(rank, size), order(size)
    made = []
    if at.pair is not None:
        halves = tuple(ranks[: len(ranks) // 2]), tuple(ranks[len(ranks) // 2 :])
        made.append(Step(at.pair, halves[not at.gives], halves[at.gives], adds=True))
        made.append(Step(at.pair, halves[1], ()) if at.gives else Step(at.pair, (), halves[1]))
    made += [Step(peer, given, kept, adds=True) for peer, kept, given in _levels(rank, size)]
    if at.pair is not None:
        made.append(Step(at.pair, (), (rank,)) if at.gives else Step(at.pair, (at.pair,), ()))
    return made


def gather_steps(rank: int, size: int) -> list[Step]:
    """Return the exchanges after which a process that had its own part has all of them."""
    at, ranks = seat(rank, size), order(size)
    made = []
    if at.pair is not None:
        made.append(Step(at.pair, (rank,), ()) if at.gives else Step(at.pair, (), (at.pair,)))
    made += [Step(peer, kept, given) for peer, kept, given in reversed(_levels(rank, size))]
    if at.pair is not None:
        rest = tuple(r for r in ranks if r != (rank if at.gives else at.pair))
        made.append(Step(at.pair, (), rest) if at.gives else Step(at.pair, rest, ()))
    return made


def room_for(sizes: Sequence[int], pieces: int) -> int:
    """Return the elements of a message, equal on all processes: half of all parts, or a piece of that half where room is short.

    Args:
        sizes: elements of the part of each process.
        pieces: messages of an exchange of half of all parts.
    """
    ranks = order(len(sizes))
    halves = ranks[: len(ranks) // 2], ranks[len(ranks) // 2 :]
    return max(1, -(-max(sum(sizes[r] for r in half) for half in halves) // pieces))


def reduce_scatter(links: Links, parts: Parts, rooms: tuple[Array, Array]) -> None:
    """Sum parts over all processes, in place: each has the sums of its own part then, and something else in the others.

    Args:
        links: to the other processes, which do the same with parts of these lengths.
        parts: of every process.
        rooms: for what is sent and for what comes, as long as a message may be.
    """
    for step in scatter_steps(links.rank, links.size):
        _exchange(links, step, parts, rooms)


def all_gather(links: Links, parts: Parts, rooms: tuple[Array, Array]) -> None:
    """Give all processes the parts of each, in place; arguments as for `reduce_scatter`."""
    for step in gather_steps(links.rank, links.size):
        _exchange(links, step, parts, rooms)


def _seats(size: int) -> list[tuple[int, ...]]:
    """Return the processes that act as one, by the number of their place in the tree."""
    levels = size.bit_length() - 1
    folded = size - (1 << levels)
    return [(2 * v, 2 * v + 1) if v < folded else (v + folded,) for v in range(1 << levels)]


def _levels(rank: int, size: int) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Return (peer, whose parts are kept, whose are given) of each level, the nearest first."""
    at, seats = seat(rank, size), _seats(size)
    number = {r: v for v, ranks in enumerate(seats) for r in ranks}
    held, found = order(size), []
    for level, peer in enumerate(at.partners):
        kept = tuple(r for r in held if (number[r] ^ at.number) >> level & 1 == 0)
        found.append((peer, kept, tuple(r for r in held if r not in kept)))
        held = list(kept)
    return found


def _exchange(links: Links, step: Step, parts: Parts, rooms: tuple[Array, Array]) -> None:
    most = len(rooms[0])
    outs, ins = (_messages([a for r in ranks for a in parts[r]], most) for ranks in (step.out, step.into))
    for out, into in itertools.zip_longest(outs, ins):
        sent = None if out is None else _packed(out, rooms[0])
        # What comes for one array alone is received where it belongs, without a copy.
        if into is None or (len(into) == 1 and not step.adds):
            links.swap(step.peer, sent, None if into is None else into[0])
            continue
        came = rooms[1][: sum(map(len, into))]
        links.swap(step.peer, sent, came)
        begin = 0
        for array in into:
            found = came[begin : begin + len(array)]
            with np.errstate(all="ignore"):  # a gradient may be anything
                array[...] = array + found if step.adds else found
            begin += len(array)


def _messages(arrays: Sequence[Array], most: int) -> Iterator[list[Array]]:
    """Yield non-empty groups of array slices that together have at most a given number of elements."""
    message: list[Array] = []
    left = most
    for array in arrays:
        begin = 0
        while begin < len(array):
            piece = array[begin : begin + left]
            message.append(piece)
            begin, left = begin + len(piece), left - len(piece)
            if not left:
                yield message
                message, left = [], most
    if message:
        yield message


def _packed(arrays: Sequence[Array], room: Array) -> Array:
    if len(arrays) == 1:
        return arrays[0]
    begin = 0
    for array in arrays:
        room[begin : begin + len(array)] = array
        begin += len(array)
    return room[:begin]
