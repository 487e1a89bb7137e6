"""All-reduce and broadcast over processes in a binary tree's order: large sums by recursive halving and doubling, small ones by doubling.

The tree is that of `kernels/math/tree_sum.py`, over processes: neighbours are added first, then pairs of neighbours, and so on. Where the
number of processes is no power of two, the first ones are folded: pairs of them act as one.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from pe_cli.collectives.protocol import Array, Join, left
from pe_cli.core.lazy_dataclass import dataclass

#: Before each message in a block of several: rank of its process, and bytes.
_FRAME = struct.Struct("<IQ")


class Links(Protocol):
    """This process and its ways to others.

    Attributes:
        rank: number of this process, from 0.
        size: processes.
    """

    rank: int
    size: int

    def swap(self, peer: int, out: Array | None, into: Array | None) -> None:
        """Send an array to a process while one of known length comes from it; either may be absent, or empty on both sides.

        Raises:
            PeerError: the process is lost, or has ended.
        """

    def swap_block(self, peer: int, out: bytes | None, wanted: bool) -> bytes:
        """Send bytes to a process while others come from it, whose number it knows; nothing comes where nothing is wanted.

        Raises:
            PeerError: the process is lost, or has ended.
        """


@dataclass(frozen=True)
class Seat:
    """The place of a process in the tree.

    Args:
        number: among those that are left after folding.
        pair: process that this one acts as one with; None where it is not folded.
        gives: it hands its values to the other of the pair, and takes the result from it.
        partners: processes that act at its level, the nearest first; of one that gives, none.
    """

    number: int
    pair: int | None
    gives: bool
    partners: tuple[int, ...]

    @property
    def near(self) -> tuple[int, ...]:
        """Processes that this one ever waits for."""
        return self.partners if self.pair is None else (self.pair, *self.partners)


def seat(rank: int, size: int) -> Seat:
    """Return the place of a process in the tree over all processes.

    >>> seat(2, 4).partners, seat(0, 3)
    ((3, 0), Seat(number=0, pair=1, gives=False, partners=(2,)))
    """
    levels = size.bit_length() - 1
    folded = size - (1 << levels)
    pair = rank ^ 1 if rank < 2 * folded else None
    # The first processes are the pairs, so that the places of those that are left are in the order of their ranks.
    number = rank // 2 if pair is not None else rank - folded
    gives = pair is not None and pair < rank
    others = (number ^ (1 << level) for level in range(0 if gives else levels))
    return Seat(number, pair, gives, tuple(2 * v if v < folded else v + folded for v in others))


def room_for(elements: int) -> int:
    """Return the elements of the room that `all_reduce` needs."""
    return (elements + 1) // 2


class Halved:
    """Ways to others on which float32 goes as float16.

    Args:
        links: the ways.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self.rank, self.size = links.rank, links.size
        self._rooms = np.empty(0, np.float16), np.empty(0, np.float16)

    def swap(self, peer: int, out: Array | None, into: Array | None) -> None:
        """Send an array while another comes; see `Links`."""
        sizes = [0 if values is None else len(values) for values in (out, into)]
        if any(size > len(room) for size, room in zip(sizes, self._rooms, strict=True)):
            self._rooms = np.empty(max(sizes), np.float16), np.empty(max(sizes), np.float16)
        sent, came = (room[:size] for room, size in zip(self._rooms, sizes, strict=True))
        if out is not None:
            self._cast(sent, out)
        self._links.swap(peer, sent, came)
        if into is not None:
            into[...] = came

    def swap_block(self, peer: int, out: bytes | None, wanted: bool) -> bytes:
        """Send bytes while others come; see `Links`."""
        return self._links.swap_block(peer, out, wanted)

    def round(self, values: Array) -> None:
        """Round numbers to what the others get of them."""
        room = self._rooms[0] if len(self._rooms[0]) >= len(values) else np.empty(len(values), np.float16)
        self._cast(room[: len(values)], values)
        values[...] = room[: len(values)]

    @staticmethod
    def _cast(into: Array, values: Array) -> None:
        with np.errstate(all="ignore"):  # what is too large becomes infinity, which the loss shows
            into[...] = values


