"""Means over devices."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.execute.merge import mean_of_numbers, merge


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


@pytest.mark.parametrize(
    ("values", "places", "expected"),
    [
        # a number less than 2 is lost beside 1e16, whose neighbour is 1e16 + 2
        pytest.param([4e16, 4.0, 4.0, 4.0], (4, (0, 1, 2, 3)), 1e16 + 2, id="(1e16 + 1) + (1 + 1)"),
        pytest.param([4.0, 4.0, 4e16, 4.0], (4, (0, 1, 2, 3)), 1e16 + 2, id="(1 + 1) + (1e16 + 1)"),
        pytest.param([3e16, 3.0, 3.0], (4, (0, 2, 3)), 1e16 + 2, id="a device without samples: 1e16 + (1 + 1)"),
        pytest.param([3e16, 3.0, 3.0], (4, (0, 1, 2)), 1e16, id="another one: (1e16 + 1) + 1"),
        pytest.param([4e16, 4.0, 4.0, 4.0], None, 1e16, id="parts that come one after the other: ((1e16 + 1) + 1) + 1"),
    ],
)
def test_numbers_of_devices_are_added_in_the_order_of_the_tree(values, places, expected):
    arrays = [np.array([value]) for value in values]
    assert mean_of_numbers(arrays, [1] * len(values), places) == expected
