"""Sums along axes on CUDA: a block shares long ones, in an order that sizes alone decide; a thread does a short one."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.kernels.cuda import cuda, on_cuda
from pe_cli.kernels.cuda_math import quotient
from pe_cli.kernels.lang import Int, Ptr, PtrF64, PtrI64, Real, T
from pe_cli.kernels.warp import LANES, block_sum
from pe_cli.ops.define.strided import place_of
from pe_cli.ops.math.reduction import sum_inner, sum_rows

WIDE: Any = np.float64
#: Threads that share a sum of neighbours, and its terms from which on they do.
ADDERS: Any = 256
ADDING_WARPS: Any = 8  # warps of them
LONG: Any = 64
#: Threads that share the rows of a column, a power of 2, and rows from which on they do.
DEEP: Any = 16
MANY: Any = 32


@on_cuda(sum_inner, block=(ADDERS,), threads=("min(count, 65536) * 256 if groups * n >= 64 else count",))
def sum_inner_cuda(
    x: Ptr, out: Ptr, kept: PtrI64, kept_rank: Int, count: Int, outer: PtrI64, outer_rank: Int, groups: Int, n: Int, factor: Real
):
    """A block on a long sum, a thread on a short one."""
    me = int(cuda.threadIdx.x)
    parts = cuda.shared.array(ADDING_WARPS, WIDE)
    shared = groups * n >= LONG
    k = int(cuda.blockIdx.x) if shared else cuda.blockIdx.x * ADDERS + me
    step = int(cuda.gridDim.x) if shared else int(cuda.gridDim.x * ADDERS)
    first, stride = (me, ADDERS) if shared else (0, 1)
    while k < count:
        at = place_of(k, kept_rank, kept, 1)
        total = 0.0
        for q in range(groups):
            begin = at + place_of(q, outer_rank, outer, 1)
            i = first
            while i < n:
                total += x[begin + i]
                i += stride
        if shared:
            total = block_sum(parts, total, me, ADDING_WARPS)
            if me == 0:
                out[k] = T(total * factor)
            cuda.syncthreads()
        else:
            out[k] = T(total * factor)
        k += step


@on_cuda(sum_rows, block=(32, DEEP), threads=("count * n", "16"))
def sum_rows_cuda(
    x: Ptr, out: Ptr, total: PtrF64, kept: PtrI64, kept_rank: Int, count: Int, outer: PtrI64, outer_rank: Int, groups: Int,
    rows: Int, step: Int, n: Int, factor: Real,
):  # fmt: skip
    """A block on 32 neighbours: its threads share the rows of each where there are many, and need no scratch."""
    lane, me = cuda.threadIdx.x, int(cuda.threadIdx.y)
    parts = cuda.shared.array((DEEP, LANES), WIDE)
    shared = groups * rows >= MANY
    height = 1 if shared else DEEP
    begin = int(cuda.blockIdx.x) * height * LANES
    first, stride = (me, DEEP) if shared else (0, 1)
    while begin < count * n:
        e = begin + lane if shared else begin + me * LANES + lane
        result = 0.0
        if e < count * n:
            k = quotient(e, n)
            at = place_of(k, kept_rank, kept, 1) + e - k * n
            for q in range(groups):
                a = at + place_of(q, outer_rank, outer, 1)
                r = first
                while r < rows:
                    result += x[a + r * step]
                    r += stride
        if shared:
            parts[me, lane] = result
            cuda.syncthreads()
            half = DEEP // 2
            while half > 0:
                if me < half:
                    parts[me, lane] += parts[me + half, lane]
                cuda.syncthreads()
                half //= 2
            if me == 0 and e < count * n:
                out[e] = T(parts[0, lane] * factor)
            cuda.syncthreads()
        elif e < count * n:
            out[e] = T(result * factor)
        begin += cuda.gridDim.x * height * LANES
