"""Sums along axes on CUDA: a block shares long ones, in an order that sizes alone decide; a thread does a short one.

Few long sums are made in parts: many blocks add up a part each, in float64, and the last of them adds up the parts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pe_cli.kernels.calls import Tickets
from pe_cli.kernels.cuda.block_sums import is_last
from pe_cli.kernels.cuda.language import cuda, cuda_kernel, on_cuda
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.cuda.tensor_cores import global_four, is_wide
from pe_cli.kernels.cuda.warp import HEIGHT, LANES, WARPS, block_sum, warp_sum
from pe_cli.kernels.language import Int, Ptr, PtrF64, PtrI64, PtrU, Real, T
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.lowering import Buffer, Lowering, Numbers
from pe_cli.ops.define.strided_copy import place_of
from pe_cli.ops.math.mean import mean
from pe_cli.ops.math.reduction import IN_STAGES, sum_inner, sum_rows

WIDE: Any = np.float64
WORD: Any = np.int64
#: Threads that share a sum of neighbours, and its terms from which on they do.
ADDERS: Any = 256
ADDING_WARPS: Any = 8  # warps of them
LONG: Any = 64
#: Threads that share the rows of a column, a power of 2, and rows from which on they do.
DEEP: Any = 16
MANY: Any = 32
#: Blocks that a card of today has room for at a time, and terms of a part that are worth one.
BLOCKS, PART = 264, 4096
#: Threads that share the rows of a column of a matrix: blocks are as large as those of products, with which they come together.
TALL: Any = 4
ADDED: Any = 128  # LANES * TALL
#: Rows of a column's part; rows from which on, and columns up to which several rows are taken as one, so that neighbouring threads have
#: neighbours to read.
PART_ROWS, FOLDED, NARROW = 128, 4096, 128


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
            # The next sum writes into the same parts: all threads must have read them.
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
            # A tree, whose order depends on DEEP alone: the same bits on every card.
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
        # Four sums that do not wait for each other: an addition of float64 takes several cycles.
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


# --- in parts ---------------------------------------------------------------------------------------------------------


@cuda_kernel(block=(ADDERS,), threads=("count * parts * 256",))
def sum_runs(x: Ptr, out: PtrU, few: PtrF64, count: Int, parts: Int, step: Int, n: Int, squares: Int, factor: Real, tickets: PtrI64):
    """out[k] = factor times the sum of the n elements from x[k step] on, or of their squares; a block on each part, the last adds them."""
    me = int(cuda.threadIdx.x)
    shared, told = cuda.shared.array(ADDING_WARPS, WIDE), cuda.shared.array(1, WORD)
    k = quotient(int(cuda.blockIdx.x), parts)
    p = int(cuda.blockIdx.x) - k * parts
    first, last = k * step + quotient(n, parts) * p, k * step + quotient(n, parts) * (p + 1)
    if p == parts - 1:
        last = k * step + n
    total = 0.0
    for i in range(first + me, last, ADDERS):
        value = x[i]
        total += value * value if squares else value
    total = block_sum(shared, total, me, ADDING_WARPS)
    # The blocks' sums are in memory in the order of their parts, and the last block to come adds them up in that order: which one that is
    # changes no bit.
    done = True
    if parts > 1:
        if me == 0:
            few[k * parts + p] = total
        done = is_last(tickets, k, parts, told, me)
        total = 0.0
        if done:
            for i in range(me, parts, ADDERS):
                total += few[k * parts + i]
            total = block_sum(shared, total, me, ADDING_WARPS)
    if done and me == 0:
        out[k] = total * factor


@cuda_kernel(block=(LANES, TALL), threads=("width", "parts * 4"))
def sum_columns(  # noqa: C901 - kernels are compiled as one
    x: Ptr, out: PtrU, few: PtrF64, size: Int, width: Int, n: Int, parts: Int, rows: Int, factor: Real, tickets: PtrI64
):
    """out[e] = factor times the sum of column e of the matrix of n columns that `size` elements are; the last block adds up parts.

    A part is so many rows of `width` neighbours, a multiple of n; a block does 32 of them.
    """
    lane, me = int(cuda.threadIdx.x), int(cuda.threadIdx.y)
    thread = LANES * me + lane
    shared, told = cuda.shared.array(ADDED, WIDE), cuda.shared.array(1, WORD)
    column, p = int(cuda.blockIdx.x) * LANES, int(cuda.blockIdx.y)
    e, step = column + lane, TALL * width
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
    shared[thread] = (one + two) + (three + four)
    cuda.syncthreads()
    folded = width > n
    columns, apart, count = LANES, width, parts  # of the sums that are added up now: side by side, from one to the next, and how many
    done = True
    if parts > 1 or folded:
        if me == 0 and e < width:
            few[p * width + e] = (shared[lane] + shared[LANES + lane]) + (shared[2 * LANES + lane] + shared[3 * LANES + lane])
        if folded:
            columns, apart, count, column = n, n, parts * quotient(width, n), 0
        done = is_last(tickets, quotient(column, LANES), parts * (int(cuda.gridDim.x) if folded else 1), told, thread)
        if done:
            high = quotient(ADDED, columns)
            k = quotient(thread, columns)
            e = column + thread - k * columns
            one = 0.0
            if k < high and e < width:
                while k < count:
                    one += few[k * apart + e]
                    k += high
            shared[thread] = one
            cuda.syncthreads()
    if done and thread < columns and column + thread < width:
        total = 0.0
        for k in range(quotient(ADDED, columns)):
            total += shared[k * columns + thread]
        out[column + thread] = total * factor


def parts_of_run(count: int, n: int) -> int:
    """Return how many parts each of count sums of n terms is worth."""
    return max(1, min(-(-BLOCKS // max(count, 1)), n // PART))


def sum_whole(o: Lowering, x: Buffer, out: Buffer, n: int, factor: float = 1.0, *, squares: bool = False) -> None:
    """Append the call that writes factor times the sum of n elements, or of their squares."""
    parts = parts_of_run(1, n)
    none = Numbers(())
    if parts == 1 and not squares:
        o.call(sum_inner, x, out, none, 0, 1, none, 0, 1, n, factor)
        return
    call_runs(o, x, out, 1, parts, 0, n, factor, squares=squares)


def call_runs(
    o: Lowering, x: Buffer, out: Buffer, count: int, parts: int, step: int, n: int, factor: float, *, squares: bool = False
) -> None:
    """Append the call of `sum_runs`."""
    few = o.scratch(count * parts, "float64")
    o.call(sum_runs, x, out, few, count, parts, step, n, int(squares), factor, Tickets(count), second=out.dtype)


def in_parts(o: Lowering, x: Buffer, out: Buffer, axes: list[tuple[int, int, bool]], factor: float) -> bool:
    """Append the call for few long sums, and return True; return False where `sum_inner` and `sum_rows` are as well.

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
        if parts > 1:
            call_runs(o, x, out, count, parts, n, n, factor)
        return parts > 1
    if kinds != [True, False]:
        return False
    (rows, _, _), (n, _, _) = axes
    times = max(1, NARROW // n) if rows > FOLDED else 1
    width, high = times * n, -(-rows // times)
    blocks = -(-width // LANES)
    parts = max(1, min(-(-BLOCKS // blocks), high // PART_ROWS))
    few = o.scratch(parts * width, "float64")
    part = -(-high // parts)
    o.call(sum_columns, x, out, few, rows * n, width, n, parts, part, factor, Tickets(blocks), second=out.dtype)
    return True


IN_STAGES["cuda"] = in_parts


@mean.lower("cuda")
def mean_cuda(o: Lowering) -> None:
    """A sum, divided by how many terms it has."""
    x, out = o.input("X"), o.output("Out")
    if x.size:
        sum_whole(o, x, out, x.size, 1.0 / x.size)
    else:
        o.call(fill, out, 1, math.nan)
