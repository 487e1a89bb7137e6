"""mish: a smooth activation that gates a number by the tanh of its softplus."""

from __future__ import annotations

from pe_cli.kernels.lang import T
from pe_cli.kernels.vecmath import exp, expm1, softplus, tanh
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr
from pe_cli.ops.math.pointwise import pointwise, shapes

_THRESHOLD = Attr(20.0, "beyond it softplus is X itself, below its negative exp(X); 0 or less for nowhere; no unit")


@pointwise("mish", attrs={"threshold": _THRESHOLD}, samples=shapes(threshold=-1.0))
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
    low = exp(x) if x < -threshold and threshold > T(0) else softplus(x)
    return x * tanh(x if x > threshold and threshold > T(0) else low)


@mish.back
def mish_back(g, x, threshold):
    low = exp(x) if x < -threshold and threshold > T(0) else softplus(x)
    s = x if x > threshold and threshold > T(0) else low
    t = tanh(s)
    return g * (t - x * (T(1) - t * t) * expm1(-s))


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
