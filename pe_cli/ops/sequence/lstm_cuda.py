"""lstm on CUDA: a launch for each step, two with a projection, and one thread per number of the gradients of weights.

Flags are those of `lstm.py`: 1 peepholes, 2 and 4 first states, 8 a projection, 16 and 32 gradients that are there.
"""

from __future__ import annotations

from pe_cli.kernels.cuda.language import cuda_kernel
from pe_cli.kernels.language import Int, Ptr, PtrI64, Real, T, helper
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.sequence.lstm import CELL_GRAD, HIDDEN_GRAD, PROJECTION, _acts, _clips, _flags, _or, lstm
from pe_cli.ops.sequence.recurrent_cuda import act, before, put_rows, put_states, slope, zeros


@helper
def _clipped(x, limit):
    if limit > T(0):
        # min and max of CUDA drop a NaN for the other number. On a CPU the comparisons let it through, and a run that diverges has to show
        # it here too.
        return min(max(x, -limit), limit) if x == x else x
    return x


@cuda_kernel
def lstm_step(
    x: Ptr, w: Ptr, bias: Ptr, h0: Ptr, c0: Ptr, order: PtrI64, begins: PtrI64, ranks: PtrI64, hidden: Ptr, cell: Ptr, gates: Ptr,
    raw: Ptr, t: Int, count: Int, d: Int, r: Int, flags: Int, gate_act: Int, cell_act: Int, cand_act: Int, clip: Real,
):  # fmt: skip
    """Gates and cell of step t, and the outputs before a projection, in the order of steps; count: sequences times d."""
    for e in range(count):
        p, j = e // d, e % d
        if p >= begins[t + 1] - begins[t]:
            continue
        row, wide = order[begins[t] + p], 4 * d
        at = (begins[t] + p) * wide + j
        a, i = x[row * wide + j] + bias[j], x[row * wide + d + j] + bias[d + j]
        f, o = x[row * wide + 2 * d + j] + bias[2 * d + j], x[row * wide + 3 * d + j] + bias[3 * d + j]
        for k in range(r):
            h, u = before(hidden, h0, flags & 2, order, begins, ranks, t, p, r, k), k * wide + j
            a, i = a + h * w[u], i + h * w[u + d]
            f, o = f + h * w[u + 2 * d], o + h * w[u + 3 * d]
        old = before(cell, c0, flags & 4, order, begins, ranks, t, p, d, j)
        if flags & 1:
            i, f = i + bias[wide + j] * old, f + bias[wide + d + j] * old
        a, i, f = act(cand_act, a), act(gate_act, i), act(gate_act, f)
        c = _clipped(f * old + i * a, T(clip))
        # The output gate sees the new cell, unlike the other two gates, so it cannot be finished before the cell is.
        if flags & 1:
            o += bias[wide + 2 * d + j] * c
        o = act(gate_act, o)
        gates[at], gates[at + d], gates[at + 2 * d], gates[at + 3 * d] = a, i, f, o
        cell[row * d + j] = c
        if flags & 8:
            raw[(begins[t] + p) * d + j] = act(cell_act, c) * o
        else:
            hidden[row * d + j] = act(cell_act, c) * o


@cuda_kernel
def lstm_project(
    raw: Ptr, proj: Ptr, order: PtrI64, begins: PtrI64, hidden: Ptr, t: Int, count: Int, d: Int, r: Int, proj_act: Int, clip: Real
):
    """hidden of step t; count: sequences times r."""
    for e in range(count):
        p, k = e // r, e % r
        if p < begins[t + 1] - begins[t]:
            total = T(0)
            for j in range(d):
                total += raw[(begins[t] + p) * d + j] * proj[j * r + k]
            hidden[order[begins[t] + p] * r + k] = _clipped(act(proj_act, total), T(clip))


@cuda_kernel
def lstm_back_hidden(
    dhidden: Ptr, order: PtrI64, begins: PtrI64, hidden: Ptr, dh: Ptr, dr: Ptr, t: Int, count: Int, r: Int, flags: Int, proj_act: Int,
    clip: Real,
):  # fmt: skip
    """dr = gradient of the outputs of step t, through the activation of a projection; count: sequences times r."""
    for e in range(count):
        p, k = e // r, e % r
        if p < begins[t + 1] - begins[t]:
            at = order[begins[t] + p] * r + k
            total = dh[e] + (dhidden[at] if flags & 16 else T(0))
            if flags & 8:
                stops = clip > 0.0 and (hidden[at] >= T(clip) or hidden[at] <= -T(clip))
                total = T(0) if stops else total * slope(proj_act, hidden[at])
            dr[(begins[t] + p) * r + k] = total


