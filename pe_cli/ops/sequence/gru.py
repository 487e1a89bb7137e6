"""gru: a gated recurrent unit over every sequence."""

# ruff: noqa: C901, PLR0912 - a step is a step
from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cpu.gemm import gemm, gemm_scratch
from pe_cli.kernels.language import SIZE, Int, Ptr, PtrI64, T, address, kernel, pointer
from pe_cli.ops.define.lod import LodRequest
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.sequence.lstm_kernels import put_by
from pe_cli.ops.sequence.recurrent import (
    ACTS,
    HOST_SLOTS,
    act_attr,
    activate,
    check_states,
    copy_row,
    give_order,
    host_samples,
    rows_before,
    times_slope,
    zero_rows,
)


@kernel
def gru_forward(
    x: Ptr, w: Ptr, bias: Ptr, h0: Ptr, order: PtrI64, begins: PtrI64, ranks: PtrI64, hidden: Ptr, gates: Ptr, work: Ptr,
    scratch: Ptr, steps: Int, rows: Int, count: Int, d: Int, has_first: Int, origin: Int, gate_act: Int, cand_act: Int,
):
    """Gates lie [update, reset, candidate], their rows in the order of steps; work holds (rows + 2 count) d elements.

    work: states in the order of steps, the states before a step, and those times the reset gate.
    """
    wide = 3 * d
    states = address(work)
    before = states + SIZE * rows * d
    product = before + SIZE * count * d
    zero_rows(before, count * d)
    if has_first:
        for p in range(count):
            copy_row(address(h0) + SIZE * ranks[p] * d, before + SIZE * p * d, d)
    # All sequences take a step together; the longest come first, so those that still go on are the first m rows.
    for t in range(steps):
        begin = begins[t]
        m = begins[t + 1] - begin
        # The longest sequences come first, so the m sequences of this step are the first m rows of the step before.
        old = states + SIZE * begins[t - 1] * d if t > 0 else before
        for p in range(m):
            row = order[begin + p] * wide
            to = (begin + p) * wide
            for j in range(wide):
                gates[to + j] = x[row + j] + bias[j]
        for part in range(2):  # both gates, then the candidate, which needs the reset gate
            at = address(gates) + SIZE * (begin * wide + part * 2 * d)
            weight = address(w) + SIZE * part * 2 * d * d
            n = 2 * d if part == 0 else d
            source = old if part == 0 else product
            gemm(0, 0, m, n, d, source, d, weight, n, 1, at, wide, address(scratch))
            for p in range(m):
                activate(gate_act if part == 0 else cand_act, at + SIZE * p * wide, n)
                if part == 0:
                    v = pointer(at + SIZE * p * wide)
                    h = pointer(old + SIZE * p * d)
                    out = pointer(product + SIZE * p * d)
                    # The reset gate weighs the old state before the product, as in the first paper; so the candidate's product cannot be
                    # joined with that of the gates (cuDNN's form weighs after it and could).
                    for j in range(d):
                        out[j] = v[d + j] * h[j]
        for p in range(m):
            v = pointer(address(gates) + SIZE * (begin + p) * wide)
            h = pointer(old + SIZE * p * d)
            out = pointer(states + SIZE * (begin + p) * d)
            for j in range(d):
                # Both forms are u a + (1 - u) b with one multiplication instead of two.
                if origin:
                    out[j] = v[2 * d + j] + v[j] * (h[j] - v[2 * d + j])
                else:
                    out[j] = h[j] + v[j] * (v[2 * d + j] - h[j])
            copy_row(address(out), address(hidden) + SIZE * order[begin + p] * d, d)


