"""Sums along axes on CUDA: a block shares long ones, in an order that sizes alone decide; a thread does a short one.

Few long sums are made in two stages: many blocks add up a part each, in float64, and one launch more adds up the parts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pe_cli.kernels.cuda import cuda, cuda_kernel, on_cuda
from pe_cli.kernels.cuda_math import quotient
from pe_cli.kernels.cuda_wide import global_four, is_wide
from pe_cli.kernels.lang import Int, Ptr, PtrF64, PtrI64, PtrU, Real, T
from pe_cli.kernels.warp import HEIGHT, LANES, WARPS, block_sum, warp_sum
from pe_cli.ops.define.lowering import Buffer, Lowering, Numbers
from pe_cli.ops.define.moves import fill
from pe_cli.ops.define.strided import place_of
from pe_cli.ops.math.mean import mean
from pe_cli.ops.math.reduction import IN_STAGES, sum_inner, sum_rows

WIDE: Any = np.float64
#: Threads that share a sum of neighbours, and its terms from which on they do.
ADDERS: Any = 256
ADDING_WARPS: Any = 8  # warps of them
LONG: Any = 64
#: Threads that share the rows of a column, a power of 2, and rows from which on they do.
DEEP: Any = 16
MANY: Any = 32
#: Blocks that a card of today has room for at a time, and terms of a part that are worth one.
BLOCKS, PART = 264, 4096
#: Threads that share the rows of a column of a matrix, a power of 2, and rows up to which they do so in one stage.
TALL: Any = 32
ONE_STAGE = 4096
#: Rows of a column's part, and columns up to which several rows are taken as one, so that neighbouring threads have neighbours to read.
PART_ROWS, NARROW = 128, 128


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


# --- a warp each ------------------------------------------------------------------------------------------------------

#: Terms of a row from which on a warp adds it up, rows that are enough for that, and terms up to which fewer rows are, too.
LINE, LINES, SHORT = 128, 2048, 1024


@cuda_kernel(block=WARPS, threads=("32", "count"))
def sum_lines(x: Ptr, out: Ptr, count: Int, n: Int, factor: Real):
    """out[k] = factor times the sum of the n neighbours from x[k n] on; a lane takes fours of them, four at a time."""
    lane = int(cuda.threadIdx.x)
    wide = is_wide(x, 0, n)
    k = int(cuda.blockIdx.y * HEIGHT + cuda.threadIdx.y)
    while k < count:
        one = two = three = four = 0.0
        i, end = k * n + 4 * lane, (k + 1) * n
        if wide:
            while i + 3 * 4 * LANES < end:
                a0, a1, a2, a3 = global_four(x, i)
                b0, b1, b2, b3 = global_four(x, i + 4 * LANES)
                c0, c1, c2, c3 = global_four(x, i + 8 * LANES)
                d0, d1, d2, d3 = global_four(x, i + 12 * LANES)
                one += (a0 + a1) + (a2 + a3)
                two += (b0 + b1) + (b2 + b3)
                three += (c0 + c1) + (c2 + c3)
                four += (d0 + d1) + (d2 + d3)
                i += 16 * LANES
            while i < end:
                a0, a1, a2, a3 = global_four(x, i)
                one += (a0 + a1) + (a2 + a3)
                i += 4 * LANES
        else:
            i = k * n + lane
            while i < end:
                one += x[i]
                i += LANES
        total = warp_sum((one + two) + (three + four))
        if lane == 0:
            out[k] = T(total * factor)
        k += int(cuda.gridDim.y * HEIGHT)


# --- in two stages ----------------------------------------------------------------------------------------------------


@cuda_kernel(block=(ADDERS,), threads=("count * parts * 256",))
def sum_runs(x: Ptr, out: PtrF64, count: Int, parts: Int, step: Int, n: Int, squares: Int):
    """out[k, p] = the sum of part p of the n elements from x[k step] on, or of their squares; a block each."""
    me = int(cuda.threadIdx.x)
    shared = cuda.shared.array(ADDING_WARPS, WIDE)
    for b in range(cuda.blockIdx.x, count * parts, cuda.gridDim.x):
        k = quotient(b, parts)
        p = b - k * parts
        first, last = k * step + quotient(n, parts) * p, k * step + quotient(n, parts) * (p + 1)
        if p == parts - 1:
            last = k * step + n
        total = 0.0
        for i in range(first + me, last, ADDERS):
            value = x[i]
            total += value * value if squares else value
        total = block_sum(shared, total, me, ADDING_WARPS)
        if me == 0:
            out[b] = total
        cuda.syncthreads()


@cuda_kernel(block=(LANES, TALL), threads=("width", "parts * 32"))
def sum_columns(x: Ptr, out: PtrU, size: Int, width: Int, parts: Int, rows: Int, factor: Real):
    """out[p, e] = factor times the sum of column e of part p, rows of `width` neighbours each, of the matrix that `size` elements are."""
    lane, me = int(cuda.threadIdx.x), int(cuda.threadIdx.y)
    shared = cuda.shared.array((TALL, LANES), WIDE)
    e = int(cuda.blockIdx.x) * LANES + lane
    step = TALL * width
    for p in range(cuda.blockIdx.y, parts, cuda.gridDim.y):
        one, two, three, four = 0.0, 0.0, 0.0, 0.0
        if e < width:
            last = min(size, (p + 1) * rows * width)
            i = (p * rows + me) * width + e
            while i + 3 * step < last:
                one += x[i]
                two += x[i + step]
                three += x[i + 2 * step]
                four += x[i + 3 * step]
                i += 4 * step
            while i < last:
                one += x[i]
                i += step
        shared[me, lane] = (one + two) + (three + four)
        cuda.syncthreads()
        half = TALL // 2
        while half > 0:
            if me < half:
                shared[me, lane] += shared[me + half, lane]
            cuda.syncthreads()
            half //= 2
        if me == 0 and e < width:
            out[p * width + e] = shared[0, lane] * factor
        cuda.syncthreads()


def parts_of_run(count: int, n: int) -> int:
    """Return how many parts each of count sums of n terms is worth."""
    return max(1, min(-(-BLOCKS // max(count, 1)), n // PART))


def sum_whole(o: Lowering, x: Buffer, out: Buffer, n: int, factor: float = 1.0, *, squares: bool = False) -> None:
    """Append the calls that write factor times the sum of n elements, or of their squares; in one stage where there are few."""
    parts = parts_of_run(1, n)
    none = Numbers(())
    if parts == 1 and not squares:
        o.call(sum_inner, x, out, none, 0, 1, none, 0, 1, n, factor)
        return
    few = o.scratch(parts, "float64")
    o.call(sum_runs, x, few, 1, parts, 0, n, int(squares))
    o.call(join_runs, few, out, 1, parts, 1, factor, dtype=out.dtype)


@cuda_kernel(block=WARPS, threads=("32", "count * n"))
def join_runs(few: PtrF64, out: Ptr, count: Int, parts: Int, n: Int, factor: Real):
    """out[k, e] = factor times the sum of few[k, :, e]; a warp each."""
    lane = int(cuda.threadIdx.x)
    i = int(cuda.blockIdx.y * HEIGHT + cuda.threadIdx.y)
    while i < count * n:
        k = quotient(i, n)
        at = (k * parts - k) * n + i
        total = 0.0
        for p in range(lane, parts, LANES):
            total += few[at + p * n]
        total = warp_sum(total)
        if lane == 0:
            out[i] = T(total * factor)
        i += int(cuda.gridDim.y * HEIGHT)


def in_two_stages(o: Lowering, x: Buffer, out: Buffer, axes: list[tuple[int, int, bool]], factor: float) -> bool:
    """Append the calls for few long sums, and return True; return False where one stage is as well.

    Args:
        o, x, out, factor: as of `sum_axes`.
        axes: (size, step, whether it is summed) of x, neighbours of a kind joined.
    """
    kinds = [gone for *_, gone in axes]
    if kinds in ([True], [False, True]):
        count, n = (1 if len(axes) == 1 else axes[0][0]), axes[-1][0]
        parts = parts_of_run(count, n)
        if parts == 1 and n >= LINE and (count >= LINES or n <= SHORT) and x.dtype == out.dtype:
            o.call(sum_lines, x, out, count, n, factor)
            return True
        if parts == 1:
            return False
        few = o.scratch(count * parts, "float64")
        o.call(sum_runs, x, few, count, parts, n, n, 0)
        o.call(join_runs, few, out, count, parts, 1, factor, dtype=out.dtype)
        return True
    if kinds != [True, False]:
        return False
    (rows, _, _), (n, _, _) = axes
    if rows <= ONE_STAGE:
        o.call(sum_columns, x, out, rows * n, n, 1, rows, factor, second=out.dtype)
        return True
    times = max(1, NARROW // n)
    width = times * n
    high = -(-rows // times)
    parts = max(1, min(-(-BLOCKS // -(-width // LANES)), high // PART_ROWS))
    few = o.scratch(parts * width, "float64")
    o.call(sum_columns, x, few, rows * n, width, parts, -(-high // parts), 1.0)
    o.call(join_runs, few, out, 1, parts * times, n, factor, dtype=out.dtype)
    return True


IN_STAGES["cuda"] = in_two_stages


@mean.lower("cuda")
def mean_cuda(o: Lowering) -> None:
    """A sum, divided by how many terms it has."""
    x, out = o.input("X"), o.output("Out")
    if x.size:
        sum_whole(o, x, out, x.size, 1.0 / x.size)
    else:
        o.call(fill, out, 1, math.nan)
