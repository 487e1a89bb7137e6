"""Kernels of attention: a tile of scores at a time, which never leaves the cache."""

from __future__ import annotations

import math

from pe_cli.kernels.cpu.gemm import gemm
from pe_cli.kernels.language import SIZE, Int, Ptr, PtrI64, Real, T, address, helper, kernel
from pe_cli.kernels.math.vector_math import exp, log
from pe_cli.ops.nn.softmax import larger


@helper
def _sizes(g):
    """Return a call's record.

    It holds heads, queries, keys, the width of a head of queries and keys, of a head of values, elements between rows of
    q, k and v, whether a query sees no later keys, elements between batches, heads and rows of the mask (the first is -1
    where there is none), and rows of a tile.
    """
    return g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10], g[11], g[12]


@helper
def _scores(q, k, mask, scores, rows, seen, begin, item, sizes, inverse, scratch):
    """scores[rows, keys] = products of queries from begin on and keys before seen, plus mask / scale."""
    heads, _, keys, width, _, q_row, k_row, _, _, mask_batch, mask_head, mask_row, _ = sizes
    gemm(0, 1, rows, seen, width, q, q_row, k, k_row, 0, address(scores), keys, scratch)
    if mask_batch >= 0:
        for r in range(rows):
            at = item // heads * mask_batch + item % heads * mask_head + (begin + r) * mask_row
            for j in range(seen):
                scores[r * keys + j] += mask[at + j] * inverse


@helper
def _scores_by_key(q, k, mask, scores, rows, seen, begin, item, sizes, inverse, scratch):
    """The same as scores[keys, rows], and in the two rows behind the last key 0 and -infinity, for sums and maxima."""
    heads, _, keys, width, _, q_row, k_row, _, _, mask_batch, mask_head, mask_row, _ = sizes
    gemm(0, 1, seen, rows, width, k, k_row, q, q_row, 0, address(scores), rows, scratch)
    if mask_batch >= 0:
        at = item // heads * mask_batch + item % heads * mask_head + begin * mask_row
        for j in range(seen):
            for r in range(rows):
                scores[j * rows + r] += mask[at + r * mask_row + j] * inverse
    for r in range(rows):
        scores[keys * rows + r] = T(0)
        scores[(keys + 1) * rows + r] = T(-math.inf)


@helper
def _softmax_by_key(scores, seen, rows, hidden, total, top, scale):
    """Turn scores[seen, rows] into exp(scale (score - largest)); key j is for the rows from j - hidden on.

    total and top are where the sums and the largest scores of the rows go. The keys lie one after the other, so that
    neither needs a sum across a vector.
    """
    for j in range(seen):
        for r in range(max(0, j - hidden), rows):
            scores[top + r] = larger(scores[top + r], scores[j * rows + r])
    for j in range(seen):
        first = max(0, j - hidden)
        for r in range(first):
            scores[j * rows + r] = T(0)
        for r in range(first, rows):
            e = exp((scores[j * rows + r] - scores[top + r]) * scale)
            scores[j * rows + r] = e
            scores[total + r] += e


@kernel
def attend(
    q: Ptr, k: Ptr, v: Ptr, mask: Ptr, out: Ptr, level: Ptr, scores: Ptr, scratch: Ptr, g: PtrI64, first: Int,
    last: Int, scale: Real,
):  # fmt: skip
    """Out of items first to last (batch and head), and the logarithm of each softmax's denominator."""
    sizes = _sizes(g)
    heads, queries, keys, width, wide, q_row, k_row, v_row, causal, _, _, _, tile = sizes
    out_row = heads * wide
    for item in range(first, last):
        b, h = item // heads, item % heads
        k_at = address(k) + SIZE * (b * keys * k_row + h * width)
        v_at = address(v) + SIZE * (b * keys * v_row + h * wide)
        for begin in range(0, queries, tile):
            rows = min(tile, queries - begin)
            seen = min(keys, begin + rows) if causal else keys
            q_at = address(q) + SIZE * ((b * queries + begin) * q_row + h * width)
            o = (b * queries + begin) * out_row + h * wide
            total, top = keys * rows, (keys + 1) * rows
            _scores_by_key(q_at, k_at, mask, scores, rows, seen, begin, item, sizes, T(1) / scale, address(scratch))
            _softmax_by_key(scores, seen, rows, begin if causal else keys, total, top, scale)
            gemm(
                1, 0, rows, wide, seen, address(scores), rows, v_at, v_row, 0, address(out) + SIZE * o, out_row,
                address(scratch),
            )  # fmt: skip
            at = item * queries + begin
            for r in range(rows):
                level[at + r] = scores[top + r] * scale + log(scores[total + r])
            for r in range(rows):
                share = T(1) / scores[total + r]
                for j in range(o + r * out_row, o + r * out_row + wide):
                    out[j] *= share


