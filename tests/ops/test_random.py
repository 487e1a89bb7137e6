"""Random tensors: the generator against published answers, the distributions against moments and functions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from pe_cli.core.errors import PeError
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.program.ir import Program
from tests.ops.support import run_op

MASK = 0xFFFFFFFF
COUNT = 200_000


def philox(counter, key, rounds=10):
    """Return Philox4x32 of four counter words and two key words, straight from the paper, in Python's integers."""
    c, k = list(counter), list(key)
    for _ in range(rounds):
        p, q = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(q >> 32) ^ c[1] ^ k[0], q & MASK, (p >> 32) ^ c[3] ^ k[1], p & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


@pytest.mark.parametrize(
    ("counter", "key", "seven", "ten"),
    [
        pytest.param(
            [0] * 4,
            [0] * 2,
            [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48],
            [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
            id="all zeros",
        ),
        pytest.param(
            [MASK] * 4,
            [MASK] * 2,
            [0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662],
            [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
            id="all ones",
        ),
        pytest.param(
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
            id="digits of pi",
        ),
    ],
)
def test_the_reference_gives_the_answers_published_with_random123(counter, key, seven, ten):
    assert philox(counter, key, rounds=7) == seven
    assert philox(counter, key) == ten


@pytest.mark.parametrize("seed", [1, 0x1234_5678_9ABC_DEF0, 2**63 - 1], ids=hex)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_numbers_are_the_words_of_philox(seed, dtype):
    found = run_op("uniform_random", {}, {"shape": [9], "min": 0.0, "seed": seed, "dtype": dtype})
    for i, value in enumerate(found):
        a, b, _, _ = philox([i, 0, 0, 0], [seed & MASK, seed >> 32])
        expected = (a >> 8) / 2**24 if dtype == "float32" else ((a << 21) | (b >> 11)) / 2**53
        assert value == expected


def test_uniform_numbers_fill_their_range_evenly():
    u = run_op("uniform_random", {}, {"shape": [COUNT], "dtype": "float64", "seed": 5}).ravel()
    assert stats.kstest(u, stats.uniform(-1, 2).cdf).pvalue > 1e-3
    assert u.min() >= -1
    assert u.max() < 1
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 4 / np.sqrt(COUNT)


def test_float32_numbers_use_24_bits_and_never_reach_the_upper_end():
    u = run_op("uniform_random", {}, {"shape": [COUNT], "min": 0.0, "seed": 6})
    assert u.dtype == np.float32
    assert u.max() < 1
    assert np.array_equal(u * 2**24, np.floor(u * 2**24))
    low = run_op("uniform_random", {}, {"shape": [COUNT], "min": 1.0, "max": 1.0 + 2.0**-23, "seed": 6})
    assert set(np.unique(low)) == {np.float32(1)}


def test_every_byte_of_the_numbers_is_even():
    u = run_op("uniform_random", {}, {"shape": [COUNT], "min": 0.0, "seed": 8, "dtype": "float64"})
    bits = (u * 2**53).astype(np.uint64)
    for shift in (5, 13, 21, 29, 37, 45):
        counts = np.bincount(((bits >> np.uint64(shift)) & np.uint64(255)).astype(int), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_numbers_have_the_normal_distribution(dtype):
    z = run_op("gaussian_random", {}, {"shape": [COUNT], "mean": 3.0, "std": 2.0, "seed": 9, "dtype": dtype})
    assert stats.kstest((z.astype(np.float64) - 3) / 2, "norm").pvalue > 1e-3
    assert z.mean() == pytest.approx(3, abs=4 * 2 / np.sqrt(COUNT))
    assert z.std() == pytest.approx(2, rel=4 / np.sqrt(2 * COUNT))


def test_normal_numbers_are_the_quantiles_of_uniform_ones():
    z = run_op("gaussian_random", {}, {"shape": [2000], "seed": 77, "dtype": "float64"})
    words = np.array([philox([i, 0, 0, 0], [77, 0])[:2] for i in range(2000)], dtype=object)
    u = np.array([float(((a << 20) | (b >> 12)) + 0.5) / 2**52 for a, b in words])
    np.testing.assert_allclose(z, special.ndtri(u), rtol=1e-13, atol=1e-14)


def test_truncated_normal_numbers_have_their_distribution_and_stay_within_two_deviations():
    attrs = {"shape": [COUNT], "mean": 1.0, "std": 3.0, "seed": 10, "dtype": "float64"}
    z = run_op("truncated_gaussian_random", {}, attrs)
    assert np.abs((z - 1) / 3).max() <= 2
    assert stats.kstest((z - 1) / 3, stats.truncnorm(-2, 2).cdf).pvalue > 1e-3
    assert z.std() == pytest.approx(3 * stats.truncnorm(-2, 2).std(), rel=0.01)


@pytest.mark.parametrize("name", ["uniform_random", "gaussian_random", "truncated_gaussian_random"])
class TestSeeds:
    def test_a_longer_tensor_begins_with_a_shorter_one(self, name):
        short = run_op(name, {}, {"shape": [10], "seed": 3})
        assert np.array_equal(run_op(name, {}, {"shape": [4, 5], "seed": 3}).ravel()[:10], short)

    def test_another_seed_gives_other_numbers(self, name):
        assert not np.any(run_op(name, {}, {"shape": [10], "seed": 3}) == run_op(name, {}, {"shape": [10], "seed": 4}))

    def test_an_own_seed_repeats_at_every_step_and_the_programs_does_not(self, name):
        assert np.array_equal(
            run_op(name, {}, {"shape": [10], "seed": 3}, step=0), run_op(name, {}, {"shape": [10], "seed": 3}, step=1)
        )
        first = run_op(name, {}, {"shape": [10]}, step=0)
        assert np.array_equal(first, run_op(name, {}, {"shape": [10]}, step=0))
        assert not np.any(first == run_op(name, {}, {"shape": [10]}, step=1))


def test_two_ops_of_one_program_draw_different_numbers():
    program = Program()
    for name in ("a", "b"):
        program.global_block().append_op("gaussian_random", {}, {"Out": name}, {"shape": [50]})
    values = Executor(program, Scope([Place()]), seed=1).run({}, ["a", "b"]).values
    assert abs(np.corrcoef(values[0]["a"], values[0]["b"])[0, 1]) < 0.6


LIKE = [("uniform_random", {"min": 2.0, "max": 5.0}), ("gaussian_random", {"mean": 1.0, "std": 2.0})]


@pytest.mark.parametrize(("name", "attrs"), LIKE)
def test_numbers_for_as_many_samples_are_those_of_the_plain_op(name, attrs):
    plain = run_op(name, {}, {"shape": [6, 2, 5], "seed": 3, **attrs})
    rows = np.zeros((6, 1), np.float32)
    first = run_op(f"{name}_batch_size_like", {"Input": rows}, {"shape": [-1, 2, 5], "seed": 3, **attrs})
    np.testing.assert_array_equal(first, plain)
    second = {"shape": [2, -1, 5], "output_dim_idx": 1, "seed": 3, **attrs}
    np.testing.assert_array_equal(run_op(f"{name}_batch_size_like", {"Input": rows}, second), plain.transpose(1, 0, 2))


@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize(("name", "attrs"), LIKE)
def test_a_sample_has_the_same_numbers_on_any_devices(name, attrs, devices):
    program = Program()
    block = program.global_block()
    block.create_var("x", TensorType((-1, 2)), is_data=True)
    block.append_op(f"{name}_batch_size_like", {"Input": "x"}, {"Out": "noise"}, {"shape": [-1, 3], **attrs})
    block.append_op("scale", {"X": "noise"}, {"Out": "y"}, {"scale": 1.0})
    x = np.zeros((7, 2), np.float32)
    found = []
    for count in (1, devices):
        places = [Place(index=i) for i in range(count)]
        values = Executor(program, Scope(places), seed=1).run({"x": x}, ["y"]).values
        found.append(np.concatenate([v["y"] for v in values]))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("name", "attrs", "text"),
    [
        pytest.param("uniform_random", {"min": 2.0, "max": 1.0}, "min 2.0 and max 1.0", id="ends that are swapped"),
        pytest.param("gaussian_random", {"std": -1.0}, "std >= 0, got -1.0", id="a negative deviation"),
        pytest.param("gaussian_random", {"shape": [-1, 3]}, r"\[-1, 3\]", id="a batch axis"),
    ],
)
def test_wrong_attributes_are_refused_with_their_values(name, attrs, text):
    with pytest.raises(PeError, match=text):
        run_op(name, {}, attrs)
