"""Losses of numbers: square_error_cost, mse_loss, smooth_l1_loss and huber_loss."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.language import Int, Ptr, Real, T, kernel
from pe_cli.kernels.math.partial_sums import CHUNK
from pe_cli.kernels.math.vector_math import absolute
from pe_cli.ops.define.axes import same_sizes
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op


def _same(name: str, x: TensorType, y: TensorType, what: str = "Y") -> None:
    if y.dtype != x.dtype or not same_sizes(y.shape, x.shape):
        raise PeError(f"{name} needs X and {what} of one type, got {x} and {y}", hint="reshape or cast one of them")


def _pairs(x: str = "X", y: str = "Y") -> list[Sample]:
    return [
        Sample({x: (4, 5), y: (4, 5)}, name="a matrix"),
        Sample({x: (1, 1), y: (1, 1)}, name="one element"),
        Sample({x: (3, 2, 3), y: (3, 2, 3)}, name="three axes"),
        Sample({x: (0, 5), y: (0, 5)}, name="empty batch"),
    ]


# --- squares ----------------------------------------------------------------------------------------------------------


@kernel
def squares(x: Ptr, y: Ptr, out: Ptr, n: Int):
    """out = (x - y)**2."""
    for i in range(n):
        d = x[i] - y[i]
        out[i] = d * d


@kernel
def squares_back(x: Ptr, y: Ptr, g: Ptr, out: Ptr, n: Int, factor: Real, one: Int):
    """out = factor * g (x - y), where g is one number if one; out may be g unless one."""
    if one:
        share = factor * g[0]
        for i in range(n):
            out[i] = share * (x[i] - y[i])
    else:
        for i in range(n):
            out[i] = factor * g[i] * (x[i] - y[i])


@kernel
def mean_square(x: Ptr, y: Ptr, out: Ptr, n: Int):
    """out[0] = mean((x - y)**2)."""
    total = 0.0
    for begin in range(0, n, CHUNK):
        part = T(0)
        for i in range(begin, min(n, begin + CHUNK)):
            d = x[i] - y[i]
            part += d * d
        total += part
    out[0] = T(total / n)


@op("square_error_cost", inputs="X Y", samples=_pairs(), faces=[Face("", "input label", "Square the difference.")])
def square_error_cost(x: TensorType, y: TensorType) -> TensorType:
    """Square the differences.

    Out = (X - Y)**2

    Args:
        X: any shape, float32 or float64; predictions.
        Y: type of X; targets, in the unit of X.

    Returns:
        Out: type of X, in its unit squared.

    Raises:
        PeError: X and Y of different types.

    Source:
        fluid.layers.square_error_cost, there composed of elementwise_sub and square.
    """
    _same("square_error_cost", x, y)
    return x


@op("mse_loss", inputs="X Y", samples=_pairs()[:3], faces=[Face("", "input label", "Average the squared difference.")])
def mse_loss(x: TensorType, y: TensorType) -> TensorType:
    """Average the squared differences of all elements.

    Out[0] = mean((X - Y)**2); NaN for an empty X, as in NumPy.

    Args:
        X: any shape, float32 or float64; predictions.
        Y: type of X; targets, in the unit of X.

    Returns:
        Out: [1] element type of X, in its unit squared.

    Raises:
        PeError: X and Y of different types.

    Source:
        fluid.layers.mse_loss.
    """
    _same("mse_loss", x, y)
    return x.with_shape(1)


@square_error_cost.lower("cpu")
def square_error_cost_cpu(o: Lowering) -> None:
    """One loop."""
    x = o.input("X")
    o.call(squares, x, o.input("Y"), o.output("Out"), product(x.shape))


@mse_loss.lower("cpu")
def mse_loss_cpu(o: Lowering) -> None:
    """One loop, partial sums of fixed size."""
    x = o.input("X")
    o.call(mean_square, x, o.input("Y"), o.output("Out"), product(x.shape))


def _squares_back(o: Lowering, factor: float, one: int) -> None:
    x, y, g = o.input("X"), o.input("Y"), o.input("Out@GRAD")
    for slot, sign in (("X@GRAD", 1.0), ("Y@GRAD", -1.0)):
        if o.has(slot):
            o.call(squares_back, x, y, g, o.output(slot), product(x.shape), sign * factor, one)


@square_error_cost.grad(uses="X Y").lower("cpu")
def square_error_cost_grad_cpu(o: Lowering) -> None:
    """X' = 2 Out' (X - Y) = -Y'."""
    _squares_back(o, 2.0, 0)


@mse_loss.grad(uses="X Y").lower("cpu")
def mse_loss_grad_cpu(o: Lowering) -> None:
    """X' = 2 Out' (X - Y) / n = -Y'."""
    # An empty X has no gradient to write; the 1 only keeps this division from failing.
    _squares_back(o, 2.0 / max(1, product(o.input("X").shape)), 1)


