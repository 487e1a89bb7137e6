"""Chooses how the cores of a machine share a step: how many devices and how many threads for each."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.execute.diagnostics.estimate import batch_types
from pe_cli.execute.lowering.types import concrete_types
from pe_cli.execute.plan.cost import MOVED, Cost, costs, on_threads
from pe_cli.graph.lod_resolution import resolve
from pe_cli.ops.define.traits import BatchStatistics
from pe_cli.program.ir import Operator, Program, Role
from pe_cli.program.region import every_op

#: Microseconds that a step takes longer for every further thread: to wake it, wait for it, and feed its device.
THREAD = 60
#: Samples that a device has at least where a layer takes statistics of its batch: of fewer they are too rough to train with.
MIN_SAMPLES = 4


@dataclass(frozen=True)
class Layout:
    """How a step is shared among cores: the batch among devices, or on one device every op among threads.

    Args:
        devices: each with a part of the batch.
        threads: of all devices.
    """

    devices: int
    threads: int


def step_costs(program: Program, samples: int) -> list[Cost]:
    """Return what the ops of a step take.

    Args:
        program: training or evaluation.
        samples: of a batch.

    Raises:
        PeError: only data shows the sizes of some variables.
    """
    sequences = resolve(program)
    block = sequences.program.main_block
    types = concrete_types(sequences.program, batch_types(sequences, [samples])[0])
    return costs(block.ops, block, types.get)


def best_layout(program: Program, samples: int, most: int) -> Layout:
    """Return how cores of one machine share a step so that it takes least time, so far as that can be told.

    Args:
        program: training or evaluation.
        samples: of a batch, over all devices.
        most: cores.
    """
    # Costs at two batch sizes tell what grows with the batch: weights and updates cost the same on every device.
    try:
        ops, twice = step_costs(program, samples), step_costs(program, 2 * samples)
    except PeError:  # sizes that only data shows: nothing speaks for fewer
        return Layout(most, most)
    # Of all elements, which threads share.
    updates = [op for op in program.top_ops if op.role is Role.OPTIMIZE and not op.inputs.get("Rows")]
    weights = sum(program.var(n).type.nbytes for op in updates for n in op.inputs.get("Param", ())) / MOVED
    alone = sum(op.time for op in ops)
    batch = sum(op.time for op in twice) - alone  # what grows with the batch; without it every device would do the same

    def data(n: int) -> float:
        # Gradients go out and new values come back: every device but one reads the weights of the others twice.
        return alone - batch + batch / n + THREAD * (n - 1) + 2 * weights * (n - 1) / n  # gradients, then new values

    def shared(n: int) -> float:
        return on_threads(ops, n) + THREAD * (n - 1) + weights * (n - 1) / n

    own = any(_own_statistics(op) for op in every_op(program))
    # Ops that take statistics of a device's samples train badly on few of them, so the number of devices is limited there.
    devices = min(range(1, min(most, max(1, samples // MIN_SAMPLES) if own else samples) + 1), key=data)
    threads = min(range(1, most + 1), key=shared)
    # At equal time devices win: their samples are apart, so that no op waits for another thread inside of it.
    if shared(threads) < data(devices):
        return Layout(1, threads)
    return Layout(devices, devices)


def statistics_note(program: Program, devices: int) -> str:
    """Return a sentence on ops that take statistics of each device's part of a batch; nothing where there are none, or one device."""
    found = dict.fromkeys(op.type for op in every_op(program) if _own_statistics(op))
    if devices < 2 or not found:
        return ""
    return (
        f"{' and '.join(found)} on {devices} devices: each takes the statistics of its own part of a batch, so that results differ from "
        "those of one device by far more than rounding; build_strategy.sync_batch_norm: true takes them over the whole batch"
    )


def _own_statistics(op: Operator) -> bool:
    """Whether an op takes statistics of a device's own samples, of which there had better be several."""
    statistics = op.definition.get(BatchStatistics)
    return statistics is not None and statistics.applies(op.attrs)
