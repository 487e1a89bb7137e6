"""softmax_with_cross_entropy: how unlikely class labels are under logits, in one pass with their softmax."""

from __future__ import annotations

from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cpu.non_temporal import is_large
from pe_cli.kernels.language import Int, Ptr, PtrI64, Real, Status, T, kernel
from pe_cli.kernels.math.vector_math import exp, log
from pe_cli.ops.define.axes import around
from pe_cli.ops.define.label_checks import classes, per_sample, report
from pe_cli.ops.define.lowering import STATUS, Buffer, Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Compares, InPlace, ReportsData, Says
from pe_cli.ops.loss.cross_entropy import IGNORE, SOFT, label_rows, probabilities, some_ignored
from pe_cli.ops.loss.labels_onnx import picked
from pe_cli.ops.nn.softmax import larger, lower_softmax_back, row_exp, row_max


@kernel
def softmax_loss(
    x: Ptr, label: PtrI64, p: Ptr, loss: Ptr, rows: Int, n: Int, ignored: Int, per: Int, status: Status
):
    """Probabilities and loss of contiguous rows in one pass; p may be x."""
    ahead = is_large(rows * n)
    for r in range(rows):
        k = label[r]
        at = r * n
        # The kernel stops at the first bad label: the step fails, and nothing behind it is read.
        if k != ignored and (k < 0 or k >= n):
            report(status, r // per, k, n)
            return
        # exp of the difference to the largest logit cannot overflow; the loss needs no exp of the label's own.
        m = row_max(x, at, n)
        picked = T(0) if k == ignored else x[at + k] - m
        total = T(row_exp(x, p, at, n, m, ahead))
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
    per: Int, status: Status,
):
    """The same over the middle axis of [outer, n, inner], and with soft labels (target)."""
    for r in range(outer * inner):
        at = r // inner * n * inner + r % inner
        k = ignored if soft else label[r]
        if k != ignored and (k < 0 or k >= n):
            report(status, r // per, k, n)
            return
        m = x[at]
        for j in range(1, n):
            m = larger(m, x[at + j * inner])
        # Over another axis a row's numbers lie apart, so there is no vector to fill; float64 keeps the sum's digits.
        total = 0.0
        for j in range(n):
            total += exp(x[at + j * inner] - m)
        level = m + log(T(total))
        found = 0.0
        if soft:
            for j in range(n):
                t = target[at + j * inner]
                # 0 times an infinite loss would be NaN, but an impossible class that is not wanted costs nothing.
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
def limit_loss(p: Ptr, label: PtrI64, target: Ptr, loss: Ptr, outer: Int, n: Int, inner: Int, soft: Int, ignored: Int, limit: Real):
    """Let logits count as no further below the largest one of their row than limit; of probabilities over the middle axis."""
    for r in range(outer * inner):
        at = r // inner * n * inner + r % inner
        # A loss below the limit has no logit beyond it, so that most rows need nothing.
        if soft or loss[r] > T(limit):
            most = p[at]
            least = p[at]
            for j in range(1, n):
                most = larger(most, p[at + j * inner])
                least = -larger(-least, -p[at + j * inner])
            # The largest logit's probability is one by the sum of all exponentials.
            bound = T(limit) - log(most)
            if soft:
                if least < exp(-bound):
                    found = 0.0
                    for j in range(n):
                        found += target[at + j * inner] * -larger(-bound, log(p[at + j * inner]))
                    loss[r] = T(found)
            elif label[r] != ignored:
                loss[r] = -larger(-loss[r], -bound)


@kernel
def add_to(x: Ptr, out: Ptr, n: Int):
    """out += x."""
    for i in range(n):
        out[i] += x[i]


@op(
    "softmax_with_cross_entropy",
    traits=[ReportsData(), InPlace({"Softmax": "Logits"}), Compares("Logits", "Label", Says.LOGITS)],
    inputs="Logits Label",
    outputs="Loss Softmax",
    attrs={
        "soft_label": SOFT,
        "ignore_index": IGNORE,
        "numeric_stable_mode": Attr(True, "accepted for fluid's sake; the stable formula is always used"),
        "axis": Attr(-1, "axis whose elements are the classes"),
        "limit": Attr(0.0, "on CPUs a logit counts as no further below the largest one than this, in nats, for the loss; 0: no limit"),
    },
    differentiable="Logits",
    samples=[
        Sample({"Logits": (4, 7), "Label": classes(0, 7, 4, 1)}, name="class numbers"),
        Sample({"Logits": (4, 3), "Label": some_ignored}, name="two of four rows are ignored"),
        Sample({"Logits": (1, 1), "Label": classes(0, 1, 1, 1)}, name="one class"),
        Sample({"Logits": (3, 5), "Label": probabilities(3, 5)}, {"soft_label": True}, "soft labels"),
        Sample({"Logits": (3, 5), "Label": (3, 5)}, {"soft_label": True}, "soft labels that do not sum to one"),
        Sample({"Logits": (2, 5, 3), "Label": classes(0, 5, 2, 1, 3)}, {"axis": 1}, "classes on the middle axis"),
        Sample({"Logits": (4, 7), "Label": classes(0, 7, 4, 1)}, {"limit": 64.0}, "a limit that no logit comes to"),
        Sample({"Logits": (3, 5), "Label": probabilities(3, 5)}, {"soft_label": True, "limit": 64.0}, "soft labels with such a limit"),
        Sample({"Logits": (0, 5), "Label": classes(0, 5, 0, 1)}, name="empty batch"),
    ],
)
def softmax_with_cross_entropy(
    logits: TensorType, label: TensorType, *, soft_label: bool, ignore_index: int, numeric_stable_mode: bool, axis: int, limit: float
) -> tuple[TensorType, TensorType]:
    """Measure how unlikely the labels are under the softmax of logits, in one pass.

    Loss = ln sum_j exp(Logits_j) - Logits[Label];
    with soft_label Loss = sum_j Label_j (ln sum_k exp(Logits_k) - Logits_j).
    The logits are taken relative to their maximum, so that large ones neither overflow nor lose the loss.

    Args:
        Logits: [batch, ..., classes] float32 or float64; in nats.
        Label: the shape of Logits with 1 on the class axis, int64 class numbers from 0; with soft_label type of Logits.
        soft_label: see Label.
        ignore_index: class number whose rows have loss 0 and gradient 0.
        axis: whose elements are the classes.
        limit: nats; on CPUs a loss is at most so much and ln sum_j exp(Logits_j - max Logits), its gradient as without it.

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
    per = per_sample(outer * inner, x.shape)
    if inner == 1 and not soft:
        o.call(softmax_loss, x, label, p, loss, outer, n, ignored, per, STATUS)
    else:
        target = label if soft else x
        o.call(softmax_loss_strided, x, label, target, p, loss, outer, n, inner, int(soft), ignored, per, STATUS)
    # The limit is that of another library's processors: its GPUs have none.
    if o.attrs["limit"] and o.place == "cpu":
        o.call(limit_loss, p, label, label if soft else p, loss, outer, n, inner, int(soft), ignored, o.attrs["limit"])


def _softmax_of(o: Lowering) -> Buffer:
    if o.has("Softmax"):
        return o.output("Softmax")
    x = o.input("Logits")
    return o.scratch(product(x.shape), x.dtype)


@softmax_with_cross_entropy.grad(uses="Label Softmax", traits=[InPlace({"Logits@GRAD": "Softmax"})]).lower("cpu")
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


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("softmax_with_cross_entropy")
def softmax_with_cross_entropy_onnx(o: Writer) -> None:
    """By the logarithm of softmax."""
    axis = o.attrs["axis"]
    logs = o.node("LogSoftmax", [o.x("Logits")], axis=axis)
    if o.wanted("Softmax"):
        o.node("Softmax", [o.x("Logits")], to="Softmax", axis=axis)
    if o.attrs["soft_label"]:
        product = o.node("Mul", [o.x("Label"), logs])
        o.node("Neg", [o.node("ReduceSum", [product, o.const([axis])], keepdims=1)], to="Loss")
    else:
        o.node("Identity", [picked(o, logs, o.x("Label"), axis)], to="Loss")
