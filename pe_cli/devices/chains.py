"""Chains: runs of works with one way through, which one thread takes at a time."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.devices.tape import Chain


def chains(homes: Sequence[int], waits: Sequence[set[int]], begins: Sequence[int], ends: Sequence[int]) -> list[Chain]:
    """Join consecutive works of one home where the later waits for the earlier only, and the earlier releases the later only.

    Args:
        homes: thread that each work prefers.
        waits: works that must be done before each; redundant ones are dropped in place.
        begins, ends: instructions of each work on the tape.
    """
    followers: list[set[int]] = [set() for _ in homes]
    for i, found in enumerate(waits):
        for before in found:
            followers[before].add(i)
    _reduce(waits, followers)
    of: list[int] = []
    made: list[list[int]] = []
    for i, home in enumerate(homes):
        follows = waits[i] == {i - 1} and len(followers[i - 1]) == 1 and homes[i - 1] == home
        if follows:
            made[-1].append(i)
        else:
            made.append([i])
        of.append(len(made) - 1)
    out = []
    for c, members in enumerate(made):
        after = sorted({of[f] for f in followers[members[-1]]} - {c})
        out.append(Chain(begins[members[0]], ends[members[-1]], homes[members[0]], tuple(after)))
    return out


def _reduce(waits: Sequence[set[int]], followers: Sequence[set[int]]) -> None:
    """Drop waits that another wait implies: fewer counters to touch, longer chains."""
    for i, found in enumerate(waits):
        for before in list(found):
            if any(other != before and before in waits[other] for other in found):
                found.discard(before)
                followers[before].discard(i)
