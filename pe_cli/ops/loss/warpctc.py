"""warpctc: the cost of labels whose places in a sequence are not known (connectionist temporal classification)."""

# ruff: noqa: C901, PLR0912, PLR0915 - sums over paths are loops in loops
from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, Status, T, helper, kernel
from pe_cli.kernels.math.vector_math import exp, log
from pe_cli.kernels.status_codes import OUT_OF_RANGE, TOO_LONG
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import Indices, LodRequest, fixed, lengths_of, sequence_count
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.onnx import LOSS, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import ReportsData
from pe_cli.ops.sequence.crf import begin_of, length_of

#: Stands for the logarithm of 0; sums with it stay finite.
NEVER = -1e30


@helper
def _either(a, b):
    """Return ln(exp(a) + exp(b))."""
    most = max(a, b)
    if most <= T(NEVER / 2):
        return T(NEVER)
    return most + log(exp(a - most) + exp(b - most))


@helper
def _row(s, t, bounds, high, count):
    """Return the row of step t of sequence s: one after the other, or [time, sequences]."""
    return bounds[s] + t if high == 0 else t * count + s


@helper
def _place(k, label, begin, blank):
    """Return the class of place k: labels with a blank before, between and behind them."""
    # Paths are counted over the labels with blanks between, so that a step stays, goes on or skips a blank.
    return blank if k % 2 == 0 else label[begin + k // 2]


@helper
def _skips(k, label, begin, places):
    """Return whether a path may come to place k over a blank: from another label."""
    return k % 2 == 1 and k >= 3 and k < places and label[begin + k // 2] != label[begin + k // 2 - 1]


@kernel
def ctc(
    x: Ptr, label: PtrI64, bounds: PtrI64, label_bounds: PtrI64, loss: Ptr, dx: Ptr, alpha: Ptr, beta: Ptr, level: Ptr,
    count: Int, high: Int, label_high: Int, n: Int, width: Int, blank: Int, status: Status,
):  # fmt: skip
    """loss[s] = -ln of the probability of all paths of the labels of s, and dx its gradient, 0 in rows that do not count.

    alpha: [rows, width] sums from the front, each row but for its largest; beta: [count, 2, width] from behind; level: ln of the
    sum of every row of x.
    """
    for s in range(count):
        loss[s] = T(0)
        size = length_of(s, bounds, high)
        begin = begin_of(s, label_bounds, label_high)
        labels = length_of(s, label_bounds, label_high)
        long = (high > 0 and (size > high or size < 0)) or (label_high > 0 and (labels > label_high or labels < 0))
        if long:
            status[1] = s
            status[2] = labels if size <= high and size >= 0 else size
            status[3] = label_high if size <= high and size >= 0 else high
            status[0] = TOO_LONG
        wrong = 0
        repeats = 0
        if not long:
            for i in range(labels):
                if label[begin + i] < 0 or label[begin + i] >= n:
                    wrong = 1
                    status[1] = begin + i
                    status[2] = label[begin + i]
                    status[3] = n
                    status[0] = OUT_OF_RANGE
                if i > 0 and label[begin + i] == label[begin + i - 1]:
                    repeats += 1
        for t in range(high if high > 0 else size):
            # Zeros first: rows of padding, and sequences that no path fits, have no gradient.
            for c in range(n):
                dx[_row(s, t, bounds, high, count) * n + c] = T(0)
        # Equal neighbours need a blank between them: with fewer steps than that there is no path at all.
        if not long and not wrong and size > 0 and labels + repeats <= size:
            places = 2 * labels + 1
            total = 0.0
            for t in range(size):
                r = _row(s, t, bounds, high, count)
                # The logarithm of softmax's denominator, with the largest logit taken out so that exp does not overflow.
                most = x[r * n]
                for c in range(1, n):
                    most = max(most, x[r * n + c])
                whole = T(0)
                for c in range(n):
                    whole += exp(x[r * n + c] - most)
                level[r] = most + log(whole)
                before = (_row(s, t - 1, bounds, high, count) if t > 0 else r) * width
                top = T(NEVER)
                for k in range(places):
                    if t == 0:
                        # A path begins with the first blank or with the first label.
                        path = T(0) if k < 2 else T(NEVER)
                    else:
                        path = alpha[before + k]
                        if k > 0:
                            path = _either(path, alpha[before + k - 1])
                        if _skips(k, label, begin, places):
                            path = _either(path, alpha[before + k - 2])
                    # Held at NEVER: sums of impossible steps would run to -inf, and the difference of two of these is NaN.
                    path = max(path + x[r * n + _place(k, label, begin, blank)] - level[r], T(NEVER))
                    alpha[r * width + k] = path
                    top = max(top, path)
                # The largest of a step is taken out of all its paths and added to the total: float32 holds the rest of any length.
                for k in range(places):
                    alpha[r * width + k] = max(alpha[r * width + k] - top, T(NEVER))
                total += top
            last = _row(s, size - 1, bounds, high, count) * width
            # It ends with the last label or with the blank behind it.
            ends = alpha[last + places - 1]
            if places > 1:
                ends = _either(ends, alpha[last + places - 2])
            loss[s] = T(-(total + ends))
            for back in range(size):
                t = size - 1 - back
                r = _row(s, t, bounds, high, count)
                # Two rows by turns: a step needs only the one behind it.
                now = (2 * s + t % 2) * width
                behind = (2 * s + (t + 1) % 2) * width
                after = _row(s, t + 1, bounds, high, count) * n
                top = T(NEVER)
                for k in range(places):  # beta[k]: all ways from place k on, without step t itself
                    if back == 0:
                        path = T(0) if k >= places - 2 else T(NEVER)
                    else:
                        path = beta[behind + k] + x[after + _place(k, label, begin, blank)] - level[after // n]
                        if k + 1 < places:
                            path = _either(path, beta[behind + k + 1] + x[after + _place(k + 1, label, begin, blank)] - level[after // n])
                        if _skips(k + 2, label, begin, places):
                            path = _either(path, beta[behind + k + 2] + x[after + _place(k + 2, label, begin, blank)] - level[after // n])
                    path = max(path, T(NEVER))
                    beta[now + k] = path
                    top = max(top, path)
                most = T(NEVER)
                for k in range(places):
                    beta[now + k] = max(beta[now + k] - top, T(NEVER))
                    most = max(most, alpha[r * width + k] + beta[now + k])
                # Sums are scaled apart for each step, so the step's own sum is what its shares are divided by.
                whole = T(0)
                for k in range(places):
                    whole += exp(alpha[r * width + k] + beta[now + k] - most)
                for c in range(n):
                    dx[r * n + c] = exp(x[r * n + c] - level[r])
                for k in range(places):
                    dx[r * n + _place(k, label, begin, blank)] -= exp(alpha[r * width + k] + beta[now + k] - most) / whole


@kernel
def ctc_back(made: Ptr, g: Ptr, bounds: PtrI64, dx: Ptr, count: Int, high: Int, n: Int, by_times: Int):
    """dx = g[s] made, divided by the steps of s where by_times."""
    for s in range(count):
        size = length_of(s, bounds, high)
        share = g[s] / T(size) if by_times and size > 0 else g[s]
        for t in range(high if high > 0 else size):
            r = _row(s, t, bounds, high, count)
            for c in range(n):
                dx[r * n + c] = share * made[r * n + c]


def _longest(offsets: Indices) -> Indices:
    """Return as many numbers as the longest sequence has rows."""
    return np.zeros(int(lengths_of(offsets).max(initial=0)), np.int64)


_ROWS = {
    "Logits": (10, 4), "Label": fixed([[1], [2], [2], [3]]), "LogitsOffsets": fixed([0, 5, 9, 10]),
    "LabelOffsets": fixed([0, 1, 3, 4]), "Longest": fixed([0, 0]),
}  # fmt: skip
_BLOCK = {
    "Logits": (5, 2, 3), "Label": fixed([[0, 1, 0], [1, 1, 1]]), "LogitsLength": fixed([4, 5]), "LabelLength": fixed([1, 2]),
}  # fmt: skip


@op(
    "warpctc",
    traits=[ReportsData()],
    inputs="Logits Label LogitsLength? LabelLength? LogitsOffsets? LabelOffsets? Longest?",
    outputs="Loss WarpCTCGrad",
    attrs={
        "blank": Attr(0, "class that stands for no label"),
        "norm_by_times": Attr(False, "divide the gradient of every sequence by its steps"),
    },
    differentiable="Logits",
    samples=[
        Sample(_ROWS, name="sequences, one label twice"),
        Sample(_BLOCK, {"blank": 2}, "a block, the last class is blank"),
        Sample({"Logits": (3, 1, 2), "Label": fixed([[1, 1]]), "LogitsLength": fixed([3]), "LabelLength": fixed([0])}, name="no label"),
        Sample(
            {"Logits": (2, 1, 3), "Label": fixed([[1, 1]]), "LogitsLength": fixed([2]), "LabelLength": fixed([2])},
            name="labels that do not fit",
        ),
    ],
)
def warpctc(
    x: TensorType, label: TensorType, x_length: TensorType | None, label_length: TensorType | None,
    x_offsets: TensorType | None, label_offsets: TensorType | None, longest: TensorType | None, *, blank: int, norm_by_times: bool,
) -> tuple[TensorType, TensorType]:  # fmt: skip
    """Measure how unlikely the labels of every sequence are, wherever in it they are.

    Loss = -ln of the sum over all paths of prod_t softmax(Logits[t])[path_t]; a path is one of the labels' if, with classes in a
    row made one and blanks left out, it is the labels. Where a sequence is too short for its labels, Loss and its gradient
    are 0, as in the original.

    Args:
        Logits: [rows, classes] float32 or float64 with sequences; or [time, sequences, classes] with lengths. In nats.
        Label: [labels, 1] int64 with as many sequences; or [sequences, most labels] with lengths.
        LogitsLength: steps of each sequence, int64 [sequences].
        LabelLength: labels of each sequence, int64 [sequences].
        LogitsOffsets: of the sequences of Logits, int64 [sequences + 1].
        LabelOffsets: of the sequences of Label, int64 [sequences + 1].
        Longest: as many numbers as the longest sequence has labels.

    Returns:
        Loss: [sequences, 1], in nats.
        WarpCTCGrad: type of Logits; the gradient of Loss.

    Raises:
        PeError: types that do not fit, or a blank that is no class; while running, a label out of range, or a length above time.

    Source:
        fluid.layers.warpctc; Graves et al. 2006, "Connectionist Temporal Classification".
    """
    del longest, norm_by_times
    block = x_length is not None
    wanted = "[time, sequences, classes] with lengths" if block else "[rows, classes] with sequences"
    if len(x.shape) != (3 if block else 2) or x.dtype not in FLOATS:
        raise PeError(f"warpctc needs Logits {wanted}, got {x}")
    if (label_length is None) == block:
        raise PeError("warpctc needs both LogitsLength and LabelLength, or neither")
    if label.dtype != "int64" or len(label.shape) != 2 or (not block and label.shape[1] != 1):
        raise PeError(f"warpctc needs int64 labels {'[sequences, labels]' if block else '[labels, 1]'}, got {label}", hint="cast them")
    if not 0 <= blank < x.shape[-1]:
        raise PeError(f"warpctc: blank is {blank}, but there are {x.shape[-1]} classes", hint="one of them")
    counts = [x.shape[1], label.shape[0]] if block else [sequence_count(x_offsets), sequence_count(label_offsets)]
    if block:
        for name, length in (("LogitsLength", x_length), ("LabelLength", label_length)):
            assert length is not None
            if length.dtype != "int64":
                raise PeError(f"warpctc needs {name} of type int64, got {length}", hint="cast it")
            counts.append(length.size)
    if len({c for c in counts if c >= 0}) > 1:
        raise PeError(f"warpctc: there are {' and '.join(str(c) for c in counts)} sequences", hint="one of labels for each")
    return x.with_shape(max(counts), 1), x


@warpctc.sequences("LogitsOffsets LabelOffsets Longest")
def warpctc_lod(s: LodRequest) -> None:
    """One number for each sequence."""
    if not s.inputs.get("LogitsLength"):
        s.give("LogitsOffsets", s.offsets("Logits"))
        s.give("LabelOffsets", s.offsets("Label"))
        s.give("Longest", s.derive(_longest, s.offsets("Label")))
        s.out("Loss", *s.need("Logits")[:-1])


@warpctc.lower("cpu")
def warpctc_cpu(o: Lowering) -> None:
    """Sequence by sequence, sums from the front and from behind."""
    x, label, loss = o.input("Logits"), o.input("Label"), o.output("Loss")
    block = o.has("LogitsLength")
    bounds, label_bounds = (o.input(f"{n}{'Length' if block else 'Offsets'}") for n in ("Logits", "Label"))
    high, label_high = (x.shape[0], label.shape[1]) if block else (0, 0)
    count, n = loss.shape[0], x.shape[-1]
    width = 2 * (label_high if block else o.input("Longest").size) + 1
    # The gradient comes with the loss, as in the original: both need the sums from the front.
    made = o.output_or_scratch("WarpCTCGrad", x.size, x.dtype)
    rows = x.size // n
    work = [o.scratch(size, x.dtype) for size in (rows * width, 2 * count * width, rows)]
    o.call(
        ctc, x, label, bounds, label_bounds, loss, made, *work, count, high, label_high, n, width, o.attrs["blank"], STATUS
    )  # fmt: skip


@warpctc.grad(uses="Logits WarpCTCGrad LogitsLength LogitsOffsets").lower("cpu")
def warpctc_grad_cpu(o: Lowering) -> None:
    """What the forward pass found, times the gradient of the loss."""
    made, dx = o.input("WarpCTCGrad"), o.output("Logits@GRAD")
    block = bool(o.inputs("LogitsLength"))
    bounds = o.input("LogitsLength" if block else "LogitsOffsets")
    count = made.shape[1] if block else bounds.size - 1
    high = made.shape[0] if block else 0
    o.call(ctc_back, made, o.input("Loss@GRAD"), bounds, dx, count, high, made.shape[-1], int(o.attrs["norm_by_times"]))


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(ctc, ctc_back)
also_on_cuda(warpctc)
not_in_onnx(LOSS, "warpctc")
