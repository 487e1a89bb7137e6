"""What a form works with: the operator at hand, and the ONNX graph that grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.types import TensorType
from pe_cli.program.ir import Operator


class Writer:
    """Appends the nodes of one operator to a graph.

    Args:
        op: what is written.
        types: type of every variable; the batch axis may be -1.
        graph: lists that grow.
    """

    def __init__(self, op: Operator, types: Callable[[str], TensorType], graph: Lists) -> None:
        self.op = op
        self.attrs: Mapping[str, Any] = op.attrs
        self._types = types
        self._graph = graph

    def has(self, slot: str) -> bool:
        """Whether an input is there."""
        return bool(self.op.inputs.get(slot))

    def wanted(self, slot: str) -> bool:
        """Whether an output is there."""
        return bool(self.op.outputs.get(slot))

    def ins(self, slot: str) -> list[str]:
        """Return the names of a list slot."""
        return list(self.op.inputs.get(slot, ()))

    def x(self, slot: str = "X") -> str:
        """Return the name of an input."""
        return self.op.inputs[slot][0]

    def type_of(self, name: str) -> TensorType:
        """Return the type of a variable."""
        return self._types(name).computed

    def type(self, slot: str = "X") -> TensorType:
        """Return the type of an input."""
        return self._types(self.x(slot))

    def out_type(self, slot: str = "Out") -> TensorType:
        """Return the type of an output."""
        return self._types(self.op.outputs[slot][0])

    def node(self, kind: str, inputs: Sequence[str], *, to: str | None = None, **attrs: Any) -> str:
        """Append a node and return the name of its output.

        Args:
            kind: of ONNX.
            inputs: names; "" leaves one away.
            to: output slot of the operator that it computes; a name is made when None.
            attrs: of ONNX.
        """
        name = self.op.outputs[to][0] if to else self._graph.fresh(self.op)
        self._graph.add(kind, list(inputs), [name], attrs)
        return name

    def nodes(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> None:
        """Append a node with several outputs, whose names are given."""
        self._graph.add(kind, list(inputs), list(outputs), attrs)

    def fresh(self) -> str:
        """Return a name for a value in between."""
        return self._graph.fresh(self.op)

    def const(self, value: Any, like: str | None = None, dtype: str | None = None) -> str:
        """Return the name of a constant.

        Args:
            value: number, list or array.
            like: input slot whose element type it has.
            dtype: element type, where like is None; int64 when both are.
        """
        kind = self.type(like).dtype if like else dtype or "int64"
        return self._graph.constant(np.asarray(value, kind))


class Lists:
    """Nodes and constants of a graph, as plain values."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._made = 0

    def add(self, kind: str, inputs: list[str], outputs: list[str], attrs: dict[str, Any]) -> None:
        """Append a node."""
        self.nodes.append((kind, inputs, outputs, attrs))

    def fresh(self, op: Operator) -> str:
        """Return a name that no variable has."""
        self._made += 1
        return f"{next(iter(op.output_names()))}@{self._made}"

    def constant(self, value: np.ndarray[Any, Any]) -> str:
        """Return the name of a constant; equal ones are kept once."""
        held = "\0".join(value.reshape(-1)).encode() if value.dtype == object else value.tobytes()
        key = (str(value.dtype), value.shape, held)
        if key not in self._known:
            self._known[key] = f"const@{len(self._known)}"
            self.constants[self._known[key]] = value
        return self._known[key]
