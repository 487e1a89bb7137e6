"""absorb_sums: an update of all devices adds their gradients up itself, block by block in the first cache, and the sum's node goes.

That pays where every device has one thread: then no other work would run beside the sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pe_cli.graph.ssa import ADDENDS, AllReduce, Graph, Node, StartSum, Update, rebuilt
from pe_cli.ops.define.traits import Spreads


def run(graph: Graph) -> Graph:
    """Return the graph without sums of gradients that one update alone reads, where its op can add them up (`Spreads`)."""
    updates = [node for node in graph.nodes if isinstance(node, Update)]
    able = [node for node in updates if node.op.definition.has(Spreads)]
    # share_updates leaves one copy of a sum where nothing but updates reads it
    buckets = [node.names for node in graph.nodes if isinstance(node, AllReduce) and len(node.outs["Out"]) == len(node.names)]
    begun = {n for node in graph.nodes if isinstance(node, StartSum) for n in node.names}  # these go on over processes
    found = _found(updates, able, [names for names in buckets if begun.isdisjoint(names)])
    if not found:
        return graph

    def nodes_now() -> Iterator[Node]:
        for node in graph.nodes:
            if isinstance(node, AllReduce) and found.issuperset(node.names):
                continue
            if isinstance(node, Update) and (grads := node.op.inputs.get("Grad")) and found.issuperset(grads):
                # The first device with samples has the accumulator; the rest are added to it in the order of the tree.
                first, *rest = graph.active
                addends = {ADDENDS: [(n, d) for d in rest for n in grads]}
                node = replace(node, ins={**node.ins, "Grad": [(n, first) for n in grads], **addends})
            yield node

    return rebuilt(graph, nodes_now())


def _found(updates: list[Update], able: list[Update], buckets: list[list[str]]) -> set[str]:
    """Return gradients that one update alone reads and none writes: whole buckets, and all gradients of an update or none."""
    readers: dict[str, set[int]] = {}
    for node in updates:
        for n in node.op.input_names():
            readers.setdefault(n, set()).add(node.index)
    # A gradient that an update writes as well, as clipping in place does, is not its sum any more.
    written = {n for node in updates for n in node.op.output_names()}
    grads = [node.op.inputs["Grad"] for node in able]
    found = {n for names in buckets for n in names} & {n for names in grads for n in names if len(readers[n]) == 1} - written
    before = None
    # Leaving out one gradient may leave a bucket or an update incomplete, so it is repeated until nothing changes.
    while found != before:
        before = found
        for groups in (buckets, grads):
            found = {n for names in groups if found.issuperset(names) for n in names}
    return found