@cuda_kernel
def lstm_back_gates(
    dcell: Ptr, bias: Ptr, c0: Ptr, proj: Ptr, order: PtrI64, begins: PtrI64, ranks: PtrI64, cell: Ptr, gates: Ptr, dgates: Ptr, dc: Ptr,
    dr: Ptr, raw: Ptr, t: Int, count: Int, d: Int, r: Int, flags: Int, gate_act: Int, cell_act: Int, cand_act: Int, clip: Real,
):  # fmt: skip
    """Gradients of the gates of step t; dc becomes that of the cell before, raw the outputs before a projection."""
    for e in range(count):
        p, j = e // d, e % d
        if p >= begins[t + 1] - begins[t]:
            # Without a projection r equals d, and the gradient of the output is that of the hidden state itself.
            continue
        row, at, wide = order[begins[t] + p], (begins[t] + p) * 4 * d + j, 4 * d
        up = dr[(begins[t] + p) * r + j] if flags & 8 == 0 else T(0)
        for k in range(r if flags & 8 else 0):
            up += dr[(begins[t] + p) * r + k] * proj[j * r + k]
        a, i, f, o = gates[at], gates[at + d], gates[at + 2 * d], gates[at + 3 * d]
        c, old = cell[row * d + j], before(cell, c0, flags & 4, order, begins, ranks, t, p, d, j)
        value = act(cell_act, c)
        raw[(begins[t] + p) * d + j] = value * o
        by_out = up * value * slope(gate_act, o)
        total = dc[e] + up * o * slope(cell_act, value)
        if flags & 32:
            total += dcell[row * d + j]
        if flags & 1:
            total += bias[wide + 2 * d + j] * by_out
        # Whoever reads the cell reads the clipped one: all that they want of it has been added by now, and none of it reaches a cell that
        # was cut off.
        if clip > 0.0 and (c >= T(clip) or c <= -T(clip)):
            total = T(0)
        by_in, by_old = total * a * slope(gate_act, i), total * old * slope(gate_act, f)
        dgates[at], dgates[at + d] = total * i * slope(cand_act, a), by_in
        dgates[at + 2 * d], dgates[at + 3 * d] = by_old, by_out
        dc[e] = total * f + (bias[wide + j] * by_in + bias[wide + d + j] * by_old if flags & 1 else T(0))


@cuda_kernel
def lstm_back_state(w: Ptr, begins: PtrI64, dgates: Ptr, dh: Ptr, t: Int, count: Int, d: Int, r: Int):
    """dh becomes that of the state before step t; count: sequences times r."""
    for e in range(count):
        p, k = e // r, e % r
        if p < begins[t + 1] - begins[t]:
            total = T(0)
            for c in range(4 * d):
                total += dgates[(begins[t] + p) * 4 * d + c] * w[k * 4 * d + c]
            # Written and not added, unlike gru's: every part of the old state goes through the weights, none passes beside them.
            dh[e] = total


@cuda_kernel
def lstm_back_weights(
    h0: Ptr, order: PtrI64, begins: PtrI64, ranks: PtrI64, hidden: Ptr, dgates: Ptr, out: Ptr, steps: Int, count: Int, d: Int, r: Int,
    flags: Int,
):  # fmt: skip
    """out [r, 4 d]; count: its numbers."""
    for e in range(count):
        k, c, total = e // (4 * d), e % (4 * d), T(0)
        for t in range(steps):
            for p in range(begins[t + 1] - begins[t]):
                total += before(hidden, h0, flags & 2, order, begins, ranks, t, p, r, k) * dgates[(begins[t] + p) * 4 * d + c]
        out[e] = total


