"""hash: XXH64 of rows, against its definition in whole numbers of Python, and against published values."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.core.errors import PeError
from tests.ops.support import run_op

P = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)
MASK = 2**64 - 1


def rotated(x, k):
    return ((x << k) | (x >> (64 - k))) & MASK


def mixed(total, word):
    return rotated((total + word * P[1]) & MASK, 31) * P[0] & MASK


def xxh64(data, seed):
    """Return the hash of bytes as their specification says it, of whole words of four bytes."""
    at, h = 0, (seed + P[4]) & MASK
    if len(data) >= 32:
        four = [(seed + P[0] + P[1]) & MASK, (seed + P[1]) & MASK, seed, (seed - P[0]) & MASK]
        while at + 32 <= len(data):
            four = [mixed(v, w) for v, w in zip(four, struct.unpack_from("<4Q", data, at), strict=True)]
            at += 32
        h = sum(rotated(v, k) for v, k in zip(four, (1, 7, 12, 18), strict=True)) & MASK
        for v in four:
            h = ((h ^ mixed(0, v)) * P[0] + P[3]) & MASK
    h = (h + len(data)) & MASK
    while at + 8 <= len(data):
        h = (rotated(h ^ mixed(0, struct.unpack_from("<Q", data, at)[0]), 27) * P[0] + P[3]) & MASK
        at += 8
    if at < len(data):
        h = (rotated(h ^ (struct.unpack_from("<I", data, at)[0] * P[0] & MASK), 23) * P[1] + P[2]) & MASK
    h = (h ^ (h >> 33)) * P[1] & MASK
    h = (h ^ (h >> 29)) * P[2] & MASK
    return h ^ (h >> 32)


def test_published_values_of_the_original():
    found = run_op("hash", {"X": np.array([[5], [8], [9], [0], [7]])}, {"mod_by": 10000, "num_hash": 2, "wide": False})
    assert found[..., 0].tolist() == [[3481, 7475], [1719, 5986], [8473, 694], [4372, 9456], [9038, 7951]]
    found = run_op("hash", {"X": np.array([[2]])}, {"mod_by": 10000, "num_hash": 4, "wide": False})
    assert found.ravel().tolist() == [9662, 9217, 1129, 8487]


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 8, 9, 16, 19])
def test_rows_of_any_width(rng, kind, width):
    limits = np.iinfo(kind)
    x = rng.integers(limits.min, limits.max, (4, width), kind)
    found = run_op("hash", {"X": x.astype("int64")}, {"mod_by": 2**31 - 1, "num_hash": 3, "wide": kind == "int64"})
    assert found.shape == (4, 3, 1)
    assert found[..., 0].tolist() == [[xxh64(row.tobytes(), k) % (2**31 - 1) for k in range(3)] for row in x]


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_the_layer_keeps_type_and_sequences(kind):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2], kind, lod_level=1)
        made = fluid.layers.hash(x, 1000, num_hash=2)
        value = fluid.create_lod_tensor(np.array([[1, 2], [3, -4], [1, 2]], kind), [[2, 1]], fluid.CPUPlace())
        (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": value}, fetch_list=[made], return_numpy=False)
    rows = np.array([[1, 2], [3, -4], [1, 2]], kind)
    assert np.array(found).dtype == kind
    assert np.array(found)[..., 0].tolist() == [[xxh64(row.tobytes(), k) % 1000 for k in range(2)] for row in rows]
    assert found.recursive_sequence_lengths() == [[2, 1]]


@pytest.mark.parametrize(("x", "attrs"), [(np.zeros((2, 1)), {}), (np.zeros((2, 1), int), {"mod_by": 0}), (np.zeros((2, 0), int), {})])
def test_what_has_no_hash(x, attrs):
    with pytest.raises(PeError, match="hash"):
        run_op("hash", {"X": x}, attrs)
