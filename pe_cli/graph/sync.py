"""sync_batch_norm: batch_norm over the samples of all devices, as ops that read every device's partial sums in device order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pe_cli.core.types import TensorType
from pe_cli.graph.ssa import GraphBuilder, Slots
from pe_cli.ops.registry import find, grad_name
from pe_cli.program.ir import Operator

#: Ops that are split, with the ops that they become: partial sums of one device, and the rest given all partial sums.
SYNCED = {
    "batch_norm": ("sync_batch_norm_sums", "sync_batch_norm"),
    "batch_norm_grad": ("sync_batch_norm_grad_sums", "sync_batch_norm_grad"),
}


def add_synced(
    build: GraphBuilder, op: Operator, running: Sequence[int], place: Callable[[dict[str, list[str]], int], Slots]
) -> None:
    """Add the nodes of one batch_norm or its gradient on all devices.

    Args:
        build: of the graph.
        op: batch_norm or batch_norm_grad in training.
        running: devices with samples.
        place: gives slots a device.
    """
    first, second = SYNCED[op.type]
    block = build.graph.program.global_block()
    out = op.outputs.get("Y") or op.outputs.get(grad_name("X")) or next(iter(op.outputs.values()))
    partial = f"{out[0]}@SYNC"
    channels = block.var(op.inputs["Scale"][0]).shape[0]
    if partial not in block.vars:
        block.create_var(partial, TensorType((2 * channels + 1,), "float64"), stop_gradient=True)
    known = find(first)
    taken = {s.name for s in (*known.inputs, *known.outputs)}
    facts = dict(op.attrs), op.role
    early = {s: n for s, n in op.outputs.items() if s in taken}
    late = {s: n for s, n in op.outputs.items() if s not in taken}
    inputs = {s: n for s, n in op.inputs.items() if s in taken}
    sums = Operator(first, inputs, {"Sums": [partial], **early}, *facts, op.role_vars, op.at, op.scope)
    rest = Operator(second, {**op.inputs, "Sums": [partial]}, late, *facts, [], op.at, op.scope)
    for d in running:
        build.add("computation", sums, d, place(sums.inputs, d), place(sums.outputs, d))
    if not late:
        return
    for d in running:
        ins = {**place(op.inputs, d), "Sums": [(partial, other) for other in running]}
        build.add("sync", rest, d, ins, place(rest.outputs, d))
