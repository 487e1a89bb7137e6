"""Nodes that have graphs inside: the branch of an If that a constant chooses, and the rounds of Loop and Scan, each written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from pe_cli.session.importing.onnx.emit import Emitter
from pe_cli.session.importing.onnx.file import MOST_WRITTEN_OUT
from pe_cli.session.importing.onnx.node import Node
from pe_cli.session.importing.onnx.values import Size, Unimportable, Value


class Reader(Protocol):
    """What reads nodes; see `pe_cli.session.importing.onnx.read`."""

    emitter: Emitter
    values: dict[str, Value]
    keys: dict[str, str]
    written_out: int

    def take(self, graph: Any, names: Sequence[str]) -> list[Value | None]:
        """Read all nodes of an inner graph; return the values of some names."""


def branch(reader: Reader, node: Node) -> Sequence[Value | None]:
    """Write the branch out that a constant condition chooses.

    Raises:
        PeError: the condition is computed, or a node of the branch has no form.
    """
    chosen = bool(node.const(0, "the condition").reshape(-1)[0])
    node.attrs.read |= {"then_branch", "else_branch"}
    graph = node.attr("then_branch" if chosen else "else_branch")
    if graph is None:
        raise Unimportable("a branch is missing")
    node.emitter.note("an If whose condition is a constant is the branch that it chooses")
    names = [given.name for given in graph.output]
    # What the branch hands on takes the names that were kept for the node's outputs.
    reader.keys |= {name: reader.keys[outer] for name, outer in zip(names, node.outputs, strict=False) if outer in reader.keys}
    return reader.take(graph, names)


def loop(reader: Reader, node: Node) -> Sequence[Value | None]:
    """Write the rounds of a Loop out, whose number is a constant.

    Raises:
        PeError: only values tell how many there are, there are too many, or a node has no form.
    """
    graph = node.attr("body")
    most = int(node.const(0, "the number of rounds").reshape(-1)[0]) if node.has(0) else None
    goes_on = bool(node.const(1, "the condition").reshape(-1)[0]) if node.has(1) else True
    carried = [value for value in node.values[2:] if value is not None]
    rows: list[list[Value]] = []
    number = 0
    while goes_on and (most is None or number < most):
        inside = [Value("int64", constant=np.asarray(number)), Value("bool", constant=np.asarray(True)), *carried]
        found = _round(reader, node, graph, inside)
        if found[0].constant is None:
            raise Unimportable("what is computed says whether another round comes")
        goes_on = bool(found[0].constant.reshape(-1)[0])
        carried, scanned = found[1 : 1 + len(carried)], found[1 + len(carried) :]
        rows.append(scanned)
        number += 1
    if not rows and len(node.outputs) > len(carried):
        raise Unimportable("it has no rounds, and rows of them are read")
    stacked = [_stacked(node, [row[i] for row in rows], 0, i) for i in range(len(node.outputs) - len(carried))]
    return [*carried, *stacked]


def scan(reader: Reader, node: Node) -> Sequence[Value | None]:
    """Write the rounds of a Scan out: one for each place along the axes that it goes along.

    Raises:
        PeError: their number is not known, there are too many, or a node has no form.
    """
    graph, count = node.attr("body"), int(node.attr("num_scan_inputs", 0))
    states = len(node.values) - count
    outs = len(graph.output) - states
    if node.opset < 9 or count < 1 or states < 0 or outs < 0:
        raise Unimportable("it is of a version before opset 9, or its inputs do not fit its body")
    axes, ways = ([int(v) for v in node.attr(f"scan_input_{n}", [0] * count)] for n in ("axes", "directions"))
    out_axes, out_ways = ([int(v) for v in node.attr(f"scan_output_{n}", [0] * outs)] for n in ("axes", "directions"))
    axes = [axis % node.value(states + i).rank for i, axis in enumerate(axes)]
    rounds: Size = node.shape(states)[axes[0]]
    if not isinstance(rounds, int) or rounds < 1:
        raise Unimportable("how many rounds it has is not known")
    carried = [node.value(i) for i in range(states)]
    rows: list[list[Value]] = []
    for number in range(rounds):
        given = [_at(node, states + i, axes[i], rounds - 1 - number if ways[i] else number) for i in range(count)]
        found = _round(reader, node, graph, [*carried, *given])
        carried = found[:states]
        rows.append(found[states:])
    stacked = []
    for i in range(outs):
        parts = [row[i] for row in rows]
        rank = parts[0].rank + 1
        stacked.append(_stacked(node, parts[::-1] if out_ways[i] else parts, out_axes[i] % rank, i))
    return [*carried, *stacked]


def _round(reader: Reader, node: Node, graph: Any, inside: Sequence[Value]) -> list[Value]:
    """Read a body once, with values for its inputs."""
    if len(graph.input) != len(inside):
        raise Unimportable(f"its body has {len(graph.input)} inputs, and is given {len(inside)}")
    reader.written_out += len(graph.node)
    if reader.written_out > MOST_WRITTEN_OUT:
        raise Unimportable(f"its rounds, written out, are more than {MOST_WRITTEN_OUT:,} nodes")
    node.emitter.note(f"the rounds of a {node.op} are written out")
    # Every round makes the values of the body anew, under the same names.
    own = {name for inner in graph.node for name in inner.output} | {given.name for given in graph.input}
    for name in own:
        reader.values.pop(name, None)
        reader.keys.pop(name, None)
    reader.values.update(zip((given.name for given in graph.input), inside, strict=True))
    found = reader.take(graph, [given.name for given in graph.output])
    if any(value is None for value in found):
        raise Unimportable("its body does not compute what it hands on")
    return [value for value in found if value is not None]


def _at(node: Node, index: int, axis: int, place: int) -> Value:
    """Return one place along an axis of an input."""
    value = node.value(index)
    if value.constant is not None:
        return Value(value.dtype, constant=np.take(value.constant, place, axis))
    x = node.var(index)
    kept = [1 if a == axis else size for a, size in enumerate(x.dims)]
    one = node.mid("slice", f"of_{index}", input=x, axes=[axis], starts=[place], ends=[place + 1], dims=kept)
    return node.reshaped(one, [size for a, size in enumerate(x.dims) if a != axis], f"row_{index}")


def _stacked(node: Node, parts: Sequence[Value], axis: int, index: int) -> Value:
    """Return what rounds have computed along an axis of its own."""
    arrays = [part.constant for part in parts if part.constant is not None]
    if len(arrays) == len(parts):
        return Value(parts[0].dtype, constant=np.stack(arrays, axis))
    held = [node.emitter.variable(part, f"{node.key}_part") for part in parts]
    rows = [node.reshaped(v, [*v.shape[:axis], 1, *v.shape[axis:]], f"part_{index}") for v in held]
    dims = [*rows[0].dims[:axis], len(rows), *rows[0].dims[axis + 1 :]]
    return rows[0] if len(rows) == 1 else node.mid("concat", f"rows_{index}", input=rows, axis=axis, dims=dims)


#: Node -> how what is inside of it is read.
INSIDE: dict[str, Callable[[Reader, Node], Sequence[Value | None]]] = {"If": branch, "Loop": loop, "Scan": scan}
