"""Activations made of straight lines: they cut or flatten; names, attributes and defaults are fluid's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.kernels.language import T
from pe_cli.kernels.math.vector_math import absolute
from pe_cli.ops.define.faces import ACTIVATION, Face, Functional
from pe_cli.ops.define.onnx import Writer, in_onnx, same_in_onnx
from pe_cli.ops.define.registry import Attr
from pe_cli.ops.define.traits import Absorbed, Bounded, Folds
from pe_cli.ops.math.pointwise import away_from, pointwise, shapes


def _positive_part(numbers: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """Return the result of the kernel for one number."""
    (x,) = numbers
    return type(x)(0) if x <= 0 else x


@pointwise(
    "relu",
    uses="Out",
    kinks=away_from(0.0),
    traits=[Absorbed(), Bounded(low=0.0), Folds(_positive_part)],
    faces=[ACTIVATION, Functional(module="ReLU")],
)
def relu(x):
    """Cut negative numbers off.

    Out = max(X, 0); the gradient at 0 is 0.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        Nair and Hinton 2010.
    """
    # Not max(x, 0): a NaN is neither above nor below 0, and passes through.
    return T(0) if x <= T(0) else x


@relu.back
def relu_back(g, out):
    return g if out > T(0) else T(0)


@pointwise(
    "relu6",
    faces=[ACTIVATION, Functional(module="ReLU6")],
    uses="Out",
    attrs={"threshold": Attr(6.0, "upper limit, no unit")},
    kinks=away_from(0.0, 6.0),
    samples=shapes(threshold=1.0),
)
def relu6(x, threshold):
    """Cut off below 0 and above a threshold.

    Out = min(max(X, 0), threshold); the gradient is 0 at both ends.

    Args:
        X: any shape, float32 or float64.
        threshold: upper limit.

    Returns:
        Out: type of X.

    Source:
        Krizhevsky 2010, Convolutional Deep Belief Networks on CIFAR-10.
    """
    low = T(0) if x <= T(0) else x
    return threshold if low > threshold else low


@relu6.back
def relu6_back(g, out, threshold):
    return g if out > T(0) and out < threshold else T(0)


@pointwise(
    "brelu",
    faces=[ACTIVATION, Functional("hardtanh", "x min=-1.0 max=1.0 name", "Limit x to [min, max].", "Hardtanh")],
    uses="Out",
    attrs={"t_min": Attr(0.0, "lower limit, no unit"), "t_max": Attr(24.0, "upper limit, no unit")},
    kinks=away_from(0.0, 24.0),
    samples=shapes(t_min=-0.5, t_max=1.0),
)
def brelu(x, t_min, t_max):
    """Cut off at two limits.

    Out = min(max(X, t_min), t_max); the gradient is 0 at both ends.

    Args:
        X: any shape, float32 or float64.
        t_min: lower limit.
        t_max: upper limit.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.brelu.
    """
    low = t_min if x < t_min else x
    return t_max if low > t_max else low


@brelu.back
def brelu_back(g, out, t_min, t_max):
    return g if out > t_min and out < t_max else T(0)


@pointwise(
    "leaky_relu",
    faces=[
        ACTIVATION,
        Functional("", "x negative_slope=0.01 name", "Let x through where it is above 0, else return negative_slope x.", "LeakyReLU"),
    ],
    attrs={"alpha": Attr(0.02, "slope below 0, no unit")},
    kinks=away_from(0.0),
    samples=shapes(alpha=-0.3),
)
def leaky_relu(x, alpha):
    """Flatten negative numbers.

    Out = X where X > 0, else alpha X; the gradient at 0 is alpha's.

    Args:
        X: any shape, float32 or float64.
        alpha: slope below 0.

    Returns:
        Out: type of X.

    Source:
        Maas, Hannun and Ng 2013.
    """
    return x if x > T(0) else alpha * x


@leaky_relu.back
def leaky_relu_back(g, x, alpha):
    return g if x > T(0) else g * alpha


@pointwise(
    "thresholded_relu",
    attrs={"threshold": Attr(1.0, "no unit")},
    kinks=away_from(1.0),
    samples=shapes(threshold=-0.5),
    faces=[
        ACTIVATION,
        Functional("", "x threshold=1.0 name", "Let x through where it is above the threshold, else return 0.", "ThresholdedReLU"),
    ],
)
def thresholded_relu(x, threshold):
    """Keep numbers above a threshold, make the others 0.

    Out = X where X > threshold, else 0.

    Args:
        X: any shape, float32 or float64.
        threshold: what X must exceed.

    Returns:
        Out: type of X.

    Source:
        Konda, Memisevic and Krueger 2014.
    """
    return T(0) if x <= threshold else x


@thresholded_relu.back
def thresholded_relu_back(g, x, threshold):
    return g if x > threshold else T(0)


@pointwise(
    "softshrink",
    faces=[
        Face(takes="x alpha:lambda name", act=True),
        Functional("", "x threshold=0.5 name", "Move x towards 0 by the threshold; what is nearer becomes 0.", "Softshrink"),
    ],
    attrs={"lambda": Attr(0.5, "half the width of the zone around 0, no unit")},
    kinks=away_from(-0.5, 0.5),
    samples=shapes(None, **{"lambda": 1.0}),
)
def softshrink(x, width):
    """Pull numbers towards 0, those near it onto 0.

    Out = X - lambda where X > lambda, X + lambda where X < -lambda, else 0.

    Args:
        X: any shape, float32 or float64.
        lambda: at least 0.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.softshrink.
    """
    # Only a NaN differs from itself; it stays one.
    return x - width if x > width else (x + width if x < -width else (T(0) if x == x else x))


@softshrink.back
def softshrink_back(g, x, width):
    return T(0) if absolute(x) <= width else g


@pointwise(
    "hard_shrink",
    faces=[
        ACTIVATION,
        Functional("hardshrink", "x threshold=0.5 name", "Let x through where |x| is above the threshold, else return 0.", "Hardshrink"),
    ],
    attrs={"threshold": Attr(0.5, "half the width of the zone around 0, no unit")},
    kinks=away_from(-0.5, 0.5),
    samples=shapes(threshold=1.0),
)
def hard_shrink(x, threshold):
    """Make numbers near 0 zero.

    Out = X where |X| > threshold, else 0.

    Args:
        X: any shape, float32 or float64.
        threshold: at least 0.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.hard_shrink.
    """
    return T(0) if absolute(x) <= threshold else x


@hard_shrink.back
def hard_shrink_back(g, x, threshold):
    return T(0) if absolute(x) <= threshold else g


@pointwise(
    "hard_sigmoid",
    faces=[
        ACTIVATION,
        Functional("hardsigmoid", "x slope=0.1666667 offset=0.5 name", "Return slope x + offset, limited to [0, 1].", "Hardsigmoid"),
    ],
    uses="Out",
    attrs={"slope": Attr(0.2, "per unit of X"), "offset": Attr(0.5, "value at 0, no unit")},
    kinks=away_from(-2.5, 2.5),
    samples=shapes(slope=0.7, offset=0.1),
)
def hard_sigmoid(x, slope, offset):
    """Straight line cut off at 0 and 1.

    Out = max(0, min(1, slope X + offset)); the gradient is 0 at both ends.

    Args:
        X: any shape, float32 or float64.
        slope: of the line.
        offset: of the line.

    Returns:
        Out: type of X.

    Source:
        Gulcehre et al. 2016, Noisy Activation Functions.
    """
    line = slope * x + offset
    low = T(0) if line <= T(0) else line
    return T(1) if low > T(1) else low


@hard_sigmoid.back
def hard_sigmoid_back(g, out, slope, offset):
    return g * slope if out > T(0) and out < T(1) else T(0)


@pointwise(
    "hard_swish",
    faces=[ACTIVATION, Functional("hardswish", module="Hardswish")],
    attrs={
        "threshold": Attr(6.0, "upper limit of X + offset, no unit"),
        "scale": Attr(6.0, "divisor, no unit"),
        "offset": Attr(3.0, "added to X, no unit"),
    },
    kinks=away_from(-3.0, 3.0),
    samples=shapes(threshold=2.0, scale=3.0, offset=1.0),
)
def hard_swish(x, threshold, scale, offset):
    """Gate a number by a straight line cut off at both ends.

    Out = X min(max(0, X + offset), threshold) / scale

    Args:
        X: any shape, float32 or float64.
        threshold: upper limit of the gate before the division.
        scale: divisor, not 0.
        offset: added to X.

    Returns:
        Out: type of X.

    Source:
        Howard et al. 2019, Searching for MobileNetV3.
    """
    low = T(0) if x + offset <= T(0) else x + offset
    return x * (threshold if low > threshold else low) / scale


@hard_swish.back
def hard_swish_back(g, x, threshold, scale, offset):
    # The gate's slope is 1 / scale between the ends: the derivative is (gate + x) / scale there.
    gate = x + offset
    inside = g * (x + gate) / scale if gate < threshold else g * threshold / scale
    return T(0) if gate <= T(0) else inside


# --- ONNX -------------------------------------------------------------------------------------------------------------


same_in_onnx({"relu": "Relu"})


@in_onnx("relu6", "brelu")
def limited_onnx(o: Writer) -> None:
    """Limits on both sides."""
    limits = {"relu6": (0.0, "threshold"), "brelu": ("t_min", "t_max")}[o.op.type]
    low, high = (o.attrs[v] if isinstance(v, str) else v for v in limits)
    o.node("Clip", [o.x(), o.const(low, "X"), o.const(high, "X")], to="Out")


@in_onnx("leaky_relu")
def leaky_relu_onnx(o: Writer) -> None:
    """ONNX's own."""
    o.node("LeakyRelu", [o.x()], to="Out", alpha=o.attrs["alpha"])


