"""The SSA graph: op nodes with a device, versioned variables that are written once, and explicit write-after-read edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pe_cli.core.types import Place
from pe_cli.program.ir import EMPTY, Operator, Program

#: Slot -> (variable, device) pairs.
Slots = dict[str, list[tuple[str, int]]]


#: Kinds of nodes that sum gradients over devices.
COLLECTIVES = ("all_reduce", "fused_all_reduce", "reduce")


@dataclass(frozen=True)
class VarNode:
    """One version of a variable on a device. Version 0 is what is there before the step."""

    name: str
    device: int
    version: int

    def __str__(self) -> str:
        return f"{self.name}@{self.device}.{self.version}"


@dataclass(eq=False)
class OpNode:
    """One operation on one device, or a collective over all.

    Attributes:
        kind: computation, scale_loss_grad, all_reduce, fused_all_reduce, reduce, gather (row-sparse gradients of all devices), or
            sync for what reads other devices.
        op: what is computed.
        device: index of the place it runs on; a collective is at home on the first.
        inputs, outputs: versions read and written.
        ins, outs: slot -> (variable, device) pairs; a node may read another device's memory.
        after: nodes that read what this one overwrites.
    """

    index: int
    kind: str
    op: Operator
    device: int
    inputs: tuple[VarNode, ...]
    outputs: tuple[VarNode, ...]
    ins: Slots
    outs: Slots
    after: tuple[int, ...] = ()


@dataclass
class Graph:
    """Op nodes in a valid order.

    Attributes:
        program: whose variables the nodes name.
        places: devices.
        active: devices that have samples; the others only take part in updates.
        nodes: in order.
        homes: variables that are on one device only, for all: gathered gradients.
    """

    program: Program
    places: tuple[Place, ...]
    active: tuple[int, ...]
    nodes: list[OpNode] = field(default_factory=list)
    homes: dict[str, int] = field(default_factory=dict)

    def producers(self) -> dict[VarNode, int]:
        """Return which node writes each version."""
        return {v: node.index for node in self.nodes for v in node.outputs}

    def edges(self) -> Iterator[tuple[int, int]]:
        """Yield (before, after) pairs of node indices: data first, then write-after-read."""
        made = self.producers()
        for node in self.nodes:
            for v in node.inputs:
                if v in made:
                    yield made[v], node.index
            for before in node.after:
                yield before, node.index


class GraphBuilder:
    """Adds nodes and keeps versions; write-after-read edges come out right by construction."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._version: dict[tuple[str, int], int] = {}
        self._readers: dict[VarNode, list[int]] = {}

    def current(self, name: str, device: int) -> VarNode:
        """Return the newest version of a variable on a device."""
        return VarNode(name, device, self._version.get((name, device), 0))

    def add(self, kind: str, op: Operator, device: int, ins: Slots, outs: Slots) -> OpNode:
        """Append a node that reads the newest versions of its inputs and writes new ones of its outputs."""
        index = len(self.graph.nodes)
        inputs = tuple(self.current(*r) for pairs in ins.values() for r in pairs if r[0] != EMPTY)
        after: list[int] = []
        outputs = []
        for write in dict.fromkeys(w for pairs in outs.values() for w in pairs if w[0] != EMPTY):
            old = self.current(*write)
            after += [r for r in self._readers.get(old, ()) if r != index]
            self._version[write] = old.version + 1
            outputs.append(VarNode(*write, old.version + 1))
        for v in inputs:
            self._readers.setdefault(v, []).append(index)
        node = OpNode(index, kind, op, device, inputs, tuple(outputs), ins, outs, tuple(dict.fromkeys(after)))
        self.graph.nodes.append(node)
        return node


def describe(graph: Graph) -> str:
    """Return the graph as text, one node a line; the format that tests of passes compare."""
    lines = [f"graph {graph.program.name or 'program'} on {', '.join(map(str, graph.places))}"]
    for node in graph.nodes:
        reads = ", ".join(map(str, node.inputs))
        writes = ", ".join(map(str, node.outputs))
        wait = f" after {', '.join(map(str, node.after))}" if node.after else ""
        label = node.op.type if node.kind == "computation" else f"{node.kind}"
        lines.append(f"{node.index:4} {node.op.role.value:9} {node.device} {label}({reads}) -> {writes}{wait}")
    return "\n".join(lines) + "\n"


def label_of(node: OpNode) -> dict[str, Any]:
    """Return what pictures show of a node: title, role, kind, name scope and place in the file."""
    title = node.op.type if node.kind == "computation" else node.kind
    return {
        "title": title,
        "role": node.op.role.value,
        "kind": node.kind,
        "scope": node.op.scope,
        "at": str(node.op.at or ""),
    }
