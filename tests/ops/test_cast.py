"""cast between any two element types, against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.types import BFLOAT16, DTYPES
from tests.ops.support import run_gradient, run_op

#: Element types that NumPy has; bfloat16 has tests of its own (test_bfloat16_storage.py).
NUMPY = [name for name in DTYPES if name != BFLOAT16]
VALUES = np.array([0, 1, 2, 3, 100, 127, 7, 0, 1] * 5)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(NUMPY, NUMPY)))
def test_every_pair(source, target):
    x = VALUES.astype(source)
    got = run_op("cast", {"X": x}, {"in_dtype": source, "out_dtype": target})
    assert got.dtype == target
    np.testing.assert_array_equal(got, x.astype(target))


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", ["int32", "int64"])
def test_fractions_are_cut_off(source, target):
    got = run_op("cast", {"X": np.array([1.9, -1.9, 0.5, -0.5], source)}, {"out_dtype": target})
    assert got.tolist() == [1, -1, 0, 0]


def test_bytes_are_taken_modulo_256():
    got = run_op("cast", {"X": np.array([-1, 256, 300, 255])}, {"out_dtype": "uint8"})
    assert got.tolist() == [255, 0, 44, 255]


def test_bool_is_whether_something_is_there():
    got = run_op("cast", {"X": np.array([0.0, -0.0, 0.25, np.nan, -np.inf, 256.0])}, {"out_dtype": "bool"})
    assert got.tolist() == [False, False, True, True, True, True]


def test_nan_and_infinity_stay():
    got = run_op("cast", {"X": np.array([np.nan, np.inf, -np.inf, 1e300])}, {"out_dtype": "float32"})
    np.testing.assert_array_equal(got, np.array([np.nan, np.inf, -np.inf, np.inf], "float32"))


def test_large_integers_do_not_pass_through_floats():
    assert run_op("cast", {"X": np.array([2**53 + 1, -(2**53) - 1])}, {"out_dtype": "int64"}).tolist() == [
        2**53 + 1,
        -(2**53) - 1,
    ]


@pytest.mark.parametrize(("source", "target"), [("float32", "float64"), ("float64", "float32"), ("float32", "float32")])
def test_the_gradient_is_cast_back(source, target):
    up = np.array([[0.5, -2.0, 3.0]], target)
    got = run_gradient("cast", {"X": np.ones((1, 3), source)}, {"out_dtype": target}, upstream=up)["X"]
    assert got.dtype == source
    assert got.tolist() == [[0.5, -2.0, 3.0]]


def test_an_empty_tensor():
    assert run_op("cast", {"X": np.zeros((0, 3))}, {"out_dtype": "int32"}).shape == (0, 3)


def test_in_dtype_that_is_not_so():
    with pytest.raises(PeError, match=r"cast: in_dtype is int32, and X is float64\[2\]"):
        run_op("cast", {"X": np.zeros(2)}, {"in_dtype": "int32", "out_dtype": "float32"})


def test_an_unknown_dtype():
    with pytest.raises(PeError, match="unknown dtype 'flaot32'") as error:
        run_op("cast", {"X": np.zeros(2)}, {"out_dtype": "flaot32"})
    assert "float32" in error.value.hint
