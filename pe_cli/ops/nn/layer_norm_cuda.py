"""layer_norm on CUDA: a warp on a row; sums over rows by blocks of columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.kernels.cuda import cuda, on_cuda
from pe_cli.kernels.lang import Int, Ptr, PtrF64, Real, T
from pe_cli.kernels.vecmath import rsqrt
from pe_cli.kernels.warp import LANES, WARPS, first_row, row_step, warp_sum
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.nn.layer_norm import (
    layer_norm,
    layer_norm_grad_apart,
    normalise_rows,
    normalise_rows_back,
    position_sums,
)

#: Threads that share the rows of a column; a power of 2.
DEEP: Any = 16
WIDE: Any = np.float64


@on_cuda(normalise_rows, block=WARPS, threads=("32", "rows"))
def normalise_rows_cuda(
    x: Ptr, scale: Ptr, bias: Ptr, y: Ptr, mean: Ptr, variance: Ptr, rows: Int, n: Int, epsilon: Real, weights: Int
):
    """A warp on a row; the mean of what is left beside the mean corrects both. y may be x."""
    lane, r = cuda.threadIdx.x, first_row()
    share = T(1) / T(n)
    while r < rows:
        at = r * n
        total = T(0)
        i = at + lane
        while i < at + n:
            total += x[i]
            i += LANES
        centre = warp_sum(total) * share
        rest, squares = T(0), T(0)
        i = at + lane
        while i < at + n:
            d = x[i] - centre
            rest += d
            squares += d * d
            i += LANES
        rest, squares = warp_sum(rest), warp_sum(squares)
        off = rest * share
        centre, v = centre + off, (squares - rest * off) * share
        if lane == 0:
            mean[r] = centre
            variance[r] = v
        f = rsqrt(v + epsilon)
        i = int(lane)
        while i < n:
            value = (x[at + i] - centre) * f
            if weights & 1:
                value *= scale[i]
            if weights & 2:
                value += bias[i]
            y[at + i] = value
            i += LANES
        r += row_step()


@on_cuda(normalise_rows_back, block=WARPS, threads=("32", "rows"))
def normalise_rows_back_cuda(
    x: Ptr, g: Ptr, scale: Ptr, mean: Ptr, variance: Ptr, dx: Ptr, rows: Int, n: Int, epsilon: Real, weights: Int
):
    """A warp on a row."""
    lane, r = cuda.threadIdx.x, first_row()
    share = T(1) / T(n)
    while r < rows:
        at = r * n
        m, f = mean[r], rsqrt(variance[r] + epsilon)
        a, b = T(0), T(0)
        i = int(lane)
        while i < n:
            s = g[at + i] * scale[i] if weights & 1 else g[at + i]
            a += s
            b += s * (x[at + i] - m)
            i += LANES
        level = warp_sum(a) * share * f
        k = warp_sum(b) * share * f * f * f
        i = int(lane)
        while i < n:
            s = g[at + i] * scale[i] if weights & 1 else g[at + i]
            dx[at + i] = f * s - level - k * (x[at + i] - m)
            i += LANES
        r += row_step()


@on_cuda(position_sums, block=(32, DEEP), threads=("n", "16"))
def position_sums_cuda(
    x: Ptr, g: Ptr, mean: Ptr, variance: Ptr, dscale: Ptr, dbias: Ptr, sums: PtrF64, part: Ptr, rows: Int, n: Int, epsilon: Real
):
    """A block on 32 positions: each of its threads takes every sixteenth row of one, then their sums are added up in a tree."""
    lane, me = cuda.threadIdx.x, cuda.threadIdx.y
    parts = cuda.shared.array((2, DEEP, LANES), WIDE)
    begin = int(cuda.blockIdx.x * LANES)
    while begin < n:
        i = begin + lane
        a, b = 0.0, 0.0
        r = int(me)
        while r < rows and i < n:
            at = r * n + i
            a += g[at]
            b += g[at] * ((x[at] - mean[r]) * rsqrt(variance[r] + epsilon))
            r += DEEP
        parts[0, me, lane] = a
        parts[1, me, lane] = b
        cuda.syncthreads()
        half = DEEP // 2
        while half > 0:
            if me < half:
                parts[0, me, lane] += parts[0, me + half, lane]
                parts[1, me, lane] += parts[1, me + half, lane]
            cuda.syncthreads()
            half //= 2
        if me == 0 and i < n:
            dbias[i] = T(parts[0, 0, lane])
            dscale[i] = T(parts[1, 0, lane])
        cuda.syncthreads()
        begin += cuda.gridDim.x * LANES


layer_norm.grad_op.lower("cuda")(layer_norm_grad_apart)  # type: ignore[union-attr]
also_on_cuda(layer_norm)
