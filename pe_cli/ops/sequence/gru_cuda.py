"""gru on CUDA: two launches for each step, and one thread per number of the gradients of weights."""

from __future__ import annotations

from pe_cli.kernels.cuda.language import cuda_kernel
from pe_cli.kernels.language import Int, Ptr, PtrI64, T
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.sequence.gru import _modes, gru
from pe_cli.ops.sequence.recurrent_cuda import act, before, put_rows, put_states, slope, zeros


@cuda_kernel
def gru_gates(
    x: Ptr, w: Ptr, bias: Ptr, h0: Ptr, order: PtrI64, begins: PtrI64, ranks: PtrI64, hidden: Ptr, gates: Ptr, t: Int, count: Int,
    d: Int, has_first: Int, gate_act: Int,
):  # fmt: skip
    """Both gates of step t; count: sequences times 2 d."""
    for e in range(count):
        p, j = e // (2 * d), e % (2 * d)
        # How many sequences have a step t is data of the batch, while a launch has one size for all batches: threads of sequences that have
        # ended do nothing.
        if p < begins[t + 1] - begins[t]:
            total = x[order[begins[t] + p] * 3 * d + j] + bias[j]
            for k in range(d):
                total += before(hidden, h0, has_first, order, begins, ranks, t, p, d, k) * w[k * 2 * d + j]
            gates[(begins[t] + p) * 3 * d + j] = act(gate_act, total)


@cuda_kernel
def gru_state(
    x: Ptr, w: Ptr, bias: Ptr, h0: Ptr, order: PtrI64, begins: PtrI64, ranks: PtrI64, hidden: Ptr, gates: Ptr, t: Int, count: Int,
    d: Int, has_first: Int, origin: Int, cand_act: Int,
):  # fmt: skip
    """Candidate and state of step t; count: sequences times d."""
    for e in range(count):
        p, j = e // d, e % d
        if p < begins[t + 1] - begins[t]:
            row, at = order[begins[t] + p], (begins[t] + p) * 3 * d
            c = x[row * 3 * d + 2 * d + j] + bias[2 * d + j]
            # The candidate reads the reset gates of all units of its sequence, which other threads wrote. Only the end of a launch waits
            # for all of them, so a step is two launches.
            for k in range(d):
                h = before(hidden, h0, has_first, order, begins, ranks, t, p, d, k)
                c += gates[at + d + k] * h * w[2 * d * d + k * d + j]
            c = act(cand_act, c)
            gates[at + 2 * d + j] = c
            h, u = before(hidden, h0, has_first, order, begins, ranks, t, p, d, j), gates[at + j]
            hidden[row * d + j] = c + u * (h - c) if origin else h + u * (c - h)


@cuda_kernel
def gru_back_candidate(
    g: Ptr, h0: Ptr, order: PtrI64, begins: PtrI64, ranks: PtrI64, hidden: Ptr, gates: Ptr, dgates: Ptr, dh: Ptr, t: Int, count: Int,
    d: Int, has_first: Int, origin: Int, gate_act: Int, cand_act: Int,
):  # fmt: skip
    """Gradients of the update gate and the candidate of step t; dh: what flows past them."""
    for e in range(count):
        p, j = e // d, e % d
        if p < begins[t + 1] - begins[t]:
            at = (begins[t] + p) * 3 * d
            total = dh[e] + g[order[begins[t] + p] * d + j]
            u, c = gates[at + j], gates[at + 2 * d + j]
            h = before(hidden, h0, has_first, order, begins, ranks, t, p, d, j)
            keeps, takes = (u, T(1) - u) if origin else (T(1) - u, u)
            dgates[at + j] = total * (h - c if origin else c - h) * slope(gate_act, u)
            dgates[at + 2 * d + j] = total * takes * slope(cand_act, c)
            dh[e] = total * keeps


@cuda_kernel
def gru_back_reset(
    w: Ptr, h0: Ptr, order: PtrI64, begins: PtrI64, ranks: PtrI64, hidden: Ptr, gates: Ptr, dgates: Ptr, dh: Ptr, t: Int, count: Int,
    d: Int, has_first: Int, gate_act: Int,
):  # fmt: skip
    """Gradient of the reset gate of step t."""
    for e in range(count):
        p, k = e // d, e % d
        if p < begins[t + 1] - begins[t]:
            at = (begins[t] + p) * 3 * d
            total = T(0)
            for j in range(d):
                total += dgates[at + 2 * d + j] * w[2 * d * d + k * d + j]
            r = gates[at + d + k]
            h = before(hidden, h0, has_first, order, begins, ranks, t, p, d, k)
            dgates[at + d + k] = total * h * slope(gate_act, r)
            dh[e] += total * r


