"""layer_norm on CUDA: a warp on a row; sums over rows by blocks of columns."""

from __future__ import annotations

from pe_cli.kernels.calls import Tickets
from pe_cli.kernels.cuda.block_sums import tickets_of
from pe_cli.kernels.cuda.language import cuda, cuda_kernel, on_cuda
from pe_cli.kernels.cuda.warp import LANES, WARPS, first_row, row_step, warp_sum
from pe_cli.kernels.language import Int, Ptr, PtrF64, PtrI64, Real, T
from pe_cli.kernels.math.vector_math import rsqrt
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.nn.column_sums_cuda import DEEP, WIDE, WORD, keep_columns, last_of_columns, parts_of
from pe_cli.ops.nn.conv_tile_cuda import share
from pe_cli.ops.nn.layer_norm import (
    given,
    layer_norm,
    normalise_rows,
    normalise_rows_back,
)


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
            # The first mean is rounded, so the distances from it do not sum to 0: their mean corrects it, and the variance as well. That
            # costs one sum more and saves float64.
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
        # Both sums in units that the loop below subtracts: the mean of the gradients, and how they go along with x.
        level = warp_sum(a) * share * f
        k = warp_sum(b) * share * f * f * f
        i = int(lane)
        while i < n:
            s = g[at + i] * scale[i] if weights & 1 else g[at + i]
            dx[at + i] = f * s - level - k * (x[at + i] - m)
            i += LANES
        r += row_step()


@cuda_kernel(block=(32, DEEP, 1), threads=("n", "8", "parts"))
def position_sums(
    x: Ptr, g: Ptr, mean: Ptr, variance: Ptr, dscale: Ptr, dbias: Ptr, sums: PtrF64, rows: Int, n: Int, parts: Int, epsilon: Real,
    tickets: PtrI64, each: Int,
):  # fmt: skip
    """Gradients of scale and bias, sums over a part of the rows at 32 positions; the last block adds up the parts."""
    lane, me, part = int(cuda.threadIdx.x), int(cuda.threadIdx.y), int(cuda.blockIdx.z)
    first, second = cuda.shared.array((DEEP, 32), WIDE), cuda.shared.array((DEEP, 32), WIDE)
    told = cuda.shared.array(1, WORD)
    x_block, blocks = int(cuda.blockIdx.x), int(cuda.gridDim.x)
    i = x_block * LANES + lane
    there = i < n
    # The rows of a part are dealt to the block's lines of threads in turn; 32 lanes side by side read 32 positions in one transaction.
    r = share(rows, part, parts) + me
    end = share(rows, part + 1, parts) if there else 0
    a = b = 0.0
    while r < end:
        at = r * n + i
        a += g[at]
        b += g[at] * ((x[at] - mean[r]) * rsqrt(variance[r] + epsilon))
        r += DEEP
    keep_columns(first, second, a, b, sums, part * n + i, parts * n, me, lane, there)
    # The last block of a column of blocks adds up all parts in their order, so that no second launch is needed and no bit depends on which
    # block came last.
    if last_of_columns(first, second, sums, tickets, each, told, n, n, parts, me, lane, x_block, blocks, part) and me == 0 and there:
        dbias[i] = T(sums[i])
        dscale[i] = T(sums[parts * n + i])


@layer_norm.grad_op.lower("cuda")  # type: ignore[union-attr]
def layer_norm_grad_cuda(o: Lowering) -> None:
    """Row by row for X, then as sums over rows for Scale and Bias."""
    x, g, scale, mean, variance, rows, n, epsilon, weights = given(o)
    if o.has("X@GRAD"):
        o.call(normalise_rows_back, x, g, scale, mean, variance, o.output("X@GRAD"), rows, n, epsilon, weights)
    if o.has("Scale@GRAD") or o.has("Bias@GRAD"):
        blocks = -(-n // LANES)
        parts = parts_of(blocks, rows)
        each = tickets_of(parts)
        sums = o.scratch(2 * parts * n, "float64")
        dscale, dbias = (o.output_or_scratch(slot, n, x.dtype) for slot in ("Scale@GRAD", "Bias@GRAD"))
        tickets = Tickets(blocks * each + 1), each
        o.call(position_sums, x, g, mean, variance, dscale, dbias, sums, rows, n, parts, epsilon, *tickets)


also_on_cuda(layer_norm)
