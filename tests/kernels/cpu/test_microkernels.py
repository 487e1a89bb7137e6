from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pe_cli.kernels.compiler.target import halves_cost_half, vector_bytes
from pe_cli.kernels.cpu.microkernels import HALVES, HEIGHTS, IN_FLIGHT, WIDEST, block_units, panel, shares
from pe_cli.kernels.language import LANES, UNIT, Addr, Int, PtrI64, kernel
from tests.rotation import of_today

TYPES = ("float32", "float64")
#: Registers that panels are wide: halves where they have any.
WIDTHS = [*range(1, WIDEST + 1), *([h / 2 for h in HALVES] if halves_cost_half() else [])]


@kernel
def product(
    units: Int, rows: Int, columns: Int, x: Addr, w: Addr, y: Addr, n1: Int, xs1: Int, ws1: Int, n2: Int, xs2: Int,
    ws2: Int, depth: Int, xk: Int, wk: Int, xr: Int, yr: Int, acc: Int,
    ahead: Int,
):  # fmt: skip
    asked, pace = (w, wk) if ahead == 2 else (x, -xr)
    panel(units, rows, columns, x, w, y, n1, xs1, ws1, n2, xs2, ws2, depth, xk, wk, xr, yr, acc, asked if ahead > 1 else ahead, pace)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", WIDTHS, ids="{} registers".format)
@pytest.mark.parametrize(
    ("acc", "ahead"),
    [
        pytest.param(0, 2, id="overwrites, asking for a matrix"),
        pytest.param(0, 3, id="overwrites, asking for one transposed"),
        pytest.param(1, 0, id="adds"),
        pytest.param(1, 1, id="adds, asking ahead"),
    ],
)
def test_every_row_count_and_tail_matches_numpy_and_touches_nothing_else(call, guarded, rng, dtype, width, acc, ahead):
    unit = UNIT.value(dtype)
    units = round(width * LANES.value(dtype) / unit)
    assert units * unit == width * LANES.value(dtype)
    depth = 5
    for columns in {units * unit, units * unit - 1, (units - 1) * unit + 1}:
        for rows in (*range(30), 47, 48, 63, 64, 65, 100):
            x, w, y = (guarded(shape, dtype) for shape in ((rows, depth), (depth, columns), (rows, columns)))
            for a in (x, w, y):
                a[:] = rng.standard_normal(a.shape)
            expected = np.einsum("rk,kc->rc", x, w) + acc * y
            call(
                product,
                dtype,
                units,
                rows,
                columns,
                x,
                w,
                y,
                1,
                0,
                0,
                1,
                0,
                0,
                depth,
                1,
                columns,
                depth,
                columns,
                acc,
                ahead,
            )
            np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_sum_may_be_multiplied_before_it_is_added(call, rng, dtype):
    units = 2 * LANES.value(dtype) // UNIT.value(dtype)
    rows, columns, depth = 29, units * UNIT.value(dtype) - 1, 6
    x, w, y = (rng.standard_normal(shape).astype(dtype) for shape in ((rows, depth), (depth, columns), (rows, columns)))
    factor = np.array([-0.37], dtype)
    start = y.copy()
    call(
        product, dtype, units, rows, columns, x, w, y, 1, 0, 0, 1, 0, 0, depth, 1, columns, depth, columns, factor.ctypes.data, 0
    )
    np.testing.assert_allclose(y, start + factor * (x @ w), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
def test_two_outer_sums_walk_their_own_strides(call, rng, dtype):
    n1, n2, depth, rows, columns = 3, 2, 4, 7, 5
    x = rng.standard_normal((n1, n2, depth, rows)).astype(dtype)
    w = rng.standard_normal((n1, n2, depth, columns)).astype(dtype)
    y = np.full((rows, columns + 2), np.nan, dtype)
    xs1, xs2, xk, xr = (s // x.itemsize for s in x.strides)
    ws1, ws2, wk, _ = (s // w.itemsize for s in w.strides)
    units = -(-columns // UNIT.value(dtype))
    call(product, dtype, units, rows, columns, x, w, y, n1, xs1, ws1, n2, xs2, ws2, depth, xk, wk, xr, columns + 2, 0, 1)
    np.testing.assert_allclose(y[:, :columns], np.einsum("abkr,abkc->rc", x, w), rtol=1e-4, atol=1e-5)
    assert np.isnan(y[:, columns:]).all()


@pytest.mark.parametrize("counts", [(0, 1, 3), (1, 0, 3), (1, 1, 0)], ids=["no n1", "no n2", "no depth"])
@pytest.mark.parametrize(("acc", "left"), [pytest.param(0, 0, id="writes zeros"), pytest.param(1, 7, id="leaves y")])
def test_an_empty_sum(call, counts, acc, left):
    x, w, y = np.ones((5, 3), "f4"), np.ones((3, 2), "f4"), np.full((5, 2), 7, "f4")
    n1, n2, depth = counts
    call(product, "float32", 1, 5, 2, x, w, y, n1, 0, 0, n2, 0, 0, depth, 1, 2, 3, 2, acc, 1)
    assert (y == left).all()


#: Files of tests that hold for registers of any width.
SAME = ("microkernels", "dot_products", "gemm", "transpose", "conv")


def _others():
    found = []
    for width in (16, 32, 64):
        for halves in (False, True)[: 2 if width == 64 else 1]:
            if (width, halves) != (vector_bytes(), halves_cost_half()):
                named = f"registers of {width} bytes{' and halves' * halves}"
                found += [pytest.param(width, halves, f"test_{name}.py", id=f"{name}, {named}") for name in SAME]
    return found


@pytest.mark.skipif("PE_VECTOR_BYTES" in os.environ, reason="this is the run with a forced width")
@pytest.mark.parametrize(("width", "halves", "file"), of_today(_others(), 10))
def test_other_register_widths_pass_the_same_tests(width, halves, file):
    here = Path(__file__).parent
    # callers of the microkernels differ by elements per register alone: 4, 8 and 16 of float32, and the 2 of float64
    both = [] if width == 16 else ["-k", "not float64 or test_microkernels or test_dot_products or test_transpose"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *both, str(here / file)],
        cwd=here.parents[2], env={**os.environ, "PE_VECTOR_BYTES": str(width), "PE_VECTOR_HALVES": str(int(halves))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-3000:]


@pytest.mark.parametrize(
    ("key", "heights"), [pytest.param(k, h, id=f"{k[0]} registers, {k[1]} wide") for k, h in HEIGHTS.items()]
)
def test_blocks_share_all_rows_without_a_rest_that_idles(key, heights):
    _, vectors = key
    chosen = shares(heights, vectors)
    for rows in range(1, len(chosen)):
        left, blocks = rows, []
        while left:
            blocks.append(chosen[left])
            left -= chosen[left]
        assert set(blocks) <= set(heights)
        if rows * vectors >= 4 * IN_FLIGHT:  # enough for several blocks: they keep the units busy
            assert rows * vectors >= 0.85 * sum(max(IN_FLIGHT, b * vectors) for b in blocks)


@kernel
def next_panels(left: Int, out: PtrI64):
    number = 0
    while left > 0:
        out[number] = block_units(left)
        left -= out[number]
        number += 1


@pytest.mark.parametrize("units", range(1, 40))
def test_panels_take_all_columns_and_only_the_last_may_be_of_halves(call, units):
    whole = LANES.value("float32") // UNIT.value("float32")
    out = np.zeros(40, "i8")
    call(next_panels, "float32", units, out)
    taken = out[out != 0]
    assert taken.sum() == units
    assert taken.max() <= WIDEST * whole
    assert not (taken[:-1] % whole).any()
