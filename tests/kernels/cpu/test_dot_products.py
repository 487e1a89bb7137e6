from __future__ import annotations

import numpy as np
import pytest

from pe_cli.kernels.cpu.dot_products import MOST, dots
from pe_cli.kernels.cpu.microkernels import PAST
from pe_cli.kernels.language import Addr, Int, kernel

TYPES = ("float32", "float64")


@kernel
def products(
    rows: Int, columns: Int, x: Addr, xr: Int, w: Addr, wr: Int, parts: Int, xs: Int, ws: Int, depth: Int, y: Addr, yr: Int, yc: Int,
    acc: Int,
):  # fmt: skip
    dots(rows, columns, x, xr, w, wr, parts, xs, ws, depth, y, yr, yc, acc)


def addresses(acc, dtype):
    """Return what to give as acc, what has to live meanwhile, and the factors of the sum and of what was there."""
    factor = np.array([-0.25], dtype)
    return {"overwrites": (0, None, 1, 0), "overwrites, past": (PAST, None, 1, 0), "adds": (1, None, 1, 1)}.get(
        acc, (factor.ctypes.data, factor, -0.25, 1)
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("acc", ["overwrites", "overwrites, past", "adds", "adds a multiple"])
@pytest.mark.parametrize("columns", range(1, MOST + 1))
def test_every_row_count_and_depth_matches_numpy_and_touches_nothing_else(call, guarded, rng, dtype, acc, columns):
    given, held, times, before = addresses(acc, dtype)
    for rows in (0, 1, 2, 3, 4, 5, 7, 8, 9, 17):
        for depth in (0, 1, 3, 4, 8, 15, 16, 17, 40):
            x, w, y = (guarded(shape, dtype) for shape in ((rows, depth), (columns, depth), (rows, columns)))
            for array in (x, w, y):
                array[:] = rng.standard_normal(array.shape)
            expected = times * (x @ w.T) + before * y
            call(products, dtype, rows, columns, x, depth, w, depth, 1, 0, 0, depth, y, columns, 1, given)
            tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == "float32" else {"rtol": 1e-13, "atol": 1e-13}
            np.testing.assert_allclose(y, expected, **tolerance, err_msg=f"rows={rows} depth={depth}")
    assert held is None or held[0] == -0.25


def test_strides_are_those_given_and_gaps_stay(call, rng):
    x, w = rng.standard_normal((9, 50)).astype("f4"), rng.standard_normal((3, 60)).astype("f4")
    y = np.full((5, 20), 7, "f4")
    call(products, "float32", 9, 3, x, 50, w, 60, 1, 0, 0, 37, y, 2, 20, 0)
    np.testing.assert_allclose(y[:3, :18:2], (x[:, :37] @ w[:, :37].T).T, rtol=1e-5, atol=1e-5)
    assert (y[:3, 1::2] == 7).all()
    assert (y[3:] == 7).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("columns", range(1, MOST + 1))
@pytest.mark.parametrize("depth", [1, 16, 19])
@pytest.mark.parametrize("parts", [0, 1, 2, 5])
def test_parts_of_a_sum_have_strides_of_their_own(call, guarded, rng, dtype, columns, depth, parts):
    x, w, y = (guarded(shape, dtype) for shape in ((7, 5, 30), (columns, 6, 20), (7, columns)))
    for array in (x, w):
        array[:] = rng.standard_normal(array.shape)
    y[:] = np.nan
    call(products, dtype, 7, columns, x, 150, w, 120, parts, 30, 20, depth, y, columns, 1, 0)
    expected = np.einsum("rpk,jpk->rj", x[:, :parts, :depth], w[:, :parts, :depth])
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == "float32" else {"rtol": 1e-13, "atol": 1e-13}
    np.testing.assert_allclose(y, expected, **tolerance)


@pytest.mark.parametrize("columns", range(1, MOST + 1))
def test_a_row_has_the_same_bits_wherever_it_stands(call, rng, columns):
    x, w = rng.standard_normal((1, 333)).astype("f4").repeat(21, axis=0), rng.standard_normal((columns, 333)).astype("f4")
    y = np.empty((21, columns), "f4")
    call(products, "float32", 21, columns, x, 333, w, 333, 1, 0, 0, 333, y, columns, 1, 0)
    assert (y == y[0]).all()
