"""tan, sinh, cosh, erf and logarithms against NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.support import run_op


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["tan", "sinh", "cosh", "log1p", "log2", "log10"])
def test_values(name, dtype):
    x = np.concatenate([np.linspace(-6, 6, 97), [0, 1e-6, 8, 1000, 1e-30, np.inf, -np.inf, np.nan]]).astype(dtype)
    x = x[(np.abs(x) < 80) | ~np.isfinite(x)] if name in ("sinh", "cosh") else x
    with np.errstate(invalid="ignore", divide="ignore"):
        exact = getattr(np, name)(x.astype("float64"))
    np.testing.assert_allclose(run_op(name, {"X": x}), exact, rtol=2e-6 if dtype == "float32" else 1e-14)


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-6), ("float64", 1e-14)])
def test_erf(dtype, rtol):
    special = pytest.importorskip("scipy.special")
    x = np.concatenate([np.linspace(-7, 7, 113), [np.inf, -np.inf, np.nan]]).astype(dtype)
    np.testing.assert_allclose(run_op("erf", {"X": x}), special.erf(x.astype("float64")), rtol=rtol)


def test_logarithms_of_powers_are_whole():
    powers = np.arange(-10, 11)
    assert np.array_equal(run_op("log2", {"X": (2.0**powers).astype("float32")}), powers)
    np.testing.assert_allclose(run_op("log10", {"X": 10.0**powers}), powers, atol=1e-15)
