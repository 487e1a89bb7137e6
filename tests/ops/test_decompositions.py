"""Inverses and triangular roots of matrices, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.ops.define.registry import discover
from tests.needs import torch
from tests.ops.support import run_gradient, run_op

discover()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (7, 7), (2, 3, 20, 20)])
def test_inverse(shape, dtype, rng):
    x = rng.standard_normal(shape).astype(dtype) + 5 * np.eye(shape[-1], dtype=dtype)
    tolerance = 1e-4 if dtype == "float32" else 1e-11
    np.testing.assert_allclose(run_op("inverse", {"Input": x}), np.linalg.inv(x.astype("float64")), rtol=tolerance, atol=tolerance)


def test_inverse_changes_rows_for_a_pivot():
    x = np.array([[0.0, 1, 0], [0, 0, 2], [4, 0, 0]])
    assert run_op("inverse", {"Input": x}).tolist() == [[0, 0, 0.25], [1, 0, 0], [0, 0.5, 0]]


def test_a_singular_matrix_has_no_finite_inverse():
    assert not np.isfinite(run_op("inverse", {"Input": np.ones((2, 2))})).all()


@pytest.mark.parametrize("upper", [False, True], ids=["lower", "upper"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (7, 7), (2, 3, 20, 20)])
def test_cholesky(shape, dtype, upper, rng):
    half = rng.standard_normal(shape)
    x = (half @ half.swapaxes(-1, -2) + np.eye(shape[-1])).astype(dtype)
    exact = np.linalg.cholesky(x.astype("float64"))
    exact = exact.swapaxes(-1, -2) if upper else exact
    tolerance = 1e-4 if dtype == "float32" else 1e-11
    np.testing.assert_allclose(run_op("cholesky", {"X": x}, {"upper": upper}), exact, rtol=tolerance, atol=tolerance)


def test_cholesky_of_an_indefinite_matrix_is_nan():
    assert np.isnan(run_op("cholesky", {"X": np.array([[1.0, 2], [2, 1]])})).any()


@pytest.mark.parametrize("upper", [False, True], ids=["lower", "upper"])
def test_gradient_of_cholesky_is_pytorchs(upper, rng):
    half = rng.standard_normal((3, 6, 6))
    x = half @ half.swapaxes(-1, -2) + np.eye(6)
    exact = torch.tensor(x, requires_grad=True)
    root = torch.linalg.cholesky(exact, upper=upper)
    weight = rng.standard_normal(x.shape)
    (root * torch.tensor(weight)).sum().backward()
    found = run_gradient("cholesky", {"X": x}, {"upper": upper}, upstream=weight)
    np.testing.assert_allclose(found["X"], exact.grad.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("name", "slot"), [("inverse", "Input"), ("cholesky", "X")])
def test_matrices_are_square(name, slot):
    with pytest.raises(PeError, match="square matrices"):
        run_op(name, {slot: np.zeros((2, 3))})
    with pytest.raises(PeError, match="square matrices"):
        run_op(name, {slot: np.zeros(4)})
