"""Steps of an LSTM over padded sequences, a group of samples at a time.

Inside, everything is stored by step and then by sample, so that the samples of a step are the rows of one matrix. The
four gates of a row are blocks of `wide` numbers, in the order i, f, g, o. wide is the number of units rounded up to whole
vectors; the units that pad it have zero weights, and stay 0 by themselves.

A group's facts are a record of integers (see `GROUP`); its arrays begin at its first sample's place in those of the batch.
"""

# ruff: noqa: C901, PLR0912 - kernels loop in loops
from __future__ import annotations

from pe_cli.kernels.cpu.atomics import atomic_add, atomic_load, atomic_store, pause
from pe_cli.kernels.cpu.gemm import gemm, last_strip, strips_product
from pe_cli.kernels.cpu.non_temporal import prefetch_run
from pe_cli.kernels.language import (
    SIZE,
    Addr,
    Int,
    Ptr,
    PtrI64,
    T,
    address,
    apart,
    helper,
    kernel,
    pointer,
    pointer_i64,
)
from pe_cli.kernels.math.vector_math import sigmoid, tanh

#: A group's record: samples before it and in it, steps, inputs, units, wide, steps of a chunk, whether time runs
#: backwards, given (1 h0, 2 c0, 4 lengths; of the gradients: 8 of out, 16 of the last h, 32 of the last c; wanted: 64 x,
#: 128 h0, 256 c0), elements between samples and between steps of x, and of out.
GROUP = (
    "first", "rows", "steps", "inputs", "units", "wide", "chunk", "reverse", "given",
    "x_sample", "x_step", "out_sample", "out_step",
)  # fmt: skip
GIVEN = {"h0": 1, "c0": 2, "lengths": 4, "dout": 8, "dlast_h": 16, "dlast_c": 32, "dx": 64, "dh0": 128, "dc0": 256}
#: Words before the groups' records of `backward_steps`: which of them, how many there are, rows of a chunk at most.
HEAD = 3
#: Pieces of the products that groups share, of each kind: gates of both weights' gradients, runs of steps of the inputs' gradients.
PIECES = 4
#: Words of what groups tell each other, for each: a line of how far it is, and a line that counts the pieces taken.
TOLD = 16
#: How far a group is: in its last chunk of steps, or done with all of them.
LAST, DONE = 1, 2
#: Pauses for which a group waits at most for another in its last chunk: 0.2 ms or more.
PATIENCE = 20_000


@helper
def _record(g):
    return g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10], g[11], g[12]


# --- rows of the batch ------------------------------------------------------------------------------------------------


@helper
def _time(s, length, reverse):
    """Return which element of a sequence step s deals with; beyond the sequence's end, the padding's own place."""
    # Backwards means from the last element of each sequence, not from the end of the padding.
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
    # Gates lie in blocks, not element by element, so that each loop is over neighbours and becomes vectors.
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
        # Inputs need no state of before: those of a whole chunk of steps are one product, and only states go step by step.
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
                        # A sequence that is over hands its last state on, so that all samples find theirs at the last step.
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
def nothing_told(told: PtrI64, groups: Int):
    """Say that no group has begun its last chunk."""
    for i in range(groups * TOLD):
        told[i] = 0


@helper
def _piece(piece, which, record, most, lengths, states, packed_ih, dx, dw_ih, dw_hh, dgates, taken, dtaken, room):
    """Do a piece of the products of a group's last chunk, whose first step is 0: a gate of a weight's gradient, or steps of the inputs'."""
    first, rows, steps, inputs, _, wide, chunk, _, _, _, _, _, _ = record
    row = 4 * wide
    count = min(chunk, steps)
    grads = address(dgates) + SIZE * which * most * row
    again = 1 if steps > chunk else 0
    if piece < PIECES:
        held = address(taken) + SIZE * which * most * inputs
        at = address(dw_ih) + SIZE * (which * inputs * row + piece * wide)
        gemm(1, 0, inputs, wide, count * rows, held, inputs, grads + SIZE * piece * wide, row, again, at, row, address(room))
    elif piece < 2 * PIECES:
        gate = (piece - PIECES) * wide
        before = address(states) + SIZE * (steps + 1) * first * wide
        at = address(dw_hh) + SIZE * (which * wide * row + gate)
        gemm(1, 0, wide, wide, count * rows, before, wide, grads + SIZE * gate, row, again, at, row, address(room))
    else:
        begin = count * (piece - 2 * PIECES) // PIECES
        many = count * (piece - 2 * PIECES + 1) // PIECES - begin
        to = address(dtaken) + SIZE * (which * most + begin * rows) * inputs
        strips_product(
            many * rows, inputs, row, grads + SIZE * begin * rows * row, row, 1, address(packed_ih), 0, to, inputs, 0
        )
        _move(dx, lengths, pointer(to), begin, many, record, 1)


