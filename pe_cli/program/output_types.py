"""Types of what an operator writes, from those of what it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pe_cli.core.types import BFLOAT16, TensorType
from pe_cli.ops.define.inference import infer_types
from pe_cli.ops.define.schema import EMPTY
from pe_cli.ops.define.traits import SameNumbers, View
from pe_cli.program.operator import Operator


class Declared(Protocol):
    """What is known of a variable that exists already: its element type, and the type of all rows where it has only some of them."""

    @property
    def dtype(self) -> str: ...

    whole: TensorType | None


def output_types(
    op: Operator,
    type_of: Callable[[str], TensorType],
    declared: Callable[[str], Declared | None],
    device: int = 0,
) -> dict[str, list[TensorType]]:
    """Return the types of an operator's outputs by slot.

    An operator sees float32 where bfloat16 is stored, unless it only moves numbers. What it writes is rounded where the variable
    is declared so, but for views.

    Args:
        op: with names of variables.
        type_of: of an input, or of a forward variable.
        declared: the variable of a name; None where there is none yet.
        device: on which it has its attributes.

    Raises:
        PeError: types that do not fit.
    """
    # Ops that only move numbers keep bfloat16; all others see, and make, float32.
    definition = op.definition
    moves = definition.has(SameNumbers) or (definition.has(View) and definition.infer is not None)
    absent = TensorType(())  # of a gradient that a list slot leaves out

    def seen(name: str, of: Callable[[str], TensorType] = type_of) -> TensorType:
        kind = absent if name == EMPTY else of(name)
        return kind if moves else kind.computed

    def whole(name: str) -> TensorType:
        """Return the type of all rows of a forward variable, of which this process may have its own alone."""
        return (v.whole if (v := declared(name)) is not None else None) or type_of(name)

    inputs = {s: [seen(n) for n in names if n != EMPTY] for s, names in op.inputs.items()}
    found = infer_types(definition, inputs, op.attrs_on(device), lambda name: seen(name, whole), op.outputs)
    if moves and definition.has(View):  # it may not even copy
        return found
    for slot, names in op.outputs.items():
        for i, (name, kind) in enumerate(zip(names, found.get(slot, ()), strict=False)):
            if kind.dtype == "float32" and (made := declared(name)) is not None and made.dtype == BFLOAT16:
                found[slot][i] = TensorType(kind.shape, BFLOAT16)
    return found


def agrees(declared: TensorType, found: TensorType) -> bool:
    """Return whether two types can be the same once every size is known."""
    alike = declared.dtype == found.dtype and len(declared.shape) == len(found.shape)
    return alike and all(a == b or -1 in (a, b) for a, b in zip(declared.shape, found.shape, strict=True))
