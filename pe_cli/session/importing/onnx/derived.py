"""Constants that are computed of parameters: known while a graph is read, and computed anew by layers in every step of training."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pe_cli.core.types import FLOATS
from pe_cli.session.importing.onnx.node import Node, discover
from pe_cli.session.importing.onnx.values import Array, Unimportable, Value


def is_trained(node: Node) -> bool:
    """Tell whether parameters, or what is computed of them, decide about a node of constants."""
    held = [value for value in node.values if value is not None and value.constant is not None]
    return any(value.trained or value.later is not None for value in held)


def keeps_parameter(node: Node) -> bool:
    """Tell whether a node brings a parameter into the form in which alone it is read, so that the form may be the parameter's own."""
    return node.value(0).later is None and node.takers.get(node.inputs[0], set()) <= {node.op}


def derived(node: Node, arrays: Sequence[Array]) -> list[Value]:
    """Return what a node computes of parameters: as constants, and as layers as soon as something needs variables.

    Args:
        node: all of its inputs are constants.
        arrays: its outputs.
    """
    made: list[Value | None] = []

    def layers(index: int) -> Value:
        if not made:
            form, found, why = discover().get(("", node.op)), None, "it has no layer"
            try:
                found = form(node) if form is not None else None
            except Unimportable as error:
                why = error.message
            if found is None:
                node.emitter.note(f"'{node.key}' is computed of parameters in the file, and trained as one of its own: {why}")
                names = (f"{node.key}.{i}" for i in range(len(arrays)))
                found = [Value(a.dtype.name, constant=a, initializer=n, trained=True) for n, a in zip(names, arrays, strict=True)]
            made.extend([found] if isinstance(found, Value) else found)
        found_at = made[index]
        assert found_at is not None, "an output that is read"
        return found_at

    return [
        Value(array.dtype.name, constant=array, later=partial(layers, i), made_by=node)
        if array.dtype.name in FLOATS and array.size
        else Value(array.dtype.name, constant=array)
        for i, array in enumerate(arrays)
    ]
