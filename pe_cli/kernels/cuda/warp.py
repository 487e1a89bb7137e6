"""What the 32 threads of a warp, and those of a block, add up together on CUDA: always in the same order, so that no bit changes.

A kernel that gives a warp to a row says `block=WARPS, threads=("32", "rows")`: threadIdx.x is the lane, and row `first_row()` is its
first; `row_step()` rows on is its next. No warp waits for another.
"""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.cuda.language import cuda
from pe_cli.kernels.language import helper

#: Threads of a warp, and warps of a block that work on a row each.
LANES: Any = 32
WARPS = (32, 4)
HEIGHT: Any = WARPS[1]
#: All lanes take part.
ALL: Any = 0xFFFFFFFF


@helper
def first_row():
    """Return the first row of this warp."""
    return cuda.blockIdx.y * HEIGHT + cuda.threadIdx.y


@helper
def row_step():
    """Return how many rows on the next row of this warp is."""
    return cuda.gridDim.y * HEIGHT


@helper
def warp_sum(value):
    """Return the sum over the lanes, the same bits in each: every lane adds the same pairs."""
    value += cuda.shfl_xor_sync(ALL, value, 16)
    value += cuda.shfl_xor_sync(ALL, value, 8)
    value += cuda.shfl_xor_sync(ALL, value, 4)
    value += cuda.shfl_xor_sync(ALL, value, 2)
    value += cuda.shfl_xor_sync(ALL, value, 1)
    return value


@helper
def block_sum(parts, value, me, count):
    """Return the sum over a block in its thread 0; parts: shared memory of a number for each of count warps.

    A block that uses parts again waits before.
    """
    value = warp_sum(value)
    if me % LANES == 0:
        parts[me // LANES] = value
    cuda.syncthreads()
    if me == 0:
        # From 1 on, because this thread already has the sum of warp 0.
        for w in range(1, count):
            value += parts[w]
    return value
