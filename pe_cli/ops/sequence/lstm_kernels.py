"""Kernels of lstm: all steps of all sequences in one call."""

# ruff: noqa: C901, PLR0912 - a step is a step
from __future__ import annotations

from pe_cli.kernels.cpu.gemm import gemm
from pe_cli.kernels.language import SIZE, Int, Ptr, PtrI64, Real, T, address, helper, kernel, pointer
from pe_cli.ops.sequence.recurrent import activate, copy_row, rows_before, times_slope, zero_rows


@helper
def clip(x, n, limit):
    """x[0 .. n) at an address, no further from 0 than limit."""
    p = pointer(x)
    for i in range(n):
        # A NaN is above no limit and below none: it stays, so that a run that diverges shows it.
        if p[i] > limit:
            p[i] = limit
        elif p[i] < -limit:
            p[i] = -limit


@helper
def stop_clipped(d, y, n, limit):
    """d[0 .. n) = 0 where y was clipped."""
    p = pointer(d)
    q = pointer(y)
    for i in range(n):
        # A number at the limit was cut off: what comes behind did not depend on it.
        if q[i] >= limit or q[i] <= -limit:
            p[i] = T(0)


@kernel
def lstm_forward(
    x: Ptr, w: Ptr, bias: Ptr, h0: Ptr, c0: Ptr, proj: Ptr, order: PtrI64, begins: PtrI64, ranks: PtrI64,
    hidden: Ptr, cell: Ptr, gates: Ptr, work: Ptr, scratch: Ptr, steps: Int, rows: Int, count: Int, d: Int, r: Int,
    flags: Int, gate_act: Int, cell_act: Int, cand_act: Int, proj_act: Int, cell_clip: Real, proj_clip: Real,
):
    """Gates lie [candidate, input, forget, output], rows of gates in the order of steps; flags: 1 peepholes, 2 h0, 4 c0, 8 projection.

    work holds rows * (r + 2 d) + count * r + d elements: states, cells and outputs before projection, h0, zeros.
    """
    wide = 4 * d
    states = address(work)
    cells = states + SIZE * rows * r
    raw = cells + SIZE * rows * d
    first = raw + SIZE * rows * d
    zeros = first + SIZE * count * r
    zero_rows(zeros, d)
    if flags & 2:
        for p in range(count):
            copy_row(address(h0) + SIZE * ranks[p] * r, first + SIZE * p * r, r)
    for t in range(steps):
        begin = begins[t]
        m = begins[t + 1] - begin
        at = address(gates) + SIZE * begin * wide
        for p in range(m):
            row = order[begin + p] * wide
            to = (begin + p) * wide
            for j in range(wide):
                gates[to + j] = x[row + j] + bias[j]
        # The first step without a first state has nothing to multiply with.
        if t > 0 or flags & 2:
            before = states + SIZE * begins[t - 1] * r if t > 0 else first
            gemm(0, 0, m, wide, r, before, r, address(w), wide, 1, at, wide, address(scratch))
        for p in range(m):
            g = at + SIZE * p * wide
            previous = zeros
            if t > 0:
                previous = cells + SIZE * (begins[t - 1] + p) * d
            elif flags & 4:
                previous = address(c0) + SIZE * ranks[p] * d
            old = pointer(previous)
            now = pointer(cells + SIZE * (begin + p) * d)
            out = pointer(raw + SIZE * (begin + p) * d)
            v = pointer(g)
            # Peepholes: gates see the cell as well. Input and forget gates see the old one, the output gate the new one below.
            if flags & 1:
                for j in range(d):
                    v[d + j] += bias[wide + j] * old[j]
                    v[2 * d + j] += bias[wide + d + j] * old[j]
            activate(cand_act, g, d)
            activate(gate_act, g + SIZE * d, 2 * d)
            for j in range(d):
                # The forget gate keeps a part of the old cell, and the input gate lets in a part of the candidate.
                now[j] = v[2 * d + j] * old[j] + v[d + j] * v[j]
            if cell_clip > 0:
                clip(address(now), d, cell_clip)
            if flags & 1:
                for j in range(d):
                    v[3 * d + j] += bias[wide + 2 * d + j] * now[j]
            activate(gate_act, g + SIZE * 3 * d, d)
            for j in range(d):
                out[j] = now[j]
            activate(cell_act, address(out), d)
            for j in range(d):
                out[j] *= v[3 * d + j]
            copy_row(address(now), address(cell) + SIZE * order[begin + p] * d, d)
        top = states + SIZE * begin * r
        if flags & 8:
            gemm(0, 0, m, r, d, raw + SIZE * begin * d, d, address(proj), r, 0, top, r, address(scratch))
            activate(proj_act, top, m * r)
            if proj_clip > 0:
                clip(top, m * r, proj_clip)
        else:
            copy_row(raw + SIZE * begin * d, top, m * r)
        for p in range(m):
            copy_row(top + SIZE * p * r, address(hidden) + SIZE * order[begin + p] * r, r)


