"""Steps of a job whose kernels are timed."""

from __future__ import annotations

import json
from pathlib import Path

from pe_cli.execute.profile import Profile, run_profile
from pe_cli.execute.trace import trace
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


def write_trace(job: Job, path: Path, steps: int) -> None:
    """Write a timeline of some steps, and leave the job's values as they were.

    Args:
        job: with values.
        path: of trace.json, for ui.perfetto.dev and pe report.
        steps: that are recorded.
    """
    before = job.values.state()
    try:
        atomic.write_text(path, json.dumps(trace(profile_job(job, steps), job.run.model.name)))
    finally:
        job.values.restore(before)
