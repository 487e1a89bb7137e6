from __future__ import annotations

import itertools

import numpy as np
import pytest

from pe_cli.kernels.cpu.gemm import gemm, gemm_scratch
from pe_cli.kernels.language import Addr, Int, kernel


@kernel
def multiply(
    ta: Int,
    tb: Int,
    m: Int,
    n: Int,
    k: Int,
    a: Addr,
    lda: Int,
    b: Addr,
    ldb: Int,
    acc: Int,
    c: Addr,
    ldc: Int,
    scratch: Addr,
):
    gemm(ta, tb, m, n, k, a, lda, b, ldb, acc, c, ldc, scratch)


def tolerance(dtype: str) -> dict[str, float]:
    return {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-12, "atol": 1e-12}


LAYOUTS = [
    pytest.param(0, 0, id="NN"),
    pytest.param(1, 0, id="TN"),
    pytest.param(0, 1, id="NT"),
    pytest.param(1, 1, id="TT"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("ta", "tb"), LAYOUTS)
def test_odd_shapes_match_numpy_and_stay_inside_their_buffers(call, guarded, rng, dtype, ta, tb):
    sizes = itertools.product((0, 1, 2, 5, 17, 300), (0, 1, 3, 10, 33, 300), (0, 1, 7, 40))
    large = [(4, 40, 1100), (1, 1, 1100), (40, 64, 600), (35, 500, 300), (300, 700, 300)]
    large += [(70, 17, 200), (200, 20, 1030), (9, 4, 150), (4, 9, 150), (230, 259, 600), (1, 19, 140)]  # columns that are done apart
    for (m, n, k), acc in itertools.product([*sizes, *large], (0, 1)):
        a = guarded((k, m) if ta else (m, k), dtype)
        b = guarded((n, k) if tb else (k, n), dtype)
        c = guarded((m, n), dtype)
        scratch = guarded((gemm_scratch(n, k),), dtype)
        for array in (a, b, c):
            array[:] = rng.standard_normal(array.shape)
        scratch[:] = np.nan
        expected = (a.T if ta else a) @ (b.T if tb else b) + acc * c
        call(multiply, dtype, ta, tb, m, n, k, a, a.shape[1], b, b.shape[1], acc, c, n, scratch)
        np.testing.assert_allclose(c, expected, **tolerance(dtype), err_msg=f"m={m} n={n} k={k} acc={acc}")


@pytest.mark.parametrize(("ta", "tb"), LAYOUTS)
@pytest.mark.parametrize("n", [1, 2, 21])
def test_strides_larger_than_the_rows_leave_the_gaps_alone(call, rng, ta, tb, n):
    m, k, gap = 9, 6, 4
    a = rng.standard_normal((k, m + gap) if ta else (m, k + gap)).astype("f4")
    b = rng.standard_normal((n, k + gap) if tb else (k, n + gap)).astype("f4")
    c = np.full((m, n + gap), 7, "f4")
    scratch = np.zeros(gemm_scratch(n, k), "f4")
    call(multiply, "float32", ta, tb, m, n, k, a, a.shape[1], b, b.shape[1], 0, c, n + gap, scratch)
    left = a[:, :m].T if ta else a[:, :k]
    right = b[:, :k].T if tb else b[:, :n]
    np.testing.assert_allclose(c[:, :n], left @ right, rtol=1e-4, atol=1e-5)
    assert (c[:, n:] == 7).all()


def test_nan_in_a_reaches_its_row_only(call):
    a, b, c = np.ones((3, 4), "f4"), np.ones((4, 20), "f4"), np.zeros((3, 20), "f4")
    a[1, 2] = np.nan
    call(multiply, "float32", 0, 0, 3, 20, 4, a, 4, b, 20, 0, c, 20, np.zeros(gemm_scratch(20, 4), "f4"))
    assert np.isnan(c[1]).all()
    assert (c[[0, 2]] == 4).all()


def test_scratch_of_a_shape_is_enough_for_smaller_ones():
    sizes = [1, 4, 15, 16, 17, 20, 31, 32, 100, 500, 512, 513, 2000]
    for n, k in itertools.product(sizes, sizes):
        assert all(gemm_scratch(a, b) <= gemm_scratch(n, k) for a, b in itertools.product(sizes, sizes) if a <= n and b <= k)


@pytest.mark.parametrize(("ta", "tb"), LAYOUTS)
@pytest.mark.parametrize("n", [20, 48, 50, 257])
def test_a_multiple_of_the_product_is_added_and_rows_are_the_same_in_any_cut(call, rng, ta, tb, n):
    m, k = 410, 150
    a = rng.standard_normal((k, m) if ta else (m, k)).astype("f4")
    b = rng.standard_normal((n, k) if tb else (k, n)).astype("f4")
    before = rng.standard_normal((m, n)).astype("f4")
    factor, scratch = np.array([-0.125], "f4"), np.empty(gemm_scratch(n, k), "f4")
    found = []
    for cut in (m, 200):
        c = before.copy()
        for first in range(0, m, cut):
            rows = min(cut, m - first)
            part = a.ctypes.data + 4 * first * (1 if ta else k)
            into = c.ctypes.data + 4 * first * n
            call(multiply, "float32", ta, tb, rows, n, k, part, a.shape[1], b, b.shape[1], factor.ctypes.data, into, n, scratch)
        found.append(c)
    expected = before - 0.125 * (a.T if ta else a).astype("f8") @ (b.T if tb else b)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize(("ta", "tb"), [(0, 0), (1, 0), (0, 1), (1, 1)], ids=["NN", "TN", "NT", "TT"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("m", "n", "k"), [(401, 530, 1030), (417, 1401, 50), (405, 403, 513)])
def test_a_large_product_that_is_blocked_in_every_direction(call, rng, dtype, ta, tb, m, n, k):
    a, b = rng.standard_normal((k, m) if ta else (m, k)).astype(dtype), rng.standard_normal((n, k) if tb else (k, n)).astype(dtype)
    room = gemm_scratch(n, k)
    c, scratch = np.empty((m, n), dtype), np.full(room + 64, -3, dtype)
    call(multiply, dtype, ta, tb, m, n, k, a, a.shape[1], b, b.shape[1], 0, c, n, scratch)
    expected = (a.T if ta else a).astype("f8") @ (b.T if tb else b).astype("f8")
    np.testing.assert_allclose(c, expected, rtol=1e-3, atol=2e-4)
    assert (scratch[room:] == -3).all(), "it keeps to its scratch"
