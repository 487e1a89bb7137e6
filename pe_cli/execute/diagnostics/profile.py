"""Where the time of a step goes: per op, per thread, and how far sums over devices hide behind computing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.devices.protocol import Timeline
from pe_cli.execute.executor import Executor, Feed
from pe_cli.execute.lowering.flop_count import operations
from pe_cli.execute.lowering.tasks import Task
from pe_cli.execute.plan.plan import Plan
from pe_cli.graph.ssa import Check, Compute, Gather, Node, Start, Wait
from pe_cli.ops.define.traits import ByRows, Table
from pe_cli.program.ir import Operator, Role

#: [n, 2] begins and ends in ns.
Spans = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Profile:
    """Steps that were watched closely, and as many that were not.

    Args:
        plan: that ran.
        timelines: of the watched steps.
        plain_ms: duration of the other steps, feeding and fetching apart.
    """

    plan: Plan
    timelines: tuple[Timeline, ...]
    plain_ms: tuple[float, ...]

    @property
    def threads(self) -> int:
        """Threads of a step."""
        return self.timelines[0].threads

    @property
    def step_ms(self) -> float:
        """Median duration of a watched step."""
        return statistics.median((t.stop - t.start) / 1e6 for t in self.timelines)


def run_profile(executor: Executor, feed: Feed, fetches: Sequence[str], steps: int, warmup: int = 3) -> Profile:
    """Run a batch again and again, and record when every kernel ran.

    Args:
        executor: of the program.
        feed: the batch.
        fetches: variables that are read after each step.
        steps: that are recorded; as many run unrecorded, in between, for comparison.
        warmup: steps before.
    """
    batch = executor.batch(feed, fetches)
    plan, parts = batch.plan, batch.parts
    number = 0
    # Both forms of a step are warmed up: the timed tape is compiled at its first use.
    for _ in range(warmup):
        plan.run(parts, number)
        plan.run_timed(parts, number + 1)
        number += 2
    timelines, plain = [], []
    # Watched and plain steps alternate, so that a change of clock speed meets both alike.
    for _ in range(steps):
        begin = time.perf_counter_ns()
        # Without copies in and out: `plain` is what the kernels and the scheduler take.
        plan.step.run(number)
        plain.append((time.perf_counter_ns() - begin) / 1e6)
        timelines.append(plan.run_timed(parts, number + 1)[1])
        number += 2
    return Profile(plan, tuple(timelines), tuple(plain))


# --- ops --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """The calls of one kind of op in one layer.

    Args:
        op: type, or kind of a collective.
        layer: name scope; empty outside layers.
        role: forward, backward, ...
        calls: kernel calls a step, over all devices.
        ms: of all calls of a step, mean over steps.
        share: of the time that all threads compute, 0 to 1.
        gflops: 10^9 floating-point operations a second, where the op counts them.
        gbytes: 10^9 bytes read and written a second, by the sizes of its variables.
        at: line of the model file.
    """

    op: str
    layer: str
    role: str
    calls: float
    ms: float
    share: float
    gflops: float | None
    gbytes: float
    at: str


def rows(profile: Profile, by: str = "layer") -> list[Row]:
    """Return where the time goes, most first.

    Args:
        profile: of some steps.
        by: layer keeps the same op of different layers apart, op does not.
    """
    plan = profile.plan
    seconds, calls = _per_task(profile)
    total = float(seconds.sum()) or 1.0
    groups: dict[tuple[str, str, str], list[int]] = {}
    for i, task in enumerate(plan.tasks):
        node = plan.graph.nodes[task.node]
        layer = node.scope.strip("/") if by == "layer" else ""
        groups.setdefault((node.title, layer, node.role.value), []).append(i)
    out = []
    for (op, layer, role), members in groups.items():
        time_ = float(seconds[members].sum())
        if not calls[members].sum():
            continue  # its output is its input's bytes
        counted = [flops(plan, plan.graph.nodes[plan.tasks[i].node]) for i in members]
        known = None not in counted and time_ > 0
        # Bytes of a task's variables, not of its traffic: what stays in a cache counts as well.
        moved = sum(nbytes(plan.tasks[i], plan.graph.nodes[plan.tasks[i].node]) for i in members)
        place = plan.graph.nodes[plan.tasks[members[0]].node].at if by == "layer" else None
        out.append(
            Row(
                op, layer, role, float(calls[members].sum()), time_ * 1e3, time_ / total,
                sum(c for c in counted if c) / time_ / 1e9 if known else None,
                moved / time_ / 1e9 if time_ else 0.0, str(place or ""),
            )
        )  # fmt: skip
    return sorted(out, key=lambda r: -r.ms)


def _per_task(profile: Profile) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return seconds and calls of every task, a step."""
    n = len(profile.plan.tasks)
    seconds, calls = np.zeros(n), np.zeros(n)
    for line in profile.timelines:
        seconds += np.bincount(line.work, (line.end - line.begin) / 1e9, minlength=n)
        calls += np.bincount(line.work, minlength=n)
    return seconds / len(profile.timelines), calls / len(profile.timelines)


def task_seconds(profile: Profile) -> np.ndarray[Any, Any]:
    """Return the median seconds of every task of the plan; 0 for those without a kernel."""
    n = len(profile.plan.tasks)
    each = [np.bincount(t.work, (t.end - t.begin) / 1e9, minlength=n) for t in profile.timelines]
    return np.asarray(np.median(each, axis=0))


