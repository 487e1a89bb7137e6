"""histogram against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.ops.support import run_op


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize(("bins", "low", "high"), [(5, -2, 3), (7, -100, 100), (3, 1, 1), (4, 0, 0)], ids=str)
def test_counts(dtype, bins, low, high, rng):
    x = (3 * rng.standard_normal((20, 30))).astype(dtype)
    ends = (x.min(), x.max()) if low == high == 0 else (low, high) if low < high else (low - 1, high + 1)
    found = run_op("histogram", {"X": x}, {"bins": bins, "min": float(low), "max": float(high)})
    assert found.dtype == np.int64
    assert np.array_equal(found, np.histogram(x.astype("float64"), bins, ends)[0])


def test_numbers_outside_and_nan_do_not_count():
    x = np.array([-1.0, 0, 0.5, 1, 2, np.nan, np.inf])
    assert run_op("histogram", {"X": x}, {"bins": 2, "min": 0.0, "max": 1.0}).tolist() == [1, 2]


@pytest.mark.parametrize("place", [0, 1, 3])
def test_the_ends_of_the_data_are_those_of_its_numbers(place):
    x = np.insert(np.array([1.0, 2, 4]), place, np.nan)
    assert run_op("histogram", {"X": x}, {"bins": 3}).tolist() == [1, 1, 1]
    assert run_op("histogram", {"X": np.full(2, np.nan)}, {"bins": 3}).tolist() == [0, 0, 0]


def test_numbers_that_are_all_the_same():
    assert run_op("histogram", {"X": np.full(5, 3.0)}, {"bins": 2}).tolist() == [0, 5]


@pytest.mark.parametrize("attrs", [{"bins": 0}, {"bins": 2, "min": 1.0, "max": 0.0}], ids=str)
def test_ranges_must_be_some(attrs):
    with pytest.raises(PeError, match="at least 1 range"):
        run_op("histogram", {"X": np.zeros(2)}, attrs)
