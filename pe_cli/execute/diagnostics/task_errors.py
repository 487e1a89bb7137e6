"""Turns a failed task into an error that names the layer, the row and the value."""

from __future__ import annotations

from pe_cli.collectives.protocol import PeerError
from pe_cli.core.errors import PeError
from pe_cli.execute.lowering.context import GraphLowering
from pe_cli.execute.lowering.tasks import Task
from pe_cli.graph.ssa import Check, Compute, Graph
from pe_cli.kernels.cpu.loop_calls import LABEL, ROUND
from pe_cli.kernels.cpu.python_calls import HostKernel
from pe_cli.kernels.status_codes import NOT_FINITE
from pe_cli.ops.define.status import failure, layer_of, not_finite
from pe_cli.ops.define.traits import ReportsData


def failed_task(task: Task, report: list[int], step: int, graph: Graph, lowering: GraphLowering) -> BaseException:
    """Return what to raise for a task whose kernel wrote an error report.

    Args:
        task: that failed.
        report: what its kernel wrote: code, row, value, limit, and the op inside a region with its round.
        step: number of the step.
        graph: of the task.
        lowering: that made the task.

    Returns:
        A `PeError` with the place of the layer; or what a Python function of the step raised, where that means no failure of the function:
        the end of another process, Ctrl-C, or `sys.exit`.
    """
    node = graph.nodes[task.node]
    if isinstance(node, Check) and report[0] == NOT_FINITE:
        return _not_finite(node, report, step, graph, lowering)
    if isinstance(node, Compute):
        # The kernel counts rows of its device's part, and people count those of the batch.
        report[1] += lowering.rows_before(node.op, node.device)  # the row in the whole batch
    raised = next((c.kernel.error for c in task.calls if isinstance(c.kernel, HostKernel)), None)
    if isinstance(raised, (KeyboardInterrupt, SystemExit, PeerError)):
        return raised
    name, at = node.op.type if isinstance(node, Compute) else node.title, node.at
    definition = node.op.definition if isinstance(node, Compute) else None
    if report[LABEL]:  # of an op inside
        op = next(op for op, label in lowering.labels.items() if label == report[LABEL])
        definition = op.definition
        # The op of a region stands at its own line of the model, which says more than the line of the loop.
        name, at = f"{op.type} in round {report[ROUND]}" if report[ROUND] else op.type, op.at or at
    error = failure(report, name, at, step, raised, definition.get(ReportsData) if definition else None)
    error.__cause__ = raised
    return error


def _not_finite(node: Check, report: list[int], step: int, graph: Graph, lowering: GraphLowering) -> PeError:
    """Return the error of the first value of a node that is NaN or infinite."""
    name, device = node.ins["X"][report[3]]
    where = str(graph.places[node.device]) if len(graph.places) > 1 else ""
    made, shape = graph.program.find_var(name), lowering.types[device][name].shape
    who = f"layer '{layer_of(name)}'" if ".fused." in f"{node.op.definition.module}." else node.op.type
    joined = len(node.op.attrs.get("ops", ())) > 1  # whose results inside are stored nowhere
    return not_finite(report, who, name, (made.at if made else None) or node.at, step, shape, where, joined=joined)