@in_onnx("thresholded_relu")
def thresholded_relu_onnx(o: Writer) -> None:
    """ONNX's own."""
    o.node("ThresholdedRelu", [o.x()], to="Out", alpha=o.attrs["threshold"])


@in_onnx("softshrink", "hard_shrink")
def shrink_onnx(o: Writer) -> None:
    """ONNX's Shrink, whose bias is what X moves towards 0; X just at the border stays 0 for both."""
    soft = o.op.type == "softshrink"
    width = o.attrs["lambda" if soft else "threshold"]
    o.node("Shrink", [o.x()], to="Out", lambd=width, bias=width if soft else 0.0)


@in_onnx("hard_sigmoid")
def hard_sigmoid_onnx(o: Writer) -> None:
    """ONNX's own."""
    o.node("HardSigmoid", [o.x()], to="Out", alpha=o.attrs["slope"], beta=o.attrs["offset"])


@in_onnx("hard_swish")
def hard_swish_onnx(o: Writer) -> None:
    """X min(max(0, X + offset), threshold) / scale."""
    moved = o.node("Add", [o.x(), o.const(o.attrs["offset"], "X")])
    gate = o.node("Clip", [moved, o.const(0.0, "X"), o.const(o.attrs["threshold"], "X")])
    o.node("Div", [o.node("Mul", [o.x(), gate]), o.const(o.attrs["scale"], "X")], to="Out")
