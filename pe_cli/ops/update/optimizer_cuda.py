"""lars_momentum and lamb on CUDA: the lengths of two tensors side by side, then a thread per element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pe_cli.kernels.cuda.language import cuda, cuda_kernel
from pe_cli.kernels.language import Int, Ptr, PtrF64, PtrU, Real, T
from pe_cli.kernels.math.vector_math import square_root
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.update.optimizer import in_place, lars_momentum
from pe_cli.ops.update.optimizer_moments import lamb
from pe_cli.ops.update.update_kernels import blend

#: Threads that add up squares; a power of 2.
ADDERS: Any = 256
WIDE: Any = np.float64


@cuda_kernel(block=(ADDERS,))
def squares_of_two(x: Ptr, y: Ptr, sums: PtrF64, n: Int):
    """sums[0] = the sum of squares of x, sums[1] that of y: a block each, in a tree."""
    parts = cuda.shared.array(ADDERS, WIDE)
    me = cuda.threadIdx.x
    # Two blocks have a tensor each; a single one does both in turn.
    for which in range(cuda.blockIdx.x, 2, cuda.gridDim.x):
        total = 0.0
        for i in range(me, n, ADDERS):
            value = y[i] if which else x[i]
            total += value * value
        parts[me] = total
        cuda.syncthreads()
        half = ADDERS // 2
        while half > 0:
            if me < half:
                parts[me] += parts[me + half]
            cuda.syncthreads()
            half //= 2
        # Only this thread touches parts[0] until the next barrier, so that the next tensor's sums may begin at once.
        if me == 0:
            sums[which] = parts[0]


@cuda_kernel
def lars_apply(p: Ptr, g: Ptr, v: Ptr, rate: PtrU, sums: PtrF64, n: Int, mu: Real, trust: Real, decay: Real):
    """v = mu v + local (g + decay p); p -= v, with the lengths of p and g from their sums of squares."""
    local = T(rate[0])
    size, slope = math.sqrt(sums[0]), math.sqrt(sums[1])
    if size > 0 and slope > 0:
        local = T(local * trust * size / (slope + decay * size))
    for i in range(n):
        now = mu * v[i] + local * (g[i] + decay * p[i])
        v[i] = now
        p[i] -= now


@lars_momentum.lower("cuda")
def lars_momentum_cuda(o: Lowering) -> None:
    """Both lengths, then one pass."""
    p, v = in_place(o, "Param", "Velocity")
    g, sums = o.input("Grad"), o.scratch(2, "float64")
    settings = [float(o.attrs[a]) for a in ("mu", "lars_coeff", "lars_weight_decay")]
    o.call(squares_of_two, p, g, sums, p.size)
    o.call(lars_apply, p, g, v, o.input("LearningRate"), sums, p.size, *settings)


@cuda_kernel
def lamb_direction(p: Ptr, g: Ptr, m: Ptr, v: Ptr, d: Ptr, n: Int, b1: Real, b2: Real, eps: Real, decay: Real):
    """Moments and direction."""
    for i in range(n):
        first = blend(m[i], g[i], b1)
        second = blend(v[i], g[i] * g[i], b2)
        m[i] = first
        v[i] = second
        d[i] = first / (square_root(second) + eps) + decay * p[i]


@cuda_kernel
def lamb_apply(p: Ptr, d: Ptr, rate: PtrU, sums: PtrF64, n: Int):
    """p -= rate * |p| / |d| * d, with the lengths from sums of squares."""
    size, length = math.sqrt(sums[0]), math.sqrt(sums[1])
    step = T(rate[0])
    if size > 0 and length > 0:
        step = T(step * size / length)
    for i in range(n):
        p[i] -= step * d[i]


@lamb.lower("cuda")
def lamb_cuda(o: Lowering) -> None:
    """The direction, both lengths, then the step."""
    p, m, v = in_place(o, "Param", "Moment1", "Moment2")
    d, sums = o.scratch(p.size, p.dtype), o.scratch(2, "float64")
    settings = [float(o.attrs[a]) for a in ("beta1", "beta2", "epsilon", "weight_decay")]
    o.call(lamb_direction, p, o.input("Grad"), m, v, d, p.size, *settings)
    o.call(squares_of_two, p, d, sums, p.size)
    o.call(lamb_apply, p, d, o.input("LearningRate"), sums, p.size)