@kernel
def lstm_backward(
    dhidden: Ptr, dcell: Ptr, w: Ptr, bias: Ptr, h0: Ptr, c0: Ptr, proj: Ptr, order: PtrI64, begins: PtrI64,
    ranks: PtrI64, hidden: Ptr, cell: Ptr, gates: Ptr, dgates: Ptr, dh: Ptr, dc: Ptr, dr: Ptr, raw: Ptr, old_c: Ptr,
    scratch: Ptr, steps: Int, rows: Int, count: Int, d: Int, r: Int, flags: Int, gate_act: Int, cell_act: Int,
    cand_act: Int, proj_act: Int, cell_clip: Real, proj_clip: Real,
):
    """Gradients of the gates before activation, in the order of steps; flags as forward, and 16: dhidden, 32: dcell.

    dh [count, r] and dc [count, d] end as the gradients of the first states, in the order of ranks; dr [rows, r] those of
    the projection before activation, raw [rows, d] the outputs before it, old_c [rows, d] the cells before each step.
    """
    wide = 4 * d
    zero_rows(address(dh), count * r)
    zero_rows(address(dc), count * d)
    rows_before(address(cell), address(c0), flags & 4, order, begins, ranks, steps, d, address(old_c))
    for back in range(steps):
        t = steps - 1 - back
        begin = begins[t]
        m = begins[t + 1] - begin
        for p in range(m):
            row = order[begin + p]
            to = (begin + p) * r
            for j in range(r):
                # dh holds what later steps want of this one's output, by the order of lengths.
                dr[to + j] = dh[p * r + j]
            if flags & 16:
                for j in range(r):
                    dr[to + j] += dhidden[row * r + j]
            if flags & 8:
                if proj_clip > 0:
                    stop_clipped(address(dr) + SIZE * to, address(hidden) + SIZE * row * r, r, proj_clip)
                times_slope(proj_act, address(dr) + SIZE * to, address(hidden) + SIZE * row * r, r)
        up = address(dr) + SIZE * begin * r
        if flags & 8:  # the gradient of the outputs before projection, where their values will lie
            gemm(0, 1, m, d, r, up, r, address(proj), r, 0, address(raw) + SIZE * begin * d, d, address(scratch))
        else:
            copy_row(up, address(raw) + SIZE * begin * d, m * d)
        for p in range(m):
            row = order[begin + p]
            y = (begin + p) * wide
            q = (begin + p) * d
            for j in range(d):  # act(c), where the input gate's gradient will lie
                dgates[y + d + j] = cell[row * d + j]
            activate(cell_act, address(dgates) + SIZE * (y + d), d)
            for j in range(d):
                value = dgates[y + d + j]
                # The places of the input and the forget gate hold act(c) and the gradient that the cell gets through it; the loop below
                # reads both before it writes the gates' own gradients there.
                dgates[y + 3 * d + j] = raw[q + j] * value
                dgates[y + 2 * d + j] = raw[q + j] * gates[y + 3 * d + j]
                # The gradient of the outputs has been read by now. Its memory takes the outputs before the projection, which the gradient
                # of the projection's weights is made of.
                raw[q + j] = value * gates[y + 3 * d + j]
            times_slope(gate_act, address(dgates) + SIZE * (y + 3 * d), address(gates) + SIZE * (y + 3 * d), d)
            times_slope(cell_act, address(dgates) + SIZE * (y + 2 * d), address(dgates) + SIZE * (y + d), d)
            for j in range(d):
                total = dc[p * d + j] + dgates[y + 2 * d + j]
                if flags & 32:
                    total += dcell[row * d + j]
                if flags & 1:
                    total += bias[wide + 2 * d + j] * dgates[y + 3 * d + j]
                # Everything that read this cell read the clipped one; so all its gradients are summed before the cut sets them to 0.
                if cell_clip > 0 and (cell[row * d + j] >= cell_clip or cell[row * d + j] <= -cell_clip):
                    total = T(0)
                dgates[y + j] = total * gates[y + d + j]
                dgates[y + d + j] = total * gates[y + j]
                dgates[y + 2 * d + j] = total * old_c[q + j]
                dc[p * d + j] = total * gates[y + 2 * d + j]
            times_slope(cand_act, address(dgates) + SIZE * y, address(gates) + SIZE * y, d)
            times_slope(gate_act, address(dgates) + SIZE * (y + d), address(gates) + SIZE * (y + d), 2 * d)
            if flags & 1:
                for j in range(d):
                    dc[p * d + j] += bias[wide + j] * dgates[y + d + j] + bias[wide + d + j] * dgates[y + 2 * d + j]
        # The factor 0 writes dh anew: the old state reaches this step through the weights alone, so nothing that stands in dh is still to
        # come.
        gemm(
            0, 1, m, r, wide, address(dgates) + SIZE * begin * wide, wide, address(w), wide, 0, address(dh), r,
            address(scratch),
        )  # fmt: skip


