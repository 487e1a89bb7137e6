"""softmax and log_softmax against closed forms and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from pe_cli.core.errors import PeError
from tests.ops.support import run_gradient, run_op

LN2 = np.log(2)
BOTH = pytest.mark.parametrize("name", ["softmax", "log_softmax"])
REFERENCE = {"softmax": special.softmax, "log_softmax": special.log_softmax}


@pytest.mark.parametrize(
    ("x", "out"),
    [
        pytest.param([[0, 0]], [[0.5, 0.5]], id="equal logits share evenly"),
        pytest.param([[0, LN2]], [[1 / 3, 2 / 3]], id="ln 2 doubles the odds"),
        pytest.param([[1e4, 1e4 + LN2]], [[1 / 3, 2 / 3]], id="huge logits do not overflow"),
        pytest.param([[-1e4, -1e4 + LN2]], [[1 / 3, 2 / 3]], id="very negative logits do not underflow"),
        pytest.param([[0, -np.inf]], [[1, 0]], id="minus infinity is impossible"),
        pytest.param([[7]], [[1]], id="one class is certain"),
    ],
)
def test_values(x, out):
    np.testing.assert_allclose(run_op("softmax", {"X": np.array(x, np.float64)}), out, rtol=1e-12)
    with np.errstate(divide="ignore"):
        expected = np.log(np.array(out, np.float64))
    np.testing.assert_allclose(run_op("log_softmax", {"X": np.array(x, np.float64)}), expected, rtol=1e-11, atol=1e-15)


@BOTH
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_any_axis_agrees_with_scipy(name, axis, rng):
    x = rng.standard_normal((3, 5, 4)) * 5
    np.testing.assert_allclose(run_op(name, {"X": x}, {"axis": axis}), REFERENCE[name](x, axis), rtol=1e-12, atol=1e-14)


@BOTH
def test_a_long_float32_row_keeps_six_digits(name, rng):
    x = (rng.standard_normal((2, 50_003)) * 3).astype(np.float32)
    expected = REFERENCE[name](x.astype(np.float64), -1)
    np.testing.assert_allclose(run_op(name, {"X": x}), expected, rtol=2e-6)


@BOTH
@pytest.mark.parametrize("axis", [0, 1])
def test_nan_stays_in_its_row(name, axis):
    x = np.zeros((4, 5), np.float32)
    x[1, 2] = np.nan
    found = np.isnan(run_op(name, {"X": x}, {"axis": axis}))
    expected = np.zeros((4, 5), bool)
    expected[(slice(None), 2) if axis == 0 else 1] = True
    assert np.array_equal(found, expected)


@BOTH
def test_a_gradient_of_ones_is_stopped_by_probabilities_and_not_by_their_logarithms(name, rng):
    x = rng.standard_normal((3, 4))
    p = special.softmax(x, -1)
    expected = np.zeros((3, 4)) if name == "softmax" else 1 - 4 * p
    np.testing.assert_allclose(run_gradient(name, {"X": x})["X"], expected, atol=1e-14)


@BOTH
def test_wrong_axes_are_refused_with_their_values(name):
    with pytest.raises(PeError, match="axis 2"):
        run_op(name, {"X": np.ones((2, 3))}, {"axis": 2})
    with pytest.raises(PeError, match="at least one element"):
        run_op(name, {"X": np.ones((2, 0))})


@pytest.mark.parametrize("axis", [0, 1])
def test_finite_logits_keep_a_probability_whose_logarithm_is_finite(axis):
    x = np.array([[0, 100, -np.inf, 37], [0, -63, -65, 0]], np.float32)
    expected = special.softmax(np.array([[-64, 0, -np.inf, -63], [0, -63, -64, 0]]), 1)
    found = run_op("softmax", {"X": x if axis else x.T.copy()}, {"axis": axis})
    np.testing.assert_allclose(found if axis else found.T, expected, rtol=2e-6)
