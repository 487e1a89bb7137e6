"""A profile as a trace for chrome://tracing and ui.perfetto.dev: a process per device, a lane per thread, and one for communication.

Source: "Trace Event Format" (Google, 2016): complete events (ph X) with ts and dur in microseconds, metadata events (ph M) for names.
Events of one lane may only nest; here they never overlap, for a thread runs one kernel at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.execute.diagnostics.profile import Profile

#: Process of the lane that shows steps; devices are 1, 2, ...
STEPS = 0
#: Lane of the communication thread; others are 0, 1, ...
COMMUNICATION = 10_000


def trace(profile: Profile, name: str = "", origin: int | None = None, phase: str = "") -> dict[str, Any]:
    """Return a trace as what JSON is made of.

    Args:
        profile: of some steps.
        name: of the model.
        origin: ns of `time.perf_counter_ns` that count as 0; default: where the first step begins.
        phase: of the steps, which their names begin with.
    """
    plan = profile.plan
    origin = profile.timelines[0].start if origin is None else origin
    events: list[dict[str, Any]] = []
    lanes: set[tuple[int, int]] = set()
    for step, line in enumerate(profile.timelines):
        title = f"{phase}: step {step}" if phase else f"step {step}"
        events.append(_event(title, "step", line.start - origin, line.stop - line.start, (STEPS, 0), {}))
        for i, work in enumerate(line.work.tolist()):
            lane = (1 + plan.tasks[work].home, int(line.thread[i]))
            lanes.add(lane)
            begin, end = int(line.begin[i]), int(line.end[i])
            events.append(_call(profile, work, begin - origin, end - begin, lane, step))
        for work, begin, end in line.beside:
            lane = (1 + plan.tasks[work].home, COMMUNICATION)
            lanes.add(lane)
            event = _call(profile, work, begin - origin, end - begin, lane, step)
            # The lane shows the exchange itself; "start" is the call that only handed it over.
            events.append({**event, "name": str(event["name"]).removeprefix("start_")})
    return {
        "traceEvents": [*_names(profile, sorted(lanes)), *sorted(events, key=lambda e: e["ts"])],
        "displayTimeUnit": "ns",
        "otherData": {"model": name, "threads": profile.threads, "devices": len(plan.graph.places)},
    }


def _call(profile: Profile, work: int, begin: int, duration: int, lane: tuple[int, int], step: int) -> dict[str, Any]:
    plan = profile.plan
    task = plan.tasks[work]
    node = plan.graph.nodes[task.node]
    layer = node.scope.strip("/")
    facts: dict[str, Any] = {"role": node.role.value, "step": step}
    facts |= {"layer": layer} if layer else {}
    facts |= {"at": str(node.at)} if node.at else {}
    facts["kernels"] = ", ".join(dict.fromkeys(c.kernel.name.rpartition(":")[2] for c in task.calls))
    facts["writes"] = ", ".join(f"{b.name}: {b.type}" for b in task.writes[:4])
    title = f"{node.title} {layer}".strip()
    return _event(title, "collective" if node.joins_devices else node.role.value, begin, duration, lane, facts)


def _event(
    name: str, category: str, begin: int, duration: int, lane: tuple[int, int], facts: dict[str, Any]
) -> dict[str, Any]:
    """Return a complete event; times in ns."""
    pid, tid = lane
    made = {"name": name, "cat": category, "ph": "X", "ts": begin / 1e3, "dur": duration / 1e3, "pid": pid, "tid": tid}
    return {**made, "args": facts} if facts else made


def _names(profile: Profile, lanes: list[tuple[int, int]]) -> list[dict[str, Any]]:
    out = [_meta("process_name", STEPS, 0, {"name": "steps"}), _meta("process_sort_index", STEPS, 0, {"sort_index": 0})]
    for d, place in enumerate(profile.plan.graph.places):
        out.append(_meta("process_name", 1 + d, 0, {"name": str(place)}))
        out.append(_meta("process_sort_index", 1 + d, 0, {"sort_index": 1 + d}))
    for pid, tid in lanes:
        out.append(_meta("thread_name", pid, tid, {"name": "communication" if tid == COMMUNICATION else f"thread {tid}"}))
        out.append(_meta("thread_sort_index", pid, tid, {"sort_index": tid}))
    return out


def _meta(kind: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": args}


def in_turn(traces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the traces of several phases as one: each begins where the one before it ends, in the same lanes.

    Args:
        traces: of one process or the same processes, one for each phase, in order.
    """
    names: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    events: list[Mapping[str, Any]] = []
    begin = 0.0
    for found in traces:
        whole = [{**event, "ts": begin + event["ts"]} for event in found["traceEvents"] if event["ph"] == "X"]
        names |= {(e["pid"], e["tid"], e["name"]): e for e in found["traceEvents"] if e["ph"] == "M"}
        events += whole
        # Phases run one after the other in a step, but were recorded with clocks that all begin at 0.
        begin = max((event["ts"] + event["dur"] for event in whole), default=begin)
    return {**traces[0], "traceEvents": [*names.values(), *events]}


def together(traces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the traces of several processes as one: the lanes of the first process, then those of the next, with its number.

    Args:
        traces: by rank, with times from about one moment on.
    """
    events: list[dict[str, Any]] = []
    begin = 0
    for rank, found in enumerate(traces):
        own = found["traceEvents"]
        for event in own:
            made = {**event, "pid": begin + event["pid"]}
            if event["ph"] == "M" and event["name"] == "process_name":
                made["args"] = {"name": f"process {rank}: {event['args']['name']}"}
            elif event["ph"] == "M" and event["name"] == "process_sort_index":
                made["args"] = {"sort_index": begin + event["args"]["sort_index"]}
            events.append(made)
        begin += 1 + max((event["pid"] for event in own), default=0)
    return {**traces[0], "traceEvents": events, "otherData": {**traces[0]["otherData"], "processes": len(traces)}}