@kernel
def transposed_product(
    values: Ptr, first: Ptr, order: PtrI64, begins: PtrI64, ranks: PtrI64, before: Ptr, g: Ptr, out: Ptr, scratch: Ptr,
    steps: Int, rows: Int, k: Int, n: Int, ldg: Int, has_first: Int, gathers: Int,
):
    """out[k, n] = before^T g over all rows; before [rows, k] is made of the states before each step where gathers is set."""
    if gathers:
        rows_before(address(values), address(first), has_first, order, begins, ranks, steps, k, address(before))
    gemm(1, 0, k, n, rows, address(before), k, address(g), ldg, 0, address(out), n, address(scratch))


@kernel
def column_sums(g: Ptr, cells: Ptr, old_c: Ptr, order: PtrI64, out: Ptr, rows: Int, d: Int, peepholes: Int):
    """out = the sums of the gates' gradients, and behind them those of the peepholes."""
    wide = 4 * d
    zero_rows(address(out), 7 * d if peepholes else wide)
    for i in range(rows):
        for j in range(wide):
            out[j] += g[i * wide + j]
        if peepholes:
            row = order[i] * d
            for j in range(d):
                out[wide + j] += g[i * wide + d + j] * old_c[i * d + j]
                out[wide + d + j] += g[i * wide + 2 * d + j] * old_c[i * d + j]
                out[wide + 2 * d + j] += g[i * wide + 3 * d + j] * cells[row + j]


@kernel
def put_by(source: Ptr, index: PtrI64, out: Ptr, count: Int, n: Int, total: Int):
    """out = 0, then out[index[i]] = source[i]."""
    zero_rows(address(out), total)
    for i in range(count):
        copy_row(address(source) + SIZE * i * n, address(out) + SIZE * index[i] * n, n)
