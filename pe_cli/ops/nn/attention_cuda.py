"""attention on CUDA: a block has sixteen queries, or keys, of one head, and meets the others by tiles of thirty-two in shared memory.

A warp has four rows of the block; its lanes are columns of a tile while scores are computed, and channels while values are added up.
Backward, one kernel goes over queries and one over keys, so that no two threads add to one number; both compute the scores again.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pe_cli.kernels.cuda.language import cuda, cuda_kernel
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.cuda.warp import warp_sum
from pe_cli.kernels.language import Int, Ptr, PtrI64, Real, T, helper
from pe_cli.kernels.math.vector_math import exp, log
from pe_cli.ops.define.lowering import Buffer, Lowering, Offset
from pe_cli.ops.nn.attention import _Call, attention
from pe_cli.ops.nn.attention_library import offer_attention
from pe_cli.ops.nn.softmax import larger
from pe_cli.ops.nn.softmax_cuda import warp_max

#: Rows of a block, and of one warp.
ROWS: Any = 16
EACH: Any = 4
#: Columns of a tile: the lanes of a warp.
TILE: Any = 32
#: Channels that are in shared memory at a time, and elements from one row of them to the next, so that lanes read different banks.
PART: Any = 64
LINE: Any = 65
#: Elements from one row of weights to the next.
SPAN: Any = 33
#: Threads of a block.
MANY: Any = 128
BLOCK = (32, 4, 1)
#: An index without a sign: one with a sign could count from the end.
At: Any = np.uint64


@helper
def load(tile, count, x, at, line, first, rows, begin, width, me):
    """Fill count rows of a tile: channels from begin of rows from first; 0 where x has none."""
    t = me
    while t < count * PART:
        row, channel = t // PART, t % PART
        value = T(0)
        if first + row < rows and begin + channel < width:
            value = x[at + (first + row) * line + begin + channel]
        tile[At(row), At(channel)] = value
        t += MANY


@helper
def dots(left, right, x, x_at, x_line, first, x_rows, y, y_at, y_line, begin, y_rows, width, fresh, warp, lane):
    """Return the products of this warp's four rows, of those from first of x, with row begin + lane of y.

    left holds the rows of x and is filled where fresh or where they are too wide for it; right is filled with rows of y.
    """
    s0 = s1 = s2 = s3 = T(0)
    row, me = At(EACH * warp), warp * TILE + lane
    part = 0
    while part < width:
        # Nobody may overwrite tiles that other warps still read.
        cuda.syncthreads()
        # Queries whose channels fit into the tile stay there for all tiles of keys: they are loaded with the first one alone.
        if fresh or width > PART:
            load(left, ROWS, x, x_at, x_line, first, x_rows, part, width, me)
        load(right, TILE, y, y_at, y_line, begin, y_rows, part, width, me)
        # Nobody may multiply before the whole tile is there.
        cuda.syncthreads()
        for c in range(min(PART, width - part)):
            factor = right[At(lane), At(c)]
            s0, s1 = s0 + left[row, At(c)] * factor, s1 + left[row + At(1), At(c)] * factor
            s2, s3 = s2 + left[row + At(2), At(c)] * factor, s3 + left[row + At(3), At(c)] * factor
        part += PART
    return s0, s1, s2, s3


@helper
def score(total, mask, g, b, h, i, j, scale):
    """Return the score of query i and key j; none is lower than that of a pair that does not exist or is not to be seen."""
    if i >= g[1] or j >= g[2] or (g[8] and j > i):
        # The exponential of minus infinity is 0 to the bit, so that keys outside need no branch in the sums.
        return T(-math.inf)
    total *= T(scale)
    return total + mask[b * g[9] + h * g[10] + i * g[11] + j] if g[9] >= 0 else total


@helper
def add_up(weights, right, row, lane, a0, a1, a2, a3, b0, b1, b2, b3):
    """Add the rows of a tile, weighted, to channels lane (a) and lane + 32 (b) of four rows."""
    for k in range(TILE):
        x, y = right[At(k), At(lane)], right[At(k), At(lane + TILE)]
        w0, w1, w2, w3 = weights[row, At(k)], weights[row + At(1), At(k)], weights[row + At(2), At(k)], weights[row + At(3), At(k)]
        a0, a1, a2, a3 = a0 + w0 * x, a1 + w1 * x, a2 + w2 * x, a3 + w3 * x
        b0, b1, b2, b3 = b0 + w0 * y, b1 + w1 * y, b2 + w2 * y, b3 + w3 * y
    return a0, a1, a2, a3, b0, b1, b2, b3


@helper
def put(out, at, row, rows, channel, width, lane, a, b):
    """Write channels channel + lane and channel + lane + 32 of a row that is there."""
    if row < rows:
        if channel + lane < width:
            out[at + channel + lane] = a
        if channel + lane + TILE < width:
            out[at + channel + lane + TILE] = b


@cuda_kernel(block=BLOCK, threads=("32", "(queries + 15) // 16 * 4", "items"))
def attend_queries(
    q: Ptr, k: Ptr, v: Ptr, mask: Ptr, out: Ptr, level: Ptr, g: PtrI64, queries: Int, items: Int, scale: Real
):
    """out and level of all queries of all items; an item is a head of a batch. First the largest score of a query, then all else."""
    left, right = cuda.shared.array((ROWS, LINE), T), cuda.shared.array((TILE, LINE), T)
    weights = cuda.shared.array((ROWS, SPAN), T)
    lane, warp = int(cuda.threadIdx.x), int(cuda.threadIdx.y)
    row, me = At(EACH * warp), warp * TILE + lane
    heads, keys, width, wide = g[0], g[2], g[3], g[4]
    z = int(cuda.blockIdx.z)
    while z < items:
        b = quotient(z, heads)
        h = z - b * heads
        q_at, k_at, v_at = b * queries * g[5] + h * width, b * keys * g[6] + h * width, b * keys * g[7] + h * wide
        first = int(cuda.blockIdx.y) * ROWS
        while first < queries:
            # With a causal mask, no row of this block sees a key behind its last row: later tiles are never loaded.
            seen = min(keys, first + ROWS) if g[8] else keys
            i = first + EACH * warp
            # All keys are walked twice: when the first exponential is taken, the maximum of its row is known, and no sum is ever rescaled.
            m0 = m1 = m2 = m3 = T(-math.inf)
            j = 0
            while j < seen:
                s0, s1, s2, s3 = dots(
                    left, right, q, q_at, g[5], first, queries, k, k_at, g[6], j, keys, width, j == 0, warp, lane
                )
                m0 = larger(m0, score(s0, mask, g, b, h, i, j + lane, scale))
                m1 = larger(m1, score(s1, mask, g, b, h, i + 1, j + lane, scale))
                m2 = larger(m2, score(s2, mask, g, b, h, i + 2, j + lane, scale))
                m3 = larger(m3, score(s3, mask, g, b, h, i + 3, j + lane, scale))
                j += TILE
            m0, m1, m2, m3 = warp_max(m0), warp_max(m1), warp_max(m2), warp_max(m3)
            # Values with more than 64 channels take further rounds, which compute the weights again: shared memory has no room for both.
            channel = 0
            while channel < wide:
                t0 = t1 = t2 = t3 = T(0)
                a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = T(0)
                j = 0
                while j < seen:
                    s0, s1, s2, s3 = dots(
                        left, right, q, q_at, g[5], first, queries, k, k_at, g[6], j, keys, width, False, warp, lane
                    )
                    s0 = exp(score(s0, mask, g, b, h, i, j + lane, scale) - m0)
                    s1 = exp(score(s1, mask, g, b, h, i + 1, j + lane, scale) - m1)
                    s2 = exp(score(s2, mask, g, b, h, i + 2, j + lane, scale) - m2)
                    s3 = exp(score(s3, mask, g, b, h, i + 3, j + lane, scale) - m3)
                    t0, t1, t2, t3 = t0 + s0, t1 + s1, t2 + s2, t3 + s3
                    weights[row, At(lane)], weights[row + At(1), At(lane)] = s0, s1
                    weights[row + At(2), At(lane)], weights[row + At(3), At(lane)] = s2, s3
                    # The weights of a row are read by all lanes of its warp, and the tile of keys is about to become one of values.
                    cuda.syncthreads()
                    load(right, TILE, v, v_at, g[7], j, keys, channel, wide, me)
                    cuda.syncthreads()
                    a0, a1, a2, a3, b0, b1, b2, b3 = add_up(weights, right, row, lane, a0, a1, a2, a3, b0, b1, b2, b3)
                    j += TILE
                t0, t1, t2, t3 = warp_sum(t0), warp_sum(t1), warp_sum(t2), warp_sum(t3)
                to, line = (b * queries + i) * heads * wide + h * wide, heads * wide
                put(out, to, i, queries, channel, wide, lane, a0 / t0, b0 / t0)
                put(out, to + line, i + 1, queries, channel, wide, lane, a1 / t1, b1 / t1)
                put(out, to + 2 * line, i + 2, queries, channel, wide, lane, a2 / t2, b2 / t2)
                put(out, to + 3 * line, i + 3, queries, channel, wide, lane, a3 / t3, b3 / t3)
                # The logarithm of the sum is all that backward needs to compute the weights again; one round is enough to write it.
                if channel == 0 and lane < EACH and i + lane < queries:
                    m = m0 if lane == 0 else (m1 if lane == 1 else (m2 if lane == 2 else m3))
                    t = t0 if lane == 0 else (t1 if lane == 1 else (t2 if lane == 2 else t3))
                    level[z * queries + i + lane] = m + log(t)
                channel += PART
            # The next rows of queries overwrite what slower warps may still read.
            cuda.syncthreads()
            first += int(cuda.gridDim.y) * ROWS
        z += int(cuda.gridDim.z)


@helper
def agreement(out, dout, at, wide, i, queries, lane):
    """Return the product of a query's output with its gradient."""
    total = T(0)
    c = lane
    while i < queries and c < wide:
        total += out[at + c] * dout[at + c]
        c += TILE
    # All lanes get the sum: each of them needs it for its own column.
    return warp_sum(total)


