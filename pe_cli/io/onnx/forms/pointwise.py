"""Functions of one number."""

from __future__ import annotations

import math

from pe_cli.io.onnx.writer import Writer, form

#: Ops that ONNX has under another name, without attributes.
SAME = {
    "abs": "Abs", "acos": "Acos", "asin": "Asin", "atan": "Atan", "ceil": "Ceil", "cos": "Cos", "exp": "Exp", "floor": "Floor",
    "log": "Log", "logical_not": "Not", "reciprocal": "Reciprocal", "relu": "Relu", "sigmoid": "Sigmoid", "sign": "Sign",
    "sin": "Sin", "softplus": "Softplus", "softsign": "Softsign", "sqrt": "Sqrt", "tanh": "Tanh", "assign": "Identity",
}  # fmt: skip


@form(*SAME)
def same(o: Writer) -> None:
    """One node."""
    o.node(SAME[o.op.type], [o.x()], to="Out")


@form("rsqrt")
def rsqrt(o: Writer) -> None:
    """1 / sqrt(X)."""
    o.node("Reciprocal", [o.node("Sqrt", [o.x()])], to="Out")


@form("square")
def square(o: Writer) -> None:
    """X times X."""
    o.node("Mul", [o.x(), o.x()], to="Out")


@form("round")
def away_from_zero(o: Writer) -> None:
    """Halves go away from 0; ONNX's own Round takes them to the even number."""
    size = o.node("Floor", [o.node("Add", [o.node("Abs", [o.x()]), o.const(0.5, "X")])])
    o.node("Mul", [o.node("Sign", [o.x()]), size], to="Out")


@form("relu6", "brelu", "clip")
def clip(o: Writer) -> None:
    """Limits on both sides."""
    limits = {"relu6": (0.0, "threshold"), "brelu": ("t_min", "t_max"), "clip": ("min", "max")}[o.op.type]
    low, high = (o.attrs[v] if isinstance(v, str) else v for v in limits)
    o.node("Clip", [o.x(), o.const(low, "X"), o.const(high, "X")], to="Out")


@form("soft_relu")
def soft_relu(o: Writer) -> None:
    """log(1 + exp(X within +-threshold))."""
    t = o.attrs["threshold"]
    o.node("Softplus", [o.node("Clip", [o.x(), o.const(-t, "X"), o.const(t, "X")])], to="Out")


@form("leaky_relu")
def leaky_relu(o: Writer) -> None:
    """ONNX's own."""
    o.node("LeakyRelu", [o.x()], to="Out", alpha=o.attrs["alpha"])


@form("elu")
def elu(o: Writer) -> None:
    """ONNX's own."""
    o.node("Elu", [o.x()], to="Out", alpha=o.attrs["alpha"])


@form("thresholded_relu")
def thresholded_relu(o: Writer) -> None:
    """ONNX's own."""
    o.node("ThresholdedRelu", [o.x()], to="Out", alpha=o.attrs["threshold"])


@form("softshrink", "hard_shrink")
def shrink(o: Writer) -> None:
    """ONNX's Shrink, whose bias is what X moves towards 0; X just at the border stays 0 for both."""
    soft = o.op.type == "softshrink"
    width = o.attrs["lambda" if soft else "threshold"]
    o.node("Shrink", [o.x()], to="Out", lambd=width, bias=width if soft else 0.0)


@form("hard_sigmoid")
def hard_sigmoid(o: Writer) -> None:
    """ONNX's own."""
    o.node("HardSigmoid", [o.x()], to="Out", alpha=o.attrs["slope"], beta=o.attrs["offset"])


@form("hard_swish")
def hard_swish(o: Writer) -> None:
    """X min(max(0, X + offset), threshold) / scale."""
    moved = o.node("Add", [o.x(), o.const(o.attrs["offset"], "X")])
    gate = o.node("Clip", [moved, o.const(0.0, "X"), o.const(o.attrs["threshold"], "X")])
    o.node("Div", [o.node("Mul", [o.x(), gate]), o.const(o.attrs["scale"], "X")], to="Out")


@form("swish")
def swish(o: Writer) -> None:
    """X times the sigmoid of beta X."""
    inner = o.x() if o.attrs["beta"] == 1.0 else o.node("Mul", [o.x(), o.const(o.attrs["beta"], "X")])
    o.node("Mul", [o.x(), o.node("Sigmoid", [inner])], to="Out")


@form("gelu")
def gelu(o: Writer) -> None:
    """By erf, or by tanh where it is approximate."""
    x = o.x()
    if o.attrs["approximate"]:
        cube = o.node("Mul", [o.node("Mul", [o.node("Mul", [x, x]), x]), o.const(0.044715, "X")])
        inner = o.node("Mul", [o.node("Add", [x, cube]), o.const(math.sqrt(2 / math.pi), "X")])
        gate = o.node("Tanh", [inner])
    else:
        gate = o.node("Erf", [o.node("Mul", [x, o.const(math.sqrt(0.5), "X")])])
    half = o.node("Mul", [x, o.const(0.5, "X")])
    o.node("Mul", [half, o.node("Add", [gate, o.const(1.0, "X")])], to="Out")


@form("logsigmoid")
def logsigmoid(o: Writer) -> None:
    """-softplus(-X)."""
    o.node("Neg", [o.node("Softplus", [o.node("Neg", [o.x()])])], to="Out")


@form("stanh")
def stanh(o: Writer) -> None:
    """scale_b tanh(scale_a X)."""
    inner = o.node("Tanh", [o.node("Mul", [o.x(), o.const(o.attrs["scale_a"], "X")])])
    o.node("Mul", [inner, o.const(o.attrs["scale_b"], "X")], to="Out")


@form("tanh_shrink")
def tanh_shrink(o: Writer) -> None:
    """X - tanh(X)."""
    o.node("Sub", [o.x(), o.node("Tanh", [o.x()])], to="Out")


@form("pow")
def power(o: Writer) -> None:
    """X to a constant."""
    o.node("Pow", [o.x(), o.const(o.attrs["factor"], "X")], to="Out")


@form("scale")
def scale(o: Writer) -> None:
    """Times a constant, plus another."""
    x, kind = o.x(), o.type().dtype
    by, plus = (o.const(o.attrs[k], dtype=kind) for k in ("scale", "bias"))
    if o.attrs["bias"] == 0.0:
        o.node("Mul", [x, by], to="Out")
    elif o.attrs["bias_after_scale"]:
        o.node("Add", [o.node("Mul", [x, by]), plus], to="Out")
    else:
        o.node("Mul", [o.node("Add", [x, plus]), by], to="Out")


@form("increment")
def increment(o: Writer) -> None:
    """X + step."""
    o.node("Add", [o.x(), o.const(o.attrs["step"], "X")], to="Out")


@form("dropout")
def dropout(o: Writer) -> None:
    """What inference does: nothing, or the scale of the chance to stay."""
    if o.attrs["dropout_implementation"] == "upscale_in_train":
        o.node("Identity", [o.x()], to="Out")
    else:
        o.node("Mul", [o.x(), o.const(1.0 - o.attrs["dropout_prob"], "X")], to="Out")
