"""Chains: sequences of tasks with a single path through them, which a thread takes as one unit of scheduling."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.devices.tape import Chain


def chains(homes: Sequence[int], waits: Sequence[set[int]], begins: Sequence[int], ends: Sequence[int]) -> list[Chain]:
    """Join works of one home where the later waits for the earlier only, and the earlier releases the later only.

    Args:
        homes: thread that each work prefers.
        waits: earlier works that must be done before each; redundant ones are dropped in place.
        begins, ends: instructions of each work on the tape.
    """
    _reduce(waits)
    followers: list[int] = [0] * len(homes)
    for found in waits:
        for before in found:
            followers[before] += 1
    of: list[int] = []
    made: list[list[int]] = []
    for i, home in enumerate(homes):
        last = next(iter(waits[i])) if len(waits[i]) == 1 else -1
        if last >= 0 and followers[last] == 1 and homes[last] == home:
            # The earlier one has no other follower, so that it is the last of its chain so far.
            of.append(of[last])
            made[of[last]].append(i)
        else:
            of.append(len(made))
            made.append([i])
    after: list[set[int]] = [set() for _ in made]
    for i, found in enumerate(waits):
        for before in found:
            if of[before] != of[i]:
                after[of[before]].add(of[i])
    return [
        Chain(tuple((begins[i], ends[i]) for i in members), homes[members[0]], tuple(sorted(successors)))
        for members, successors in zip(made, after, strict=True)
    ]


def _reduce(waits: Sequence[set[int]]) -> None:
    """Drop waits that other waits imply: fewer counters to touch, longer chains. Works are bits of a number here."""
    reached: list[int] = []
    for found in waits:
        implied = 0
        for before in found:
            # Works wait for earlier ones only: what those wait for is complete by now.
            implied |= reached[before]
        found -= {before for before in found if implied >> before & 1}
        for before in found:
            implied |= 1 << before
        reached.append(implied)
