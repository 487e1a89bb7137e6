"""Steps of an LSTM over padded sequences, a group of samples at a time.

Inside, everything is stored by step and then by sample, so that the samples of a step are the rows of one matrix. The
four gates of a row are blocks of `wide` numbers, in the order i, f, g, o. wide is the number of units rounded up to whole
vectors; the units that pad it have zero weights, and stay 0 by themselves.

A group's facts are a record of integers (see `GROUP`); its arrays begin at its first sample's place in those of the batch.
"""

# ruff: noqa: C901, PLR0912 - kernels loop in loops
from __future__ import annotations

from pe_cli.kernels.far import prefetch_run
from pe_cli.kernels.gemm import gemm, last_strip, strips_product
from pe_cli.kernels.lang import SIZE, Ptr, PtrI64, T, address, apart, helper, kernel, pointer
from pe_cli.kernels.vecmath import sigmoid, tanh

#: A group's record: samples before it and in it, steps, inputs, units, wide, steps of a chunk, whether time runs
#: backwards, given (1 h0, 2 c0, 4 lengths; of the gradients: 8 of out, 16 of the last h, 32 of the last c; wanted: 64 x,
#: 128 h0, 256 c0), elements between samples and between steps of x, and of out.
GROUP = (
    "first", "rows", "steps", "inputs", "units", "wide", "chunk", "reverse", "given",
    "x_sample", "x_step", "out_sample", "out_step",
)  # fmt: skip
GIVEN = {"h0": 1, "c0": 2, "lengths": 4, "dout": 8, "dlast_h": 16, "dlast_c": 32, "dx": 64, "dh0": 128, "dc0": 256}


@helper
def _record(g):
    return g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10], g[11], g[12]


# --- rows of the batch ------------------------------------------------------------------------------------------------


@helper
def _time(s, length, reverse):
    """Return which element of a sequence step s deals with; beyond the sequence's end, the padding's own place."""
    return length - 1 - s if reverse and s < length else s


@helper
def _move(x, lengths, held, begin, count, record, back):
    """Copy the inputs of some steps to held[step, sample, :], or from there back; zeros where a sequence is over."""
    first, rows, steps, inputs, _, _, _, reverse, given, x_sample, x_step, _, _ = record
    for s in range(begin, begin + count):
        for r in range(rows):
            length = lengths[first + r] if given & 4 else steps
            at = (first + r) * x_sample + _time(s, length, reverse) * x_step
            to = ((s - begin) * rows + r) * inputs
            if back:
                for j in range(inputs):
                    x[at + j] = held[to + j] if s < length else T(0)
            else:
                for j in range(inputs):
                    held[to + j] = x[at + j] if s < length else T(0)


@helper
def _pad_state(source, given, first, rows, units, wide, out, at):
    """Copy [batch, units] to the group's out[at + sample, wide], or write zeros."""
    for i in range(at, at + rows * wide):
        out[i] = T(0)
    if given:
        for r in range(rows):
            for j in range(units):
                out[at + r * wide + j] = source[(first + r) * units + j]


@helper
def _store_state(source, at, first, rows, units, wide, out):
    for r in range(rows):
        for j in range(units):
            out[(first + r) * units + j] = source[at + r * wide + j]


# --- forward ----------------------------------------------------------------------------------------------------------


@apart
def _cell(gates, bias, old, cell, state, wide):
    """Do one sample's step: gates become activations; cell and state follow from them and the old cell."""
    for j in range(2 * wide):
        gates[j] = sigmoid(gates[j] + bias[j])
    for j in range(2 * wide, 3 * wide):
        gates[j] = tanh(gates[j] + bias[j])
    for j in range(3 * wide, 4 * wide):
        gates[j] = sigmoid(gates[j] + bias[j])
    for j in range(wide):
        now = gates[wide + j] * old[j] + gates[j] * gates[2 * wide + j]
        cell[j] = now
        state[j] = gates[3 * wide + j] * tanh(now)


