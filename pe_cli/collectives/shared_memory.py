"""Collectives between CPU devices of one process: memory is shared, so an all-reduce is a sum of which each thread adds a shard."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pe_cli.core.types import TensorType
from pe_cli.kernels.calls import Buffer, Call, Numbers, Table
from pe_cli.kernels.language import SIZE, Addr, Int, PtrI64, kernel, pointer
from pe_cli.kernels.math.tree_sum import BLOCK, Order, add_rows

#: A shard is at least this many elements: less is not worth waking a thread for.
MIN_SHARD = 4096


@kernel
def all_reduce_sum(
    sources: PtrI64, n_sources: Int, order: PtrI64, targets: PtrI64, n_targets: Int, room: Addr, begin: Int, end: Int
):
    """Sum sources into sources[0] as an order says, then copy that to every other target, for elements begin..end."""
    for low in range(begin, end, BLOCK):
        high = min(end, low + BLOCK)
        add_rows(sources, 0, n_sources, order, low, high - low, room)
        first = pointer(sources[0] + SIZE * low)
        for k in range(n_targets):
            if targets[k] != sources[0]:
                out = pointer(targets[k] + SIZE * low)
                for i in range(high - low):
                    out[i] = first[i]


def all_reduce_shards(
    sources: Sequence[Buffer], targets: Sequence[Buffer], elements: int, shards: int, order: Order
) -> list[tuple[Call, list[Buffer]]]:
    """Return the calls of an all-reduce with the scratch memory of each, one per shard; together they cover all elements.

    What needs no scratch memory has none: whatever takes its place would have to wait for the sum.

    Args:
        sources: one buffer per device that has a gradient, in device order.
        targets: one buffer per device, all devices.
        elements: of each buffer.
        shards: at most this many.
        order: of the sources, in place.
    """
    shards = max(1, min(shards, elements // MIN_SHARD))
    # cut on cache lines, so that no two threads write one
    cuts = [elements * s // shards // 16 * 16 for s in range(shards)] + [elements]
    tables = Table(tuple(sources)), Table(tuple(targets))
    made = []
    for low, high in itertools.pairwise(cuts):
        room = [Buffer("scratch", TensorType((order.rooms * BLOCK,), sources[0].dtype))] if order.rooms else []
        args = (tables[0], len(sources), Numbers(order.words), tables[1], len(targets), (room or targets)[0], low, high)
        made.append((Call(all_reduce_sum, args, sources[0].dtype, sources[0].dtype), room))
    return made
