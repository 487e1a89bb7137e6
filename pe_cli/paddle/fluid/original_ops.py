"""Operators that scripts append by hand, with the slots and attributes that these have in the original."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pe_cli.io.fluid.operator_reader import Reader
from pe_cli.io.fluid.program_desc import ELEMENT_NUMBERS, OpDesc
from pe_cli.io.fluid.reading import reader_of
from pe_cli.ops.define.registry import discover
from pe_cli.ops.nn.softmax import LEAST
from pe_cli.program.ir import Block

Slots = Mapping[str, Any]
#: Operator -> attributes with which it does what the original's does: logits count there as no further below the largest one than 64.
FACTS: Mapping[str, Mapping[str, Any]] = {"softmax_with_cross_entropy": {"limit": -LEAST}}


def is_original(type: str, inputs: Slots, outputs: Slots, attrs: Mapping[str, Any]) -> bool:
    """Return whether an operator is one of the original's, and none of those here, as its slots or attributes are others."""
    known = discover().get(type)
    if known is not None:
        given = ((inputs, known.slot_names(outputs=False)), (outputs, known.slot_names(outputs=True)), (attrs, known.attrs))
        if all(name in names for slots, names in given for name in slots):
            return False
    return reader_of(type) is not None


def append(block: Block, type: str, inputs: Slots, outputs: Slots, attrs: Mapping[str, Any]) -> None:
    """Append the operators that do what one of the original does.

    Raises:
        PeError: it does something that is not there; with the operator and what it makes.
    """
    op = OpDesc(type, _names(inputs), _names(outputs), {name: _value(name, value) for name, value in attrs.items()})
    read = reader_of(type)
    assert read is not None
    read(Reader(op, block, len(block.ops), len(block.ops)))


def _names(slots: Slots) -> dict[str, list[str]]:
    found = {slot: list(value) if isinstance(value, (list, tuple)) else [value] for slot, value in slots.items() if value is not None}
    return {slot: [v if isinstance(v, str) else v.name for v in values] for slot, values in found.items()}


def _value(name: str, value: Any) -> Any:
    """Return an attribute as a file has it: element types are numbers there."""
    if name.endswith("dtype") and isinstance(value, str):
        return ELEMENT_NUMBERS.get(value, value)
    return list(value) if isinstance(value, tuple) else value
