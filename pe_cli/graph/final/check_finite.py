"""check_finite: behind every op, a node that looks for NaN and infinity in its results; with check_nan_inf.

What it has looked at is a version of its own, so that who reads the result waits for the check: the first bad result of a step is the one
that is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pe_cli.core.types import FLOATS
from pe_cli.graph.final.copy_aliases import aliases
from pe_cli.graph.ssa import Check, Compute, Gather, Graph, Node, rebuilt


def run(graph: Graph, fetches: Collection[str]) -> Graph:
    """Return the graph with checks of what an op reads, what stays, and what is fetched: other results hold whatever memory held."""
    program = graph.program
    # What nobody reads may hold anything: memory of temporaries is never cleared.
    read = {v.name for node in graph.nodes for v in node.inputs} | {*fetches}

    def counts(name: str) -> bool:
        v = program.var(name)
        return v.dtype in FLOATS and (name in read or v.persistable)

    def nodes_now() -> Iterator[Node]:
        for node in graph.nodes:
            yield node
            # A view has the bytes of its input, which have been looked at.
            if not isinstance(node, Compute) or isinstance(node, Gather) or (type(node) is Compute and aliases(node)):
                continue
            found = [(v.name, v.device) for v in node.outputs if counts(v.name)]
            if found:
                yield Check(op=node.op, device=node.device, ins={"X": found}, outs={"Out": found})

    return rebuilt(graph, nodes_now())
