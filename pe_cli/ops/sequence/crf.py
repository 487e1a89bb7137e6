"""linear_chain_crf and crf_decoding: tags of every sequence that depend on their neighbours'."""

# ruff: noqa: C901, PLR0912 - sums over pairs of tags are loops in loops
from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import cuda_kernel, deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, Status, T, helper, kernel
from pe_cli.kernels.math.vector_math import exp, log
from pe_cli.kernels.status_codes import OUT_OF_RANGE, TOO_LONG
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import LodRequest, fixed, sequence_count
from pe_cli.ops.define.lowering import STATUS, Buffer, Lowering
from pe_cli.ops.define.onnx import LOSS, not_in_onnx
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.traits import ReportsData, Spells, TagsRows


@helper
def begin_of(s, bounds, high):
    """Return the first row of sequence s: of offsets where high is 0, else of blocks of so many rows."""
    return bounds[s] if high == 0 else s * high


@helper
def length_of(s, bounds, high):
    """Return the rows of sequence s."""
    return bounds[s + 1] - bounds[s] if high == 0 else bounds[s]


@helper
def spread(values, at, n):
    """Return ln sum exp of n numbers."""
    most = values[at]
    # The largest goes out of the sum first: exp of a score of some hundreds overflows.
    for k in range(1, n):
        most = max(most, values[at + k])
    total = T(0)
    for k in range(n):
        total += exp(values[at + k] - most)
    return most + log(total)


@kernel
def crf_forward(
    x: Ptr, w: Ptr, label: PtrI64, bounds: PtrI64, out: Ptr, alpha: Ptr, row: Ptr, count: Int, high: Int, n: Int,
    status: Status,
):
    """out[s] = ln Z - score of the labels; alpha[r, k] = ln of the sum over all tags before r, with tag k there.

    w: [start, end, transitions from each tag]; row holds n numbers for each sequence.
    """
    for s in range(count):
        begin = begin_of(s, bounds, high)
        size = length_of(s, bounds, high)
        out[s] = T(0)
        if high > 0 and (size > high or size < 0):
            status[1] = s
            status[2] = size
            status[3] = high
            status[0] = TOO_LONG
            return
        score = T(0)
        # Rows forward: `alpha` of a row is made of that of the row before.
        for t in range(size):
            r = (begin + t) * n
            tag = label[begin + t]
            if tag < 0 or tag >= n:
                status[1] = begin + t
                status[2] = tag
                status[3] = n
                status[0] = OUT_OF_RANGE
                return
            score += x[r + tag] + (w[tag] if t == 0 else w[(2 + label[begin + t - 1]) * n + tag])
            for k in range(n):
                if t == 0:
                    alpha[r + k] = w[k] + x[r + k]
                else:
                    for i in range(n):
                        row[s * n + i] = alpha[r - n + i] + w[(2 + i) * n + k]
                    alpha[r + k] = spread(row, s * n, n) + x[r + k]
        if size > 0:
            # Only a sequence that has rows has a last one; an empty one costs nothing, as its sum over no path is.
            last = (begin + size - 1) * n
            for k in range(n):
                row[s * n + k] = alpha[last + k] + w[n + k]
            out[s] = spread(row, s * n, n) - score - w[n + label[begin + size - 1]]


@kernel
def crf_backward(
    g: Ptr, x: Ptr, w: Ptr, label: PtrI64, alpha: Ptr, bounds: PtrI64, dx: Ptr, dw: Ptr, work: Ptr, count: Int, high: Int,
    n: Int, apart: Int,
):
    """dx and dw, both 0 before: expected minus observed tags and transitions, times g; work holds 3 n numbers.

    With apart, every sequence has a dw and 3 n numbers of work of its own.
    """
    for s in range(count):
        # On CUDA each sequence has memory and sums of its own (`apart`), as threads may not add to one number; on a CPU all share it.
        v = apart * s * 3 * n
        u = apart * s * (n + 2) * n
        begin = begin_of(s, bounds, high)
        size = length_of(s, bounds, high)
        if size > 0:
            last = (begin + size - 1) * n
            for k in range(n):
                work[v + k] = alpha[last + k] + w[n + k]
                work[v + n + k] = w[n + k]
            total = spread(work, v, n)
            # Rows backward: what lies behind a row is summed once, and serves all paths that come through it.
            for back in range(size):
                t = size - 1 - back
                r = (begin + t) * n
                tag = label[begin + t]
                for k in range(n):  # work[n ..] is ln of the sum over all tags behind row t
                    p = exp(alpha[r + k] + work[v + n + k] - total)
                    dx[r + k] = g[s] * p
                    if t == 0:
                        dw[u + k] += g[s] * p
                    if t == size - 1:
                        dw[u + n + k] += g[s] * p
                dx[r + tag] -= g[s]
                if t == size - 1:
                    dw[u + n + tag] -= g[s]
                if t == 0:
                    dw[u + tag] -= g[s]
                else:
                    before = label[begin + t - 1]
                    for i in range(n):
                        for k in range(n):
                            step = w[(2 + i) * n + k] + x[r + k] + work[v + n + k]
                            work[v + k] = step
                            dw[u + (2 + i) * n + k] += g[s] * exp(alpha[r - n + i] + step - total)
                        work[v + 2 * n + i] = spread(work, v, n)
                    dw[u + (2 + before) * n + tag] -= g[s]
                    for i in range(n):
                        work[v + n + i] = work[v + 2 * n + i]