@cuda_kernel
def lstm_back_projection(raw: Ptr, dr: Ptr, out: Ptr, rows: Int, count: Int, d: Int, r: Int):
    """out [d, r]; count: its numbers."""
    for e in range(count):
        total = T(0)
        for i in range(rows):
            total += raw[i * d + e // r] * dr[i * r + e % r]
        out[e] = total


@cuda_kernel
def lstm_back_bias(
    c0: Ptr, order: PtrI64, begins: PtrI64, ranks: PtrI64, cell: Ptr, dgates: Ptr, out: Ptr, steps: Int, count: Int, d: Int, flags: Int
):
    """out: sums of the gates' gradients, then those of the peepholes; count: its numbers."""
    for e in range(count):
        part, j, total = e // d, e % d, T(0)
        for t in range(steps):
            for p in range(begins[t + 1] - begins[t]):
                at = (begins[t] + p) * 4 * d
                # Parts 0 to 3 are the gates' own biases. Peepholes of the input and the forget gate (parts 4 and 5) saw the cell before the
                # step, that of the output gate (part 6) the cell after it.
                if part < 4:
                    total += dgates[at + e]
                elif part < 6:
                    total += dgates[at + (part - 3) * d + j] * before(cell, c0, flags & 4, order, begins, ranks, t, p, d, j)
                else:
                    total += dgates[at + 3 * d + j] * cell[order[begins[t] + p] * d + j]
        out[e] = total


@lstm.lower("cuda")
def lstm_cuda(o: Lowering) -> None:
    """Step by step."""
    x, w, hidden, cell = o.input("Input"), o.input("Weight"), o.output("Hidden"), o.output("Cell")
    begins, ranks, order = o.input("Begins"), o.input("Sorted"), o.input("Order")
    d, r, count, flags = cell.shape[1], hidden.shape[1], ranks.size, _flags(o)
    gates = o.output("BatchGate") if o.has("BatchGate") else o.scratch(x.size, x.dtype)
    raw = o.scratch(cell.size if flags & PROJECTION else 1, x.dtype)
    (gate_act, cell_act, cand_act, proj_act), (cell_clip, proj_clip) = _acts(o), _clips(o)
    given = (x, w, o.input("Bias"), _or(o, "H0", w), _or(o, "C0", w), order, begins, ranks, hidden, cell, gates, raw)
    for t in range(begins.size - 1):
        o.call(lstm_step, *given, t, count * d, d, r, flags, gate_act, cell_act, cand_act, cell_clip)
        if flags & PROJECTION:
            o.call(lstm_project, raw, o.input("ProjWeight"), order, begins, hidden, t, count * r, d, r, proj_act, proj_clip)


@lstm.grad_op.lower("cuda")  # type: ignore[union-attr]
def lstm_grad_cuda(o: Lowering) -> None:
    """The gates' gradients from the last step to the first, then the weights'."""
    w, bias, hidden, cell, gates = (o.input(n) for n in ("Weight", "Bias", "Hidden", "Cell", "BatchGate"))
    order, begins, ranks = o.input("Order"), o.input("Begins"), o.input("Sorted")
    rows, d, r, count, steps = cell.shape[0], cell.shape[1], hidden.shape[1], ranks.size, begins.size - 1
    flags = _flags(o) | (HIDDEN_GRAD if o.has("Hidden@GRAD") else 0) | (CELL_GRAD if o.has("Cell@GRAD") else 0)
    dgates, raw, dr, dh, dc = (o.scratch(n, w.dtype) for n in (rows * 4 * d, rows * d, rows * r, count * r, count * d))
    (gate_act, cell_act, cand_act, proj_act), (cell_clip, proj_clip) = _acts(o), _clips(o)
    h0, c0, proj = _or(o, "H0", w), _or(o, "C0", w), _or(o, "ProjWeight", w)
    where = (order, begins, ranks)
    o.call(zeros, dh, count * r)
    o.call(zeros, dc, count * d)
    for t in reversed(range(steps)):
        o.call(
            lstm_back_hidden, _or(o, "Hidden@GRAD", w), order, begins, hidden, dh, dr, t, count * r, r, flags, proj_act, proj_clip
        )
        o.call(
            lstm_back_gates, _or(o, "Cell@GRAD", w), bias, c0, proj, *where, cell, gates, dgates, dc, dr, raw, t, count * d, d, r, flags,
            gate_act, cell_act, cand_act, cell_clip,
        )  # fmt: skip
        o.call(lstm_back_state, w, begins, dgates, dh, t, count * r, d, r)
    if o.has("Input@GRAD"):
        o.call(put_rows, dgates, order, o.output("Input@GRAD"), rows * 4 * d, 4 * d)
    if o.has("Weight@GRAD"):
        o.call(lstm_back_weights, h0, *where, hidden, dgates, o.output("Weight@GRAD"), steps, r * 4 * d, d, r, flags)
    if o.has("ProjWeight@GRAD"):
        o.call(lstm_back_projection, raw, dr, o.output("ProjWeight@GRAD"), rows, d * r, d, r)
    if o.has("Bias@GRAD"):
        out = o.output("Bias@GRAD")
        o.call(lstm_back_bias, c0, *where, cell, dgates, out, steps, out.size, d, flags)
    for slot, source, n in (("H0@GRAD", dh, r), ("C0@GRAD", dc, d)):
        if o.has(slot):
            o.call(put_states, source, ranks, o.output(slot), count, o.output(slot).size, n)
