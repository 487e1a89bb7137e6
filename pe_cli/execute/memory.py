"""Planned memory: every temporary of a device gets an offset in one arena, and buffers that never live together share bytes."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pe_cli.devices.memory import aligned
from pe_cli.execute.lower import Task
from pe_cli.ops.lowering import Buffer


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets of one device's buffers.

    Args:
        offsets: buffer -> byte offset in the device's arena.
        nbytes: size of the arena.
        unshared: what it would be if no two buffers shared bytes.
    """

    offsets: dict[Buffer, int]
    nbytes: int
    unshared: int


class _Groups:
    """Union-find over buffers that are the same bytes."""

    def __init__(self) -> None:
        self._parent: dict[Buffer, Buffer] = {}

    def find(self, b: Buffer) -> Buffer:
        while (up := self._parent.get(b, b)) is not b:
            self._parent[b] = self._parent.get(up, up)
            b = up
        return b

    def join(self, out: Buffer, source: Buffer) -> None:
        a, b = self.find(out), self.find(source)
        if a is not b:
            self._parent[a] = b


def plan_memory(
    tasks: Sequence[Task],
    placed: Collection[Buffer],
    kept: Collection[Buffer],
    pinned: Sequence[Buffer],
    *,
    share: bool = True,
    inplace: bool = True,
) -> tuple[MemoryPlan, dict[Buffer, Buffer]]:
    """Plan one device's arena.

    Args:
        tasks: of this device, in order.
        placed: buffers that live elsewhere (persistable); never planned, never taken over.
        kept: buffers whose bytes stay valid to the end of the step and from its start (feeds, fetches).
        pinned: buffers laid out first, one after the other, never shared (gradients that are all-reduced).
        share: whether temporaries share bytes.
        inplace: whether an op's output may take over the bytes of an input that nobody needs any more.

    Returns:
        The plan, and for every buffer that is the same bytes as a placed one, that one.
    """
    last = _last_use(tasks)
    written = _first_write(tasks)
    groups = _Groups()
    fixed = {*placed, *kept, *pinned}
    members: dict[Buffer, list[Buffer]] = {}

    def group(b: Buffer) -> list[Buffer]:
        return members.setdefault(groups.find(b), [groups.find(b)])

    def join(out: Buffer, source: Buffer) -> None:
        mine, theirs = group(out), group(source)
        if mine is theirs:
            return
        groups.join(out, source)
        root = groups.find(source)
        merged = theirs + mine
        for b in {root, out, source}:
            members.pop(b, None)
        members[root] = merged

    for i, task in enumerate(tasks):
        for out, source in task.shares.items():
            join(out, source)
        for out, source in task.takes_over.items():
            free = all(last[b] <= i and b not in fixed for b in group(source))
            other = any(groups.find(b) is groups.find(source) for b in task.reads if b is not source)
            fits = out not in fixed and out.type.nbytes == source.type.nbytes and written[out] == i
            if share and inplace and free and not other and fits:
                join(out, source)
    return _offsets(tasks, groups, placed, kept, pinned, share)


def _first_write(tasks: Sequence[Task]) -> dict[Buffer, int]:
    first: dict[Buffer, int] = {}
    for i, task in enumerate(tasks):
        for b in task.writes:
            first.setdefault(b, i)
    return first


def _last_use(tasks: Sequence[Task]) -> dict[Buffer, int]:
    last: dict[Buffer, int] = {}
    for i, task in enumerate(tasks):
        for b in (*task.reads, *task.writes):
            last[b] = i
    return last


def _offsets(
    tasks: Sequence[Task],
    groups: _Groups,
    placed: Collection[Buffer],
    kept: Collection[Buffer],
    pinned: Sequence[Buffer],
    share: bool,
) -> tuple[MemoryPlan, dict[Buffer, Buffer]]:
    life: dict[Buffer, list[int]] = {}
    size: dict[Buffer, int] = {}
    everyone: dict[Buffer, None] = {}
    for i, task in enumerate(tasks):
        for b in (*task.reads, *task.writes, *task.scratch):
            everyone[b] = None
            root = groups.find(b)
            span = life.setdefault(root, [i, i])
            span[1] = i
            size[root] = max(size.get(root, 0), aligned(b.type.nbytes))
    end = len(tasks)
    for b in kept:
        everyone[b] = None
        root = groups.find(b)
        life[root] = [-1, end]
        size[root] = max(size.get(root, 0), aligned(b.type.nbytes))
    elsewhere = {groups.find(b): b for b in placed}
    roots: dict[Buffer, int] = {}
    total = 0
    for b in pinned:
        root = groups.find(b)
        if root not in roots and root not in elsewhere:
            roots[root] = total
            total += aligned(b.type.nbytes)
    base = total
    unshared = base
    occupied: list[tuple[int, int, int, int]] = []  # begin, end, first, last; sorted
    todo = [r for r in life if r not in roots and r not in elsewhere]
    for root in sorted(todo, key=lambda r: (-size[r], life[r][0])):
        first, final = life[root] if share else (-1, end)
        unshared += size[root]
        at = base
        for low, high, begin, stop in occupied:
            if stop < first or final < begin:
                continue
            if at + size[root] <= low:
                break
            at = max(at, high)
        roots[root] = at
        bisect.insort(occupied, (at, at + size[root], first, final))
        total = max(total, at + size[root])
    offsets = {b: roots[groups.find(b)] for b in everyone if groups.find(b) in roots}
    shared = {b: elsewhere[groups.find(b)] for b in everyone if groups.find(b) in elsewhere}
    return MemoryPlan(offsets, total, unshared), shared
