"""padded_lstm on CUDA: steps in order, one thread per unit of a sample; gradients of weights one thread per weight, over all steps."""

from __future__ import annotations

from pe_cli.kernels.cuda import cuda_kernel
from pe_cli.kernels.lang import Int, Ptr, PtrI64, T, helper
from pe_cli.kernels.vecmath import sigmoid, tanh
from pe_cli.ops.define.lowering import STATUS, Buffer, Lowering, Numbers
from pe_cli.ops.nn.padded_lstm import Sizes, check_lengths, padded_lstm

#: The record of a call: samples, steps, inputs, units, wide, whether time runs backwards, what is given (see `kernels.lstm.GIVEN`;
#: 512 and 1024 for the biases), elements between samples and between steps of x, and of out; then the groups: how many there are, and
#: the first sample of each. Gates, cells and states lie group by group, as on the CPU.
BIAS_IH, BIAS_HH = 512, 1024


@helper
def _row(g, s, r, each):
    """Return the number of a row of what has `each` rows for every sample: step s of sample r."""
    first, after = 0, g[0]
    for k in range(g[11]):
        if g[12 + k] <= r:
            first = g[12 + k]
            after = g[13 + k] if k + 1 < g[11] else g[0]
    return first * each + s * (after - first) + r - first


@helper
def _length(g, lengths, r):
    return lengths[r] if g[6] & 4 else g[1]


@helper
def _time(g, s, length):
    return length - 1 - s if g[5] and s < length else s


@cuda_kernel
def begin_states(h0: Ptr, c0: Ptr, cells: Ptr, states: Ptr, g: PtrI64, count: Int):
    """The states before the first step, zeros in units that pad; count: samples times wide."""
    for e in range(count):
        units, wide = g[3], g[4]
        r, j = e // wide, e % wide
        at = _row(g, 0, r, g[1] + 1) * wide + j
        states[at] = h0[r * units + j] if g[6] & 1 and j < units else T(0)
        cells[at] = c0[r * units + j] if g[6] & 2 and j < units else T(0)


@cuda_kernel
def one_step(
    x: Ptr, w_ih: Ptr, w_hh: Ptr, b_ih: Ptr, b_hh: Ptr, lengths: PtrI64, out: Ptr, gates: Ptr, cells: Ptr, states: Ptr, g: PtrI64,
    s: Int, count: Int,
):  # fmt: skip
    """Step s of all samples; count: samples times wide. Behind a sequence's end, gates are products that nobody reads, as on the CPU."""
    for e in range(count):
        steps, inputs, units, wide = g[1], g[2], g[3], g[4]
        r, j = e // wide, e % wide
        length = _length(g, lengths, r)
        t = _time(g, s, length)
        old, new, gate = _row(g, s, r, steps + 1) * wide, _row(g, s + 1, r, steps + 1) * wide, _row(g, s, r, steps) * 4 * wide
        a, f, u, o = T(0), T(0), T(0), T(0)
        for k in range(units if j < units else 0):
            v, at = states[old + k], k * 4 * units + j
            a, f = a + v * w_hh[at], f + v * w_hh[at + units]
            u, o = u + v * w_hh[at + 2 * units], o + v * w_hh[at + 3 * units]
        if s >= length:
            gates[gate + j], gates[gate + wide + j], gates[gate + 2 * wide + j], gates[gate + 3 * wide + j] = a, f, u, o
            cells[new + j], states[new + j] = cells[old + j], states[old + j]
            if j < units:
                out[r * g[9] + t * g[10] + j] = T(0)
            continue
        if g[6] & 512 and j < units:
            a, f, u, o = a + b_ih[j], f + b_ih[units + j], u + b_ih[2 * units + j], o + b_ih[3 * units + j]
        if g[6] & 1024 and j < units:
            a, f, u, o = a + b_hh[j], f + b_hh[units + j], u + b_hh[2 * units + j], o + b_hh[3 * units + j]
        for k in range(inputs if j < units else 0):
            v, at = x[r * g[7] + t * g[8] + k], k * 4 * units + j
            a, f = a + v * w_ih[at], f + v * w_ih[at + units]
            u, o = u + v * w_ih[at + 2 * units], o + v * w_ih[at + 3 * units]
        a, f, u, o = sigmoid(a), sigmoid(f), tanh(u), sigmoid(o)
        gates[gate + j], gates[gate + wide + j] = a, f
        gates[gate + 2 * wide + j], gates[gate + 3 * wide + j] = u, o
        now = f * cells[old + j] + a * u
        cells[new + j] = now
        states[new + j] = o * tanh(now)
        if j < units:
            out[r * g[9] + t * g[10] + j] = states[new + j]


