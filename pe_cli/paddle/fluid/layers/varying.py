"""Loops whose states have other sizes from round to round, such as caches that grow: every round is a step of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pe_cli.core.types import TensorType
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.program.ir import Block, Variable
from pe_cli.program.outline import undo

#: Times that a body is tried to find which axes change; a further axis takes one more.
MOST_TRIES = 8


def joined(before: TensorType, after: TensorType) -> TensorType | None:
    """Return the type of a state that begins as one and becomes the other: axes that change are -1; None where more than sizes differ."""
    if before.dtype != after.dtype or len(before.shape) != len(after.shape):
        return None
    return before.with_shape(*(a if a == b else -1 for a, b in zip(before.shape, after.shape, strict=True)))


def open_sizes(block: Block, states: Sequence[Variable], body: Callable[[list[Variable]], Sequence[Variable]]) -> list[Variable] | None:
    """Return the states before the first round, with -1 for the axes that a body changes; None where it changes more, or nothing.

    Args:
        block: where ops are appended.
        states: as they begin.
        body: `body(states) -> next states`; appends ops, which are taken out again.
    """
    kinds = [v.type for v in states]
    # Each try opens the axes that the last one found; opening one may make the body change another.
    for _ in range(MOST_TRIES):
        ops, names = list(block.ops), set(block.vars)
        after = [v.type for v in body(_opened(states, kinds))]
        undo(block, ops, names)
        if len(after) != len(kinds):
            return None
        found = [joined(a, b) for a, b in zip(kinds, after, strict=True)]
        if any(kind is None for kind in found):
            return None
        if found == kinds:
            return None if kinds == [v.type for v in states] else _opened(states, kinds)
        kinds = [kind for kind in found if kind is not None]
    return None


def _opened(states: Sequence[Variable], kinds: Sequence[TensorType]) -> list[Variable]:
    """Append what gives states types with unknown sizes."""
    return [v if v.type == kind else _reshaped(v, kind) for v, kind in zip(states, kinds, strict=True)]


def _reshaped(v: Variable, kind: TensorType) -> Variable:
    sizes = [size if size > 0 else -1 for size in kind.shape]
    return LayerHelper("reshape").one("reshape", {"X": v, "Shape": call("shape", v)}, {"shape": sizes})


def widen(block: Block, first: int, varied: set[str]) -> None:
    """Infer the types of a block's operators from number `first` on anew, until those of variables that change their sizes stay.

    Args:
        block: with the ops of a round.
        first: of the round.
        varied: variables of other sizes; gets what follows from them.
    """
    for _ in range(MOST_TRIES):
        changed = False
        for op in block.ops[first:]:
            types = block.infer(op, lambda name: block.var(name).type)
            for slot, names in op.outputs.items():
                for name, found in zip(names, types.get(slot, ()), strict=False):
                    v = block.vars[name]
                    kind = joined(v.type, found) if name in varied else found
                    if kind is not None and kind != v.type and not v.persistable:
                        v.type, changed = kind, True
        if not changed:
            return
