"""From a program to a graph over devices: replicas, the scale of the loss gradient, and all-reduces."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place
from pe_cli.graph.ssa import Graph, GraphBuilder
from pe_cli.program.ir import Operator, Program, Role

#: Gradients of one all-reduce, in bytes: large enough to amortise a rendezvous, small enough to overlap with backward.
BUCKET_BYTES = 4 << 20


def replicate(
    program: Program,
    places: Sequence[Place],
    strategy: BuildStrategy,
    *,
    active: Collection[int] | None = None,
) -> Graph:
    """Copy forward, backward and optimizer ops to every device and join the gradients.

    Args:
        program: after passes.
        places: devices.
        strategy: how to join.
        active: devices that have samples; default all. The others run the optimizer only.

    Returns:
        A graph. With one device it is the program's own order without collectives.

    Raises:
        PeError: more than one device while no op of the program carries a parameter's gradient role, though it has optimizer ops.
    """
    devices = range(len(places))
    running = sorted(devices if active is None else active)
    graph = Graph(program, tuple(places), tuple(running))
    build = GraphBuilder(graph)
    ops = program.global_block().ops
    gradients = _gradients(ops) if len(places) > 1 else {}
    if len(places) > 1 and not gradients and any(op.role is Role.OPTIMIZE for op in ops):
        raise PeError("the program updates parameters but no op carries their gradients' roles", hint="name the loss")
    waiting: list[str] = []
    last = {name: i for i, op in enumerate(ops) for name in op.output_names() if name in gradients}
    for i, op in enumerate(ops):
        updates = op.role in (Role.OPTIMIZE, Role.LR_SCHED)
        if updates and waiting:
            _all_reduce(build, program, waiting, running, devices)
            waiting = []
        for d in devices if updates else running:
            kind = (
                "scale_loss_grad"
                if op.role is Role.LOSS and op.type == "fill_like" and len(places) > 1
                else "computation"
            )
            build.add(kind, op, d, [(n, d) for n in op.input_names()], [(n, d) for n in op.output_names()])
        waiting += [n for n in dict.fromkeys(op.output_names()) if last.get(n) == i]
    if waiting:
        _all_reduce(build, program, waiting, running, devices)
    return graph


def _gradients(ops: Sequence[Operator]) -> dict[str, str]:
    """Return gradient -> parameter from the backward ops' role variables."""
    found = {}
    for op in ops:
        if op.role in (Role.BACKWARD, Role.LOSS):
            found.update(dict(zip(op.role_vars[1::2], op.role_vars[::2], strict=True)))
    return found


def _all_reduce(
    build: GraphBuilder, program: Program, names: list[str], running: Sequence[int], devices: Sequence[int]
) -> None:
    variables = program.global_block().vars
    bucket: list[str] = []
    size = 0
    for i, name in enumerate(names):
        bucket.append(name)
        size += variables[name].type.nbytes
        following = variables[names[i + 1]] if i + 1 < len(names) else None
        if following is None or size >= BUCKET_BYTES or following.dtype != variables[name].dtype:
            kind = "all_reduce" if len(bucket) == 1 else "fused_all_reduce"
            op = Operator(kind, {"X": list(bucket)}, {"Out": list(bucket)}, {}, Role.DIST)
            reads = [(n, d) for n in bucket for d in running]
            build.add(kind, op, 0, reads, [(n, d) for n in bucket for d in devices])
            bucket, size = [], 0