@cuda_kernel
def last_states(source: Ptr, out: Ptr, g: PtrI64, count: Int):
    """out = the states after the last step; count: samples times units."""
    for e in range(count):
        out[e] = source[_row(g, g[1], e // g[3], g[1] + 1) * g[4] + e % g[3]]


@cuda_kernel
def begin_back(given: Ptr, out: Ptr, there: Int, count: Int):
    """out = given, or 0."""
    for e in range(count):
        out[e] = given[e] if there else T(0)


@cuda_kernel
def gates_back(
    lengths: PtrI64, dout: Ptr, gates: Ptr, cells: Ptr, dh: Ptr, dc: Ptr, dgates: Ptr, g: PtrI64, s: Int, count: Int
):
    """Gradients of the gates of step s, [step, sample, gate, unit]; dc becomes that of the cell before. See `kernels.lstm`."""
    for e in range(count):
        steps, units, wide = g[1], g[3], g[4]
        r, j = e // units, e % units
        to = (s * g[0] + r) * 4 * units + j
        length = _length(g, lengths, r)
        if s >= length:
            for k in range(4):
                dgates[to + k * units] = T(0)
            continue
        at = _row(g, s, r, steps) * 4 * wide + j
        a, f, u, o = gates[at], gates[at + wide], gates[at + 2 * wide], gates[at + 3 * wide]
        t = tanh(cells[_row(g, s + 1, r, steps + 1) * wide + j])
        h = dh[e] + (dout[r * g[9] + _time(g, s, length) * g[10] + j] if g[6] & 8 else T(0))
        d = dc[e] + h * o * (T(1) - t * t)
        dgates[to] = d * u * a * (T(1) - a)
        dgates[to + units] = d * cells[_row(g, s, r, steps + 1) * wide + j] * f * (T(1) - f)
        dgates[to + 2 * units] = d * a * (T(1) - u * u)
        dgates[to + 3 * units] = h * t * o * (T(1) - o)
        dc[e] = d * f


@cuda_kernel
def state_back(lengths: PtrI64, w_hh: Ptr, dgates: Ptr, dh: Ptr, g: PtrI64, s: Int, count: Int):
    """dh becomes that of the state before step s."""
    for e in range(count):
        units = g[3]
        r, k = e // units, e % units
        if s < _length(g, lengths, r):
            total = T(0)
            at = (s * g[0] + r) * 4 * units
            for c in range(4 * units):
                total += dgates[at + c] * w_hh[k * 4 * units + c]
            dh[e] = total


@cuda_kernel
def inputs_back(lengths: PtrI64, w_ih: Ptr, dgates: Ptr, dx: Ptr, g: PtrI64, count: Int):
    """dx; count: samples times steps times inputs."""
    for e in range(count):
        batch, inputs, row = g[0], g[2], 4 * g[3]
        s, r, k = e // (batch * inputs), e // inputs % batch, e % inputs
        total = T(0)
        for c in range(row):
            total += dgates[(s * batch + r) * row + c] * w_ih[k * row + c]
        dx[r * g[7] + _time(g, s, _length(g, lengths, r)) * g[8] + k] = total


@cuda_kernel
def input_weights_back(x: Ptr, lengths: PtrI64, dgates: Ptr, out: Ptr, g: PtrI64, count: Int):
    """out [inputs, 4 units]."""
    for e in range(count):
        batch, row = g[0], 4 * g[3]
        k, c, total = e // row, e % row, T(0)
        for r in range(batch):
            length = _length(g, lengths, r)
            for s in range(length):
                total += x[r * g[7] + _time(g, s, length) * g[8] + k] * dgates[(s * batch + r) * row + c]
        out[e] = total


@cuda_kernel
def state_weights_back(states: Ptr, dgates: Ptr, out: Ptr, g: PtrI64, count: Int):
    """out [units, 4 units]."""
    for e in range(count):
        batch, row = g[0], 4 * g[3]
        k, c, total = e // row, e % row, T(0)
        for s in range(g[1]):
            for r in range(batch):
                total += states[_row(g, s, r, g[1] + 1) * g[4] + k] * dgates[(s * batch + r) * row + c]
        out[e] = total


@cuda_kernel
def biases_back(dgates: Ptr, out: Ptr, rows: Int, count: Int):
    """out [4 units] = the sums over rows."""
    for c in range(count):
        total = T(0)
        for i in range(rows):
            total += dgates[i * count + c]
        out[c] = total


def _record(s: Sizes, given: int) -> Numbers:
    strides = s.record(0, max(1, s.batch), given)[-4:]
    groups = [first for first, _ in s.groups]
    reverse = int(s.o.attrs["is_reverse"])
    return Numbers((s.batch, s.steps, s.inputs, s.units, s.wide, reverse, given, *strides, len(groups), *groups))


@padded_lstm.lower("cuda")
def padded_lstm_cuda(o: Lowering) -> None:
    """Step by step."""
    s = Sizes(o)
    if not s.batch:
        return
    if o.has("Lengths"):
        o.call(check_lengths, o.input("Lengths"), s.batch, s.steps, STATUS)
    given, (h0, c0, lengths) = s.optional(h0="InitH", c0="InitC", lengths="Lengths")
    given += BIAS_IH * o.has("BiasIh") + BIAS_HH * o.has("BiasHh")
    biases = [(*o.inputs(slot), s.x)[0] for slot in ("BiasIh", "BiasHh")]
    out, last_h, last_c, gates, cells, states = (o.output(n) for n in ("Out", "LastH", "LastC", "Gates", "Cells", "States"))
    g = _record(s, given)
    o.call(begin_states, h0, c0, cells, states, g, s.batch * s.wide)
    for step in range(s.steps):
        o.call(
            one_step, s.x, o.input("WeightIh"), o.input("WeightHh"), *biases, lengths, out, gates, cells, states, g, step,
            s.batch * s.wide,
        )  # fmt: skip
    for source, last in ((states, last_h), (cells, last_c)):
        o.call(last_states, source, last, g, s.batch * s.units)


@padded_lstm.grad_op.lower("cuda")  # type: ignore[union-attr]
def padded_lstm_grad_cuda(o: Lowering) -> None:
    """Gates from the last step to the first, then all weights."""
    s = Sizes(o)
    w_ih, w_hh, n = o.input("WeightIh"), o.input("WeightHh"), s.batch * s.units
    gates, cells, states = (o.input(slot) for slot in ("Gates", "Cells", "States"))
    given, (lengths, dout, last_h, last_c) = s.optional(lengths="Lengths", dout="Out@GRAD", dlast_h="LastH@GRAD", dlast_c="LastC@GRAD")
    g, dgates = _record(s, given), o.scratch(s.steps * n * 4, s.x.dtype)
    dh, dc = (o.scratch(n, s.x.dtype) for _ in range(2))
    for source, target, slot in ((last_h, dh, "LastH@GRAD"), (last_c, dc, "LastC@GRAD")):
        o.call(begin_back, source, target, int(o.has(slot)), n)
    for step in reversed(range(s.steps)):
        o.call(gates_back, lengths, dout, gates, cells, dh, dc, dgates, g, step, n)
        o.call(state_back, lengths, w_hh, dgates, dh, g, step, n)

    def wanted(slot: str) -> Buffer | None:
        return o.output(f"{slot}@GRAD") if o.has(f"{slot}@GRAD") else None

    if dx := wanted("Input"):
        o.call(inputs_back, lengths, w_ih, dgates, dx, g, dx.size)
    if out := wanted("WeightIh"):
        o.call(input_weights_back, s.x, lengths, dgates, out, g, out.size)
    if out := wanted("WeightHh"):
        o.call(state_weights_back, states, dgates, out, g, out.size)
    for out, source in ((wanted("InitH"), dh), (wanted("InitC"), dc)):
        if out:
            o.call(begin_back, source, out, 1, n)
    for out in filter(None, map(wanted, ("BiasIh", "BiasHh"))):
        o.call(biases_back, dgates, out, s.steps * s.batch, out.size)
