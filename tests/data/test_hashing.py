"""Random numbers by counter."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.data.counter_random import permutation, random_bits, stream_key, uniform


def splitmix64(state):
    """One step of the reference code by Vigna, https://prng.di.unimi.it/splitmix64.c, in Python integers."""
    mask = 2**64 - 1
    state = (state + 0x9E3779B97F4A7C15) & mask
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return state, z ^ (z >> 31)


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(0, id="key zero"),
        pytest.param(1234567, id="a small key"),
        pytest.param(2**64 - 1, id="the largest key wraps"),
    ],
)
def test_random_bits_are_those_of_splitmix64(key):
    state, expected = key, []
    for _ in range(5):
        state, bits = splitmix64(state)
        expected.append(bits)
    assert random_bits(key, np.arange(5)).tolist() == expected


def test_first_outputs_for_seed_1234567_are_the_published_ones():
    # the values that rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64 lists
    assert random_bits(1234567, np.arange(2)).tolist() == [6457827717110365317, 3203168211198807973]


def test_uniform_has_the_mean_and_variance_of_a_uniform_number():
    draws = uniform(stream_key("test"), np.arange(100_000))
    assert 0 <= draws.min() < draws.max() < 1
    assert draws.mean() == pytest.approx(1 / 2, abs=5 * (1 / 12) ** 0.5 / 100_000**0.5)
    assert draws.var() == pytest.approx(1 / 12, rel=0.02)


def test_keys_differ_when_parts_are_joined_otherwise():
    assert len({stream_key("ab", "c"), stream_key("a", "bc"), stream_key("abc"), stream_key(1, 2), stream_key(12)}) == 5


def test_permutation_has_every_index_once():
    order = permutation(7, 1000)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(1000))
    assert not np.array_equal(order, permutation(8, 1000))
