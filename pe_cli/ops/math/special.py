"""Functions of mathematics that are no elementary ones: lgamma, polygamma, erfinv, and Bessel's functions I_0 and I_1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType, check_kind
from pe_cli.kernels.language import Int, Ptr, T, helper, kernel
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op

#: From here on the series of Stirling and Euler have all digits of float64.
FAR = 12.0
HALF_LN_TWO_PI = 0.5 * math.log(2 * math.pi)


@helper
def log_gamma(x):
    """Return ln |gamma(x)|, in float64."""
    v, factor, below = 1.0 * x, 0.0, 0.0
    if v <= 0.0 and v == math.floor(v):
        return math.inf
    if v < 0.5:
        # gamma(v) gamma(1 - v) = pi / sin(pi v)
        below = math.log(math.pi / abs(math.sin(math.pi * (v - 2.0 * math.floor(0.5 * v)))))
        v = 1.0 - v
    product = 1.0
    while v < FAR:
        product *= v
        v += 1.0
    factor = math.log(product)
    r = 1.0 / (v * v)
    series = (1 / 12 - r * (1 / 360 - r * (1 / 1260 - r * (1 / 1680 - r * (1 / 1188 - r * (691 / 360360)))))) / v
    total = (v - 0.5) * math.log(v) - v + HALF_LN_TWO_PI + series - factor
    return below - total if below != 0.0 else total


@helper
def digamma(x):
    """Return the slope of ln gamma, in float64; NaN at 0 and whole numbers below."""
    v, more = 1.0 * x, 0.0
    if v <= 0.0 and v == math.floor(v):
        return math.nan
    if v < 0.5:
        more = -math.pi / math.tan(math.pi * (v - math.floor(v)))
        v = 1.0 - v
    while v < FAR:
        more -= 1.0 / v
        v += 1.0
    r = 1.0 / (v * v)
    series = r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132 - r * (691 / 32760))))))
    return more + math.log(v) - 0.5 / v - series


@helper
def zeta(s, x):
    """Return the sum of (x + k)^-s over k from 0 on, in float64, for s above 1 and x above 0."""
    v, total = 1.0 * x, 0.0
    while v < FAR:
        total += math.pow(v, -s)
        v += 1.0
    power = math.pow(v, -s)
    total += power * v / (s - 1.0) + 0.5 * power
    # Euler and Maclaurin: B_2k / (2k)! times the derivatives of odd orders.
    rising, r = s * power / v, 1.0 / (v * v)
    total += rising / 12.0
    rising *= (s + 1.0) * (s + 2.0) * r
    total -= rising / 720.0
    rising *= (s + 3.0) * (s + 4.0) * r
    total += rising / 30240.0
    rising *= (s + 5.0) * (s + 6.0) * r
    total -= rising / 1209600.0
    rising *= (s + 7.0) * (s + 8.0) * r
    return total + rising / 47900160.0


@helper
def polygamma_of(n, x):
    """Return the derivative of order n of digamma, in float64."""
    if n == 0:
        return digamma(x)
    if x <= 0.0:
        return math.inf if x == math.floor(x) else math.nan
    factor = 1.0 if n % 2 == 1 else -1.0
    for k in range(1, n + 1):
        factor *= k
    return factor * zeta(1.0 * n + 1.0, x)


@helper
def inverse_erf(y):
    """Return x with erf x = y, in float64: a first guess, then steps of Halley."""
    v = 1.0 * y
    size = abs(v)
    if size > 1.0 or v != v:
        return math.nan
    if size == 1.0:
        return math.inf if v > 0.0 else -math.inf
    if size == 0.0:
        return v
    # Winitzki 2008.
    outer = math.log1p(-v * v)
    half = 4.330746750799873 + 0.5 * outer
    guess = math.sqrt(math.sqrt(half * half - outer / 0.147) - half)
    for _ in range(3):
        off = -(math.erfc(guess) - (1.0 - size)) if size > 0.5 else math.erf(guess) - size
        step = off / (1.1283791670955126 * math.exp(-guess * guess))
        guess -= step / (1.0 + guess * step)
    return guess if v > 0.0 else -guess


@helper
def bessel(order, scaled, x):
    """Return I_0 or I_1 of x, in float64; scaled times exp -|x|."""
    v = 1.0 * x
    size = abs(v)
    if size < 30.0:
        quarter, term, total = 0.25 * size * size, 1.0, 1.0
        k = 1.0
        # Terms grow up to k = |x| / 2 and fall behind it.
        while k < 110.0:
            term *= quarter / (k * (k + order))
            total += term
            k += 1.0
        found = total * (0.5 * size if order == 1 else 1.0)
        found *= math.exp(-size) if scaled else 1.0
    else:
        term, total, k = 1.0, 1.0, 1.0
        while k < 18.0:
            odd = 2.0 * k - 1.0
            term *= -(4.0 * order * order - odd * odd) / (8.0 * k * size)
            total += term
            k += 1.0
        found = total / math.sqrt(2.0 * math.pi * size)
        found *= 1.0 if scaled else math.exp(size)
    return -found if v < 0.0 and order == 1 else found


@helper
def value_of(kind, order, x):
    """Return one of the functions: 0 lgamma, 1 polygamma, 2 erfinv, 3 Bessel's, 4 those times exp -|x|."""
    if kind == 0:
        return log_gamma(x)
    if kind == 1:
        return polygamma_of(order, x)
    if kind == 2:
        return inverse_erf(x)
    return bessel(order, kind == 4, x)