@helper
def level_of(level, z, i, queries):
    return level[z * queries + i] if i < queries else T(0)


@cuda_kernel(block=BLOCK, threads=("32", "(queries + 15) // 16 * 4", "items"))
def queries_back(
    q: Ptr, k: Ptr, v: Ptr, mask: Ptr, out: Ptr, level: Ptr, dout: Ptr, dq: Ptr, agreed: Ptr, g: PtrI64, queries: Int, items: Int,
    scale: Real,
):  # fmt: skip
    """dq of all queries of all items, and agreed [items, queries], the products of outputs with their gradients."""
    left, above = cuda.shared.array((ROWS, LINE), T), cuda.shared.array((ROWS, LINE), T)
    right, slopes = cuda.shared.array((TILE, LINE), T), cuda.shared.array((ROWS, SPAN), T)
    lane, warp = int(cuda.threadIdx.x), int(cuda.threadIdx.y)
    row, me = At(EACH * warp), warp * TILE + lane
    heads, keys, width, wide = g[0], g[2], g[3], g[4]
    z = int(cuda.blockIdx.z)
    while z < items:
        b = quotient(z, heads)
        h = z - b * heads
        q_at, k_at, v_at = b * queries * g[5] + h * width, b * keys * g[6] + h * width, b * keys * g[7] + h * wide
        line, o_at = heads * wide, b * queries * heads * wide + h * wide
        first = int(cuda.blockIdx.y) * ROWS
        while first < queries:
            seen = min(keys, first + ROWS) if g[8] else keys
            i = first + EACH * warp
            d0 = agreement(out, dout, o_at + i * line, wide, i, queries, lane)
            d1 = agreement(out, dout, o_at + (i + 1) * line, wide, i + 1, queries, lane)
            d2 = agreement(out, dout, o_at + (i + 2) * line, wide, i + 2, queries, lane)
            d3 = agreement(out, dout, o_at + (i + 3) * line, wide, i + 3, queries, lane)
            if lane < EACH and i + lane < queries:
                agreed[z * queries + i + lane] = d0 if lane == 0 else (d1 if lane == 1 else (d2 if lane == 2 else d3))
            l0, l1 = level_of(level, z, i, queries), level_of(level, z, i + 1, queries)
            l2, l3 = level_of(level, z, i + 2, queries), level_of(level, z, i + 3, queries)
            channel = 0
            while channel < width:
                a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = T(0)
                j = 0
                while j < seen:
                    s0, s1, s2, s3 = dots(
                        left, right, q, q_at, g[5], first, queries, k, k_at, g[6], j, keys, width, j == 0, warp, lane
                    )
                    c0, c1, c2, c3 = dots(
                        above, right, dout, o_at, line, first, queries, v, v_at, g[7], j, keys, wide, j == 0, warp, lane
                    )
                    s0 = exp(score(s0, mask, g, b, h, i, j + lane, scale) - l0) * (c0 - d0) * T(scale)
                    s1 = exp(score(s1, mask, g, b, h, i + 1, j + lane, scale) - l1) * (c1 - d1) * T(scale)
                    s2 = exp(score(s2, mask, g, b, h, i + 2, j + lane, scale) - l2) * (c2 - d2) * T(scale)
                    s3 = exp(score(s3, mask, g, b, h, i + 3, j + lane, scale) - l3) * (c3 - d3) * T(scale)
                    slopes[row, At(lane)], slopes[row + At(1), At(lane)] = s0, s1
                    slopes[row + At(2), At(lane)], slopes[row + At(3), At(lane)] = s2, s3
                    cuda.syncthreads()
                    load(right, TILE, k, k_at, g[6], j, keys, channel, width, me)
                    cuda.syncthreads()
                    a0, a1, a2, a3, b0, b1, b2, b3 = add_up(slopes, right, row, lane, a0, a1, a2, a3, b0, b1, b2, b3)
                    j += TILE
                to = q_at + i * g[5]
                put(dq, to, i, queries, channel, width, lane, a0, b0)
                put(dq, to + g[5], i + 1, queries, channel, width, lane, a1, b1)
                put(dq, to + 2 * g[5], i + 2, queries, channel, width, lane, a2, b2)
                put(dq, to + 3 * g[5], i + 3, queries, channel, width, lane, a3, b3)
                channel += PART
            cuda.syncthreads()
            first += int(cuda.gridDim.y) * ROWS
        z += int(cuda.gridDim.z)


