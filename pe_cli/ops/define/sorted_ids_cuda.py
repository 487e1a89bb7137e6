"""Rows of a table by the ids that want them, on CUDA: ids are sorted, so that those of one row lie side by side and in their order.

A key is a word: the id above, the place of the id in its list below. No two keys are the same, so there is one order of them,
whatever thread does what; threads then add up the rows of one id from the first place to the last, as the CPU does.

Batcher's bitonic sort: blocks of `CHUNK` keys are sorted in shared memory; longer steps exchange keys in global memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.core.types import product
from pe_cli.kernels.cuda.language import cuda, cuda_kernel
from pe_cli.kernels.language import Int, PtrI64, helper
from pe_cli.ops.define.lowering import Buffer, Lowering

#: Keys that a block sorts in shared memory, and its threads.
CHUNK: Any = 4096
THREADS: Any = 1024
#: The id of a key that belongs to no row, behind all others; a place is below.
NO_ID: Any = 2**31 - 1
PLACE: Any = 2**32 - 1
#: Threads that count, each a run of neighbours.
COUNTERS: Any = 256
#: An index without a sign: one with a sign could count from the end.
At: Any = np.uint64
I64: Any = np.int64


@cuda_kernel
def make_keys(ids: PtrI64, keys: PtrI64, begin: Int, count: Int, height: Int, padding: Int):
    """The keys of a list of ids whose places begin at begin; those outside [0, height) and the padding belong to no row."""
    for i in range(count):
        row = ids[i]
        # The id has 31 bits, so that no key is negative: keys compare as they are.
        keys[begin + i] = ((row if 0 <= row < height and row != padding else NO_ID) << 32) | (begin + i)


@cuda_kernel
def fill_keys(keys: PtrI64, begin: Int, count: Int):
    """Keys behind the last id."""
    for i in range(count):
        keys[begin + i] = (NO_ID << 32) | (begin + i)


@helper
def exchange(keys, at, stride, size, first):
    """Put the keys at and at + stride into the order of a run of `size`, which alternates; first: the place of keys[0]."""
    a, b = keys[At(at)], keys[At(at + stride)]
    if (a > b) == (((first + at) & size) == 0):
        keys[At(at)], keys[At(at + stride)] = b, a


@helper
def merge_near(held, half, size, top, first, me):
    """Merge runs of `size` in shared memory, from strides of top down; half: pairs of keys."""
    stride = top
    while stride > 0:
        pair = me
        while pair < half:
            # The pair-th of the places whose bit of the stride is 0.
            exchange(held, 2 * pair - (pair & (stride - 1)), stride, size, first)
            pair += THREADS
        cuda.syncthreads()
        stride >>= 1


@cuda_kernel(block=(1024,), threads=("(count + 3) // 4",))
def sort_near(keys: PtrI64, count: Int, least: Int, most: Int):
    """Sort runs of `least` to `most` keys, as far as blocks reach; count: a power of two."""
    held = cuda.shared.array(CHUNK, I64)
    me, here = int(cuda.threadIdx.x), min(CHUNK, count)
    first = int(cuda.blockIdx.x) * CHUNK
    while first < count:
        i = me
        while i < here:
            held[At(i)] = keys[first + i]
            i += THREADS
        cuda.syncthreads()
        size = least
        while size <= most:
            merge_near(held, here >> 1, size, min(size, here) >> 1, first, me)
            size <<= 1
        i = me
        while i < here:
            keys[first + i] = held[At(i)]
            i += THREADS
        cuda.syncthreads()
        first += int(cuda.gridDim.x) * CHUNK


@cuda_kernel
def sort_far(keys: PtrI64, pairs: Int, stride: Int, size: Int):
    """Exchange keys that are `stride` apart, in runs of `size`."""
    for pair in range(pairs):
        at = 2 * pair - (pair & (stride - 1))
        a, b = keys[at], keys[at + stride]
        if (a > b) == ((at & size) == 0):
            keys[at], keys[at + stride] = b, a


@helper
def is_first(keys, at):
    """Return whether a key is that of the first place of its id."""
    row = keys[at] >> 32
    return row != NO_ID and (at == 0 or keys[at - 1] >> 32 != row)


@cuda_kernel
def mark_first(keys: PtrI64, first: PtrI64, total: Int):
    """first[place] = 1 where no place before has the same id."""
    for at in range(total):
        first[keys[at] & PLACE] = 1 if is_first(keys, at) else 0


@cuda_kernel(block=(256,), threads=("256",))
def count_before(marks: PtrI64, total: Int):
    """marks[i] becomes the number of marks before i."""
    sums = cuda.shared.array(COUNTERS, I64)
    me, each = int(cuda.threadIdx.x), (total + COUNTERS - 1) // COUNTERS
    found = 0
    for i in range(min(total, me * each), min(total, (me + 1) * each)):
        found += marks[i]
    sums[At(me)] = found
    cuda.syncthreads()
    # At most 255 additions in each thread, and a single barrier, where a tree of sums needs one for each level.
    before = 0
    for other in range(me):
        before += sums[At(other)]
    for i in range(min(total, me * each), min(total, (me + 1) * each)):
        mark = marks[i]
        marks[i] = before
        before += mark


def sorted_keys(o: Lowering, lists: Sequence[Buffer], paddings: Sequence[int], height: int) -> Buffer:
    """Append the calls that sort the ids of lists, and return the keys; as many as there are ids count.

    Args:
        o: gets the calls and the scratch.
        lists: int64; their places follow one another.
        paddings: for each the id that belongs to no row, -1 for none.
        height: rows of the table; other ids belong to no row.
    """
    counts = [product(ids.shape) for ids in lists]
    total = sum(counts)
    size = 1 << (total - 1).bit_length()
    keys, begin = o.scratch(size, "int64"), 0
    for ids, count, padding in zip(lists, counts, paddings, strict=True):
        if count:
            o.call(make_keys, ids, keys, begin, count, height, padding)
        begin += count
    # Bitonic sorting needs a power of two: keys without an id fill it up, and end behind all others.
    if size > total:
        o.call(fill_keys, keys, total, size - total)
    if size > 1:
        o.call(sort_near, keys, size, 2, min(size, CHUNK))
    # Strides below CHUNK stay within a block's keys, so that one call of sort_near does all of them.
    run = 2 * CHUNK
    while run <= size:
        stride = run // 2
        while stride >= CHUNK:
            o.call(sort_far, keys, size // 2, stride, run)
            stride //= 2
        o.call(sort_near, keys, size, run, run)
        run *= 2
    return keys
