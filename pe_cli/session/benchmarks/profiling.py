"""Steps of a job whose kernels are timed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from pe_cli.execute.diagnostics.profile import Profile, run_profile
from pe_cli.execute.diagnostics.trace import in_turn, together, trace
from pe_cli.io import atomic
from pe_cli.session.benchmarks.benchmark_job import BenchmarkJob, time_phase
from pe_cli.session.job import Job


def profile_step(timed: BenchmarkJob, steps: int) -> Profile:
    """Run the first batch again and again, and record when every kernel ran.

    Args:
        timed: an update of one phase, or an evaluation step; of a job with values, which training changes.
        steps: that are recorded.
    """
    (executor,) = timed.executors
    return run_profile(executor, timed.loader().first(), list(dict.fromkeys(timed.numbers.values())), steps)


def whole_trace(timed: BenchmarkJob, steps: int) -> tuple[Profile, dict[str, Any]]:
    """Profile a step, and return the profile of this process with the timeline of all.

    Clocks of machines differ: times of each process are from where all have told each other that they begin, which they hear at about
    the same time.

    Args:
        timed, steps: as of `profile_step`.
    """
    group, name = timed.job.group, timed.job.run.model.name
    group.texts({})
    origin = time.perf_counter_ns() if group.size > 1 else None
    found = profile_step(timed, steps)
    made = trace(found, f"{name}: {timed.phase}" if timed.phase else name, origin, timed.phase)
    return found, made if group.size == 1 else together(group.texts(made))


def trace_of_phases(job: Job, steps: int) -> dict[str, Any]:
    """Return the timeline of some steps: of every phase as many updates as it makes in them, the phases one after the other.

    Args:
        job: with values, which training changes.
        steps: that are recorded.
    """
    if len(job.built.phases) < 2:
        return whole_trace(time_phase(job, None), steps)[1]
    found = [whole_trace(time_phase(job, phase.name), steps * phase.repeat)[1] for phase in job.built.phases]
    made = in_turn(found)
    return {**made, "otherData": {**made["otherData"], "model": job.run.model.name}}


def write_trace(job: Job, path: Path, steps: int) -> None:
    """Write a timeline of some steps with all their phases, and leave the job's values as they were.

    Args:
        job: with values.
        path: of trace.json, for ui.perfetto.dev and pe report.
        steps: that are recorded.
    """
    before = job.values.state()
    try:
        found = trace_of_phases(job, steps)
        if job.group.leads:
            atomic.write_text(path, json.dumps(found))
    finally:
        job.values.restore(before)
