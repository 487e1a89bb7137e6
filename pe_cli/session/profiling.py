"""Steps of a job whose kernels are timed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from pe_cli.execute.profile import Profile, run_profile
from pe_cli.execute.trace import together, trace
from pe_cli.io import atomic
from pe_cli.session.job import Job


def profile_job(job: Job, steps: int) -> Profile:
    """Run the first batch again and again, and record when every kernel ran.

    Args:
        job: with values; training steps change them. Without a train section, evaluation is measured.
        steps: that are recorded.
    """
    program = job.built.train or job.built.eval
    split = "train" if job.built.train is not None else "eval"
    executor = job.executor(program)
    feed = job.loader(split, program, job.batch_size).first()
    return run_profile(executor, feed, list(dict.fromkeys(job.numbers(program).values())), steps)


def whole_trace(job: Job, steps: int) -> tuple[Profile, dict[str, Any]]:
    """Profile a job, and return the profile of this process with the timeline of all.

    Clocks of machines differ: times of each process are from where all have told each other that they begin, which they hear at about
    the same time.

    Args:
        job, steps: as of `profile_job`.
    """
    job.team.texts({})
    origin = time.perf_counter_ns() if job.team.size > 1 else None
    found = profile_job(job, steps)
    made = trace(found, job.run.model.name, origin)
    return found, made if job.team.size == 1 else together(job.team.texts(made))


def write_trace(job: Job, path: Path, steps: int) -> None:
    """Write a timeline of some steps, and leave the job's values as they were.

    Args:
        job: with values.
        path: of trace.json, for ui.perfetto.dev and pe report.
        steps: that are recorded.
    """
    before = job.values.state()
    try:
        found = whole_trace(job, steps)[1]
        if job.team.leads:
            atomic.write_text(path, json.dumps(found))
    finally:
        job.values.restore(before)
