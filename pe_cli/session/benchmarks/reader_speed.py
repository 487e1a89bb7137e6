"""Measures the throughput of the reader, alone and beside training steps."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from typing import Any

from pe_cli.session.benchmarks.benchmark_job import BenchmarkJob
from pe_cli.session.job import Job


def open_data(job: Job) -> float:
    """Open the data that is timed, and return the seconds that it took."""
    begin = time.perf_counter()
    programs = job.built.programs or (job.built.eval,)
    job.data.loader("train" if job.built.phases else "eval", programs, job.step_size)
    return time.perf_counter() - begin


def measure_reading(timed: BenchmarkJob, fed_ms: float, steps: int, seconds: float) -> dict[str, Any]:
    """Time the reader alone, and training steps that take their batches from it.

    Args:
        timed: a step of a job with values, which training changes.
        fed_ms: milliseconds of a step that is fed from memory.
        steps: that are timed.
        seconds: for which the reader alone is timed.

    Returns:
        `data_samples_per_s` of the reader alone, `ms_per_reading_step`, and `beyond_step`, the share of such a step that a step fed
        from memory does not take.
    """

    def batches() -> Iterator[Any]:
        loader = timed.loader(drop_last=len(timed.job.data.dataset(timed.split)) >= timed.size)
        return itertools.chain.from_iterable(map(loader.epoch, itertools.count()))

    samples, begin = 0, time.perf_counter()
    for feed in batches():
        samples += timed.samples(feed)
        if time.perf_counter() - begin > seconds:
            break
    rate = samples / (time.perf_counter() - begin)
    times, last = [], time.perf_counter()
    for i, feed in enumerate(itertools.islice(batches(), steps + 1)):
        timed.run(feed, [], i)
        now = time.perf_counter()
        times.append((now - last) * 1000)
        last = now
    reading = statistics.median(times[1:])  # the first makes the plan
    return {
        "data_samples_per_s": round(rate, 1),
        "ms_per_reading_step": round(reading, 4),
        "beyond_step": round(max(0.0, 1 - fed_ms / reading), 3),
    }