@kernel
def gru_backward(
    g: Ptr, w: Ptr, h0: Ptr, order: PtrI64, begins: PtrI64, ranks: PtrI64, hidden: Ptr, gates: Ptr, dgates: Ptr, dh: Ptr,
    old: Ptr, product: Ptr, scratch: Ptr, steps: Int, rows: Int, count: Int, d: Int, has_first: Int, origin: Int,
    gate_act: Int, cand_act: Int,
):
    """Gradients of the gates before activation, in the order of steps; dh [count, d] ends as that of the first states.

    old [rows, d] becomes the states before each step, product [rows, d] those times the reset gate.
    """
    wide = 3 * d
    zero_rows(address(dh), count * d)
    # States before each step are gathered from the states after them, instead of being kept by the forward pass: that saves rows times
    # width numbers between the passes.
    rows_before(address(hidden), address(h0), has_first, order, begins, ranks, steps, d, address(old))
    for back in range(steps):
        t = steps - 1 - back
        begin = begins[t]
        m = begins[t + 1] - begin
        at = address(dgates) + SIZE * begin * wide
        for p in range(m):
            # In the order of steps, where the sequences of one step lie side by side for the products.
            row = order[begin + p] * d
            q = (begin + p) * d
            y = (begin + p) * wide
            for j in range(d):
                # A sequence that is shorter than others joins at its own last step; until then nobody has written to its row of dh, which
                # is 0.
                total = dh[p * d + j] + g[row + j]
                u = gates[y + j]
                c = gates[y + 2 * d + j]
                h = old[q + j]
                if origin:
                    dgates[y + j] = total * (h - c)
                    dgates[y + 2 * d + j] = total * (T(1) - u)
                    dh[p * d + j] = total * u
                else:
                    dgates[y + j] = total * (c - h)
                    dgates[y + 2 * d + j] = total * u
                    dh[p * d + j] = total * (T(1) - u)
            times_slope(cand_act, address(dgates) + SIZE * (y + 2 * d), address(gates) + SIZE * (y + 2 * d), d)
        for part in range(2):  # through the candidate to the reset gate, then through both gates
            n = d if part == 0 else 2 * d
            source = at + SIZE * 2 * d if part == 0 else at
            weight = address(w) + SIZE * 2 * d * d if part == 0 else address(w)
            target = address(product) + SIZE * begin * d if part == 0 else address(dh)
            # `part` is also the factor of what stands in the target: the candidate's product is written anew, and that of the gates is
            # added to dh, which already holds what the update gate let through.
            gemm(0, 1, m, d, n, source, wide, weight, n, part, target, d, address(scratch))
            if part == 0:
                for p in range(m):
                    q = (begin + p) * d
                    y = (begin + p) * wide
                    for j in range(d):
                        r = gates[y + d + j]
                        dgates[y + d + j] = product[q + j] * old[q + j]
                        dh[p * d + j] += product[q + j] * r
                        # What the reset gate let through is kept for the product with the weights' gradient.
                        product[q + j] = old[q + j] * r
                    times_slope(gate_act, address(dgates) + SIZE * y, address(gates) + SIZE * y, 2 * d)


@kernel
def gru_weights(g: Ptr, old: Ptr, product: Ptr, out: Ptr, scratch: Ptr, rows: Int, d: Int):
    """out = [old^T g of both gates, product^T g of the candidate], the second behind the first."""
    # One product for all steps of all sequences, which is why backward keeps the gates' gradients.
    for part in range(2):
        source = address(old) if part == 0 else address(product)
        n = 2 * d if part == 0 else d
        target = address(out) + SIZE * part * 2 * d * d
        gemm(1, 0, d, n, rows, source, d, address(g) + SIZE * part * 2 * d, 3 * d, 0, target, n, address(scratch))


@kernel
def sum_rows(g: Ptr, out: Ptr, rows: Int, n: Int):
    """out = the sum of all rows."""
    zero_rows(address(out), n)
    for i in range(rows):
        for j in range(n):
            out[j] += g[i * n + j]


def _sample(name: str, *lengths: int, state: bool = False, **attrs: object) -> Sample:
    d = 3
    inputs = {"Input": (sum(lengths), 3 * d), "Weight": (d, 3 * d), "Bias": (1, 3 * d)}
    if state:
        inputs["H0"] = (len(lengths), d)
    return Sample({**inputs, **host_samples(*lengths, is_reverse=bool(attrs.get("is_reverse")))}, attrs, name)


