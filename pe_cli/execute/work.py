"""How much a step computes, and for how many devices of one machine that is worth while: a rough count, the same on every machine."""

from __future__ import annotations

from collections.abc import Callable

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.execute.estimate import batch_types
from pe_cli.execute.lower import concrete_types
from pe_cli.graph.sequences import resolve
from pe_cli.ops.registry import find
from pe_cli.program.ir import EMPTY, Operator, Program

#: What one core does, roughly: operations and bytes a microsecond.
OPERATIONS, BYTES = 100_000, 40_000
#: Microseconds that a step takes longer for every further device: to cut and feed, to wake and wait for a thread.
DEVICE = 60


def operations(op: Operator, type_of: Callable[[str], TensorType]) -> int | None:
    """Return the floating-point operations of an op, or None where it does not count them.

    A gradient op of a product, a convolution or a recurrence does as many as the forward op for the gradient of data, and as many again
    for those of weights.

    Args:
        op: of a program.
        type_of: type of a variable, all sizes known.
    """
    forward, times = op.definition, 1
    if forward.flops is None and forward.is_grad_of:
        forward = find(forward.is_grad_of)
        times = min(2, sum(name != EMPTY for name in op.output_names()))
    if forward.flops is None:
        return None
    given = {s: [n for n in names if n != EMPTY] for s, names in op.inputs.items()}
    if not all(given.get(slot.name) or slot.optional for slot in forward.inputs):
        return None
    args = [type_of(given[slot.name][0]) if given.get(slot.name) else None for slot in forward.inputs]
    found = forward.flops(*args, **op.attrs)
    return None if found < 0 else found * times


def microseconds(program: Program, samples: int) -> float:
    """Return what a step takes on one core, roughly.

    Args:
        program: training or evaluation.
        samples: of a batch.

    Raises:
        PeError: only data shows the sizes of some variables.
    """
    sequences = resolve(program)
    types = concrete_types(sequences.program, batch_types(sequences, [samples])[0])
    total = 0.0
    for op in sequences.program.global_block().ops:
        total += (operations(op, types.__getitem__) or 0) / OPERATIONS
        if not op.definition.alias:
            total += sum(types[n].nbytes for n in op.output_names() if n in types) / BYTES
    return total


def useful_devices(program: Program, samples: int, most: int) -> int:
    """Return with how many devices of a machine a step takes least time, so far as that can be told.

    Args:
        program: training or evaluation.
        samples: of a batch, over all devices.
        most: cores.
    """
    try:
        alone = microseconds(program, samples)
        if microseconds(program, 2 * samples) == alone:  # nothing has a batch axis: every device would do the same
            return 1
    except PeError:  # sizes that only data shows: nothing speaks for fewer
        return most
    return min(range(1, most + 1), key=lambda n: alone / n + DEVICE * (n - 1))
