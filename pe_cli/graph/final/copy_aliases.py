"""copy_aliases: an op whose result is its input under another shape copies the bytes where they will change under one of the two names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pe_cli.graph.ssa import Collective, Compute, Copy, Graph, Node, rebuilt
from pe_cli.ops.define.traits import View


def run(graph: Graph) -> Graph:
    """Return the graph with nodes that copy."""
    program = graph.program
    writes = Counter(n for op in program.top_ops for n in op.output_names())
    # Sums are made in place: under the other name of the same bytes a reader would find the sum.
    summed = {n for node in graph.nodes if isinstance(node, Collective) for n in node.names}

    def changes(name: str) -> bool:
        return name in summed or writes[name] > 1 or program.var(name).persistable

    def copies(node: Node) -> bool:
        return type(node) is Compute and any(changes(n) for pair in aliases(node) for n, _ in pair)

    if not any(map(copies, graph.nodes)):
        return graph

    def nodes_now() -> Iterator[Node]:
        for node in graph.nodes:
            yield Copy(op=node.op, device=node.device, ins=node.ins, outs=node.outs) if isinstance(node, Compute) and copies(node) else node

    return rebuilt(graph, nodes_now())


def aliases(node: Compute) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    """Return the results of a node that are an input's bytes, each with that input: (variable, device) pairs."""
    found = []
    view = node.op.definition.get(View)
    for out_slot, in_slot in view.pairs.items() if view else ():
        outs, ins = node.outs.get(out_slot), node.ins.get(in_slot)
        if outs and ins and outs[0] != ins[0]:
            found.append((outs[0], ins[0]))
    return found
