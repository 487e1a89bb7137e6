"""softmax and log_softmax on CUDA: a warp on a row of neighbours, a thread on a column."""

from __future__ import annotations

import math

from pe_cli.kernels.cuda.language import cuda, on_cuda
from pe_cli.kernels.cuda.math import quotient, replaces
from pe_cli.kernels.cuda.warp import ALL, LANES, WARPS, first_row, row_step, warp_sum
from pe_cli.kernels.language import Int, Ptr, T, helper
from pe_cli.kernels.math.vector_math import exp, log
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.nn.softmax import (
    bounded,
    larger,
    log_softmax,
    log_softmax_back,
    log_softmax_rows,
    softmax,
    softmax_across,
    softmax_back,
    softmax_back_across,
    softmax_rows,
)


@replaces(larger)
def _larger(a, b):
    return a if a > b or a != a else b


@helper
def warp_max(value):
    """Return the largest of the lanes, NaN where one is."""
    # Five exchanges between lanes: after each, twice as many lanes know the largest of what they have met.
    value = larger(value, cuda.shfl_xor_sync(ALL, value, 16))
    value = larger(value, cuda.shfl_xor_sync(ALL, value, 8))
    value = larger(value, cuda.shfl_xor_sync(ALL, value, 4))
    value = larger(value, cuda.shfl_xor_sync(ALL, value, 2))
    return larger(value, cuda.shfl_xor_sync(ALL, value, 1))


@helper
def warp_top(x, first, end):
    """Return the largest of a row, of which this lane has x[first], x[first + LANES], ..."""
    m = T(-math.inf)
    j = first
    while j < end:
        m = larger(m, x[j])
        j += LANES
    return warp_max(m)


@on_cuda(softmax_rows, block=WARPS, threads=("32", "rows"))
def softmax_rows_cuda(x: Ptr, out: Ptr, rows: Int, n: Int):
    """A warp on a row; out may be x."""
    r = first_row()
    while r < rows:
        first, end = r * n + cuda.threadIdx.x, r * n + n
        m = warp_top(x, first, end)
        # The largest of a row goes out of its exponents first, so that no sum overflows.
        total = T(0)
        j = first
        while j < end:
            e = exp(bounded(x[j] - m))
            # Written at once, though not yet divided: reading it again costs less than a second exp.
            out[j] = e
            total += e
            j += LANES
        share = T(1) / warp_sum(total)
        j = first
        while j < end:
            out[j] *= share
            j += LANES
        r += row_step()


@on_cuda(log_softmax_rows, block=WARPS, threads=("32", "rows"))
def log_softmax_rows_cuda(x: Ptr, out: Ptr, rows: Int, n: Int):
    """A warp on a row."""
    r = first_row()
    while r < rows:
        first, end = r * n + cuda.threadIdx.x, r * n + n
        m = warp_top(x, first, end)
        total = T(0)
        j = first
        while j < end:
            total += exp(x[j] - m)
            j += LANES
        level = m + log(warp_sum(total))
        j = first
        while j < end:
            out[j] = x[j] - level
            j += LANES
        r += row_step()


@on_cuda(softmax_back, block=WARPS, threads=("32", "rows"))
def softmax_back_cuda(out: Ptr, g: Ptr, dx: Ptr, rows: Int, n: Int):
    """A warp on a row; dx may be g or out."""
    r = first_row()
    while r < rows:
        first, end = r * n + cuda.threadIdx.x, r * n + n
        # The gradient's mean under the softmax, which its derivative takes off every element.
        total = T(0)
        j = first
        while j < end:
            total += out[j] * g[j]
            j += LANES
        s = warp_sum(total)
        j = first
        while j < end:
            dx[j] = out[j] * (g[j] - s)
            j += LANES
        r += row_step()


@on_cuda(log_softmax_back, block=WARPS, threads=("32", "rows"))
def log_softmax_back_cuda(out: Ptr, g: Ptr, dx: Ptr, rows: Int, n: Int):
    """A warp on a row; dx may be g."""
    r = first_row()
    while r < rows:
        first, end = r * n + cuda.threadIdx.x, r * n + n
        total = T(0)
        j = first
        while j < end:
            total += g[j]
            j += LANES
        s = warp_sum(total)
        j = first
        while j < end:
            dx[j] = g[j] - exp(out[j]) * s
            j += LANES
        r += row_step()


@on_cuda(softmax_across)
def softmax_across_cuda(x: Ptr, out: Ptr, top: Ptr, total: Ptr, outer: Int, n: Int, inner: Int, logarithm: Int):
    """One thread per column, which needs no scratch."""
    for r in range(outer * inner):
        at = r + quotient(r, inner) * (n - 1) * inner
        # Three walks over a column: the largest, the sum, the results. Neighbouring threads read neighbouring columns.
        m = T(-math.inf)
        for k in range(n):
            m = larger(m, x[at + k * inner])
        s = T(0)
        for k in range(n):
            s += exp(x[at + k * inner] - m)
        level = log(s)
        for k in range(n):
            d = x[at + k * inner] - m
            out[at + k * inner] = d - level if logarithm else exp(d) / s


@on_cuda(softmax_back_across)
def softmax_back_across_cuda(out: Ptr, g: Ptr, dx: Ptr, total: Ptr, outer: Int, n: Int, inner: Int, logarithm: Int):
    """One thread per column, which needs no scratch."""
    for r in range(outer * inner):
        at = r + quotient(r, inner) * (n - 1) * inner
        s = T(0)
        for k in range(n):
            i = at + k * inner
            s += g[i] if logarithm else out[i] * g[i]
        for k in range(n):
            i = at + k * inner
            dx[i] = g[i] - exp(out[i]) * s if logarithm else out[i] * (g[i] - s)


also_on_cuda(softmax, log_softmax)