def flops(plan: Plan, node: Node) -> int | None:
    """Return the floating-point operations of a node, or None where its op does not count them."""
    if not isinstance(node, Compute) or isinstance(node, (Check, Gather)):
        return None
    return operations(node.op, lambda name: plan.type_of(name, node.device))


def nbytes(task: Task, node: Node) -> int:
    """Return the bytes of the variables that a task of a node reads and writes; scratch memory is left out."""
    if task.beside:
        return 0  # the node's first task counts for all
    touched = _touched(task, node.op) if isinstance(node, Compute) else {}
    touched |= {b.name: (high - low) * b.type.numpy.itemsize for b, (low, high) in task.spans.items()}
    return sum(touched.get(b.name, b.type.nbytes) for b in (*dict.fromkeys(task.reads), *dict.fromkeys(task.writes)))


def _touched(task: Task, op: Operator) -> dict[str, int]:
    """Return the bytes of tables of which an op reads or writes some rows only."""
    lookup = op.definition.get(Table)
    if lookup is not None:
        names, by = set(op.inputs[lookup.table]), op.outputs[lookup.out][0]
    elif "Rows" in op.inputs and op.attrs.get("lazy_mode", op.definition.has(ByRows)):
        names, by = set(op.input_names()) - {n for s in ("Grad", "Rows") for n in op.inputs[s]}, op.inputs["Grad"][0]
    else:
        return {}
    most = next(b.type.nbytes for b in (*task.reads, *task.writes) if b.name == by)
    return {b.name: min(b.type.nbytes, most) for b in (*task.reads, *task.writes) if b.name in names}


# --- threads and overlap ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Use:
    """What the threads of a step did, means over steps.

    Args:
        wall_ms: the step.
        busy_ms: per thread: inside kernels.
        idle_ms: per thread: waiting, or taking work.
        collective_ms: during which at least one thread sums over devices.
        hidden_ms: of that, during which another thread computes.
        backward_ms: of that, during which another thread computes gradients.
        process_ms: during which the communication thread sums over processes.
        process_hidden_ms: of that, during which a thread computes.
    """

    wall_ms: float
    busy_ms: tuple[float, ...]
    idle_ms: tuple[float, ...]
    collective_ms: float
    hidden_ms: float
    backward_ms: float
    process_ms: float = 0.0
    process_hidden_ms: float = 0.0

    @property
    def busy_threads(self) -> float:
        """Threads that compute at a time, on average."""
        return sum(self.busy_ms) / self.wall_ms if self.wall_ms else 0.0


def use(profile: Profile) -> Use:
    """Return what the threads did."""
    nodes = [profile.plan.graph.nodes[t.node] for t in profile.plan.tasks]
    waiting = np.array([isinstance(n, (Start, Wait)) for n in nodes] or [False])
    collective = np.array([n.joins_devices for n in nodes] or [False])
    backward = np.array([n.role is Role.BACKWARD for n in nodes] or [False]) & ~collective
    figures = []
    for line in profile.timelines:
        spans = np.stack([line.begin, line.end], axis=1)
        of = line.work
        busy = np.bincount(line.thread, line.end - line.begin, minlength=profile.threads)
        # A thread that waits for other processes is not busy, though a kernel call of its runs.
        busy -= np.bincount(line.thread[waiting[of]], (line.end - line.begin)[waiting[of]], minlength=profile.threads)
        sums, computing = merged(spans[(collective & ~waiting)[of]]), merged(spans[~collective[of]])
        beside = merged(np.array([(begin, end) for _, begin, end in line.beside], np.int64).reshape(-1, 2))
        figures.append(
            [
                line.stop - line.start,
                length(sums),
                length(common(sums, computing)),
                length(common(sums, merged(spans[backward[of]]))),
                length(beside),
                length(common(beside, computing)),
                *busy,
            ]
        )
    wall, summed, hidden, behind, told, over, *threads = (float(v) / 1e6 for v in np.mean(figures, axis=0))
    return Use(wall, tuple(threads), tuple(max(0.0, wall - b) for b in threads), summed, hidden, behind, told, over)


def merged(spans: Spans) -> Spans:
    """Return disjoint spans in order that cover the same time.

    >>> merged(np.array([[5, 7], [0, 2], [1, 3]])).tolist()
    [[0, 3], [5, 7]]
    """
    out: list[list[int]] = []
    for begin, end in sorted(map(tuple, spans.tolist())):
        if out and begin <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return np.array(out, np.int64).reshape(-1, 2)


def common(a: Spans, b: Spans) -> Spans:
    """Return the time that two lists of disjoint, ordered spans share.

    >>> common(np.array([[0, 4], [6, 9]]), np.array([[3, 7]])).tolist()
    [[3, 4], [6, 7]]
    """
    out = []
    i = j = 0
    while i < len(a) and j < len(b):
        begin, end = max(a[i, 0], b[j, 0]), min(a[i, 1], b[j, 1])
        if begin < end:
            out.append((begin, end))
        if a[i, 1] < b[j, 1]:
            i += 1
        else:
            j += 1
    return np.array(out, np.int64).reshape(-1, 2)


def length(spans: Spans) -> int:
    """Return the time that disjoint spans cover."""
    return int((spans[:, 1] - spans[:, 0]).sum()) if len(spans) else 0


def as_json(row: Any, names: Iterable[str]) -> Mapping[str, object]:
    """Return some fields of a dataclass; floats to six digits."""
    return {n: float(f"{v:.6g}") if isinstance(v := getattr(row, n), float) else v for n in names}
