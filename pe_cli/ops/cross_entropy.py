"""Cross entropy of classes: of probabilities (cross_entropy) and, fused with softmax, of logits (softmax_with_cross_entropy)."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.lang import Int, Ptr, PtrI64, Status, T, helper, kernel
from pe_cli.kernels.vecmath import exp, log
from pe_cli.ops.lowering import STATUS, Buffer, Lowering
from pe_cli.ops.registry import Attr, Sample, op
from pe_cli.ops.softmax import CHUNK, around, larger, lower_softmax_back, normal_axis, row_exp, row_max
from pe_cli.ops.status import OUT_OF_RANGE

#: The loss of a probability of 0, as fluid has it: finite, so that one sample does not make the mean infinite.
LARGEST_LOSS = 1e20


@helper
def report(status, row, value, limit):
    """Write an error report, its code last."""
    status[1] = row
    status[2] = value
    status[3] = limit
    status[0] = OUT_OF_RANGE


@helper
def negative_log(p):
    """Return -log(p), at most LARGEST_LOSS; NaN for NaN."""
    loss = -log(p)
    return T(LARGEST_LOSS) if loss > T(LARGEST_LOSS) else loss


# --- cross_entropy ----------------------------------------------------------------------------------------------------


@kernel
def pick_loss(x: Ptr, label: PtrI64, y: Ptr, rows: Int, n: Int, ignored: Int, first: Int, status: Status):
    """y[r] = -log(x[r, label[r]]); 0 where the label is ignored."""
    for r in range(rows):
        k = label[r]
        if k == ignored:
            y[r] = T(0)
        elif k < 0 or k >= n:
            report(status, first + r, k, n)
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
            dx[j] = T(0) if label[j] == T(0) else -g[r] * label[j] / x[j]


_SOFT = Attr(False, "labels are probabilities of the shape of the input, not class numbers")
_IGNORE = Attr(-100, "class number whose rows have loss 0 and gradient 0")


def classes(low: int, high: int, *shape: int):
    """Return a maker of class numbers for samples."""
    return lambda rng: rng.integers(low, high, shape, dtype=np.int64)


def probabilities(*shape: int):
    """Return a maker of probabilities for samples, none of them tiny."""

    def make(rng: np.random.Generator) -> np.ndarray:
        p = rng.uniform(0.2, 1.0, shape)
        return p / p.sum(-1, keepdims=True)

    return make


def _some_ignored(rng: np.random.Generator) -> np.ndarray:
    return np.array([[2], [-100], [0], [-100]], np.int64)


def label_rows(name: str, x: TensorType, label: TensorType, axis: int, soft: bool) -> TensorType:
    """Return the type of a loss with one number per row, after checking the labels.

    Raises:
        PeError: labels of the wrong element type or shape.
    """
    axis = normal_axis(name, x, axis)
    loss = x.with_shape(*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if soft:
        if label.dtype != x.dtype or not same_sizes(label.shape, x.shape):
            raise PeError(f"{name} with soft_label needs labels like its input, {x}, got {label}")
        return loss
    if label.dtype != "int64":
        hint = "set soft_label: true" if label.dtype == x.dtype and same_sizes(label.shape, x.shape) else "cast it to int64"
        raise PeError(f"{name} needs class numbers of type int64, got labels {label}", hint=hint)
    short = (*x.shape[:axis], *x.shape[axis + 1 :])
    if not same_sizes(label.shape, loss.shape) and not same_sizes(label.shape, short):
        raise PeError(
            f"{name} needs one class number per row, {loss.with_shape(*loss.shape)}, got labels {label}",
            hint=f"reshape the labels to {['batch' if s < 0 else s for s in loss.shape]}",
        )
    return loss


def same_sizes(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Return whether two shapes may be the same; a size that is not known yet fits every other."""
    return len(a) == len(b) and all(s == t or -1 in (s, t) for s, t in zip(a, b, strict=True))


