"""Parts that processes keep of a sum, and give each other: the bits of the tree, for cuts of any length, and what crosses the wire."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pe_cli.collectives.reduce_scatter import gather_steps, order, room_for, scatter_steps
from tests.collectives.simulated import Network
from tests.collectives.test_tree_reduce import expected, numbers


def cuts(size: int, elements: int, seed: int) -> list[list[slice]]:
    """Return two stretches of every process, of any length, some of them empty; together they are all elements."""
    places = np.sort(np.random.default_rng(seed).integers(0, elements + 1, 2 * size - 1)).tolist()
    spans = [slice(low, high) for low, high in zip([0, *places], [*places, elements], strict=True)]
    return [[spans[i], spans[2 * size - 1 - i]] for i in range(size)]


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 8, 13])
@pytest.mark.parametrize("most", [7, 1000], ids=["many messages", "one message per step"])
def test_each_has_the_sums_of_its_part_and_then_all_have_the_whole(size: int, most: int) -> None:
    elements = 501

    def process(peers):
        values, spans = numbers(peers.rank, elements), cuts(peers.size, elements, peers.size)
        peers.reserve_parts(4 * most)
        parts = [[values[span] for span in part] for part in spans]
        peers.begin_scatter(parts, most).wait()
        own = np.concatenate(parts[peers.rank])
        peers.begin_gather(parts, most).wait()
        return own, values

    whole = expected(size, elements)
    for spans, (own, values) in zip(cuts(size, elements, size), Network(size).run(process), strict=True):
        np.testing.assert_array_equal(own, np.concatenate([whole[span] for span in spans]))
        np.testing.assert_array_equal(values, whole)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_both_together_take_as_many_messages_and_bytes_as_a_sum_for_all(size: int) -> None:
    elements, network = 4000, Network(size)

    def process(peers):
        values = numbers(peers.rank, elements)
        parts = [[part] for part in np.split(values, peers.size)]
        sizes = [elements // peers.size] * peers.size
        most = room_for(sizes, 1)
        assert most == elements // 2
        peers.reserve_parts(4 * most)
        peers.begin_scatter(parts, most).wait()
        peers.begin_gather(parts, most).wait()

    network.run(process)
    assert max(network.messages.values()) == 2 * math.log2(size)
    assert max(network.nbytes.values()) == 2 * 4 * elements * (size - 1) // size


@pytest.mark.parametrize("size", [3, 4, 7, 8])
def test_what_one_sends_the_other_takes(size: int) -> None:
    assert sorted(order(size)) == list(range(size))
    for steps in (scatter_steps, gather_steps):
        sent = sorted((r, s.peer, s.out) for r in range(size) for s in steps(r, size) if s.out)
        taken = sorted((s.peer, r, s.into) for r in range(size) for s in steps(r, size) if s.into)
        assert sent == taken


def test_halved_sums_keep_eleven_bits() -> None:
    def process(peers):
        values = numbers(peers.rank, 64)
        peers.reserve_parts(values.nbytes)
        parts = [[part] for part in np.array_split(values, peers.size)]
        peers.begin_scatter(parts, 64, True).wait()
        return parts[peers.rank][0]

    network = Network(4)
    found = network.run(process)
    np.testing.assert_allclose(np.concatenate(found), expected(4, 64), atol=2**-11 * 8)
    assert max(network.nbytes.values()) == 2 * 64 * 3 // 4
