"""Explains the duration of a step: its critical path, and the speed-up that more threads could give."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.execute.diagnostics.profile import Profile, task_seconds, use


@dataclass(frozen=True)
class Step:
    """A run of the same op on the critical path.

    Args:
        op: type.
        layer: name scope.
        calls: tasks of it in a row.
        ms: their duration.
    """

    op: str
    layer: str
    calls: int
    ms: float


@dataclass(frozen=True)
class Parallelism:
    """What limits a step on several threads; all times by the measured durations of its kernels.

    Args:
        threads: of the step.
        work_ms: of all kernels, one after the other.
        path_ms: the critical path: the least time, whatever the number of threads.
        path: its ops, in order.
        predicted_ms: when the threads take ready work at once, and taking it costs nothing.
        measured_ms: of an ordinary step.
        recorded_ms: of a step whose kernels were timed.
    """

    threads: int
    work_ms: float
    path_ms: float
    path: tuple[Step, ...]
    predicted_ms: float
    measured_ms: float
    recorded_ms: float

    @property
    def useful_threads(self) -> float:
        """How many threads the step could keep busy at most."""
        return self.work_ms / self.path_ms if self.path_ms else 1.0

    @property
    def predicted(self) -> float:
        """Predicted efficiency, 0 to 1: work over threads times predicted time."""
        return self._efficiency(self.predicted_ms)

    @property
    def measured(self) -> float:
        """Measured efficiency, 0 to 1."""
        return self._efficiency(self.measured_ms)

    def _efficiency(self, ms: float) -> float:
        return self.work_ms / (self.threads * ms) if ms else 0.0


def parallelism(profile: Profile) -> Parallelism:
    """Return how much of a profiled step ran side by side, and what limits it."""
    import statistics

    plan = profile.plan
    seconds = task_seconds(profile).tolist()
    # One more thread than there can be, so that no device's own order counts: the path shows what data alone asks for.
    free = plan.waits(max(profile.threads, len(plan.graph.places)) + 1)  # data and the strategy's rules, no fixed order
    length, path = critical_path(seconds, free)
    waits = plan.waits(profile.threads) if profile.threads > 1 else free
    homes = [t.home for t in plan.tasks]
    return Parallelism(
        profile.threads,
        sum(seconds) * 1e3,
        length * 1e3,
        _steps(profile, path, seconds),
        simulate(seconds, waits, homes, profile.threads) * 1e3,
        statistics.median(profile.plain_ms),
        use(profile).wall_ms,
    )


def critical_path(seconds: Sequence[float], waits: Sequence[Collection[int]]) -> tuple[float, list[int]]:
    """Return the longest way through tasks in a valid order, in seconds, and the tasks on it.

    >>> critical_path([1.0, 2.0, 5.0, 1.0], [(), (0,), (), (0, 1)])
    (5.0, [2])
    >>> critical_path([1.0, 2.0, 1.0], [(), (0,), (0, 1)])
    (4.0, [0, 1, 2])
    """
    done: list[float] = []
    before: list[int] = []
    for i, own in enumerate(seconds):
        last = max(waits[i], key=lambda b: (done[b], b), default=-1)
        before.append(last)
        done.append(own + (done[last] if last >= 0 else 0.0))
    if not done:
        return 0.0, []
    at = max(range(len(done)), key=done.__getitem__)
    total, path = done[at], []
    while at >= 0:
        path.append(at)
        at = before[at]
    return total, path[::-1]


def simulate(seconds: Sequence[float], waits: Sequence[Collection[int]], homes: Sequence[int], threads: int) -> float:
    """Return when the last task is done if free threads take ready tasks at once: first those at home, then the oldest.

    >>> simulate([1.0, 1.0, 1.0], [(), (), (0, 1)], [0, 1, 0], 2)
    2.0
    >>> simulate([1.0, 1.0, 1.0], [(), (), ()], [0, 0, 0], 1)
    3.0
    """
    followers: list[list[int]] = [[] for _ in seconds]
    left = [len(w) for w in waits]
    for i, before in enumerate(waits):
        for b in before:
            followers[b].append(i)
    ready = [i for i, n in enumerate(left) if not n]
    free = list(range(threads))
    running: list[tuple[float, int, int]] = []  # end, task, thread
    now = 0.0
    while ready or running:
        while ready and free:
            # A thread takes what is at home with it first, as the scheduler does, so that the prediction sees the same cache effects.
            thread, task = next(((t, r) for t in free for r in ready if homes[r] % threads == t), (free[0], ready[0]))
            free.remove(thread)
            ready.remove(task)
            heapq.heappush(running, (now + seconds[task], task, thread))
        now, task, thread = heapq.heappop(running)
        free.append(thread)
        free.sort()
        for f in followers[task]:
            left[f] -= 1
            if not left[f]:
                ready.append(f)
    return now


def _steps(profile: Profile, path: Sequence[int], seconds: Sequence[float]) -> tuple[Step, ...]:
    plan = profile.plan
    out: list[Step] = []
    for i in path:
        node = plan.graph.nodes[plan.tasks[i].node]
        op, layer, ms = node.title, node.scope.strip("/"), seconds[i] * 1e3
        if out and (out[-1].op, out[-1].layer) == (op, layer):
            out[-1] = Step(op, layer, out[-1].calls + 1, out[-1].ms + ms)
        else:
            out.append(Step(op, layer, 1, ms))
    return tuple(out)
