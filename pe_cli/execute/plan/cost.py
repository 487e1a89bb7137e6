"""A rough cost model of a step's ops, which decides whether ops are split over threads; it is the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.execute.lowering.flop_count import most_parts, operations
from pe_cli.ops.define.registry import find
from pe_cli.ops.define.traits import Absorbed, Divisible, HasRegions, View
from pe_cli.ops.define.work_parts import ENOUGH, ENOUGH_BYTES
from pe_cli.program.ir import Block, Operator, Role

#: What one core does, roughly: operations and bytes a microsecond; bytes that another core has just written take longer.
OPERATIONS, BYTES, MOVED = 100_000, 40_000, 10_000
#: Microseconds that a cut op takes longer, because its threads wait for each other; and how much longer for every further thread,
#: because they never take equally long.
BARRIER, UNEVEN = 2.0, 0.02
#: More threads than any op has parts: for what becomes a part of a product, and waits for nobody.
MAX_PARTS = 1 << 30
#: How many times the longest way through its ops a thread has to do before ops are left whole.
WIDE = 2.0


@dataclass(frozen=True)
class Cost:
    """What an op takes, roughly.

    Args:
        time: on one core, in microseconds.
        touched: bytes that it reads and writes.
        parts: most threads that share it.
        reads, writes: names of variables.
    """

    time: float
    touched: int
    parts: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def on(self, threads: int) -> float:
        """Return what it takes where so many threads share it, in microseconds: alone, it reads much that others have written."""
        parts = min(threads, self.parts)
        if parts < 2:
            # What an op on one thread reads was mostly written by the others, so that it comes from their caches and not from its own.
            return self.time + self.touched * (threads - 1) / threads / MOVED
        return shared_time(self.time, parts) + BARRIER * (self.parts < MAX_PARTS)


def shared_time(time: float, threads: int) -> float:
    """Return what takes so long on one thread where several share it: the last of them counts."""
    return time / threads * (1 + UNEVEN * (threads - 1))


def costs(ops: Iterable[Operator], block: Block, type_of: Callable[[str], TensorType | None]) -> list[Cost]:
    """Return what ops take.

    Args:
        ops: in order.
        block: of them.
        type_of: type of a variable, all sizes known; None for one that is not there.
    """
    found = []
    # A view runs no kernel, so it neither takes time nor ties ops together.
    for op in ops:
        if op.definition.has(View):
            continue
        counted = operations(op, type_of)  # type: ignore[arg-type]
        reads, writes = (tuple(n for n in names if type_of(n)) for names in (op.input_names(), op.output_names()))
        touched = sum(kind.nbytes for n in (*reads, *writes) if (kind := type_of(n)))
        of = find(op.definition.is_grad_of) if op.definition.is_grad_of else op.definition
        absorbed = of.get(Absorbed)
        # An absorbed op is a part of a product's loop over its output only where the other operand is a parameter, which is there from the
        # start.
        part = absorbed and (not absorbed.parameter or any(block.var(n).persistable for n in op.inputs.get(absorbed.parameter, ())))
        update = op.role is Role.OPTIMIZE and not op.inputs.get("Rows")
        if of.has(Divisible) or of.has(HasRegions):  # threads share the samples of a loop
            most = most_parts(op, type_of)  # type: ignore[arg-type]
            parts = min(counted // ENOUGH if counted else touched // ENOUGH_BYTES, MAX_PARTS if most is None else most)
        else:
            parts = MAX_PARTS if update or part else 1
        found.append(Cost((counted or 0) / OPERATIONS + touched / BYTES, touched, parts, reads, writes))
    return found


def longest(ops: Sequence[Cost], time: Callable[[Cost], float]) -> float:
    """Return what the longest way through ops takes, in microseconds, where each takes `time(op)`."""
    # Operators are in an order in which each comes after what it reads: one pass finds every longest way.
    done: dict[str, float] = {}
    for op in ops:
        end = max((done.get(n, 0.0) for n in op.reads), default=0.0) + time(op)
        done |= dict.fromkeys(op.writes, end)
    return max(done.values(), default=0.0)


def wide(ops: Sequence[Cost], threads: int) -> bool:
    """Return whether enough ops are independent to keep all threads busy without splitting any; whole ops are faster than their parts.

    Half of the work may lie beside the longest way, so that no thread waits for it; updates, which need no cut to be shared, do not count.
    """
    # Updates and what becomes a part of a product are shared in any case, so that they speak neither for cutting nor against it.
    ops = [op for op in ops if op.parts < MAX_PARTS]
    return longest(ops, lambda op: op.time) * threads * WIDE <= sum(op.time for op in ops)


def on_threads(ops: Sequence[Cost], threads: int) -> float:
    """Return the estimated duration of a step on one device in microseconds: at least the critical path through its ops.

    Args:
        ops: `costs` of the step.
        threads: of the device.
    """
    alone = sum(op.time for op in ops)
    if threads == 1:
        return alone
    if wide(ops, threads):
        return shared_time(alone, threads)
    return max(shared_time(alone, threads), longest(ops, lambda op: op.on(threads)))
