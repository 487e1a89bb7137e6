"""Triangles and inverse trigonometric functions against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid


@pytest.fixture
def run():
    def call(layer, x, **given):
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            v = fluid.data("x", [-1, *x.shape[1:]], dtype=x.dtype.name)
            return fluid.Executor(fluid.CPUPlace()).run(feed={"x": x}, fetch_list=[layer(v, **given)])[0]

    return call


@pytest.mark.parametrize("diagonal", [-2, -1, 0, 1, 4])
@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (2, 3, 3)], ids=["wide", "tall", "two matrices"])
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_triangles(run, diagonal, shape, dtype):
    x = np.arange(1, np.prod(shape) + 1).reshape(shape).astype(dtype)
    assert np.array_equal(run(fluid.layers.tril, x, diagonal=diagonal), np.tril(x, diagonal))
    assert np.array_equal(run(fluid.layers.triu, x, diagonal=diagonal), np.triu(x, diagonal))


@pytest.mark.parametrize("name", ["asin", "acos", "atan"])
def test_angles_and_nan_outside(run, name):
    x = np.array([[-2, -1, -0.5, 0, 0.5, 1, 2, np.nan]], "float32")
    with np.errstate(invalid="ignore"):
        expected = getattr(np, f"arc{name[1:]}")(x.astype("float64"))
    np.testing.assert_allclose(run(getattr(fluid.layers, name), x), expected, rtol=3e-7)
