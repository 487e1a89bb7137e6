"""What recurrent ops over sequences share on CUDA, where a step is a launch or a few: one thread per unit of a sequence that goes on."""

from __future__ import annotations

from pe_cli.kernels.cuda.language import cuda_kernel
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, helper
from pe_cli.kernels.math.vector_math import sigmoid, tanh


@helper
def act(code, v):
    """Return an activation; codes are places in `recurrent.ACTS`."""
    if code == 0:
        return sigmoid(v)
    if code == 1:
        return tanh(v)
    return v if code == 3 or v > T(0) or v != v else T(0)


@helper
def slope(code, y):
    """Return the derivative of an activation where its value is y."""
    if code == 0:
        return y * (T(1) - y)
    if code == 1:
        return T(1) - y * y
    return T(1) if code == 3 or y > T(0) else T(0)


@helper
def before(values, first, has_first, order, begins, ranks, t, p, d, j):
    """Return number j of the state of the p-th longest sequence before step t; values has the states after steps, by row."""
    if t > 0:
        return values[order[begins[t - 1] + p] * d + j]
    return first[ranks[p] * d + j] if has_first else T(0)


@cuda_kernel
def zeros(out: Ptr, count: Int):
    """out = 0."""
    for e in range(count):
        out[e] = T(0)


@cuda_kernel
def put_rows(source: Ptr, index: PtrI64, out: Ptr, count: Int, n: Int):
    """out[index[i]] = source[i] of n numbers each, count numbers in all; every row is there once."""
    for e in range(count):
        out[index[e // n] * n + e % n] = source[e]


@cuda_kernel
def put_states(source: Ptr, ranks: PtrI64, out: Ptr, sequences: Int, count: Int, n: Int):
    """out[ranks[p]] = source[p], 0 for sequences without rows; count numbers in all."""
    # Every number looks for its sequence instead of sequences writing to their rows: those without rows are in no rank and have to become 0
    # in the same launch.
    for e in range(count):
        out[e] = T(0)
        for p in range(sequences):
            if ranks[p] == e // n:
                out[e] = source[p * n + e % n]
