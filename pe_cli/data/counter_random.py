"""A counter-based random number generator: each draw is a function of a key and an index, and never of earlier draws."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def stream_key(*parts: str | int) -> int:
    """Return the 64-bit key of a stream of numbers.

    Args:
        parts: what tells streams apart, such as a seed and a field's name.

    Returns:
        An integer in [0, 2**64); equal parts give an equal key in every process and version.
    """
    text = "\0".join(f"{len(str(part))}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def random_bits(key: int, counters: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash counters to 64 random bits each.

    Args:
        key: of `stream_key`.
        counters: any shape, >= 0.

    Returns:
        uint64 of the same shape.

    Source:
        Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators": SplitMix64, whose
        state is `counter + 1` steps after the key.
    """
    # [1]-shaped keys, because NumPy warns of a wrapping scalar and not of a wrapping array
    bits = (counters.astype(np.uint64) + np.array([1], np.uint64)) * _GAMMA + np.array([key], np.uint64)
    bits ^= bits >> np.uint64(30)
    bits *= _FIRST
    bits ^= bits >> np.uint64(27)
    bits *= _SECOND
    bits ^= bits >> np.uint64(31)
    return bits


def uniform(key: int, counters: NDArray[np.int64]) -> NDArray[np.float64]:
    """Hash counters to numbers in [0, 1).

    Args:
        key: of `stream_key`.
        counters: any shape, >= 0.

    Returns:
        float64 of the same shape, multiples of 2**-53.
    """
    return (random_bits(key, counters) >> np.uint64(11)).astype(np.float64) * np.float64(2.0**-53)


def permutation(key: int, size: int) -> NDArray[np.int64]:
    """Return 0 .. size-1 in the random order that belongs to the key.

    Sorting hashes is slower than `Generator.permutation`, but no version of NumPy will change the order.

    Args:
        key: of `stream_key`.
        size: number of samples.

    Returns:
        int64 [size].
    """
    return np.argsort(random_bits(key, np.arange(size, dtype=np.int64)), kind="stable").astype(np.int64, copy=False)
