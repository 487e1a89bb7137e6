"""How many floating-point operations an op does."""

from __future__ import annotations

from collections.abc import Callable

from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import OpDef, find
from pe_cli.ops.define.traits import Counted, Divisible
from pe_cli.program.ir import EMPTY, Operator


def operations(op: Operator, type_of: Callable[[str], TensorType]) -> int | None:
    """Return the floating-point operations of an op, or None where it does not count them.

    A gradient op of a product, a convolution or a recurrence does as many as the forward op for the gradient of data, and as many again
    for those of weights.

    Args:
        op: of a program.
        type_of: type of a variable, all sizes known.
    """
    forward, times = op.definition, 1
    if not forward.has(Counted) and forward.is_grad_of:
        forward = find(forward.is_grad_of)
        times = min(2, sum(name != EMPTY for name in op.output_names()))
    counted = forward.get(Counted)
    if counted is None or (args := arguments(op, forward, type_of)) is None:
        return None
    found = counted.flops(*args, **op.attrs)
    return None if found < 0 else found * times


def most_parts(op: Operator, type_of: Callable[[str], TensorType]) -> int | None:
    """Return how many parts an op, or the forward op of a gradient op, may be cut into; None where its sizes do not limit that.

    Args: as for `operations`.
    """
    forward = find(op.definition.is_grad_of) if op.definition.is_grad_of else op.definition
    cut = forward.get(Divisible)
    if cut is None or cut.most is None or (args := arguments(op, forward, type_of)) is None:
        return None
    return cut.most(*args, **op.attrs)


def arguments(op: Operator, forward: OpDef, type_of: Callable[[str], TensorType]) -> list[TensorType | None] | None:
    """Return the types of a forward op's inputs, of it or of its gradient op; None where that lacks one."""
    given = {s: [n for n in names if n != EMPTY] for s, names in op.inputs.items()}
    if not all(given.get(slot.name) or slot.optional for slot in forward.inputs):
        return None
    return [type_of(given[slot.name][0]) if given.get(slot.name) else None for slot in forward.inputs]
