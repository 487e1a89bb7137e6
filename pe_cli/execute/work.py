"""How much a step computes, and how the cores of a machine should share it: a rough count, the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pe_cli.core.errors import PeError
from pe_cli.execute.estimate import batch_types
from pe_cli.execute.lower import concrete_types
from pe_cli.execute.operations import operations
from pe_cli.graph.sequences import resolve
from pe_cli.ops.areas import ENOUGH
from pe_cli.ops.registry import find
from pe_cli.program.ir import Program, Role

#: What one core does, roughly: operations and bytes a microsecond; bytes that another core has just written take longer.
OPERATIONS, BYTES, MOVED = 100_000, 40_000, 10_000
#: Microseconds that a step takes longer for every further thread: to wake it, wait for it, and feed its device.
THREAD = 60
#: Microseconds that a cut op takes longer, because its threads wait for each other; and by how much, because they never take equally long.
BARRIER, UNEVEN = 2.0, 1.02
#: More threads than any op has parts: for what becomes a part of a product, and waits for nobody.
MAX_PARTS = 1 << 30


@dataclass(frozen=True)
class Layout:
    """How a step is shared among cores: the batch among devices, or on one device every op among threads.

    Args:
        devices: each with a part of the batch.
        threads: of all devices.
    """

    devices: int
    threads: int


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
            return self.time + self.touched * (threads - 1) / threads / MOVED
        return UNEVEN * self.time / parts + BARRIER * (self.parts < MAX_PARTS)


def costs(program: Program, samples: int) -> list[Cost]:
    """Return what the ops of a step take.

    Args:
        program: training or evaluation.
        samples: of a batch.

    Raises:
        PeError: only data shows the sizes of some variables.
    """
    sequences = resolve(program)
    block = sequences.program.global_block()
    types = concrete_types(sequences.program, batch_types(sequences, [samples])[0])
    found = []
    for op in block.ops:
        if op.definition.alias:
            continue
        counted = operations(op, types.__getitem__)
        reads, writes = (tuple(n for n in names if n in types) for names in (op.input_names(), op.output_names()))
        touched = sum(types[n].nbytes for n in (*reads, *writes))
        of = find(op.definition.is_grad_of) if op.definition.is_grad_of else op.definition
        bias = of.name == "elementwise_add" and any(block.var(n).persistable for n in op.inputs.get("Y", ()))
        update = op.role is Role.OPTIMIZE and not op.inputs.get("Rows")
        parts = (counted or 0) // ENOUGH if of.cut else MAX_PARTS if update or bias or of.name == "relu" else 1
        found.append(Cost((counted or 0) / OPERATIONS + touched / BYTES, touched, parts, reads, writes))
    return found


def on_threads(ops: Sequence[Cost], threads: int) -> float:
    """Return what a step takes on one device with so many threads, in microseconds: no less than the longest way through its ops.

    Args:
        ops: `costs` of the step.
        threads: of the device.
    """
    done: dict[str, float] = {}
    for op in ops:
        end = max((done.get(n, 0.0) for n in op.reads), default=0.0) + op.on(threads)
        done |= dict.fromkeys(op.writes, end)
    alone = sum(op.time for op in ops)
    return max(alone * UNEVEN / threads, *done.values()) if threads > 1 else alone


def best_layout(program: Program, samples: int, most: int) -> Layout:
    """Return how cores of one machine share a step so that it takes least time, so far as that can be told.

    Args:
        program: training or evaluation.
        samples: of a batch, over all devices.
        most: cores.
    """
    try:
        ops, twice = costs(program, samples), costs(program, 2 * samples)
    except PeError:  # sizes that only data shows: nothing speaks for fewer
        return Layout(most, most)
    block = program.global_block()
    updates = [op for op in block.ops if op.role is Role.OPTIMIZE]
    sparse = any(op.inputs.get("Rows") for op in updates)  # threads of one device do not share updates of rows
    updates = [op for op in updates if not op.inputs.get("Rows")]
    weights = sum(block.var(n).type.nbytes for op in updates for n in op.inputs.get("Param", ())) / MOVED
    alone = sum(op.time for op in ops)
    batch = sum(op.time for op in twice) - alone  # what grows with the batch; without it every device would do the same

    def data(n: int) -> float:
        return alone - batch + batch / n + THREAD * (n - 1) + 2 * weights * (n - 1) / n  # gradients, then new values

    def shared(n: int) -> float:
        return on_threads(ops, n) + THREAD * (n - 1) + weights * (n - 1) / n

    devices = min(range(1, min(most, samples) + 1), key=data)
    threads = min(range(1, most + 1), key=shared)
    if shared(threads) < data(devices) and not sparse:
        return Layout(1, threads)
    return Layout(devices, devices)
