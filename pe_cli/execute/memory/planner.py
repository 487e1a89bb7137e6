"""Planned memory: every temporary of a device gets an offset in one arena, and buffers that never live together share bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.devices.aligned_memory import aligned
from pe_cli.execute.lowering.tasks import Task
from pe_cli.execute.plan.reachability import NEVER, Places, Reachability
from pe_cli.ops.define.lowering import Buffer

#: Groups of buffers that are placed wherever there is room, the largest ones: what that takes grows with the square of their number.
MOST_PLACED = 16_384
#: Slots of the right size that are looked at.
TRIES = 8


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets of one device's buffers.

    Args:
        offsets: buffer -> byte offset in the device's arena.
        nbytes: size of the arena.
        unshared: what it would be if no two buffers shared bytes.
        room: buffer -> bytes from its offset on that nothing else uses while it lives.
    """

    offsets: dict[Buffer, int]
    nbytes: int
    unshared: int
    room: dict[Buffer, int]


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


def plan_memory(  # noqa: PLR0913 - kinds of buffers
    tasks: Sequence[Task],
    placed: Collection[Buffer],
    kept: Collection[Buffer],
    pinned: Sequence[Buffer],
    *,
    share: bool = True,
    inplace: bool = True,
    reach: Reachability | None = None,
    room: Callable[[Buffer], int] | None = None,
    held: Collection[Buffer] = (),
    ends: Collection[Buffer] = (),
) -> tuple[MemoryPlan, dict[Buffer, Buffer]]:
    """Plan one device's arena.

    Args:
        tasks: of this device, in order.
        placed: buffers that live elsewhere (persistable); never planned, never taken over.
        kept: buffers whose bytes stay valid to the end of the step and from its start (feeds, fetches).
        pinned: buffers laid out first, one after the other, never shared (gradients that are all-reduced).
        share: whether temporaries share bytes.
        inplace: whether an op's output may take over the bytes of an input that nobody needs any more.
        reach: of tasks that may run in another order. Then only buffers share bytes of which one is dead before the other is born in
            every order, so that reuse adds no waiting.
        room: bytes to leave for a buffer; default: its own.
        held: buffers that have their bytes to themselves all the time, but for what takes them over.
        ends: buffers whose bytes stay valid to the end, from where they are written first.

    Returns:
        The plan, and for every buffer that is the same bytes as a placed one, that one.
    """
    last = _last_use(tasks)
    written = _first_write(tasks)
    groups = _Groups()
    lasting = {*placed, *kept}
    fixed = lasting | set(pinned) | set(ends)
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
            # Every alias has pointed to a list; only the new root keeps one, or a stale list would be joined again later.
            members.pop(b, None)
        members[root] = merged

    for i, task in enumerate(tasks):
        for out, source in task.views.items():
            join(out, source)
        for out, source in task.takes_over.items():
            free = all(last[b] <= i and b not in fixed for b in group(source))
            # an op that reads these bytes twice may need them after it has begun to write
            # Reads of a view of the source count as well: they are the same bytes.
            other = sum(groups.find(b) is groups.find(source) for b in task.reads) > 1
            # a pinned output has its bytes to itself, so that its source may live there before it
            fits = out not in lasting and out.type.nbytes == source.type.nbytes and written[out] == i
            if share and inplace and free and not other and fits:
                join(out, source)
    kept = [*kept, *held]
    lives = _Lives(tasks, groups, kept, share, reach, room or (lambda b: b.type.nbytes))
    lives.last(ends)
    return _offsets(tasks, groups, placed, kept, pinned, lives)


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


