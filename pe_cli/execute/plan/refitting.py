"""Refits a plan to another batch size: checks that tasks have the same place in a step on the same variables, and takes over the rest."""

from __future__ import annotations

from collections.abc import Mapping

from pe_cli.execute.lowering.tasks import Task
from pe_cli.kernels.calls import Buffer
from pe_cli.kernels.cpu.python_calls import HostKernel

#: New buffer -> the one in whose place it comes.
Pairs = dict[Buffer, Buffer]
#: Buffer -> the variable and the device that it is for.
Variables = Mapping[Buffer, tuple[str, int]]


def fits(before: Task, after: Task, variables: Variables) -> bool:
    """Return whether a task may come in the place of another one of the same plan.

    It does unless they differ by more than sizes, kernels and scratch memory: then they wait for one another or share memory otherwise.
    """
    if not _alike(before, after):
        return False
    pairs = [*zip(before.reads, after.reads, strict=True), *zip(before.writes, after.writes, strict=True)]
    # Every variable has a place of its own: the same variables touch the same places.
    return all(variables.get(a) == variables.get(b) is not None for a, b in pairs) and _same_memory(before, after, variables)


def _alike(old: Task, new: Task) -> bool:
    """Whether two tasks have the same place in a step, as far as their own fields tell."""
    if old.part is not None or new.part is not None:  # they touch elements, which other sizes may lay out otherwise
        return False
    if any(isinstance(call.kernel, HostKernel) for call in new.calls):  # it is bound to addresses and sizes
        return False
    heads = [(t.node, t.home, t.beside, t.takers, len(t.reads), len(t.writes)) for t in (old, new)]
    return heads[0] == heads[1]


def _same_memory(old: Task, new: Task, variables: Variables) -> bool:
    """Whether outputs may lie where the same inputs do."""
    for was, now in ((old.views, new.views), (old.takes_over, new.takes_over)):
        if _by_variable(was, variables) != _by_variable(now, variables):
            return False
    # Memory was shared because both had as many bytes; with other sizes one of them may be longer than its place.
    return _as_large(old.takes_over, variables) == _as_large(new.takes_over, variables)


def _by_variable(pairs: Mapping[Buffer, Buffer], variables: Variables) -> dict[object, object]:
    return {variables[out]: variables[source] for out, source in pairs.items()}


def _as_large(pairs: Mapping[Buffer, Buffer], variables: Variables) -> dict[object, bool]:
    """Return for every output whether it has as many bytes as the input whose memory it may use."""
    return {variables[out]: out.type.nbytes == source.type.nbytes for out, source in pairs.items()}