@helper
def _share(which, groups, g, most, given, lengths, states, packed_ih, dx, dw_ih, dw_hh, dgates, taken, dtaken, told, room):
    """Do pieces of all last chunks until none is left, own ones first; wait for groups that are about to be there, not for others."""
    pieces = (3 if given & 64 else 2) * PIECES
    # Own pieces come first, as their gates are in the caches of this core.
    for turn in range(groups):
        other = (which + turn) % groups
        line = told + 8 * TOLD * other
        pauses = 0
        while atomic_load(line) == LAST and pauses < PATIENCE:
            pause()
            pauses += 1
        if atomic_load(line) != DONE:
            continue
        record = _record(pointer_i64(g + 8 * (HEAD + other * len(GROUP))))
        piece = atomic_add(line + 4 * TOLD, 1)
        while piece < pieces:
            _piece(piece, other, record, most, lengths, states, packed_ih, dx, dw_ih, dw_hh, dgates, taken, dtaken, room)
            piece = atomic_add(line + 4 * TOLD, 1)


@kernel
def backward_steps(
    x: Ptr, lengths: PtrI64, dout: Ptr, dlast_h: Ptr, dlast_c: Ptr, gates: Ptr, cells: Ptr, states: Ptr,
    packed_ih: Ptr, packed_hh: Ptr, dx: Ptr, dh0: Ptr, dc0: Ptr, dw_ih: Ptr, dw_hh: Ptr, all_dbias: Ptr, all_dgates: Ptr,
    all_taken: Ptr, dtaken: Ptr, told: Addr, room: Ptr, dh: Ptr, dc: Ptr, g: Addr,
):  # fmt: skip
    """All steps of a group, backwards; from dw_ih to told are all groups' arrays, one after the other, from all_dgates on scratch.

    Each chunk of steps gives its part of the weights' gradients while its gates are still in L2. Products with states ask
    for the activations of the steps that come next, and each sample's step for the cell and the gradient of the one before: all have left
    L2 since they were made.

    The products of the last chunk are pieces that all groups share, since their threads are never equally fast. Pieces are cut by the
    shapes alone, and each is one thread's, so that no bit depends on whose.
    """
    head = pointer_i64(g)
    which, groups, most = head[0], head[1], head[2]
    record = _record(pointer_i64(g + 8 * (HEAD + which * len(GROUP))))
    first, rows, steps, inputs, units, wide, chunk, reverse, given, _, _, out_sample, out_step = record
    row = 4 * wide
    dbias = pointer(address(all_dbias) + SIZE * which * row)
    dgates = pointer(address(all_dgates) + SIZE * which * most * row)
    taken = pointer(address(all_taken) + SIZE * which * most * inputs)
    own_ih = address(dw_ih) + SIZE * which * inputs * row
    own_hh = address(dw_hh) + SIZE * which * wide * row
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
        if c == 0:
            atomic_store(told + 8 * TOLD * which, LAST)
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
            # The gradient of the first state is worth a product only where somebody wants it.
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
        if c == 0:
            break
        many, grads = count * rows, address(dgates)
        gemm(1, 0, inputs, row, many, address(taken), inputs, grads, row, again, own_ih, row, address(room))
        before = address(states) + SIZE * (states_at + begin * rows * wide)
        gemm(1, 0, wide, row, many, before, wide, grads, row, again, own_hh, row, address(room))
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
    atomic_store(told + 8 * TOLD * which, DONE)
    _share(
        which, groups, g, most, given, lengths, states, packed_ih, dx, dw_ih, dw_hh, all_dgates, all_taken, dtaken, told, room
    )