@kernel
def forward_steps(
    x: Ptr, h0: Ptr, c0: Ptr, lengths: PtrI64, bias: Ptr, packed_ih: Ptr, packed_hh: Ptr, out: Ptr, last_h: Ptr,
    last_c: Ptr, gates: Ptr, cells: Ptr, states: Ptr, taken: Ptr, g: PtrI64,
):  # fmt: skip
    """All steps of a group; taken is scratch for the inputs of a chunk of steps."""
    record = _record(g)
    first, rows, steps, inputs, units, wide, chunk, reverse, given, _, _, out_sample, out_step = record
    gates_at = steps * first * 4 * wide
    states_at = (steps + 1) * first * wide
    _pad_state(h0, given & 1, first, rows, units, wide, states, states_at)
    _pad_state(c0, given & 2, first, rows, units, wide, cells, states_at)
    for begin in range(0, steps, chunk):
        count = min(chunk, steps - begin)
        _move(x, lengths, taken, begin, count, record, 0)
        chunk_at = address(gates) + SIZE * (gates_at + begin * rows * 4 * wide)
        strips_product(
            count * rows, 4 * wide, inputs, address(taken), inputs, 1, address(packed_ih), 0, chunk_at, 4 * wide, 0
        )
        for s in range(begin, begin + count):
            old = states_at + s * rows * wide
            at = gates_at + s * rows * 4 * wide
            if s > 0 or given & 1:  # else there is no state yet
                strips_product(
                    rows, 4 * wide, wide, address(states) + SIZE * old, wide, 1, address(packed_hh), 1,
                    address(gates) + SIZE * at, 4 * wide, 0,
                )  # fmt: skip
            for r in range(rows):
                length = lengths[first + r] if given & 4 else steps
                now = old + r * wide
                new = now + rows * wide
                to = (first + r) * out_sample + _time(s, length, reverse) * out_step
                if s < length:
                    _cell(
                        pointer(address(gates) + SIZE * (at + r * 4 * wide)), bias, pointer(address(cells) + SIZE * now),
                        pointer(address(cells) + SIZE * new), pointer(address(states) + SIZE * new), wide,
                    )  # fmt: skip
                    for j in range(units):
                        out[to + j] = states[new + j]
                else:
                    for j in range(wide):
                        cells[new + j] = cells[now + j]
                        states[new + j] = states[now + j]
                    for j in range(units):
                        out[to + j] = T(0)
    end = states_at + steps * rows * wide
    _store_state(states, end, first, rows, units, wide, last_h)
    _store_state(cells, end, first, rows, units, wide, last_c)


# --- backward ---------------------------------------------------------------------------------------------------------


@apart
def _cell_back(gates, old, cell, dh, dc, di, df, du, do, wide):
    """Write one sample's gradients of the gates; dc becomes that of the cell before, dh is taken up.

    With t = tanh(c): do = dh t o (1 - o), dc += dh o (1 - t^2), di = dc u i (1 - i), df = dc c' f (1 - f),
    du = dc i (1 - u^2), dc' = dc f.
    """
    for j in range(wide):
        i, f, u, o = gates[j], gates[wide + j], gates[2 * wide + j], gates[3 * wide + j]
        t = tanh(cell[j])
        h = dh[j]
        d = dc[j] + h * o * (T(1) - t * t)
        do[j] = h * t * o * (T(1) - o)
        di[j] = d * u * i * (T(1) - i)
        df[j] = d * old[j] * f * (T(1) - f)
        du[j] = d * i * (T(1) - u * u)
        dc[j] = d * f
        dh[j] = T(0)


