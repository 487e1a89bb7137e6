"""Hashes of rows of whole words, many rows at once: XXH32 and MurmurHash3; and what C's rand_r draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

#: The primes of XXH32.
P1, P2, P3, P4, P5 = (np.uint32(p) for p in (2654435761, 2246822519, 3266489917, 668265263, 374761393))
#: P1 + P2, wrapped round.
# In Python's integers: numpy warns where the sum of two scalars wraps round, though not where arrays do.
P12 = np.uint32((int(P1) + int(P2)) % 2**32)
#: The factors of MurmurHash3.
C1, C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
#: The factors of its last steps.
F1, F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)


def _turned(x: NDArray[Any], bits: int) -> NDArray[Any]:
    """Return words whose bits are moved up, and those that leave at the top come in below."""
    kind, size = x.dtype.type, 8 * x.dtype.itemsize
    found: NDArray[Any] = (x << kind(bits)) | (x >> kind(size - bits))
    return found


def xxh32(words: Words, seeds: Words) -> Words:
    """Return XXH32 of each row by each seed.

    Args:
        words: [rows, length]; in memory they are what is hashed.
        seeds: [seeds].

    Returns:
        [rows, seeds].

    Source:
        Y. Collet, "XXH32 algorithm description".
    """
    words, seed = words[:, None, :], np.broadcast_to(seeds, (len(words), len(seeds)))
    length, k = words.shape[2], 0
    if length >= 4:
        # The four lanes of XXH32: each takes every fourth word, and they are joined at the end.
        sums = [seed + P12, seed + P2, seed, seed - P1]
        for k in range(0, length - 3, 4):
            sums = [_turned(total + words[..., k + i] * P2, 13) * P1 for i, total in enumerate(sums)]
        k = length // 4 * 4
        h = _turned(sums[0], 1) + _turned(sums[1], 7) + _turned(sums[2], 12) + _turned(sums[3], 18)
    else:
        h = seed + P5
    h = h + np.uint32(4 * length)
    for i in range(k, length):
        h = _turned(h + words[..., i] * P3, 17) * P4
    h = (h ^ (h >> np.uint32(15))) * P2
    h = (h ^ (h >> np.uint32(13))) * P3
    found: Words = h ^ (h >> np.uint32(16))
    return found


def murmur3(data: NDArray[np.uint8], seed: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the two halves of MurmurHash3 x64 128 of each row [rows, bytes].

    Source:
        A. Appleby, MurmurHash3.
    """
    rows, size = data.shape
    # Bytes behind the end count as 0 in the original too, whose last block is filled byte by byte.
    whole = np.zeros((rows, -(-size // 16) * 16), np.uint8)
    whole[:, :size] = data
    blocks = whole.view("<u8")
    h = [np.full(rows, seed, np.uint64) for _ in range(2)]
    for k in range(0, blocks.shape[1], 2):
        first = _turned(blocks[:, k] * C1, 31) * C2
        second = _turned(blocks[:, k + 1] * C2, 33) * C1
        # The last steps of a block that is not whole leave out the rotation and the addition; where it is whole, the loop ends without
        # this.
        if 8 * k + 16 > size:  # the last one is not whole
            h = [h[0] ^ first, h[1] ^ second]
            break
        h[0] = (_turned(h[0] ^ first, 27) + h[1]) * np.uint64(5) + np.uint64(0x52DCE729)
        h[1] = (_turned(h[1] ^ second, 31) + h[0]) * np.uint64(5) + np.uint64(0x38495AB5)
    h = [each ^ np.uint64(size) for each in h]
    h[0] = h[0] + h[1]
    h[1] = h[1] + h[0]
    h = [_mixed(each) for each in h]
    h[0] = h[0] + h[1]
    return h[0], h[1] + h[0]


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for factor in (F1, F2):
        x = (x ^ (x >> np.uint64(33))) * factor
    return x ^ (x >> np.uint64(33))


def rand_r(seed: int) -> Iterator[int]:
    """Yield what C's rand_r draws, from 0 to 2**31 - 1.

    Source:
        the GNU C library, rand_r: three draws of a linear congruence make one number.
    """
    state = seed % 2**32
    while True:
        found = 0
        # 11 bits, then 10 and 10: the low bits of a linear congruence repeat soon, so only bits from the 16th on are taken.
        for bits in (11, 10, 10):
            state = (state * 1103515245 + 12345) % 2**32
            found = found << bits ^ state // 65536 % (1 << bits)
        yield found