@cuda_kernel
def gru_back_state(w: Ptr, begins: PtrI64, dgates: Ptr, dh: Ptr, t: Int, count: Int, d: Int):
    """dh becomes that of the state before step t."""
    for e in range(count):
        p, k = e // d, e % d
        if p < begins[t + 1] - begins[t]:
            total = T(0)
            for j in range(2 * d):
                total += dgates[(begins[t] + p) * 3 * d + j] * w[k * 2 * d + j]
            dh[e] += total


@cuda_kernel
def gru_back_weights(
    h0: Ptr, order: PtrI64, begins: PtrI64, ranks: PtrI64, hidden: Ptr, gates: Ptr, dgates: Ptr, out: Ptr, steps: Int, count: Int, d: Int,
    has_first: Int,
):  # fmt: skip
    """out: gates [d, 2 d], then the candidate [d, d]; count: 3 d d."""
    for e in range(count):
        reset = 1 if e >= 2 * d * d else 0
        k = (e - 2 * d * d) // d if reset else e // (2 * d)
        j = 2 * d + (e - 2 * d * d) % d if reset else e % (2 * d)
        total = T(0)
        # Each thread sums one weight over all steps in a fixed order. Adding from many threads would need atomics, whose order, and so the
        # last bits, changes from run to run.
        for t in range(steps):
            for p in range(begins[t + 1] - begins[t]):
                at = (begins[t] + p) * 3 * d
                h = before(hidden, h0, has_first, order, begins, ranks, t, p, d, k)
                total += (h * gates[at + d + k] if reset else h) * dgates[at + j]
        out[e] = total


@cuda_kernel
def column_sums(g: Ptr, out: Ptr, rows: Int, count: Int):
    """out = the sum of all rows."""
    for j in range(count):
        total = T(0)
        for i in range(rows):
            total += g[i * count + j]
        out[j] = total


@gru.lower("cuda")
def gru_cuda(o: Lowering) -> None:
    """Step by step."""
    x, w, hidden, begins, ranks = o.input("Input"), o.input("Weight"), o.output("Hidden"), o.input("Begins"), o.input("Sorted")
    d, count = hidden.shape[1], ranks.size
    gates = o.output("BatchGate") if o.has("BatchGate") else o.scratch(x.size, x.dtype)
    has_first, origin, gate_act, cand_act = _modes(o)
    given = (x, w, o.input("Bias"), o.input("H0") if o.has("H0") else w, o.input("Order"), begins, ranks, hidden, gates)
    for t in range(begins.size - 1):
        o.call(gru_gates, *given, t, count * 2 * d, d, has_first, gate_act)
        o.call(gru_state, *given, t, count * d, d, has_first, origin, cand_act)


@gru.grad_op.lower("cuda")  # type: ignore[union-attr]
def gru_grad_cuda(o: Lowering) -> None:
    """The gates' gradients from the last step to the first, then the weights'."""
    w, hidden, gates, g = o.input("Weight"), o.input("Hidden"), o.input("BatchGate"), o.input("Hidden@GRAD")
    order, begins, ranks = o.input("Order"), o.input("Begins"), o.input("Sorted")
    rows, d, count, steps = hidden.shape[0], hidden.shape[1], ranks.size, begins.size - 1
    dgates, dh = o.scratch(rows * 3 * d, w.dtype), o.scratch(count * d, w.dtype)
    has_first, origin, gate_act, cand_act = _modes(o)
    first = o.input("H0") if o.has("H0") else w
    where = (first, order, begins, ranks, hidden, gates)
    o.call(zeros, dh, count * d)
    for t in reversed(range(steps)):
        o.call(gru_back_candidate, g, *where, dgates, dh, t, count * d, d, has_first, origin, gate_act, cand_act)
        o.call(gru_back_reset, w, *where, dgates, dh, t, count * d, d, has_first, gate_act)
        o.call(gru_back_state, w, begins, dgates, dh, t, count * d, d)
    if o.has("Input@GRAD"):
        o.call(put_rows, dgates, order, o.output("Input@GRAD"), rows * 3 * d, 3 * d)
    if o.has("Weight@GRAD"):
        o.call(gru_back_weights, *where, dgates, o.output("Weight@GRAD"), steps, 3 * d * d, d, has_first)
    if o.has("Bias@GRAD"):
        o.call(column_sums, dgates, o.output("Bias@GRAD"), rows, 3 * d)
    if o.has("H0@GRAD"):
        o.call(put_states, dh, ranks, o.output("H0@GRAD"), count, o.output("H0@GRAD").size, d)
