"""cross_entropy: how unlikely class labels are under given probabilities; and checks that losses of classes share."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError, WrongType
from pe_cli.core.types import FLOATS, TensorType, check_kind
from pe_cli.kernels.cuda.block_sums import claim
from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.cuda.math import quotient, replaces
from pe_cli.kernels.language import Int, Ptr, PtrI64, Status, T, helper, kernel
from pe_cli.kernels.math.partial_sums import CHUNK
from pe_cli.kernels.math.vector_math import log
from pe_cli.kernels.status_codes import OUT_OF_RANGE
from pe_cli.ops.define.axes import around, axis_with_elements, same_sizes
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.label_checks import classes, per_sample, report
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Compares, ReportsData, Says
from pe_cli.ops.loss.labels_onnx import picked

#: The loss of a probability of 0, as fluid has it: finite, so that one sample does not make the mean infinite.
LARGEST_LOSS = 1e20




@helper
def negative_log(p):
    """Return -log(p), at most LARGEST_LOSS; NaN for NaN."""
    loss = -log(p)
    return T(LARGEST_LOSS) if loss > T(LARGEST_LOSS) else loss


@kernel
def pick_loss(x: Ptr, label: PtrI64, y: Ptr, rows: Int, n: Int, ignored: Int, per: Int, status: Status):
    """y[r] = -log(x[r, label[r]]); 0 where the label is ignored."""
    for r in range(rows):
        k = label[r]
        if k == ignored:
            y[r] = T(0)
        elif k < 0 or k >= n:
            report(status, r // per, k, n)
            return
        else:
            y[r] = negative_log(x[r * n + k])


@kernel
def pick_loss_back(x: Ptr, label: PtrI64, g: Ptr, dx: Ptr, rows: Int, n: Int, ignored: Int):
    """dx = -g / x at the label, 0 elsewhere."""
    for i in range(rows * n):
        dx[i] = T(0)
    for r in range(rows):
        k = label[r]
        if k != ignored and k >= 0 and k < n:
            dx[r * n + k] = -g[r] / x[r * n + k]


@kernel
def soft_loss(x: Ptr, label: Ptr, y: Ptr, rows: Int, n: Int):
    """y[r] = -sum_j label[r, j] log(x[r, j]); a label of 0 adds 0."""
    for r in range(rows):
        total = 0.0
        for begin in range(0, n, CHUNK):
            # Parts in the element type fill vectors; their total in float64 keeps the digits over many classes.
            part = T(0)
            for j in range(r * n + begin, r * n + min(n, begin + CHUNK)):
                part += T(0) if label[j] == T(0) else label[j] * negative_log(x[j])
            total += part
        y[r] = T(total)


@kernel
def soft_loss_back(x: Ptr, label: Ptr, g: Ptr, dx: Ptr, rows: Int, n: Int):
    """dx = -g label / x."""
    for r in range(rows):
        for j in range(r * n, r * n + n):
            # A class of probability 0 that is not wanted would give 0 / 0.
            dx[j] = T(0) if label[j] == T(0) else -g[r] * label[j] / x[j]


SOFT = Attr(False, "labels are probabilities of the shape of the input, not class numbers")
IGNORE = Attr(-100, "class number whose rows have loss 0 and gradient 0")




def probabilities(*shape: int):
    """Return a maker of probabilities for samples, none of them tiny."""

    def make(rng: np.random.Generator):
        p = rng.uniform(0.2, 1.0, shape)
        return p / p.sum(-1, keepdims=True)

    return make


def some_ignored(rng: np.random.Generator) -> np.ndarray:
    """Make four class numbers below 3 for samples, two of them ignored."""
    return np.array([[2], [-100], [0], [-100]], np.int64)


def label_rows(name: str, x: TensorType, label: TensorType, axis: int, soft: bool) -> TensorType:
    """Return the type of a loss with one number per row, after checking the labels.

    Raises:
        PeError: labels of the wrong element type or shape.
    """
    if x.dtype == "int64" and label.dtype in FLOATS:
        raise WrongType(f"{name} needs scores of floats, got {x}", hint="the scores and the labels look exchanged")
    check_kind(name, x)
    axis = axis_with_elements(name, x, axis)
    loss = x.with_shape(*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if soft:
        if label.dtype != x.dtype or not same_sizes(label.shape, x.shape):
            raise PeError(f"{name} with soft_label needs labels like its input, {x}, got {label}")
        return loss
    if label.dtype != "int64":
        soft_fits = label.dtype == x.dtype and same_sizes(label.shape, x.shape)
        hint = "set soft_label: true" if soft_fits else "declare the feed with dtype: int64, or cast it to int64"
        raise PeError(f"{name} needs class numbers of type int64, got labels {label}", hint=hint)
    short = (*x.shape[:axis], *x.shape[axis + 1 :])
    if not same_sizes(label.shape, loss.shape) and not same_sizes(label.shape, short):
        raise PeError(
            f"{name} needs one class number per row, got labels {label}",
            hint=f"reshape the labels to {['batch' if s < 0 else s for s in loss.shape]}",
        )
    return loss




@op(
    "cross_entropy",
    faces=[Face("", "input label soft_label ignore_index", "Measure how unlikely the label is under given probabilities.")],
    traits=[Compares("X", "Label", Says.PROBABILITIES), ReportsData()],
    inputs="X Label",
    outputs="Y",
    attrs={"soft_label": SOFT, "ignore_index": IGNORE},
    differentiable="X",
    samples=[
        Sample({"X": probabilities(4, 7), "Label": classes(0, 7, 4, 1)}, name="class numbers"),
        Sample({"X": probabilities(4, 3), "Label": some_ignored}, name="two of four rows are ignored"),
        Sample({"X": probabilities(2, 3, 5), "Label": classes(0, 5, 2, 3, 1)}, name="rows on two axes"),
        Sample({"X": probabilities(3, 5), "Label": probabilities(3, 5)}, {"soft_label": True}, "soft labels"),
        Sample({"X": probabilities(0, 5), "Label": classes(0, 5, 0, 1)}, name="empty batch"),
    ],
)
def cross_entropy(x: TensorType, label: TensorType, *, soft_label: bool, ignore_index: int) -> TensorType:
    """Measure how unlikely the labels are under given probabilities.

    Y = -ln X[Label];  with soft_label Y = -sum_j Label_j ln X_j.  A probability of 0 gives 1e20, as in fluid.

    Args:
        X: [batch, ..., classes] float32 or float64; probabilities.
        Label: [batch, ..., 1] int64 class numbers from 0; with soft_label the type of X, probabilities.
        soft_label: see Label.
        ignore_index: class number whose rows have loss 0 and gradient 0.

    Returns:
        Y: [batch, ..., 1] element type of X; nats.

    Raises:
        PeError: labels of another type or shape; while running, a class number that is not in [0, classes).

    Source:
        fluid.layers.cross_entropy.
    """
    return label_rows("cross_entropy", x, label, -1, soft_label)


@cross_entropy.lower("cpu")
def cross_entropy_cpu(o: Lowering) -> None:
    """One logarithm per row, or one per element."""
    x, label, y = o.input("X"), o.input("Label"), o.output("Y")
    rows, n, _ = around(x.shape, -1)
    if o.attrs["soft_label"]:
        o.call(soft_loss, x, label, y, rows, n)
    else:
        o.call(pick_loss, x, label, y, rows, n, o.attrs["ignore_index"], per_sample(rows, x.shape), STATUS)


@cross_entropy.grad(uses="X Label").lower("cpu")
def cross_entropy_grad_cpu(o: Lowering) -> None:
    """X' = -Y' / X at the label."""
    x, label, g, dx = o.input("X"), o.input("Label"), o.input("Y@GRAD"), o.output("X@GRAD")
    rows, n, _ = around(x.shape, -1)
    if o.attrs["soft_label"]:
        o.call(soft_loss_back, x, label, g, dx, rows, n)
    else:
        o.call(pick_loss_back, x, label, g, dx, rows, n, o.attrs["ignore_index"])


# --- CUDA -------------------------------------------------------------------------------------------------------------


@replaces(report)
def _report(status, row, value, limit):
    if claim(status, OUT_OF_RANGE) == 0:  # of several bad rows, one reports
        status[1] = row
        status[2] = value
        status[3] = limit


deal(pick_loss, soft_loss, soft_loss_back)


@on_cuda(pick_loss_back)
def pick_loss_back_cuda(x: Ptr, label: PtrI64, g: Ptr, dx: Ptr, rows: Int, n: Int, ignored: Int):
    """One thread per element."""
    for i in range(rows * n):
        row = quotient(i, n)
        k = label[row]
        # Zero or gradient in one store: threads that clear first and pick later could clear what another one has picked.
        dx[i] = -g[row] / x[i] if k == i - row * n and k != ignored else T(0)


also_on_cuda(cross_entropy)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("cross_entropy")
def cross_entropy_onnx(o: Writer) -> None:
    """-log of the probability at the label."""
    logs = o.node("Log", [o.x("X")])
    if o.attrs["soft_label"]:
        product = o.node("Mul", [o.x("Label"), logs])
        o.node("Neg", [o.node("ReduceSum", [product, o.const([-1])], keepdims=1)], to="Y")
    else:
        o.node("Identity", [picked(o, logs, o.x("Label"), -1)], to="Y")