@kernel
def backward_steps(
    x: Ptr, lengths: PtrI64, dout: Ptr, dlast_h: Ptr, dlast_c: Ptr, gates: Ptr, cells: Ptr, states: Ptr,
    packed_ih: Ptr, packed_hh: Ptr, dx: Ptr, dh0: Ptr, dc0: Ptr, dw_ih: Ptr, dw_hh: Ptr, dbias: Ptr, dgates: Ptr,
    room: Ptr, taken: Ptr, dh: Ptr, dc: Ptr, g: PtrI64,
):  # fmt: skip
    """All steps of a group, backwards; dw_ih, dw_hh and dbias are the group's own, everything from dgates on is scratch.

    Each chunk of steps gives its part of the weights' gradients while its gates are still in L2. Products with states ask
    for the activations of the steps that come next, and each sample's step for the cell and the gradient of the one before: all have left
    L2 since they were made.
    """
    record = _record(g)
    first, rows, steps, inputs, units, wide, chunk, reverse, given, _, _, out_sample, out_step = record
    row = 4 * wide
    gates_at = steps * first * row
    states_at = (steps + 1) * first * wide
    _pad_state(dlast_h, given & 16, first, rows, units, wide, dh, 0)
    _pad_state(dlast_c, given & 32, first, rows, units, wide, dc, 0)
    for i in range(row):
        dbias[i] = T(0)
    asked = max(1, last_strip(wide) // rows)  # steps whose gates a product asks for
    again = 0
    for c in range((steps + chunk - 1) // chunk - 1, -1, -1):
        begin = c * chunk
        count = min(chunk, steps - begin)
        for s in range(begin + count - 1, begin - 1, -1):
            to = (s - begin) * rows * row
            for r in range(rows):
                length = lengths[first + r] if given & 4 else steps
                if s < length:
                    if given & 8:
                        at = (first + r) * out_sample + _time(s, length, reverse) * out_step
                        for j in range(units):
                            dh[r * wide + j] += dout[at + j]
                    old = address(cells) + SIZE * (states_at + (s * rows + r) * wide)
                    di = address(dgates) + SIZE * (to + r * row)
                    _cell_back(
                        pointer(address(gates) + SIZE * (gates_at + (s * rows + r) * row)), pointer(old),
                        pointer(old + SIZE * rows * wide), pointer(address(dh) + SIZE * r * wide),
                        pointer(address(dc) + SIZE * r * wide), pointer(di), pointer(di + SIZE * wide),
                        pointer(di + SIZE * 2 * wide), pointer(di + SIZE * 3 * wide), wide,
                    )  # fmt: skip
                else:
                    for j in range(row):
                        dgates[to + r * row + j] = T(0)
                if s > 0:
                    prefetch_run(cells, states_at + ((s - 1) * rows + r) * wide, wide)
                    if given & 8:
                        prefetch_run(dout, (first + r) * out_sample + _time(s - 1, length, reverse) * out_step, units)
            if s > 0 or given & 128:
                soon = 0
                if s % asked == 0 and s >= asked:
                    soon = address(gates) + SIZE * (gates_at + (s - asked) * rows * row)
                strips_product(
                    rows, wide, row, address(dgates) + SIZE * to, row, 1, address(packed_hh), 1, address(dh), wide, soon
                )
        for r in range(count * rows):
            for j in range(row):
                dbias[j] += dgates[r * row + j]
        _move(x, lengths, taken, begin, count, record, 0)
        many, grads = count * rows, address(dgates)
        gemm(1, 0, inputs, row, many, address(taken), inputs, grads, row, again, address(dw_ih), row, address(room))
        before = address(states) + SIZE * (states_at + begin * rows * wide)
        gemm(1, 0, wide, row, many, before, wide, grads, row, again, address(dw_hh), row, address(room))
        again = 1
        if given & 64:
            strips_product(
                count * rows, inputs, row, address(dgates), row, 1, address(packed_ih), 0, address(taken), inputs, 0
            )
            _move(dx, lengths, taken, begin, count, record, 1)
    if given & 128:
        _store_state(dh, 0, first, rows, units, wide, dh0)
    if given & 256:
        _store_state(dc, 0, first, rows, units, wide, dc0)
