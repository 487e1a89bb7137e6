"""How many floating-point operations an op does."""

from __future__ import annotations

from collections.abc import Callable

from pe_cli.core.types import TensorType
from pe_cli.ops.registry import find
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
