"""Smooth activations: they bend or squash; names, attributes and defaults are fluid's."""

from __future__ import annotations

import math

from pe_cli.kernels.language import T
from pe_cli.kernels.math.vector_math import absolute, erf, exp, expm1, sigmoid, softplus, tanh
from pe_cli.ops.define.faces import ACTIVATION, Functional
from pe_cli.ops.define.onnx import Writer, in_onnx, same_in_onnx
from pe_cli.ops.define.registry import Attr
from pe_cli.ops.define.traits import Bounded, ToProbabilities
from pe_cli.ops.math.pointwise import away_from, backward_kernel, forward_kernel, pointwise, shapes


@pointwise(
    "soft_relu",
    attrs={"threshold": Attr(40.0, "X is cut off at plus and minus this, no unit")},
    samples=shapes(threshold=1.0),
    faces=[ACTIVATION],
)
def soft_relu(x, threshold):
    """Softplus of a number cut off at both sides.

    Out = log(1 + exp(min(max(X, -threshold), threshold))); the gradient is 0 where X is cut off.

    Args:
        X: any shape, float32 or float64.
        threshold: limit of |X|, at least 0.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.soft_relu; the gradient is that of the formula for small thresholds too, where fluid's is not.
    """
    # As in the original, the number is cut off first; the gradient beyond the threshold is 0.
    low = -threshold if x < -threshold else x
    return softplus(threshold if low > threshold else low)


@soft_relu.back
def soft_relu_back(g, x, threshold):
    return g * sigmoid(x) if absolute(x) < threshold else T(0)


@pointwise(
    "elu",
    attrs={"alpha": Attr(1.0, "limit at minus infinity is -alpha, no unit")},
    kinks=away_from(0.0),
    samples=shapes(alpha=0.3),
    faces=[ACTIVATION, Functional("", "x alpha=1.0 name", "Let x through where it is above 0, else return alpha (exp(x) - 1).", "ELU")],
)
def elu(x, alpha):
    """Bend negative numbers towards -alpha.

    Out = X where X > 0, else alpha (exp(X) - 1).

    Args:
        X: any shape, float32 or float64.
        alpha: minus the limit.

    Returns:
        Out: type of X.

    Source:
        Clevert, Unterthiner and Hochreiter 2016, eq. 15.
    """
    # expm1 keeps the digits near 0 that exp(x) - 1 loses.
    return x if x > T(0) else alpha * expm1(x)


@elu.back
def elu_back(g, x, alpha):
    return g if x > T(0) else g * alpha * exp(x)


@pointwise(
    "sigmoid",
    uses="Out",
    traits=[Bounded(0.0, 1.0), ToProbabilities(several=False)],
    faces=[ACTIVATION, Functional(module="Sigmoid"), Functional("", "x name", "Return 1 / (1 + exp(-x)).", at="tensor")],
)
def sigmoid_op(x):
    """Squash into (0, 1).

    Out = 1 / (1 + exp(-X))

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        The logistic function; fluid.layers.sigmoid.
    """
    return sigmoid(x)


@sigmoid_op.back
def sigmoid_back(g, out):
    return g * out * (T(1) - out)


@pointwise("logsigmoid", faces=[ACTIVATION, Functional("log_sigmoid", module="LogSigmoid")])
def logsigmoid(x):
    """Logarithm of the sigmoid.

    Out = -log(1 + exp(-X))

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X; below 0.

    Source:
        fluid.layers.logsigmoid.
    """
    # By softplus: the logarithm of a sigmoid that rounds to 0 would be minus infinity.
    return -softplus(-x)


@logsigmoid.back
def logsigmoid_back(g, x):
    return g * sigmoid(-x)


@pointwise("tanh", uses="Out", traits=[Bounded(-1.0, 1.0)], faces=[ACTIVATION, Functional(module="Tanh")])
def tanh_op(x):
    """Squash into (-1, 1).

    Out = (exp(X) - exp(-X)) / (exp(X) + exp(-X))

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.tanh.
    """
    return tanh(x)


@tanh_op.back
def tanh_back(g, out):
    return g * (T(1) - out * out)


@pointwise(
    "stanh",
    faces=[ACTIVATION],
    attrs={"scale_a": Attr(0.67, "factor of X, no unit"), "scale_b": Attr(1.7159, "factor of the result, no unit")},
    samples=shapes(scale_a=2.0, scale_b=-0.5),
)
def stanh(x, scale_a, scale_b):
    """Scaled hyperbolic tangent.

    Out = scale_b tanh(scale_a X)

    Args:
        X: any shape, float32 or float64.
        scale_a: factor inside.
        scale_b: factor outside.

    Returns:
        Out: type of X.

    Source:
        LeCun 1989, Generalization and network design strategies.
    """
    return scale_b * tanh(scale_a * x)


@stanh.back
def stanh_back(g, x, scale_a, scale_b):
    t = tanh(scale_a * x)
    return g * scale_a * scale_b * (T(1) - t * t)


@pointwise("tanh_shrink", faces=[ACTIVATION, Functional("tanhshrink", module="Tanhshrink")])
def tanh_shrink(x):
    """What tanh leaves.

    Out = X - tanh(X)

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.tanh_shrink.
    """
    return x - tanh(x)


@tanh_shrink.back
def tanh_shrink_back(g, x):
    t = tanh(x)
    # 1 - (1 - t^2) without the cancellation.
    return g * t * t


@pointwise("softplus", faces=[ACTIVATION])
def softplus_op(x):
    """Smooth relu.

    Out = log(1 + exp(X)), without overflow.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X; above 0.

    Source:
        Dugas et al. 2001; fluid.layers.softplus.
    """
    return softplus(x)


