"""Updates that are done once for all devices: on CPUs, devices share parameters, and each thread updates some of their elements.

The graph shows every device's own update, as the strategy says. Where devices share what an update writes, all of them would compute the
same bits into the same place; instead, one does it, or several do a part each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from pe_cli.graph.ssa import COLLECTIVES, Graph, OpNode
from pe_cli.program.ir import Operator, Role

UPDATES = (Role.OPTIMIZE, Role.LR_SCHED)


class Updates:
    """What is done once in a graph.

    Args:
        graph: over devices.
        shared: variables that all devices use one copy of.
        fetches: variables that are read after the step, on every device.
        sums: whether an update that can may add up the devices' gradients itself; they are not summed while other work goes on, then.
    """

    def __init__(self, graph: Graph, shared: Collection[str], fetches: Collection[str], sums: bool) -> None:
        nodes = Counter(id(node.op) for node in graph.nodes)
        self._once = {id(n.op) for n in graph.nodes if shared and n.op.role in UPDATES and nodes[id(n.op)] > 1}
        ours = [node for node in graph.nodes if id(node.op) in self._once]
        others = [node for node in graph.nodes if id(node.op) not in self._once]
        self._written = {n for node in ours for n in node.op.output_names()}
        self._single = {*shared} | self._written - {n for node in others for n in node.op.output_names()}
        self._turns = self._share_out(graph, ours)
        elsewhere = {n for node in others if node.kind not in COLLECTIVES for n in node.op.input_names()} | {*fetches}
        reduced = {n for node in graph.nodes if node.kind in COLLECTIVES for n in node.op.inputs["X"]}
        self._alone = (reduced - elsewhere if ours else set()) - {
            v.name for v in graph.program.list_vars() if v.persistable
        }
        self._added = self._find_added(graph, ours) if sums else set()

    def _find_added(self, graph: Graph, ours: Sequence[OpNode]) -> set[str]:
        """Return the gradients that one update alone reads, which can add them up."""
        readers: dict[str, set[int]] = {}
        for node in ours:
            for n in node.op.input_names():
                readers.setdefault(n, set()).add(id(node.op))
        able = {n for node in ours if node.op.definition.spreads for n in node.op.inputs["Grad"]}
        found = {n for n in able & self._alone - self._written if len(readers[n]) == 1}
        buckets = [node.op.inputs["X"] for node in graph.nodes if node.kind in COLLECTIVES]
        grads = [node.op.inputs["Grad"] for node in ours if node.op.definition.spreads]
        before = None
        while found != before:  # whole buckets, and all gradients of an update or none
            before = found
            for groups in (buckets, grads):
                found = {n for names in groups if found.issuperset(names) for n in names}
        return found

    def _share_out(self, graph: Graph, ours: Sequence[OpNode]) -> dict[str, int]:
        """Return parameter -> the device that does its updates, where these cannot be divided: the one with the fewest bytes so far."""
        load = [0] * len(graph.places)
        variables = graph.program.global_block().vars
        found: dict[str, int] = {}
        for node in ours:
            pair = node.op.role_vars
            if len(pair) == 2 and pair[0] not in found and pair[0] in variables:
                found[pair[0]] = load.index(min(load))
                load[found[pair[0]]] += variables[pair[0]].type.nbytes
        return found

    def once(self, node: OpNode) -> bool:
        """Whether a node is one device's copy of an update that is done once."""
        return id(node.op) in self._once

    def turn(self, op: Operator) -> int:
        """Return the device that does an update."""
        return self._turns.get(op.role_vars[0], 0) if len(op.role_vars) == 2 else 0

    def home(self, name: str, device: int) -> int:
        """Return the device whose buffer of a variable a device's ops use."""
        return 0 if name in self._single else device

    def last(self, name: str, device: int) -> int:
        """Return the device whose buffer holds a device's value of a variable after the updates."""
        return 0 if name in self._written else device

    def reads_alone(self, names: Sequence[str]) -> bool:
        """Whether updates alone read these gradients once they are summed, so that one copy is enough."""
        return self._alone.issuperset(names)

    def adds(self, names: Sequence[str]) -> bool:
        """Whether the update that reads these gradients adds them up itself."""
        return bool(names) and self._added.issuperset(names)
