"""Sums and messages in a tree of processes: the order of addition, and what crosses the wire, counted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pe_cli.collectives.tree_reduce import pieces, room_for, seat
from pe_cli.core.errors import PeError
from pe_cli.kernels.math.tree_sum import order_of
from tests.collectives.simulated import Network


def numbers(rank: int, elements: int) -> np.ndarray:
    return np.random.default_rng(rank).standard_normal(elements).astype(np.float32)


def expected(size: int, elements: int) -> np.ndarray:
    """Return the sum as the order of devices says it, by NumPy."""
    rows = {r: numbers(r, elements) for r in range(size)}
    total = rows[0]
    for into, a, b in order_of(size, range(size)).merges:
        total = rows[into] = rows[a] + rows[b]
    return total


@pytest.mark.parametrize("size", [*range(2, 18), 33])
def test_a_scan_gives_what_is_before_each_and_all_of_it(size: int) -> None:
    chance = np.random.default_rng(size)
    given = chance.integers(0, 1 << 40, (size, 3))
    network = Network(size)
    found = network.run(lambda peers: (peers.scan(given[peers.rank], np.add), peers.scan(given[peers.rank], np.maximum)))
    for rank, ((before, total), (_, most)) in enumerate(found):
        assert before.tolist() == given[:rank].sum(0).tolist()
        assert total.tolist() == given.sum(0).tolist()
        assert most.tolist() == given.max(0).tolist()
    levels = size.bit_length() - 1
    assert max(network.messages.values()) <= 2 * (levels + 1)


def test_who_gathers_instead_of_a_scan_has_ended() -> None:
    def process(peers):
        try:
            return peers.scan(np.ones(2, np.int64), np.add) if peers.rank else peers.gather(b"")
        except PeError as error:
            return str(error.message)

    assert Network(2).run(process)[1] == "process 0 has ended, and this one goes on"


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 8, 13])
@pytest.mark.parametrize("elements", [1, 3, 1000])
def test_all_get_the_sum_in_the_order_of_the_tree(size: int, elements: int) -> None:
    def process(peers):
        values = numbers(peers.rank, elements)
        peers.reserve(values.nbytes)
        job = peers.begin(values, elements)
        job.wait()
        return values, peers.total(numbers(peers.rank, elements)), len(job.spans)

    whole = expected(size, elements)
    for values, small, count in Network(size).run(process):
        np.testing.assert_array_equal(values, whole)
        np.testing.assert_array_equal(small, whole)
        assert count == 1


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_a_sum_takes_two_messages_for_each_level_and_no_more_bytes_than_any_can(size: int) -> None:
    elements = 4001
    network = Network(size)

    def process(peers):
        values = numbers(peers.rank, elements)
        peers.reserve(values.nbytes)
        peers.begin(values, elements).wait()

    network.run(process)
    assert max(network.messages.values()) <= 2 * math.log2(size)
    assert max(network.nbytes.values()) <= 1.02 * 2 * 4 * elements * (size - 1) / size


@pytest.mark.parametrize("size", [3, 5, 6, 7, 12])
def test_folding_takes_two_messages_and_one_and_a_half_arrays_more(size: int) -> None:
    elements = 4096
    network = Network(size)

    def process(peers):
        values = numbers(peers.rank, elements)
        peers.reserve(values.nbytes)
        peers.begin(values, elements).wait()

    network.run(process)
    levels = size.bit_length() - 1
    assert max(network.messages.values()) <= 2 * levels + 2
    assert max(network.nbytes.values()) <= 4 * elements * (2 * (1 - 2**-levels) + 1.5)


def test_sums_are_done_in_the_order_in_which_they_are_begun_and_share_a_room() -> None:
    def process(peers):
        arrays = [numbers(peers.rank * 10 + k, 50 * k + 1).astype(kind) for k, kind in enumerate(["f4", "f8", "f4"])]
        peers.reserve(8 * 20)
        jobs = [peers.begin(a, 20) for a in arrays]
        for job in reversed(jobs):
            job.wait()
        assert [len(job.spans) for job in jobs] == [1, 3, 6]
        assert len(peers._lane._room) <= 8 * 20 / 2 + 16
        return arrays

    first, second = Network(2).run(process)
    for k, (a, b) in enumerate(zip(first, second, strict=True)):
        np.testing.assert_array_equal(a, b)
        both = [numbers(r * 10 + k, 50 * k + 1).astype(a.dtype) for r in (0, 1)]
        np.testing.assert_array_equal(a, both[0] + both[1])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 12])
def test_everyone_gets_everyones_message_by_messages_as_few_as_there_are_levels(size: int) -> None:
    sent = [bytes([65 + r]) * (r * 100) for r in range(size)]
    network = Network(size)
    assert network.run(lambda peers: peers.gather(sent[peers.rank])) == [sent] * size
    assert max(network.messages.values(), default=0) <= math.floor(math.log2(size)) + 1


@pytest.mark.parametrize("size", range(1, 20))
def test_who_waits_for_whom_is_mutual(size: int) -> None:
    for rank in range(size):
        for peer in seat(rank, size).near:
            assert rank in seat(peer, size).near


def test_an_error_of_a_sum_is_raised_where_it_is_waited_for() -> None:
    def process(peers):
        peers.swap = None  # not callable
        peers.reserve(8)
        job = peers.begin(np.zeros(2, np.float32), 2)
        with pytest.raises(TypeError):
            job.wait()

    Network(2).run(process)


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_halved_sums_take_half_of_the_bytes_and_cost_the_last_digits(size: int) -> None:
    elements = 1000
    network = Network(size)

    def process(peers):
        values = numbers(peers.rank, elements)
        peers.reserve(values.nbytes)
        peers.begin(values, elements, True).wait()
        return values

    found = network.run(process)
    whole = np.sum([numbers(r, elements).astype(np.float64) for r in range(size)], axis=0)
    for values in found:
        np.testing.assert_array_equal(values, found[0])
        np.testing.assert_array_equal(values, values.astype(np.float16))
    # each level and the end round to 11 bits, what is added up by then
    bound = sum(np.abs(numbers(r, elements)) for r in range(size)) * 2.0**-11 * (math.ceil(math.log2(size)) + 2)
    assert (np.abs(found[0] - whole) <= bound).all()
    if size != 3:
        assert max(network.nbytes.values()) <= 1.02 * 2 * 2 * elements * (size - 1) / size


def test_pieces_cover_everything_and_are_about_as_long() -> None:
    for elements, most in ((0, 5), (1, 5), (5, 5), (6, 5), (1001, 100)):
        cuts = pieces(elements, most)
        assert [i for cut in cuts for i in range(cut.start, cut.stop)] == list(range(elements))
        assert max(cut.stop - cut.start for cut in cuts) <= most
    assert room_for(7) == 4
