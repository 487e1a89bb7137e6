"""Steps of a job whose kernels are timed."""

from __future__ import annotations

import json
from pathlib import Path

from pe_cli.execute.profile import Profile, run_profile
from pe_cli.execute.trace import trace
from pe_cli.io import atomic
from pe_cli.session.job import Job
from pe_cli.session.timed import Timed, timed_phase


def profile_step(timed: Timed, steps: int) -> Profile:
    """Run the first batch again and again, and record when every kernel ran.

    Args:
        timed: an update of one phase, or an evaluation step; of a job with values, which training changes.
        steps: that are recorded.
    """
    (executor,) = timed.executors
    return run_profile(executor, timed.loader().first(), list(dict.fromkeys(timed.numbers.values())), steps)


def write_trace(job: Job, path: Path, steps: int) -> None:
    """Write a timeline of some steps, of the first phase where they have several, and leave the job's values as they were.

    Args:
        job: with values.
        path: of trace.json, for ui.perfetto.dev and pe report.
        steps: that are recorded.
    """
    before = job.values.state()
    try:
        timed = timed_phase(job, None)
        name = f"{job.run.model.name}: {timed.phase}" if timed.phase else job.run.model.name
        atomic.write_text(path, json.dumps(trace(profile_step(timed, steps), name)))
    finally:
        job.values.restore(before)