# --- smooth_l1_loss ---------------------------------------------------------------------------------------------------


@kernel
def smooth_l1(
    x: Ptr, y: Ptr, inside: Ptr, outside: Ptr, diff: Ptr, out: Ptr, rows: Int, n: Int, square: Real, weights: Int
):
    """out[r] = sum of the row's smooth differences; weights: 1 inside, 2 outside, 3 both; square is sigma**2."""
    for r in range(rows):
        total = 0.0
        for begin in range(r * n, r * n + n, CHUNK):
            end = min(r * n + n, begin + CHUNK)
            for i in range(begin, end):
                d = x[i] - y[i]
                diff[i] = d * inside[i] if weights & 1 else d
            part = T(0)
            for i in range(begin, end):  # apart: one loop would sum in another order where diff is x
                d = diff[i]
                a = absolute(d)
                found = T(0.5) * d * d * square if a * square < T(1) else a - T(0.5) / square
                part += found * outside[i] if weights & 2 else found
            total += part
        out[r] = T(total)


@kernel
def smooth_l1_back(
    inside: Ptr, outside: Ptr, diff: Ptr, g: Ptr, dx: Ptr, rows: Int, n: Int, square: Real, weights: Int, sign: Real
):
    """dx = sign * g * slope(diff) * weights; the slope is diff * square, within [-1, 1]."""
    for r in range(rows):
        share = g[r] * sign
        for i in range(r * n, r * n + n):
            slope = diff[i] * square
            slope = T(1) if slope > T(1) else slope
            slope = T(-1) if slope < T(-1) else slope
            if weights & 1:
                slope *= inside[i]
            if weights & 2:
                slope *= outside[i]
            dx[i] = share * slope


@op(
    "smooth_l1_loss",
    inputs="X Y InsideWeight? OutsideWeight?",
    floats="X Y",
    outputs="Out Diff",
    attrs={"sigma": Attr(1.0, "differences below 1 / sigma**2 count squared, no unit")},
    differentiable="X Y",
    samples=[
        *_pairs(),
        Sample({"X": (4, 5), "Y": (4, 5)}, {"sigma": 3.0}, "sigma 3"),
        Sample({"X": (3, 4), "Y": (3, 4), "InsideWeight": (3, 4), "OutsideWeight": (3, 4)}, name="weights"),
        Sample({"X": (3, 4), "Y": (3, 4), "OutsideWeight": (3, 4)}, name="outside weights only"),
    ],
)
def smooth_l1_loss(
    x: TensorType, y: TensorType, inside: TensorType | None, outside: TensorType | None, *, sigma: float
) -> tuple[TensorType, TensorType]:
    """Sum over each sample the absolute differences, squared near 0.

    Diff = InsideWeight (X - Y);  Out[b] = sum_i OutsideWeight_i e(Diff_i),  with
    e(d) = 0.5 (sigma d)**2 for |d| < 1 / sigma**2, else |d| - 0.5 / sigma**2.

    Args:
        X: [batch, ...] at least two axes, float32 or float64; predictions.
        Y: type of X; targets.
        InsideWeight: type of X, no unit; default 1.
        OutsideWeight: type of X, no unit; default 1.
        sigma: see the formula.

    Returns:
        Out: [batch, 1] element type of X.
        Diff: type of X; for the gradient.

    Raises:
        PeError: inputs of different types, fewer than two axes, or sigma = 0.

    Source:
        fluid.layers.smooth_l1; Girshick 2015, "Fast R-CNN", eq. 3.
    """
    for what, other in (("Y", y), ("InsideWeight", inside), ("OutsideWeight", outside)):
        if other is not None:
            _same("smooth_l1_loss", x, other, what)
    if len(x.shape) < 2:
        raise PeError(f"smooth_l1_loss needs at least two axes, got {x}", hint="reshape the inputs to [batch, 1]")
    if sigma == 0:
        raise PeError("smooth_l1_loss needs sigma != 0, got 0.0")
    return x.with_shape(x.shape[0], 1), x


def _weights(o: Lowering, otherwise: object) -> tuple[object, object, int]:
    inside = o.input("InsideWeight") if o.has("InsideWeight") else otherwise
    outside = o.input("OutsideWeight") if o.has("OutsideWeight") else otherwise
    return inside, outside, int(o.has("InsideWeight")) + 2 * int(o.has("OutsideWeight"))


@smooth_l1_loss.lower("cpu")
def smooth_l1_loss_cpu(o: Lowering) -> None:
    """One loop per row."""
    x, y = o.input("X"), o.input("Y")
    inside, outside, weights = _weights(o, x)
    square, n = o.attrs["sigma"] ** 2, product(x.shape[1:])
    o.call(smooth_l1, x, y, inside, outside, o.output("Diff"), o.output("Out"), x.shape[0], n, square, weights)


