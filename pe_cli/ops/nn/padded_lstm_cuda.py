"""padded_lstm on CUDA: what inputs and weights give is one product over all steps; a block then does all steps of a sample.

No sample waits for another, so that a step needs no launch of its own. Backward, a block goes from the last step to the first; the
gradients of weights and inputs are products over all steps again. Rows of these products are those of Input: sample by sample, or step
by step where time comes first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.kernels.cuda.language import cuda, cuda_kernel
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.cuda.warp import LANES, warp_sum
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, helper
from pe_cli.kernels.math.vector_math import sigmoid, tanh
from pe_cli.ops.define.lowering import STATUS, Buffer, Lowering, Numbers
from pe_cli.ops.math.matrix_product import Matrices
from pe_cli.ops.math.matrix_product_cuda import multiply_cuda
from pe_cli.ops.nn.padded_lstm import Sizes, check_lengths, padded_lstm

#: The record of a call: samples, steps, inputs, units, wide, whether time runs backwards, what is given (see `kernels.lstm.GIVEN`;
#: 512 and 1024 for the biases), elements between samples and between steps of x, and of out; then the groups: how many there are, and
#: the first sample of each. Gates, cells and states lie group by group, as on the CPU.
BIAS_IH, BIAS_HH = 512, 1024
#: Threads of a block that does all steps of a sample, and those that add up the rows of a column.
MANY: Any = 512
SUMS: Any = 16
#: An index without a sign: one with a sign could count from the end.
At: Any = np.uint64


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


@helper
def eight(states, at, w_hh, to, row):
    """Return a sum of eight products, whose factors are on their way at the same time."""
    w0, w1, w2, w3 = w_hh[to], w_hh[to + row], w_hh[to + 2 * row], w_hh[to + 3 * row]
    w4, w5, w6, w7 = w_hh[to + 4 * row], w_hh[to + 5 * row], w_hh[to + 6 * row], w_hh[to + 7 * row]
    a = states[at] * w0 + states[at + 1] * w1 + states[at + 2] * w2 + states[at + 3] * w3
    return a + (states[at + 4] * w4 + states[at + 5] * w5 + states[at + 6] * w6 + states[at + 7] * w7)


@helper
def raw_gates(states, old, w_hh, b_ih, b_hh, product, given, runs, gates, gate, g, me):
    """Write the gates of a step before their functions: of the state alone where the sequence has ended."""
    units, wide, row = g[3], g[4], 4 * g[3]
    c = me
    while c < row:
        total, k = T(0), 0
        while k + 16 <= units:
            total += eight(states, old + k, w_hh, k * row + c, row) + eight(states, old + k + 8, w_hh, (k + 8) * row + c, row)
            k += 16
        while k < units:
            total += states[old + k] * w_hh[k * row + c]
            k += 1
        if runs:
            if g[6] & 512:
                total += b_ih[c]
            if g[6] & 1024:
                total += b_hh[c]
            total += product[given + c]
        kind = quotient(c, units)
        gates[gate + kind * wide + c - kind * units] = total
        c += MANY


@cuda_kernel(block=(512,), threads=("512 * batch",))
def all_steps(
    product: Ptr, w_hh: Ptr, b_ih: Ptr, b_hh: Ptr, lengths: PtrI64, out: Ptr, gates: Ptr, cells: Ptr, states: Ptr, g: PtrI64, batch: Int
):
    """All steps of a sample, a block's, and then of the next; product: [rows of Input, 4 units], Input times its weights.

    Behind a sequence's end, gates are products that nobody reads, as on the CPU.
    """
    me = int(cuda.threadIdx.x)
    steps, inputs, units, wide = g[1], g[2], g[3], g[4]
    row = 4 * units
    r = int(cuda.blockIdx.x)
    while r < batch:
        length = _length(g, lengths, r)
        for s in range(steps):
            t = _time(g, s, length)
            old, new, gate = _row(g, s, r, steps + 1) * wide, _row(g, s + 1, r, steps + 1) * wide, _row(g, s, r, steps) * 4 * wide
            given = quotient(r * g[7] + t * g[8], inputs) * row
            raw_gates(states, old, w_hh, b_ih, b_hh, product, given, s < length, gates, gate, g, me)
            cuda.syncthreads()
            j = me
            while j < wide:
                a, f, u, o = T(0), T(0), T(0), T(0)
                at = gate + j
                if j < units:
                    a, f, u, o = gates[at], gates[at + wide], gates[at + 2 * wide], gates[at + 3 * wide]
                if s >= length:
                    gates[at], gates[at + wide], gates[at + 2 * wide], gates[at + 3 * wide] = a, f, u, o
                    cells[new + j], states[new + j] = cells[old + j], states[old + j]
                    if j < units:
                        out[r * g[9] + t * g[10] + j] = T(0)
                else:
                    a, f, u, o = sigmoid(a), sigmoid(f), tanh(u), sigmoid(o)
                    gates[at], gates[at + wide], gates[at + 2 * wide], gates[at + 3 * wide] = a, f, u, o
                    now = f * cells[old + j] + a * u
                    state = o * tanh(now)
                    cells[new + j], states[new + j] = now, state
                    if j < units:
                        out[r * g[9] + t * g[10] + j] = state
                j += MANY
            cuda.syncthreads()
        r += int(cuda.gridDim.x)


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


@cuda_kernel(block=(512,), threads=("512 * batch",))
def all_steps_back(
    lengths: PtrI64, dout: Ptr, w_hh: Ptr, gates: Ptr, cells: Ptr, states: Ptr, dh: Ptr, dc: Ptr, dgates: Ptr, before: Ptr, g: PtrI64,
    batch: Int,
):  # fmt: skip
    """All steps of a sample, a block's, from the last to the first.

    dgates [rows of Input, 4 units] are the gradients of the gates before their functions, before [rows of Input, units] the states
    before the steps; dh and dc become those of the first state and cell. See `kernels.cpu.lstm`.
    """
    me = int(cuda.threadIdx.x)
    steps, inputs, units, wide = g[1], g[2], g[3], g[4]
    row = 4 * units
    r = int(cuda.blockIdx.x)
    while r < batch:
        length = _length(g, lengths, r)
        s = steps - 1
        while s >= 0:
            t = _time(g, s, length)
            line = quotient(r * g[7] + t * g[8], inputs)
            old, new, gate = _row(g, s, r, steps + 1) * wide, _row(g, s + 1, r, steps + 1) * wide, _row(g, s, r, steps) * 4 * wide
            j = me
            while j < units:
                e, to, at = r * units + j, line * row + j, gate + j
                before[line * units + j] = states[old + j]
                if s >= length:
                    dgates[to], dgates[to + units], dgates[to + 2 * units], dgates[to + 3 * units] = T(0), T(0), T(0), T(0)
                else:
                    a, f, u, o = gates[at], gates[at + wide], gates[at + 2 * wide], gates[at + 3 * wide]
                    out = tanh(cells[new + j])
                    h = dh[e] + (dout[r * g[9] + t * g[10] + j] if g[6] & 8 else T(0))
                    d = dc[e] + h * o * (T(1) - out * out)
                    dgates[to] = d * u * a * (T(1) - a)
                    dgates[to + units] = d * cells[old + j] * f * (T(1) - f)
                    dgates[to + 2 * units] = d * a * (T(1) - u * u)
                    dgates[to + 3 * units] = h * out * o * (T(1) - o)
                    dc[e] = d * f
                j += MANY
            cuda.syncthreads()
            k = me // LANES if s < length else units
            while k < units:  # two sums at a time
                both = k + MANY // LANES < units
                total, other = T(0), T(0)
                c = me % LANES
                while c < row:
                    slope = dgates[line * row + c]
                    total += slope * w_hh[k * row + c]
                    if both:
                        other += slope * w_hh[(k + MANY // LANES) * row + c]
                    c += LANES
                total, other = warp_sum(total), warp_sum(other)
                if me % LANES == 0:
                    dh[r * units + k] = total
                    if both:
                        dh[r * units + k + MANY // LANES] = other
                k += 2 * (MANY // LANES)
            cuda.syncthreads()
            s -= 1
        r += int(cuda.gridDim.x)


@cuda_kernel(block=(32, 16), threads=("count", "16"))
def biases_back(dgates: Ptr, out: Ptr, rows: Int, count: Int):
    """out [4 units] = the sums over rows: sixteen threads have every sixteenth row of a column, and one adds up what they have."""
    parts = cuda.shared.array((SUMS, LANES), T)
    lane, me = int(cuda.threadIdx.x), int(cuda.threadIdx.y)
    begin = int(cuda.blockIdx.x) * LANES
    while begin < count:
        total = T(0)
        if begin + lane < count:
            i = me
            while i < rows:
                total += dgates[i * count + begin + lane]
                i += SUMS
        parts[At(me), At(lane)] = total
        cuda.syncthreads()
        if me == 0 and begin + lane < count:
            for other in range(1, SUMS):
                total += parts[At(other), At(lane)]
            out[begin + lane] = total
        cuda.syncthreads()
        begin += int(cuda.gridDim.x) * LANES


def _record(s: Sizes, given: int) -> Numbers:
    strides = s.record(0, max(1, s.batch), given)[-4:]
    groups = [first for first, _ in s.groups]
    reverse = int(s.o.attrs["is_reverse"])
    return Numbers((s.batch, s.steps, s.inputs, s.units, s.wide, reverse, given, *strides, len(groups), *groups))


@padded_lstm.lower("cuda")
def padded_lstm_cuda(o: Lowering) -> None:
    """One product, and a block for each sample."""
    s = Sizes(o)
    if not s.batch:
        return
    if o.has("Lengths"):
        o.call(check_lengths, o.input("Lengths"), s.batch, s.steps, STATUS)
    given, (h0, c0, lengths) = s.optional(h0="InitH", c0="InitC", lengths="Lengths")
    given += BIAS_IH * o.has("BiasIh") + BIAS_HH * o.has("BiasHh")
    biases = [(*o.inputs(slot), s.x)[0] for slot in ("BiasIh", "BiasHh")]
    out, last_h, last_c, gates, cells, states = (o.output(n) for n in ("Out", "LastH", "LastC", "Gates", "Cells", "States"))
    g, rows = _record(s, given), s.batch * s.steps
    product = o.scratch(rows * 4 * s.units, s.x.dtype)
    w_ih = o.input("WeightIh"), Matrices((), s.inputs, 4 * s.units)
    multiply_cuda(o, (s.x, Matrices((), rows, s.inputs)), w_ih, (product, Matrices((), rows, 4 * s.units)), 1.0)
    o.call(begin_states, h0, c0, cells, states, g, s.batch * s.wide)
    o.call(all_steps, product, o.input("WeightHh"), *biases, lengths, out, gates, cells, states, g, s.batch)
    for source, last in ((states, last_h), (cells, last_c)):
        o.call(last_states, source, last, g, s.batch * s.units)


@padded_lstm.grad_op.lower("cuda")  # type: ignore[union-attr]
def padded_lstm_grad_cuda(o: Lowering) -> None:
    """A block for each sample, and the products of all steps."""
    s = Sizes(o)
    w_hh, n, rows, row = o.input("WeightHh"), s.batch * s.units, s.batch * s.steps, 4 * s.units
    gates, cells, states = (o.input(slot) for slot in ("Gates", "Cells", "States"))
    given, (lengths, dout, last_h, last_c) = s.optional(lengths="Lengths", dout="Out@GRAD", dlast_h="LastH@GRAD", dlast_c="LastC@GRAD")
    g, dgates, before = _record(s, given), o.scratch(rows * row, s.x.dtype), o.scratch(rows * s.units, s.x.dtype)
    dh, dc = (o.scratch(n, s.x.dtype) for _ in range(2))
    for source, target, slot in ((last_h, dh, "LastH@GRAD"), (last_c, dc, "LastC@GRAD")):
        o.call(begin_back, source, target, int(o.has(slot)), n)
    o.call(all_steps_back, lengths, dout, w_hh, gates, cells, states, dh, dc, dgates, before, g, s.batch)

    def wanted(slot: str) -> Buffer | None:
        return o.output(f"{slot}@GRAD") if o.has(f"{slot}@GRAD") else None

    slopes, given_rows, kept = Matrices((), rows, row), Matrices((), rows, s.inputs), Matrices((), rows, s.units)
    if dx := wanted("Input"):
        w_ih = Matrices((), s.inputs, row)
        multiply_cuda(o, (dgates, slopes), (o.input("WeightIh"), w_ih.flipped()), (dx, given_rows), 1.0)
    for slot, source, matrix in (("WeightIh", s.x, given_rows), ("WeightHh", before, kept)):
        if out := wanted(slot):
            multiply_cuda(o, (source, matrix.flipped()), (dgates, slopes), (out, Matrices((), matrix.columns, row)), 1.0)
    for out, source in ((wanted("InitH"), dh), (wanted("InitC"), dc)):
        if out:
            o.call(begin_back, source, out, 1, n)
    for out in filter(None, map(wanted, ("BiasIh", "BiasHh"))):
        o.call(biases_back, dgates, out, rows, out.size)
