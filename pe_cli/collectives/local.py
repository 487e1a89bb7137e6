"""Collectives between devices of one process: memory is shared, so an all-reduce is a sum that every thread does a shard of."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pe_cli.kernels.calls import Buffer, Call, Table
from pe_cli.kernels.lang import Int, PtrI64, kernel, pointer

#: Elements at a time: stays in the first cache while it is summed and copied.
BLOCK = 2048
#: A shard is at least this many elements: less is not worth waking a thread for.
MIN_SHARD = 4096


@kernel
def all_reduce_sum(sources: PtrI64, n_sources: Int, targets: PtrI64, n_targets: Int, begin: Int, end: Int):
    """Sum sources in order into sources[0], then copy that to every other target, for elements begin..end."""
    first = pointer(sources[0])
    for low in range(begin, end, BLOCK):
        high = min(end, low + BLOCK)
        for k in range(1, n_sources):
            x = pointer(sources[k])
            for i in range(low, high):
                first[i] += x[i]
        for k in range(n_targets):
            if targets[k] != sources[0]:
                out = pointer(targets[k])
                for i in range(low, high):
                    out[i] = first[i]


def all_reduce_shards(sources: Sequence[Buffer], targets: Sequence[Buffer], elements: int, shards: int) -> list[Call]:
    """Return the calls of an all-reduce, one a shard; together they cover all elements.

    Args:
        sources: one buffer per device that has a gradient, in device order.
        targets: one buffer per device, all devices.
        elements: of each buffer.
        shards: at most this many.
    """
    shards = max(1, min(shards, elements // MIN_SHARD))
    # cut on cache lines, so that no two threads write one
    cuts = [elements * s // shards // 16 * 16 for s in range(shards)] + [elements]
    tables = Table(tuple(sources)), Table(tuple(targets))
    return [
        Call(
            all_reduce_sum,
            (tables[0], len(sources), tables[1], len(targets), low, high),
            sources[0].dtype,
            sources[0].dtype,
        )
        for low, high in itertools.pairwise(cuts)
    ]