@kernel
def crf_best(
    x: Ptr, w: Ptr, label: PtrI64, bounds: PtrI64, out: PtrI64, score: Ptr, track: PtrI64, count: Int, high: Int, n: Int,
    compares: Int, status: Status,
):
    """out = the best tags of every sequence, or whether they are the labels; score and track hold a number per row and tag."""
    for s in range(count):
        begin = begin_of(s, bounds, high)
        size = length_of(s, bounds, high)
        if high > 0 and (size > high or size < 0):
            status[1] = s
            status[2] = size
            status[3] = high
            status[0] = TOO_LONG
            return
        for t in range(size):
            r = (begin + t) * n
            for k in range(n):
                if t == 0:
                    score[r + k] = w[k] + x[r + k]
                else:
                    # The first of equally good tags stays, so that ties do not depend on how tags are compared.
                    best = 0
                    for i in range(1, n):
                        if score[r - n + i] + w[(2 + i) * n + k] > score[r - n + best] + w[(2 + best) * n + k]:
                            best = i
                    track[r + k] = best
                    score[r + k] = score[r - n + best] + w[(2 + best) * n + k] + x[r + k]
        tag = 0
        # The best last tag is known now; each row says from which tag it was reached.
        for back in range(size):
            t = size - 1 - back
            r = (begin + t) * n
            # Row 1 of the transitions holds the scores of ending with a tag, which count for the last row alone.
            if back == 0:
                for k in range(1, n):
                    if score[r + k] + w[n + k] > score[r + tag] + w[n + tag]:
                        tag = k
            else:
                tag = track[r + n + tag]
            out[begin + t] = tag
        if compares:
            for t in range(size):
                out[begin + t] = 1 if out[begin + t] == label[begin + t] else 0
        # Rows behind a sequence in its block are padding, and get a tag that a reader may count without looking at Length.
        if high > 0:
            for t in range(size, high):
                out[begin + t] = 0


def _tags(*shape: int):
    return lambda rng: rng.integers(0, 3, shape)


_SEQUENCES = {"Emission": (6, 3), "Transition": (5, 3), "Label": _tags(6, 1), "Offsets": fixed([0, 3, 3, 4, 6])}
_BLOCK = {"Emission": (2, 4, 3), "Transition": (5, 3), "Label": _tags(2, 4, 1), "Length": fixed([[3], [4]])}


def _check(name: str, x: TensorType, w: TensorType, label: TensorType | None, length: TensorType | None) -> None:
    rank = 2 if length is None else 3
    if len(x.shape) != rank:
        wanted = "[rows, tags] with sequences" if rank == 2 else "[sequences, time, tags] with Length"
        raise PeError(f"{name} needs Emission {wanted}, got {x}")
    n = x.shape[-1]
    if w != x.with_shape(n + 2, n):
        raise PeError(f"{name}: Transition is {w}, but should be {x.with_shape(n + 2, n)}")
    if label is not None:
        rows = [s for s in label.shape if s != 1]
        own = [s for s in x.shape[:-1] if s != 1]
        agree = len(rows) == len(own) and all(-1 in (a, b) or a == b for a, b in zip(rows, own, strict=True))
        if label.dtype != "int64" or not (agree or -1 in label.shape):
            raise PeError(f"{name}: Label is {label}, but Emission {x}", hint="one int64 tag for each row")
    if length is not None and (length.dtype != "int64" or (x.shape[0] >= 0 and length.size not in (-1, x.shape[0]))):
        raise PeError(f"{name}: Length is {length}, but should be int64, one number per sequence of {x}")


