"""Products of bfloat16 by tiles, or by multiply-adds that round as these do: every shape and layout, and the bits of the instructions."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pe_cli.kernels.compiler.target import PAIRS, UNITS, bfloat16_unit
from pe_cli.kernels.cpu.matrix_tiles import gemm_tiles, tiles_scratch
from pe_cli.kernels.cpu.tile_code import MOST_TERMS
from pe_cli.kernels.language import Addr, Int, kernel

Array = np.ndarray[Any, Any]
LAYOUTS = [pytest.param(0, 0, id="NN"), pytest.param(1, 0, id="TN"), pytest.param(0, 1, id="NT"), pytest.param(1, 1, id="TT")]


@kernel
def multiply(
    ta: Int, tb: Int, m: Int, n: Int, k: Int, a: Addr, lda: Int, b: Addr, ldb: Int, acc: Int, c: Addr, ldc: Int, scratch: Addr,
    bias: Addr, cut: Int,
):  # fmt: skip
    gemm_tiles(ta, tb, m, n, k, a, lda, b, ldb, acc, c, ldc, scratch, bias, cut)


def narrow(numbers: Array, into: Array) -> Array:
    """Write the bits of numbers, rounded to bfloat16, into an array of 16 bits; return what they stand for."""
    into[:] = numbers.astype(ml_dtypes.bfloat16).view(np.uint16)
    return into.view(ml_dtypes.bfloat16).astype("float64")


@pytest.mark.parametrize(("ta", "tb"), LAYOUTS)
def test_every_shape_is_right_and_stays_inside_its_buffers(call, guarded, rng, ta, tb):
    sizes = [*itertools.product((0, 1, 5, 17, 33), (0, 1, 16, 35, 70), (0, 1, 2, 31, 64, 77)), (40, 600, 530), (70, 33, 1100)]
    for (m, n, k), acc in itertools.product(sizes, (0, 1)):
        a, b = guarded((k, m) if ta else (m, k), "uint16"), guarded((n, k) if tb else (k, n), "uint16")
        c, scratch = guarded((m, n), "float32"), guarded((tiles_scratch(n, k),), "float32")
        left, right = (narrow(rng.standard_normal(x.shape), x) for x in (a, b))
        c[:], scratch[:] = rng.standard_normal(c.shape), np.nan
        wanted = (left.T if ta else left) @ (right.T if tb else right) + acc * c
        call(multiply, "float32", ta, tb, m, n, k, a, a.shape[1], b, b.shape[1], acc, c, n, scratch, 0, 0)
        np.testing.assert_allclose(c, wanted, rtol=1e-4, atol=1e-4, err_msg=f"m={m} n={n} k={k} acc={acc}")


@pytest.mark.parametrize(("ta", "tb"), LAYOUTS)
@pytest.mark.parametrize("k", [300, 700])
def test_a_part_of_c_has_the_bits_that_it_has_in_the_whole(call, rng, ta, tb, k):
    """As parts of a product go to threads; with a factor, a bias and what is below 0 cut off."""
    m, n = 70, 90
    a, b = np.empty((k, m) if ta else (m, k), np.uint16), np.empty((n, k) if tb else (k, n), np.uint16)
    narrow(rng.standard_normal(a.shape), a)
    narrow(rng.standard_normal(b.shape), b)
    before, bias, factor = (rng.standard_normal(shape).astype("float32") for shape in ((m, n), (n,), (1,)))
    scratch = np.empty(tiles_scratch(n, k), np.float32)
    found = []
    for high, wide in ((m, n), (23, 40)):
        c = before.copy()
        for i, j in itertools.product(range(0, m, high), range(0, n, wide)):
            rows, columns = min(high, m - i), min(wide, n - j)
            at_a = a.ctypes.data + 2 * i * (1 if ta else k)
            at_b = b.ctypes.data + 2 * j * (k if tb else 1)
            call(
                multiply, "float32", ta, tb, rows, columns, k, at_a, a.shape[1], at_b, b.shape[1], factor.ctypes.data,
                c.ctypes.data + 4 * (i * n + j), n, scratch, bias.ctypes.data + 4 * j, 1,
            )  # fmt: skip
        found.append(c)
    left, right = (x.view(ml_dtypes.bfloat16).astype("f8") for x in (a, b))
    wanted = np.maximum(before + factor.astype("f8") * ((left.T if ta else left) @ (right.T if tb else right)) + bias, 0)
    np.testing.assert_array_equal(found[0], found[1])
    if k <= 512:  # what is added in several parts takes the factor once: callers add such sums up themselves
        np.testing.assert_allclose(found[0], wanted, rtol=1e-3, atol=1e-3)


def rounded_by_tiles(left: Array, right: Array) -> Array:
    """Sums as Intel documents them for AMX: of each 32 terms the even ones and the odd ones are added up apart, then both to the sum."""
    total = np.zeros((len(left), right.shape[1]), np.float32)
    for first in range(0, len(right), MOST_TERMS):
        sums = [np.zeros_like(total) for _ in range(2)]
        for term in range(first, first + MOST_TERMS):
            product = left[:, term, None] * right[None, term]  # exact in float64, and so is the sum but for one rounding of 53 bits
            sums[term % 2] = (sums[term % 2] + product).astype(np.float32)
        total += sums[0] + sums[1]
    return total


def rounded_by_pairs(left: Array, right: Array) -> Array:
    """Sums as they are documented for AVX512-BF16: of each pair the second product is added, then the first one."""
    total = np.zeros((len(left), right.shape[1]), np.float32)
    for first in range(0, len(right), 2):
        for term in (first + 1, first):
            total = (total + left[:, term, None] * right[None, term]).astype(np.float32)
    return total


def test_sums_are_rounded_as_is_documented(call, rng):
    m, n, k = 40, 35, 4 * MOST_TERMS
    a, b = np.empty((m, k), np.uint16), np.empty((k, n), np.uint16)
    left, right = narrow(rng.standard_normal((m, k)), a), narrow(rng.standard_normal((k, n)), b)
    c, scratch = np.empty((m, n), np.float32), np.empty(tiles_scratch(n, k), np.float32)
    call(multiply, "float32", 0, 0, m, n, k, a, k, b, n, 0, c, n, scratch, 0, 0)
    rounded = rounded_by_pairs if bfloat16_unit() == PAIRS else rounded_by_tiles
    np.testing.assert_array_equal(c, rounded(left, right))


OTHERS = [(unit, False) for unit in UNITS if unit != bfloat16_unit()] + [(unit, True) for unit in UNITS if bfloat16_unit() == unit]


@pytest.mark.parametrize(("unit", "portable"), OTHERS)
def test_other_units_pass_the_same_tests(unit, portable):
    """Those that this processor lacks, and the one that it has without its instructions: by multiply-adds, which round the same way."""
    here = Path(__file__)
    # A process has one unit; in the other one this test would start itself.
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "not other_units", str(here)],
        cwd=here.parents[3], env={**os.environ, "PE_BFLOAT16_UNIT": unit, **({"PE_VECTOR_TARGET": "portable"} if portable else {})},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-3000:]
