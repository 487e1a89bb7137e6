from __future__ import annotations

import numpy as np
import pytest

from pe_cli.kernels.cpu.transpose import transpose, transpose_batch
from pe_cli.kernels.language import Addr, Int, kernel


@kernel
def flip(x: Addr, xr: Int, y: Addr, yr: Int, rows: Int, columns: Int):
    transpose(x, xr, y, yr, rows, columns)


@kernel
def flip_batch(x: Addr, y: Addr, batch: Int, rows: Int, columns: Int):
    transpose_batch(x, y, batch, rows, columns)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8"])
def test_every_shape_is_numpys_transpose(call, guarded, rng, dtype):
    for rows in (0, 1, 3, 4, 7, 8, 16, 33, 64, 70):
        for columns in (0, 1, 5, 8, 17, 64, 100):
            x, y = guarded((rows, columns), dtype), guarded((columns, rows), dtype)
            x[:] = rng.integers(0, 200, x.shape)
            call(flip, dtype, x, columns, y, rows, rows, columns)
            np.testing.assert_array_equal(y, x.T)


def test_strides_leave_the_gaps_alone(call, rng):
    x, y = rng.standard_normal((20, 30)).astype("f4"), np.full((25, 40), 7, "f4")
    call(flip, "float32", x, 30, y, 40, 20, 25)
    np.testing.assert_array_equal(y[:, :20], x[:, :25].T)
    assert (y[:, 20:] == 7).all()


@pytest.mark.parametrize("shape", [(2, 3, 35), (3, 64, 49), (0, 3, 4), (1, 1, 1)], ids=str)
def test_a_batch_becomes_nhwc(call, rng, shape):
    x = rng.standard_normal(shape).astype("f4")
    y = np.empty((shape[0], shape[2], shape[1]), "f4")
    call(flip_batch, "float32", x, y, *shape)
    np.testing.assert_array_equal(y, x.transpose(0, 2, 1))