def first_row(o: Lowering, rows: int, samples: int) -> int:
    """Return the number of the device's first row in the whole batch."""
    return o.sample_offset * (rows // samples) if samples else 0


@op(
    "cross_entropy",
    inputs="X Label",
    outputs="Y",
    attrs={"soft_label": _SOFT, "ignore_index": _IGNORE},
    differentiable="X",
    samples=[
        Sample({"X": probabilities(4, 7), "Label": classes(0, 7, 4, 1)}, name="class numbers"),
        Sample({"X": probabilities(4, 3), "Label": _some_ignored}, name="two of four rows are ignored"),
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
    """One logarithm a row, or one an element."""
    x, label, y = o.input("X"), o.input("Label"), o.output("Y")
    rows, n, _ = around(x.shape, -1)
    if o.attrs["soft_label"]:
        o.call(soft_loss, x, label, y, rows, n)
    else:
        o.call(pick_loss, x, label, y, rows, n, o.attrs["ignore_index"], first_row(o, rows, x.shape[0]), STATUS)


@cross_entropy.grad(uses="X Label").lower("cpu")
def cross_entropy_grad_cpu(o: Lowering) -> None:
    """X' = -Y' / X at the label."""
    x, label, g, dx = o.input("X"), o.input("Label"), o.input("Y@GRAD"), o.output("X@GRAD")
    rows, n, _ = around(x.shape, -1)
    if o.attrs["soft_label"]:
        o.call(soft_loss_back, x, label, g, dx, rows, n)
    else:
        o.call(pick_loss_back, x, label, g, dx, rows, n, o.attrs["ignore_index"])


# --- softmax_with_cross_entropy ---------------------------------------------------------------------------------------


@kernel
def softmax_loss(
    x: Ptr, label: PtrI64, p: Ptr, loss: Ptr, rows: Int, n: Int, ignored: Int, first: Int, status: Status
):
    """Probabilities and loss of contiguous rows in one pass; p may be x."""
    for r in range(rows):
        k = label[r]
        at = r * n
        if k != ignored and (k < 0 or k >= n):
            report(status, first + r, k, n)
            return
        m = row_max(x, at, n)
        picked = T(0) if k == ignored else x[at + k] - m
        total = T(row_exp(x, p, at, n, m))
        loss[r] = T(0) if k == ignored else log(total) - picked
        share = T(1) / total
        for j in range(at, at + n):
            p[j] *= share


@kernel
def softmax_loss_back(p: Ptr, label: PtrI64, g: Ptr, dx: Ptr, rows: Int, n: Int, ignored: Int):
    """dx = g (p - 1 at the label) on contiguous rows, 0 where ignored; dx may be p."""
    for r in range(rows):
        k = label[r]
        at = r * n
        if k == ignored or k < 0 or k >= n:
            for j in range(at, at + n):
                dx[j] = T(0)
        else:
            share = g[r]
            for j in range(at, at + n):
                dx[j] = share * p[j]
            dx[at + k] -= share


@kernel
def softmax_loss_strided(
    x: Ptr, label: PtrI64, target: Ptr, p: Ptr, loss: Ptr, outer: Int, n: Int, inner: Int, soft: Int, ignored: Int,
    first: Int, status: Status,
):
    """The same over the middle axis of [outer, n, inner], and with soft labels (target)."""
    for r in range(outer * inner):
        at = r // inner * n * inner + r % inner
        k = ignored if soft else label[r]
        if k != ignored and (k < 0 or k >= n):
            report(status, first + r, k, n)
            return
        m = x[at]
        for j in range(1, n):
            m = larger(m, x[at + j * inner])
        total = 0.0
        for j in range(n):
            total += exp(x[at + j * inner] - m)
        level = m + log(T(total))
        found = 0.0
        if soft:
            for j in range(n):
                t = target[at + j * inner]
                found += T(0) if t == T(0) else t * (level - x[at + j * inner])
        elif k != ignored:
            found += level - x[at + k * inner]
        loss[r] = T(found)
        for j in range(n):
            p[at + j * inner] = exp(x[at + j * inner] - level)


@kernel
def softmax_loss_strided_back(
    p: Ptr, label: PtrI64, target: Ptr, g: Ptr, dx: Ptr, outer: Int, n: Int, inner: Int, soft: Int, ignored: Int
):
    """The same over the middle axis; with soft labels dx = g (p sum(target) - target)."""
    for r in range(outer * inner):
        at = r // inner * n * inner + r % inner
        k = ignored if soft else label[r]
        weight = T(0)
        if soft:
            for j in range(n):
                weight += target[at + j * inner]
        elif k != ignored and k >= 0 and k < n:
            weight = T(1)
        for j in range(n):
            i = at + j * inner
            t = target[i] if soft else T(0)
            dx[i] = T(0) if not soft and k == ignored else g[r] * (p[i] * weight - t)
        if not soft and weight == T(1):
            dx[at + k * inner] -= g[r]


@kernel
def add_to(x: Ptr, out: Ptr, n: Int):
    """out += x."""
    for i in range(n):
        out[i] += x[i]


@op(
    "softmax_with_cross_entropy",
    inputs="Logits Label",
    outputs="Loss Softmax",
    attrs={
        "soft_label": _SOFT,
        "ignore_index": _IGNORE,
        "numeric_stable_mode": Attr(True, "accepted for fluid's sake; the stable formula is always used"),
        "axis": Attr(-1, "axis whose elements are the classes"),
    },
    differentiable="Logits",
    inplace={"Softmax": "Logits"},
    samples=[
        Sample({"Logits": (4, 7), "Label": classes(0, 7, 4, 1)}, name="class numbers"),
        Sample({"Logits": (4, 3), "Label": _some_ignored}, name="two of four rows are ignored"),
        Sample({"Logits": (1, 1), "Label": classes(0, 1, 1, 1)}, name="one class"),
        Sample({"Logits": (3, 5), "Label": probabilities(3, 5)}, {"soft_label": True}, "soft labels"),
        Sample({"Logits": (3, 5), "Label": (3, 5)}, {"soft_label": True}, "soft labels that do not sum to one"),
        Sample({"Logits": (2, 5, 3), "Label": classes(0, 5, 2, 1, 3)}, {"axis": 1}, "classes on the middle axis"),
        Sample({"Logits": (0, 5), "Label": classes(0, 5, 0, 1)}, name="empty batch"),
    ],
)
def softmax_with_cross_entropy(
    logits: TensorType, label: TensorType, *, soft_label: bool, ignore_index: int, numeric_stable_mode: bool, axis: int
) -> tuple[TensorType, TensorType]:
    """Measure how unlikely the labels are under the softmax of logits, in one pass.

    Loss = ln sum_j exp(Logits_j) - Logits[Label];  with soft_label Loss = sum_j Label_j (ln sum_k exp(Logits_k) - Logits_j).
    The logits are taken relative to their maximum, so that large ones neither overflow nor lose the loss.

    Args:
        Logits: [batch, ..., classes] float32 or float64; in nats.
        Label: the shape of Logits with 1 on the class axis, int64 class numbers from 0; with soft_label the type of Logits.
        soft_label: see Label.
        ignore_index: class number whose rows have loss 0 and gradient 0.
        axis: whose elements are the classes.

    Returns:
        Loss: the shape of Logits with 1 on the class axis; nats.
        Softmax: type of Logits; probabilities.

    Raises:
        PeError: labels of another type or shape; while running, a class number that is not in [0, classes).

    Source:
        fluid.layers.softmax_with_cross_entropy.
    """
    return label_rows("softmax_with_cross_entropy", logits, label, axis, soft_label), logits


@softmax_with_cross_entropy.lower("cpu")
def softmax_with_cross_entropy_cpu(o: Lowering) -> None:
    """Rows in vectors; soft labels and other axes one by one."""
    x, label, p, loss = o.input("Logits"), o.input("Label"), _softmax_of(o), o.output("Loss")
    outer, n, inner = around(x.shape, o.attrs["axis"])
    soft, ignored = o.attrs["soft_label"], o.attrs["ignore_index"]
    first = first_row(o, outer * inner, x.shape[0])
    if inner == 1 and not soft:
        o.call(softmax_loss, x, label, p, loss, outer, n, ignored, first, STATUS)
    else:
        target = label if soft else x
        o.call(softmax_loss_strided, x, label, target, p, loss, outer, n, inner, int(soft), ignored, first, STATUS)


def _softmax_of(o: Lowering) -> Buffer:
    if o.has("Softmax"):
        return o.output("Softmax")
    x = o.input("Logits")
    return o.scratch(product(x.shape), x.dtype)


@softmax_with_cross_entropy.grad(uses="Label Softmax", inplace={"Logits@GRAD": "Softmax"}).lower("cpu")
def softmax_with_cross_entropy_grad_cpu(o: Lowering) -> None:
    """Logits' = Loss' (Softmax - one at the label), plus the gradient through Softmax where something else reads it."""
    label, p, dx = o.input("Label"), o.input("Softmax"), o.output("Logits@GRAD")
    outer, n, inner = around(p.shape, o.attrs["axis"])
    soft, ignored = o.attrs["soft_label"], o.attrs["ignore_index"]
    if not o.has("Loss@GRAD"):
        lower_softmax_back(o, p, o.input("Softmax@GRAD"), dx)
        return
    g = o.input("Loss@GRAD")
    rest = o.scratch(product(p.shape), p.dtype) if o.has("Softmax@GRAD") else None
    if rest:
        lower_softmax_back(o, p, o.input("Softmax@GRAD"), rest)  # before dx takes over p's memory
    if inner == 1 and not soft:
        o.call(softmax_loss_back, p, label, g, dx, outer, n, ignored)
    else:
        o.call(softmax_loss_strided_back, p, label, label if soft else p, g, dx, outer, n, inner, int(soft), ignored)
    if rest:
        o.call(add_to, rest, dx, product(dx.shape))
