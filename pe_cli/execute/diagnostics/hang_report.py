"""Reports a step that hangs as an error: what runs, what waits for what, and on which device."""

from __future__ import annotations

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.devices.protocol import Stalled
from pe_cli.execute.plan.plan import Plan

#: Waiting ops that the message names; further ones are counted.
SHOWN = 6


def hang_report(plan: Plan, found: Stalled) -> PeError:
    """Return the error of a step that makes no progress (exit code 7).

    Args:
        plan: of the step.
        found: what its device says.
    """
    count = len(found.waiting)
    running = "; ".join(
        f"{_name(plan, work)} is in kernel {kernel} since {seconds:.3g} s, on thread {thread}"
        for work, kernel, thread, seconds in found.running
    )
    waiting = [_waiting(plan, *row) for row in found.waiting[:SHOWN]]
    if count > SHOWN:
        waiting.append(f"and {count - SHOWN} more")
    one = plan.graph.nodes[plan.tasks[found.running[0][0]].node] if found.running else None
    return PeError(
        f"no progress for {found.seconds:.3g} s: {running or 'no kernel runs'};"
        f" {found.done} ops are done, {count} {'waits' if count == 1 else 'wait'}",
        at=one.at if one else None,
        hint="; ".join(waiting) + "\n      executor.watchdog sets after how many seconds a step is ended"
        if waiting
        else "executor.watchdog sets after how many seconds a step is ended",
        code=ExitCode.STALLED,
    )


def _waiting(plan: Plan, work: int, before: tuple[int, ...]) -> str:
    if not before:
        return f"{_name(plan, work)} waits for its turn"
    more = f" and {len(before) - 2} more" if len(before) > 2 else ""
    return f"{_name(plan, work)} waits for {', '.join(_name(plan, b) for b in before[:2])}{more}"


def _name(plan: Plan, work: int) -> str:
    """Return an op as people know it: `conv2d (conv1) on cpu:1`."""
    task = plan.tasks[work]
    node = plan.graph.nodes[task.node]
    scope = f" ({node.scope.strip('/')})" if node.scope else ""
    return f"{node.title}{scope} on {plan.graph.places[task.home]}"