@kernel
def attend_back(
    q: Ptr, k: Ptr, v: Ptr, mask: Ptr, out: Ptr, level: Ptr, dout: Ptr, dq: Ptr, dk: Ptr, dv: Ptr, scores: Ptr,
    slopes: Ptr, scratch: Ptr, g: PtrI64, first: Int, last: Int, scale: Real,
):  # fmt: skip
    """Gradients of items first to last: the probabilities P are computed again from the scores.

    dV = P^T dO, dP = dO V^T, dS = P (dP - sum(dO O)) scale, dQ = dS K, dK = dS^T Q.
    """
    sizes = _sizes(g)
    heads, queries, keys, width, wide, q_row, k_row, v_row, causal, _, _, _, tile = sizes
    out_row = heads * wide
    for item in range(first, last):
        b, h = item // heads, item % heads
        k_at = b * keys * k_row + h * width
        v_at = b * keys * v_row + h * wide
        for i in range(keys if causal else 0):
            for j in range(width):
                dk[k_at + i * k_row + j] = T(0)
            for j in range(wide):
                dv[v_at + i * v_row + j] = T(0)
        for begin in range(0, queries, tile):
            rows = min(tile, queries - begin)
            seen = min(keys, begin + rows) if causal else keys
            add = 1 if causal or begin > 0 else 0
            q_at = (b * queries + begin) * q_row + h * width
            o = (b * queries + begin) * out_row + h * wide
            _scores(
                address(q) + SIZE * q_at, address(k) + SIZE * k_at, mask, scores, rows, seen, begin, item, sizes,
                T(1) / scale, address(scratch),
            )  # fmt: skip
            gemm(
                0, 1, rows, seen, wide, address(dout) + SIZE * o, out_row, address(v) + SIZE * v_at, v_row, 0,
                address(slopes), keys, address(scratch),
            )  # fmt: skip
            for r in range(rows):
                at = r * keys
                n = min(seen, begin + r + 1) if causal else seen
                denominator = level[item * queries + begin + r]
                mean = T(0)
                for j in range(o + r * out_row, o + r * out_row + wide):
                    mean += dout[j] * out[j]
                for j in range(at, at + n):
                    p = exp(scores[j] * scale - denominator)
                    scores[j] = p
                    slopes[j] = p * (slopes[j] - mean) * scale
                for j in range(at + n, at + seen):
                    scores[j] = T(0)
                    slopes[j] = T(0)
            gemm(
                1, 0, seen, wide, rows, address(scores), keys, address(dout) + SIZE * o, out_row, add,
                address(dv) + SIZE * v_at, v_row, address(scratch),
            )  # fmt: skip
            gemm(
                0, 0, rows, width, seen, address(slopes), keys, address(k) + SIZE * k_at, k_row, 0,
                address(dq) + SIZE * q_at, q_row, address(scratch),
            )  # fmt: skip
            gemm(
                1, 0, seen, width, rows, address(slopes), keys, address(q) + SIZE * q_at, q_row, add,
                address(dk) + SIZE * k_at, k_row, address(scratch),
            )  # fmt: skip
