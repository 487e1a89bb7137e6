"""The writer that ops' ONNX forms use: the operator at hand, and the ONNX graph that grows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.ops.define.onnx import PLUGIN, NoOnnxForm, OnnxForm
from pe_cli.ops.define.traits import FedSizes
from pe_cli.program.ir import Block, Operator
from pe_cli.program.region import Region

#: Kind, inputs, outputs and attributes.
Node = tuple[str, list[str], list[str], dict[str, Any]]
#: A value's name and type.
Named = tuple[str, TensorType]


@dataclass(frozen=True)
class Inside:
    """Nodes that a node runs, such as the body of a Scan; they read the values around them by name.

    Args:
        nodes: in order.
        inputs: what they are given.
        outputs: what they give.
    """

    nodes: Sequence[Node]
    inputs: Sequence[Named]
    outputs: Sequence[Named]


def renamed(node: Node, rename: Callable[[str], str]) -> Node:
    """Return a node, and what is inside it, with other names."""
    kind, inputs, outputs, attrs = node
    held = {
        key: replace(value, nodes=[renamed(n, rename) for n in value.nodes]) if isinstance(value, Inside) else value
        for key, value in attrs.items()
    }
    return kind, [rename(n) for n in inputs], [rename(n) for n in outputs], held


def read_by(nodes: Sequence[Node]) -> set[str]:
    """Return the names that nodes, and those inside them, read."""
    # Nodes inside read values around them by name, so their names count as read.
    own = {n for _, inputs, _, _ in nodes for n in inputs}
    return own.union(*(read_by(v.nodes) for *_, attrs in nodes for v in attrs.values() if isinstance(v, Inside)))


def without_copies(nodes: Sequence[Node], kept: Collection[str]) -> list[Node]:
    """Return nodes without each Identity of a value that nothing else reads: what makes the value gives it the other name.

    Args:
        nodes: of a graph, in order.
        kept: names that stay, such as those of outputs.
    """
    reads = Counter(name for _, inputs, _, _ in nodes for name in inputs)
    for *_, attrs in nodes:
        reads.update(name for value in attrs.values() if isinstance(value, Inside) for name in read_by(value.nodes))
    made: list[Node] = []
    maker: dict[str, int] = {}
    for node in nodes:
        kind, inputs, outputs, _ = node
        source = inputs[0] if kind == "Identity" else ""
        if source in maker and reads[source] == 1 and source not in kept:
            place = maker.pop(source)
            before, ins, outs, attrs = made[place]
            made[place] = before, ins, [outputs[0] if name == source else name for name in outs], attrs
            maker[outputs[0]] = place
            continue
        maker |= dict.fromkeys(outputs, len(made))
        made.append(node)
    return made


def in_versions(block: Block) -> tuple[list[Operator], dict[str, TensorType]]:
    """Return a block's operators with a name of its own for each value, and the types of all names; the last value keeps the variable's.

    What lasts and what is fed is left as it is.
    """
    # Operators that overwrite, such as running statistics, would give a name twice, which ONNX forbids.
    left = Counter(n for op in block.ops for n in op.output_names() if not (block.var(n).persistable or block.var(n).is_data))
    types, now, made = {v.name: v.type for v in block.vars.values()}, {n: n for n in block.vars}, []
    for op in block.ops:
        inputs = {s: [now.get(n, n) for n in given] for s, given in op.inputs.items()}
        for n in op.output_names():
            left[n] -= 1
            now[n] = f"{n}@{left[n]}" if left[n] > 0 else n
            types[now[n]] = types[n]
        made.append(replace(op, inputs=inputs, outputs={s: [now.get(n, n) for n in given] for s, given in op.outputs.items()}))
    return made, types


#: Slots of sizes that forms write, or refuse, themselves.
SIZES = ("Maxlen", "OutSize", "ShapeTensor")


def write(op: Operator, types: Callable[[str], TensorType], graph: Lists) -> None:
    """Append the nodes of an operator to a graph.

    Raises:
        PeError: it has no form in ONNX, or none with its attributes; with its layer's place.
    """
    # Of the operator's own trait: this file knows no operator.
    form = op.definition.get(OnnxForm)
    try:
        if form is None:
            missing = op.definition.get(NoOnnxForm)  # ops that come after all others were looked at have none
            why, hint = missing.why if missing else PLUGIN, "choose outputs that do not need it: --fetch NAME"
            raise PeError(f"op '{op.type}' has no form in ONNX: {why}", hint=hint)
        sizes = op.definition.get(FedSizes)
        given = [name for slot in (sizes.attrs if sizes else ()) if slot not in SIZES for name in op.inputs.get(slot, ())]
        if given:
            hint = "write numbers, or choose outputs that do not need it: --fetch NAME"
            raise PeError(f"op '{op.type}' has no form in ONNX where a variable gives sizes, here '{given[0]}'", hint=hint)
        form.write(Writer(op, types, graph))
    except PeError as error:
        error.at = error.at or op.at
        raise


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

    # The type that is computed in: bfloat16 is how a value is stored here, and no type of the exported model.
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

    def inside(self) -> Writer:
        """Return a writer of nodes that one of this operator's runs."""
        return Writer(self.op, self._types, self._graph.inside())

    def region(self, region: Region, args: Sequence[Named]) -> list[Named]:
        """Append the nodes of a region's operators, with names that nothing else has; return its results."""
        prefix = self.fresh()
        # A region may be written several times, and each copy needs names of its own.
        names = {n: f"{prefix}/{n}" for n in region.block.vars} | dict(zip(region.args, [n for n, _ in args], strict=True))
        kinds = {names[n]: kind for n, kind in region.types([kind for _, kind in args]).items()}
        for op in region.block.ops:
            inputs, outputs = ({s: [names[n] for n in given] for s, given in part.items()} for part in (op.inputs, op.outputs))
            write(replace(op, inputs=inputs, outputs=outputs), kinds.__getitem__, self._graph)
        return [(names[n], kinds[names[n]].computed) for n in region.results]

    def body(self, inputs: Sequence[Named], outputs: Sequence[Named]) -> Inside:
        """Return the nodes that were written as an attribute of another node; no two outputs are one value."""
        # An output that is also an input, or another output, gets a node of its own.
        return Inside(self._graph.nodes, inputs, [(self.node("Identity", [n]), kind) for n, kind in outputs])

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
        self.nodes: list[Node] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._numbers = count(1)

    def inside(self) -> Lists:
        """Return lists for nodes inside one of these: they share constants, and no name is given twice."""
        made = Lists()
        made.constants, made._known, made._numbers = self.constants, self._known, self._numbers
        return made

    def add(self, kind: str, inputs: list[str], outputs: list[str], attrs: dict[str, Any]) -> None:
        """Append a node."""
        self.nodes.append((kind, inputs, outputs, attrs))

    def fresh(self, op: Operator) -> str:
        """Return a name that no variable has."""
        return f"{next(iter(op.output_names()))}@{next(self._numbers)}"

    def constant(self, value: np.ndarray[Any, Any]) -> str:
        """Return the name of a constant; equal ones are kept once."""
        # By bytes and type, because equal numbers of two types are two constants.
        held = "\0".join(value.reshape(-1)).encode() if value.dtype == object else value.tobytes()
        key = (str(value.dtype), value.shape, held)
        if key not in self._known:
            self._known[key] = f"const@{len(self._known)}"
            self.constants[self._known[key]] = value
        return self._known[key]
