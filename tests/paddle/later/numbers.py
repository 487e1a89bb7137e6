"""Functions of single numbers and of numbers in a row."""

from __future__ import annotations

import numpy as np

from tests.paddle.later import Case, f, i

X, Y = f(3, 4), f(3, 4, seed=1)
GAPS = np.where(f(3, 4, seed=7) > 0.5, np.float32(np.nan), X)
WILD = np.array([[1.0, np.nan, np.inf], [-np.inf, 0.0, 2.0]], "float32")
P, ABOVE = f(3, 4, low=-0.9, high=0.9), f(3, 4, low=0.3, high=9.0)
N, M = i(3, 4, low=-9, high=30), i(3, 4, seed=1, low=1, high=12)
TIES = np.array([[1, 3, 3, 2, 5, 5], [4, 4, 0, 4, 1, 0]], "float32")
BITS = f(3, 4) > 0

CASES = {
    "fmax": Case(lambda p, x, y: p.fmax(x, y), {"x": X, "y": Y}),
    "fmin of a row": Case(lambda p, x, y: p.fmin(x, y), {"x": X, "y": f(4, seed=1)}),
    "fmax of NaN": Case(lambda p, x, y: p.fmax(x, y), {"x": GAPS, "y": Y}),
    "fmin of whole numbers": Case(lambda p, x, y: p.fmin(x, y), {"x": N, "y": M}),
    "remainder": Case(lambda p, x, y: p.remainder(x, y), {"x": X, "y": f(3, 4, low=0.3, high=0.9)}),
    "remainder of whole numbers": Case(lambda p, x, y: p.remainder(x, y), {"x": N, "y": M}),
    "floor_mod": Case(lambda p, x, y: p.floor_mod(x, y), {"x": N, "y": -M}),
    "nan_to_num": Case(lambda p, x: p.nan_to_num(x), {"x": WILD}, slopes=False),
    "nan_to_num of others": Case(lambda p, x: p.nan_to_num(x, 7.0, 8.0, -9.0), {"x": WILD}),
    "heaviside": Case(lambda p, x, y: p.heaviside(x, y), {"x": np.sign(X) * (np.abs(X) > 1), "y": Y}),
    "sgn": Case(lambda p, x: p.sgn(x), {"x": X}),
    "ldexp": Case(lambda p, x, y: p.ldexp(x, y), {"x": X, "y": i(3, 4, low=-3, high=4)}),
    "frexp": Case(lambda p, x: p.frexp(x), {"x": 9 * X}, slopes=False),
    "gcd": Case(lambda p, x, y: p.gcd(x, y), {"x": N, "y": M}),
    "lcm": Case(lambda p, x, y: p.lcm(x, y), {"x": N, "y": M}),
    "logspace": Case(lambda p: p.logspace(-1.0, 2.0, 5), {}),
    "logspace of 2": Case(lambda p: p.logspace(0, 4, 3, 2.0, "float64"), {}),
    "bitwise_and": Case(lambda p, x, y: p.bitwise_and(x, y), {"x": N, "y": M}),
    "bitwise_or of truth": Case(lambda p, x, y: p.bitwise_or(x, y), {"x": BITS, "y": f(3, 4, seed=1) > 0}),
    "bitwise_xor of a row": Case(lambda p, x, y: p.bitwise_xor(x, y), {"x": N, "y": i(4)}),
    "bitwise_not": Case(lambda p, x: p.bitwise_not(x), {"x": N}),
    "bitwise_not of truth": Case(lambda p, x: p.bitwise_not(x), {"x": BITS}),
    "lgamma": Case(lambda p, x: p.lgamma(x), {"x": np.concatenate([ABOVE, 2.3 * X])}, near=1e-5),
    "digamma": Case(lambda p, x: p.digamma(x), {"x": ABOVE}, near=1e-5),
    "polygamma": Case(lambda p, x: p.polygamma(x, 2), {"x": ABOVE}, near=1e-5),
    "polygamma of order 0": Case(lambda p, x: p.polygamma(x, 0), {"x": ABOVE}, near=1e-5),
    "multigammaln": Case(lambda p, x: p.multigammaln(x, 3), {"x": ABOVE + 1}, near=1e-5),
    "erfinv": Case(lambda p, x: p.erfinv(x), {"x": P}, near=1e-5),
    "i0": Case(lambda p, x: p.i0(x), {"x": 4 * X}, near=1e-5),
    "i0e": Case(lambda p, x: p.i0e(x), {"x": 9 * X}, near=1e-5),
    "i1": Case(lambda p, x: p.i1(x), {"x": 4 * X}, near=1e-5),
    "i1e": Case(lambda p, x: p.i1e(x), {"x": 9 * X}, near=1e-5),
    "cumprod": Case(lambda p, x: p.cumprod(x, 1), {"x": X}),
    "cumprod of all": Case(lambda p, x: p.cumprod(x, dim=0, dtype="float64"), {"x": f(5)}),
    "cummax": Case(lambda p, x: p.cummax(x, 1), {"x": TIES}),
    "cummin": Case(lambda p, x: p.cummin(x, axis=0, dtype="int32"), {"x": TIES}),
    "cummax of all": Case(lambda p, x: p.cummax(x), {"x": X}),
    "logcumsumexp": Case(lambda p, x: p.logcumsumexp(x, 0), {"x": 9 * X}, near=1e-5),
    "logcumsumexp of all": Case(lambda p, x: p.logcumsumexp(x), {"x": X}, near=1e-5),
    # 2.6.2 gives each row the gradient of the first one where the axis is not the first, as that of its `gather` is wrong there.
    "trapezoid": Case(lambda p, y: p.trapezoid(y), {"y": X}, slopes=False),
    "trapezoid over places": Case(lambda p, y, x: p.trapezoid(y, x), {"y": X, "x": f(4, seed=1)}, slopes=False),
    "trapezoid over places of a column": Case(lambda p, y, x: p.trapezoid(y, x, axis=0), {"y": X, "x": f(3, seed=1)}),
    "trapezoid along the first axis": Case(lambda p, y: p.trapezoid(y, dx=0.5, axis=0), {"y": X}),
    "cumulative_trapezoid": Case(lambda p, y, x: p.cumulative_trapezoid(y, x, axis=1), {"y": X, "x": Y}, slopes=False),
    "cumulative_trapezoid along the first axis": Case(lambda p, y, x: p.cumulative_trapezoid(y, x, axis=0), {"y": X, "x": Y}),
    "renorm": Case(lambda p, x: p.renorm(x, 2.0, 0, 1.5), {"x": X}, near=1e-5),
    "renorm of cubes": Case(lambda p, x: p.renorm(x, 3.0, -1, 1.0), {"x": X}, near=1e-5),
    "cdist": Case(lambda p, x, y: p.cdist(x, y), {"x": f(2, 3, 4), "y": f(2, 5, 4, seed=1)}, near=1e-5),
    "cdist of sums": Case(lambda p, x, y: p.cdist(x, y, 1.0), {"x": X, "y": f(2, 4, seed=1)}),
    "cdist of the largest": Case(lambda p, x, y: p.cdist(x, y, float("inf")), {"x": X, "y": f(2, 4, seed=1)}),
    "cdist of many rows": Case(lambda p, x, y: p.cdist(x, y), {"x": f(30, 4), "y": f(2, 4, seed=1)}, near=1e-4),
    "quantile": Case(lambda p, x: p.quantile(x, 0.3, 1), {"x": X}),
    "quantile of all": Case(lambda p, x: p.quantile(x, [0.0, 0.5, 0.9]), {"x": X}),
    "quantile along axes": Case(lambda p, x: p.quantile(x, 0.6, [0, 2], True), {"x": f(2, 3, 4)}),
    "quantile of NaN": Case(lambda p, x: p.quantile(x, 0.5, 1), {"x": GAPS}, slopes=False),
    "nanquantile": Case(lambda p, x: p.nanquantile(x, [0.25, 0.75], 1), {"x": GAPS}, slopes=False),
    "nanmedian": Case(lambda p, x: p.nanmedian(x, 1), {"x": GAPS}, slopes=False),
    "nanmedian of whole rows": Case(lambda p, x: p.nanmedian(x, 0, True), {"x": X}),
}
