"""Decides whether the rows of a region (axis 0 of its arguments) may be computed separately, so that threads share them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import find, forward_name
from pe_cli.ops.define.traits import HasRegions, Layout, Pointwise, RowWise, SumsRows
from pe_cli.program.ir import EMPTY, Operator
from pe_cli.program.region import Region


def is_rowwise(region: Region, types: Mapping[str, TensorType], given: Collection[str], rows: int) -> bool:
    """Return whether no row of a region's results depends on another row.

    Args:
        region: any.
        types: of all its variables.
        given: arguments that have rows; the others are the same for all of them.
        rows: how many there are.
    """
    found = set(given)
    # Anything that is batched but of another length is no row of these, such as a table.
    if not all(types[n].shape[:1] == (rows,) for n in found):
        return False
    for op in region.block.ops:
        if op.definition.has(HasRegions):
            return False
        # What does not depend on rows is the same for every part.
        if found.isdisjoint(op.input_names()):
            continue
        if not _keeps_rows(op, types, found, rows):
            return False
        found.update(op.output_names())
    return found.issuperset(region.results)


def _keeps_rows(op: Operator, types: Mapping[str, TensorType], found: Collection[str], rows: int) -> bool:
    definition = op.definition
    forward = find(definition.is_grad_of) if definition.is_grad_of else definition
    if not all(types[n].shape[:1] == (rows,) for n in op.output_names()):
        return False
    shared, alike = forward.get(SumsRows), forward.get(RowWise)
    if shared is not None and any(forward_name(s) in shared.slots for s in op.outputs):
        return False  # a gradient that adds up over rows
    shapes = _shapes(op, types)
    apart = {n for n in op.input_names() if n not in found}
    if shared is not None and shared.applies(op.attrs, shapes):
        # An op that sums over what is shared is row by row only if nothing else comes from outside.
        return apart == {n for s in shared.slots for n in op.inputs.get(s, ())}
    if alike is not None and alike.applies(op.attrs, shapes):
        return all(types[n].shape[:1] != (rows,) for n in apart)
    layout = forward.get(Layout)
    pointwise = definition.has(Pointwise) or forward.has(Pointwise) or (layout is not None and not layout.attr)
    rank = max(len(types[n].shape) for n in op.output_names())
    return pointwise and all(len(types[n].shape) < rank or types[n].shape[:1] == (1,) for n in apart)


def _shapes(op: Operator, types: Mapping[str, TensorType]) -> dict[str, Sequence[int]]:
    """Return the shape of the first variable of each slot, by the forward op's slots."""
    found: dict[str, Sequence[int]] = {}
    for slots in (op.outputs, op.inputs):
        for slot, names in slots.items():
            there = [n for n in names if n != EMPTY]
            if there:
                found.setdefault(forward_name(slot), types[there[0]].shape)
    return found
