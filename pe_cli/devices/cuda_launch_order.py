"""The dependency graph of a step's launches and its longest path, kept up to date while launches are merged."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence


class Order:
    """Launches by their numbers, each with those that it waits for.

    A launch is on a *level*: one more than the highest of those that it waits for. Its *height* is likewise from the end. The sum of both
    is, but for one, the number of launches of the longest way through it, one behind the other; `join` makes no longest way longer
    where `length_with` says so.

    Args:
        waits: for each launch earlier ones that it waits for.
    """

    def __init__(self, waits: Sequence[Sequence[int]]) -> None:
        self._before: dict[int, set[int]] = {i: set(each) for i, each in enumerate(waits)}
        self._after: dict[int, set[int]] = {i: set() for i in self._before}
        for i, each in enumerate(waits):
            for j in each:
                self._after[j].add(i)
        self.measure()

    def measure(self) -> None:
        """Find levels and heights, and all that each launch waits for, a bit each."""
        order = self.sorted()
        self._level, self._height = dict.fromkeys(order, 1), dict.fromkeys(order, 1)
        self._earlier, self._later = dict.fromkeys(order, 0), dict.fromkeys(order, 0)
        for i in order:
            for j in self._before[i]:
                self._level[i] = max(self._level[i], self._level[j] + 1)
                self._earlier[i] |= self._earlier[j] | 1 << j
        for i in reversed(order):
            for j in self._after[i]:
                self._height[i] = max(self._height[i], self._height[j] + 1)
                self._later[i] |= self._later[j] | 1 << j
        self._longest = max((self._level[i] + self._height[i] for i in order), default=0)

    def sorted(self) -> list[int]:
        """Return the launches in an order in which none waits for a later one; the smallest number first, where there is a choice."""
        left = {i: len(each) for i, each in self._before.items()}
        ready = [i for i, count in left.items() if not count]
        heapq.heapify(ready)
        out: list[int] = []
        while ready:
            out.append(heapq.heappop(ready))
            for j in self._after[out[-1]]:
                left[j] -= 1
                if not left[j]:
                    heapq.heappush(ready, j)
        return out

    def length_with(self, one: int, other: int) -> int | None:
        """Return the longest way through two launches as one; None where one waits for the other, or where that were longer than any."""
        if (self._earlier[one] | self._later[one]) >> other & 1:
            return None
        length = max(self._level[one], self._level[other]) + max(self._height[one], self._height[other])
        return length if length <= self._longest else None

    def can_follow(self, one: int, other: int) -> bool:
        """Return whether a launch may be done behind its neighbour in the order, as one with it: no longest way becomes longer."""
        level = max([self._level[one], *(self._level[j] + 1 for j in self._before[other] if j != one)])
        height = max([self._height[other], *(self._height[j] + 1 for j in self._after[one] if j != other)])
        return level + height <= self._longest

    def join(self, one: int, other: int) -> None:
        """Let a launch be part of another; of neighbours in the order, one may wait for the other, and `measure` is due."""
        for links, back in ((self._before, self._after), (self._after, self._before)):
            for j in links.pop(other):
                back[j].discard(other)
                # Where one of the two waits for the other, the wait goes: nothing waits for itself.
                if j != one:
                    back[j].add(one)
                    links[one].add(j)
        # Who waits for one of the two now waits for both, and so do those further on: bits follow without measuring anew.
        for reach, seen in ((self._earlier, self._later), (self._later, self._earlier)):
            found = (reach[one] | reach.pop(other)) & ~(1 << one | 1 << other)
            reach[one] = found
            for j in _bits(found):
                seen[j] = seen[j] & ~(1 << other) | 1 << one
        for j in _bits(self._earlier[one]):
            self._later[j] |= self._later[one]
        for j in _bits(self._later[one]):
            self._earlier[j] |= self._earlier[one]
        for far, behind in ((self._level, self._after), (self._height, self._before)):
            far[one] = max(far[one], far.pop(other))
            self._raise(one, far, behind)

    def _raise(self, one: int, far: dict[int, int], behind: dict[int, set[int]]) -> None:
        """Let levels, or heights, of those behind a launch follow from its own."""
        waiting = [one]
        while waiting:
            i = waiting.pop()
            for j in behind[i]:
                if far[j] <= far[i]:
                    far[j] = far[i] + 1
                    waiting.append(j)


def _bits(word: int) -> Iterator[int]:
    """Yield the numbers of a word's bits that are set."""
    while word:
        low = word & -word
        yield low.bit_length() - 1
        word ^= low
