"""clip, scale and increment: a number times another, plus another, within limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, Real, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face, Functional
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, GradRequest, OpDesc, Sample, op
from pe_cli.ops.define.traits import ByValue, Folds, InPlace
from pe_cli.ops.math.pointwise import Attrs, away_from, pointwise, shapes


def _check_clip(attrs: Attrs) -> None:
    if not attrs["min"] <= attrs["max"]:
        raise PeError(f"clip needs min <= max, got min {attrs['min']} and max {attrs['max']}")


@pointwise(
    "clip",
    faces=[Face("", "x min! max! name", "Limit values to a range.")],
    traits=[ByValue()],
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


def _folded(numbers: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """Return the result of the kernel for one number."""
    (x,) = numbers
    factor, bias = _line(attrs)
    return type(x)(factor) * x + type(x)(bias)


@pointwise(
    "scale",
    attrs={
        "scale": Attr(1.0, "factor, no unit"),
        "bias": Attr(0.0, "added, no unit"),
        "bias_after_scale": Attr(True, "scale X + bias, else scale (X + bias)"),
    },
    values=_line,
    traits=[Folds(_folded)],
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
    # An op that is its own gradient needs no second kernel, and can be differentiated any number of times.
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
    faces=[
        Face("", "x value:step name", "Add a number to a single element."),
        Functional("", "x value=1.0 name", "Add a number to a [1] variable, in place.", at="tensor"),
    ],
    inputs="X",
    attrs={"step": Attr(1.0, "added, no unit")},
    traits=[InPlace({"Out": "X"})],
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

deal(add_number)
also_on_cuda(increment)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("clip")
def clip_onnx(o: Writer) -> None:
    """Limits on both sides."""
    o.node("Clip", [o.x(), o.const(o.attrs["min"], "X"), o.const(o.attrs["max"], "X")], to="Out")


@in_onnx("scale")
def scale_onnx(o: Writer) -> None:
    """Times a constant, plus another."""
    x, kind = o.x(), o.type().dtype
    by, plus = (o.const(o.attrs[k], dtype=kind) for k in ("scale", "bias"))
    if o.attrs["bias"] == 0.0:
        o.node("Mul", [x, by], to="Out")
    elif o.attrs["bias_after_scale"]:
        o.node("Add", [o.node("Mul", [x, by]), plus], to="Out")
    else:
        o.node("Mul", [o.node("Add", [x, plus]), by], to="Out")


@in_onnx("increment")
def increment_onnx(o: Writer) -> None:
    """X + step."""
    o.node("Add", [o.x(), o.const(o.attrs["step"], "X")], to="Out")
