"""lstm: a long short-term memory over every sequence, with or without a projection of its output."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cpu.gemm import gemm_scratch
from pe_cli.ops.define.lod import LodRequest
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.sequence.lstm_kernels import column_sums, lstm_backward, lstm_forward, put_by, transposed_product
from pe_cli.ops.sequence.recurrent import ACTS, HOST_SLOTS, act_attr, check_states, give_order, host_samples

# Bits of one integer: each as a parameter of its own would make kernels of more than twenty parameters longer still.
PEEPHOLES, FIRST_H, FIRST_C, PROJECTION, HIDDEN_GRAD, CELL_GRAD = 1, 2, 4, 8, 16, 32


def _sample(name: str, *lengths: int, states: bool = False, projection: int = 0, **attrs: object) -> Sample:
    d, peep = 3, attrs.get("use_peepholes", True)
    r = projection or d
    inputs = {"Input": (sum(lengths), 4 * d), "Weight": (r, 4 * d), "Bias": (1, 7 * d if peep else 4 * d)}
    if states:
        inputs |= {"H0": (len(lengths), r), "C0": (len(lengths), d)}
    if projection:
        inputs["ProjWeight"] = (d, r)
    host = host_samples(*lengths, is_reverse=bool(attrs.get("is_reverse")))
    return Sample({**inputs, **host}, attrs, name)


@op(
    "lstm",
    inputs="Input Weight Bias H0? C0? ProjWeight? Order? Begins? Sorted? Offsets?",
    floats="Input Weight",
    outputs="Hidden Cell BatchGate",
    differentiable="Input Weight Bias H0 C0 ProjWeight",
    attrs={
        "use_peepholes": Attr(True, "gates see the cell, through the last 3 width numbers of Bias"),
        "is_reverse": Attr(False, "from the last row of a sequence to its first"),
        "gate_activation": act_attr("sigmoid", "of the input, forget and output gates"),
        "cell_activation": act_attr("tanh", "of the cell in the output"),
        "candidate_activation": act_attr("tanh", "of what is added to the cell"),
        "proj_activation": act_attr("tanh", "of the projection"),
        "cell_clip": Attr(0.0, "largest distance of a cell from 0; 0 for any"),
        "proj_clip": Attr(0.0, "likewise, of the projection"),
    },
    samples=[
        _sample("peepholes and first states", 2, 4, 1, states=True),
        _sample("an empty sequence, backwards", 2, 0, 3, use_peepholes=False, is_reverse=True),
        _sample("a projection", 3, 2, states=True, projection=2),
        _sample("a projection as it is", 1, 2, projection=2, proj_activation="identity", cell_activation="identity"),
        _sample("one row", 1, candidate_activation="sigmoid"),
        _sample("clipped", 3, 2, projection=2, cell_clip=0.3, proj_clip=0.2),
    ],
)
def lstm(
    x: TensorType, weight: TensorType, bias: TensorType, h0: TensorType | None, c0: TensorType | None,
    proj: TensorType | None, order: TensorType | None, begins: TensorType | None, ranks: TensorType | None,
    offsets: TensorType | None, **attrs: object,
) -> tuple[TensorType, TensorType, TensorType]:  # fmt: skip
    """Run a long short-term memory over every sequence.

    With [a, i, f, o] = Input_t + h_{t-1} Weight + b, and w_ic, w_fc, w_oc the peepholes (0 without them):
    i = gate(i + w_ic c_{t-1}), f = gate(f + w_fc c_{t-1}), c_t = f c_{t-1} + i candidate(a), o = gate(o + w_oc c_t),
    h_t = o cell(c_t); with a projection h_t = proj((o cell(c_t)) ProjWeight). c_t is clipped to [-cell_clip, cell_clip] before it is used,
    and a projection to [-proj_clip, proj_clip]; what is clipped has no gradient.

    Args:
        Input: [rows, 4 width] float32 or float64, with sequences; candidate, input, forget and output gate.
        Weight: [recurrent width, 4 width].
        Bias: [1, 4 width]: b; [1, 7 width] with peepholes: b, w_ic, w_fc, w_oc.
        H0, C0: [sequences, recurrent width] and [sequences, width]; zeros when absent.
        ProjWeight: [width, recurrent width].
        Order, Begins, Sorted: the order of rows, steps and sequences, made before the step.
        Offsets: of the sequences, int64 [sequences + 1].

    Returns:
        Hidden: [rows, recurrent width], Cell: [rows, width], sequences of Input.
        BatchGate: [rows, 4 width]; the gates, in the order of steps.

    Raises:
        PeError: sizes that do not fit, or Input has no sequences.

    Source:
        fluid.layers.dynamic_lstm, dynamic_lstmp; Gers and Schmidhuber 2000; Sak et al. 2014.
    """
    del order, begins, ranks
    for name in ("cell_clip", "proj_clip"):
        if float(attrs[name]) < 0:  # type: ignore[arg-type]
            raise PeError(f"lstm: {name} is {attrs[name]}", hint="a number above 0, or 0 for no limit")
    if attrs["proj_clip"] and proj is None:
        raise PeError("lstm: proj_clip needs a projection", hint="use dynamic_lstmp, or leave it out")
    if len(x.shape) != 2 or x.shape[1] < 4 or x.shape[1] % 4:
        raise PeError(f"lstm needs Input [rows, 4 width], got {x}", hint="fc with size: 4 width, bias_attr: false")
    d = x.shape[1] // 4
    r = proj.shape[-1] if proj is not None else d
    columns = 7 * d if attrs["use_peepholes"] else 4 * d
    wanted = {"Weight": (weight, (r, 4 * d)), "Bias": (bias, (1, columns)), "ProjWeight": (proj, (d, r))}
    for slot, (kind, shape) in wanted.items():
        if kind is not None and kind != x.with_shape(*shape):
            raise PeError(f"lstm: {slot} is {kind}, but should be {x.with_shape(*shape)}")
    check_states("lstm", offsets, {"H0": (h0, r), "C0": (c0, d)}, x.dtype)
    return x.with_shape(x.shape[0], r), x.with_shape(x.shape[0], d), x


@lstm.sequences(HOST_SLOTS)
def lstm_lod(s: LodRequest) -> None:
    """Rows stay."""
    give_order(s)
    for slot in ("Hidden", "Cell"):
        s.out(slot, *s.need("Input"))


# Read as bits by `lstm_kernels.py` and `lstm_cuda.py`; the numbers there are those of the constants above.
def _flags(o: Lowering) -> int:
    found = PEEPHOLES if o.attrs["use_peepholes"] else 0
    for slot, flag in (("H0", FIRST_H), ("C0", FIRST_C), ("ProjWeight", PROJECTION)):
        found |= flag if o.has(slot) else 0
    return found


def _acts(o: Lowering) -> list[int]:
    return [ACTS.index(o.attrs[f"{n}_activation"]) for n in ("gate", "cell", "candidate", "proj")]


def _clips(o: Lowering) -> list[float]:
    return [float(o.attrs["cell_clip"]), float(o.attrs["proj_clip"])]


def _or(o: Lowering, slot: str, other: Buffer) -> Buffer:
    """Return an input, or something of its type that is not read."""
    return o.input(slot) if o.has(slot) else other


@lstm.lower("cpu")
def lstm_cpu(o: Lowering) -> None:
    """One call over all steps."""
    x, w, bias, hidden, cell = o.input("Input"), o.input("Weight"), o.input("Bias"), o.output("Hidden"), o.output("Cell")
    begins, ranks = o.input("Begins"), o.input("Sorted")
    rows, d, r, steps, count = x.shape[0], cell.shape[1], hidden.shape[1], begins.size - 1, ranks.size
    gates = o.output_or_scratch("BatchGate", x.size, x.dtype)
    # In this order: states, cells and outputs before the projection for every row, the first states in the order of lengths, and one row of
    # zeros for cells before the first step.
    work = o.scratch(rows * (r + 2 * d) + count * r + d, x.dtype)
    scratch = o.scratch(max(gemm_scratch(4 * d, r), gemm_scratch(r, d)), x.dtype)
    o.call(
        lstm_forward, x, w, bias, _or(o, "H0", w), _or(o, "C0", w), _or(o, "ProjWeight", w), o.input("Order"), begins,
        ranks, hidden, cell, gates, work, scratch, steps, rows, count, d, r, _flags(o), *_acts(o), *_clips(o),
    )  # fmt: skip


@lstm.grad(uses="Weight Bias H0 C0 ProjWeight Order Begins Sorted Hidden Cell BatchGate").lower("cpu")
def lstm_grad_cpu(o: Lowering) -> None:
    """The gates' gradients from the last step to the first, then one product for each matrix."""
    w, hidden, cell, gates = o.input("Weight"), o.input("Hidden"), o.input("Cell"), o.input("BatchGate")
    order, begins, ranks = o.input("Order"), o.input("Begins"), o.input("Sorted")
    rows, d, r, steps, count = cell.shape[0], cell.shape[1], hidden.shape[1], begins.size - 1, ranks.size
    flags = _flags(o) | (HIDDEN_GRAD if o.has("Hidden@GRAD") else 0) | (CELL_GRAD if o.has("Cell@GRAD") else 0)
    dtype = w.dtype
    dgates, old_c, raw = (o.scratch(rows * n, dtype) for n in (4 * d, d, d))
    dh, dc, dr = o.scratch(count * r, dtype), o.scratch(count * d, dtype), o.scratch(rows * r, dtype)
    sizes = [(r, 4 * d), (d, r), (4 * d, rows), (r, rows)]
    scratch = o.scratch(max(gemm_scratch(n, k) for n, k in sizes), dtype)
    h0, c0, proj = _or(o, "H0", w), _or(o, "C0", w), _or(o, "ProjWeight", w)
    o.call(
        lstm_backward, _or(o, "Hidden@GRAD", w), _or(o, "Cell@GRAD", w), w, o.input("Bias"), h0, c0, proj, order, begins,
        ranks, hidden, cell, gates, dgates, dh, dc, dr, raw, old_c, scratch, steps, rows, count, d, r, flags, *_acts(o), *_clips(o),
    )  # fmt: skip
    where = (order, begins, ranks)
    if o.has("Input@GRAD"):
        o.call(put_by, dgates, order, o.output("Input@GRAD"), rows, 4 * d, rows * 4 * d)
    if o.has("Weight@GRAD"):
        before, out = o.scratch(rows * r, dtype), o.output("Weight@GRAD")
        # The product of weights needs the states before each step; that of the projection multiplies outputs that `lstm_backward` left in
        # `raw`, so nothing is gathered for it.
        first = int(o.has("H0"))
        o.call(transposed_product, hidden, h0, *where, before, dgates, out, scratch, steps, rows, r, 4 * d, 4 * d, first, 1)
    if o.has("ProjWeight@GRAD"):
        out = o.output("ProjWeight@GRAD")
        o.call(transposed_product, hidden, h0, *where, raw, dr, out, scratch, steps, rows, d, r, r, 0, 0)
    if o.has("Bias@GRAD"):
        o.call(column_sums, dgates, cell, old_c, order, o.output("Bias@GRAD"), rows, d, flags & PEEPHOLES)
    for slot, source, n in (("H0@GRAD", dh, r), ("C0@GRAD", dc, d)):
        if o.has(slot):
            o.call(put_by, source, ranks, o.output(slot), count, n, o.output(slot).size)
