"""Losses of independent yes-or-no labels: sigmoid_cross_entropy_with_logits, bce_loss and log_loss."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, Real, T, helper, kernel
from pe_cli.kernels.math.vector_math import log, sigmoid, softplus
from pe_cli.ops.define.axes import same_sizes
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Compares, InPlace, Says

#: The least logarithm of bce_loss, so that a wrong certainty costs 100 nats and not infinitely many.
LEAST_LOG = -100.0


@helper
def kept_share(label, n, ignored, normalize):
    """Return what a loss is multiplied by: 1, or with normalize 1 / number of labels that are not ignored."""
    # The number of labels is a value: only the kernel can count those that are not ignored.
    if normalize == 0:
        return T(1)
    kept = 0
    for i in range(n):
        kept += label[i] != ignored
    return T(1) / T(max(kept, 1))


@kernel
def sigmoid_loss(x: Ptr, label: Ptr, out: Ptr, n: Int, ignored: Real, normalize: Int):
    """out = softplus(x) - x * label; 0 where the label is ignored."""
    # On CUDA each thread counts for itself, as it cannot wait for others; without normalize there is nothing to count.
    share = kept_share(label, n, ignored, normalize)
    for i in range(n):
        found = softplus(x[i]) - x[i] * label[i]
        out[i] = T(0) if label[i] == ignored else found * share


@kernel
def sigmoid_loss_back(x: Ptr, label: Ptr, g: Ptr, dx: Ptr, n: Int, ignored: Real, normalize: Int):
    """dx = g (sigmoid(x) - label); 0 where the label is ignored; dx may be g."""
    share = kept_share(label, n, ignored, normalize)
    for i in range(n):
        found = (sigmoid(x[i]) - label[i]) * g[i]
        dx[i] = T(0) if label[i] == ignored else found * share


@helper
def bounded_log(p):
    """Return log(p), at least LEAST_LOG; NaN for NaN."""
    found = log(p)
    # Logarithms of 0 are cut off, as an infinite loss would turn every weight into NaN.
    return T(LEAST_LOG) if found < T(LEAST_LOG) else found


@kernel
def bce(x: Ptr, label: Ptr, out: Ptr, n: Int):
    """out = -label log(x) - (1 - label) log(1 - x), with bounded logarithms."""
    for i in range(n):
        out[i] = (label[i] - T(1)) * bounded_log(T(1) - x[i]) - label[i] * bounded_log(x[i])


@kernel
def bce_back(x: Ptr, label: Ptr, g: Ptr, dx: Ptr, n: Int):
    """dx = g (x - label) / (x (1 - x)), with a denominator of at least 1e-12; dx may be g."""
    for i in range(n):
        spread = x[i] * (T(1) - x[i])
        # The original's least denominator.
        dx[i] = g[i] * (x[i] - label[i]) / (T(1e-12) if spread < T(1e-12) else spread)


@kernel
def log_loss_forward(x: Ptr, label: Ptr, out: Ptr, n: Int, epsilon: Real):
    """out = -label log(x + epsilon) - (1 - label) log(1 - x + epsilon)."""
    for i in range(n):
        out[i] = (label[i] - T(1)) * log(T(1) - x[i] + epsilon) - label[i] * log(x[i] + epsilon)


@kernel
def log_loss_back(x: Ptr, label: Ptr, g: Ptr, dx: Ptr, n: Int, epsilon: Real):
    """dx = g ((1 - label) / (1 - x + epsilon) - label / (x + epsilon)); dx may be g."""
    for i in range(n):
        dx[i] = g[i] * ((T(1) - label[i]) / (T(1) - x[i] + epsilon) - label[i] / (x[i] + epsilon))


def _same(name: str, x: TensorType, label: TensorType) -> TensorType:
    if label.dtype != x.dtype or not same_sizes(label.shape, x.shape):
        raise PeError(f"{name} needs labels like its input, {x}, got {label}", hint="cast or reshape the labels")
    return x


def yes_or_no(*shape: int):
    """Return a maker of labels 0 and 1 for samples."""
    return lambda rng: rng.integers(0, 2, shape).astype(np.float64)


def chances(*shape: int):
    """Return a maker of probabilities for samples, away from 0 and 1."""
    return lambda rng: rng.uniform(0.1, 0.9, shape)


def _some_ignored(rng: np.random.Generator) -> np.ndarray:
    return np.array([[1.0, -100.0, 0.0], [0.0, 1.0, -100.0]])


@op(
    "sigmoid_cross_entropy_with_logits",
    faces=[Face("", "x label ignore_index name normalize", "Measure how unlikely each of several independent yes-or-no labels is.")],
    traits=[Compares("X", "Label", Says.LOGITS, several=False)],
    inputs="X Label",
    floats="X",
    attrs={
        "ignore_index": Attr(-100, "label whose elements have loss 0 and gradient 0"),
        "normalize": Attr(False, "divide by the number of labels that are not ignored"),
    },
    differentiable="X",
    samples=[
        Sample({"X": (4, 5), "Label": yes_or_no(4, 5)}, name="yes and no"),
        Sample({"X": (2, 3), "Label": chances(2, 3)}, name="chances as labels"),
        Sample({"X": (2, 3), "Label": _some_ignored}, name="some are ignored"),
        Sample({"X": (2, 3), "Label": _some_ignored}, {"normalize": True}, "divided by those that count"),
        Sample({"X": (1,), "Label": yes_or_no(1)}, name="one element"),
        Sample({"X": (0, 5), "Label": yes_or_no(0, 5)}, {"normalize": True}, name="empty batch"),
    ],
)
def sigmoid_cross_entropy_with_logits(
    x: TensorType, label: TensorType, *, ignore_index: int, normalize: bool
) -> TensorType:
    """Measure how unlikely yes-or-no labels are under the sigmoid of logits.

    Out = ln(1 + exp(X)) - X Label, computed as max(X, 0) - X Label + ln(1 + exp(-|X|)), which does not overflow.

    Args:
        X: any shape, float32 or float64; logits, in nats.
        Label: type of X; chances of yes, from 0 to 1.
        ignore_index: label whose elements have loss 0 and gradient 0.
        normalize: divide by the number of labels on this device that are not ignored.

    Returns:
        Out: type of X; nats.

    Raises:
        PeError: labels of another type or shape.

    Source:
        fluid.layers.sigmoid_cross_entropy_with_logits.
    """
    return _same("sigmoid_cross_entropy_with_logits", x, label)


@sigmoid_cross_entropy_with_logits.lower("cpu")
def sigmoid_cross_entropy_with_logits_cpu(o: Lowering) -> None:
    """One loop, after counting labels where the loss is normalised."""
    x, out = o.input("X"), o.output("Out")
    ignored, normalize = float(o.attrs["ignore_index"]), int(o.attrs["normalize"])
    o.call(sigmoid_loss, x, o.input("Label"), out, product(x.shape), ignored, normalize)


@sigmoid_cross_entropy_with_logits.grad(uses="X Label", traits=[InPlace({"X@GRAD": "Out@GRAD"})]).lower("cpu")
def sigmoid_cross_entropy_with_logits_grad_cpu(o: Lowering) -> None:
    """X' = Out' (sigmoid(X) - Label)."""
    x, dx = o.input("X"), o.output("X@GRAD")
    ignored, normalize = float(o.attrs["ignore_index"]), int(o.attrs["normalize"])
    o.call(sigmoid_loss_back, x, o.input("Label"), o.input("Out@GRAD"), dx, product(x.shape), ignored, normalize)


@op(
    "bce_loss",
    traits=[Compares("X", "Label", Says.PROBABILITIES, several=False)],
    inputs="X Label",
    floats="X",
    differentiable="X",
    samples=[
        Sample({"X": chances(4, 5), "Label": yes_or_no(4, 5)}, name="yes and no"),
        Sample({"X": chances(1), "Label": chances(1)}, name="one element"),
        Sample({"X": chances(0, 5), "Label": yes_or_no(0, 5)}, name="empty batch"),
    ],
)
def bce_loss(x: TensorType, label: TensorType) -> TensorType:
    """Measure how unlikely yes-or-no labels are under given chances.

    Out = -Label ln X - (1 - Label) ln(1 - X), where a logarithm is at least -100.

    Args:
        X: any shape, float32 or float64; chances of yes, from 0 to 1.
        Label: type of X; from 0 to 1.

    Returns:
        Out: type of X; nats.

    Raises:
        PeError: labels of another type or shape.

    Source:
        paddle.nn.functional.binary_cross_entropy.
    """
    return _same("bce_loss", x, label)


@bce_loss.lower("cpu")
def bce_loss_cpu(o: Lowering) -> None:
    """One loop."""
    x = o.input("X")
    o.call(bce, x, o.input("Label"), o.output("Out"), product(x.shape))


@bce_loss.grad(uses="X Label", traits=[InPlace({"X@GRAD": "Out@GRAD"})]).lower("cpu")
def bce_loss_grad_cpu(o: Lowering) -> None:
    """X' = Out' (X - Label) / (X (1 - X))."""
    x = o.input("X")
    o.call(bce_back, x, o.input("Label"), o.input("Out@GRAD"), o.output("X@GRAD"), product(x.shape))


@op(
    "log_loss",
    faces=[Face("", "input label epsilon name", "Measure how unlikely a yes-or-no label is under a given probability.")],
    inputs="Predicted Labels",
    floats="Predicted",
    outputs="Loss",
    attrs={"epsilon": Attr(1e-4, "added to the arguments of the logarithms, no unit")},
    differentiable="Predicted",
    samples=[
        Sample({"Predicted": chances(4, 1), "Labels": yes_or_no(4, 1)}, name="yes and no"),
        Sample({"Predicted": chances(1, 1), "Labels": chances(1, 1)}, name="one element"),
        Sample({"Predicted": chances(0, 1), "Labels": yes_or_no(0, 1)}, name="empty batch"),
    ],
)
def log_loss(predicted: TensorType, labels: TensorType, *, epsilon: float) -> TensorType:
    """Measure how unlikely yes-or-no labels are under given chances, with softened logarithms.

    Loss = -Labels ln(Predicted + epsilon) - (1 - Labels) ln(1 - Predicted + epsilon)

    Args:
        Predicted: [batch, 1] (any shape) float32 or float64; chances of yes, from 0 to 1.
        Labels: type of Predicted; from 0 to 1.
        epsilon: keeps the loss of a wrong certainty finite.

    Returns:
        Loss: type of Predicted; nats.

    Raises:
        PeError: labels of another type or shape.

    Source:
        fluid.layers.log_loss.
    """
    return _same("log_loss", predicted, labels)


@log_loss.lower("cpu")
def log_loss_cpu(o: Lowering) -> None:
    """One loop."""
    x = o.input("Predicted")
    o.call(log_loss_forward, x, o.input("Labels"), o.output("Loss"), product(x.shape), o.attrs["epsilon"])


@log_loss.grad(uses="Predicted Labels", traits=[InPlace({"Predicted@GRAD": "Loss@GRAD"})]).lower("cpu")
def log_loss_grad_cpu(o: Lowering) -> None:
    """One loop."""
    x, dx = o.input("Predicted"), o.output("Predicted@GRAD")
    o.call(log_loss_back, x, o.input("Labels"), o.input("Loss@GRAD"), dx, product(x.shape), o.attrs["epsilon"])


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(bce, bce_back, log_loss_forward, log_loss_back, sigmoid_loss, sigmoid_loss_back)
also_on_cuda(sigmoid_cross_entropy_with_logits, bce_loss, log_loss)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy_onnx(o: Writer) -> None:
    """max(X, 0) - X Label + log(1 + exp(-|X|)); 0 where ignored."""
    x, label = o.x("X"), o.x("Label")
    high = o.node("Relu", [x])
    tail = o.node("Softplus", [o.node("Neg", [o.node("Abs", [x])])])
    found = o.node("Add", [o.node("Sub", [high, o.node("Mul", [x, label])]), tail])
    ignored = o.node("Equal", [label, o.const(o.attrs["ignore_index"], "Label")])
    if not o.attrs["normalize"]:
        o.node("Where", [ignored, o.const(0.0, "X"), found], to="Out")
        return
    kept = o.node("Cast", [o.node("Not", [ignored])], to_=element_type(o.type().dtype))
    count = o.node("Max", [o.node("ReduceSum", [kept], keepdims=0), o.const(1.0, "X")])
    o.node("Div", [o.node("Where", [ignored, o.const(0.0, "X"), found]), count], to="Out")
