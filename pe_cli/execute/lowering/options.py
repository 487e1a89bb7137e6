"""Decides how a graph is lowered for a batch: with how many threads, and whether its ops are split for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pe_cli.core.types import TensorType
from pe_cli.devices.protocol import device
from pe_cli.execute.lowering.batch_rows import Whole
from pe_cli.execute.lowering.context import GraphLowering
from pe_cli.execute.numeric_settings import Numerics
from pe_cli.execute.plan import work_stealing
from pe_cli.execute.plan.cost import costs, wide
from pe_cli.graph.ssa import Compute, Graph


def lowering(
    graph: Graph,
    types: Sequence[Mapping[str, TensorType]],
    sizes: Sequence[int],
    numerics: Numerics,
    *,
    threads: int,
    whole: Whole | None = None,
    like: GraphLowering | None = None,
) -> GraphLowering:
    """Return what a graph is lowered with for a batch, as many threads as there are for all devices; see `GraphLowering`."""
    each = max(1, threads // len(graph.places))
    # Only where each device has one thread: with more, threads of a device already share its ops.
    if 1 < threads <= len(graph.places) and device(graph.places[0].kind).native_threads:
        graph = work_stealing.steal_last_gradients(graph, types)
    # Whole ops are faster than their parts, so that a device whose ops are independent leaves them whole.
    cuts = each > 1 and not _is_wide(graph, types, each)
    return GraphLowering(graph, types, sizes, numerics, whole=whole, threads=each, cuts=cuts, like=like)


def _is_wide(graph: Graph, types: Sequence[Mapping[str, TensorType]], threads: int) -> bool:
    """Return whether a device's threads have enough to do side by side, so that its ops are better left whole."""
    device = next(iter(graph.active), 0)
    ours = [node.op for node in graph.nodes if isinstance(node, Compute) and node.device == device]
    return wide(costs(ours, graph.program.main_block, types[device].get), threads)


def written_elsewhere(graph: Graph, fetches: Sequence[str]) -> dict[tuple[str, int], int]:
    """Return, for fetches that not every device computes (with Reduce: the owner alone), the device whose value is meant."""
    writers = {(v.name, v.device): None for node in graph.nodes for v in node.outputs}
    found: dict[tuple[str, int], int] = {}
    for name in fetches:
        there = [d for n, d in writers if n == name]
        found |= {(name, d): there[-1] for d in graph.active if there and d not in there}
    return found
