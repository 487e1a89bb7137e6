"""Kernels of updates by row-sparse gradients; the ops are in optimizer.py, optimizer_adaptive.py and optimizer_moments.py.

g is [n, width], rows tells which row of the parameter each of its rows is for; -1 is none, and no other stands twice.
Threads may share the n rows: begin and end say which are meant.
"""

from __future__ import annotations

import math

from pe_cli.kernels.cpu.non_temporal import AHEAD, prefetch_row
from pe_cli.kernels.language import Int, Ptr, PtrI64, PtrU, Real, T, kernel
from pe_cli.kernels.math.vector_math import square_root
from pe_cli.ops.update.update_kernels import blend


@kernel
def sgd_rows(p: Ptr, g: Ptr, rows: PtrI64, rate: PtrU, begin: Int, end: Int, width: Int):
    """p[rows] -= rate * g."""
    step = T(rate[0])
    for i in range(begin, end):
        row = rows[i]
        # Rows of a table lie far apart in memory: one that is soon to come is asked for while this one is computed.
        if i + AHEAD < end:
            prefetch_row(p, rows[i + AHEAD], width)
        if row >= 0:
            for j in range(width):
                p[row * width + j] -= step * g[i * width + j]


@kernel
def momentum_rows(
    p: Ptr, g: Ptr, rows: PtrI64, v: Ptr, rate: PtrU, n: Int, width: Int, size: Int, mu: Real, nesterov: Int
):
    """As momentum_step where the gradient is 0 in all other rows: their velocity goes on. CPUs have `table_rows`."""
    step = T(rate[0])
    for i in range(size):
        v[i] = mu * v[i]
    for i in range(n):
        row = rows[i]
        if row >= 0:
            for j in range(width):
                v[row * width + j] += g[i * width + j]
                # Nesterov's step goes along g + mu v: along g here, along mu v below.
                if nesterov:
                    p[row * width + j] -= step * g[i * width + j]
    along = step * mu if nesterov else step
    for i in range(size):
        p[i] -= along * v[i]


@kernel
def adagrad_rows(p: Ptr, g: Ptr, rows: PtrI64, s: Ptr, rate: PtrU, begin: Int, end: Int, width: Int, eps: Real):
    """As adagrad_step in the given rows; in the others nothing changes."""
    step = T(rate[0])
    for i in range(begin, end):
        row = rows[i]
        if i + AHEAD < end:
            prefetch_row(p, rows[i + AHEAD], width)
            prefetch_row(s, rows[i + AHEAD], width)
        if row >= 0:
            for j in range(width):
                slope = g[i * width + j]
                now = s[row * width + j] + slope * slope
                s[row * width + j] = now
                p[row * width + j] -= step * slope / (square_root(now) + eps)


@kernel
def adam_rows(
    p: Ptr, g: Ptr, rows: PtrI64, m: Ptr, v: Ptr, pow1: Ptr, pow2: Ptr, rate: PtrU, begin: Int, end: Int, width: Int,
    b1: Real, b2: Real, eps: Real,
):
    """As adam_step in the given rows, but for the powers; in the others nothing changes."""
    step = T(rate[0] * math.sqrt(1.0 - pow2[0]) / (1.0 - pow1[0]))
    for i in range(begin, end):
        row = rows[i]
        if i + AHEAD < end:
            prefetch_row(p, rows[i + AHEAD], width)
            prefetch_row(m, rows[i + AHEAD], width)
            prefetch_row(v, rows[i + AHEAD], width)
        if row >= 0:
            for j in range(width):
                slope = g[i * width + j]
                at = row * width + j
                first = blend(m[at], slope, b1)
                second = blend(v[at], slope * slope, b2)
                m[at] = first
                v[at] = second
                p[at] -= step * first / (square_root(second) + eps)


@kernel
def adam_every_row(
    p: Ptr, g: Ptr, rows: PtrI64, m: Ptr, v: Ptr, pow1: Ptr, pow2: Ptr, rate: PtrU, n: Int, width: Int, size: Int,
    b1: Real, b2: Real, eps: Real,
):
    """As adam_step, but for the powers, where the gradient is 0 in all other rows: their moments decay, and they go on moving.

    CPUs have `table_rows`.
    """
    one = T(1)
    step = T(rate[0] * math.sqrt(1.0 - pow2[0]) / (1.0 - pow1[0]))
    for i in range(size):
        m[i] = b1 * m[i]
        v[i] = b2 * v[i]
    for i in range(n):
        row = rows[i]
        if row >= 0:
            for j in range(width):
                slope = g[i * width + j]
                m[row * width + j] += (one - b1) * slope
                v[row * width + j] += (one - b2) * slope * slope
    for i in range(size):
        p[i] -= step * m[i] / (square_root(v[i]) + eps)