def all_reduce(links: Links, values: Array, room: Array) -> None:
    """Sum an array over all processes, in place; all get the same bits.

    A process among 2^k sends 2 k messages, and 2 (1 - 2^-k) times the array; of a pair that is folded, one more array at most.

    Args:
        links: to the others, which do the same with an array of that length.
        values: [elements].
        room: [`room_for(elements)`] or more, of the same element type.
    """
    at = seat(links.rank, links.size)
    if at.pair is not None:
        half = len(values) // 2
        halves = values[:half], values[half:]
        mine, other = halves[at.gives], halves[not at.gives]
        _take(links, at.pair, other, mine, room)
        # From here on the other one of the pair acts for both, until the result comes back.
        links.swap(at.pair, mine if at.gives else None, None if at.gives else other)
    spans: list[tuple[Array, Array]] = []
    held = values
    # halving: at every level each of two partners adds up one half, so the work of adding is shared, too
    for level, partner in enumerate(at.partners):
        half = len(held) // 2
        halves = held[:half], held[half:]
        upper = bool(at.number >> level & 1)
        spans.append((halves[upper], halves[not upper]))
        held = halves[upper]
        _take(links, partner, spans[-1][1], held, room)
    if isinstance(links, Halved):
        links.round(held)  # as the others get it
    # doubling: the way back, on which the finished parts are exchanged in the opposite order
    for partner, (kept, given) in zip(reversed(at.partners), reversed(spans), strict=True):
        links.swap(partner, kept, given)
    if at.pair is not None:
        links.swap(at.pair, None if at.gives else values, values if at.gives else None)


def _take(links: Links, peer: int, out: Array, into: Array, room: Array) -> None:
    """Send a part to a process, and add what comes from it to another."""
    came = room[: len(into)]
    links.swap(peer, out, came)
    with np.errstate(all="ignore"):  # between gradients lie bytes that are none
        into += came


def small_sum(links: Links, values: Array) -> Array:
    """Return the sum of a small array over all processes: as few messages as there are levels, of the whole array each."""
    at = seat(links.rank, links.size)
    total, came = values.copy(), np.empty_like(values)
    if at.pair is not None:
        links.swap(at.pair, total if at.gives else None, None if at.gives else came)
        total = total if at.gives else total + came
    for partner in at.partners:
        links.swap(partner, total, came)
        # both partners add the same two numbers, and addition of two commutes to the bit: all get equal sums without a broadcast
        total = total + came
    if at.pair is not None:
        links.swap(at.pair, None if at.gives else total, total if at.gives else None)
    return total


def scan(links: Links, values: Array, join: Join) -> tuple[Array, Array]:
    """Return what small arrays of the processes before this one give together, and those of all; see `Summing.scan`.

    Neighbours are put together first, so that of two that exchange theirs one holds those before the other's.
    """
    at = seat(links.rank, links.size)
    mine, before = values, np.zeros_like(values)
    if at.pair is not None and at.gives:
        _swap_array(links, at.pair, mine, 0)
    elif at.pair is not None:
        mine = join(mine, _swap_array(links, at.pair, None, len(values)))
    for partner in at.partners:
        came = _swap_array(links, partner, mine, len(values))
        before = join(before, came) if partner < links.rank else before
        mine = join(mine, came)
    if at.pair is not None and at.gives:  # the other one of the pair comes before this one
        came = _swap_array(links, at.pair, None, 2 * len(values))
        return came[: len(values)], came[len(values) :]
    if at.pair is not None:
        _swap_array(links, at.pair, np.concatenate([join(before, values), mine]), 0)
    return before, mine


def _swap_array(links: Links, peer: int, out: Array | None, wanted: int) -> Array:
    """Send an array of int64 while another of so many elements comes.

    They go as messages, so that one who gathers meanwhile, as at its end, is heard as such.

    Raises:
        PeError: a message of another length has come.
    """
    message = None if out is None else _FRAME.pack(links.rank, out.nbytes) + out.tobytes()
    came = links.swap_block(peer, message, wanted > 0)
    if wanted and len(came) != _FRAME.size + 8 * wanted:
        raise left(peer)
    return np.frombuffer(came, np.int64, wanted, _FRAME.size if wanted else 0)


def gather(links: Links, message: bytes) -> list[bytes]:
    """Return the messages of all processes, in the order of their ranks: each hands on what it has, to twice as many every time."""
    at = seat(links.rank, links.size)
    block = _FRAME.pack(links.rank, len(message)) + message
    if at.pair is not None:
        came = links.swap_block(at.pair, block if at.gives else None, not at.gives)
        block += came
    for partner in at.partners:
        # What is sent grows, so that its length goes before it; see `Links.swap_block`.
        block += links.swap_block(partner, block, True)
    if at.pair is not None:
        came = links.swap_block(at.pair, None if at.gives else block, at.gives)
        block = came if at.gives else block
    return _unframed(block, links.size)


def _unframed(block: bytes, size: int) -> list[bytes]:
    found: list[bytes] = [b""] * size
    begin = 0
    while begin < len(block):
        rank, length = _FRAME.unpack_from(block, begin)
        begin += _FRAME.size
        found[rank] = block[begin : begin + length]
        begin += length
    return found


def pieces(elements: int, most: int) -> Sequence[slice]:
    """Cut a number of elements into as few pieces of nearly equal length as keep each at or below `most`."""
    count = max(1, -(-elements // max(1, most)))
    cuts = [elements * i // count for i in range(count + 1)]
    return [slice(low, high) for low, high in itertools.pairwise(cuts)]