@helper
def slope_of(kind, order, x):
    """Return the slope of one of the functions."""
    if kind == 0:
        return digamma(x)
    if kind == 1:
        return polygamma_of(order + 1, x)
    if kind == 2:
        root = inverse_erf(x)
        return 0.8862269254527580 * math.exp(root * root)
    v = 1.0 * x
    other = bessel(1 - order, kind == 4, x)
    # I_0' = I_1, and I_1' = I_0 - I_1 / x.
    slope = other
    if order == 1:
        slope = 0.5 if v == 0.0 else other - bessel(1, kind == 4, x) / v
    if kind == 4:
        sign = 1.0 if v > 0.0 else (-1.0 if v < 0.0 else 0.0)
        slope -= sign * bessel(order, True, x)
    return slope


@kernel
def special_values(x: Ptr, out: Ptr, n: Int, kind: Int, order: Int):
    """out = the function of each element; out may be x."""
    for i in range(n):
        out[i] = T(value_of(kind, order, x[i]))


@kernel
def special_slopes(x: Ptr, g: Ptr, out: Ptr, n: Int, kind: Int, order: Int):
    """out = g times the slope at each element."""
    for i in range(n):
        out[i] = T(g[i] * slope_of(kind, order, x[i]))


def _above(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.uniform(0.3, 20.0, shape)


def _inside(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.uniform(-0.95, 0.95, shape)


def _around(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.uniform(0.2, 40.0, shape) * rng.choice([-1.0, 1.0], shape) if shape else rng.normal()


def _samples(make: Any, **attrs: Any) -> list[Sample]:
    found = [Sample({"X": lambda rng, s=s: make(rng, s)}, name=name) for name, s in (("a matrix", (3, 4)), ("empty batch", (0, 3)))]
    more = [Sample({"X": lambda rng: make(rng, (5,))}, attrs, "other attributes")] if attrs else []
    return [*found, *more]


def _lowered(definition: Any, kind: Any) -> None:
    """Give an op its kernels; kind tells the function and its order from attributes."""

    def forward(o: Lowering) -> None:
        x, out = o.input("X"), o.output("Out")
        if out.size:
            o.call(special_values, x, out, out.size, *kind(o.attrs))

    def backward(o: Lowering) -> None:
        dx = o.output("X@GRAD")
        if dx.size:
            o.call(special_slopes, o.input("X"), o.input("Out@GRAD"), dx, dx.size, *kind(o.attrs))

    definition.lower("cpu")(forward)
    definition.grad(uses="X").lower("cpu")(backward)


@op("lgamma", inputs="X", samples=_samples(_above))
def lgamma(x: TensorType) -> TensorType:
    """Take the logarithm of the size of the gamma function.

    Out = ln |gamma(X)|, infinite at 0 and whole numbers below

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Raises:
        PeError: X has no floats.

    Source:
        paddle.lgamma; Stirling's series.
    """
    check_kind("lgamma", x, FLOATS)
    return x


@op("polygamma", inputs="X", attrs={"n": Attr(0, "order of the derivative, at least 0")}, samples=_samples(_above, n=2))
def polygamma(x: TensorType, *, n: int) -> TensorType:
    """Take a derivative of the logarithm of the gamma function: the one of order n + 1.

    Out = psi^(n)(X), for n = 0 digamma

    Args:
        X: any shape, float32 or float64; above 0 for n above 0.

    Returns:
        Out: type of X.

    Raises:
        PeError: X has no floats, or n is negative.

    Source:
        paddle.digamma and paddle.polygamma; the series of Euler and Maclaurin.
    """
    check_kind("polygamma", x, FLOATS)
    if n < 0:
        raise PeError(f"polygamma: n is {n}", hint="a whole number, at least 0")
    return x


@op("erfinv", inputs="X", samples=_samples(_inside))
def erfinv(x: TensorType) -> TensorType:
    """Take the inverse of the error function.

    erf Out = X; infinite at -1 and 1, NaN outside

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Raises:
        PeError: X has no floats.

    Source:
        paddle.erfinv; Winitzki 2008 for the first guess of Halley's method.
    """
    check_kind("erfinv", x, FLOATS)
    return x


@op(
    "bessel_i",
    inputs="X",
    attrs={"order": Attr(0, "0 or 1"), "scaled": Attr(False, "times exp -|X|")},
    samples=_samples(_around, order=1, scaled=True),
)
def bessel_i(x: TensorType, *, order: int, scaled: bool) -> TensorType:
    """Take Bessel's modified function of the first kind.

    Out = I_order(X), times exp(-|X|) where it is scaled

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Raises:
        PeError: X has no floats, or another order.

    Source:
        paddle.i0, i0e, i1 and i1e; its power series, and the asymptotic one from 30 on.
    """
    del scaled
    check_kind("bessel_i", x, FLOATS)
    if order not in (0, 1):
        raise PeError(f"bessel_i: order is {order}", hint="0 or 1")
    return x


_lowered(lgamma, lambda attrs: (0, 0))
_lowered(polygamma, lambda attrs: (1, attrs["n"]))
_lowered(erfinv, lambda attrs: (2, 0))
_lowered(bessel_i, lambda attrs: (4 if attrs["scaled"] else 3, attrs["order"]))
not_in_onnx("ONNX has no operator for it", "lgamma", "polygamma", "erfinv", "bessel_i")