@op(
    "gru",
    inputs="Input Weight Bias H0? Order? Begins? Sorted? Offsets?",
    floats="Input Weight",
    outputs="Hidden BatchGate",
    differentiable="Input Weight Bias H0",
    attrs={
        "is_reverse": Attr(False, "from the last row of a sequence to its first"),
        "origin_mode": Attr(False, "the update gate keeps, as in the first paper, instead of replacing"),
        "gate_activation": act_attr("sigmoid", "of the update and reset gates"),
        "activation": act_attr("tanh", "of the candidate"),
    },
    samples=[
        _sample("a first state", 2, 4, 1, state=True),
        _sample("an empty sequence, backwards", 2, 0, 3, is_reverse=True),
        _sample("of the first paper", 1, 3, state=True, origin_mode=True),
        _sample("one row", 1, activation="identity"),
    ],
)
def gru(
    x: TensorType, weight: TensorType, bias: TensorType, h0: TensorType | None, order: TensorType | None,
    begins: TensorType | None, ranks: TensorType | None, offsets: TensorType | None, **attrs: object,
) -> tuple[TensorType, TensorType]:  # fmt: skip
    """Run a gated recurrent unit over every sequence.

    With [u, r, c] = Input_t + b: u = gate(u + h_{t-1} W_u), r = gate(r + h_{t-1} W_r), c = act(c + (r h_{t-1}) W_c),
    h_t = (1 - u) h_{t-1} + u c; with origin_mode h_t = u h_{t-1} + (1 - u) c.

    Args:
        Input: [rows, 3 width] float32 or float64, with sequences; update gate, reset gate, candidate.
        Weight: [width, 3 width] numbers, of which the first 2 width^2 are [W_u, W_r], [width, 2 width], and the last
            width^2 W_c, [width, width].
        Bias: [1, 3 width].
        H0: [sequences, width]; zeros when absent.
        Order, Begins, Sorted: the order of rows, steps and sequences, made before the step.
        Offsets: of the sequences, int64 [sequences + 1].

    Returns:
        Hidden: [rows, width], sequences of Input.
        BatchGate: [rows, 3 width]; the gates, in the order of steps.

    Raises:
        PeError: sizes that do not fit, or Input has no sequences.

    Source:
        fluid.layers.dynamic_gru; Chung et al. 2014, Cho et al. 2014.
    """
    del order, begins, ranks, attrs
    if len(x.shape) != 2 or x.shape[1] < 3 or x.shape[1] % 3:
        raise PeError(f"gru needs Input [rows, 3 width], got {x}", hint="fc with size: 3 width")
    d = x.shape[1] // 3
    for slot, kind, shape in (("Weight", weight, (d, 3 * d)), ("Bias", bias, (1, 3 * d))):
        if kind != x.with_shape(*shape):
            raise PeError(f"gru: {slot} is {kind}, but should be {x.with_shape(*shape)}")
    check_states("gru", offsets, {"H0": (h0, d)}, x.dtype)
    return x.with_shape(x.shape[0], d), x


@gru.sequences(HOST_SLOTS)
def gru_lod(s: LodRequest) -> None:
    """Rows stay."""
    give_order(s)
    s.out("Hidden", *s.need("Input"))


def _modes(o: Lowering) -> list[int]:
    acts = [ACTS.index(o.attrs[name]) for name in ("gate_activation", "activation")]
    return [int(o.has("H0")), int(o.attrs["origin_mode"]), *acts]


@gru.lower("cpu")
def gru_cpu(o: Lowering) -> None:
    """One call over all steps."""
    x, w, hidden, begins, ranks = o.input("Input"), o.input("Weight"), o.output("Hidden"), o.input("Begins"), o.input("Sorted")
    rows, d, count = x.shape[0], hidden.shape[1], ranks.size
    gates = o.output_or_scratch("BatchGate", x.size, x.dtype)
    work, scratch = o.scratch((rows + 2 * count) * d, x.dtype), o.scratch(gemm_scratch(2 * d, d), x.dtype)
    # A kernel's pointer has to point somewhere; without H0 nothing is read from it.
    first = o.input("H0") if o.has("H0") else w
    o.call(
        gru_forward, x, w, o.input("Bias"), first, o.input("Order"), begins, ranks, hidden, gates, work, scratch,
        begins.size - 1, rows, count, d, *_modes(o),
    )  # fmt: skip


@gru.grad(uses="Weight H0 Order Begins Sorted Hidden BatchGate").lower("cpu")
def gru_grad_cpu(o: Lowering) -> None:
    """The gates' gradients from the last step to the first, then one product for each matrix."""
    w, hidden, gates, g = o.input("Weight"), o.input("Hidden"), o.input("BatchGate"), o.input("Hidden@GRAD")
    order, begins, ranks = o.input("Order"), o.input("Begins"), o.input("Sorted")
    rows, d, count, dtype = hidden.shape[0], hidden.shape[1], ranks.size, w.dtype
    dgates, dh = o.scratch(rows * 3 * d, dtype), o.scratch(count * d, dtype)
    old, product = o.scratch(rows * d, dtype), o.scratch(rows * d, dtype)
    scratch = o.scratch(max(gemm_scratch(2 * d, rows), gemm_scratch(d, 2 * d)), dtype)
    first = o.input("H0") if o.has("H0") else w
    o.call(
        gru_backward, g, w, first, order, begins, ranks, hidden, gates, dgates, dh, old, product, scratch,
        begins.size - 1, rows, count, d, *_modes(o),
    )  # fmt: skip
    if o.has("Input@GRAD"):
        o.call(put_by, dgates, order, o.output("Input@GRAD"), rows, 3 * d, rows * 3 * d)
    if o.has("Weight@GRAD"):
        o.call(gru_weights, dgates, old, product, o.output("Weight@GRAD"), scratch, rows, d)
    if o.has("Bias@GRAD"):
        o.call(sum_rows, dgates, o.output("Bias@GRAD"), rows, 3 * d)
    if o.has("H0@GRAD"):
        o.call(put_by, dh, ranks, o.output("H0@GRAD"), count, d, o.output("H0@GRAD").size)
