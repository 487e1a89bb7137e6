"""Elementary functions of one number: exp, log, powers, rounding, trigonometry, scale and clip."""

from __future__ import annotations

import math
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda import deal
from pe_cli.kernels.cuda_math import replaces
from pe_cli.kernels.lang import Int, Ptr, Real, T, intrinsic, kernel
from pe_cli.kernels.vecmath import absolute, copysign, exp, log, rsqrt, square_root
from pe_cli.ops.cuda import also_on_cuda
from pe_cli.ops.lowering import Lowering
from pe_cli.ops.pointwise import Attrs, away_from, pointwise, shapes
from pe_cli.ops.registry import Attr, GradRequest, OpDesc, Sample, op


def _rounding(name: str) -> Any:
    @intrinsic("T", "T", name=name)
    def emit(env: Any, args: list[Any]) -> Any:
        suffix = "f32" if env.dtype == "float32" else "f64"
        return env.builder.call(env.function(f"llvm.{name}.{suffix}", env.element, [env.element]), args)

    return emit


round_down, round_up, round_away = _rounding("floor"), _rounding("ceil"), _rounding("round")


def _positive(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.uniform(0.3, 3.0, shape)


def _away_from_zero(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.uniform(0.3, 3.0, shape) * rng.choice([-1.0, 1.0], shape)


@pointwise("exp", uses="Out")
def exp_op(x):
    """Raise e to a power.

    Out = e^X

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.exp.
    """
    return exp(x)


@exp_op.back
def exp_back(g, out):
    return g * out


@pointwise("log", samples=shapes(_positive))
def log_op(x):
    """Natural logarithm.

    Out = ln X; NaN below 0, minus infinity at 0.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.log.
    """
    return log(x)


@log_op.back
def log_back(g, x):
    return g / x


@pointwise("sqrt", uses="Out", samples=shapes(_positive))
def sqrt_op(x):
    """Square root.

    Out = X^(1/2); NaN below 0.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.sqrt.
    """
    return square_root(x)


@sqrt_op.back
def sqrt_back(g, out):
    return T(0.5) * g / out


@pointwise("rsqrt", uses="Out", samples=shapes(_positive))
def rsqrt_op(x):
    """One over the square root.

    Out = X^(-1/2); NaN below 0.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.rsqrt.
    """
    return rsqrt(x)


@rsqrt_op.back
def rsqrt_back(g, out):
    return T(-0.5) * g * out * out * out


@pointwise("square", integers=True)
def square(x):
    """Multiply by itself.

    Out = X^2

    Args:
        X: any shape, float32, float64, int32 or int64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.square.
    """
    return x * x


@square.back
def square_back(g, x):
    return T(2) * g * x


@pointwise("abs", kinks=away_from(0.0), integers=True)
def abs_op(x):
    """Drop the sign.

    Out = |X|; the gradient at 0 is 0.

    Args:
        X: any shape, float32, float64, int32 or int64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.abs.
    """
    return abs(x)


@abs_op.back
def abs_back(g, x):
    return g if x > T(0) else (-g if x < T(0) else T(0))


@pointwise("sign", kinks=away_from(0.0), integers=True)
def sign(x):
    """Keep the sign only.

    Out = 1 above 0, -1 below, 0 at 0; the gradient is 0.

    Args:
        X: any shape, float32, float64, int32 or int64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.sign.
    """
    return T(1) if x > T(0) else (T(-1) if x < T(0) else x)


@sign.back
def sign_back(g, x):
    return T(0)


@pointwise("reciprocal", uses="Out", samples=shapes(_away_from_zero))
def reciprocal(x):
    """Divide one by a number.

    Out = 1 / X

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.reciprocal.
    """
    return T(1) / x


@reciprocal.back
def reciprocal_back(g, out):
    return -g * out * out


@pointwise("floor", uses="Out", kinks=away_from(-2.0, -1.0, 0.0, 1.0, 2.0))
def floor(x):
    """Round down.

    Out = the largest integer that is not above X; the gradient is 0.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.floor.
    """
    return round_down(x)


@floor.back
def floor_back(g, out):
    return T(0)


@pointwise("ceil", uses="Out", kinks=away_from(-2.0, -1.0, 0.0, 1.0, 2.0))
def ceil(x):
    """Round up.

    Out = the smallest integer that is not below X; the gradient is 0.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.ceil.
    """
    return round_up(x)


@ceil.back
def ceil_back(g, out):
    return T(0)


@pointwise("round", uses="Out", kinks=away_from(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5))
def round_op(x):
    """Round to the nearest integer.

    Out = that integer; halves go away from 0 (2.5 to 3, -2.5 to -3), as in C and unlike NumPy; the gradient is 0.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.round.
    """
    return round_away(x)


@round_op.back
def round_back(g, out):
    return T(0)


@pointwise("sin")
def sin(x):
    """Sine.

    Out = sin X, X in radians.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.sin.
    """
    return math.sin(x)


@sin.back
def sin_back(g, x):
    return g * math.cos(x)


@pointwise("cos")
def cos(x):
    """Cosine.

    Out = cos X, X in radians.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.cos.
    """
    return math.cos(x)


@cos.back
def cos_back(g, x):
    return -g * math.sin(x)


@pointwise(
    "pow",
    attrs={"factor": Attr(1.0, "the exponent, no unit")},
    instead=lambda attrs: (square.kernel, square.back_kernel, ()) if attrs["factor"] == 2 else None,
    samples=(
        *shapes(_positive, factor=2.5),
        Sample({"X": (3, 5)}, {"factor": 3.0}, "a cube"),
        Sample({"X": (3, 5)}, {"factor": 2.0}, "a square"),
    ),
)
def pow_op(x, factor):
    """Raise to a power.

    Out = X^factor; NaN where X is below 0 and factor is no integer.

    Args:
        X: any shape, float32 or float64.
        factor: the exponent.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.pow.
    """
    return x**factor


@pow_op.back
def pow_back(g, x, factor):
    return g * factor * x ** (factor - T(1)) if factor != T(0) else T(0)


def _check_clip(attrs: Attrs) -> None:
    if not attrs["min"] <= attrs["max"]:
        raise PeError(f"clip needs min <= max, got min {attrs['min']} and max {attrs['max']}")


@pointwise(
    "clip",
    uses="Out",
    attrs={"min": Attr(-1.0, "lower limit, no unit"), "max": Attr(1.0, "upper limit, no unit")},
    check=_check_clip,
    kinks=away_from(-1.0, 1.0),
    samples=shapes(min=0.25, max=0.5),
    integers=True,
)
def clip(x, low, high):
    """Limit to an interval.

    Out = min(max(X, min), max); the gradient is 0 at both ends.

    Args:
        X: any shape, float32, float64, int32 or int64.
        min: lower limit.
        max: upper limit, at least min.

    Returns:
        Out: type of X.

    Raises:
        PeError: min is above max.

    Source:
        fluid.layers.clip.
    """
    bounded = T(low) if x < T(low) else x
    return T(high) if bounded > T(high) else bounded


@clip.back
def clip_back(g, out, low, high):
    return g if out > low and out < high else T(0)


def _line(attrs: Attrs) -> tuple[float, float]:
    bias = attrs["bias"] if attrs["bias_after_scale"] else attrs["bias"] * attrs["scale"]
    return attrs["scale"], bias


@pointwise(
    "scale",
    attrs={
        "scale": Attr(1.0, "factor, no unit"),
        "bias": Attr(0.0, "added, no unit"),
        "bias_after_scale": Attr(True, "scale X + bias, else scale (X + bias)"),
    },
    values=_line,
    samples=(
        *shapes(scale=-2.0, bias=0.5),
        Sample({"X": (2, 3)}, {"scale": 3.0, "bias": 1.0, "bias_after_scale": False}, "bias first"),
    ),
    integers=True,
)
def scale(x, factor, bias):
    """Multiply and add numbers.

    Out = scale X + bias, or scale (X + bias) where bias_after_scale is false.

    Args:
        X: any shape, float32, float64, int32 or int64 (computed in float64).
        scale: factor.
        bias: addend.
        bias_after_scale: which comes first.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.scale.
    """
    return T(factor * x + bias)


@scale.op.make_grad
def scale_grad(request: GradRequest) -> list[OpDesc]:
    """The gradient is scaled alike."""
    (gradient,) = request.grads.values()
    factor = {"scale": request.op.attrs["scale"]}
    return [OpDesc("scale", {"X": [gradient]}, {"Out": [out]}, factor) for out in request.wanted.values()]


@kernel
def add_number(x: Ptr, out: Ptr, n: Int, step: Real):
    """out = x + step; out may be x."""
    for i in range(n):
        out[i] = x[i] + T(step)


@op(
    "increment",
    inputs="X",
    attrs={"step": Attr(1.0, "added, no unit")},
    inplace={"Out": "X"},
    samples=[Sample({"X": (1,)})],
)
def increment(x: TensorType, *, step: float) -> TensorType:
    """Add a number to the only element; Out may be the variable X itself.

    Out = X + step

    Args:
        X: one element, of any number type.
        step: what is added; its fraction is lost on integers.

    Returns:
        Out: type of X.

    Raises:
        PeError: X has more than one element, or is bool.

    Source:
        fluid.layers.increment.
    """
    if x.size not in (1, -1) or x.dtype == "bool":
        raise PeError(f"increment takes one number, got {x}", hint="use scale with a bias for tensors")
    return x


@increment.lower("cpu")
def increment_cpu(o: Lowering) -> None:
    """One addition."""
    out = o.output("Out")
    o.call(add_number, o.input("X"), out, out.size, float(o.attrs["step"]))


@increment.make_grad
def increment_grad(request: GradRequest) -> list[OpDesc]:
    """The gradient passes."""
    (gradient,) = request.grads.values()
    return [OpDesc("assign", {"X": [gradient]}, {"Out": [out]}) for out in request.wanted.values()]


# --- CUDA -------------------------------------------------------------------------------------------------------------

#: From here on every float is whole; there math.floor gives an int64, which does not hold all of them.
WHOLE = 2.0**52


@replaces(round_down)
def _round_down(x):
    return T(math.floor(x)) if absolute(x) < T(WHOLE) else x


@replaces(round_up)
def _round_up(x):
    return T(math.ceil(x)) if absolute(x) < T(WHOLE) else x


@replaces(round_away)
def _round_away(x):
    size = absolute(x)
    low = round_down(size)
    return copysign(low + T(1) if size - low >= T(0.5) else low, x)


deal(add_number)
also_on_cuda(increment)
