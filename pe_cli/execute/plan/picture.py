"""A plan as a picture: what each thread takes, with its kernels, and what flows between them."""

from __future__ import annotations

from pe_cli.execute.lowering.tasks import Task
from pe_cli.execute.plan.plan import Plan
from pe_cli.graph.picture import Arrow, Box, Datum, Picture, is_fused


def plan_picture(plan: Plan, title: str = "") -> Picture:
    """Return the picture of a plan: one box per task, an arrow where one waits for another.

    Args:
        plan: one step.
        title: over the picture.
    """
    waits = plan.waits(max(2, len(plan.graph.places)))
    boxes, arrows = [], []
    for i, task in enumerate(plan.tasks):
        boxes.append(_box(plan, i, task))
        implied = {w for b in waits[i] for w in waits[b]}
        for before in sorted(waits[i]):
            written = dict.fromkeys(plan.tasks[before].writes)
            data = tuple(Datum(b.name, b.type) for b in dict.fromkeys(task.reads) if b in written)
            if data:
                arrows.append(Arrow(f"task{before}", f"task{i}", data))
            # A wait that others imply would only hide the arrows that matter.
            elif before not in implied:
                arrows.append(Arrow(f"task{before}", f"task{i}", order=True))
    fed = {(name, d): kind for d, feeds in enumerate(plan.request.feeds) for name, kind in feeds}
    for (name, d), kind in fed.items():
        key = f"{name}/{d}/0"
        boxes.append(Box(key, name, "feed", cluster=d, names=frozenset([name])))
        readers = [i for i, t in enumerate(plan.tasks) if t.home == d and any(b.name == name for b in t.reads)]
        arrows += [Arrow(key, f"task{i}", (Datum(name, kind),)) for i in readers]
    return Picture(title, tuple(map(str, plan.graph.places)), tuple(boxes), tuple(arrows))


def _box(plan: Plan, index: int, task: Task) -> Box:
    node = plan.graph.nodes[task.node]
    kernels = dict.fromkeys(c.kernel.name.rpartition(":")[2] for c in task.calls)
    lines = [node.scope.strip("/")] if node.scope else []
    lines += [f"{name}()" for name in kernels] or ["no kernel: the same bytes"]
    if task.part is not None:
        lines.append(f"elements {task.part[0]} to {task.part[1] - 1}")
    lines += [f"{b.name} at {plan.where(b)}" for b in dict.fromkeys(task.writes)][:3]
    names = frozenset(b.name for b in (*task.reads, *task.writes))
    return Box(
        f"task{index}",
        node.title,
        "collective" if node.joins_devices else "op",
        node.role.value,
        task.home,
        node.scope,
        tuple(lines),
        str(node.at or ""),
        names,
        is_fused(node),
    )
