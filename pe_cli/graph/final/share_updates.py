"""share_updates: where devices share what an update writes, it is done once for all of them.

The graph that the strategy asks for has every device's own update. Devices that share parameters would all compute the same bits into the
same place; so one update is left, what devices share is named on the first of them, and sums that only updates read have one copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from pe_cli.graph.ssa import (
    AllReduce,
    Collective,
    Compute,
    Graph,
    Node,
    Reduce,
    Slots,
    StartSum,
    Update,
    WaitSum,
    rebuilt,
)
from pe_cli.ops.define.traits import Spreads
from pe_cli.program.operator import UPDATES


def run(graph: Graph, shared: Collection[str], fetches: Collection[str]) -> Graph:
    """Return the graph in which shared work is done once.

    Args:
        graph: over devices.
        shared: variables that all devices use one copy of.
        fetches: variables that are read after the step, on every device.
    """
    if not shared:
        return graph
    # An op that one device alone has is shared already.
    nodes = Counter(id(node.op) for node in graph.nodes if isinstance(node, Compute))
    once = {id(n.op) for n in graph.nodes if isinstance(n, Compute) and n.role in UPDATES and nodes[id(n.op)] > 1}
    ours = [node for node in graph.nodes if isinstance(node, Compute) and id(node.op) in once]
    others = [node for node in graph.nodes if not (isinstance(node, Compute) and id(node.op) in once)]
    written = {n for node in ours for n in node.op.output_names()}
    # What some other node writes for one device is that device's own, even where updates write it too.
    single = {*shared} | written - {v.name for node in others for v in node.outputs}
    # Sums that only updates read need no copy on the other devices.
    alone = _read_by_updates(graph, others, fetches) if ours else set[str]()
    turns = _turns(graph, ours)

    def on(slots: Slots) -> Slots:
        return {s: [(n, 0 if n in single else d) for n, d in pairs] for s, pairs in slots.items()}

    def nodes_now() -> Iterator[Node]:
        done: set[int] = set()
        for node in graph.nodes:
            if isinstance(node, Compute) and id(node.op) in once:
                if id(node.op) not in done:
                    done.add(id(node.op))
                    yield _update(node, turns)
            elif isinstance(node, (AllReduce, WaitSum)) and alone.issuperset(node.names):
                # The sum passes through the memory of the first device with samples, which is overwritten there.
                outs = {"Out": [(n, 0) for n in node.names]}
                if isinstance(node, AllReduce) and graph.active[0] != 0:
                    outs["Through"] = [(n, graph.active[0]) for n in node.names]
                yield replace(node, outs=outs)
            else:
                yield replace(node, ins=on(node.ins), outs=on(node.outs))

    return rebuilt(graph, nodes_now(), homes=graph.homes | dict.fromkeys(sorted(single | written), 0))


def _update(node: Compute, turns: dict[str, int]) -> Update:
    """Return the update of all devices for that of one: it reads and writes what lies on the first."""
    op = node.op
    # Where threads can share one update, its device does not matter; otherwise the load is spread by bytes.
    turn = turns.get(op.role_vars[0], 0) if len(op.role_vars) == 2 and not op.definition.has(Spreads) else 0
    ins, outs = ({s: [(n, 0) for n, _ in pairs] for s, pairs in slots.items()} for slots in (node.ins, node.outs))
    return Update(op=op, device=turn, ins=ins, outs=outs)


def _read_by_updates(graph: Graph, others: Sequence[Node], fetches: Collection[str]) -> set[str]:
    """Return the sums that nothing but shared updates reads: one copy is enough."""
    sums = (AllReduce, Reduce, StartSum, WaitSum)
    elsewhere = {v.name for node in others if not isinstance(node, sums) for v in node.inputs} | {*fetches}
    summed = {n for node in others if isinstance(node, Collective) and isinstance(node, sums) for n in node.names}
    return summed - elsewhere - {v.name for v in graph.program.persistables()}


def _turns(graph: Graph, ours: Sequence[Compute]) -> dict[str, int]:
    """Return parameter -> the device that does its updates, where these cannot be divided: the one with the fewest bytes so far."""
    load = [0] * len(graph.places)
    variables = graph.program.vars
    found: dict[str, int] = {}
    for node in ours:
        pair = node.op.role_vars
        if len(pair) == 2 and pair[0] not in found and pair[0] in variables:
            found[pair[0]] = load.index(min(load))
            load[found[pair[0]]] += variables[pair[0]].type.nbytes
    return found
