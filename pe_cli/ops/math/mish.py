"""mish: a smooth activation that gates a number by the tanh of its softplus."""

from __future__ import annotations

from pe_cli.kernels.language import T
from pe_cli.kernels.math.vector_math import absolute, exp, tanh
from pe_cli.ops.define.faces import ACTIVATION
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr
from pe_cli.ops.math.pointwise import pointwise, shapes

_THRESHOLD = Attr(20.0, "beyond it softplus is X itself, below its negative exp(X); 0 or less for nowhere; no unit")


@pointwise("mish", attrs={"threshold": _THRESHOLD}, samples=shapes(threshold=-1.0), faces=[ACTIVATION])
def mish(x, threshold):
    """Gate a number by the tanh of its softplus.

    Out = X tanh(s), with s = log(1 + exp(X)); where threshold > 0, s = X for X > threshold and exp(X) for X < -threshold.

    The gradient is tanh(s) + X (1 - tanh(s)^2) (1 - exp(-s)): beyond a small threshold it is that of mish, not of the shorter s.

    Args:
        X: any shape, float32 or float64.
        threshold: where softplus is shortened.

    Returns:
        Out: type of X.

    Source:
        Misra 2019; fluid.layers.mish.
    """
    e = exp(-absolute(x))
    if absolute(x) > (threshold if threshold > T(0) else T(1e30)):  # so far out all forms are the same
        gate = tanh(x if x > T(0) else e)
    else:  # (w - 1) / (w + 1) of w = (1 + exp(x))^2, both halved, and divided by exp(x)^2 where that is large
        square = e * e
        low, high = (T(0.5), square) if x > T(0) else (T(0.5) * square, T(1))
        gate = (low + e) / (low + e + high)
    return x * gate


@mish.back
def mish_back(g, x, threshold):
    # Only e^-|x| is computed, which is at most 1: every form below is divided by the power that would overflow.
    e = exp(-x if x > T(0) else x)
    square = e * e
    short = threshold > T(0) and absolute(x) > threshold
    half = tanh(T(0.5) * (x if x > T(0) else e))
    # tanh(s) = a / b and 1 - exp(-s) = c / d
    a = half + half if short else (T(1) if x > T(0) else square) + e + e
    b = T(1) + half * half if short else a + T(2) * (square if x > T(0) else T(1))
    c = half + half if short else (T(1) if x > T(0) else e)
    d = T(1) + (half if short else e)
    share = T(1) / (b * d)
    t = a * d * share
    return g * (t + x * (T(1) - t * t) * (c * b * share))


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("mish")
def mish_onnx(o: Writer) -> None:
    """X tanh(softplus(X)), with the threshold's shorter forms where it is small enough to be seen."""
    x, t = o.x(), o.attrs["threshold"]
    s = o.node("Softplus", [x])
    if 0 < t < 20:
        s = o.node("Where", [o.node("Less", [x, o.const(-t, "X")]), o.node("Exp", [x]), s])
        s = o.node("Where", [o.node("Greater", [x, o.const(t, "X")]), x, s])
    o.node("Mul", [x, o.node("Tanh", [s])], to="Out")