@op(
    "linear_chain_crf",
    traits=[ReportsData(), TagsRows("Emission", "Label")],
    inputs="Emission Transition Label Length? Offsets?",
    floats="Emission Transition",
    outputs="LogLikelihood Alpha",
    differentiable="Emission Transition",
    samples=[
        Sample(_SEQUENCES, name="sequences, one empty"),
        Sample(_BLOCK, name="a block"),
        Sample({**_SEQUENCES, "Emission": (1, 3), "Label": _tags(1, 1), "Offsets": fixed([0, 1])}, name="one row"),
    ],
)
def linear_chain_crf(
    x: TensorType, w: TensorType, label: TensorType, length: TensorType | None, offsets: TensorType | None
) -> tuple[TensorType, TensorType]:
    """Measure how unlikely the tags of every sequence are.

    LogLikelihood = ln sum over all tags y of exp(score(y)) - score(Label), with
    score(y) = start[y_1] + sum_t Emission[t, y_t] + sum_t step[y_{t-1}, y_t] + end[y_n]; 0 for an empty sequence.

    Args:
        Emission: [rows, tags] float32 or float64, with sequences; or [sequences, time, tags] with Length.
        Transition: [tags + 2, tags]: start, end, and step from each tag.
        Label: int64, one tag for each row of Emission.
        Length: rows of each sequence, int64, one number per sequence.
        Offsets: of Emission's sequences, int64 [sequences + 1].

    Returns:
        LogLikelihood: [sequences, 1]; a cost, in nats, as in fluid.
        Alpha: type of Emission; ln of the sum over all tags before a row.

    Raises:
        PeError: types that do not fit; neither sequences nor Length; while running, a tag out of range or a length above time.

    Source:
        fluid.layers.linear_chain_crf; Lafferty et al. 2001.
    """
    _check("linear_chain_crf", x, w, label, length)
    count = sequence_count(offsets) if length is None else x.shape[0]
    return x.with_shape(count, 1), x


@linear_chain_crf.sequences("Offsets")
def linear_chain_crf_lod(s: LodRequest) -> None:
    """One number per sequence."""
    if s.inputs.get("Length"):
        return
    lod = s.need("Emission")
    s.give("Offsets", lod[-1])
    s.out("LogLikelihood", *lod[:-1])


def _bounds(o: Lowering) -> tuple[Buffer, int, int]:
    """Return where sequences lie: offsets and 0, or lengths and the rows of a block; and how many there are."""
    if o.has("Length"):
        x = o.input("Emission")
        return o.input("Length"), x.shape[1], x.shape[0]
    return o.input("Offsets"), 0, o.input("Offsets").size - 1


@linear_chain_crf.lower("cpu")
def linear_chain_crf_cpu(o: Lowering) -> None:
    """Sequence by sequence, in logarithms."""
    x, w, out = o.input("Emission"), o.input("Transition"), o.output("LogLikelihood")
    bounds, high, count = _bounds(o)
    alpha = o.output_or_scratch("Alpha", x.size, x.dtype)
    n = x.shape[-1]
    o.call(fill, alpha, alpha.size, 0.0, dtype=x.dtype)
    o.call(crf_forward, x, w, o.input("Label"), bounds, out, alpha, o.scratch(count * n, x.dtype), count, high, n, STATUS)


@linear_chain_crf.grad(uses="Emission Transition Label Length Offsets Alpha").lower("cpu")
def linear_chain_crf_grad_cpu(o: Lowering) -> None:
    """Sums from behind, and with those from the front every tag's probability."""
    x, w = o.input("Emission"), o.input("Transition")
    bounds, high, count = _bounds(o)
    dx = o.output_or_scratch("Emission@GRAD", x.size, x.dtype)
    dw = o.output_or_scratch("Transition@GRAD", w.size, x.dtype)
    for out in (dx, dw):
        o.call(fill, out, out.size, 0.0, dtype=x.dtype)
    # The kernel adds to dw; in dx it never visits the rows behind the end of a sequence in a block, whose gradient is this 0.
    n = x.shape[-1]
    g, work = o.input("LogLikelihood@GRAD"), o.scratch(3 * n, x.dtype)
    o.call(crf_backward, g, x, w, o.input("Label"), o.input("Alpha"), bounds, dx, dw, work, count, high, n, 0)


