"""Refits a plan to another batch size: checks that both plans have the same tasks on the same variables, and takes over the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pe_cli.execute.lowering.tasks import Task
from pe_cli.kernels.calls import Buffer
from pe_cli.kernels.cpu.python_calls import HostKernel

#: New buffer -> the one in whose place it comes.
Pairs = dict[Buffer, Buffer]


def match_tasks(before: Sequence[Task], after: Sequence[Task]) -> Pairs | None:
    """Return the variables' buffers of a batch's tasks with those of another's in whose place they come.

    None where the tasks differ by more than sizes, kernels and scratch memory: they wait for one another or share memory otherwise.
    """
    if len(before) != len(after):
        return None
    pairs: Pairs = {}
    taken: Pairs = {}
    # Both lists come from one graph by the same code, in the same order: task by task is enough, no search.
    for old, new in zip(before, after, strict=True):
        if not _alike(old, new) or not all(_pair(pairs, taken, a, b) for a, b in _touched(old, new)):
            return None
        if old is not new and not _same_memory(old, new, pairs):
            return None
    return pairs


def _alike(old: Task, new: Task) -> bool:
    """Whether two tasks have the same place in a step, as far as their own fields tell."""
    if old is new:
        return True
    if old.part is not None or new.part is not None:  # they touch elements, which other sizes may lay out otherwise
        return False
    if any(isinstance(call.kernel, HostKernel) for call in new.calls):  # it is bound to addresses and sizes
        return False
    heads = [(t.node, t.home, t.beside, t.takers, len(t.reads), len(t.writes)) for t in (old, new)]
    return heads[0] == heads[1]


def _touched(old: Task, new: Task) -> list[tuple[Buffer, Buffer]]:
    rows = ((old.reads, new.reads), (old.writes, new.writes))
    return [pair for a, b in rows for pair in zip(a, b, strict=True)]


def _pair(pairs: Pairs, taken: Pairs, old: Buffer, new: Buffer) -> bool:
    """Match two buffers of the plans; return False where either is matched to another already."""
    # One to one: a buffer that came in the place of two others would be written by both.
    return pairs.setdefault(new, old) is old and taken.setdefault(old, new) is new


def _same_memory(old: Task, new: Task, pairs: Mapping[Buffer, Buffer]) -> bool:
    """Whether outputs may lie where the same inputs do."""
    for was, now in ((old.views, new.views), (old.takes_over, new.takes_over)):
        if {pairs.get(out): pairs.get(source) for out, source in now.items()} != was:
            return False
    # Memory was shared because both had as many bytes; with other sizes one of them may be longer than its place.
    over = new.takes_over.items()
    return all(_as_large(out, source) == _as_large(pairs[out], pairs[source]) for out, source in over)


def _as_large(out: Buffer, source: Buffer) -> bool:
    return out.type.nbytes == source.type.nbytes
