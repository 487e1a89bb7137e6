"""Work stealing for the last gradients of a step: idle threads help, as devices never take equally long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pe_cli.core.types import TensorType
from pe_cli.execute.lowering.flop_count import operations
from pe_cli.graph.ssa import Compute, Graph
from pe_cli.ops.define.registry import find
from pe_cli.ops.define.traits import Divisible
from pe_cli.program.ir import Role

#: Share of its operations that a device offers to others; the speeds of cores differ by less than that within a step.
SHARE = 0.3
#: Operations of a device, about half a millisecond, below which the step is over before help comes.
WORTH_HELP = 50_000_000


def steal_last_gradients(graph: Graph, types: Sequence[Mapping[str, TensorType]]) -> Graph:
    """Return the graph with marks on the nodes whose parts any thread may do.

    These are the last of every device's backward pass that can be cut and whose op counts operations.

    Args:
        graph: over several devices, each with a thread of its own.
        types: of every variable, by device.
    """
    found: set[int] = set()
    for d in range(len(graph.places)):
        ours = [node for node in graph.nodes if node.device == d and type(node) is Compute]
        counted = [
            (node, operations(node.op, types[d].__getitem__) or 0) for node in ours if node.role in (Role.FORWARD, Role.BACKWARD)
        ]
        total = sum(n for _, n in counted)
        left = SHARE * total if total >= WORTH_HELP else 0.0
        # From the end: while the first device has nothing left to do, the others are at their last gradients.
        for node, n in reversed(counted):
            if left <= 0 or node.role is not Role.BACKWARD:
                break
            definition = node.op.definition
            if n and (find(definition.is_grad_of) if definition.is_grad_of else definition).has(Divisible):
                found.add(node.index)
            left -= n
    if not found:
        return graph
    nodes = [replace(n, helped=True) if n.index in found and isinstance(n, Compute) else n for n in graph.nodes]
    return replace(graph, nodes=nodes)
