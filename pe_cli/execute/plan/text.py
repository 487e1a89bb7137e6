"""A plan as text: kernel calls with the places of their arguments, chains, and figures of memory."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.devices.native_loops import ANYONE
from pe_cli.execute.plan.plan import Plan
from pe_cli.kernels.calls import Buffer, Numbers, Offset, Table


def describe_plan(plan: Plan) -> str:
    """Return the plan as text: memory first, then one line per kernel call, then chains where threads take them dynamically."""
    lines = []
    for d, found in enumerate(plan.memory):
        place, memory = plan.graph.places[d], found.plan
        lines.append(f"{place}: {memory.nbytes:,} bytes planned, {memory.unshared:,} without sharing")
    call_index = 0
    for task in plan.tasks:
        node = plan.graph.nodes[task.node]
        if not task.calls:
            shared = ", ".join(f"{out.name} = {source.name}" for out, source in task.views.items())
            lines.append(f"      {task.home} {node.title}: no kernel, {shared}")
        for call in task.calls:
            args = ", ".join(_argument(plan, a) for a in call.args)
            lines.append(
                f"{call_index:5} {task.home} {node.title}: {call.kernel.name.split(':')[1]}<{call.dtype}>({args})"
            )
            call_index += 1
    tape = getattr(plan.step, "tape", None)
    for i, chain in enumerate(tape.chains if tape else ()):
        follow = " -> " + ", ".join(map(str, chain.successors)) if chain.successors else ""
        spans = ", ".join(f"{begin}..{end - 1}" for begin, end in _joined(chain.spans))
        where = "any thread" if chain.home == ANYONE else f"thread {chain.home}"
        lines.append(f"chain {i}: calls {spans or 'none'} on {where}{follow}")
    return "\n".join(lines) + "\n"


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans with neighbours joined and empty ones left out."""
    out: list[tuple[int, int]] = []
    for begin, end in spans:
        if begin == end:
            continue
        if out and out[-1][1] == begin:
            out[-1] = (out[-1][0], end)
        else:
            out.append((begin, end))
    return out


def _argument(plan: Plan, arg: object) -> str:
    if isinstance(arg, Offset):
        return f"{_argument(plan, arg.buffer)}+{arg.elements}"
    if isinstance(arg, Buffer):
        where = plan.where(arg)
        return f"{arg.name}[{where}]"
    if isinstance(arg, Table):
        return "{" + ", ".join(_argument(plan, b) for b in arg.buffers) + "}"
    if isinstance(arg, Numbers):
        return "(" + ", ".join(map(str, arg.values)) + ")"
    return str(arg)