@cuda_kernel(block=BLOCK, threads=("32", "(keys + 15) // 16 * 4", "items"))
def keys_back(
    q: Ptr, k: Ptr, v: Ptr, mask: Ptr, level: Ptr, dout: Ptr, agreed: Ptr, dk: Ptr, dv: Ptr, g: PtrI64, keys: Int, items: Int,
    scale: Real,
):  # fmt: skip
    """dk and dv of all keys of all items; agreed is that of `queries_back`."""
    left, above = cuda.shared.array((ROWS, LINE), T), cuda.shared.array((ROWS, LINE), T)
    right = cuda.shared.array((TILE, LINE), T)
    slopes, weights = cuda.shared.array((ROWS, SPAN), T), cuda.shared.array((ROWS, SPAN), T)
    lane, warp = int(cuda.threadIdx.x), int(cuda.threadIdx.y)
    row, me = At(EACH * warp), warp * TILE + lane
    heads, queries, width, wide = g[0], g[1], g[3], g[4]
    z = int(cuda.blockIdx.z)
    while z < items:
        b = quotient(z, heads)
        h = z - b * heads
        q_at, k_at, v_at = b * queries * g[5] + h * width, b * keys * g[6] + h * width, b * keys * g[7] + h * wide
        line, o_at = heads * wide, b * queries * heads * wide + h * wide
        first = int(cuda.blockIdx.y) * ROWS
        while first < keys:
            j = first + EACH * warp
            channel = 0
            while channel < max(width, wide):
                a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = T(0)
                u0 = u1 = u2 = u3 = v0 = v1 = v2 = v3 = T(0)
                begin = first // TILE * TILE if g[8] else 0
                i, fresh = begin, True
                while i < queries:
                    s0, s1, s2, s3 = dots(
                        left, right, k, k_at, g[6], first, keys, q, q_at, g[5], i, queries, width, fresh, warp, lane
                    )
                    c0, c1, c2, c3 = dots(
                        above, right, v, v_at, g[7], first, keys, dout, o_at, line, i, queries, wide, fresh, warp, lane
                    )
                    fresh = False
                    high, d = level_of(level, z, i + lane, queries), level_of(agreed, z, i + lane, queries)
                    s0 = exp(score(s0, mask, g, b, h, i + lane, j, scale) - high)
                    s1 = exp(score(s1, mask, g, b, h, i + lane, j + 1, scale) - high)
                    s2 = exp(score(s2, mask, g, b, h, i + lane, j + 2, scale) - high)
                    s3 = exp(score(s3, mask, g, b, h, i + lane, j + 3, scale) - high)
                    weights[row, At(lane)], weights[row + At(1), At(lane)] = s0, s1
                    weights[row + At(2), At(lane)], weights[row + At(3), At(lane)] = s2, s3
                    slopes[row, At(lane)], slopes[row + At(1), At(lane)] = s0 * (c0 - d) * T(scale), s1 * (c1 - d) * T(scale)
                    slopes[row + At(2), At(lane)] = s2 * (c2 - d) * T(scale)
                    slopes[row + At(3), At(lane)] = s3 * (c3 - d) * T(scale)
                    cuda.syncthreads()
                    load(right, TILE, q, q_at, g[5], i, queries, channel, width, me)
                    cuda.syncthreads()
                    a0, a1, a2, a3, b0, b1, b2, b3 = add_up(slopes, right, row, lane, a0, a1, a2, a3, b0, b1, b2, b3)
                    cuda.syncthreads()
                    load(right, TILE, dout, o_at, line, i, queries, channel, wide, me)
                    cuda.syncthreads()
                    u0, u1, u2, u3, v0, v1, v2, v3 = add_up(weights, right, row, lane, u0, u1, u2, u3, v0, v1, v2, v3)
                    i += TILE
                to, value = k_at + j * g[6], v_at + j * g[7]
                put(dk, to, j, keys, channel, width, lane, a0, b0)
                put(dk, to + g[6], j + 1, keys, channel, width, lane, a1, b1)
                put(dk, to + 2 * g[6], j + 2, keys, channel, width, lane, a2, b2)
                put(dk, to + 3 * g[6], j + 3, keys, channel, width, lane, a3, b3)
                put(dv, value, j, keys, channel, wide, lane, u0, v0)
                put(dv, value + g[7], j + 1, keys, channel, wide, lane, u1, v1)
                put(dv, value + 2 * g[7], j + 2, keys, channel, wide, lane, u2, v2)
                put(dv, value + 3 * g[7], j + 3, keys, channel, wide, lane, u3, v3)
                channel += PART
            cuda.syncthreads()
            first += int(cuda.gridDim.y) * ROWS
        z += int(cuda.gridDim.z)


