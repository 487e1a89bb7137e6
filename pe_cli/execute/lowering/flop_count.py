"""Counts the floating-point operations of an op."""

from __future__ import annotations

from collections.abc import Callable

from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import OpDef, find
from pe_cli.ops.define.traits import Counted, Divisible, HasRegions, Runs
from pe_cli.program.ir import EMPTY, Operator
from pe_cli.program.region import regions_of


def operations(op: Operator, type_of: Callable[[str], TensorType]) -> int | None:
    """Return the floating-point operations of an op, or None where it does not count them.

    A gradient op of a product, a convolution or a recurrence does as many as the forward op for the gradient of data, and as many again
    for those of weights.

    Args:
        op: of a program.
        type_of: type of a variable, all sizes known.
    """
    if regions_of(op):
        return _inside(op, type_of)
    forward, times = op.definition, 1
    if not forward.has(Counted) and forward.is_grad_of:
        forward = find(forward.is_grad_of)
        # A gradient op does about the forward work once for each gradient that is asked for, as with the two products of a matmul.
        times = min(2, sum(name != EMPTY for name in op.output_names()))
    counted = forward.get(Counted)
    if counted is None or (args := arguments(op, forward, type_of)) is None:
        return None
    found = counted.flops(*args, **op.attrs_on(0))
    return None if found < 0 else found * times


def _inside(op: Operator, type_of: Callable[[str], TensorType]) -> int:
    """Return the operations of an op's regions: all rounds of a loop, one where only a step knows how many; the larger branch."""
    found = []
    xs, others, like = (op.inputs.get(slot, []) for slot in ("X", "Init", "Like"))
    for region in regions_of(op).values():
        kinds = [type_of(n) for n in (*xs, *others, *op.inputs.get("Captured", []))]
        rows = [kind.with_shape(*kind.shape[1:]) if i < len(xs) else kind for i, kind in enumerate(kinds)]
        types = region.types(rows, [type_of(n) for n in like])
        found.append(sum(operations(inner, types.__getitem__) or 0 for inner in region.block.ops))
    # The larger branch, because a plan is made before anybody knows which one is taken.
    if op.definition.get(HasRegions).runs is Runs.BRANCH:  # type: ignore[union-attr]
        return max(found)
    rounds = type_of(xs[0]).shape[0] if xs else op.attrs.get("steps", 0)
    return max(1, rounds) * sum(found)


def most_parts(op: Operator, type_of: Callable[[str], TensorType]) -> int | None:
    """Return how many parts an op, or the forward op of a gradient op, may be cut into; None where its sizes do not limit that.

    Args: as for `operations`.
    """
    forward = find(op.definition.is_grad_of) if op.definition.is_grad_of else op.definition
    cut = forward.get(Divisible)
    if cut is None or cut.most is None or (args := arguments(op, forward, type_of)) is None:
        return None
    return cut.most(*args, **op.attrs_on(0))


def arguments(op: Operator, forward: OpDef, type_of: Callable[[str], TensorType]) -> list[TensorType | None] | None:
    """Return the types of a forward op's inputs, of it or of its gradient op; None where that lacks one."""
    given = {s: [n for n in names if n != EMPTY] for s, names in op.inputs.items()}
    if not all(given.get(slot.name) or slot.optional for slot in forward.inputs):
        return None
    kinds = [type_of(given[slot.name][0]) if given.get(slot.name) else None for slot in forward.inputs]
    return [kind and kind.computed for kind in kinds]
