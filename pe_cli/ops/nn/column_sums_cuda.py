"""Two sums of every column on CUDA: blocks of 32 columns sum parts of the rows, and the last that is done adds those up (`block_sums`).

Sizes alone decide on the parts, which lie as [2, parts, width]: two sums of each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.kernels.calls import Tickets
from pe_cli.kernels.cuda.block_sums import NEAR, SHIFT, is_last, tickets_of
from pe_cli.kernels.cuda.language import cuda
from pe_cli.kernels.language import helper
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.nn.batch_norm import fold

WIDE: Any = np.float64
WORD: Any = np.int64
#: Threads of a block: 32 columns, and as many rows at a time.
DEEP: Any = 8
#: Blocks that fill a card, and the least rows of a part.
BLOCKS, LEAST = 132 * 8, 64


@helper
def keep_columns(first, second, a, b, sums, at, apart, me, lane, there):
    """Write the sums of a block's rows to place at, and apart behind it."""
    first[me, lane] = a
    second[me, lane] = b
    cuda.syncthreads()
    if me == 0 and there:
        for k in range(1, DEEP):
            a += first[k, lane]
            b += second[k, lane]
        sums[at] = a
        sums[apart + at] = b


@helper
def last_of_columns(first, second, sums, tickets, each, told, width, channels, parts, me, lane, x, blocks, part):
    """Return whether this block is the one that has all that its columns, or all columns, need.

    Then the first row of sums, and of what is apart behind it, holds the sums of all parts: those of its own columns where each is a
    channel, else those of all columns. tickets: `each` for every 32 columns, and one; x, part: the block's columns and its part;
    blocks: how many are side by side.
    """
    thread = DEEP * lane + me
    column = x * 32 + lane
    index, count, step, desk, done = part, parts, width, x * each, True
    while done and count > 1:
        begin = (index >> SHIFT) << SHIFT
        end = min(count, begin + NEAR)
        done = is_last(tickets, desk + (index >> SHIFT), end - begin, told, thread)
        if done:
            a = b = 0.0
            k = begin + me
            while k < end and column < width:
                a += sums[k * step + column]
                b += sums[parts * width + k * step + column]
                k += DEEP
            cuda.syncthreads()
            keep_columns(first, second, a, b, sums, begin * step + column, parts * width, me, lane, column < width)
        index, count, step = index >> SHIFT, (count + NEAR - 1) >> SHIFT, step * NEAR
        desk += count
    if width > channels and blocks > 1 and done:
        done = is_last(tickets, blocks * each, blocks, told, thread)
    cuda.syncthreads()
    return done


def parts_of(blocks: int, rows: int) -> int:
    """Return into how many parts the rows are cut, where a number of blocks stand side by side."""
    return max(1, min(BLOCKS // max(1, blocks), rows // LEAST))


def by_columns(o: Lowering, n: int, channels: int) -> tuple[int, int, int, Buffer, tuple[Tickets, int]]:
    """Return rows and width that n numbers per channel are taken as, parts, memory for their sums, and tickets, with those of a block."""
    rows, width = fold(n, channels)
    parts = parts_of(-(-width // 32), rows)
    each = tickets_of(parts)
    return rows, width, parts, o.scratch(2 * parts * width, "float64"), (Tickets(-(-width // 32) * each + 1), each)
