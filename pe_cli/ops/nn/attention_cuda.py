"""attention on CUDA: a thread per query forward; backward one per query, then one per key, so that no two threads add to one number."""

from __future__ import annotations

import math

from pe_cli.kernels.cuda import cuda_kernel
from pe_cli.kernels.lang import Int, Ptr, PtrI64, Real, T, helper
from pe_cli.kernels.vecmath import exp, log
from pe_cli.ops.define.lowering import Buffer, Lowering, Offset
from pe_cli.ops.nn.attention import _Call, attention
from pe_cli.ops.nn.softmax import larger


@helper
def _score(q, k, mask, g, item, i, j, scale):
    """Return the score of query i and key j of an item, batch times head; g is the record of `attention_kernels`."""
    b, h = item // g[0], item % g[0]
    at, to = (b * g[1] + i) * g[5] + h * g[3], (b * g[2] + j) * g[6] + h * g[3]
    total = T(0)
    for c in range(g[3]):
        total += q[at + c] * k[to + c]
    total *= T(scale)
    return total + mask[b * g[9] + h * g[10] + i * g[11] + j] if g[9] >= 0 else total


@cuda_kernel
def attend_query(q: Ptr, k: Ptr, v: Ptr, mask: Ptr, out: Ptr, level: Ptr, g: PtrI64, count: Int, scale: Real):
    """out and level of count queries, those of all heads of all batches."""
    for e in range(count):
        heads, queries, keys, wide, row = g[0], g[1], g[2], g[4], g[7]
        item, i = e // queries, e % queries
        b, h = item // heads, item % heads
        seen = min(keys, i + 1) if g[8] else keys
        to, at = (b * queries + i) * heads * wide + h * wide, b * keys * row + h * wide
        top, total = T(-math.inf), T(0)
        for j in range(seen):
            top = larger(top, _score(q, k, mask, g, item, i, j, scale))
        for c in range(wide):
            out[to + c] = T(0)
        for j in range(seen):
            weight = exp(_score(q, k, mask, g, item, i, j, scale) - top)
            total += weight
            for c in range(wide):
                out[to + c] += weight * v[at + j * row + c]
        for c in range(wide):
            out[to + c] /= total
        level[e] = top + log(total)


@helper
def _slope(q, k, v, mask, out, level, dout, g, item, i, j, scale):
    """Return the probability of key j for query i, and the gradient of their product."""
    heads, queries, wide = g[0], g[1], g[4]
    b, h = item // heads, item % heads
    o, at = (b * queries + i) * heads * wide + h * wide, (b * g[2] + j) * g[7] + h * wide
    p = exp(_score(q, k, mask, g, item, i, j, scale) - level[item * queries + i])
    change = T(0)
    for c in range(wide):
        change += dout[o + c] * (v[at + c] - out[o + c])
    return p, p * change * T(scale)


@cuda_kernel
def attend_back_query(
    q: Ptr, k: Ptr, v: Ptr, mask: Ptr, out: Ptr, level: Ptr, dout: Ptr, dq: Ptr, g: PtrI64, count: Int, scale: Real
):
    """dq of count queries."""
    for e in range(count):
        keys, width = g[2], g[3]
        item, i = e // g[1], e % g[1]
        b, h = item // g[0], item % g[0]
        to = (b * g[1] + i) * g[5] + h * width
        for c in range(width):
            dq[to + c] = T(0)
        for j in range(min(keys, i + 1) if g[8] else keys):
            _, slope = _slope(q, k, v, mask, out, level, dout, g, item, i, j, scale)
            at = (b * keys + j) * g[6] + h * width
            for c in range(width):
                dq[to + c] += slope * k[at + c]


@cuda_kernel
def attend_back_key(
    q: Ptr, k: Ptr, v: Ptr, mask: Ptr, out: Ptr, level: Ptr, dout: Ptr, dk: Ptr, dv: Ptr, g: PtrI64, count: Int, scale: Real
):
    """dk and dv of count keys."""
    for e in range(count):
        heads, queries, keys, width, wide = g[0], g[1], g[2], g[3], g[4]
        item, j = e // keys, e % keys
        b, h = item // heads, item % heads
        to, value = (b * keys + j) * g[6] + h * width, (b * keys + j) * g[7] + h * wide
        for c in range(width):
            dk[to + c] = T(0)
        for c in range(wide):
            dv[value + c] = T(0)
        for i in range(min(j, queries) if g[8] else 0, queries):
            p, slope = _slope(q, k, v, mask, out, level, dout, g, item, i, j, scale)
            at, o = (b * queries + i) * g[5] + h * width, (b * queries + i) * heads * wide + h * wide
            for c in range(width):
                dk[to + c] += slope * q[at + c]
            for c in range(wide):
                dv[value + c] += p * dout[o + c]


@attention.lower("cuda")
def attention_cuda(o: Lowering) -> None:
    """Query by query."""
    c = _Call(o)
    s = c.shapes
    o.call(attend_query, *c.operands, c.mask, o.output("Out"), o.output("Level"), c.record, s.batch * c.heads * s.queries, c.scale)


@attention.grad_op.lower("cuda")  # type: ignore[union-attr]
def attention_grad_cuda(o: Lowering) -> None:
    """Query by query, then key by key; the probabilities are computed again from the scores."""
    c = _Call(o)
    s = c.shapes
    slots = ("Q@GRAD", "K@GRAD", "V@GRAD")
    gradients: tuple[Buffer | Offset, ...] = c.split(o.output("Q@GRAD")) if not c.apart else tuple(
        o.output(n) if o.has(n) else o.scratch(b.size, b.dtype) for n, b in zip(slots, c.apart, strict=True)
    )
    given = (*c.operands, c.mask, o.input("Out"), o.input("Level"), o.input("Out@GRAD"))
    o.call(attend_back_query, *given, gradients[0], c.record, s.batch * c.heads * s.queries, c.scale)
    o.call(attend_back_key, *given, *gradients[1:], c.record, s.batch * c.heads * s.keys, c.scale)