@softplus_op.back
def softplus_back(g, x):
    return g * sigmoid(x)


@pointwise("softsign", faces=[ACTIVATION, Functional(module="Softsign")])
def softsign(x):
    """Squash into (-1, 1) with polynomial tails.

    Out = X / (1 + |X|)

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        Glorot and Bengio 2010.
    """
    return x / (T(1) + absolute(x))


@softsign.back
def softsign_back(g, x):
    scale = T(1) + absolute(x)
    return g / (scale * scale)


@pointwise(
    "swish", attrs={"beta": Attr(1.0, "sharpness, no unit")}, samples=shapes(beta=2.0), faces=[ACTIVATION, Functional(module="Swish")]
)
def swish(x, beta):
    """Gate a number by its own sigmoid.

    Out = X / (1 + exp(-beta X))

    Args:
        X: any shape, float32 or float64.
        beta: 0 gives X / 2, infinity gives relu.

    Returns:
        Out: type of X.

    Source:
        Ramachandran, Zoph and Le 2017.
    """
    return x * sigmoid(beta * x)


@swish.back
def swish_back(g, x, beta):
    s = sigmoid(beta * x)
    return g * (s + beta * x * s * (T(1) - s))


INV_SQRT_2 = math.sqrt(0.5)
INV_SQRT_TAU = 1.0 / math.sqrt(2.0 * math.pi)
SQRT_2_PI = math.sqrt(2.0 / math.pi)


def gelu_tanh(x):
    """Return the approximate form."""
    inner = T(SQRT_2_PI) * (x + T(0.044715) * x * x * x)
    return T(0.5) * x * (T(1) + tanh(inner))


def gelu_tanh_back(g, x):
    square = x * x
    t = tanh(T(SQRT_2_PI) * (x + T(0.044715) * square * x))
    # 0.134145 is 3 times 0.044715, from the derivative of the cube.
    slope = T(SQRT_2_PI) * (T(1) + T(0.134145) * square)
    return g * T(0.5) * (T(1) + t + x * (T(1) - t * t) * slope)


_, GELU_TANH = forward_kernel(gelu_tanh)
_, GELU_TANH_BACK = backward_kernel(gelu_tanh_back)


@pointwise(
    "gelu",
    faces=[
        ACTIVATION,
        Functional(
            "", "x approximate=False name", "Return x times the normal distribution's share below x, or its approximation by tanh.", "GELU"
        ),
    ],
    attrs={"approximate": Attr(False, "tanh form instead of erf")},
    values=lambda attrs: (),
    instead=lambda attrs: (GELU_TANH, GELU_TANH_BACK, ()) if attrs["approximate"] else None,
    samples=shapes(approximate=True),
)
def gelu(x):
    """Weigh a number by the probability that a normal one is below it.

    Out = X (1 + erf(X / sqrt 2)) / 2; approximate: X (1 + tanh(sqrt(2 / pi) (X + 0.044715 X^3))) / 2

    Args:
        X: any shape, float32 or float64.
        approximate: the tanh form.

    Returns:
        Out: type of X.

    Source:
        Hendrycks and Gimpel 2016, eq. 1 and 2.
    """
    return T(0.5) * x * (T(1) + erf(x * T(INV_SQRT_2)))


@gelu.back
def gelu_back(g, x):
    below = T(0.5) * (T(1) + erf(x * T(INV_SQRT_2)))
    return g * (below + x * T(INV_SQRT_TAU) * exp(T(-0.5) * x * x))


# --- ONNX -------------------------------------------------------------------------------------------------------------


same_in_onnx({"sigmoid": "Sigmoid", "softplus": "Softplus", "softsign": "Softsign", "tanh": "Tanh"})


@in_onnx("soft_relu")
def soft_relu_onnx(o: Writer) -> None:
    """log(1 + exp(X within +-threshold))."""
    t = o.attrs["threshold"]
    o.node("Softplus", [o.node("Clip", [o.x(), o.const(-t, "X"), o.const(t, "X")])], to="Out")


@in_onnx("elu")
def elu_onnx(o: Writer) -> None:
    """ONNX's own."""
    o.node("Elu", [o.x()], to="Out", alpha=o.attrs["alpha"])


@in_onnx("swish")
def swish_onnx(o: Writer) -> None:
    """X times the sigmoid of beta X."""
    inner = o.x() if o.attrs["beta"] == 1.0 else o.node("Mul", [o.x(), o.const(o.attrs["beta"], "X")])
    o.node("Mul", [o.x(), o.node("Sigmoid", [inner])], to="Out")


@in_onnx("gelu")
def gelu_onnx(o: Writer) -> None:
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


@in_onnx("logsigmoid")
def logsigmoid_onnx(o: Writer) -> None:
    """-softplus(-X)."""
    o.node("Neg", [o.node("Softplus", [o.node("Neg", [o.x()])])], to="Out")


@in_onnx("stanh")
def stanh_onnx(o: Writer) -> None:
    """scale_b tanh(scale_a X)."""
    inner = o.node("Tanh", [o.node("Mul", [o.x(), o.const(o.attrs["scale_a"], "X")])])
    o.node("Mul", [inner, o.const(o.attrs["scale_b"], "X")], to="Out")


@in_onnx("tanh_shrink")
def tanh_shrink_onnx(o: Writer) -> None:
    """X - tanh(X)."""
    o.node("Sub", [o.x(), o.node("Tanh", [o.x()])], to="Out")
