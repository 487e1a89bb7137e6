from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

from pe_cli.kernels.language import Helper, Int, Kernel, Ptr, make_kernel
from pe_cli.kernels.math import vector_math
from tests.rotation import on_its_day

SMALLEST_NORMAL = 2.0**-126


def loop(name: str) -> Kernel:
    function: Helper = getattr(vector_math, name)

    def apply(x: Ptr, y: Ptr, n: Int):
        for i in range(n):
            y[i] = function(x[i])

    return make_kernel(apply, f"{__name__}:{name}")


REFERENCES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "exp": (np.exp, 2),
    "expm1": (np.expm1, 3),
    "log": (np.log, 2),
    "log1p": (np.log1p, 3),
    "tanh": (np.tanh, 3),
    "sigmoid": (special.expit, 3),
    "erf": (special.erf, 2),
    "softplus": (lambda x: np.logaddexp(0, x), 3),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2),
}
KERNELS = {name: loop(name) for name in REFERENCES}
SPECIAL = [0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754942e-38, 3.4e38, -3.4e38, 1, -1, 88.72, 88.73, -87.33, -87.34, -103.9]


def points() -> np.ndarray:
    """Return float32 from all over: every 997th bit pattern, and dense where the functions live."""
    every = np.arange(0, 2**32, 997, dtype=np.uint64).astype(np.uint32).view(np.float32)
    dense = [np.linspace(-r, r, 400_001).astype(np.float32) for r in (1, 10, 110)]
    return np.concatenate([every, *dense, np.array(SPECIAL, np.float32)])


@on_its_day(2, of=3)
@pytest.mark.parametrize("name", REFERENCES)
def test_float32_accuracy_over_the_whole_range(call, name):
    reference, bound = REFERENCES[name]
    x = points()
    y = np.empty_like(x)
    call(KERNELS[name], "float32", x, y, x.size)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
        rounded = exact.astype(np.float32)
    special_ = ~np.isfinite(rounded)
    np.testing.assert_array_equal(y[special_], rounded[special_])
    normal = ~special_ & (abs(exact) >= SMALLEST_NORMAL)
    error = abs(y[normal].astype(np.float64) - exact[normal]) / np.spacing(abs(rounded[normal])).astype(np.float64)
    worst = int(error.argmax())
    assert error[worst] <= bound, f"{error[worst]:.2f} ulp at {x[normal][worst]!r}"
    below = ~special_ & ~normal
    assert (abs(y[below].astype(np.float64) - exact[below]) <= SMALLEST_NORMAL).all()


@pytest.mark.parametrize("name", REFERENCES)
def test_float64_agrees_with_numpy(call, name):
    reference, _ = REFERENCES[name]
    x = np.concatenate([np.linspace(-700, 700, 100_001), np.linspace(-2, 2, 100_001), np.array(SPECIAL, np.float64)])
    y = np.empty_like(x)
    call(KERNELS[name], "float64", x, y, x.size)
    with np.errstate(all="ignore"):
        expected = reference(x)
    np.testing.assert_allclose(y, expected, rtol=1e-15 * 8, atol=0)


@pytest.mark.parametrize(("name", "x", "y"), [
    pytest.param("exp", -np.inf, 0.0, id="exp(-inf) is 0"),
    pytest.param("exp", 1e9, np.inf, id="exp of something large is inf"),
    pytest.param("log", 0.0, -np.inf, id="log(0) is -inf"),
    pytest.param("log", -1.0, np.nan, id="log of something negative is nan"),
    pytest.param("log1p", -1.0, -np.inf, id="log1p(-1) is -inf"),
    pytest.param("expm1", -np.inf, -1.0, id="expm1(-inf) is -1"),
    pytest.param("tanh", -np.inf, -1.0, id="tanh(-inf) is -1"),
    pytest.param("sigmoid", -np.inf, 0.0, id="sigmoid(-inf) is 0"),
    pytest.param("softplus", -np.inf, 0.0, id="softplus(-inf) is 0"),
    pytest.param("rsqrt", np.inf, 0.0, id="rsqrt(inf) is 0"),
    pytest.param("rsqrt", 0.0, np.inf, id="rsqrt(0) is inf"),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_limits(call, name, x, y, dtype):
    given, found = np.full(40, x, dtype), np.zeros(40, dtype)
    call(KERNELS[name], dtype, given, found, 40)
    np.testing.assert_array_equal(found, np.full(40, y, dtype))


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_stays_nan(call, name, dtype):
    x, y = np.full(40, np.nan, dtype), np.zeros(40, dtype)
    call(KERNELS[name], dtype, x, y, 40)
    assert np.isnan(y).all()