class _Lives:
    """When groups of buffers live.

    Args:
        tasks: in order.
        groups: buffers that are the same bytes.
        kept: buffers that live all the time.
        share: if not, everything lives all the time.
        reach, room: see `plan_memory`.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        groups: _Groups,
        kept: Collection[Buffer],
        share: bool,
        reach: Reachability | None,
        room: Callable[[Buffer], int],
    ) -> None:
        self._room = room
        self._groups, self._end = groups, len(tasks)
        self.span: dict[Buffer, list[int]] = {}
        self.size: dict[Buffer, int] = {}
        self._users: dict[Buffer, list[int]] = {}
        self._seen: set[Buffer] = set()
        self.reach = reach
        for i, task in enumerate(tasks):
            for b in (*task.reads, *task.writes, *task.scratch):
                root = groups.find(b)
                self.span.setdefault(root, [i, i])[1] = i
                if reach is not None:
                    self._users.setdefault(root, []).append(i)
                self._grow(root, b)
        for b in kept:
            # From before the first task to behind the last: what is fed is there before, what is fetched is read afterwards.
            root = groups.find(b)
            self.span[root] = [-1, len(tasks)]
            self._grow(root, b)
        if not share:
            self.span = {root: [-1, len(tasks)] for root in self.span}

    def last(self, ends: Collection[Buffer]) -> None:
        """Extend the lifetimes of buffers to the end of the step."""
        for b in ends:
            span = self.span[self._groups.find(b)]
            span[1] = max(span[1], self._end)

    def _grow(self, root: Buffer, b: Buffer) -> None:
        if b not in self._seen:
            self._seen.add(b)
            self.size[root] = max(self.size.get(root, 0), aligned(self._room(b)))

    def born(self, root: Buffer) -> Places:
        """Return what is done before a group lives, in every order: see `Reachability.behind`."""
        assert self.reach is not None
        first = self.span[root][0]
        return self.reach.behind[:, first] if first >= 0 else np.full(len(self.reach.behind), -1, np.int32)

    def gone(self, root: Buffer) -> Places:
        """Return what is done only when a group lives no more, in every order: see `Reachability.ahead`."""
        assert self.reach is not None
        users = self._users.get(root)
        return self.reach.ahead[:, users].max(1) if users else np.full(len(self.reach.ahead), NEVER, np.int32)


class _Room:
    """Bytes that groups of buffers occupy, and when.

    Args:
        lives: of the groups.
        count: of the groups.
    """

    def __init__(self, lives: _Lives, count: int) -> None:
        self._lives = lives
        self._count = 0
        self._begin, self._end, self._first, self._last = np.zeros((4, count), np.int64)
        self._order = np.zeros(count, np.int64)  # numbers of the groups by where they begin
        lines = 0 if lives.reach is None else len(lives.reach.behind)
        self._born, self._gone = np.zeros((2, lines, count), np.int32)

    def place(self, root: Buffer, base: int) -> int:
        """Return the lowest offset from base on at which a group meets no other that lives when it does; the group stays there."""
        n, size, (first, last) = self._count, self._lives.size[root], self._lives.span[root]
        # In terms of task numbers two groups meet where neither ends before the other begins.
        meets = (self._first[:n] <= last) & (self._last[:n] >= first)
        if self._lives.reach is not None:
            meets |= self._unordered(root, n, first)
        order = self._order[:n]
        met = order[meets[order]]
        begin = self._begin[met]
        # Others may overlap each other: what is free begins behind the furthest end of all before.
        free = np.maximum.accumulate(np.append(base, self._end[met]))  # from here on, before each of the others and after all
        gaps = np.flatnonzero(free[:-1] + size <= begin)
        at = int(free[gaps[0]] if gaps.size else free[-1])
        where = int(np.searchsorted(self._begin[order], at, side="right"))
        self._order[where + 1 : n + 1] = self._order[where:n].copy()
        self._order[where] = n
        self._begin[n], self._end[n], self._first[n], self._last[n] = at, at + size, first, last
        self._count += 1
        return at

    def _unordered(self, root: Buffer, n: int, first: int) -> NDArray[np.bool_]:
        """Return which others may live at the same time in some order, though their spans are apart; enters the group."""
        born, gone = self._lives.born(root), self._lives.gone(root)
        before, after = np.zeros((2, n), bool)
        for line in np.flatnonzero(born >= 0):
            # The other group is gone before this one is born if on some line its last user stands before the first predecessor of this one.
            before |= self._gone[line, :n] <= born[line]
        for line in np.flatnonzero(gone < NEVER):
            after |= self._born[line, :n] >= gone[line]
        self._born[:, n], self._gone[:, n] = born, gone
        earlier = self._last[:n] < first
        return ~np.where(earlier, before, after)


class _Slots:
    """Places of one size each, which groups take one after the other; finding one takes the same time however many there are.

    Args:
        lives: of the groups.
        begin: offset of the first slot.
    """

    def __init__(self, lives: _Lives, begin: int) -> None:
        self._lives = lives
        self.end = begin
        self._free: dict[int, list[tuple[int, int, Places | None]]] = {}  # size -> until when it is taken, its offset, see `gone`

    def place(self, root: Buffer) -> int:
        """Return the offset of a slot that is free for a group; of groups in the order in which they are born."""
        reach, size, (first, last) = self._lives.reach, self._lives.size[root], self._lives.span[root]
        # Slots of one size serve groups of that size alone, so that none is cut and none has to be searched for.
        slots = self._free.setdefault(size, [])
        gone = None if reach is None else self._lives.gone(root)
        passed: list[tuple[int, int, Places | None]] = []
        at = -1
        # Bounded: a slot that is free by number may not be free in every order, and trying all of them would be a search again.
        while slots and slots[0][0] < first and at < 0 and len(passed) < TRIES:
            slot = heappop(slots)
            # Any order counts: one line of tasks must be done with the old group before the new one is born.
            if slot[2] is None or bool((slot[2] <= self._lives.born(root)).any()):
                at = slot[1]
            else:
                passed.append(slot)
        for slot in passed:
            heappush(slots, slot)
        if at < 0:
            at, self.end = self.end, self.end + size
        heappush(slots, (last, at, gone))
        return at


def _offsets(
    tasks: Sequence[Task],
    groups: _Groups,
    placed: Collection[Buffer],
    kept: Collection[Buffer],
    pinned: Sequence[Buffer],
    lives: _Lives,
) -> tuple[MemoryPlan, dict[Buffer, Buffer]]:
    everyone = dict.fromkeys(b for task in tasks for b in (*task.reads, *task.writes, *task.scratch))
    everyone |= dict.fromkeys(kept)
    elsewhere = {groups.find(b): b for b in placed}
    roots: dict[Buffer, int] = {}
    total = 0
    # side by side from the arena's beginning: a collective takes all of them as one array
    for b in pinned:
        root = groups.find(b)
        if root not in roots and root not in elsewhere:
            roots[root] = total
            total += aligned(b.type.nbytes)
    base = total
    todo = [r for r in lives.span if r not in roots and r not in elsewhere]
    # the largest first: small buffers fit into the gaps that large ones leave, seldom the other way round
    todo.sort(key=lambda r: (-lives.size[r], lives.span[r][0]))
    # best fit compares each buffer with all others, so it is for a bounded number; slots of equal size take constant time each
    large, small = todo[:MOST_PLACED], todo[MOST_PLACED:]
    room = _Room(lives, len(large))
    for root in large:
        roots[root] = at = room.place(root, base)
        total = max(total, at + lives.size[root])
    slots = _Slots(lives, total)
    for root in sorted(small, key=lambda r: lives.span[r][0]):
        roots[root] = slots.place(root)
    total = slots.end
    unshared = base + sum(lives.size[r] for r in todo)
    offsets = {b: roots[groups.find(b)] for b in everyone if groups.find(b) in roots}
    shared = {b: elsewhere[groups.find(b)] for b in everyone if groups.find(b) in elsewhere}
    # Pinned buffers lie side by side: none may have more than its own bytes.
    exact = {groups.find(b): aligned(b.type.nbytes) for b in pinned}
    free = {b: exact.get(groups.find(b), lives.size[groups.find(b)]) for b in offsets}
    return MemoryPlan(offsets, total, unshared, free), shared