@attention.lower("cuda")
def attention_cuda(o: Lowering) -> None:
    """All queries."""
    c, begin = _Call(o), len(o.calls)
    made = o.output("Out"), o.output("Level")
    _attend(c, made)
    offer_attention(o, begin, "values", c, (), made)


def _attend(c: _Call, made: tuple[Buffer, Buffer]) -> None:
    s = c.shapes
    c.o.call(attend_queries, *c.operands, c.mask, *made, c.record, s.queries, s.batch * c.heads, c.scale)


@attention.grad_op.lower("cuda")  # type: ignore[union-attr]
def attention_grad_cuda(o: Lowering) -> None:
    """All queries, then all keys."""
    c, begin = _Call(o), len(o.calls)
    s = c.shapes
    items = s.batch * c.heads
    slots = ("Q@GRAD", "K@GRAD", "V@GRAD")
    # Where a gradient is wanted of nobody, the kernel still writes it: a branch for each would cost more than scratch memory.
    gradients: tuple[Buffer | Offset, ...] = c.split(o.output("Q@GRAD")) if not c.apart else tuple(
        o.output(n) if o.has(n) else o.scratch(b.size, b.dtype) for n, b in zip(slots, c.apart, strict=True)
    )
    level, dout = o.input("Level"), o.input("Out@GRAD")
    # Written by the first kernel and read by the second: the product of a row's result and its gradient, which all its keys need.
    agreed = o.scratch(items * s.queries, dout.dtype)
    given = (*c.operands, c.mask)
    o.call(queries_back, *given, o.input("Out"), level, dout, gradients[0], agreed, c.record, s.queries, items, c.scale)
    o.call(keys_back, *given, level, dout, agreed, *gradients[1:], c.record, s.keys, items, c.scale)
    values = o.input("Out"), level
    offer_attention(o, begin, "back", c, (*values, dout), gradients, lambda: _attend(c, values))