@op(
    "crf_decoding",
    traits=[ReportsData(), Spells("ViterbiPath", "linear_chain_crf", scores="Emission", lengths="Length", unless="Label")],
    inputs="Emission Transition Label? Length? Offsets?",
    floats="Emission Transition",
    outputs="ViterbiPath",
    differentiable="",
    samples=[
        Sample(_SEQUENCES, name="right tags"),
        Sample({k: v for k, v in _BLOCK.items() if k != "Label"}, name="tags of a block"),
    ],
)
def crf_decoding(
    x: TensorType, w: TensorType, label: TensorType | None, length: TensorType | None, offsets: TensorType | None
) -> TensorType:
    """Find the best tags of every sequence, or tell where they are the labels.

    ViterbiPath = the tags y with the largest score(y) of linear_chain_crf, or 1 where they equal Label and 0 elsewhere.

    Args:
        Emission: [rows, tags] float32 or float64, with sequences; or [sequences, time, tags] with Length.
        Transition: [tags + 2, tags]: start, end, and step from each tag.
        Label: int64, one tag for each row, or absent.
        Length: rows of each sequence, int64, one number per sequence.
        Offsets: of Emission's sequences, int64 [sequences + 1].

    Returns:
        ViterbiPath: int64 [rows, 1] with the sequences of Emission; or [sequences, time], 0 behind the ends.

    Raises:
        PeError: types that do not fit; neither sequences nor Length; while running, a length above time.

    Source:
        fluid.layers.crf_decoding; Viterbi 1967.
    """
    del offsets
    _check("crf_decoding", x, w, label, length)
    return TensorType((x.shape[0], 1) if length is None else x.shape[:2], "int64")


@crf_decoding.sequences("Offsets")
def crf_decoding_lod(s: LodRequest) -> None:
    """Rows stay."""
    if not s.inputs.get("Length"):
        s.give("Offsets", s.offsets("Emission"))
        s.out("ViterbiPath", *s.need("Emission"))


@crf_decoding.lower("cpu")
def crf_decoding_cpu(o: Lowering) -> None:
    """Sequence by sequence."""
    x, w, out = o.input("Emission"), o.input("Transition"), o.output("ViterbiPath")
    bounds, high, count = _bounds(o)
    # A pointer has to be given; without Label the kernel reads nothing from it.
    label = o.input("Label") if o.has("Label") else bounds
    score, track = o.scratch(x.size, x.dtype), o.scratch(x.size, "int64")
    compares = int(o.has("Label"))
    o.call(crf_best, x, w, label, bounds, out, score, track, count, high, x.shape[-1], compares, STATUS)


# --- CUDA -------------------------------------------------------------------------------------------------------------


@cuda_kernel
def sum_sequences(parts: Ptr, out: Ptr, count: Int, n: Int):
    """out = the sum of count parts of n numbers, in order."""
    # In the order of sequences, whichever thread came first: the sum has the same bits on every card.
    for e in range(n):
        total = T(0)
        for s in range(count):
            total += parts[s * n + e]
        out[e] = total


@linear_chain_crf.grad_op.lower("cuda")  # type: ignore[union-attr]
def linear_chain_crf_grad_cuda(o: Lowering) -> None:
    """A thread for each sequence, whose transitions are summed afterwards."""
    x, w = o.input("Emission"), o.input("Transition")
    bounds, high, count = _bounds(o)
    dx = o.output_or_scratch("Emission@GRAD", x.size, x.dtype)
    n, parts = x.shape[-1], o.scratch(count * w.size, x.dtype)
    for out in (dx, parts):
        o.call(fill, out, out.size, 0.0, dtype=x.dtype)
    g, work = o.input("LogLikelihood@GRAD"), o.scratch(count * 3 * n, x.dtype)
    o.call(crf_backward, g, x, w, o.input("Label"), o.input("Alpha"), bounds, dx, parts, work, count, high, n, 1)
    if o.has("Transition@GRAD"):
        o.call(sum_sequences, parts, o.output("Transition@GRAD"), count, w.size)


deal(crf_forward, crf_backward, crf_best)
also_on_cuda(linear_chain_crf, crf_decoding)
not_in_onnx(LOSS, "linear_chain_crf")