@smooth_l1_loss.grad(uses="InsideWeight OutsideWeight Diff").lower("cpu")
def smooth_l1_loss_grad_cpu(o: Lowering) -> None:
    """X' = Out' times the slope = -Y'."""
    diff, g = o.input("Diff"), o.input("Out@GRAD")
    inside, outside, weights = _weights(o, diff)
    square, rows, n = o.attrs["sigma"] ** 2, diff.shape[0], product(diff.shape[1:])
    for slot, sign in (("X@GRAD", 1.0), ("Y@GRAD", -1.0)):
        if o.has(slot):
            o.call(smooth_l1_back, inside, outside, diff, g, o.output(slot), rows, n, square, weights, sign)


# --- huber_loss -------------------------------------------------------------------------------------------------------


@kernel
def huber(x: Ptr, y: Ptr, residual: Ptr, out: Ptr, n: Int, delta: Real):
    """residual = y - x; out = half its square, linear beyond delta."""
    for i in range(n):
        d = y[i] - x[i]
        residual[i] = d
        a = absolute(d)
        out[i] = delta * (a - T(0.5) * delta) if a > delta else T(0.5) * d * d


@kernel
def huber_back(residual: Ptr, g: Ptr, dx: Ptr, n: Int, delta: Real, sign: Real):
    """dx = sign * g * residual, the residual within [-delta, delta]."""
    for i in range(n):
        # Beyond delta the slope stays that of the border.
        d = residual[i]
        d = delta if d > delta else d
        d = -delta if d < -delta else d
        dx[i] = sign * g[i] * d


@op(
    "huber_loss",
    faces=[Face("", "input label delta", returns="Out")],
    inputs="X Y",
    floats="X Y",
    outputs="Out Residual",
    attrs={"delta": Attr(1.0, "residuals beyond it count linearly; in the unit of X")},
    samples=[*_pairs(), Sample({"X": (4, 1), "Y": (4, 1)}, {"delta": 0.3}, "delta 0.3")],
)
def huber_loss(x: TensorType, y: TensorType, *, delta: float) -> tuple[TensorType, TensorType]:
    """Square small differences and take large ones linearly.

    Residual = Y - X;  Out = 0.5 Residual**2 for |Residual| <= delta, else delta (|Residual| - 0.5 delta).

    Args:
        X: [batch, 1] (any shape) float32 or float64; predictions.
        Y: type of X; targets.
        delta: where the two meet, at least 0.

    Returns:
        Out: type of X.
        Residual: type of X; for the gradient.

    Raises:
        PeError: X and Y of different types, or delta < 0.

    Source:
        fluid.layers.huber_loss; Huber 1964, "Robust estimation of a location parameter".
    """
    _same("huber_loss", x, y)
    if delta < 0:
        raise PeError(f"huber_loss needs delta >= 0, got {delta}")
    return x, x


@huber_loss.lower("cpu")
def huber_loss_cpu(o: Lowering) -> None:
    """One loop."""
    x = o.input("X")
    o.call(huber, x, o.input("Y"), o.output("Residual"), o.output("Out"), product(x.shape), o.attrs["delta"])


@huber_loss.grad(uses="Residual").lower("cpu")
def huber_loss_grad_cpu(o: Lowering) -> None:
    """Y' = Out' times the clipped residual = -X'."""
    residual, g = o.input("Residual"), o.input("Out@GRAD")
    for slot, sign in (("X@GRAD", -1.0), ("Y@GRAD", 1.0)):
        if o.has(slot):
            o.call(huber_back, residual, g, o.output(slot), product(residual.shape), o.attrs["delta"], sign)


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(squares, squares_back, smooth_l1, smooth_l1_back, huber, huber_back)


@on_cuda(mean_square)
def mean_square_cuda(x: Ptr, y: Ptr, out: Ptr, n: Int):
    """One thread; the order of the CPU without its chunks."""
    for r in range(1):
        total = 0.0
        for i in range(n):
            d = x[i] - y[i]
            total += d * d
        out[r] = T(total / n)


also_on_cuda(square_error_cost, mse_loss, huber_loss, smooth_l1_loss)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("square_error_cost")
def square_error_cost_onnx(o: Writer) -> None:
    """The square of the difference."""
    gap = o.node("Sub", [o.x("X"), o.x("Y")])
    o.node("Mul", [gap, gap], to="Out")


@in_onnx("mse_loss")
def mse_loss_onnx(o: Writer) -> None:
    """The mean of squared differences."""
    gap = o.node("Sub", [o.x("X"), o.x("Y")])
    mean = o.node("ReduceMean", [o.node("Mul", [gap, gap])], keepdims=0)
    o.node("Reshape", [mean, o.const([*o.out_type().shape])], to="Out")
