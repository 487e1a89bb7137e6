"""Launches that join others: none waits for a later one, and the longest way through them stays as long as it was."""

from __future__ import annotations

import random

import pytest

from pe_cli.devices.cuda_launch_order import Order


def longest(waits: dict[int, set[int]], order: list[int]) -> int:
    """Return the launches of the longest way, each counted by hand behind those that it waits for."""
    level: dict[int, int] = {}
    for i in order:
        level[i] = 1 + max((level[j] for j in waits[i]), default=0)
    return max(level.values())


@pytest.mark.parametrize("seed", range(20))
def test_joined_launches_wait_for_all_that_their_parts_wait_for(seed: int):
    rng = random.Random(seed)
    count = 30
    waits = [sorted(rng.sample(range(i), min(i, rng.randrange(3)))) for i in range(count)]
    order = Order(waits)
    stands = list(range(count))  # for what each launch now is part of
    before = longest({i: set(each) for i, each in enumerate(waits)}, list(range(count)))
    for _ in range(60):
        one, other = sorted(rng.sample(sorted(set(stands)), 2))
        if order.length_with(one, other) is not None:
            order.join(one, other)
            stands = [one if each == other else each for each in stands]
    found = order.sorted()
    joined = {i: {stands[j] for k in range(count) if stands[k] == i for j in waits[k]} for i in set(stands)}
    assert sorted(found) == sorted(set(stands))
    assert len(found) < count
    place = {i: k for k, i in enumerate(found)}
    assert all(place[j] < place[i] for i, each in joined.items() for j in each)
    assert longest(joined, found) == before


def test_one_that_waits_and_one_that_makes_the_way_longer_do_not_join():
    order = Order([[], [0], [1], [], [3]])
    assert order.length_with(0, 2) is None, "2 waits for 0"
    assert order.length_with(2, 3) is None, "3 and 4 would come behind 0 and 1: four instead of three"
    assert order.length_with(1, 3) == 4, "a level of 2 and a height of 2: three launches, one behind the other"


def test_a_neighbour_follows_where_what_waits_for_both_comes_no_later():
    beside = Order([[], [], [1], [0, 2], [0], [4]])
    assert not beside.can_follow(0, 3), "4 and 5 would come behind 1 and 2, too: five instead of three"
    assert Order([[], [0], [0], [2]]).can_follow(0, 1), "2 and 3 come behind 0 as before"
