"""Means over devices."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.execute.merge import merge


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_the_mean_of_single_numbers_has_the_bits_of_the_mean_of_rows(dtype, shape):
    rng = np.random.default_rng(0)
    for devices in (2, 3, 7):
        rows = [rng.standard_normal(4).astype(dtype) for _ in range(devices)]
        sizes = rng.integers(0, 50, devices).tolist()
        whole = merge(rows, sizes, "mean")
        for k in range(4):
            parts = [np.full(shape, row[k]) for row in rows]
            found = merge(parts, sizes, "mean")
            assert found.shape == shape
            assert found.dtype == dtype
            assert found.tobytes() == whole[k].tobytes()
            assert all(part == row[k] for part, row in zip(parts, rows, strict=True))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_no_number_stays_none(bad):
    found = merge([np.array([bad], "float32"), np.array([1], "float32")], [1, 1], "mean")
    np.testing.assert_array_equal(found, np.array([bad], "float32"))


def test_integers_are_cut_off():
    assert merge([np.array([1]), np.array([4])], [2, 2], "mean").tolist() == [2]
