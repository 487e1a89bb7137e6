"""Finds the dependencies between launches: each waits for earlier ones that write what it touches, or touch what it writes.

Gradients of filters beside those of images, branches of a net beside one another: what a small batch leaves of a card idle, another launch
may have. Memory that the plan uses again orders launches, too; with `executor.num_threads` above 1 it is used again only where the data
orders them anyway, which takes more memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pe_cli.devices.cuda_launches import Launch, touched


def waits_of(launches: Sequence[Launch]) -> list[list[int]]:
    """Return for each launch those earlier ones that it waits for, but for those that others of them wait for already.

    A launch that must not be moved waits for all before it, and all after it wait for it.

    Args:
        launches: in order.
    """
    spans: list[tuple[int, int, int, bool]] = []  # begin, end, launch, whether it writes
    found: list[list[int]] = []
    before: list[int] = []  # of each launch, itself and all that are done before it, a bit each
    barrier = -1
    for i, launch in enumerate(launches):
        own = [(e.address, e.address + e.nbytes, writes) for e, writes in touched(launch)]
        if not launch.movable:
            near, barrier = list(range(max(barrier, 0), i)), i
            spans = []
        else:
            near = ([barrier] if barrier >= 0 else []) + _meeting(own, spans)
        reached, waits = 0, []
        for j in sorted(set(near), reverse=True):
            if not reached >> j & 1:
                waits.append(j)
                reached |= before[j]
        found.append(sorted(waits))
        before.append(reached | 1 << i)
        spans += [(begin, end, i, writes) for begin, end, writes in own]
    return found


def _meeting(own: Sequence[tuple[int, int, bool]], spans: Sequence[tuple[int, int, int, bool]]) -> list[int]:
    """Return the launches of spans that meet one of these, where either is written."""
    if not spans or not own:
        return []
    others, mine = np.array(spans, np.int64), np.array(own, np.int64)[:, :, None]
    meet = (others[:, 0] < mine[:, 1]) & (mine[:, 0] < others[:, 1]) & ((others[:, 3] | mine[:, 2]) != 0)
    return [int(j) for j in others[meet.any(0), 2]]
