"""The arithmetic of sgd, momentum and adam, shared by ops that update one parameter, many, or rows of a table."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.kernels.calls import Call, Tickets
from pe_cli.kernels.cuda.block_sums import is_last
from pe_cli.kernels.cuda.language import CHOSEN, cuda, cuda_kernel
from pe_cli.kernels.language import Int, Ptr, PtrI64, PtrU, Real, T, apart, helper, kernel, pointer
from pe_cli.kernels.math.vector_math import absolute, fma, square_root

WORD: Any = np.int64


@helper
def descend(p, step, g):
    return fma(-step, g, p)


@helper
def shrink(p, pull):
    """Return p - pull * p, rounded once: of a small pull a product with 1 - pull would keep few digits."""
    return fma(-pull, p, p)


@helper
def accelerate(v, g, mu):
    return fma(mu, v, g)


@helper
def blend(held, new, keep):
    """Return keep * held + (1 - keep) * new.

    Where LLVM may reassociate, it makes new + keep * (held - new) of the plain sum. Of a keep near 1 and an average that begins with 0
    that loses digits: a hundred-thousandth of Adam's second moment.
    """
    return fma(keep, held, (T(1) - keep) * new)


@helper
def adam_corrected(rate, pow1, pow2):
    """Return the learning rate with both moments' corrections for the first steps."""
    return rate[0] * math.sqrt(1.0 - pow2[0]) / (1.0 - pow1[0])


@apart
def adam_span(p, g, m, v, begin, end, step, b1, b2, eps):
    """Both moments, then the parameter, of elements from begin to end; step: see `adam_corrected`."""
    for i in range(begin, end):
        first = blend(m[i], g[i], b1)
        second = blend(v[i], g[i] * g[i], b2)
        m[i] = first
        v[i] = second
        p[i] -= step * first / (square_root(second) + eps)


@apart
def adamw_span(p, g, m, v, begin, end, step, pull, b1, b2, eps):
    """As adam_span, for parameters that shrink by pull of themselves as well."""
    for i in range(begin, end):
        first = blend(m[i], g[i], b1)
        second = blend(v[i], g[i] * g[i], b2)
        m[i] = first
        v[i] = second
        p[i] = shrink(p[i], pull) - step * first / (square_root(second) + eps)


@helper
def all_zero(g, m, v, begin, end):
    """Whether elements from begin to end are 0 in all three; mostly the first tells."""
    if g[begin] != T(0) or v[begin] != T(0):
        return False
    total = T(0)
    for i in range(begin, end):
        total += absolute(g[i]) + absolute(m[i]) + absolute(v[i])
    # A NaN makes the sum differ from 0, so that its element is computed with, and shows.
    return total == T(0)


@helper
def adam_where_needed(p, g, m, v, begin, end, step, b1, b2, eps):
    """adam_span, but for elements without gradient and moments: the step is 0 / eps, and nothing is computed or written.

    Words that no batch has had yet are most of a large embedding.
    """
    # 0 / eps is 0 where eps is above 0, and times the step where that is finite.
    if not (eps > T(0) and absolute(step) < T(math.inf) and all_zero(g, m, v, begin, end)):
        adam_span(p, g, m, v, begin, end, step, b1, b2, eps)


@kernel
def move_on(pow1: Ptr, pow2: Ptr, b1: Real, b2: Real):
    """Move the powers of both decays on to the next step."""
    pow1[0] *= b1
    pow2[0] *= b2


@kernel
def move_powers(powers1: PtrI64, powers2: PtrI64, count: Int, b1: Real, b2: Real):
    """move_on for every pair of powers."""
    for k in range(count):
        pow1, pow2 = pointer(powers1[k]), pointer(powers2[k])
        pow1[0] *= b1
        pow2[0] *= b2


@kernel
def adam_step(p: Ptr, g: Ptr, m: Ptr, v: Ptr, pow1: Ptr, pow2: Ptr, rate: PtrU, n: Int, b1: Real, b2: Real, eps: Real):
    """Both moments, then p -= corrected rate * m / (sqrt(v) + eps); the powers move on to the next step."""
    adam_span(p, g, m, v, 0, n, T(adam_corrected(rate, pow1, pow2)), b1, b2, eps)
    pow1[0] *= b1
    pow2[0] *= b2


# --- CUDA -------------------------------------------------------------------------------------------------------------


@cuda_kernel
def adam_values(
    p: Ptr, g: Ptr, m: Ptr, v: Ptr, pow1: Ptr, pow2: Ptr, rate: PtrU, n: Int, b1: Real, b2: Real, eps: Real, tickets: PtrI64
):  # fmt: skip
    """The same, one thread per element; the last block to be done moves the powers on, when every thread has read them."""
    told = cuda.shared.array(1, WORD)
    step = T(rate[0] * math.sqrt(1.0 - pow2[0]) / (1.0 - pow1[0]))
    for i in range(n):
        first = blend(m[i], g[i], b1)
        second = blend(v[i], g[i] * g[i], b2)
        m[i] = first
        v[i] = second
        p[i] -= step * first / (square_root(second) + eps)
    if is_last(tickets, 0, int(cuda.gridDim.x), told, int(cuda.threadIdx.x)) and cuda.threadIdx.x == 0:
        pow1[0] *= b1
        pow2[0] *= b2


@cuda_kernel
def adam_powers(p: Ptr, g: Ptr, m: Ptr, v: Ptr, pow1: Ptr, pow2: Ptr, rate: PtrU, n: Int, b1: Real, b2: Real, eps: Real):
    """The powers alone, of a parameter without elements."""
    for _ in range(1):
        pow1[0] *= b1
        pow2[0] *= b2


def _on_card(call: Call) -> Call:
    size = adam_step.params.index("Int")
    return replace(call, kernel=adam_values, args=(*call.args, Tickets(1))) if call.args[size] else replace(call, kernel=adam_powers)


CHOSEN[adam_step] = _on_card
