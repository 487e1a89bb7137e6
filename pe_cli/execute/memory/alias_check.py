"""With `PE_CHECK_BOUNDS=1`: checks that an op's outputs overlap none of its inputs, unless the op is declared to work in place.

The memory plan decides where outputs lie. Here its decisions are looked at once they are addresses, whatever made them: two buffers of one
task may share bytes where the one is the other (an update of a parameter), where it is a view, and where it takes over the memory of an
input by a trait of the op, then from the first byte on. Kernels rely on that: they read an input after they have begun to write.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.execute.lowering.tasks import Task
from pe_cli.graph.ssa import Graph
from pe_cli.kernels.calls import Buffer
from pe_cli.kernels.compiler.bounds_check import CHECKED

#: A buffer's memory, by any number, and the bytes before it there.
Where = Callable[[Buffer], tuple[int, int]]


def check(tasks: Sequence[Task], graph: Graph, where: Where) -> None:
    """Look at where the outputs of tasks lie, in the mode that checks.

    Args:
        tasks: of a plan.
        graph: that they come from.
        where: buffer -> where it lies.

    Raises:
        PeError: BUG; an output lies on an input of its op, or on another output.
    """
    for task in tasks if CHECKED else ():
        for out, other in _pairs(task) if task.calls else ():
            if _meet(task, out, other, where) and not _declared(task, out, other, where):
                op = getattr(graph.nodes[task.node], "op", None)
                what = f"'{out.name}' would be written over '{other.name}', which the same op reads or writes"
                raise PeError(f"{op.type if op else 'a sum over devices'}: {what}", at=op.at if op else None, code=ExitCode.BUG)


def _pairs(task: Task) -> Iterable[tuple[Buffer, Buffer]]:
    """Return what a task writes with all that it touches beside."""
    written = list(dict.fromkeys((*task.writes, *task.scratch)))
    read = [b for b in dict.fromkeys(task.reads) if b not in set(written)]
    return itertools.chain(itertools.product(written, read), itertools.combinations(written, 2))


def _meet(task: Task, a: Buffer, b: Buffer, where: Where) -> bool:
    """Return whether two buffers share a byte of those that a task touches."""
    (space, low, high), (other, begin, end) = _range(task, a, where), _range(task, b, where)
    return space == other and low < end and begin < high


def _range(task: Task, b: Buffer, where: Where) -> tuple[int, int, int]:
    space, at = where(b)
    low, high = task.spans.get(b, (0, b.size))
    size = b.type.numpy.itemsize
    return space, at + low * size, at + high * size


def _declared(task: Task, out: Buffer, other: Buffer, where: Where) -> bool:
    """Return whether an op declares that an output may share an input's bytes."""
    if task.views.get(out) is other or task.views.get(other) is out:
        return True
    return task.takes_over.get(out) is other and where(out) == where(other)
